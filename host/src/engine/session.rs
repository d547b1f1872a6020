//! One run under one lease: what is recorded of it in memory and not durable yet, and the one way to make it durable.
//!
//! Architecture invariant: what changes a run or an effect reaches the ledger only through [`Session::flush`], and a request
//! leaves only after a flush that holds its REQUESTED entry (I3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::task::JoinHandle;
use twice_core::chain::{Content, Head, NewEntry};
use twice_core::effect::Effect;
use twice_core::event::{EffectEvent, Observation, RunEvent};
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::mutation;
use twice_core::run::{Progress, RunState};
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{Append, Claim, Ledger, LedgerError, RunChange, RunRecord};

use super::boundary::Boundaries;
use super::error::EngineError;
use super::late::{Late, Learnt};
use super::lease::LeaseClock;
use super::observer::{self, Observer};

/// A claimed run.
pub(super) struct Session {
    /// The run as it was when claimed.
    pub(super) run: RunRecord,
    /// The token of the lease.
    pub(super) fence: Fence,
    /// How long the lease is good for.
    pub(super) lease: Arc<LeaseClock>,
    /// The checkpoint, as it stands with everything recorded.
    pub(super) progress: Progress,
    /// Where crashes are injected.
    pub(super) boundaries: Boundaries,
    /// Sends requests, and keeps answers that come too late.
    pub(super) late: Arc<Late>,
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    effects: BTreeMap<EffectId, Effect>,
    /// Effects of earlier steps whose last entries are not durable yet.
    carried: BTreeMap<EffectId, Effect>,
    entries: Vec<NewEntry>,
    /// What providers said that `entries` rest on.
    learnt: Learnt,
    touched: BTreeSet<EffectId>,
    advanced: bool,
    /// Whether the checkpoint differs from the one that was handed to the ledger last.
    moved: bool,
    writing: Option<JoinHandle<Result<Head, LedgerError>>>,
}

impl Session {
    /// The session of a fresh claim.
    pub(super) fn new(
        claim: Claim,
        lease: Arc<LeaseClock>,
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        boundaries: Boundaries,
        late: Arc<Late>,
    ) -> Self {
        Self {
            learnt: Learnt::new(Arc::clone(&late), claim.run.id.clone()),
            progress: claim.run.progress.clone(),
            run: claim.run,
            fence: claim.fence,
            lease,
            boundaries,
            late,
            ledger,
            clock,
            observer,
            effects: BTreeMap::new(),
            carried: BTreeMap::new(),
            entries: Vec::new(),
            touched: BTreeSet::new(),
            advanced: false,
            moved: false,
            writing: None,
        }
    }

    /// The run.
    #[must_use]
    pub(super) const fn id(&self) -> &RunId {
        &self.run.id
    }

    /// The ledger, for reading.
    #[must_use]
    pub(super) fn ledger(&self) -> &dyn Ledger {
        self.ledger.as_ref()
    }

