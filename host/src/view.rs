//! What listings and `--json` show. Field names here are promises to scripts.

use serde::Serialize;
use serde_json::Value;
use twice_core::chain::Entry;
use twice_core::effect::{Effect, Hold};
use twice_core::event::EndCause;
use twice_core::ids::{EffectId, Name};
use twice_core::progress::{Elements, NodeProgress, Progress, Standing};
use twice_core::time::Timestamp;
use twice_ledger::{EffectRow, LockRow, ModuleRow, Overview, RunRecord};

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

/// An effect in a listing.
#[derive(Debug, Serialize)]
pub struct EffectView {
    /// Its id.
    pub effect_id: String,
    /// The run that owns it.
    pub run_id: String,
    /// `tool.operation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The node that asked.
    pub node: String,
    /// The visit of that node.
    pub visit: u32,
    /// The element, in a fan-out.
    pub element: Option<String>,
    /// The slot it asked through.
    pub slot: String,
    /// The digest of the request.
    pub request_hash: String,
    /// The readable key, the same on each attempt.
    pub idempotency_key: String,
    /// The state; REQUESTED under a dead lease is shown as UNKNOWN.
    pub state: String,
    /// Whether a person must decide something about it.
    pub held: bool,
    /// The effect that it undoes, if it undoes one.
    pub undoes: Option<String>,
    /// What has become of its own undoing, where its run does not go on and it may have happened: `undone` (also by a person),
    /// `open`, `stuck`, or `stays` where the workflow does not say how to undo it.
    pub undoing: Option<&'static str>,
    /// How many attempts were made.
    pub attempts: u32,
    /// The provider's id of what came of it.
    pub external_id: Option<String>,
    /// The last error.
    pub last_error: Option<String>,
    /// When its latest entry was made.
    pub updated_at: String,
}

impl EffectView {
    /// The view of a row.
    #[must_use]
    pub fn of(row: &EffectRow) -> Self {
        Self {
            effect_id: row.id.to_string(),
            run_id: row.run.to_string(),
            kind: row.operation.clone(),
            node: row.node.to_string(),
            visit: row.visit,
            element: row.element.as_ref().map(ToString::to_string),
            slot: row.slot.to_string(),
            request_hash: row.request_hash.clone(),
            idempotency_key: row.idempotency_key.clone(),
            state: row.state.to_string(),
            held: row.held,
            undoes: row.undoes.as_ref().map(ToString::to_string),
            // It is no matter of the row: whoever lists effects finds it out from their runs.
            undoing: None,
            attempts: row.attempts,
            external_id: row.external_id.clone(),
            last_error: row.last_error.clone(),
            updated_at: row.updated_at.to_string(),
        }
    }
}

/// An effect with everything that is known of it.
#[derive(Debug, Serialize)]
pub struct EffectDetail {
    /// Its id.
    pub effect_id: String,
    /// The run that owns it.
    pub run_id: String,
    /// `tool.operation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The digest of the request.
    pub request_hash: String,
    /// The readable key, the same on each attempt.
    pub idempotency_key: String,
    /// The key in the form the provider gets.
    pub provider_key: String,
    /// The state; REQUESTED under a dead lease is shown as UNKNOWN.
    pub state: String,
    /// How many attempts were made.
    pub attempts: u32,
    /// The receipt, once confirmed.
    pub external_receipt: Option<Value>,
    /// The last error.
    pub last_error: Option<String>,
    /// The node that asked.
    pub node: String,
    /// The slot it asked through.
    pub slot: String,
    /// The args.
    pub args: Value,
    /// The class of its tool and what that promises.
    pub tool_class: String,
    /// The policy that permitted it.
    pub policy: Option<String>,
    /// The effect that it undoes, if it undoes one.
    pub undoes: Option<String>,
    /// How it is undone, as frozen when it was proposed: operation, args (what comes from the receipt still open), key.
    pub compensation: Option<Value>,
    /// The failure, once failed.
    pub failure: Option<Value>,
    /// What a person must decide: both requests of a conflict, or a discrepancy.
    pub held: Option<Value>,
    /// Not to be moved before.
    pub not_before: Option<String>,
    /// Every send: number, fence, verdict, times.
    pub attempt_log: Vec<Value>,
    /// Every lookup.
    pub lookups: Vec<Value>,
    /// What arrived about it and was not applied: when, and what it said.
    pub observations: Vec<Value>,
    /// What was decided by whom.
    pub decisions: Vec<Value>,
    /// Its ledger entries, the exact requests among them.
    pub history: Vec<EntryView>,
    /// When its latest entry was made.
    pub updated_at: String,
}

impl EffectDetail {
    /// The view of an effect with its entries.
    #[must_use]
    pub fn of(effect: &Effect, lease_live: bool, history: Vec<EntryView>) -> Self {
        let proposal = &effect.proposal;
        let class = effect.contract().class();
        Self {
            effect_id: effect.id.to_string(),
            run_id: effect.run.to_string(),
            kind: format!("{}.{}", proposal.tool, proposal.operation),
            request_hash: proposal.request_hash.to_string(),
            idempotency_key: proposal.idempotency_key.clone(),
            provider_key: proposal.provider_key.clone(),
            state: effect.shown_state(lease_live).to_string(),
            attempts: effect.attempts.len() as u32,
            external_receipt: effect.receipt.as_ref().map(json),
            last_error: effect.last_error.clone(),
            node: proposal.node.to_string(),
            slot: proposal.slot.to_string(),
            args: proposal.args.clone(),
            tool_class: format!("{}: {}", class.as_str(), class.promise()),
            policy: effect.authorization.as_ref().map(|a| a.policy.clone()),
            undoes: proposal.undoes.as_ref().map(ToString::to_string),
            compensation: proposal.compensation.as_ref().map(json),
            failure: effect.failure.as_ref().map(json),
            held: effect.hold.as_ref().map(|hold| held(effect, hold)),
            // What is settled waits for nothing, whatever it once waited for.
            not_before: text(effect.not_before.filter(|_| !effect.state.is_final())),
            attempt_log: effect
                .attempts
                .iter()
                .map(|attempt| {
                    serde_json::json!({
                        "attempt": attempt.number,
                        "fence": attempt.fence,
                        "requested_at": attempt.requested_at.to_string(),
                        "body_hash": attempt.body_hash,
                        "verdict": attempt.verdict.as_ref().map(json),
                        "settled_at": text(attempt.settled_at),
                    })
                })
                .collect(),
            lookups: effect
                .probes
                .iter()
                .map(|(at, probe)| serde_json::json!({ "at": at.to_string(), "lookup": json(probe) }))
                .collect(),
            observations: effect
                .observed
                .iter()
                .map(|(at, seen)| {
                    serde_json::json!({
                        "at": at.to_string(), "applied": false, "observation": json(seen),
                    })
                })
                .collect(),
            decisions: effect
                .decisions
                .iter()
                .map(json)
                .chain(history.iter().filter(|entry| entry.settles(&effect.id)).map(|entry| entry.body["data"].clone()))
                .collect(),
            history,
            updated_at: effect.updated_at.to_string(),
        }
    }
}

fn held(effect: &Effect, hold: &Hold) -> Value {
    match hold {
        Hold::Conflict(conflict) => serde_json::json!({
            "conflict": {
                "recorded": { "request_hash": conflict.recorded_hash, "args": effect.proposal.args },
                "requested": { "request_hash": conflict.requested_hash, "args": conflict.args },
            }
        }),
        Hold::Discrepancy(difference) => serde_json::json!({ "discrepancy": difference }),
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
