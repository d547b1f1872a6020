//! What happens to a run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Parent;
use crate::ids::{EffectId, ElementId, Name, RunId, WorkerId};
use crate::run::Priority;
use crate::time::Timestamp;

/// One change of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum RunEvent {
    /// The run exists. Everything it will be interpreted under is pinned here (I9).
    Started {
        /// The workflow.
        workflow: Name,
        /// Its version.
        version: u32,
        /// Digest of the pinned definition: workflow, tools, schemas and component digests.
        definition: String,
        /// The input.
        input: Value,
        /// The version of the identity algorithm.
        identity_alg: u32,
        /// How urgent it is; left out when it is the usual.
        #[serde(default, skip_serializing_if = "Priority::is_usual")]
        priority: Priority,
        /// The effect that it is, when another run started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Parent>,
    },
    /// A worker took the run.
    Claimed {
        /// Which worker.
        worker: WorkerId,
        /// Whether the worker before it vanished without letting go.
        takeover: bool,
    },
    /// It is decided that a node runs: its `when` holds. Recorded for nodes that have something to decide, and never decided
    /// anew.
    NodeEntered {
        /// The node.
        node: Name,
        /// Its visit.
        visit: u32,
        /// The elements of a fan-out, in the order of their array; none for other nodes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        elements: Option<Vec<ElementId>>,
    },
    /// A visit of a node does not take place.
    StepSkipped {
        /// The node.
        node: Name,
        /// Its visit.
        visit: u32,
        /// Why.
        why: SkipReason,
    },
    /// It is decided whether a loop begins another round.
    LoopDecided {
        /// The node that closes the loop.
        node: Name,
        /// The visit that it completed.
        visit: u32,
        /// The nodes that are visited again; empty when the loop is over.
        again: Vec<Name>,
    },
    /// A step started for the first time: a time limit counts from here.
    StepStarted {
        /// The node.
        node: Name,
        /// Its visit.
        visit: u32,
        /// The element, in a fan-out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        element: Option<ElementId>,
    },
    /// A step returned.
    StepCompleted {
        /// The node.
        node: Name,
        /// Its visit.
        visit: u32,
        /// The element, in a fan-out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        element: Option<ElementId>,
        /// The attempt that returned.
        attempt: u32,
        /// Its output.
        output: Value,
        /// Effects that an earlier attempt confirmed and this one never asked for.
        diverged: Vec<EffectId>,
    },
    /// A step did not return an output.
    StepFailed {
        /// The node.
        node: Name,
        /// Its visit.
        visit: u32,
        /// The element, in a fan-out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        element: Option<ElementId>,
        /// The attempt that failed.
        attempt: u32,
        /// Why.
        cause: StepFailure,
        /// The earliest next attempt; none when it was the last.
        retry_at: Option<Timestamp>,
    },
    /// The run waits for an instant or an answer; nothing is held in memory.
    Parked {
        /// What it waits for, in words.
        why: String,
        /// When to look again.
        until: Option<Timestamp>,
    },
    /// The run waits for a person.
    Halted {
        /// Why, and what to do.
        why: String,
    },
    /// A person let it go on.
    Released {
        /// Who.
        who: String,
        /// Why, in their words.
        why: String,
    },
    /// A request was refused before it became an effect: no such slot, malformed args, a use too many.
    RequestRefused {
        /// The node that asked.
        node: Name,
        /// Its visit.
        visit: u32,
        /// The element, in a fan-out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        element: Option<ElementId>,
        /// The slot it named.
        slot: String,
        /// The rule that refused.
        policy: String,
        /// In words, with the fix.
        message: String,
    },
    /// A person ordered a run that failed to be tried again: its failed steps start afresh, and what failed may be requested
    /// anew, as the next generation.
    Retried {
        /// Who.
        who: String,
        /// Why, in their words.
        why: String,
    },
    /// The run does not go on: what it did is undone from here on, and nothing aborts that.
    Compensating {
        /// What ended it.
        cause: EndCause,
        /// Why, in words.
        why: String,
    },
    /// A person says that an effect whose compensation failed was undone by other means, or is to stay as it is.
    UndoResolved {
        /// The effect.
        effect: EffectId,
        /// Who.
        who: String,
        /// Their evidence.
        why: String,
    },
    /// A person asked that the run be cancelled, whoever holds it.
    CancelRequested {
        /// Who.
        who: String,
        /// Why, in their words.
        why: String,
    },
    /// The run used an effect that another run owns.
    Adopted {
        /// Which.
        effect: EffectId,
    },
    /// The run has a business object to itself from here on, or has it for longer than before.
    ObjectLocked {
        /// The name of the lock: what kind of object it is on.
        name: Name,
        /// The object.
        object: String,
        /// When another run may take it; none: not before this run is over.
        until: Option<Timestamp>,
        /// The run that had it until its time was over, if one had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expired: Option<RunId>,
    },
    /// A person took a lock from the run.
    ObjectUnlocked {
        /// The name of the lock.
        name: Name,
        /// The object.
        object: String,
        /// Who.
        who: String,
        /// Why, in their words.
        why: String,
    },
    /// Every node is done.
    Completed {
        /// The output of the last node.
        output: Value,
    },
    /// The run failed for good.
    Failed {
        /// Why.
        why: String,
    },
    /// It was cancelled; what it had done is undone.
    Cancelled {
        /// Why.
        why: String,
    },
    /// It can neither go on nor back: a compensation failed for good, or it failed behind its point of no return.
    Stuck {
        /// Why, and what to do.
        why: String,
    },
    /// The run killed too many workers and is not loaded any more.
    Quarantined {
        /// How many.
        crashes: u32,
    },
}

