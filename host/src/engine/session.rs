//! One run under one lease: what is recorded of it in memory and not durable yet, and the one way to make it durable. The
//! steps of the run that are under way share it; what each keeps for itself is in `step_session`.
//!
//! Architecture invariant: what changes a run or an effect reaches the ledger only through [`Session::flush`], and a request
//! leaves only after a flush that holds its REQUESTED entry (I3). Entries stand in one order, and a flush writes all of them:
//! nothing becomes durable before what it rests on, whichever step recorded it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Value, json};
use twice_core::chain::{Content, NewEntry};
use twice_core::effect::Effect;
use twice_core::event::{EffectEvent, Observation, RunEvent};
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::progress::{Progress, Standing, StepId};
use twice_core::run::RunState;
use twice_core::time::{Clock, Timestamp};
use twice_core::transition::Illegal;
use twice_ledger::{Cancel, Ledger, LedgerError, Recorded, RunChange, RunRecord, effects_of};
use twice_workflow::plan::{self, Facts, Plan};

use super::awaits::Awaits;
use super::boundary::Boundaries;
use super::compiled::Compiled;
use super::error::EngineError;
use super::late::{Late, Learnt};
use super::lease::LeaseClock;
use super::lock;
use super::object_lock::HeldLocks;
use super::observer::{self, Observer};
use super::writing::{Without, Writing, moves};

/// A claimed run, as its steps share it.
pub(super) struct Session {
    /// The run as it was when claimed.
    pub(super) run: RunRecord,
    /// The token of the lease.
    pub(super) fence: Fence,
    /// How long the lease is good for.
    pub(super) lease: Arc<LeaseClock>,
    /// Where crashes are injected.
    pub(super) boundaries: Boundaries,
    /// Sends requests, and keeps answers that come too late.
    pub(super) late: Arc<Late>,
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    writing: Arc<Mutex<Writing>>,
    /// Held by whoever writes; the others wait for their turn, and mostly find that theirs was written with it.
    turn: Arc<tokio::sync::Mutex<()>>,
    ending: AtomicBool,
    past_pivot: AtomicBool,
    cancel: OnceLock<Cancel>,
    /// The receipts of nodes that others rest on, by node and visit.
    receipts: Mutex<HashMap<(Name, u32), Arc<NodeReceipts>>>,
    /// Locks that the run has for as long as this session lives.
    pub(super) locks: HeldLocks,
    /// What this ledger settles sooner or later, and the run waits for.
    pub(super) awaits: Awaits,
}

/// The receipts of a visit by slot, each as `{ "external_id": …, "result": … }`.
pub(super) type NodeReceipts = BTreeMap<Name, Value>;

/// What a session is made of.
pub(super) struct Parts {
    pub(super) run: RunRecord,
    pub(super) fence: Fence,
    pub(super) lease: Arc<LeaseClock>,
    /// Where the steps stand, by every entry of the run.
    pub(super) progress: Progress,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) boundaries: Boundaries,
    pub(super) late: Arc<Late>,
}

