//! What happens to effects and runs, in the form in which the ledger keeps it. These types are the stored format,
//! version 1: a field may be added with a default, never renamed or removed.

mod run;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::run::{EndCause, RunEvent, SkipReason, StepFailure};
use crate::contract::{Contract, Retry};
use crate::identity::{Identity, RequestHash};
use crate::ids::{EffectId, ElementId, Name, RunId};
use crate::outcome::{RuleId, Verdict};
use crate::progress::StepId;
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
    /// The approval that it needs before it is sent; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Box<Required>>,
    /// The effect that this one asks a person's approval of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approves: Option<EffectId>,
}

/// A person's approval that an effect needs, decided with its proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Required {
    /// Who is asked.
    pub by: Name,
    /// How long they have to answer, and how long the answer is good for, from when they are asked. Milliseconds.
    pub expires_ms: u64,
    /// Why it is needed: the slot's `approve.when`, or the bare demand.
    pub policy: String,
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
    /// Whether a node asked for it, rather than the host for the sake of another effect.
    #[must_use]
    pub const fn is_of_node(&self) -> bool {
        self.undoes.is_none() && self.approves.is_none()
    }

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
    /// The approval under which it was, when one was required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<EffectId>,
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
    /// This ledger, which has the run that the effect started.
    Ledger {
        /// That run.
        run: RunId,
    },
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

/// The effect of another run by which a run was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// That run.
    pub run: RunId,
    /// The effect.
    pub effect: EffectId,
}
