//! What happens to effects and runs, in the form in which the ledger keeps it. These types are the stored format,
//! version 1: a field may be added with a default, never renamed or removed.

mod proposal;
mod run;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::proposal::{Authorization, Compensation, OnUnknown, Proposal, Required};
pub use self::run::{EndCause, RunEvent, SkipReason, StepFailure};
use crate::identity::RequestHash;
use crate::ids::{EffectId, Name, RunId};
use crate::outcome::{RuleId, Verdict};
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
    /// An authenticated callback: what the provider posted by itself.
    Callback {
        /// The event's id, when there is one.
        event: Option<String>,
        /// When it was sent, by the provider's clock, when it says so.
        sent_at: Option<Timestamp>,
        /// `sha256:` and the digest of its body.
        body_hash: String,
    },
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

impl Observation {
    /// What it says, in words.
    #[must_use]
    pub fn says(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.what)
    }
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
