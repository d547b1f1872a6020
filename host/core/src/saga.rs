//! How the effects of a run are undone that does not go on: one pure function over the recorded history of an effect and of
//! the effects that undo it. A compensation is not a rollback: it is a business action of its own, with its own key, permit,
//! receipt and failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::effect::{Effect, State};
use crate::event::{Compensation, ConflictRule, EffectEvent, Failure, Observation, OnUnknown};
use crate::evidence;
use crate::ids::{EffectId, Name};
use crate::mutation;
use crate::reconcile;
use crate::time::Timestamp;

/// What is to be done about an effect of a run that does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing, or nothing any more.
    Settled(Settled),
    /// Ask for its undoing, for the so-many-th time.
    Propose {
        /// 1 for the first.
        attempt: u32,
    },
    /// The latest request to undo it is under way.
    Drive,
    /// It is asked for, but not before this instant.
    Wait {
        /// When.
        until: Timestamp,
        /// For people.
        why: String,
    },
    /// It is not known whether there is anything to undo, and only a person can find out.
    Held,
    /// It cannot be undone; a person decides.
    Stuck {
        /// Why.
        why: String,
    },
}

/// Why there is nothing (more) to undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It did not happen.
    NotHappened,
    /// It was undone.
    Undone,
    /// A person says that nothing is left to undo.
    ByPerson,
    /// It happened, and the workflow does not say how to undo it.
    Stays,
}

/// Whether a run can still go back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WayBack {
    /// It can: the point of no return is not passed, and will not be.
    Open,
    /// It is not known whether that effect happened, which is the point of no return.
    Doubtful(EffectId),
    /// That effect happened, and there is none.
    Closed(EffectId),
}

/// Whether a run can still go back, by the effects of the step with the point of no return, which is `slot`.
#[must_use]
pub fn way_back<'a>(effects: impl IntoIterator<Item = &'a Effect>, slot: &Name) -> WayBack {
    let mut found = WayBack::Open;
    let asked = effects.into_iter().filter(|effect| effect.proposal.is_of_node());
    for effect in asked.filter(|effect| effect.proposal.slot == *slot) {
        match effect.state {
            State::Confirmed => return WayBack::Closed(effect.id.clone()),
            State::Requested | State::Unknown => found = WayBack::Doubtful(effect.id.clone()),
            State::Proposed | State::Authorized | State::Failed => {}
        }
    }
    found
}

/// Whether `event` asks for something that nobody asked for before, and that undoes nothing: what is refused of a run that is to be
/// cancelled. `effect` is how the effect stands after everything that is written with the event.
#[must_use]
pub fn asks_anew(event: &EffectEvent, effect: Asked) -> bool {
    if !effect.of_node {
        return false;
    }
    match event {
        // What was denied, or could not be built, is on record as that, and nobody is asked for it.
        EffectEvent::Proposed(_) => effect.state != State::Failed || effect.attempts > 0,
        EffectEvent::Requested(start) => start.attempt <= 1,
        _ => false,
    }
}

/// What [`asks_anew`] looks at of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Where it stands.
    pub state: State,
    /// How often it was requested.
    pub attempts: usize,
    /// Whether a node asked for it. What undoes another may be asked for at any time; an approval asks a person alone.
    pub of_node: bool,
}

impl Asked {
    /// Of an effect.
    #[must_use]
    pub const fn of(effect: &Effect) -> Self {
        Self {
            state: effect.state,
            attempts: effect.attempts.len(),
            of_node: effect.proposal.is_of_node(),
        }
    }
}

/// The effects that undo others, oldest first, by those that they undo.
#[must_use]
pub fn undos<'a>(
    effects: impl IntoIterator<Item = &'a Effect>,
) -> BTreeMap<&'a EffectId, Vec<&'a Effect>> {
    let mut undos: BTreeMap<&EffectId, Vec<&Effect>> = BTreeMap::new();
    for effect in effects {
        if let Some(undone) = &effect.proposal.undoes {
            undos.entry(undone).or_default().push(effect);
        }
    }
    undos.values_mut().for_each(|of| of.sort_by_key(|undo| undo.proposal.identity.generation));
    undos
}

/// What a run is stuck at that cannot go back, oldest first: what could not be undone for good, or else the newest effect of which
/// that could not even be asked for, as its compensation cannot be made; what is older waits for it. `effects` are all of the
/// run, in the order in which they were asked for; of those in `resolved` a person said that nothing is left to undo.
#[must_use]
pub fn stuck_at<'a>(
    effects: &[&'a Effect],
    resolved: &BTreeSet<EffectId>,
    now: Timestamp,
) -> Vec<&'a Effect> {
    let undos = undos(effects.iter().copied());
    let next = |effect: &Effect| {
        let undos = undos.get(&effect.id).map_or(&[][..], Vec::as_slice);
        next(effect, undos, resolved.contains(&effect.id), now)
    };
    let asked = || effects.iter().copied().filter(|effect| effect.proposal.is_of_node());
    let refused: Vec<&Effect> =
        asked().filter(|effect| matches!(next(effect), Next::Stuck { .. })).collect();
    if !refused.is_empty() {
        return refused;
    }
    asked().rfind(|effect| matches!(next(effect), Next::Propose { .. })).into_iter().collect()
}