/// What ended a run whose effects are undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// A step failed for good.
    Failed,
    /// The run took longer than its `timeout`.
    TimedOut,
    /// A person, or the run that started it, asked for it.
    Cancelled,
}

impl RunEvent {
    /// The word the ledger stores beside the body.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Started { .. } => "run_started",
            Self::Claimed { .. } => "run_claimed",
            Self::NodeEntered { .. } => "node_entered",
            Self::StepSkipped { .. } => "step_skipped",
            Self::LoopDecided { .. } => "loop_decided",
            Self::StepStarted { .. } => "step_started",
            Self::StepCompleted { .. } => "step_completed",
            Self::StepFailed { .. } => "step_failed",
            Self::Parked { .. } => "run_parked",
            Self::Halted { .. } => "run_halted",
            Self::Released { .. } => "run_released",
            Self::Retried { .. } => "run_retried",
            Self::RequestRefused { .. } => "request_refused",
            Self::Compensating { .. } => "run_compensating",
            Self::UndoResolved { .. } => "undo_resolved",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::Adopted { .. } => "effect_adopted",
            Self::ObjectLocked { .. } => "object_locked",
            Self::ObjectUnlocked { .. } => "object_unlocked",
            Self::Completed { .. } => "run_completed",
            Self::Failed { .. } => "run_failed",
            Self::Cancelled { .. } => "run_cancelled",
            Self::Stuck { .. } => "run_stuck",
            Self::Quarantined { .. } => "run_quarantined",
        }
    }
}

/// Why a visit of a node does not take place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Its `when` does not hold.
    When,
    /// Every node before it was skipped.
    DeadPath,
    /// The run ended elsewhere before it could start.
    Ended,
}

/// Why a step did not return an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StepFailure {
    /// The node said: later.
    Retryable {
        /// In its words.
        message: String,
    },
    /// The node said: never.
    Fatal {
        /// In its words.
        message: String,
    },
    /// The node trapped.
    Trap {
        /// The cause.
        message: String,
    },
    /// The node reached a limit.
    Limit {
        /// Which limit, e.g. `memory`.
        limit: String,
        /// In words, with the limit's value.
        message: String,
    },
    /// The node returned something that cannot be taken.
    BadOutput {
        /// What is wrong with it.
        message: String,
    },
    /// The node waited for a lock of a run that waits for one of this run, if only by way of others.
    Deadlock {
        /// The circle, in words.
        message: String,
    },
    /// The node broke the rules of its slots.
    BadRequest {
        /// What it did, and the fix.
        message: String,
    },
}

impl StepFailure {
    /// What happened to the step of a node, in words.
    #[must_use]
    pub fn describe(&self, node: &Name) -> String {
        match self {
            Self::Retryable { message } => {
                format!("node `{node}` asked for a later start: {message}")
            }
            Self::Fatal { message } => format!("node `{node}` gave up: {message}"),
            Self::Trap { message } => format!("node `{node}` trapped: {message}"),
            Self::Limit { limit, message } => {
                format!("node `{node}` reached its {limit} limit: {message}")
            }
            Self::Deadlock { message } => {
                format!("node `{node}` would wait for ever: {message}")
            }
            Self::BadOutput { message } | Self::BadRequest { message } => message.clone(),
        }
    }
}
