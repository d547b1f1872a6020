//! What is kept of an answer that came when it could not be applied any more.

use serde_json::Value;

use super::{Exchange, Outcome, RuleId, Verdict};
use crate::event::{Observation, ProbeResult};

/// What is kept of `exchange`, which is attempt number `attempt` and came to `outcome`; `what` says how it came that it is
/// only kept. `None` when it told nothing: an attempt that ended without an answer leaves its effect as UNKNOWN as before.
#[must_use]
pub fn observe(
    what: &str,
    attempt: u32,
    exchange: &Exchange,
    outcome: &Outcome,
) -> Option<Observation> {
    let status = match &exchange.result {
        Ok(answer) => Some(answer.status),
        Err(fault) => fault.status,
    };
    if status.is_none() && outcome.verdict == Verdict::Indeterminate {
        return None;
    }
    Some(Observation {
        what: what.to_owned(),
        attempt: Some(attempt),
        verdict: Some(outcome.verdict),
        rule: Some(outcome.rule.clone()),
        message: Some(outcome.message.clone()),
        status,
        external_id: outcome.external_id.clone(),
        breach: outcome.contract_breach,
        detail: outcome.result.clone(),
    })
}

/// What is kept of what a lookup told. `None` when the lookup itself failed.
#[must_use]
pub fn observe_lookup(what: &str, result: &ProbeResult) -> Option<Observation> {
    let happened = Some(Verdict::Succeeded);
    let (verdict, rule, message, external_id, detail) = match result {
        ProbeResult::Match { external_id, result } => {
            let message = "the lookup found it as it was asked for".to_owned();
            (happened, "lookup.match", message, external_id.as_ref(), result)
        }
        ProbeResult::Mismatch { external_id, result, difference } => {
            let message = format!("the lookup found it, but not as asked ({difference})");
            (happened, "lookup.mismatch", message, external_id.as_ref(), result)
        }
        ProbeResult::Many { count, external_ids, oldest } => {
            let message = format!("the lookup found {count} objects: {}", external_ids.join(", "));
            (happened, "lookup.many", message, external_ids.first(), oldest)
        }
        ProbeResult::Refused { external_id, result, message } => {
            let refused = Some(Verdict::Rejected);
            (refused, "lookup.refused", message.clone(), external_id.as_ref(), result)
        }
        ProbeResult::Pending => {
            let message = "the lookup found it still being worked on".to_owned();
            (Some(Verdict::AcceptedPending), "lookup.pending", message, None, &Value::Null)
        }
        ProbeResult::Miss => {
            let message = "the lookup found nothing, which is not a no by itself".to_owned();
            (None, "lookup.miss", message, None, &Value::Null)
        }
        ProbeResult::Error { .. } => return None,
    };
    Some(Observation {
        what: what.to_owned(),
        attempt: None,
        verdict,
        rule: Some(RuleId::new(rule)),
        message: Some(message),
        status: None,
        external_id: external_id.cloned(),
        breach: false,
        detail: detail.clone(),
    })
}
