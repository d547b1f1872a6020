//! What happens to effects and runs, in the form in which the ledger keeps it. These types are the stored format,
//! version 1: a field may be added with a default, never renamed or removed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::{Contract, Retry};
use crate::identity::{Identity, RequestHash};
use crate::ids::{EffectId, ElementId, Name, WorkerId};
use crate::outcome::{RuleId, Verdict};
use crate::progress::StepId;
use crate::run::Priority;
use crate::time::Timestamp;

/// One change of an effect, or one thing learnt about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "events are made one at a time and written at once, never kept in bulk"
)]
pub enum EffectEvent {
    /// Asked for; also asked for anew with other args before anything was sent (which voids the authorization).
    Proposed(Proposal),
    /// Permitted.
    Authorized(Authorization),
    /// An attempt starts; nothing of it has left before this is durable (I3).
    Requested(AttemptStart),
    /// Proven to have happened.
    Confirmed(Box<Receipt>),
    /// Proven not to have happened, or never to be sent.
    Failed(Failure),
    /// The attempt is proven not to have been processed; may be sent again later.
    Deferred(Deferral),
    /// No trustworthy answer.
    Unknown(UnknownReason),
    /// A lookup was made; says nothing by itself.
    Probed(Probe),
    /// Something arrived that may not be applied, such as the late answer of a fenced-off worker.
    Observed(Observation),
    /// The same identity was requested with other args (I6).
    Conflicted(Conflict),
    /// A person, or the slot's declared rule, decided a conflict.
    ConflictDecided(ConflictDecision),
}

/// The kind of an [`EffectEvent`], which is what the transition table speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectEventKind {
    /// See [`EffectEvent::Proposed`].
    Proposed,
    /// See [`EffectEvent::Authorized`].
    Authorized,
    /// See [`EffectEvent::Requested`].
    Requested,
    /// See [`EffectEvent::Confirmed`].
    Confirmed,
    /// See [`EffectEvent::Failed`].
    Failed,
    /// See [`EffectEvent::Deferred`].
    Deferred,
    /// See [`EffectEvent::Unknown`].
    Unknown,
    /// See [`EffectEvent::Probed`].
    Probed,
    /// See [`EffectEvent::Observed`].
    Observed,
    /// See [`EffectEvent::Conflicted`].
    Conflicted,
    /// See [`EffectEvent::ConflictDecided`].
    ConflictDecided,
}

impl EffectEventKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Proposed,
        Self::Authorized,
        Self::Requested,
        Self::Confirmed,
        Self::Failed,
        Self::Deferred,
        Self::Unknown,
        Self::Probed,
        Self::Observed,
        Self::Conflicted,
        Self::ConflictDecided,
    ];

    /// The word the ledger stores.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Authorized => "authorized",
            Self::Requested => "requested",
            Self::Confirmed => "confirmed",
            Self::Failed => "failed",
            Self::Deferred => "deferred",
            Self::Unknown => "unknown",
            Self::Probed => "probed",
            Self::Observed => "observed",
            Self::Conflicted => "conflicted",
            Self::ConflictDecided => "conflict_decided",
        }
    }
}

impl EffectEvent {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> EffectEventKind {
        match self {
            Self::Proposed(_) => EffectEventKind::Proposed,
            Self::Authorized(_) => EffectEventKind::Authorized,
            Self::Requested(_) => EffectEventKind::Requested,
            Self::Confirmed(_) => EffectEventKind::Confirmed,
            Self::Failed(_) => EffectEventKind::Failed,
            Self::Deferred(_) => EffectEventKind::Deferred,
            Self::Unknown(_) => EffectEventKind::Unknown,
            Self::Probed(_) => EffectEventKind::Probed,
            Self::Observed(_) => EffectEventKind::Observed,
            Self::Conflicted(_) => EffectEventKind::Conflicted,
            Self::ConflictDecided(_) => EffectEventKind::ConflictDecided,
        }
    }
}

