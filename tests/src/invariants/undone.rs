//! What holds of a run that does not go on: what it did is undone, once nothing but what a person can settle is in doubt, in
//! the order that its workflow says, and once. The order in which things were recorded is played again here, and the books of
//! a provider within a world say what came of it.
//!
//! The order and the point of no return are part of what a run is pinned to (I9).

use std::collections::{BTreeMap, BTreeSet};

use twice_core::chain::{Content, Entry};
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, EndCause, OnUnknown, RunEvent};
use twice_core::ids::{EffectId, Name};
use twice_core::progress::StepId;
use twice_core::reconcile::{self, Next};
use twice_core::run::RunState;
use twice_workflow::model::Workflow;

use super::{Books, Broken, Ended, holds};

/// Holds a run against the provider's books, and against itself.
///
/// # Errors
/// [`Broken`], for the first invariant that does not hold.
pub fn check(at: &str, workflow: &Workflow, ended: &Ended, books: &Books) -> Result<(), Broken> {
    let at = format!("{at}, {}", ended.record.id);
    let mut told = Told::new(&at, workflow);
    ended.history.iter().try_for_each(|entry| told.hear(entry))?;
    told.check_end(ended)?;
    told.effects.values().try_for_each(|effect| told.check_books(effect, books))
}

/// A run as far as it is told.
struct Told<'a> {
    at: &'a str,
    workflow: &'a Workflow,
    before: BTreeMap<Name, BTreeSet<Name>>,
    effects: BTreeMap<EffectId, Effect>,
    /// In the order in which they were first asked for.
    order: Vec<EffectId>,
    /// Why it does not go on.
    cause: Option<EndCause>,
    cancel_asked: bool,
    /// Effects of which a person says that nothing is left to undo.
    resolved: BTreeSet<EffectId>,
}

impl<'a> Told<'a> {
    fn new(at: &'a str, workflow: &'a Workflow) -> Self {
        // Nodes stand in an order in which each is behind those it comes after.
        let mut before: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
        for node in &workflow.nodes {
            let mut all: BTreeSet<Name> = node.after.iter().cloned().collect();
            all.extend(node.after.iter().filter_map(|name| before.get(name)).flatten().cloned());
            before.insert(node.name.clone(), all);
        }
        Self {
            at,
            workflow,
            before,
            effects: BTreeMap::new(),
            order: Vec::new(),
            cause: None,
            cancel_asked: false,
            resolved: BTreeSet::new(),
        }
    }

    fn holds(
        &self,
        so: bool,
        invariant: &'static str,
        what: impl FnOnce() -> String,
    ) -> Result<(), Broken> {
        holds(so, invariant, self.at, what)
    }

    fn hear(&mut self, entry: &Entry) -> Result<(), Broken> {
        match entry.content().expect("a verified entry is readable") {
            Content::Run(event) => self.hear_run(&event),
            Content::Effect { effect, event } => {
                self.check_move(&effect, &event, entry)?;
                if let Some(known) = self.effects.get_mut(&effect) {
                    known.apply(&event, entry.fence, entry.at).expect("a verified move is legal");
                } else {
                    let begun = Effect::begin(effect.clone(), entry.run.clone(), &event, entry.at);
                    let begun = begun.expect("a verified effect begins with its proposal");
                    self.order.push(effect.clone());
                    self.effects.insert(effect, begun);
                }
                Ok(())
            }
        }
    }

    fn hear_run(&mut self, event: &RunEvent) -> Result<(), Broken> {
        match event {
            RunEvent::Compensating { cause, .. } => {
                self.holds(self.cause.is_none(), "I11", || {
                    format!("it is undone because of {:?}, then because of {cause:?}", self.cause)
                })?;
                self.check_asked(*cause == EndCause::Cancelled)?;
                self.cause = Some(*cause);
            }
            RunEvent::CancelRequested { .. } => self.cancel_asked = true,
            RunEvent::Cancelled { .. } => self.check_asked(true)?,
            RunEvent::Retried { .. } => self.cause = None,
            RunEvent::UndoResolved { effect, .. } => {
                self.resolved.insert(effect.clone());
            }
            _ => {}
        }
        Ok(())
    }

