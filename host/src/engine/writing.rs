//! What is recorded of a run and not durable yet, and how it is handed to the ledger: all of it, or, of a run that is to be
//! cancelled, what the ledger still takes up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use twice_core::chain::{Content, NewEntry};
use twice_core::effect::Effect;
use twice_core::event::RunEvent;
use twice_core::ids::EffectId;
use twice_core::mutation;
use twice_core::progress::Progress;
use twice_core::run::RunState;
use twice_core::saga::{self, Asked};
use twice_ledger::{Append, LedgerError, RunChange};

use super::late::Learnt;
use super::session::Session;

/// A checkpoint is saved when it has moved once for each so many elements that it holds: a fan-out is written a few times in
/// all, not once for each of its elements. Below that, it is saved with each move.
const ELEMENTS_PER_MOVE: usize = 16;

/// What is recorded of a run and not durable yet.
pub(super) struct Writing {
    /// Where the steps stand, with everything recorded.
    pub(super) progress: Progress,
    pub(super) entries: Vec<NewEntry>,
    /// The effects that `entries` touch, as they stand after them.
    pub(super) touched: BTreeMap<EffectId, Arc<Effect>>,
    /// Those of the write that is under way.
    pub(super) in_writing: BTreeMap<EffectId, Arc<Effect>>,
    /// What providers said that `entries` rest on.
    pub(super) learnt: Learnt,
    pub(super) advanced: bool,
    /// How often the checkpoint has moved since it was handed to the ledger last.
    pub(super) moves: usize,
    /// How many writes were begun, and how many are durable.
    pub(super) begun: u64,
    pub(super) written: u64,
    /// Whether a write failed: what is recorded is more than the ledger has, so nothing may follow.
    pub(super) broken: bool,
    /// How it failed, until somebody asks.
    pub(super) failure: Option<LedgerError>,
    /// What the ledger refused to take up, as the run is to be cancelled: nothing of it is on record, and nothing may follow.
    pub(super) refused: BTreeSet<EffectId>,
}

impl Writing {
    /// Nothing, on top of a checkpoint.
    pub(super) fn new(progress: Progress, learnt: Learnt) -> Self {
        Self {
            progress,
            entries: Vec::new(),
            touched: BTreeMap::new(),
            in_writing: BTreeMap::new(),
            learnt,
            advanced: false,
            moves: 0,
            begun: 0,
            written: 0,
            broken: false,
            failure: None,
            refused: BTreeSet::new(),
        }
    }

    /// Everything that is recorded, to be written.
    pub(super) fn hand_out(&mut self, session: &Session, change: Option<RunChange>) -> Append {
        self.begun += 1;
        self.in_writing = std::mem::take(&mut self.touched);
        let is_due = self.moves > 0 && self.moves * ELEMENTS_PER_MOVE >= self.progress.elements();
        let change = change.or_else(|| {
            is_due.then(|| RunChange {
                state: RunState::Running,
                progress: Some(self.progress.clone()),
                output: None,
                reason: None,
                due_at: None,
                cancel_seen: true,
            })
        });
        if change.is_some() {
            self.moves = 0;
        }
        Append {
            run: session.run.id.clone(),
            fence: session.fence,
            entries: std::mem::take(&mut self.entries),
            effects: self.in_writing.values().map(|effect| Effect::clone(effect)).collect(),
            run_change: change,
            progress_made: std::mem::take(&mut self.advanced),
            past_pivot: session.is_past_pivot(),
        }
    }

    /// Takes in that the ledger does not take these effects up: what was recorded of them meanwhile goes too.
    pub(super) fn refuse(&mut self, refused: BTreeSet<EffectId>) {
        self.entries.retain(|entry| !is_about(entry, &refused));
        self.touched.retain(|id, _| !refused.contains(id));
        self.refused.extend(refused);
    }

