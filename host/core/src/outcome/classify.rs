//! The classifier: what became of one attempt, by itself. Pure rules in a fixed order; each has a stable name.

use serde_json::Value;

use super::retry_after::retry_after_ms;
use super::status::{Meaning, row_of};
use super::success::{comparable, discrepancy, exposed, flaw, id_at, same};
use super::{
    Answer, Body, Declarations, Exchange, Fault, FaultKind, Matcher, Outcome, RuleId, Sent, Verdict,
};
use crate::limits::EXCERPT_BYTES_MAX;

/// Judges one attempt. `first_attempt_clean` says that no earlier attempt of the effect is in doubt (true for the first);
/// it is the opposite of [`Effect::earlier_attempt_in_doubt`](crate::effect::Effect::earlier_attempt_in_doubt).
///
/// The order of the rules: the witness of a fault (nothing sent, nothing done) · faults that come before sending · a
/// refusal by protocol · the answer, by what the operation declares (mismatch, in flight, duplicate, refused, not
/// processed, pending, succeeded) · the answer, by the general table of statuses · everything else is indeterminate.
///
/// Rule names are `transport.<fault>`, `declared.<list>`, `http.<status>` and `http.2xx.<flaw>`.
#[must_use]
pub fn classify(
    exchange: &Exchange,
    declarations: &Declarations,
    args: &Value,
    first_attempt_clean: bool,
) -> Outcome {
    match &exchange.result {
        Ok(answer) => Judge { answer, declarations, args, first_attempt_clean }.judge(),
        Err(fault) => match fault.status {
            None => without_head(fault, exchange.sent),
            Some(status) => after_head(fault, status, declarations, args, first_attempt_clean),
        },
    }
}

impl FaultKind {
    /// The word in the name of its rule.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Secret => "secret",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::Tls => "tls",
            Self::LeaseTooShort => "lease_too_short",
            Self::Timeout => "timeout",
            Self::ClosedBeforeHead => "closed_before_head",
            Self::Write => "write",
            Self::RefusedStream => "refused_stream",
            Self::StreamReset => "stream_reset",
            Self::Parse => "parse",
            Self::BodyTruncated => "body_truncated",
            Self::BodyTimeout => "body_timeout",
            Self::Abandoned => "abandoned",
            Self::Other => "other",
        }
    }

    /// The verdict when a byte may have left and no head came.
    const fn verdict(self) -> Verdict {
        match self {
            // They come before the first byte, whatever the witness says: a request without a body has none to watch.
            Self::Build
            | Self::Secret
            | Self::Dns
            | Self::Connect
            | Self::ConnectTimeout
            | Self::Tls
            | Self::LeaseTooShort => Verdict::NotSent,
            Self::RefusedStream => Verdict::NotProcessed,
            // A connection that ends without an answer says nothing about what happened at its other end.
            Self::Timeout
            | Self::ClosedBeforeHead
            | Self::Write
            | Self::StreamReset
            | Self::Parse
            | Self::BodyTruncated
            | Self::BodyTimeout
            | Self::Abandoned
            | Self::Other => Verdict::Indeterminate,
        }
    }
}

fn outcome(verdict: Verdict, rule: impl Into<String>, message: String, code: String) -> Outcome {
    Outcome {
        verdict,
        rule: RuleId::new(rule),
        message,
        code,
        external_id: None,
        retry_after_ms: None,
        answered: false,
        quarantined: false,
        replayed: false,
        contract_breach: false,
        discrepancy: None,
        result: Value::Null,
        result_hash: None,
        truncated: false,
        exposed: Value::Object(serde_json::Map::new()),
    }
}

fn without_head(fault: &Fault, sent: Sent) -> Outcome {
    let verdict = match sent {
        Sent::Nothing => Verdict::NotSent,
        Sent::Maybe => fault.kind.verdict(),
    };
    let word = fault.kind.as_str();
    outcome(verdict, format!("transport.{word}"), fault.message.clone(), word.to_owned())
}

/// A head came, and then something broke. (That the witness saw nothing leave is no proof then: something was answered.)
fn after_head(
    fault: &Fault,
    status: u16,
    declarations: &Declarations,
    args: &Value,
    first_attempt_clean: bool,
) -> Outcome {
    let word = fault.kind.as_str();
    let by_status_alone = !body_may_tell(declarations, status)
        && match row_of(status).meaning {
            Meaning::Verdict(_) | Meaning::Precondition => (400..500).contains(&status),
            Meaning::Success
            | Meaning::SuccessWithoutBody
            | Meaning::StoredError
            | Meaning::Breach => false,
        };
    let declared = !body_may_tell(declarations, status)
        && lists(declarations).iter().any(|(_, list)| matches_status(list, status));
    if status >= 400 && (by_status_alone || declared) {
        let answer = Answer {
            status,
            headers: Vec::new(),
            body: Body::Empty,
            body_hash: None,
            schema_error: None,
        };
        return Judge { answer: &answer, declarations, args, first_attempt_clean }.judge();
    }
    let likely = if (200..300).contains(&status) { "it likely happened, but " } else { "" };
    let message =
        format!("the provider answered {status}; {likely}its answer broke off: {}", fault.message);
    let mut outcome =
        outcome(Verdict::Indeterminate, format!("transport.{word}"), message, word.to_owned());
    outcome.answered = row_of(status).meaning == Meaning::StoredError;
    outcome
}