    fn check_asked(&self, cancelled: bool) -> Result<(), Broken> {
        self.holds(!cancelled || self.cancel_asked, "I11", || {
            "it is cancelled, and nobody asked for that".to_owned()
        })
    }

    /// What holds when an effect is asked for, or asked for again.
    fn check_move(&self, id: &EffectId, event: &EffectEvent, entry: &Entry) -> Result<(), Broken> {
        let asks = matches!(event, EffectEvent::Proposed(_) | EffectEvent::Requested(_));
        let proposal = match event {
            EffectEvent::Proposed(proposal) => Some(proposal),
            _ => self.effects.get(id).map(|known| &known.proposal),
        };
        match proposal.filter(|_| asks).map(|proposal| proposal.undoes.as_ref()) {
            None => Ok(()),
            Some(None) => {
                let begun = self.undos().any(|undo| !undo.attempts.is_empty());
                let sent = matches!(event, EffectEvent::Requested(_));
                self.holds(!(begun && sent), "I5", || {
                    format!("{id} is sent while what was done before it is undone")
                })
            }
            Some(Some(of)) => self.check_undoing(id, &self.effects[of], entry),
        }
    }

    fn undos(&self) -> impl Iterator<Item = &Effect> {
        self.effects.values().filter(|effect| effect.proposal.undoes.is_some())
    }

    /// Those that undo an effect, in the order in which they were asked for.
    fn undos_of(&self, of: &EffectId) -> impl DoubleEndedIterator<Item = &Effect> {
        let all = self.order.iter().map(|id| &self.effects[id]);
        all.filter(move |effect| effect.proposal.undoes.as_ref() == Some(of))
    }

    /// What holds when an effect is asked to be undone.
    fn check_undoing(&self, undo: &EffectId, of: &Effect, entry: &Entry) -> Result<(), Broken> {
        let (id, state) = (&of.id, of.state);
        self.holds(self.cause.is_some(), "I11", || {
            format!("{id} is undone, and nothing says why the run does not go on")
        })?;
        let passed = self.pivots().next();
        self.holds(passed.is_none(), "I9", || {
            format!("{id} is undone behind the point of no return")
        })?;
        let undone = self.undos_of(id).find(|other| is_done(other) && other.id != *undo);
        self.holds(undone.is_none(), "I1", || format!("{id} is undone, and asked to be again"))?;
        let on_unknown = of.proposal.compensation.as_ref().map(|declared| declared.on_unknown);
        let does_no_harm = on_unknown == Some(OnUnknown::Undo);
        self.holds(state == State::Confirmed || does_no_harm, "I5", || {
            format!("{id} is undone though it is {state}")
        })?;
        for other in self.effects.values().filter(|other| other.proposal.is_of_node()) {
            let doubt = matches!(other.state, State::Requested | State::Unknown);
            let next = || reconcile::next(other, entry.fence, entry.at);
            let told = !doubt || matches!(next(), Next::Person { .. });
            self.holds(told, "I5", || {
                format!("{id} is undone while {} is {} and could be settled", other.id, other.state)
            })?;
        }
        let place = |id: &EffectId| self.order.iter().position(|known| known == id);
        let newer = self.effects.values().filter(|other| {
            other.proposal.is_of_node() && place(&other.id) > place(id) && self.rests(other, of)
        });
        for newer in newer {
            self.holds(self.is_settled(newer), "I9", || {
                format!("{id} is undone before {}, which may rest on it", newer.id)
            })?;
        }
        Ok(())
    }

    /// The effects that a run cannot go back behind.
    fn pivots(&self) -> impl Iterator<Item = &Effect> {
        let pivot = |node: &Name, slot: &Name| {
            let node = self.workflow.nodes.iter().find(|known| known.name == *node);
            node.is_some_and(|node| node.slots.iter().any(|s| s.name == *slot && s.pivot))
        };
        self.effects.values().filter(move |effect| {
            let proposal = &effect.proposal;
            let asked = proposal.is_of_node() && pivot(&proposal.node, &proposal.slot);
            asked && effect.state == State::Confirmed
        })
    }

