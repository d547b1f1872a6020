//! Random schedules of runs that are undone: as [`super::schedule`], with people who cancel runs at any moment and, in every
//! other schedule, decide what waits for them at the end.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use twice_core::effect::State;
use twice_core::event::{EndCause, RunEvent};
use twice_core::ids::RunId;
use twice_core::run::RunState;

use super::sagas::Saga;
use super::schedule::{CLASSES, Schedule, mood, store};
use super::{Theatre, run_ids};
use crate::dice::Dice;
use crate::invariants::{Broken, Ended, holds};
use crate::tools::Class;

/// How often people decide about a run at most.
const DECISIONS_MAX: usize = 12;
/// Schedules of each shape that are always played.
const FIXED: u64 = 50;

/// The classes of what does and of what undoes, in the schedule of a seed.
fn classes_of(seed: u64, saga: Saga) -> (Class, Class) {
    let of = |turn: u64, takes: &dyn Fn(Class) -> bool| {
        let classes: Vec<Class> = CLASSES.into_iter().filter(|class| takes(*class)).collect();
        classes[usize::try_from(turn % classes.len() as u64).expect("it is below five")]
    };
    let turns = seed / CLASSES.len() as u64;
    (of(seed, &|class| saga.takes(class)), of(turns, &|class| saga.takes_back(class)))
}

/// The theatres of sagas, which share what takes long to make.
#[derive(Default)]
pub struct Theatres(BTreeMap<(usize, usize, usize), Theatre>);

impl Theatres {
    /// The theatre of a shape and two classes.
    pub fn of(&mut self, saga: Saga, class: Class, back: Class) -> &Theatre {
        let place = |class| CLASSES.iter().position(|known| *known == class).unwrap_or_default();
        let shape = Saga::ALL.iter().position(|known| *known == saga).unwrap_or_default();
        let key = (shape, place(class), place(back));
        if !self.0.contains_key(&key) {
            let setup = saga.setup(class, back);
            let first = self.0.values().next();
            let new = first.map_or_else(|| Theatre::of(&setup), |first| first.sharing(&setup));
            self.0.insert(key, new);
        }
        &self.0[&key]
    }
}

/// Plays the schedule of a seed under a workflow of that shape, and checks what came of it.
///
/// # Errors
/// [`Broken`], for the first invariant that does not hold.
///
/// # Panics
/// When something cannot be set up.
pub async fn simulate(
    theatres: &mut Theatres,
    saga: Saga,
    seed: u64,
) -> Result<Vec<Ended>, Broken> {
    let (class, back) = classes_of(seed, saga);
    let mut dice = Dice::new(seed);
    let store = store(&mut dice);
    // A lookup of refunds is one of reversals as well, so that it may lag only if both say so.
    let stricter = if class == Class::Lagging { back } else { class };
    let mood = mood(&mut dice, stricter);
    let world = theatres.of(saga, class, back).world(store, mood).await;
    let ids = run_ids(1 + dice.below(2));
    let runs: Vec<(RunId, Value)> =
        ids.iter().cloned().zip((0..).map(|run| saga.drawn(&mut dice, run))).collect();
    let at = format!("seed={seed} ({class:?}, back {back:?}), {saga:?}");
    let schedule = Schedule { at, dice, world, runs, cancels: true };
    let Schedule { at, mut dice, world, runs, .. } = schedule.play().await?;
    if dice.one_in(2) {
        for (id, input) in &runs {
            let mut left = DECISIONS_MAX;
            while world.decide(id, &mut dice).await {
                world.finish(&at, id, input).await?;
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }
    world.check(&at, &ids).await
}

/// What schedules came to, so that it shows when they come to nothing.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    runs: BTreeMap<&'static str, usize>,
    causes: BTreeMap<&'static str, usize>,
    /// Undoings by their state.
    undoings: BTreeMap<&'static str, usize>,
    /// Undoings that were asked for again after a refusal.
    again: usize,
    /// Undoings that were sent more than once.
    sent_again: usize,
    /// Undoings of what nobody knew to have happened.
    on_suspicion: usize,
    resolved: usize,
    takeovers: usize,
}

impl Tally {
    fn count(&mut self, ended: &Ended) {
        *self.runs.entry(ended.record.state.as_str()).or_default() += 1;
        for effect in &ended.effects {
            let Some(of) = &effect.proposal.undoes else { continue };
            *self.undoings.entry(effect.state.as_str()).or_default() += 1;
            self.again += usize::from(effect.proposal.identity.generation > 1);
            self.sent_again += usize::from(effect.attempts.len() > 1);
            let of = ended.effects.iter().find(|other| other.id == *of);
            self.on_suspicion += usize::from(of.is_some_and(|of| of.state != State::Confirmed));
        }
        for event in &ended.events {
            match event {
                RunEvent::Compensating { cause, .. } => {
                    let cause = match cause {
                        EndCause::Failed => "failed",
                        EndCause::TimedOut => "timed out",
                        EndCause::Cancelled => "cancelled",
                    };
                    *self.causes.entry(cause).or_default() += 1;
                }
                RunEvent::UndoResolved { .. } => self.resolved += 1,
                RunEvent::Claimed { takeover: true, .. } => self.takeovers += 1,
                _ => {}
            }
        }
    }

    /// Whether there was something of each.
    fn all_seen(&self) -> bool {
        let ends = [
            RunState::Completed,
            RunState::Failed,
            RunState::Cancelled,
            RunState::Halted,
            RunState::Stuck,
        ];
        let runs = ends.iter().all(|state| self.runs.contains_key(state.as_str()));
        let undoings = [State::Confirmed, State::Failed, State::Unknown];
        let undoings = undoings.iter().all(|state| self.undoings.contains_key(state.as_str()));
        let causes = ["failed", "cancelled"].iter().all(|cause| self.causes.contains_key(cause));
        let counted =
            [self.again, self.sent_again, self.on_suspicion, self.resolved, self.takeovers];
        runs && undoings && causes && counted.iter().all(|count| *count > 0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Plays the schedule of `seed` alone under every shape; or `schedules` of them for each (50), and a tenth of that from the
/// seed `fresh` on. Tells what they came to.
///
/// # Errors
/// [`Broken`], for the first invariant that does not hold, and when the schedules come to nothing.
///
/// # Panics
/// When something cannot be set up.
pub async fn play_all(
    seed: Option<u64>,
    schedules: Option<u64>,
    fresh: u64,
) -> Result<String, Broken> {
    let fixed = schedules.unwrap_or(FIXED);
    let seeds: Vec<u64> = match seed {
        Some(seed) => vec![seed],
        None => (0..fixed).chain((0..fixed / 10).map(|n| fresh + n)).collect(),
    };
    let (mut tally, mut theatres) = (Tally::default(), Theatres::default());
    for saga in Saga::ALL {
        for seed in &seeds {
            let ended = simulate(&mut theatres, saga, *seed).await?;
            ended.iter().for_each(|ended| tally.count(ended));
        }
    }
    let enough = tally.all_seen() || (seeds.len() as u64) < FIXED;
    holds(enough, "I1", "seed=all", || format!("not every outcome occurred: {tally}"))?;
    let (count, shapes) = (seeds.len(), Saga::ALL.len());
    Ok(format!("{count} schedules of each of {shapes} sagas, fresh from seed {fresh} on: {tally}"))
}
