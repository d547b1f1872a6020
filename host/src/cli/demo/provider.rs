//! The provider of the demo: this program once more, as another process with a database of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

/// What the demo's worker authenticates with.
pub(super) const API_KEY: &str = "demo-key-0123456789";

/// This very program.
pub(super) fn this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("twice"))
}

/// A running provider.
pub(super) struct Provider {
    child: tokio::sync::Mutex<Child>,
    url: String,
    client: reqwest::Client,
}

impl Provider {
    /// Starts the provider and waits until it listens.
    pub(super) async fn start(root: &Path) -> anyhow::Result<Self> {
        let ready = root.join("provider.url");
        let mut child = Command::new(this_program())
            .args(["provider-sim", "--listen", "127.0.0.1:0", "--api-key", API_KEY])
            .arg("--db")
            .arg(root.join("provider.db"))
            .arg("--ready-file")
            .arg(&ready)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the provider")?;
        let mut url = String::new();
        for _ in 0..200 {
            if let Some(status) = child.try_wait()? {
                bail!("the provider ended at once ({status})");
            }
            url = std::fs::read_to_string(&ready).unwrap_or_default().trim().to_owned();
            if !url.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(!url.is_empty(), "the provider did not start to listen");
        let client = crate::tool::http::plain_client().map_err(anyhow::Error::msg)?;
        Ok(Self { child: tokio::sync::Mutex::new(child), url, client })
    }

    /// Its address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// From now on it commits and does not answer.
    pub(super) async fn hold_answers(&self) -> anyhow::Result<()> {
        self.put_switches(json!([{ "name": "pause_before_reply_until" }])).await
    }

    /// It answers again.
    pub(super) async fn answer_again(&self) -> anyhow::Result<()> {
        self.put_switches(json!([])).await?;
        let url = format!("{}/_sim/continue", self.url);
        self.client.post(url).send().await?.error_for_status()?;
        Ok(())
    }

    async fn put_switches(&self, switches: Value) -> anyhow::Result<()> {
        let url = format!("{}/_sim/switches", self.url);
        let body = json!({ "switches": switches }).to_string();
        let request = self.client.put(url).header("content-type", "application/json").body(body);
        request.send().await?.error_for_status().context("the provider refused its switches")?;
        Ok(())
    }

    /// Returns when it has committed so many effects.
    pub(super) async fn wait_for_commits(
        &self,
        count: u32,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let url = format!(
            "{}/_sim/wait?for=committed&count={count}&timeout_ms={}",
            self.url,
            patience.as_millis()
        );
        let answer = self.client.get(url).send().await?;
        ensure!(answer.status().is_success(), "the provider did not commit in {patience:?}");
        Ok(())
    }

    /// How many different refunds it made.
    pub(super) async fn distinct_refunds(&self) -> anyhow::Result<u64> {
        self.counter("effects").await
    }

    /// How many refund requests it received.
    pub(super) async fn refund_requests(&self) -> anyhow::Result<u64> {
        self.counter("requests").await
    }

    async fn counter(&self, name: &str) -> anyhow::Result<u64> {
        let answer = self.client.get(format!("{}/_sim/counters", self.url)).send().await?;
        let counters: Value = serde_json::from_slice(&answer.error_for_status()?.bytes().await?)?;
        counters["operations"]["refund"][name]
            .as_u64()
            .with_context(|| format!("the provider counts no `{name}` of refunds: {counters}"))
    }

    /// Ends it.
    pub(super) async fn stop(&self) {
        let mut child = self.child.lock().await;
        // It may have ended by itself; there is nothing else to do about it then.
        let _ = child.kill().await;
    }
}