    /// Whether a newer effect may need an older one: they are on one path, of one element, or of different rounds.
    fn rests(&self, newer: &Effect, older: &Effect) -> bool {
        let (newer, older): (StepId, StepId) = (newer.proposal.step(), older.proposal.step());
        if newer.node == older.node {
            return newer.visit != older.visit || newer.element == older.element;
        }
        let behind = |one: &StepId, other: &StepId| self.before[&one.node].contains(&other.node);
        behind(&newer, &older) || behind(&older, &newer)
    }

    /// Whether nothing (more) is to be undone of an effect.
    fn is_settled(&self, effect: &Effect) -> bool {
        if self.resolved.contains(&effect.id) {
            return true;
        }
        match (effect.state, self.undos_of(&effect.id).next_back()) {
            (_, Some(latest)) => is_done(latest),
            (State::Failed, None) => true,
            (State::Confirmed, None) => effect.proposal.compensation.is_none(),
            (State::Proposed | State::Authorized | State::Requested | State::Unknown, None) => {
                false
            }
        }
    }

    /// How a run ends that was undone, and how one does not.
    fn check_end(&self, ended: &Ended) -> Result<(), Broken> {
        let (state, reason) = (ended.record.state, ended.record.reason.as_deref());
        let told = |id: &EffectId| reason.is_some_and(|why| why.contains(id.as_str()));
        let asked = || self.effects.values().filter(|effect| effect.proposal.is_of_node());
        match state {
            RunState::Completed => {
                let undo = self.undos().next().map(|undo| &undo.id);
                self.holds(undo.is_none(), "I9", || format!("it is done, and {undo:?} undid it"))
            }
            RunState::Failed | RunState::Cancelled => {
                let cancelled = state == RunState::Cancelled;
                self.check_asked(cancelled)?;
                let because = self.cause.is_none_or(|c| cancelled == (c == EndCause::Cancelled));
                self.holds(because, "I11", || {
                    format!("it is {state}, and was undone because of {:?}", self.cause)
                })?;
                let left = asked().find(|effect| !self.is_settled(effect)).map(|effect| &effect.id);
                self.holds(left.is_none(), "I11", || {
                    format!("it is {state}, and {left:?} is not undone")
                })
            }
            RunState::Stuck => {
                let refused = asked().filter(|effect| !self.resolved.contains(&effect.id));
                let refused = refused.filter(|effect| {
                    let latest = self.undos_of(&effect.id).next_back();
                    latest.is_some_and(|undo| undo.state == State::Failed)
                });
                let mut what = refused.chain(self.pivots()).map(|effect| &effect.id);
                self.holds(what.any(told), "I11", || {
                    format!("it is stuck, and does not say at what: {reason:?}")
                })
            }
            RunState::Halted
            | RunState::Quarantined
            | RunState::Ready
            | RunState::Running
            | RunState::Waiting => Ok(()),
        }
    }

    /// What was asked to be undone is by the books, and nothing else is.
    fn check_books(&self, effect: &Effect, books: &Books) -> Result<(), Broken> {
        if effect.proposal.undoes.is_some() {
            return Ok(());
        }
        let count = |of: &BTreeMap<String, u64>| of.get(effect.id.as_str()).copied().unwrap_or(0);
        let (happened, reversed) = (count(&books.by_effect), count(&books.reversed));
        let id = &effect.id;
        self.holds(reversed <= 1, "I1", || format!("{id} was undone {reversed} times"))?;
        let states: Vec<State> = self.undos_of(id).map(|undo| undo.state).collect();
        if states.contains(&State::Confirmed) {
            return self.holds(happened == reversed, "I5", || {
                format!("{id} is undone, but happened {happened} times and was reversed {reversed}")
            });
        }
        let in_doubt = states.contains(&State::Unknown);
        self.holds(reversed == 0 || in_doubt, "I5", || {
            format!("{id} was reversed, and the ledger knows of no undoing")
        })
    }
}

/// Whether an undo is done, and nobody has to decide about it.
fn is_done(undo: &Effect) -> bool {
    undo.state == State::Confirmed && undo.hold.is_none()
}
