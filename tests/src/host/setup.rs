//! What a host is made of: a clock that tests move, a project, a ledger, the sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use twice::engine::Performer;
use twice_core::ids::Name;
use twice_core::redact::Redactor;
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{Ledger, LedgerOptions, MemoryLedger, SqlLedger};
use twice_provider_sim::Switch;
use twice_sandbox::{Sandbox, SandboxConfig};
use twice_workflow::Project;
use twice_workflow::model::Definition;

use crate::nodes;

/// The machine's clock, moved forward by the test.
#[derive(Debug, Default)]
pub struct MovableClock(AtomicI64);

impl MovableClock {
    /// A clock that is so far ahead of the machine's, or behind. Milliseconds.
    #[must_use]
    pub const fn off_by(ms: i64) -> Self {
        Self(AtomicI64::new(ms))
    }

    /// Moves it forward. Milliseconds.
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for MovableClock {
    #[expect(clippy::disallowed_methods, reason = "real time goes on under what a test adds to it")]
    fn now(&self) -> Timestamp {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let machine = i64::try_from(machine).unwrap_or(i64::MAX);
        Timestamp(machine.saturating_add(self.0.load(Ordering::SeqCst)))
    }
}

/// Where everything is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// `SQLite`, in a folder that goes with the host.
    Sqlite,
    /// In memory.
    Memory,
}

type Wrap = dyn Fn(Arc<Performer>, Arc<dyn Ledger>) -> Arc<Performer> + Send + Sync;

/// What a host is made of.
pub struct Setup {
    pub(crate) files: BTreeMap<String, String>,
    pub(super) store: Store,
    pub(super) switches: Vec<Switch>,
    pub(super) wrap: Option<Box<Wrap>>,
}

impl Setup {
    /// A project of these workflow files, which may use the tools of [`Setup::tool`], on `SQLite`.
    #[must_use]
    pub fn new(workflows: &[&str]) -> Self {
        let mut files =
            BTreeMap::from([("twice.toml".to_owned(), "project = \"matrix\"".to_owned())]);
        for (number, text) in workflows.iter().enumerate() {
            files.insert(format!("workflows/{number}.toml"), (*text).to_owned());
        }
        Self { files, store: Store::Sqlite, switches: Vec::new(), wrap: None }
    }

    /// With this tool file. Its `base_url` is `env:PROVIDER_URL`.
    #[must_use]
    pub fn tool(mut self, text: impl Into<String>) -> Self {
        self.files.insert(format!("tools/{}.toml", self.files.len()), text.into());
        self
    }

    /// With this workflow file in place of the first.
    #[must_use]
    pub fn workflow(mut self, text: &str) -> Self {
        self.files.insert("workflows/0.toml".to_owned(), text.to_owned());
        self
    }

    /// Recorded there.
    #[must_use]
    pub const fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// The provider misbehaves like this.
    #[must_use]
    pub fn switches(mut self, switches: impl IntoIterator<Item = Switch>) -> Self {
        self.switches.extend(switches);
        self
    }

    /// What performs effects is wrapped by the test.
    #[must_use]
    pub fn wrap(
        mut self,
        wrap: impl Fn(Arc<Performer>, Arc<dyn Ledger>) -> Arc<Performer> + Send + Sync + 'static,
    ) -> Self {
        self.wrap = Some(Box::new(wrap));
        self
    }
}

/// A ledger of its own, which tells the time by `now`; its file, if it has one, is made in `dir`.
pub(crate) async fn open_ledger(
    store: Store,
    dir: &Path,
    now: twice_ledger::Clock,
    redactor: &Arc<RwLock<Redactor>>,
) -> Arc<dyn Ledger> {
    match store {
        Store::Memory => Arc::new(MemoryLedger::new(now).with_redactor(Arc::clone(redactor))),
        Store::Sqlite => {
            let options = LedgerOptions {
                redactor: Arc::clone(redactor),
                now: Some(now),
                ..LedgerOptions::default()
            };
            let path = dir.join("twice.db");
            let path = path.to_str().expect("a temporary folder has a readable name");
            Arc::new(SqlLedger::open(path, options).await.expect("the ledger can be opened"))
        }
    }
}

/// The workflows of the project, each pinned to the conformance node.
pub(crate) fn definitions(files: &BTreeMap<String, String>) -> Vec<Definition> {
    let project = Project::load(files).unwrap_or_else(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        panic!("the project has errors:\n{}", lines.join("\n"));
    });
    let components = BTreeMap::from([(conformance_name(), conformance().1.clone())]);
    let defined =
        project.workflows.keys().map(|workflow| project.definition(workflow, &components));
    defined.map(|found| found.expect("every component is registered")).collect()
}

fn conformance_name() -> Name {
    Name::parse("conformance").expect("this is a name")
}

/// Registers the conformance node.
pub(crate) async fn register(ledger: &dyn Ledger, at: Timestamp) {
    let (bytes, digest) = conformance();
    let put = ledger.put_module(&conformance_name(), digest, bytes, at).await;
    put.expect("the ledger takes the component");
}

/// The conformance node's bytes and digest, built and compiled once per process.
fn conformance() -> &'static (Vec<u8>, String) {
    static CONFORMANCE: OnceLock<(Vec<u8>, String)> = OnceLock::new();
    CONFORMANCE.get_or_init(|| {
        let bytes = nodes::component("conformance");
        let component = sandbox().load(&bytes).expect("the conformance node is a component");
        let digest = component.digest().to_owned();
        (bytes, digest)
    })
}

/// One sandbox for all hosts of a process; its cache keeps what it compiled.
pub(crate) fn sandbox() -> &'static Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let cache_dir = nodes::repository().join("target").join("twice-tests").join("compiled");
        let config = SandboxConfig { cache_dir: Some(cache_dir), ..SandboxConfig::default() };
        Arc::new(Sandbox::new(&config).expect("the sandbox can be set up"))
    })
}
