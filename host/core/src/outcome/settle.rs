//! From a verdict on one attempt, or a lookup, to what the ledger records about the effect.

use serde_json::{Value, json};

use super::success::{exposed, id_at};
use super::{Declarations, Outcome, RuleId, Verdict};
use crate::contract::ToolClass;
use crate::effect::Effect;
use crate::event::{
    Deferral, EffectEvent, Failure, Probe, ProbeResult, Receipt, Source, UnknownReason,
};
use crate::ids::RunId;
use crate::mutation;
use crate::reconcile::{backoff_ms, reconcile_backoff_ms};
use crate::time::Timestamp;

/// The version of [`Receipt`] that is written.
const RECEIPT_SCHEMA: u32 = 1;

/// What to record about an effect whose latest attempt came to `outcome`.
///
/// An attempt that is in doubt stays so: the clean failure of a later one settles nothing, but for the declared replay of
/// the first answer. Reads are not held by that, as they may be repeated.
#[must_use]
pub fn settle(effect: &Effect, outcome: Outcome, now: Timestamp) -> EffectEvent {
    let in_doubt = effect.contract().class() != ToolClass::Read
        && effect.earlier_attempt_in_doubt()
        && !mutation::is("forget-doubt");
    match outcome.verdict {
        Verdict::Succeeded => EffectEvent::Confirmed(Box::new(reply_receipt(effect, outcome, now))),
        Verdict::Rejected if in_doubt && !outcome.replayed => {
            unknown(effect, outcome, now, in_doubt)
        }
        Verdict::Rejected => EffectEvent::Failed(Failure {
            code: outcome.code,
            message: outcome.message,
            denied: false,
            source: Some(Source::Reply { attempt: last_attempt(effect) }),
            rule: Some(outcome.rule),
            verdict: Some(Verdict::Rejected),
            detail: outcome.result,
        }),
        Verdict::NotSent | Verdict::NotProcessed if in_doubt => {
            unknown(effect, outcome, now, in_doubt)
        }
        Verdict::NotSent | Verdict::NotProcessed => EffectEvent::Deferred(Deferral {
            verdict: outcome.verdict,
            not_before: Some(now.plus_ms(retry_wait_ms(effect, outcome.retry_after_ms))),
            rule: outcome.rule,
            message: outcome.message,
        }),
        Verdict::AcceptedPending | Verdict::Indeterminate => unknown(effect, outcome, now, false),
    }
}

/// What to record about an UNKNOWN effect of which a lookup (by `request`, as it may be kept) told `result`: always that
/// lookup, and what follows from it. Nothing found is never a failure here: a miss is not a no. `expose` is what the
/// operation lets the guest see of an object that is found. An object in a state that says that it did not happen is the
/// provider's own no.
#[must_use]
pub fn settle_probe(
    effect: &Effect,
    result: ProbeResult,
    request: Value,
    expose: &[String],
    now: Timestamp,
) -> Vec<EffectEvent> {
    let receipt = match &result {
        ProbeResult::Match { external_id, result } => {
            Some(("lookup.match", external_id.clone(), result.clone(), None))
        }
        ProbeResult::Mismatch { external_id, result, difference } => {
            Some(("lookup.mismatch", external_id.clone(), result.clone(), Some(difference.clone())))
        }
        ProbeResult::Many { count, external_ids, oldest } => {
            let difference =
                format!("the provider has {count} objects: {}", external_ids.join(", "));
            Some(("lookup.many", external_ids.first().cloned(), oldest.clone(), Some(difference)))
        }
        ProbeResult::Refused { external_id, result: object, message } => {
            let failed = EffectEvent::Failed(Failure {
                code: "refused".to_owned(),
                message: message.clone(),
                denied: false,
                source: Some(Source::Lookup),
                rule: Some(RuleId::new("lookup.refused")),
                verdict: None,
                detail: json!({ "external_id": external_id, "result": object }),
            });
            let probed = EffectEvent::Probed(Probe { result, request, not_before: None });
            return vec![probed, failed];
        }
        ProbeResult::Miss | ProbeResult::Pending | ProbeResult::Error { .. } => None,
    };
    // Only a lookup that leaves the effect unknown is followed by another.
    let not_before =
        receipt.is_none().then(|| now.plus_ms(reconcile_backoff_ms(effect, moves(effect) + 1)));
    let probed = EffectEvent::Probed(Probe { result, request, not_before });
    let Some((rule, external_id, result, discrepancy)) = receipt else { return vec![probed] };
    let receipt = Receipt {
        external_id,
        exposed: exposed(&result, expose),
        result,
        source: Source::Lookup,
        rule: RuleId::new(rule),
        discrepancy,
        ..bare_receipt(effect, now)
    };
    vec![probed, EffectEvent::Confirmed(Box::new(receipt))]
}

/// How the run ended that an effect started.
#[derive(Debug, Clone, PartialEq)]
pub enum ChildEnd {
    /// It was completed, with that output.
    Completed(Value),
    /// It did not do what it was asked for.
    Failed {
        /// A stable word: `child_failed`, …
        code: &'static str,
        /// Why, in its words.
        why: String,
    },
}

/// What to record about an effect that started a run, when that run is over.
#[must_use]
pub fn settle_child(effect: &Effect, run: &RunId, end: ChildEnd, now: Timestamp) -> EffectEvent {
    let (source, rule) = (Source::Ledger { run: run.clone() }, RuleId::new("child.over"));
    match end {
        ChildEnd::Completed(output) => EffectEvent::Confirmed(Box::new(Receipt {
            external_id: Some(run.to_string()),
            exposed: output.clone(),
            result: output,
            source,
            rule,
            verdict: Some(Verdict::Succeeded),
            ..bare_receipt(effect, now)
        })),
        ChildEnd::Failed { code, why } => EffectEvent::Failed(Failure {
            code: code.to_owned(),
            message: why,
            denied: false,
            source: Some(source),
            rule: Some(rule),
            verdict: Some(Verdict::Rejected),
            detail: json!({ "run": run }),
        }),
    }
}