/// The lists of matchers in the order in which they decide.
fn lists(declarations: &Declarations) -> [(List, &[Matcher]); 7] {
    [
        (List::Mismatch, &declarations.mismatch),
        (List::InFlight, &declarations.in_flight),
        (List::Duplicate, &declarations.duplicate),
        (List::Refused, &declarations.refused),
        (List::NotProcessed, &declarations.not_processed),
        (List::Pending, &declarations.pending),
        (List::Succeeded, &declarations.succeeded),
    ]
}

#[derive(Debug, Clone, Copy)]
enum List {
    Mismatch,
    InFlight,
    Duplicate,
    Refused,
    NotProcessed,
    Pending,
    Succeeded,
}

fn matches_status(list: &[Matcher], status: u16) -> bool {
    list.iter().any(|matcher| matcher.status == Some(status))
}

/// Whether some declared pattern for this status looks further than the status, so that without the rest of the answer
/// nothing may be concluded.
fn body_may_tell(declarations: &Declarations, status: u16) -> bool {
    lists(declarations).iter().flat_map(|(_, list)| list.iter()).any(|matcher| {
        matcher.status.is_none_or(|wanted| wanted == status)
            && (matcher.pointer.is_some() || matcher.header.is_some())
    })
}

/// Whether an answer fits a pattern. A pattern that asks for nothing fits nothing.
fn fits(matcher: &Matcher, answer: &Answer) -> bool {
    if matcher.status.is_none() && matcher.header.is_none() && matcher.pointer.is_none() {
        return false;
    }
    if matcher.status.is_some_and(|status| status != answer.status) {
        return false;
    }
    let equals = matcher.equals.as_ref();
    if let Some(name) = &matcher.header {
        // With both a header and a pointer, `equals` is about the value at the pointer.
        let wanted = equals.filter(|_| matcher.pointer.is_none());
        let mut values =
            answer.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v);
        let fits = values.any(|value| wanted.is_none_or(|wanted| wanted == value.trim()));
        if !fits {
            return false;
        }
    }
    match (&matcher.pointer, &answer.body) {
        (None, _) => true,
        (Some(pointer), Body::Json(body)) => {
            body.pointer(pointer).is_some_and(|found| match equals {
                Some(equals) => same(found, equals),
                // `"error": null` is how many say that there is none.
                None => !found.is_null(),
            })
        }
        (Some(_), Body::Empty | Body::NotJson { .. } | Body::TooLarge { .. }) => false,
    }
}

struct Judge<'a> {
    answer: &'a Answer,
    declarations: &'a Declarations,
    args: &'a Value,
    first_attempt_clean: bool,
}

