//! What became of one attempt: from what the network gave us to a verdict, and from the verdict to a ledger entry.
//!
//! [`classify`] judges one attempt by itself; [`settle`] and [`settle_probe`] fold that into the effect, where an earlier
//! attempt may still be in doubt. [`observe`] and [`observe_lookup`] make of the same what is kept when it may not be
//! applied.

mod classify;
mod observe;
mod retry_after;
mod settle;
mod status;
mod success;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use classify::classify;
pub use observe::{observe, observe_lookup};
pub(crate) use settle::bare_receipt;
pub use settle::{ChildEnd, NoExternalId, receipt_by_person, settle, settle_child, settle_probe};
pub use success::discrepancy;
pub(crate) use success::{exposed, id_at, same};

/// The verdict on one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// No byte of the request left.
    NotSent,
    /// It reached the peer and was provably not processed.
    NotProcessed,
    /// An authoritative refusal.
    Rejected,
    /// Taken, and still being worked on.
    AcceptedPending,
    /// It happened.
    Succeeded,
    /// It may have happened.
    Indeterminate,
}

impl Verdict {
    /// The word used in the ledger and shown to people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "NOT_SENT",
            Self::NotProcessed => "NOT_PROCESSED",
            Self::Rejected => "REJECTED",
            Self::AcceptedPending => "ACCEPTED_PENDING",
            Self::Succeeded => "SUCCEEDED",
            Self::Indeterminate => "INDETERMINATE",
        }
    }
}

/// The name of the classifier rule that decided, e.g. `http.500` or `transport.closed_before_head`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleId(pub String);

impl RuleId {
    /// The rule of that name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one HTTP attempt gave us.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Whether any byte of the request may have been handed to the socket, as the body's own witness saw it.
    pub sent: Sent,
    /// The answer, or the way in which it failed to come.
    pub result: Result<Answer, Fault>,
}

/// What the witness in the request body saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The body was never asked for: nothing left.
    Nothing,
    /// The body was asked for: everything may have left.
    Maybe,
}

/// How an answer failed to come. `status` is set when a response head was read first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// The status, when a response head was read.
    pub status: Option<u16>,
    /// In words, without secrets or full URLs.
    pub message: String,
}

/// The kinds of transport failure that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The request could not be built.
    Build,
    /// A secret that the request needs could not be read.
    Secret,
    /// The host name did not resolve.
    Dns,
    /// No connection: refused, unreachable, reset while connecting, a proxy's refusal.
    Connect,
    /// No connection in time.
    ConnectTimeout,
    /// The TLS handshake failed.
    Tls,
    /// The lease left no time to send.
    LeaseTooShort,
    /// No answer in time.
    Timeout,
    /// The connection ended before a response head.
    ClosedBeforeHead,
    /// Writing the request failed.
    Write,
    /// HTTP/2: the peer refused the stream before processing it.
    RefusedStream,
    /// HTTP/2: the stream was reset for another reason.
    StreamReset,
    /// What came was not HTTP.
    Parse,
    /// The response body ended early.
    BodyTruncated,
    /// The response body did not end in time.
    BodyTimeout,
    /// Whoever wanted the answer was gone before it came.
    Abandoned,
    /// Anything else.
    Other,
}

/// A complete response head, and as much of the body as was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers that may be kept, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
    /// `sha256:` and the digest of the body bytes that were read.
    pub body_hash: Option<String>,
    /// What is wrong with the body by the operation's response schema. Also set when the operation has a schema and the
    /// body cannot be held against it, as not all of it was taken.
    pub schema_error: Option<String>,
}

/// A response body.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// No byte.
    Empty,
    /// Strictly parsed JSON.
    Json(serde_json::Value),
    /// Not JSON (or not strict JSON); the beginning, as text.
    NotJson {
        /// The beginning.
        excerpt: String,
        /// Why it is not JSON.
        problem: String,
    },
    /// More than the cap; reading stopped and the connection was closed.
    TooLarge {
        /// The beginning.
        excerpt: String,
        /// The cap in bytes.
        cap: u64,
    },
}

/// What an operation declares about its answers; every refinement of the general table is stated here.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declarations {
    /// Answers that say it happened, besides 200 and 201.
    pub succeeded: Vec<Matcher>,
    /// Answers that say it was taken and is still being worked on, besides 202.
    pub pending: Vec<Matcher>,
    /// Answers that are an authoritative refusal.
    pub refused: Vec<Matcher>,
    /// Answers that prove nothing was processed.
    pub not_processed: Vec<Matcher>,
    /// Answers that say the same key is being worked on right now.
    pub in_flight: Vec<Matcher>,
    /// Answers that say the key was used with another request.
    pub mismatch: Vec<Matcher>,
    /// Answers that say the object exists already, made under our key.
    pub duplicate: Vec<Matcher>,
    /// What marks an answer as the replay of an earlier one.
    pub replayed: Vec<Matcher>,
    /// Whether a success has no body.
    pub no_body: bool,
    /// Where the provider's id is in a success (JSON Pointer).
    pub external_id: Option<String>,
    /// Where the id of the existing object is in a `duplicate` answer (JSON Pointer).
    pub duplicate_id: Option<String>,
    /// Pairs that must be equal: a pointer into the result, a pointer into the args.
    pub echo: Vec<Echo>,
    /// What the guest may see of a result (JSON Pointers); empty: nothing. It gets an object with one member for each
    /// pointer that points at something, named by the pointer's last token (`/data/id` gives `id`; of two pointers with
    /// one last token the later counts). The pointer `""` stands for the whole result in place of that object.
    pub expose: Vec<String>,
}

/// One pair that must be equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Echo {
    /// JSON Pointer into the provider's result.
    pub result: String,
    /// JSON Pointer into the args.
    pub args: String,
}

/// A pattern for an answer. All that is given must hold; at least one is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matcher {
    /// The status.
    pub status: Option<u16>,
    /// A header's name, in lower case; it must be present.
    pub header: Option<String>,
    /// JSON Pointer into the body; it must be present, and not `null` unless `equals` is.
    pub pointer: Option<String>,
    /// What the value at the pointer must be; without a pointer, what the header must be (as a string).
    pub equals: Option<serde_json::Value>,
}

/// The judged outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// Which rule decided.
    pub rule: RuleId,
    /// In words.
    pub message: String,
    /// A stable word for a refusal: the provider's code, or `http_402`.
    pub code: String,
    /// The provider's id, if the answer carried one.
    pub external_id: Option<String>,
    /// `Retry-After`, if given (a date is measured from the answer's own `Date`). Milliseconds, not yet clamped.
    pub retry_after_ms: Option<u64>,
    /// Whether the provider answered with an error that it may replay under our key.
    pub answered: bool,
    /// Whether the provider says that our key is in use with another request.
    pub quarantined: bool,
    /// Whether the answer is marked as the replay of an earlier one.
    pub replayed: bool,
    /// Whether the answer breaks the operation's own response schema.
    pub contract_breach: bool,
    /// How the result differs from what was asked for.
    pub discrepancy: Option<String>,
    /// The result as far as it may be kept.
    pub result: serde_json::Value,
    /// `sha256:` and the digest of the bytes received.
    pub result_hash: Option<String>,
    /// Whether `result` is cut off.
    pub truncated: bool,
    /// What the guest may see of it.
    pub exposed: serde_json::Value,
}