    /// The host's clock.
    #[must_use]
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Reads the effects of a step from the ledger. On a step's first attempt there are none, and asking is not needed.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn load_step(&mut self, node: &Name, visit: u32) -> Result<(), EngineError> {
        let effects = self
            .ledger
            .step_effects(&self.run.id, node, visit)
            .await?
            .into_iter()
            .map(|effect| (effect.id.clone(), effect))
            .collect();
        self.begin_step(effects);
        Ok(())
    }

    /// Starts a step that nobody started before: it has no effects yet.
    pub(super) fn forget_step(&mut self) {
        self.begin_step(BTreeMap::new());
    }

    fn begin_step(&mut self, effects: BTreeMap<EffectId, Effect>) {
        let before = std::mem::replace(&mut self.effects, effects);
        let touched = before.into_iter().filter(|(id, _)| self.touched.contains(id));
        self.carried.extend(touched);
    }

    /// An effect of this step.
    #[must_use]
    pub(super) fn effect(&self, id: &EffectId) -> Option<&Effect> {
        self.effects.get(id)
    }

    /// Every effect of this step.
    pub(super) fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.effects.values()
    }

    /// An effect that may belong to another run, as the ledger has it.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn shared_effect(&self, id: &EffectId) -> Result<Option<Effect>, EngineError> {
        Ok(self.ledger.effect(id).await?)
    }

    /// The effects of another step of this run, with what is recorded of them and rides with the next write.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn effects_of(
        &self,
        node: &Name,
        visit: u32,
    ) -> Result<Vec<Effect>, EngineError> {
        let mut found = self.ledger.step_effects(&self.run.id, node, visit).await?;
        let of_step =
            |effect: &&Effect| effect.proposal.node == *node && effect.proposal.visit == visit;
        for newer in self.carried.values().filter(of_step) {
            match found.iter_mut().find(|effect| effect.id == newer.id) {
                Some(effect) => *effect = newer.clone(),
                None => found.push(newer.clone()),
            }
        }
        Ok(found)
    }

    /// Records something about an effect, in memory.
    ///
    /// # Errors
    /// [`EngineError::History`] when the state machine does not know the move; nothing is recorded then.
    pub(super) fn record(&mut self, id: &EffectId, event: EffectEvent) -> Result<(), EngineError> {
        let at = self.now();
        let illegal = |source| EngineError::History { effect: id.to_string(), source };
        match self.effects.get_mut(id) {
            Some(effect) => effect.apply(&event, self.fence, at).map_err(illegal)?,
            None => {
                let effect =
                    Effect::begin(id.clone(), self.run.id.clone(), &event, at).map_err(illegal)?;
                self.effects.insert(id.clone(), effect);
            }
        }
        if let Some(effect) = self.effects.get(id) {
            self.advanced |= effect.state.is_final();
            let progress = observer::Progress::Effect {
                id,
                key: &effect.proposal.idempotency_key,
                state: effect.state,
                event: event.kind().as_str(),
            };
            self.observer.observe(&self.run.id, &progress);
        }
        self.touched.insert(id.clone());
        self.entries.push(NewEntry { content: Content::Effect { effect: id.clone(), event }, at });
        Ok(())
    }

    /// Takes in what a provider said, beside the entries that are recorded because of it: if those are never written, it is
    /// kept as an observation.
    pub(super) fn learn(&mut self, id: &EffectId, seen: Option<Observation>) {
        self.learnt.add(id.clone(), seen);
    }

    /// Records something about the run, in memory.
    pub(super) fn record_run(&mut self, event: RunEvent) {
        let at = self.now();
        self.progress.apply(&event, at);
        self.moved |= matches!(event, RunEvent::StepCompleted { .. } | RunEvent::StepFailed { .. });
        self.advanced |= matches!(event, RunEvent::StepCompleted { .. });
        self.entries.push(NewEntry { content: Content::Run(event), at });
    }

    /// Tells whoever watches.
    pub(super) fn observe(&self, progress: &observer::Progress<'_>) {
        self.observer.observe(&self.run.id, progress);
    }

    /// Makes everything recorded durable, as one transaction, with the run going on. The checkpoint is written only when a
    /// step moved it: an effect does not, and it may be long.
    ///
    /// # Errors
    /// [`EngineError::Ledger`]; after `Indeterminate` nothing may be sent, and the run is given up to be claimed afresh.
    pub(super) async fn flush(&mut self) -> Result<(), EngineError> {
        if self.entries.is_empty() {
            return self.finish_write().await;
        }
        let change = self.moved.then(|| RunChange {
            state: RunState::Running,
            progress: self.progress.clone(),
            output: None,
            reason: None,
            due_at: None,
        });
        self.write(change).await
    }

    /// Makes everything recorded durable together with what becomes of the run; the lease ends with it.
    ///
    /// # Errors
    /// As [`Session::flush`].
    pub(super) async fn leave(
        &mut self,
        state: RunState,
        reason: Option<String>,
        due_at: Option<Timestamp>,
        output: Option<serde_json::Value>,
    ) -> Result<(), EngineError> {
        let progress = self.progress.clone();
        self.write(Some(RunChange { state, progress, output, reason, due_at })).await
    }

    /// A call of the guest may be cut off at any await by its time limit. What was handed to the ledger is then still
    /// under way, so it runs as a task of its own and the next write waits for it first.
    async fn write(&mut self, change: Option<RunChange>) -> Result<(), EngineError> {
        self.finish_write().await?;
        let effect_of = |id| self.effects.get(id).or_else(|| self.carried.get(id));
        let effects = self.touched.iter().filter_map(effect_of).cloned().collect();
        let append = Append {
            run: self.run.id.clone(),
            fence: self.fence,
            entries: std::mem::take(&mut self.entries),
            effects,
            run_change: change,
            progress_made: std::mem::take(&mut self.advanced),
        };
        self.moved = false;
        self.touched.clear();
        self.carried.clear();
        let ledger = Arc::clone(&self.ledger);
        let (learnt, under_way) = (self.learnt.take(), self.late.begin());
        self.writing = Some(tokio::spawn(async move {
            let written = ledger.append(append).await;
            match &written {
                Ok(_) => learnt.written(),
                Err(_) => drop(learnt),
            }
            drop(under_way);
            written
        }));
        self.finish_write().await
    }

    async fn finish_write(&mut self) -> Result<(), EngineError> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let written = writing.await;
        self.writing = None;
        match written {
            Ok(Err(LedgerError::Indeterminate { .. })) if mutation::is("trust-lost-commit") => {
                Ok(())
            }
            Ok(result) => result.map(drop).map_err(EngineError::Ledger),
            Err(_) => Err(EngineError::Ledger(LedgerError::Closed)),
        }
    }
}
