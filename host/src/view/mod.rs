//! What listings and `--json` show. Field names here are promises to scripts.

mod approval;
mod effect;

use serde::Serialize;
use serde_json::Value;
use twice_core::chain::Entry;
use twice_core::event::EndCause;
use twice_core::ids::{EffectId, Name};
use twice_core::progress::{Elements, NodeProgress, Progress, Standing};
use twice_core::time::Timestamp;
use twice_ledger::{LockRow, ModuleRow, Overview, RunRecord};

pub use self::approval::ApprovalView;
pub use self::effect::{EffectDetail, EffectView};

/// A run.
#[derive(Debug, Serialize)]
pub struct RunView {
    /// Its id.
    pub run_id: String,
    /// The workflow.
    pub workflow: String,
    /// How urgent it is, -9 to 9.
    pub priority: i64,
    /// Where it stands.
    pub state: String,
    /// Why it waits, halted or failed.
    pub reason: Option<String>,
    /// Who asked for its cancellation, and why.
    pub cancel: Option<CancelView>,
    /// Why what it did is undone, when it is.
    pub compensating: Option<CompensatingView>,
    /// When it is due again.
    pub due_at: Option<String>,
    /// The digest of the definition it is pinned to.
    pub definition: String,
    /// The input.
    pub input: Value,
    /// The output, once completed.
    pub output: Option<Value>,
    /// Who holds or last held it.
    pub worker: Option<String>,
    /// Whether that lease is held now.
    pub lease_live: bool,
    /// The fencing token.
    pub fence: i64,
    /// Times a worker vanished with it in a row.
    pub crashes: u32,
    /// The last output of each node that returned.
    pub nodes: Value,
    /// Where each node stands that was reached.
    pub steps: Vec<StepView>,
    /// The effect that it is, when another run started it.
    pub parent: Option<ParentView>,
    /// When it was started.
    pub created_at: String,
    /// When its latest entry was made.
    pub updated_at: String,
}

/// A request to cancel a run.
#[derive(Debug, Serialize)]
pub struct CancelView {
    /// Who asked.
    pub who: String,
    /// Why.
    pub why: String,
}

/// Why what a run did is undone.
#[derive(Debug, Serialize)]
pub struct CompensatingView {
    /// `failed`, `timed_out` or `cancelled`.
    pub cause: &'static str,
    /// In words.
    pub why: String,
}

/// The effect by which a run was started.
#[derive(Debug, Serialize)]
pub struct ParentView {
    /// The run that started it.
    pub run_id: String,
    /// The effect of that run.
    pub effect_id: String,
}

/// A run that another started.
#[derive(Debug, Serialize)]
pub struct ChildView {
    /// Its id.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// Where it stands.
    pub state: String,
    /// Why it waits, halted or failed.
    pub reason: Option<String>,
}

impl ChildView {
    /// The view of a record.
    #[must_use]
    pub fn of(run: &RunRecord) -> Self {
        Self {
            run_id: run.id.to_string(),
            workflow: run.workflow.to_string(),
            state: run.state.to_string(),
            reason: run.reason.clone(),
        }
    }
}

/// Where the latest visit of a node stands.
#[derive(Debug, Clone, Serialize)]
pub struct StepView {
    /// The node.
    pub node: String,
    /// Its visit, from 1.
    pub visit: u32,
    /// `open`, `completed`, `skipped` or `failed`.
    pub state: &'static str,
    /// How many attempts failed, of a step that is open.
    pub failed_attempts: u32,
    /// In a fan-out that has begun, how many elements it has.
    pub elements: Option<usize>,
    /// And how many of them have returned.
    pub elements_done: Option<usize>,
}

impl StepView {
    /// The nodes of a run that were reached, by name.
    fn all(progress: &Progress) -> Vec<Self> {
        let view = |(name, node): (&Name, &NodeProgress)| {
            let elements = node.elements.as_ref();
            let gave_up = node.step.gave_up.is_some()
                || elements.is_some_and(|elements| elements.gave_up().next().is_some());
            Self {
                node: name.to_string(),
                visit: node.visit,
                state: match node.standing {
                    Standing::Completed => "completed",
                    Standing::Skipped(_) => "skipped",
                    Standing::Open if gave_up => "failed",
                    Standing::Open => "open",
                },
                failed_attempts: node.step.failed_attempts,
                elements: elements.map(Elements::total),
                elements_done: elements.map(Elements::done),
            }
        };
        progress.nodes.iter().map(view).collect()
    }
}

impl RunView {
    /// The view of a record.
    #[must_use]
    pub fn of(run: &RunRecord) -> Self {
        Self {
            run_id: run.id.to_string(),
            workflow: run.workflow.to_string(),
            priority: run.priority.get(),
            state: run.state.to_string(),
            reason: run.reason.clone(),
            cancel: run
                .cancel
                .as_ref()
                .map(|cancel| CancelView { who: cancel.who.clone(), why: cancel.why.clone() }),
            compensating: run.progress.compensating.as_ref().map(|of| CompensatingView {
                cause: match of.cause {
                    EndCause::Failed => "failed",
                    EndCause::TimedOut => "timed_out",
                    EndCause::Cancelled => "cancelled",
                },
                why: of.why.clone(),
            }),
            due_at: text(run.due_at),
            definition: run.definition.clone(),
            input: run.input.clone(),
            output: run.output.clone(),
            worker: run.worker.as_ref().map(ToString::to_string),
            lease_live: run.lease_live,
            fence: run.fence.0,
            crashes: run.crashes,
            steps: StepView::all(&run.progress),
            nodes: run.progress.state(&Value::Null, None)["nodes"].clone(),
            parent: run.parent.as_ref().map(|parent| ParentView {
                run_id: parent.run.to_string(),
                effect_id: parent.effect.to_string(),
            }),
            created_at: run.created_at.to_string(),
            updated_at: run.updated_at.to_string(),
        }
    }
}