/// What is asked for, with everything that later decisions rest on frozen beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// What the effect id is the digest of.
    pub identity: Identity,
    /// The node that asked; part of the identity unless the effect is shared between runs.
    pub node: Name,
    /// The visit of that node.
    pub visit: u32,
    /// The element, in a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementId>,
    /// The slot through which it asked.
    pub slot: Name,
    /// The tool that performs it.
    pub tool: Name,
    /// The version of that tool's file.
    pub tool_version: String,
    /// The operation of that tool.
    pub operation: Name,
    /// The args as the guest gave them, after strict parsing.
    pub args: Value,
    /// The digest of tool, operation and args without incidental fields.
    pub request_hash: RequestHash,
    /// The readable key.
    pub idempotency_key: String,
    /// The key in the form sent to the provider; never derived anew.
    pub provider_key: String,
    /// The promises of the operation at this time.
    pub contract: Contract,
    /// How it is undone, decided before anything of it is sent; absent: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Box<Compensation>>,
    /// The effect that this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<EffectId>,
}

/// How an effect is undone, frozen with its proposal: by an effect of its own, whose identity follows from that of the effect
/// (see [`Identity::compensation`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compensation {
    /// The tool.
    pub tool: Name,
    /// The version of that tool's file.
    pub tool_version: String,
    /// The operation of that tool.
    pub operation: Name,
    /// The args: the template of the pinned definition, in which only what comes from the receipt is still to be filled in.
    pub args: Value,
    /// What happens while it is not known whether there is anything to undo.
    pub on_unknown: OnUnknown,
    /// The readable key of the first request to undo it.
    pub idempotency_key: String,
    /// How often it is asked for in all, when it is definitely refused, and how long it waits in between.
    pub retry: Retry,
}

/// What becomes of a compensation while it is not known whether there is anything to undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// It waits until that is known.
    #[default]
    Hold,
    /// It is made once nobody but a person can find out; undoing what did not happen does no harm.
    Undo,
}

impl OnUnknown {
    /// Whether it is the usual.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Proposal {
    /// The step that asked.
    #[must_use]
    pub fn step(&self) -> StepId {
        StepId { node: self.node.clone(), visit: self.visit, element: self.element.clone() }
    }
}

/// Why an effect may be sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// The policy that permitted it: the slot's `allow` expression, or the bare grant.
    pub policy: String,
    /// The request that was permitted.
    pub request_hash: RequestHash,
}

/// The start of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptStart {
    /// 1 for the first.
    pub attempt: u32,
    /// The request as it will be sent, without secrets: method, URL, allow-listed headers, body.
    pub request: Value,
    /// `sha256:` and the digest of the exact body bytes.
    pub body_hash: String,
}

/// The proof that an effect happened. Immutable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The version of this format.
    pub schema: u32,
    /// What was requested.
    pub request_hash: RequestHash,
    /// The key under which it was requested.
    pub idempotency_key: String,
    /// The provider's id of what came of it.
    pub external_id: Option<String>,
    /// The provider's result: the body of the answer, or its first part as text when it was not JSON or too big.
    pub result: Value,
    /// `sha256:` and the digest of the whole body received (of the part kept, when it was cut off).
    pub result_hash: Option<String>,
    /// Whether `result` is not the whole answer.
    pub truncated: bool,
    /// The part of the result that the guest may see.
    pub exposed: Value,
    /// How we know.
    pub source: Source,
    /// Which rule of the classifier decided.
    pub rule: RuleId,
    /// The verdict on the attempt that this receipt settles, when it settles one.
    pub verdict: Option<Verdict>,
    /// What in the result differs from what was asked for (an amount, say), in words; dependants are held then.
    pub discrepancy: Option<String>,
    /// The tool.
    pub tool: Name,
    /// The version of its file.
    pub tool_version: String,
    /// The operation.
    pub operation: Name,
    /// The policy that permitted the request.
    pub policy: String,
    /// The approval it was sent under, when one was required.
    pub approval: Option<EffectId>,
    /// How many attempts were made.
    pub attempts: u32,
    /// When the first attempt started, by the host's clock.
    pub requested_at: Timestamp,
    /// When the outcome was known, by the host's clock.
    pub confirmed_at: Timestamp,
}

/// Where a truth comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Source {
    /// The provider's answer to an attempt.
    Reply {
        /// Which attempt.
        attempt: u32,
    },
    /// A lookup.
    Lookup,
    /// An authenticated callback.
    Callback,
    /// A person, with evidence.
    Operator {
        /// Who.
        who: String,
        /// The evidence they gave.
        evidence: String,
    },
}

/// Why an effect did not happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// A stable word: `denied`, `refused`, `exhausted`, `expired`, `resolved`, …, or the provider's code.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// Whether the policy, not the provider, refused it.
    pub denied: bool,
    /// How we know.
    pub source: Option<Source>,
    /// Which rule of the classifier decided, when an attempt was made.
    pub rule: Option<RuleId>,
    /// The verdict on the attempt that this settles.
    pub verdict: Option<Verdict>,
    /// What the provider said.
    pub detail: Value,
}

