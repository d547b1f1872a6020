//! The simulator as its clients meet it: over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world has failed")]

mod changes;
mod control;
mod faults;
mod keys;
mod lookups;
mod process;
mod services;

use std::sync::Once;

use serde_json::Value;
use tempfile::TempDir;
use twice_provider_sim::{Sim, SimConfig, Switch};

/// A running simulator with a database that goes with it, and a client.
struct World {
    sim: Sim,
    client: Client,
    directory: TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut SimConfig)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut config = SimConfig::new(directory.path().join("provider.db"));
        change(&mut config);
        let sim = Sim::start(config).await.unwrap();
        let client = Client::new(&sim.url());
        Self { sim, client, directory }
    }

    async fn switched(switches: &[&str]) -> Self {
        let world = Self::new().await;
        world.switch(switches).await;
        world
    }

    async fn switch(&self, switches: &[&str]) {
        let switches: Vec<Switch> = switches.iter().map(|s| s.parse().unwrap()).collect();
        self.sim.set_switches(switches).await.unwrap();
    }

    async fn effects(&self) -> u64 {
        self.sim.counters().await.unwrap().effects
    }
}

/// An HTTP client that sends each request once and never over an old connection.
#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    url: String,
}

/// What came back.
#[derive(Debug, Clone)]
struct Seen {
    status: u16,
    replayed: bool,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Seen {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    #[track_caller]
    fn id(&self) -> String {
        self.json()["id"].as_str().expect("an object has an id").to_owned()
    }

    #[track_caller]
    fn code(&self) -> String {
        self.json()["error"]["code"].as_str().expect("an error has a code").to_owned()
    }

    /// How many objects a list has.
    #[track_caller]
    fn found(&self) -> usize {
        self.json()["data"].as_array().expect("a list has data").len()
    }
}

impl Client {
    fn new(url: &str) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            rustls::crypto::ring::default_provider().install_default().unwrap();
        });
        let http = reqwest::Client::builder()
            .no_proxy()
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .build()
            .unwrap();
        Self { http, url: url.to_owned() }
    }

    fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method.parse().unwrap(), format!("{}{path}", self.url))
    }

    async fn post(&self, path: &str, key: Option<&str>, body: Value) -> reqwest::Result<Seen> {
        let mut request = self
            .request("POST", path)
            .header("content-type", "application/json")
            .body(body.to_string());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        see(request).await
    }

    async fn get(&self, path: &str) -> reqwest::Result<Seen> {
        see(self.request("GET", path)).await
    }

    /// Asks for the refund that most tests ask for.
    async fn refund(&self, key: &str) -> reqwest::Result<Seen> {
        self.post("/v1/refunds", Some(key), refund()).await
    }
}

async fn see(request: reqwest::RequestBuilder) -> reqwest::Result<Seen> {
    let response = request.send().await?;
    let headers = response.headers().clone();
    Ok(Seen {
        status: response.status().as_u16(),
        replayed: headers.get("idempotent-replayed").is_some_and(|v| v == "true"),
        headers,
        text: response.text().await?,
    })
}

fn refund() -> Value {
    serde_json::json!({ "order_id": "order-42", "amount_cents": 1200, "reference": "eff_1" })
}

/// Whether the error is a connection reset, and not merely an early end.
fn is_reset(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionReset)
        {
            return true;
        }
        cause = error.source();
    }
    false
}
