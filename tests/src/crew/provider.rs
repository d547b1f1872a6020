use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;
use twice::tool::http::plain_client;
use twice_provider_sim::limits::PAGE_MAX;
use twice_provider_sim::{Counters, Object, Request, Switch};

use crate::project::API_KEY;

const PATIENCE: Duration = Duration::from_secs(60);

/// The simulated provider as a process of its own. Dropping it kills it.
pub struct ProviderProcess {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl ProviderProcess {
    /// Starts `program provider-sim`, which fails so from the beginning.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(program: &str, switches: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let ready = folder.path().join("ready");
        let mut command = Command::new(program);
        command.args(["provider-sim", "--listen", "127.0.0.1:0", "--api-key", API_KEY, "--db"]);
        command.arg(folder.path().join("provider.db")).arg("--ready-file").arg(&ready);
        for switch in switches {
            command.args(["--switch", switch]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().expect("the command can be started");
        let deadline = Instant::now() + PATIENCE;
        let url = loop {
            if let Ok(url) = std::fs::read_to_string(&ready) {
                break url;
            }
            let ended = child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none() && Instant::now() < deadline, "no provider: {ended:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        Self { child, url, _folder: folder }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it counted.
    ///
    /// # Panics
    /// When it cannot tell.
    pub async fn counters(&self) -> Counters {
        self.ask("counters").await
    }

    /// Its books: every object, and how it stands.
    ///
    /// # Panics
    /// When it cannot tell, or there are more than one page of them.
    pub async fn objects(&self) -> Vec<Object> {
        self.page("objects").await
    }

    /// The requests that arrived, in their order.
    ///
    /// # Panics
    /// When it cannot tell, or there are more than one page of them.
    pub async fn requests(&self) -> Vec<Request> {
        self.page("requests").await
    }

    /// From now on it fails so.
    ///
    /// # Panics
    /// When a switch is not right.
    pub async fn switch(&self, switches: &[Switch]) {
        let body = serde_json::json!({ "switches": switches }).to_string();
        let client = plain_client().expect("a client can be made");
        let put = client.put(format!("{}/_sim/switches", self.url));
        let answer = put.header("content-type", "application/json").body(body).send().await;
        let status = answer.expect("the provider answers").status();
        assert!(status.is_success(), "the switches are refused: {status}");
    }

    /// Sends it a request under a key, as any client of it may.
    ///
    /// # Panics
    /// When it does not do what is asked.
    pub async fn post(&self, path: &str, key: &str, body: &Value) {
        let client = plain_client().expect("a client can be made");
        let post = client.post(format!("{}{path}", self.url)).bearer_auth(API_KEY);
        let post = post.header("idempotency-key", key).header("content-type", "application/json");
        let answer = post.body(body.to_string()).send().await.expect("the provider answers");
        assert_eq!(answer.status(), 201, "{path}");
    }

    async fn page<T: DeserializeOwned>(&self, what: &str) -> Vec<T> {
        let page: Page<T> = self.ask(&format!("{what}?limit={PAGE_MAX}")).await;
        assert!((page.data.len() as i64) < PAGE_MAX, "there may be more {what}");
        page.data
    }

    async fn ask<T: DeserializeOwned>(&self, what: &str) -> T {
        let client = plain_client().expect("a client can be made");
        let answer = client.get(format!("{}/_sim/{what}", self.url)).send().await;
        let body = answer.expect("the provider answers").bytes().await;
        serde_json::from_slice(&body.expect("the answer is whole")).expect("it can tell")
    }
}

/// A page of a listing.
#[derive(Deserialize)]
struct Page<T> {
    data: Vec<T>,
}

impl Drop for ProviderProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
