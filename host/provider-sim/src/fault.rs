//! The faults: their names, what each does, and what value each takes. One table; help texts and checks follow from it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{DELAY_MS_MAX, HUGE_BODY_BYTES_MAX};

/// What may be wrong with the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[expect(
    missing_docs,
    reason = "`Fault::about` is the documentation of each, for programs as well"
)]
pub enum Fault {
    CommitThenDrop,
    DropBeforeCommit,
    CommitThen500,
    Fail500,
    DelayMs,
    DelayAfterCommitMs,
    HoldThenCommitLateMs,
    LookupLagMs,
    LookupFlapping,
    LookupError,
    NoLookup,
    ForgetKeysAfterMs,
    IgnoreKeys,
    SuccessOnlyReplay,
    ConflictWithId,
    HugeBody,
    EndlessBody,
    InvalidJson,
    DuplicateKeyJson,
    WrongAmount,
    Status,
    Storm429,
    Decline402,
    Refuse,
    PauseBeforeReplyUntil,
}

/// What value a fault takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// None.
    Nothing,
    /// Milliseconds.
    Millis,
    /// A status from 400 to 599, or none.
    ErrorStatus,
    /// `"saved"` or `"unsaved"`, or none.
    Saved,
    /// A number of bytes, or none.
    Bytes,
    /// A signed amount of cents, or none.
    Cents,
    /// Seconds, or none.
    Seconds,
    /// A status, or `{ "status": …, "body": …, "headers": { … } }`.
    Answer,
    /// A code, or `{ "status": …, "code": …, "message": … }`, or none.
    Refusal,
    /// The path of a file, or none.
    File,
}