/// A ledger entry.
#[derive(Debug, Serialize)]
pub struct EntryView {
    /// Its number in the run's chain.
    pub seq: i64,
    /// When it was made.
    pub at: String,
    /// What it is.
    pub kind: String,
    /// The effect it is about.
    pub effect_id: Option<String>,
    /// The lease under which it was written.
    pub fence: i64,
    /// Its content.
    pub body: Value,
    /// Its hash.
    pub hash: String,
}

impl EntryView {
    /// The view of an entry.
    #[must_use]
    pub fn of(entry: &Entry) -> Self {
        Self {
            seq: entry.seq,
            at: entry.at.to_string(),
            kind: entry.kind.clone(),
            effect_id: entry.effect.as_ref().map(ToString::to_string),
            fence: entry.fence.0,
            body: serde_json::from_str(&entry.body).unwrap_or(Value::String(entry.body.clone())),
            hash: twice_core::identity::hash_text(&entry.hash),
        }
    }

    /// Whether it says that a person settled `effect`, whose undoing failed.
    #[must_use]
    pub fn settles(&self, effect: &EffectId) -> bool {
        self.kind == "undo_resolved" && self.body["data"]["effect"] == effect.as_str()
    }
}

/// A registered module.
#[derive(Debug, Serialize)]
pub struct ModuleView {
    /// Its name.
    pub name: String,
    /// The digest of its component.
    pub digest: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was registered.
    pub added_at: String,
}

impl ModuleView {
    /// The view of a row.
    #[must_use]
    pub fn of(row: &ModuleRow) -> Self {
        Self {
            name: row.name.to_string(),
            digest: row.digest.clone(),
            bytes: row.bytes,
            added_at: row.added_at.to_string(),
        }
    }
}

/// A lock on a business object.
#[derive(Debug, Serialize)]
pub struct LockView {
    /// Its name.
    pub lock: String,
    /// The object.
    pub object: String,
    /// The run that has it.
    pub run_id: String,
    /// Where that run stands.
    pub run_state: String,
    /// Since when it has it.
    pub since: String,
    /// When another run may take it, if it may before that run is over.
    pub expires_at: Option<String>,
    /// Who waits for it; who has waited longest first.
    pub waiting: Vec<LockWaitView>,
}

/// A run that waits for a lock.
#[derive(Debug, Serialize)]
pub struct LockWaitView {
    /// The run.
    pub run_id: String,
    /// Since when it waits.
    pub since: String,
}

impl LockView {
    /// The view of a row.
    #[must_use]
    pub fn of(row: &LockRow) -> Self {
        let waiting = row
            .waiting
            .iter()
            .map(|(run, since)| LockWaitView { run_id: run.to_string(), since: since.to_string() });
        Self {
            lock: row.name.to_string(),
            object: row.object.clone(),
            run_id: row.run.to_string(),
            run_state: row.run_state.to_string(),
            since: row.taken_at.to_string(),
            expires_at: text(row.expires_at),
            waiting: waiting.collect(),
        }
    }
}

fn text(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("stored events are plain data")
}

/// How the runs that are not over stand.
#[derive(Debug, Serialize)]
pub struct StatusView {
    /// By workflow.
    pub workflows: Vec<WorkflowLoadView>,
    /// Who holds runs.
    pub workers: Vec<WorkerLoadView>,
}

/// How many runs of a workflow stand how.
#[derive(Debug, Serialize)]
pub struct WorkflowLoadView {
    /// The workflow.
    pub workflow: String,
    /// A worker may take them now.
    pub ready: u64,
    /// Held under live leases.
    pub running: u64,
    /// Not due yet, or waiting for something that is no instant.
    pub waiting: u64,
    /// Waiting for a person.
    pub halted: u64,
    /// Neither going on nor back by themselves.
    pub stuck: u64,
    /// In quarantine.
    pub quarantined: u64,
    /// For how long the longest-due run has been due. Milliseconds.
    pub lag_ms: Option<u64>,
}

/// How many runs a worker holds.
#[derive(Debug, Serialize)]
pub struct WorkerLoadView {
    /// The worker.
    pub worker: String,
    /// How many runs it holds under live leases.
    pub runs: u64,
}

impl StatusView {
    /// The view of an overview.
    #[must_use]
    pub fn of(overview: &Overview) -> Self {
        let workflows = overview.workflows.iter().map(|load| WorkflowLoadView {
            workflow: load.workflow.to_string(),
            ready: load.ready,
            running: load.running,
            waiting: load.waiting,
            halted: load.halted,
            stuck: load.stuck,
            quarantined: load.quarantined,
            lag_ms: load.lag_ms,
        });
        let workers = overview.workers.iter();
        let workers =
            workers.map(|load| WorkerLoadView { worker: load.worker.to_string(), runs: load.runs });
        Self { workflows: workflows.collect(), workers: workers.collect() }
    }
}
