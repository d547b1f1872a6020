use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use twice_core::chain::{Content, NewEntry};
use twice_core::event::RunEvent;
use twice_core::identity::IDENTITY_ALG;
use twice_core::ids::{Name, RunId};
use twice_core::run::Priority;
use twice_core::time::Clock as _;
use twice_ledger::{Ledger, LedgerError, LedgerOptions, NewRun, SqlLedger};
use twice_workflow::Project;
use twice_workflow::files::DiskFiles;
use twice_workflow::model::Definition;

use crate::host::MovableClock;

/// How often it is looked how many runs are over.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Runs to be recorded for workers.
pub struct Work {
    /// The project's folder.
    pub project: PathBuf,
    /// The ledger.
    pub url: String,
    /// The workflow.
    pub workflow: &'static str,
    /// How many runs.
    pub runs: usize,
    /// How many may be open at a time.
    pub open_max: usize,
    /// The input of each.
    pub input: fn(usize) -> Value,
}

/// Records runs as others end, whatever becomes of the server meanwhile, and tells how far they are.
pub struct Feeder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    allowed: AtomicUsize,
    over: AtomicUsize,
    stop: AtomicBool,
}

impl Feeder {
    /// Starts feeding; at first nothing is allowed.
    #[must_use]
    pub fn start(work: Work) -> Self {
        let shared = Arc::new(Shared::default());
        let feeding = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(feed(&work, &feeding));
        });
        Self { shared, thread: Some(thread) }
    }

    /// The id of a run.
    ///
    /// # Panics
    /// Never: it is one.
    #[must_use]
    pub fn run_id(number: usize) -> RunId {
        RunId::parse(format!("run-{number:04}")).expect("it is an id")
    }

    /// From now on so many runs may be recorded altogether.
    pub fn allow(&self, runs: usize) {
        self.shared.allowed.store(runs, Ordering::SeqCst);
    }

    /// How many runs were over when last looked.
    ///
    /// # Panics
    /// When feeding failed.
    #[must_use]
    pub fn over(&self) -> usize {
        let fed = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        let over = self.shared.over.load(Ordering::SeqCst);
        assert!(fed || over > 0, "feeding the workers failed");
        over
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Its panic was printed.
            let _ = thread.join();
        }
    }
}

async fn feed(work: &Work, shared: &Shared) {
    let ledger = SqlLedger::open(&work.url, LedgerOptions::default()).await;
    let ledger = ledger.expect("the ledger can be opened");
    let definition = definition(work, &ledger).await;
    let digest = definition.digest();
    ledger.put_definition(&digest, &definition.to_text()).await.expect("it can be stored");
    let mut started = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        // While the server is away nothing is known and nothing is done.
        if let Ok(overview) = ledger.overview().await {
            let open: u64 = overview
                .workflows
                .iter()
                .map(|load| {
                    load.ready + load.running + load.waiting + load.halted + load.quarantined
                })
                .sum();
            let open = usize::try_from(open).expect("they are few");
            shared.over.store(started - open, Ordering::SeqCst);
            if started == work.runs && open == 0 {
                break;
            }
            let allowed = shared.allowed.load(Ordering::SeqCst).min(work.runs);
            for _ in open..work.open_max {
                if started == allowed || !start(&ledger, work, &definition, &digest, started).await
                {
                    break;
                }
                started += 1;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    ledger.close().await;
}

async fn definition(work: &Work, ledger: &SqlLedger) -> Definition {
    let project = Project::load(&DiskFiles { root: work.project.clone() });
    let project = project.expect("the project has no problems");
    let workflow = Name::parse(work.workflow).expect("it is a name");
    let mut components = BTreeMap::new();
    for node in &project.workflows[&workflow].nodes {
        let module = ledger.module(&node.component).await.expect("the ledger can be read");
        components.insert(node.component.clone(), module.expect("it is registered").digest);
    }
    project.definition(&workflow, &components).expect("the definition is whole")
}

/// Records a run, if the server is there. Recording it again, as it is not known whether it was, does nothing.
async fn start(
    ledger: &SqlLedger,
    work: &Work,
    definition: &Definition,
    digest: &str,
    number: usize,
) -> bool {
    let input = (work.input)(number);
    let workflow = definition.workflow.name.clone();
    let event = RunEvent::Started {
        workflow: workflow.clone(),
        version: definition.workflow.version,
        definition: digest.to_owned(),
        input: input.clone(),
        identity_alg: IDENTITY_ALG,
        priority: Priority::default(),
        parent: None,
    };
    let at = MovableClock::default().now();
    let new = NewRun {
        id: Feeder::run_id(number),
        caller_key: None,
        workflow,
        definition: digest.to_owned(),
        input,
        priority: Priority::default(),
        entry: NewEntry { content: Content::Run(event), at },
        claim: None,
        parent_fence: None,
    };
    match ledger.start_run(new).await {
        Ok(_) => true,
        Err(LedgerError::NotApplied { .. } | LedgerError::Indeterminate { .. }) => false,
        Err(error) => panic!("run {number} cannot be recorded: {error}"),
    }
}
