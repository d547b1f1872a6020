use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use twice::tool::http::plain_client;
use twice_provider_sim::Counters;

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
        let client = plain_client().expect("a client can be made");
        let answer = client.get(format!("{}/_sim/counters", self.url)).send().await;
        let body = answer.expect("the provider answers").bytes().await;
        serde_json::from_slice(&body.expect("the answer is whole")).expect("it can count")
    }
}

impl Drop for ProviderProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