impl Fault {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 25] = [
        Self::CommitThenDrop,
        Self::DropBeforeCommit,
        Self::CommitThen500,
        Self::Fail500,
        Self::DelayMs,
        Self::DelayAfterCommitMs,
        Self::HoldThenCommitLateMs,
        Self::LookupLagMs,
        Self::LookupFlapping,
        Self::LookupError,
        Self::NoLookup,
        Self::ForgetKeysAfterMs,
        Self::IgnoreKeys,
        Self::SuccessOnlyReplay,
        Self::ConflictWithId,
        Self::HugeBody,
        Self::EndlessBody,
        Self::InvalidJson,
        Self::DuplicateKeyJson,
        Self::WrongAmount,
        Self::Status,
        Self::Storm429,
        Self::Decline402,
        Self::Refuse,
        Self::PauseBeforeReplyUntil,
    ];

    const fn row(self) -> (&'static str, Takes, &'static str) {
        match self {
            Self::CommitThenDrop => (
                "commit_then_drop",
                Takes::Nothing,
                "commits, then resets the connection without an answer",
            ),
            Self::DropBeforeCommit => (
                "drop_before_commit",
                Takes::Nothing,
                "resets the connection without an answer; nothing is committed",
            ),
            Self::CommitThen500 => (
                "commit_then_500",
                Takes::Saved,
                "commits, then answers 500. \"saved\" (the default): the 500 is the first answer, and a replay gets it \
                 again; \"unsaved\": only the edge failed, and a replay gets the 201",
            ),
            Self::Fail500 => (
                "fail_500",
                Takes::Saved,
                "answers 500; nothing is committed. \"unsaved\" (the default): the key is not touched; \"saved\": the \
                 500 is the first answer under the key",
            ),
            Self::DelayMs => (
                "delay_ms",
                Takes::Millis,
                "waits before the commit, with the key in flight; the commit happens even if the client is gone",
            ),
            Self::DelayAfterCommitMs => {
                ("delay_after_commit_ms", Takes::Millis, "waits between the commit and the answer")
            }
            Self::HoldThenCommitLateMs => (
                "hold_then_commit_late_ms",
                Takes::Millis,
                "resets the connection at once and commits so much later, with the key in flight meanwhile",
            ),
            Self::LookupLagMs => (
                "lookup_lag_ms",
                Takes::Millis,
                "lookups see an object only so long after its commit",
            ),
            Self::LookupFlapping => (
                "lookup_flapping",
                Takes::Nothing,
                "every other lookup finds nothing, the first one included",
            ),
            Self::LookupError => {
                ("lookup_error", Takes::ErrorStatus, "lookups fail with this status, or 503")
            }
            Self::NoLookup => {
                ("no_lookup", Takes::Nothing, "lookups answer 404 as if there were no such route")
            }
            Self::ForgetKeysAfterMs => (
                "forget_keys_after_ms",
                Takes::Millis,
                "keys are forgotten so long after the first answer; then the same key makes a new effect",
            ),
            Self::IgnoreKeys => (
                "ignore_keys",
                Takes::Nothing,
                "keys are taken and not looked at: each request makes an effect",
            ),
            Self::SuccessOnlyReplay => (
                "success_only_replay",
                Takes::Nothing,
                "only a success is kept under a key; after an error the work is done again",
            ),
            Self::ConflictWithId => (
                "conflict_with_id",
                Takes::Nothing,
                "a repeated key gets 409 with the id of the first object, not the first answer",
            ),
            Self::HugeBody => {
                ("huge_body", Takes::Bytes, "the answer is valid JSON of so many bytes, or 8 MiB")
            }
            Self::EndlessBody => ("endless_body", Takes::Nothing, "the answer's body does not end"),
            Self::InvalidJson => {
                ("invalid_json", Takes::Nothing, "the answer's JSON breaks off in the middle")
            }
            Self::DuplicateKeyJson => (
                "duplicate_key_json",
                Takes::Nothing,
                "the answer's JSON has `id` twice, with different values",
            ),
            Self::WrongAmount => (
                "wrong_amount",
                Takes::Cents,
                "a refund is made over so many cents more than asked for, or 1",
            ),
            Self::Status => (
                "status",
                Takes::Answer,
                "answers this status, body and headers before looking at the request",
            ),
            Self::Storm429 => (
                "storm_429",
                Takes::Seconds,
                "answers 429 with Retry-After of so many seconds, or 1, before looking at the request; say how often \
                 with `times`",
            ),
            Self::Decline402 => (
                "decline_402",
                Takes::Nothing,
                "declines with 402 `card_declined`; kept under the key like any first answer",
            ),
            Self::Refuse => (
                "refuse",
                Takes::Refusal,
                "refuses for good, with 422 and this code, or with { \"status\": 4xx, \"code\": …, \"message\": … }; kept \
                 under the key like any first answer",
            ),
            Self::PauseBeforeReplyUntil => (
                "pause_before_reply_until",
                Takes::File,
                "waits between the commit and the answer until this file exists, `POST /_sim/continue` is called or \
                 the client is gone",
            ),
        }
    }

    /// The name used in JSON and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// What the fault does and what its value means, in one sentence.
    #[must_use]
    pub const fn about(self) -> &'static str {
        self.row().2
    }

    /// Whether the fault is one of lookups, and thus applies to GET unless its switch says otherwise.
    #[must_use]
    pub const fn is_of_lookups(self) -> bool {
        matches!(
            self,
            Self::LookupLagMs | Self::LookupFlapping | Self::LookupError | Self::NoLookup
        )
    }

    /// Says what is wrong with a value of this fault.
    pub(crate) fn check_value(self, value: &Value) -> Result<(), String> {
        let none = value.is_null();
        let (fits, wanted) = match self.row().1 {
            Takes::Nothing => (none || *value == Value::Bool(true), "it takes no value".to_owned()),
            Takes::Millis => (
                value.as_u64().is_some_and(|ms| ms <= DELAY_MS_MAX || !self.is_a_delay()),
                format!("it takes whole milliseconds, for a delay at most {DELAY_MS_MAX}"),
            ),
            Takes::ErrorStatus => (
                none || value.as_u64().is_some_and(|s| (400..=599).contains(&s)),
                "it takes a status from 400 to 599, or nothing".to_owned(),
            ),
            Takes::Saved => (
                none || matches!(value.as_str(), Some("saved" | "unsaved")),
                "it takes \"saved\" or \"unsaved\", or nothing".to_owned(),
            ),
            Takes::Bytes => (
                none || value.as_u64().is_some_and(|bytes| bytes <= HUGE_BODY_BYTES_MAX),
                format!("it takes a number of bytes up to {HUGE_BODY_BYTES_MAX}, or nothing"),
            ),
            Takes::Cents => (
                none || value.as_i64().is_some_and(|c| (-1_000_000..=1_000_000).contains(&c)),
                "it takes whole cents from -1000000 to 1000000, or nothing".to_owned(),
            ),
            Takes::Seconds => (
                none || value.as_u64().is_some(),
                "it takes whole seconds, or nothing".to_owned(),
            ),
            Takes::Answer => (
                FixedAnswer::read(value).is_some(),
                "it takes a status from 200 to 599, or { \"status\": …, \"body\": …, \"headers\": { … } }"
                    .to_owned(),
            ),
            Takes::Refusal => (
                none || FixedRefusal::read(value).is_some(),
                "it takes a code of lower-case letters, digits and `_`, or { \"status\": 400 to 499, \"code\": …, \
                 \"message\": … }, or nothing"
                    .to_owned(),
            ),
            Takes::File => (
                none || value.as_str().is_some_and(|path| !path.is_empty()),
                "it takes the path of a file, or nothing".to_owned(),
            ),
        };
        match (fits, none) {
            (true, _) => Ok(()),
            (false, true) => Err(format!("{wanted}; none is given")),
            (false, false) => Err(format!("{wanted}; `{value}` is not that")),
        }
    }

    const fn is_a_delay(self) -> bool {
        matches!(self, Self::DelayMs | Self::DelayAfterCommitMs | Self::HoldThenCommitLateMs)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|fault| fault.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no switch `{text}`; the switches are {names}")
        })
    }
}

