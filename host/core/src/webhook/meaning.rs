//! What a genuine event says about an effect, and what is made of that.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::verify::{AHEAD_MS, Authentic};
use crate::effect::{Effect, State};
use crate::event::{EffectEvent, Failure, Observation, Receipt, Source};
use crate::evidence::{self, Evidence};
use crate::ids::EffectId;
use crate::outcome::{
    Declarations, NoExternalId, RuleId, Verdict, bare_receipt, discrepancy, exposed, id_at, same,
};
use crate::reconcile::{contradicted, vanished};
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
    /// It says what cannot be applied, as it is otherwise than what is recorded, or may be about an earlier attempt: to be kept as
    /// evidence.
    Evidence(Observation),
    /// The same, and it is kept already.
    Kept,
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

/// Every effect that an event speaks of, wherever. Its depth is bounded by the reader.
#[must_use]
pub fn effects_in(event: &Value) -> BTreeSet<EffectId> {
    match event {
        Value::String(text) => EffectId::parse(text.as_str()).ok().into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(effects_in).collect(),
        Value::Object(members) => members.values().flat_map(effects_in).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => BTreeSet::new(),
    }
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
    let args = &effect.proposal.args;
    let difference = happened.then(|| discrepancy(object, &declarations.echo, args)).flatten();
    let told = Told { happened, external_id, difference, object, authentic };
    Ok(match effect.shown_state(lease_live) {
        State::Requested => Judgement::Early,
        State::Confirmed if told.is_of(effect) => Judgement::Known,
        State::Failed if !happened => Judgement::Known,
        State::Confirmed | State::Failed => told.kept_with(effect),
        // I1: each attempt was taken for one that did nothing, and one of them did it.
        State::Authorized if happened => Judgement::Settles(vec![
            EffectEvent::Unknown(contradicted(effect)),
            told.receipt(effect, declarations, now),
        ]),
        // What is proposed now may be another request than the one that was made.
        State::Proposed | State::Authorized => told.kept_with(effect),
        State::Unknown if !happened && !told.is_about_the_latest(effect) => told.kept_with(effect),
        State::Unknown => {
            // I5: a request of a worker that is gone is UNKNOWN, and recorded so before it is explained.
            let vanished = (effect.state == State::Requested).then(|| vanished(effect));
            let outcome =
                if happened { told.receipt(effect, declarations, now) } else { told.failure() };
            Judgement::Settles(
                vanished.map(EffectEvent::Unknown).into_iter().chain([outcome]).collect(),
            )
        }
    })
}

fn holds(conditions: &[(String, Vec<Value>)], event: &Value) -> bool {
    let one = |(pointer, values): &(String, Vec<Value>)| {
        event.pointer(pointer).is_some_and(|found| values.iter().any(|value| same(found, value)))
    };
    !conditions.is_empty() && conditions.iter().all(one)
}

/// What an event tells of an outcome.
struct Told<'a> {
    happened: bool,
    external_id: Option<String>,
    /// How what happened differs from what was asked for.
    difference: Option<String>,
    object: &'a Value,
    authentic: &'a Authentic,
}

impl Told<'_> {
    fn source(&self) -> Source {
        Source::Callback {
            event: self.authentic.id.clone(),
            sent_at: self.authentic.sent_at,
            body_hash: self.authentic.body_hash.clone(),
        }
    }

    fn rule(&self) -> RuleId {
        RuleId::new(match (self.happened, &self.difference) {
            (true, None) => "webhook.succeeded",
            (true, Some(_)) => "webhook.mismatch",
            (false, _) => "webhook.failed",
        })
    }

    fn receipt(&self, effect: &Effect, declarations: &Declarations, now: Timestamp) -> EffectEvent {
        EffectEvent::Confirmed(Box::new(Receipt {
            external_id: self.external_id.clone(),
            exposed: exposed(self.object, &declarations.expose),
            result: self.object.clone(),
            source: self.source(),
            rule: self.rule(),
            discrepancy: self.difference.clone(),
            ..bare_receipt(effect, now)
        }))
    }

    fn failure(&self) -> EffectEvent {
        EffectEvent::Failed(Failure {
            code: "refused".to_owned(),
            message: "the provider's event says that it did not happen".to_owned(),
            denied: false,
            source: Some(self.source()),
            rule: Some(self.rule()),
            verdict: None,
            detail: json!({ "external_id": self.external_id, "result": self.object }),
        })
    }

    /// Whether it says what the receipt of an effect does.
    fn is_of(&self, effect: &Effect) -> bool {
        let Some(receipt) = &effect.receipt else { return false };
        // Another object than the one that is recorded is no second proof of it.
        let ids = receipt.external_id.as_ref().zip(self.external_id.as_ref());
        self.happened
            && ids.is_none_or(|(ours, theirs)| ours == theirs)
            && receipt.discrepancy == self.difference
    }

    /// Whether a no can be about the latest attempt, and nothing that came before says yes. Where there are several attempts, one
    /// that came within what two clocks may differ by could be about either.
    fn is_about_the_latest(&self, effect: &Effect) -> bool {
        if matches!(evidence::of(effect), Some(Evidence::Happened(_))) {
            return false;
        }
        let Some(last) = effect.attempts.last() else { return false };
        let alone = effect.attempts.len() == 1;
        self.authentic.sent_at.map_or(alone, |at| {
            if alone {
                at.plus_ms(AHEAD_MS) >= last.requested_at
            } else {
                at >= last.requested_at.plus_ms(AHEAD_MS)
            }
        })
    }

    fn kept_with(&self, effect: &Effect) -> Judgement {
        let seen = self.observation();
        let same = |kept: &Observation| {
            (&kept.what, kept.verdict, &kept.rule, &kept.external_id, &kept.detail)
                == (&seen.what, seen.verdict, &seen.rule, &seen.external_id, &seen.detail)
        };
        if effect.observed.iter().any(|(_, kept)| same(kept)) {
            return Judgement::Kept;
        }
        Judgement::Evidence(seen)
    }

    fn observation(&self) -> Observation {
        let Authentic { id, sent_at, body_hash } = self.authentic;
        let named = id.as_ref().unwrap_or(body_hash);
        let sent = sent_at.map_or_else(String::new, |at| format!(", sent at {at},"));
        let says = match (self.happened, &self.difference) {
            (true, None) => "it happened".to_owned(),
            (true, Some(difference)) => format!("it happened, but not as asked ({difference})"),
            (false, _) => "it did not happen".to_owned(),
        };
        Observation {
            what: WHAT.to_owned(),
            attempt: None,
            verdict: Some(if self.happened { Verdict::Succeeded } else { Verdict::Rejected }),
            rule: Some(self.rule()),
            message: Some(format!("{named}{sent} says that {says}")),
            status: None,
            external_id: self.external_id.clone(),
            breach: false,
            detail: self.object.clone(),
        }
    }
}
