//! What a genuine event says about an effect, and what is made of that.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::verify::Authentic;
use crate::effect::{Effect, State};
use crate::event::{EffectEvent, Failure, Observation, Receipt, Source};
use crate::ids::EffectId;
use crate::outcome::{
    Declarations, NoExternalId, RuleId, Verdict, bare_receipt, discrepancy, exposed, id_at, same,
};
use crate::reconcile::vanished;
use crate::time::Timestamp;

/// What an observation is called that is an event.
const WHAT: &str = "event of the provider";

/// What the events of an operation mean. All pointers are JSON Pointers into the event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meaning {
    /// Where the effect's id stands, which our request left with the provider.
    pub reference: String,
    /// Where the object stands that the event is about; it is what a receipt is made of.
    pub object: String,
    /// What must stand where for the event to say that it happened: one of the values at each pointer.
    pub succeeded: Vec<(String, Vec<Value>)>,
    /// What must stand where for the event to say that it did not happen; empty: no event says that.
    pub failed: Vec<(String, Vec<Value>)>,
}

/// What is made of a genuine event.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// It tells the outcome, which was not known: what is to be recorded.
    Settles(Vec<EffectEvent>),
    /// It says what is recorded already.
    Known,
    /// It says nothing about the outcome.
    Nothing,
    /// It says otherwise than what is recorded: to be kept as evidence, which changes nothing.
    Contradicts(Observation),
    /// A worker waits for the answer to the request itself. It is to be asked again.
    Early,
}

/// Why a genuine event is not taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnclearEvent {
    /// It is about another effect.
    #[error("it is not about effect {0}")]
    Elsewhere(EffectId),
    /// Nothing of the effect was ever sent.
    #[error("nothing of effect {0} was sent yet, so that it cannot be about it")]
    NeverSent(EffectId),
    /// It is both what says that it happened and what says that it did not.
    #[error("it is both: what `succeeded` and what `failed` asks for")]
    Both,
    /// The object is not there.
    #[error("it has nothing at `{pointer}`, where the object should be")]
    NoObject {
        /// Where it should be.
        pointer: String,
    },
    /// The object proves too little.
    #[error("its object has no provider's id at `{}`, where the operation's results have one", .0.pointer)]
    NoExternalId(NoExternalId),
}

/// The effect that an event names.
#[must_use]
pub fn reference(meaning: &Meaning, event: &Value) -> Option<EffectId> {
    EffectId::parse(event.pointer(&meaning.reference)?.as_str()?).ok()
}

/// What is made of a genuine event about an effect, whose run a worker holds if `lease_live`. Only an outcome that is not known is
/// settled by it. What differs in it from what was asked for is kept with the receipt, and a person decides, as with an answer.
///
/// # Errors
/// [`UnclearEvent`].
pub fn judge(
    effect: &Effect,
    lease_live: bool,
    meaning: &Meaning,
    declarations: &Declarations,
    (authentic, event): (&Authentic, &Value),
    now: Timestamp,
) -> Result<Judgement, UnclearEvent> {
    if reference(meaning, event).as_ref() != Some(&effect.id) {
        return Err(UnclearEvent::Elsewhere(effect.id.clone()));
    }
    let happened = match (holds(&meaning.succeeded, event), holds(&meaning.failed, event)) {
        (true, true) => return Err(UnclearEvent::Both),
        (false, false) => return Ok(Judgement::Nothing),
        (happened, _) => happened,
    };
    if effect.attempts.is_empty() {
        return Err(UnclearEvent::NeverSent(effect.id.clone()));
    }
    let Some(object) = event.pointer(&meaning.object) else {
        return Err(UnclearEvent::NoObject { pointer: meaning.object.clone() });
    };
    let external_id = id_at(object, declarations.external_id.as_deref());
    if let (true, None, Some(pointer)) = (happened, &external_id, &declarations.external_id) {
        return Err(UnclearEvent::NoExternalId(NoExternalId { pointer: pointer.clone() }));
    }
    match effect.shown_state(lease_live) {
        State::Unknown => {}
        State::Requested => return Ok(Judgement::Early),
        State::Proposed | State::Authorized | State::Confirmed | State::Failed => {
            let seen = observation(happened, external_id, object);
            return Ok(if is_known(effect, &seen) {
                Judgement::Known
            } else {
                Judgement::Contradicts(seen)
            });
        }
    }
    let outcome = if happened {
        let discrepancy = discrepancy(object, &declarations.echo, &effect.proposal.args);
        EffectEvent::Confirmed(Box::new(Receipt {
            external_id,
            exposed: exposed(object, &declarations.expose),
            result: object.clone(),
            source: source(authentic),
            rule: rule(happened),
            discrepancy,
            ..bare_receipt(effect, now)
        }))
    } else {
        EffectEvent::Failed(Failure {
            code: "refused".to_owned(),
            message: words(happened).to_owned(),
            denied: false,
            source: Some(source(authentic)),
            rule: Some(rule(happened)),
            verdict: None,
            detail: json!({ "external_id": external_id, "result": object }),
        })
    };
    // I5: a request of a worker that is gone is UNKNOWN, and recorded so before it is explained.
    let vanished = (effect.state == State::Requested).then(|| vanished(effect));
    Ok(Judgement::Settles(
        vanished.map(EffectEvent::Unknown).into_iter().chain([outcome]).collect(),
    ))
}

fn holds(conditions: &[(String, Vec<Value>)], event: &Value) -> bool {
    let one = |(pointer, values): &(String, Vec<Value>)| {
        event.pointer(pointer).is_some_and(|found| values.iter().any(|value| same(found, value)))
    };
    !conditions.is_empty() && conditions.iter().all(one)
}

fn source(authentic: &Authentic) -> Source {
    Source::Callback {
        event: authentic.id.clone(),
        sent_at: authentic.sent_at,
        body_hash: authentic.body_hash.clone(),
    }
}

fn rule(happened: bool) -> RuleId {
    RuleId::new(if happened { "webhook.succeeded" } else { "webhook.failed" })
}

const fn words(happened: bool) -> &'static str {
    if happened {
        "the provider's event says that it happened"
    } else {
        "the provider's event says that it did not happen"
    }
}

fn observation(happened: bool, external_id: Option<String>, object: &Value) -> Observation {
    Observation {
        what: WHAT.to_owned(),
        attempt: None,
        verdict: Some(if happened { Verdict::Succeeded } else { Verdict::Rejected }),
        rule: Some(rule(happened)),
        message: Some(words(happened).to_owned()),
        status: None,
        external_id,
        breach: false,
        detail: object.clone(),
    }
}

/// Whether what an event says is recorded of an effect that is settled, or was kept before.
fn is_known(effect: &Effect, seen: &Observation) -> bool {
    let happened = seen.verdict == Some(Verdict::Succeeded);
    let recorded = match &effect.receipt {
        // Another object than the one that is recorded is no second proof of it.
        Some(receipt) => {
            let ids = receipt.external_id.as_ref().zip(seen.external_id.as_ref());
            happened && ids.is_none_or(|(ours, theirs)| ours == theirs)
        }
        None => !happened && effect.state == State::Failed,
    };
    recorded || effect.observed.iter().any(|(_, kept)| kept == seen)
}
