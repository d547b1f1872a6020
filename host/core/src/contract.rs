//! What an operation promises: everything the rules of retry and reconciliation may rely on. Nothing here is guessed;
//! each field is stated in a tool file.

use serde::{Deserialize, Serialize};

/// The promises of one operation of a tool, as far as they decide what may be sent again and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Safe to repeat (a query, a model call): recorded, asked again freely when unanswered, never left UNKNOWN.
    pub read: bool,
    /// The idempotency key the provider honours, if it honours one.
    pub key: Option<KeyContract>,
    /// The lookup by which an outcome can be asked for, if there is one.
    pub lookup: Option<LookupContract>,
    /// How long after the last byte could have moved a request may still be processed. Milliseconds.
    pub settle_ms: u64,
    /// Total time for one attempt, after which its outcome is not known. Milliseconds.
    pub timeout_ms: u64,
    /// When and how often to send again what is proven not to have been processed.
    pub retry: Retry,
    /// How long UNKNOWN is reconciled before it waits for a person. Milliseconds from the first request.
    pub horizon_ms: u64,
    /// Whether this very ledger settles it, as it does a run of another workflow: what became of it can be asked here at any
    /// time, so that it is never UNKNOWN.
    #[serde(default, skip_serializing_if = "is_false")]
    pub settled_here: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// How a provider treats an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyContract {
    /// How long the provider remembers a key. Milliseconds.
    pub retention_ms: u64,
    /// What the retention is counted from.
    pub basis: RetentionBasis,
    /// What a second request under the same key gets.
    pub replay: Replay,
}

impl KeyContract {
    /// How much of the retention is not trusted: one hour or a tenth, whichever is more, but never over a half
    /// (so that windows of minutes and seconds stay usable).
    #[must_use]
    pub const fn margin_ms(&self) -> u64 {
        let tenth = self.retention_ms / 10;
        let hour = 3_600_000;
        let margin = if tenth > hour { tenth } else { hour };
        let half = self.retention_ms / 2;
        if margin > half { half } else { margin }
    }
}

/// The instant from which a provider counts the retention of a key. We always count from the first send, the earlier of
/// the two; the declaration is kept for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetentionBasis {
    /// From the first request under the key.
    FirstSend,
    /// From the completion of the first request.
    Completion,
}

/// What a provider answers to a repeated key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// The first answer, success or error. A replayed 5xx therefore settles nothing: only a lookup does.
    FirstAnswer,
    /// The first success; after an error the work is done again.
    SuccessOnly,
    /// The current state of the object.
    CurrentState,
    /// A conflict that names the object made by the first request.
    ConflictWithId,
    /// Failed work is driven further and an updated answer returned.
    RedrivesFailed,
}

/// What a lookup can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookupContract {
    /// What the provider is asked by.
    pub by: LookupBy,
    /// How fresh the answer is.
    pub consistency: Consistency,
}

/// What a lookup asks by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookupBy {
    /// The idempotency key.
    Key,
    /// A reference of ours that the request planted in the provider's object.
    Reference,
}

/// How soon a lookup sees what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// Read-after-write. Only here can a miss ever become a proof of absence.
    Strong,
    /// Behind by up to so many milliseconds: it can find, but never refute.
    Lagging(u64),
}

/// Attempts and their spacing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Most attempts of one effect, the first included. Requests in doubt that are sent again under a live key are bounded
    /// by the horizon instead: giving up on them early would only leave the doubt to a person.
    pub attempts: u32,
    /// Wait before the second attempt; doubles from there. Milliseconds.
    pub initial_ms: u64,
    /// Longest wait; also the clamp of a provider's `Retry-After`. Milliseconds.
    pub max_ms: u64,
}

/// How safely an operation can be repeated, as follows from its [`Contract`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolClass {
    /// Key honoured and outcome can be looked up.
    KeyAndLookup,
    /// Key honoured.
    KeyOnly,
    /// Outcome can be looked up.
    LookupOnly,
    /// Neither: sent once, and an unknown outcome waits for a person.
    Neither,
    /// Safe to repeat.
    Read,
    /// Settled by this ledger.
    Ledger,
}

impl ToolClass {
    /// The word used in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KeyAndLookup => "key+lookup",
            Self::KeyOnly => "key only",
            Self::LookupOnly => "lookup only",
            Self::Neither => "neither",
            Self::Read => "read",
            Self::Ledger => "ledger",
        }
    }

    /// What this class means for at-most-once, in one sentence for people.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::KeyAndLookup => {
                "at most once while the provider honours the key; an unknown outcome is resent under the same key or looked up"
            }
            Self::KeyOnly => {
                "at most once while the provider honours the key; past its retention an unknown outcome waits for a person"
            }
            Self::LookupOnly => {
                "sent once; an unknown outcome is looked up, and sent again only on proof that the first request did nothing"
            }
            Self::Neither => "sent once; an unknown outcome waits for a person",
            Self::Read => "repeated freely; the recorded answer is reused",
            Self::Ledger => "at most once; this ledger itself tells what became of it",
        }
    }
}

impl Contract {
    /// The promises of what this ledger settles: asked for once, and never in doubt. Nothing of it is timed by us.
    pub const SETTLED_HERE: Self = Self {
        read: false,
        key: None,
        lookup: None,
        settle_ms: 0,
        timeout_ms: 0,
        retry: Retry { attempts: 1, initial_ms: 1_000, max_ms: 60_000 },
        horizon_ms: 0,
        settled_here: true,
    };

    /// The class that follows from what is declared.
    #[must_use]
    pub const fn class(&self) -> ToolClass {
        if self.settled_here {
            return ToolClass::Ledger;
        }
        match (self.read, &self.key, &self.lookup) {
            (true, _, _) => ToolClass::Read,
            (false, Some(_), Some(_)) => ToolClass::KeyAndLookup,
            (false, Some(_), None) => ToolClass::KeyOnly,
            (false, None, Some(_)) => ToolClass::LookupOnly,
            (false, None, None) => ToolClass::Neither,
        }
    }
}