/// An attempt that did nothing, and when the next may start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deferral {
    /// NOT_SENT or NOT_PROCESSED.
    pub verdict: Verdict,
    /// Which rule decided.
    pub rule: RuleId,
    /// In words.
    pub message: String,
    /// The earliest next attempt.
    pub not_before: Option<Timestamp>,
}

/// Why an outcome is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnknownReason {
    /// The verdict on the last attempt. INDETERMINATE or ACCEPTED_PENDING, or a clean one that does not clear an earlier
    /// attempt.
    pub verdict: Verdict,
    /// Which rule decided.
    pub rule: RuleId,
    /// In words.
    pub message: String,
    /// The provider's id of the object, when the answer carried one that could not be trusted by itself.
    pub external_id: Option<String>,
    /// Whether the provider answered with an error that it may have stored under our key (a 5xx).
    pub answered: bool,
    /// Set when nothing may be sent or concluded automatically: the provider says our key is in use with other bytes.
    pub quarantined: bool,
    /// Whether the answer broke the operation's own response schema: the tool file and the provider have drifted apart.
    #[serde(default)]
    pub breach: bool,
    /// The earliest instant of the next move.
    pub not_before: Option<Timestamp>,
    /// What the provider said, as far as it may be kept.
    pub detail: Value,
}

/// One lookup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// What it told.
    pub result: ProbeResult,
    /// The request that was made, without secrets.
    pub request: Value,
    /// The earliest next probe.
    pub not_before: Option<Timestamp>,
}

/// What a lookup told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum ProbeResult {
    /// Exactly one object, and it is what was asked for.
    Match {
        /// The provider's id.
        external_id: Option<String>,
        /// The object.
        result: Value,
    },
    /// Exactly one object, and it differs from what was asked for.
    Mismatch {
        /// The provider's id.
        external_id: Option<String>,
        /// The object.
        result: Value,
        /// The difference, in words.
        difference: String,
    },
    /// Exactly one object, in a state that says that it did not happen.
    Refused {
        /// The provider's id.
        external_id: Option<String>,
        /// The object.
        result: Value,
        /// The state it is in, in words.
        message: String,
    },
    /// More than one object.
    Many {
        /// How many.
        count: u32,
        /// The provider's ids, oldest first, at most twenty.
        external_ids: Vec<String>,
        /// The oldest object.
        oldest: Value,
    },
    /// No object. By itself not a no.
    Miss,
    /// The object exists and is still being worked on.
    Pending,
    /// The lookup itself failed.
    Error {
        /// In words.
        message: String,
    },
}

/// Something that arrived but may not be applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// What arrived, in words for people, e.g. `late answer`.
    pub what: String,
    /// The attempt it belongs to.
    pub attempt: Option<u32>,
    /// The verdict it would have had.
    pub verdict: Option<Verdict>,
    /// The rule that would have decided.
    #[serde(default)]
    pub rule: Option<RuleId>,
    /// What it said, in words.
    #[serde(default)]
    pub message: Option<String>,
    /// The status of the answer, when it had one.
    #[serde(default)]
    pub status: Option<u16>,
    /// The provider's id of the object, when the answer carried one.
    #[serde(default)]
    pub external_id: Option<String>,
    /// Whether the answer broke the operation's own response schema.
    #[serde(default)]
    pub breach: bool,
    /// As far as it may be kept.
    pub detail: Value,
}

/// The other request made under an identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    /// The digest of the request on record.
    pub recorded_hash: RequestHash,
    /// The digest of the other request.
    pub requested_hash: RequestHash,
    /// Its args.
    pub args: Value,
}

/// How a conflict was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConflictDecision {
    /// The decision.
    pub decision: ConflictRule,
    /// Who decided: an operator's name, or `slot` for the declared rule.
    pub who: String,
    /// Why, in their words.
    pub why: String,
    /// The request that was decided upon.
    pub requested_hash: RequestHash,
}

/// What may be done about a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictRule {
    /// The guest gets the recorded receipt.
    Keep,
    /// The guest gets an error.
    Fail,
    /// The other request becomes a new logical action, of the next generation.
    Renew,
}

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
            Self::BadOutput { message } | Self::BadRequest { message } => message.clone(),
        }
    }
}