/// The receipt of an effect of which a person found out that it happened: `result` as the provider shows it, of which the
/// guest sees what the operation exposes, and the provider's id, which is looked for in the result when it is not given.
///
/// # Errors
/// [`NoExternalId`] when the operation's results have an id and this one has none.
pub fn receipt_by_person(
    effect: &Effect,
    declarations: &Declarations,
    result: Value,
    external_id: Option<String>,
    source: Source,
    now: Timestamp,
) -> Result<Receipt, NoExternalId> {
    let pointer = declarations.external_id.as_deref();
    let external_id = external_id.or_else(|| id_at(&result, pointer));
    match (&external_id, pointer) {
        (None, Some(pointer)) => Err(NoExternalId { pointer: pointer.to_owned() }),
        (Some(_), _) | (None, None) => Ok(Receipt {
            external_id,
            exposed: exposed(&result, &declarations.expose),
            result,
            source,
            rule: RuleId::new("operator"),
            ..bare_receipt(effect, now)
        }),
    }
}

/// A receipt without the provider's id, where the operation declares one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the receipt has no provider's id at `{pointer}`; give the object as the provider shows it, or the id by itself"
)]
pub struct NoExternalId {
    /// Where it should be (JSON Pointer).
    pub pointer: String,
}

fn reply_receipt(effect: &Effect, outcome: Outcome, now: Timestamp) -> Receipt {
    Receipt {
        external_id: outcome.external_id,
        result: outcome.result,
        result_hash: outcome.result_hash,
        truncated: outcome.truncated,
        exposed: outcome.exposed,
        source: Source::Reply { attempt: last_attempt(effect) },
        rule: outcome.rule,
        verdict: Some(Verdict::Succeeded),
        discrepancy: outcome.discrepancy,
        ..bare_receipt(effect, now)
    }
}

/// What every receipt says about its effect; what came of it is left empty.
pub(crate) fn bare_receipt(effect: &Effect, now: Timestamp) -> Receipt {
    let proposal = &effect.proposal;
    let policy = effect.authorization.as_ref().map(|authorization| authorization.policy.clone());
    Receipt {
        schema: RECEIPT_SCHEMA,
        request_hash: proposal.request_hash.clone(),
        idempotency_key: proposal.idempotency_key.clone(),
        external_id: None,
        result: Value::Null,
        result_hash: None,
        truncated: false,
        exposed: Value::Null,
        source: Source::Lookup,
        rule: RuleId::new(""),
        verdict: None,
        discrepancy: None,
        tool: proposal.tool.clone(),
        tool_version: proposal.tool_version.clone(),
        operation: proposal.operation.clone(),
        policy: policy.unwrap_or_default(),
        approval: effect.authorization.as_ref().and_then(|given| given.approval.clone()),
        attempts: effect.attempts.len() as u32,
        requested_at: effect.attempts.first().map_or(now, |attempt| attempt.requested_at),
        confirmed_at: now,
    }
}

/// `in_doubt`: the outcome is clean by itself, but does not clear an earlier attempt.
fn unknown(effect: &Effect, outcome: Outcome, now: Timestamp, in_doubt: bool) -> EffectEvent {
    let before = effect.unknown.as_ref();
    let message = if in_doubt {
        format!("{}; an earlier attempt is still in doubt", outcome.message)
    } else {
        outcome.message
    };
    let refused = outcome.verdict == Verdict::Rejected;
    let wait = if effect.contract().class() == ToolClass::Read {
        retry_wait_ms(effect, outcome.retry_after_ms)
    } else {
        let asked = outcome.retry_after_ms.unwrap_or(0).min(effect.contract().retry.max_ms);
        reconcile_backoff_ms(effect, moves(effect)).max(asked)
    };
    EffectEvent::Unknown(UnknownReason {
        verdict: outcome.verdict,
        rule: outcome.rule,
        message,
        // What an earlier answer told about the object or the key is not undone by one that tells nothing.
        external_id: outcome.external_id.or_else(|| before.and_then(|b| b.external_id.clone())),
        answered: outcome.answered || refused || in_doubt && before.is_some_and(|b| b.answered),
        quarantined: outcome.quarantined,
        breach: outcome.contract_breach,
        not_before: Some(now.plus_ms(wait)),
        detail: outcome.result,
    })
}

/// The wait before a request that did nothing is sent again: our own backoff, or what the provider asks for if that is
/// longer, but never over the declared longest wait (a hostile peer could park a run for years).
fn retry_wait_ms(effect: &Effect, retry_after_ms: Option<u64>) -> u64 {
    let retry = &effect.contract().retry;
    let made = effect.attempts.len() as u32;
    let own = backoff_ms(effect, made, retry.initial_ms, retry.max_ms);
    own.max(retry_after_ms.unwrap_or(0).min(retry.max_ms))
}

/// How many times the provider was asked anything, as far as the waits grow with it: every send, and the lookups since the
/// last one. Lookups about a send whose absence was proven say nothing about how long the next one takes.
fn moves(effect: &Effect) -> u32 {
    let before = effect.attempts.last().map_or(0, |attempt| attempt.probes_before);
    let lookups = effect.probes.len().saturating_sub(before);
    u32::try_from(effect.attempts.len() + lookups).unwrap_or(u32::MAX)
}

fn last_attempt(effect: &Effect) -> u32 {
    effect.attempts.last().map_or(0, |attempt| attempt.number)
}