impl Session {
    /// The session of a claim.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { run, fence, lease, progress, ledger, clock, observer, boundaries, late } =
            parts;
        let learnt = Learnt::new(Arc::clone(&late), run.id.clone());
        let writing = Writing::new(progress, learnt);
        let cancel = run.cancel.clone().map_or_else(OnceLock::new, OnceLock::from);
        Self {
            run,
            fence,
            lease,
            boundaries,
            late,
            ledger,
            clock,
            observer,
            writing: Arc::new(Mutex::new(writing)),
            turn: Arc::default(),
            ending: AtomicBool::new(false),
            past_pivot: AtomicBool::new(false),
            cancel,
            receipts: Mutex::default(),
            locks: HeldLocks::default(),
            awaits: Awaits::default(),
        }
    }

    /// The run.
    #[must_use]
    pub(super) const fn id(&self) -> &RunId {
        &self.run.id
    }

    /// The ledger, for reading, and for what is no entry of this session's own.
    #[must_use]
    pub(super) fn ledger(&self) -> &dyn Ledger {
        self.ledger.as_ref()
    }

    /// The ledger, for what outlives a look at the session.
    #[must_use]
    pub(super) fn shared_ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.ledger)
    }

    /// The host's clock.
    #[must_use]
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Looks at where the steps stand.
    pub(super) fn progress<T>(&self, look: impl FnOnce(&Progress) -> T) -> T {
        look(&lock(&self.writing).progress)
    }

    /// What comes next, and when the run is too late. The receipts that conditions rest on must have been loaded.
    pub(super) fn plan(&self, compiled: &Compiled) -> (Plan, Option<Timestamp>) {
        let recorded = lock(&self.writing);
        let progress = &recorded.progress;
        let receipts = |node: &Name, slot: &Name| self.receipt(progress, node, slot);
        let workflow = &compiled.definition.workflow;
        let facts = Facts { workflow, progress, input: &self.run.input, receipts: &receipts };
        let plan = plan::next(workflow, &compiled.graph, progress, &facts);
        (plan, plan::run_deadline(workflow, progress))
    }

    /// A receipt of the latest visit of a node, as far as it was loaded.
    pub(super) fn receipt(&self, progress: &Progress, node: &Name, slot: &Name) -> Option<Value> {
        let receipts = lock(&self.receipts);
        receipts.get(&(node.clone(), progress.visit(node)))?.get(slot).cloned()
    }

    /// Loads the receipts of those of the nodes that are done.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn load_receipts(
        &self,
        nodes: impl IntoIterator<Item = &Name>,
    ) -> Result<(), EngineError> {
        for node in nodes {
            let (visit, standing) =
                self.progress(|progress| (progress.visit(node), progress.standing(node)));
            if standing == Standing::Completed {
                self.receipts_of(node, visit).await?;
            }
        }
        Ok(())
    }

    /// The receipts of a visit that is over.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn receipts_of(
        &self,
        node: &Name,
        visit: u32,
    ) -> Result<Arc<NodeReceipts>, EngineError> {
        let key = (node.clone(), visit);
        if let Some(known) = lock(&self.receipts).get(&key) {
            return Ok(Arc::clone(known));
        }
        let step = StepId { node: node.clone(), visit, element: None };
        let effects = self.effects_of(&step).await?;
        let asked = effects.into_iter().filter(|effect| effect.proposal.is_of_node());
        let receipts = asked.filter_map(|effect| {
            let receipt = effect.receipt.as_ref()?;
            let trusted = json!({ "external_id": receipt.external_id, "result": receipt.result });
            Some((effect.proposal.slot.clone(), trusted))
        });
        let receipts = Arc::new(receipts.collect());
        lock(&self.receipts).insert(key, Arc::clone(&receipts));
        Ok(receipts)
    }

    /// An effect that may belong to another step or another run.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn shared_effect(
        &self,
        id: &EffectId,
    ) -> Result<Option<Arc<Effect>>, EngineError> {
        let recorded = {
            let recorded = lock(&self.writing);
            recorded.touched.get(id).or_else(|| recorded.in_writing.get(id)).cloned()
        };
        match recorded {
            Some(effect) => Ok(Some(effect)),
            None => Ok(self.ledger.effect(id).await?.map(Arc::new)),
        }
    }

    /// The effects of a step, with what is recorded of them and not durable yet.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn effects_of(&self, step: &StepId) -> Result<Vec<Arc<Effect>>, EngineError> {
        // Looked at before the ledger is: what becomes durable in between is newer there or the same.
        let newer: Vec<Arc<Effect>> = {
            let recorded = lock(&self.writing);
            let both = recorded.in_writing.values().chain(recorded.touched.values());
            both.filter(|effect| effect.proposal.step() == *step).cloned().collect()
        };
        let stored = self.ledger.step_effects(&self.run.id, step).await?;
        let mut found: Vec<Arc<Effect>> = stored.into_iter().map(Arc::new).collect();
        for newer in newer {
            match found.iter_mut().find(|effect| effect.id == newer.id) {
                Some(effect) => *effect = newer,
                None => found.push(newer),
            }
        }
        Ok(found)
    }

    /// Every effect of the run, with what is recorded of them and not durable yet.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn effects_of_run(&self) -> Result<Vec<Recorded>, EngineError> {
        let newer: Vec<Arc<Effect>> = {
            let recorded = lock(&self.writing);
            recorded.in_writing.values().chain(recorded.touched.values()).cloned().collect()
        };
        let mut found = effects_of(&*self.ledger, self.id()).await?;
        for (later, effect) in (0..).zip(newer) {
            // What is not durable yet was asked for after everything that is.
            let seq = found.get(&effect.id).map_or(i64::MAX / 2 + later, |known| known.seq);
            let effect = Arc::unwrap_or_clone(effect);
            found.insert(effect.id.clone(), Recorded { seq, effect });
        }
        Ok(found.into_values().collect())
    }

    /// Who asked for the run's cancellation, as far as this worker knows.
    pub(super) fn cancel(&self) -> Option<Cancel> {
        self.cancel.get().cloned()
    }

    /// Reads who asked for the run's cancellation, if this worker was told that somebody did.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn hear_of_cancel(&self) -> Result<(), EngineError> {
        if self.lease.is_cancelled() && self.cancel.get().is_none() {
            let record = self.ledger.run(self.id()).await?;
            record.and_then(|run| run.cancel).map(|cancel| self.cancel.set(cancel));
        }
        Ok(())
    }

    /// Whether nothing new is asked for any more, as the run does not go on.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Whether anything new is asked for from now on.
    pub(super) fn set_ending(&self, ending: bool) {
        self.ending.store(ending, Ordering::Release);
    }

    /// Whether no request to cancel the run counts any more.
    pub(super) fn is_past_pivot(&self) -> bool {
        self.past_pivot.load(Ordering::Acquire)
    }

    /// Takes in that the run has passed its point of no return.
    pub(super) fn pass_pivot(&self) {
        self.past_pivot.store(true, Ordering::Release);
    }

    /// Whether the ledger refused to take that effect up, or a request for it, as the run is to be cancelled.
    pub(super) fn is_refused(&self, id: &EffectId) -> bool {
        lock(&self.writing).refused.contains(id)
    }

    /// What was refused is as the ledger has it. To be called when no step is under way.
    pub(super) fn forget_refused(&self) {
        lock(&self.writing).refused.clear();
    }

    /// Records something about an effect of a step, in memory; `effects` are those of the step.
    ///
    /// # Errors
    /// [`EngineError::History`] when the state machine does not know the move; nothing is recorded then.
    pub(super) fn record_effect(
        &self,
        effects: &mut BTreeMap<EffectId, Arc<Effect>>,
        id: &EffectId,
        event: EffectEvent,
    ) -> Result<(), EngineError> {
        let kind = event.kind().as_str();
        let effect = {
            let mut recorded = lock(&self.writing);
            let at = self.now();
            if recorded.refused.contains(id) {
                return Ok(());
            }
            // Let go of first, so that the effect is changed in place.
            let before = recorded.touched.remove(id);
            let was_touched = before.is_some();
            drop(before);
            let moved = self.apply(effects, id, &event, at);
            if let Some(effect) = effects.get(id)
                && (was_touched || moved.is_ok())
            {
                recorded.advanced |= effect.state.is_final();
                recorded.touched.insert(id.clone(), Arc::clone(effect));
            }
            moved.map_err(|source| EngineError::History { effect: id.to_string(), source })?;
            let content = Content::Effect { effect: id.clone(), event };
            recorded.entries.push(NewEntry { content, at });
            effects.get(id).cloned()
        };
        if let Some(effect) = effect {
            self.observe(&observer::Progress::Effect {
                id,
                key: &effect.proposal.idempotency_key,
                state: effect.state,
                event: kind,
            });
        }
        Ok(())
    }

    fn apply(
        &self,
        effects: &mut BTreeMap<EffectId, Arc<Effect>>,
        id: &EffectId,
        event: &EffectEvent,
        at: Timestamp,
    ) -> Result<(), Illegal> {
        match effects.get_mut(id) {
            Some(effect) => Arc::make_mut(effect).apply(event, self.fence, at),
            None => {
                let effect = Effect::begin(id.clone(), self.run.id.clone(), event, at)?;
                effects.insert(id.clone(), Arc::new(effect));
                Ok(())
            }
        }
    }

    /// Takes in what a provider said, beside the entries that are recorded because of it: if those are never written, it is
    /// kept as an observation.
    pub(super) fn learn(&self, id: &EffectId, seen: Option<Observation>) {
        lock(&self.writing).learnt.add(id.clone(), seen);
    }

    /// Records something about the run, in memory.
    pub(super) fn record_run(&self, event: RunEvent) {
        let mut recorded = lock(&self.writing);
        let at = self.now();
        recorded.progress.apply(&event, at);
        recorded.moves += usize::from(moves(&event));
        recorded.advanced |= matches!(event, RunEvent::StepCompleted { .. });
        recorded.entries.push(NewEntry { content: Content::Run(event), at });
    }

    /// Records that a step starts, unless that is on record.
    pub(super) fn record_start(&self, id: &StepId) {
        let on_record =
            self.progress(|progress| progress.step(id).is_some_and(|s| s.started_at.is_some()));
        if !on_record {
            let StepId { node, visit, element } = id.clone();
            self.record_run(RunEvent::StepStarted { node, visit, element });
        }
    }

    /// Tells whoever watches.
    pub(super) fn observe(&self, progress: &observer::Progress<'_>) {
        self.observer.observe(&self.run.id, progress);
    }

    /// Makes everything recorded durable, with the run going on; what other steps recorded goes with it, and flushes that
    /// meet become one write. The checkpoint is written only when a step moved it: an effect does not, and it may be long.
    ///
    /// When the run is to be cancelled, what asks for something new is left out ([`Session::is_refused`]).
    ///
    /// # Errors
    /// [`EngineError::GivenUp`] when a write failed, this one or one before it; [`Session::failure`] tells how. Nothing may
    /// be sent then, and the run is given up to be claimed afresh.
    pub(super) async fn flush(&self) -> Result<(), EngineError> {
        self.write(None).await.map(drop)
    }

    /// Makes everything recorded durable together with what becomes of the run; the lease ends with it. Tells whether it did: a run
    /// that is to be cancelled is not completed, and goes on under its lease.
    ///
    /// # Errors
    /// As [`Session::flush`].
    pub(super) async fn leave(
        &self,
        state: RunState,
        reason: Option<String>,
        due_at: Option<Timestamp>,
        output: Option<Value>,
    ) -> Result<bool, EngineError> {
        let progress = Some(self.progress(Progress::clone));
        let cancel_seen = self.cancel.get().is_some();
        let change = RunChange { state, progress, output, reason, due_at, cancel_seen };
        self.write(Some(change)).await
    }

    /// How a write failed; asked once.
    pub(super) fn failure(&self) -> Option<LedgerError> {
        lock(&self.writing).failure.take()
    }

    /// A call of a guest may be cut off at any await by its time limit. What was handed to the ledger is then still under
    /// way, so it is written by a task of its own, which keeps the turn until it knows how that ended.
    async fn write(&self, change: Option<RunChange>) -> Result<bool, EngineError> {
        let wanted = {
            let recorded = lock(&self.writing);
            recorded.begun + u64::from(!recorded.entries.is_empty())
        };
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let (append, learnt) = {
            let mut recorded = lock(&self.writing);
            if recorded.broken {
                return Err(EngineError::GivenUp);
            }
            if recorded.written >= wanted && change.is_none() {
                return Ok(true);
            }
            (recorded.hand_out(self, change), recorded.learnt.take())
        };
        let (ledger, recorded) = (Arc::clone(&self.ledger), Arc::clone(&self.writing));
        let (under_way, lease) = (self.late.begin(), Arc::clone(&self.lease));
        let writing = tokio::spawn(async move {
            let without = Without::of(&append);
            let mut written = ledger.append(append).await;
            let mut is_whole = true;
            if let (Err(LedgerError::Cancelled { .. }), Some(without)) = (&written, without) {
                lease.cancel();
                is_whole = !without.completes;
                lock(&recorded).refuse(without.refused);
                written = ledger.append(without.rest).await;
            }
            let is_written = lock(&recorded).written(written);
            if is_written {
                learnt.written();
            } else {
                drop(learnt);
            }
            drop((turn, under_way));
            is_written.then_some(is_whole)
        });
        match writing.await {
            Ok(Some(is_whole)) => Ok(is_whole),
            Ok(None) => Err(EngineError::GivenUp),
            Err(_) => Err(EngineError::Ledger(LedgerError::Closed)),
        }
    }
}