/// What is to be done about `effect`, whose outcome is known or cannot be found out but by a person. `undos` are the effects
/// that undo it, oldest first; `resolved`: a person said that nothing is left to undo.
#[must_use]
pub fn next(effect: &Effect, undos: &[&Effect], resolved: bool, now: Timestamp) -> Next {
    if resolved {
        return Next::Settled(Settled::ByPerson);
    }
    let Some(compensation) = &effect.proposal.compensation else {
        return match effect.state {
            State::Confirmed => Next::Settled(Settled::Stays),
            State::Failed => Next::Settled(Settled::NotHappened),
            State::Proposed | State::Authorized | State::Requested | State::Unknown => Next::Held,
        };
    };
    match (effect.state, undos.last()) {
        // Once it is asked for, it is done with, whatever is learnt of the effect meanwhile.
        (_, Some(latest)) => after(effect, compensation, undos, latest, now),
        // Without a receipt nobody but a person can undo what happened after all.
        (State::Failed, None) => match evidence::against(effect) {
            Some(seen) => Next::Stuck { why: happened_after_all(effect, seen) },
            None => Next::Settled(Settled::NotHappened),
        },
        (State::Confirmed, None) => Next::Propose { attempt: 1 },
        (State::Proposed | State::Authorized | State::Requested | State::Unknown, None) => {
            match compensation.on_unknown {
                OnUnknown::Undo => once_quiet(effect, now),
                OnUnknown::Hold if mutation::is("undo-unknown") => Next::Propose { attempt: 1 },
                OnUnknown::Hold => Next::Held,
            }
        }
    }
}

/// Asks for the undoing of what may have happened, once it cannot happen any more: what the provider does with a request after
/// it did with its undoing stays.
fn once_quiet(effect: &Effect, now: Timestamp) -> Next {
    match reconcile::quiet_at(effect) {
        Some(until) if until > now && !mutation::is("undo-at-once") => Next::Wait {
            until,
            why: format!(
                "effect {} may still happen, and is undone once it cannot any more",
                effect.id
            ),
        },
        Some(_) | None => Next::Propose { attempt: 1 },
    }
}

/// What follows from the latest request to undo an effect.
fn after(
    effect: &Effect,
    compensation: &Compensation,
    undos: &[&Effect],
    latest: &Effect,
    now: Timestamp,
) -> Next {
    match latest.state {
        State::Proposed | State::Authorized | State::Requested | State::Unknown => Next::Drive,
        State::Confirmed if latest.hold.is_some() => Next::Drive,
        // It happened otherwise than asked for, and a person does not take it for an undoing.
        State::Confirmed if is_rejected(latest) => Next::Stuck {
            why: format!(
                "effect {} ({}) was undone otherwise than asked for, and that does not stand: {}",
                effect.id,
                effect.proposal.idempotency_key,
                latest.last_error.as_deref().unwrap_or("no reason recorded")
            ),
        },
        State::Confirmed if undos.len() == 1 && mutation::is("undo-again") => {
            Next::Propose { attempt: 2 }
        }
        State::Confirmed => Next::Settled(Settled::Undone),
        State::Failed => {
            let attempt = latest.proposal.identity.generation + 1;
            if is_ordered_again(latest) {
                return Next::Propose { attempt };
            }
            // It may be undone after all: nobody but a person has it done a second time.
            if let Some(seen) = evidence::against(latest) {
                return Next::Stuck { why: happened_after_all(latest, seen) };
            }
            let failure = latest.failure.as_ref();
            let message = failure.map_or_else(|| "no reason recorded".to_owned(), told);
            let denied = failure.is_some_and(|failure| failure.denied);
            // A person's order to try again begins a new count.
            let made = undos.iter().rev().skip(1).take_while(|undo| !is_ordered_again(undo));
            let made = 1 + u32::try_from(made.count()).unwrap_or(u32::MAX);
            if denied || made >= compensation.retry.attempts.max(1) {
                return Next::Stuck {
                    why: format!(
                        "effect {} ({}) happened and could not be undone by `{}.{}`: {message}",
                        effect.id,
                        effect.proposal.idempotency_key,
                        compensation.tool,
                        compensation.operation
                    ),
                };
            }
            let doubled = compensation.retry.initial_ms.saturating_mul(1 << (made - 1).min(32));
            let wait = doubled.min(compensation.retry.max_ms);
            let until = latest.answered_at.unwrap_or(latest.updated_at).plus_ms(wait);
            if until > now {
                let why = format!(
                    "undoing effect {} was refused and is asked for again: {message}",
                    effect.id
                );
                return Next::Wait { until, why };
            }
            Next::Propose { attempt }
        }
    }
}

fn happened_after_all(effect: &Effect, seen: &Observation) -> String {
    format!(
        "effect {id} ({}) is recorded as failed, and happened after all by what came since: {}; `twice effects show {id}`",
        effect.proposal.idempotency_key,
        seen.says(),
        id = effect.id
    )
}

/// A failure in words, with its code where the words do not name it.
fn told(failure: &Failure) -> String {
    let Failure { code, message, .. } = failure;
    if message.contains(code.as_str()) { message.clone() } else { format!("{message} ({code})") }
}

fn is_ordered_again(undo: &Effect) -> bool {
    undo.is_renewed_for(&undo.proposal.request_hash)
}

fn is_rejected(undo: &Effect) -> bool {
    let decided = undo.decision_about(&undo.proposal.request_hash);
    decided.is_some_and(|decided| decided.decision == ConflictRule::Fail)
}