impl TryFrom<String> for Fault {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.as_str().to_owned()
    }
}

/// The value of the `status` switch.
#[derive(Debug, Clone)]
pub(crate) struct FixedAnswer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) headers: Vec<(String, String)>,
}

impl FixedAnswer {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let status = value.as_u64().or_else(|| value.get("status")?.as_u64())?;
        let status = u16::try_from(status).ok().filter(|s| (200..=599).contains(s))?;
        let body = value.get("body").cloned().unwrap_or_else(
            || serde_json::json!({ "error": { "code": "fixed_status", "message": "switched on" } }),
        );
        let headers = match value.get("headers") {
            None => Vec::new(),
            Some(Value::Object(map)) => map
                .iter()
                .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect::<Option<_>>()?,
            Some(_) => return None,
        };
        Some(Self { status, body, headers })
    }
}

/// The value of the `refuse` switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FixedRefusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Default for FixedRefusal {
    fn default() -> Self {
        Self {
            status: 422,
            code: "refused".to_owned(),
            message: "this is refused for good".to_owned(),
        }
    }
}

impl FixedRefusal {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let mut refusal = Self::default();
        match value {
            Value::String(code) => refusal.code.clone_from(code),
            Value::Object(members) => {
                for (name, value) in members {
                    match name.as_str() {
                        "status" => refusal.status = u16::try_from(value.as_u64()?).ok()?,
                        "code" => value.as_str()?.clone_into(&mut refusal.code),
                        "message" => value.as_str()?.clone_into(&mut refusal.message),
                        _ => return None,
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
        }
        let is_code = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let fits = (400..=499).contains(&refusal.status)
            && !refusal.code.is_empty()
            && refusal.code.chars().all(is_code);
        fits.then_some(refusal)
    }
}