impl Judge<'_> {
    fn judge(&self) -> Outcome {
        for (list, matchers) in lists(self.declarations) {
            if let Some(matcher) = matchers.iter().find(|matcher| fits(matcher, self.answer)) {
                return self.declared(list, matcher);
            }
        }
        let status = self.answer.status;
        let row = row_of(status);
        let verdict = match row.meaning {
            Meaning::Success => return self.success(format!("http.{status}")),
            Meaning::SuccessWithoutBody if self.declarations.no_body => {
                return self.success(format!("http.{status}"));
            }
            Meaning::Precondition if self.first_attempt_clean => Verdict::Rejected,
            Meaning::Verdict(verdict) => verdict,
            Meaning::SuccessWithoutBody
            | Meaning::Precondition
            | Meaning::StoredError
            | Meaning::Breach => Verdict::Indeterminate,
        };
        let why = match row.meaning {
            Meaning::SuccessWithoutBody => {
                "it likely happened, but the operation does not declare a success without a body"
            }
            Meaning::Precondition if !self.first_attempt_clean => {
                "a precondition does not hold any more, perhaps by an earlier attempt of ours"
            }
            Meaning::Success
            | Meaning::Precondition
            | Meaning::Verdict(_)
            | Meaning::StoredError
            | Meaning::Breach => row.why,
        };
        let mut outcome = self.outcome(verdict, format!("http.{status}"), why);
        outcome.answered = row.meaning == Meaning::StoredError;
        outcome.contract_breach = row.meaning == Meaning::Breach;
        outcome
    }

    fn declared(&self, list: List, matcher: &Matcher) -> Outcome {
        match list {
            List::Mismatch => {
                let mut outcome = self.outcome(
                    Verdict::Indeterminate,
                    "declared.mismatch".to_owned(),
                    "our key is in use with another request",
                );
                outcome.quarantined = true;
                outcome
            }
            List::InFlight => self.outcome(
                Verdict::Indeterminate,
                "declared.in_flight".to_owned(),
                "an earlier request under our key is being worked on",
            ),
            List::Duplicate => self.duplicate(),
            List::Refused => {
                let mut outcome =
                    self.outcome(Verdict::Rejected, "declared.refused".to_owned(), "refused");
                outcome.code = self.code(matcher);
                outcome
            }
            List::NotProcessed => self.outcome(
                Verdict::NotProcessed,
                "declared.not_processed".to_owned(),
                "declared as not processed",
            ),
            List::Pending => self.outcome(
                Verdict::AcceptedPending,
                "declared.pending".to_owned(),
                "accepted, and still being worked on",
            ),
            List::Succeeded => self.success("declared.succeeded".to_owned()),
        }
    }

    /// The object exists, made under our key. That settles it when the answer names it and leaves nothing uncompared;
    /// else a lookup has to.
    fn duplicate(&self) -> Outcome {
        let rule = "declared.duplicate".to_owned();
        let body = self.body();
        let id = id_at(body, self.declarations.duplicate_id.as_deref());
        let echo = &self.declarations.echo;
        let settles = id.is_some() && comparable(body, echo, self.args);
        let (verdict, why) = if settles {
            (Verdict::Succeeded, "the object exists already, made under our key")
        } else {
            (
                Verdict::Indeterminate,
                "the object exists already, made under our key, but this answer does not show what it is",
            )
        };
        let mut outcome = self.outcome(verdict, rule, why);
        outcome.external_id = id.or(outcome.external_id);
        outcome.replayed = true;
        if settles {
            outcome.discrepancy = discrepancy(body, echo, self.args);
            outcome.exposed = exposed(body, &self.declarations.expose);
        }
        outcome
    }

    fn success(&self, rule: String) -> Outcome {
        let two_hundreds = (200..300).contains(&self.answer.status);
        // Another status that is declared as a success ("already gone") has no body of a success to judge.
        let flaw = if two_hundreds {
            let body_tells = self.declarations.external_id.is_some()
                || !self.declarations.echo.is_empty()
                || body_may_tell(self.declarations, self.answer.status);
            flaw(self.answer, self.declarations, body_tells)
        } else {
            None
        };
        if let Some((rule, flaw)) = flaw {
            let mut outcome = self.outcome(
                Verdict::Indeterminate,
                rule.to_owned(),
                &format!("it likely happened, but {flaw}"),
            );
            // Sound JSON that lacks what the operation declares is drift; a damaged body is an accident of transport.
            outcome.contract_breach = matches!(self.answer.body, Body::Json(_));
            return outcome;
        }
        let mut outcome = self.outcome(Verdict::Succeeded, rule, "it happened");
        if two_hundreds && let Body::Json(body) = &self.answer.body {
            outcome.discrepancy = discrepancy(body, &self.declarations.echo, self.args);
        }
        outcome.exposed = exposed(self.body(), &self.declarations.expose);
        outcome
    }

    /// An outcome with everything that is read from the answer whatever the verdict.
    fn outcome(&self, verdict: Verdict, rule: String, why: &str) -> Outcome {
        let answer = self.answer;
        let status = answer.status;
        let message = format!("the provider answered {status}: {why}");
        let mut outcome = outcome(verdict, rule, message, format!("http_{status}"));
        outcome.external_id = id_at(self.body(), self.declarations.external_id.as_deref());
        outcome.retry_after_ms = retry_after_ms(&answer.headers);
        outcome.replayed = self.declarations.replayed.iter().any(|matcher| fits(matcher, answer));
        outcome.result_hash.clone_from(&answer.body_hash);
        (outcome.result, outcome.truncated) = match &answer.body {
            Body::Empty => (Value::Null, false),
            Body::Json(body) => (body.clone(), false),
            // A cut falls between characters, so up to three bytes short of the limit.
            Body::NotJson { excerpt, .. } => {
                (Value::String(excerpt.clone()), excerpt.len() + 3 >= EXCERPT_BYTES_MAX)
            }
            Body::TooLarge { excerpt, .. } => (Value::String(excerpt.clone()), true),
        };
        outcome
    }

    fn body(&self) -> &Value {
        match &self.answer.body {
            Body::Json(body) => body,
            Body::Empty | Body::NotJson { .. } | Body::TooLarge { .. } => &Value::Null,
        }
    }

    /// The provider's own word for a refusal, where the pattern looks for one; else the status.
    fn code(&self, matcher: &Matcher) -> String {
        let pointed = matcher.pointer.as_deref().and_then(|pointer| self.body().pointer(pointer));
        let word = pointed.and_then(Value::as_str).filter(|word| !word.is_empty());
        word.map_or_else(|| format!("http_{}", self.answer.status), str::to_owned)
    }
}