    /// Takes in how a write ended; whether what it held may be built on.
    pub(super) fn written<T>(&mut self, written: Result<T, LedgerError>) -> bool {
        self.in_writing.clear();
        match written {
            Err(LedgerError::Indeterminate { .. }) if mutation::is("trust-lost-commit") => {}
            Ok(_) => {}
            Err(failure) => {
                self.broken = true;
                self.failure = Some(failure);
                return false;
            }
        }
        self.written = self.begun;
        true
    }
}

/// A write without what is refused of a run that is to be cancelled.
pub(super) struct Without {
    pub(super) rest: Append,
    /// The effects that are left out.
    pub(super) refused: BTreeSet<EffectId>,
    /// Whether the end of the run is left out.
    pub(super) completes: bool,
}

impl Without {
    /// `None` when nothing of the write would be refused. What is left out of an effect is all that is recorded of it here, so that
    /// the rest of it stays as the ledger has it.
    pub(super) fn of(append: &Append) -> Option<Self> {
        if append.past_pivot {
            return None;
        }
        let asks = |entry: &NewEntry| match &entry.content {
            Content::Effect { effect, event } => append
                .effects
                .iter()
                .find(|told| told.id == *effect && saga::asks_anew(event, Asked::of(told)))
                .map(|told| told.id.clone()),
            Content::Run(_) => None,
        };
        let mut refused: BTreeSet<EffectId> = append.entries.iter().filter_map(asks).collect();
        let approves =
            |told: &&Effect| told.proposal.approves.as_ref().is_some_and(|of| refused.contains(of));
        let void = append.effects.iter().filter(approves).map(|told| told.id.clone());
        refused.extend(void.collect::<Vec<_>>());
        let change = append.run_change.as_ref();
        let completes = change.is_some_and(|change| change.state == RunState::Completed);
        if refused.is_empty() && !completes {
            return None;
        }
        let is_end = |entry: &NewEntry| {
            completes && matches!(entry.content, Content::Run(RunEvent::Completed { .. }))
        };
        let kept = |entry: &&NewEntry| !is_about(entry, &refused) && !is_end(entry);
        let effects = append.effects.iter().filter(|told| !refused.contains(&told.id));
        let rest = Append {
            run: append.run.clone(),
            fence: append.fence,
            entries: append.entries.iter().filter(kept).cloned().collect(),
            effects: effects.cloned().collect(),
            run_change: change.filter(|_| !completes).cloned(),
            progress_made: append.progress_made,
            past_pivot: false,
        };
        Some(Self { rest, refused, completes })
    }
}

fn is_about(entry: &NewEntry, effects: &BTreeSet<EffectId>) -> bool {
    matches!(&entry.content, Content::Effect { effect, .. } if effects.contains(effect))
}

/// Whether the event moves the checkpoint. The start of a step does not count: it is folded if it is needed.
pub(super) const fn moves(event: &RunEvent) -> bool {
    match event {
        RunEvent::NodeEntered { .. }
        | RunEvent::StepSkipped { .. }
        | RunEvent::LoopDecided { .. }
        | RunEvent::StepCompleted { .. }
        | RunEvent::StepFailed { .. } => true,
        RunEvent::Started { .. }
        | RunEvent::StepStarted { .. }
        | RunEvent::Claimed { .. }
        | RunEvent::Parked { .. }
        | RunEvent::Halted { .. }
        | RunEvent::Released { .. }
        | RunEvent::RequestRefused { .. }
        | RunEvent::Retried { .. }
        | RunEvent::Adopted { .. }
        | RunEvent::Compensating { .. }
        | RunEvent::UndoResolved { .. }
        | RunEvent::CancelRequested { .. }
        | RunEvent::ObjectLocked { .. }
        | RunEvent::ObjectUnlocked { .. }
        | RunEvent::Completed { .. }
        | RunEvent::Failed { .. }
        | RunEvent::Cancelled { .. }
        | RunEvent::Stuck { .. }
        | RunEvent::Quarantined { .. } => false,
    }
}
