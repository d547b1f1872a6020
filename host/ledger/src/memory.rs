//! The ledger as a specification that runs: what each method means, without a database. Tests compare the others with it.

mod locks;
mod queue;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_trait::async_trait;
use tokio::sync::watch;
use twice_core::chain::{Entry, Head};
use twice_core::effect::Effect;
use twice_core::event::{EffectEventKind, Observation, Parent};
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::progress::StepId;
use twice_core::redact::Redactor;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_core::{json, transition};

use self::state::{Memory, Run, parent_of};
use crate::stored::Cleaner;
use crate::work::Start;
use crate::{
    Append, Cancel, ClaimBy, ClaimOutcome, Clock, EffectFilter, EffectRow, Ledger, LedgerError,
    LedgerOptions, LockFilter, LockRow, Locked, ModuleRow, NewRun, Notices, ObjectLock,
    OperatorAppend, OverFilter, Overview, Prune, RunFilter, RunRecord, Started, Tombstone, Unlock,
    Wanted, retention, rows, rules,
};

/// A ledger in memory: for tests and for trying out. It forgets everything with its process, so it upholds no invariant
/// that speaks of crashes.
pub struct MemoryLedger {
    clock: Clock,
    cleaner: Cleaner,
    state: Mutex<Memory>,
    notice: watch::Sender<()>,
}

impl MemoryLedger {
    /// An empty ledger that judges leases by `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            cleaner: Cleaner(LedgerOptions::default().redactor),
            state: Mutex::new(Memory::default()),
            notice: watch::Sender::new(()),
        }
    }

    /// The same, with `redactor` taking secrets out of everything that is kept.
    #[must_use]
    pub fn with_redactor(mut self, redactor: Arc<RwLock<Redactor>>) -> Self {
        self.cleaner = Cleaner(redactor);
        self
    }

    fn now(&self) -> i64 {
        (self.clock)().0
    }

    fn open(&self) -> Result<MutexGuard<'_, Memory>, LedgerError> {
        // Every method checks before it changes, so that a panic of another one left nothing half done.
        let memory = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.closed { Err(LedgerError::Closed) } else { Ok(memory) }
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn start_run(&self, new: NewRun) -> Result<Started, LedgerError> {
        let key = self.cleaner.key(new.caller_key.as_deref())?;
        let input = self.cleaner.json(&new.input);
        let entry = self.cleaner.entry(new.entry.clone())?;
        let now = self.now();
        let mut memory = self.open()?;
        if let Some(run) = memory.started_before(&new, key.as_deref(), &input)? {
            return Ok(Started::Existing(run.shown(now)));
        }
        if !memory.definitions.contains_key(&new.definition) {
            return Err(rules::absent("definition", &new.definition));
        }
        if let Some(Parent { run, .. }) = parent_of(&new.entry) {
            memory.held(run, new.parent_fence.unwrap_or_default())?;
        }
        let start = Start {
            id: new.id.clone(),
            caller_key: key,
            workflow: new.workflow,
            definition: new.definition,
            input,
            priority: new.priority,
            entry,
            claim: new.claim,
            parent_fence: new.parent_fence,
        };
        let record = start.record()?;
        let (key, entry) = (start.caller_key, start.entry.entry);
        let mut run = Run { record, caller_key: key, claim_at: Some(now), entries: Vec::new() };
        run.push(&entry);
        let claimed = start.claim.map(|by| run.take(&by, entry.at, now));
        memory.runs.insert(new.id, run);
        memory.commits += 1;
        self.notice.send_replace(());
        Ok(Started::Created(claimed.and_then(|outcome| match outcome {
            ClaimOutcome::Claimed(claim) => Some(*claim),
            ClaimOutcome::Nothing | ClaimOutcome::Quarantined(_) => None,
        })))
    }

    async fn claim(
        &self,
        by: &ClaimBy,
        wanted: &Wanted,
        at: Timestamp,
    ) -> Result<ClaimOutcome, LedgerError> {
        let now = self.now();
        let mut memory = self.open()?;
        let waits = |run: &Run| matches!(run.record.state, RunState::Ready | RunState::Waiting);
        let found = match wanted {
            Wanted::Run { id, early } => {
                let run = memory.run(id)?;
                (rules::is_due(run.claim_at, now) || *early && waits(run)).then(|| id.clone())
            }
            Wanted::Turn(turn) => memory.next_of(turn, now),
        };
        let Some(id) = found else { return Ok(ClaimOutcome::Nothing) };
        let outcome = memory.run(&id)?.take(by, at, now);
        memory.commits += 1;
        Ok(outcome)
    }

    async fn renew(&self, run: &RunId, fence: Fence, lease_ms: u64) -> Result<bool, LedgerError> {
        let until = rules::lease_end(self.now(), lease_ms);
        let mut memory = self.open()?;
        let run = memory.held(run, fence)?;
        run.record.lease_until = Some(Timestamp(until));
        run.claim_at = Some(until);
        let cancelled = run.record.cancel.is_some();
        memory.commits += 1;
        Ok(cancelled)
    }

    async fn request_cancel(
        &self,
        run: &RunId,
        cancel: &Cancel,
        at: Timestamp,
    ) -> Result<Head, LedgerError> {
        let (row, ready) = self.cleaner.cancel(cancel, at)?;
        let now = self.now();
        let mut memory = self.open()?;
        let id = run;
        let run = memory.run(id)?;
        rules::refuse_cancel(id, run.record.state)?;
        if run.record.cancel.is_some() {
            return Ok(run.head());
        }
        run.record.cancel = serde_json::from_str(&row).ok();
        run.push(&ready.entry);
        if run.record.state != RunState::Running {
            run.record.state = RunState::Ready;
            run.record.reason = None;
            run.record.due_at = None;
            run.claim_at = rules::claim_at(RunState::Ready, None, now);
        }
        let head = run.head();
        memory.commits += 1;
        self.notice.send_replace(());
        Ok(head)
    }

    async fn append(&self, append: Append) -> Result<Head, LedgerError> {
        let Append { run, fence, entries, effects, run_change, progress_made, past_pivot } = append;
        let write = self.cleaner.write(run, entries, &effects, run_change)?;
        let mut memory = self.open()?;
        let held = memory.held(&write.run, fence)?;
        if write.is_empty() && !progress_made {
            return Ok(held.head());
        }
        let state = held.record.state;
        if held.record.cancel.is_some() {
            rules::refuse_new(&write, past_pivot)?;
        }
        memory.check(&write, state)?;
        if progress_made {
            memory.held(&write.run, fence)?.record.crashes = 0;
        }
        let leaves = write.change.as_ref().is_some_and(|change| change.state != RunState::Running);
        let head = memory.apply(write, self.now())?;
        if leaves {
            self.notice.send_replace(());
        }
        Ok(head)
    }

    async fn append_as_operator(&self, append: OperatorAppend) -> Result<Head, LedgerError> {
        let OperatorAppend { run, entries, effects, run_change, expected_head } = append;
        let write = self.cleaner.write(run, entries, &effects, run_change)?;
        let now = self.now();
        let mut memory = self.open()?;
        let run = memory.run(&write.run)?;
        let (shown, head) = (run.shown(now), run.head());
        let refuse = |rule| Err(rules::refused(&write.run, shown.state, rule));
        let is_answer = rules::is_answer(&write);
        if shown.lease_live && !is_answer {
            return refuse(rules::HELD);
        }
        if head != expected_head && !is_answer {
            return refuse(rules::GROWN);
        }
        memory.check(&write, shown.state)?;
        if write.change.as_ref().is_some_and(|change| change.state == RunState::Running) {
            return refuse(rules::NOT_TO_RUNNING);
        }
        let run = memory.run(&write.run)?;
        run.record.fence.0 += i64::from(!is_answer);
        if write.change.is_some() {
            run.record.crashes = 0;
        }
        let head = memory.apply(write, now)?;
        self.notice.send_replace(());
        Ok(head)
    }

    async fn wake(&self, run: &RunId) -> Result<(), LedgerError> {
        let now = self.now();
        let mut memory = self.open()?;
        let Some(run) = memory.runs.get_mut(run) else { return Ok(()) };
        if rules::wakes(run.record.state, run.claim_at, now) {
            run.record.due_at = Some(Timestamp(now));
            run.claim_at = Some(now);
            memory.commits += 1;
            self.notice.send_replace(());
        }
        Ok(())
    }

    async fn observe(
        &self,
        run: &RunId,
        effect: &EffectId,
        observation: Observation,
        at: Timestamp,
    ) -> Result<Head, LedgerError> {
        let ready = self.cleaner.observation(effect, observation, at)?;
        let mut memory = self.open()?;
        let state = memory.run(run)?.record.state;
        let known = memory.effects.get_mut(effect);
        let (owner, projection) = known.ok_or_else(|| rules::absent("effect", effect))?;
        if owner != run {
            return Err(LedgerError::EffectOwned { effect: effect.clone(), owner: owner.clone() });
        }
        transition::next(Some(projection.state), EffectEventKind::Observed)
            .map_err(|_| rules::refused(run, state, rules::ILLEGAL_MOVE))?;
        projection.updated_at = at.0;
        memory.commits += 1;
        let run = memory.run(run)?;
        run.push(&ready.entry);
        Ok(run.head())
    }

    async fn lock(&self, wanted: ObjectLock, at: Timestamp) -> Result<Locked, LedgerError> {
        let asked = self.cleaner.asked(wanted, at);
        let now = self.now();
        self.open()?.lock_object(&asked, now)
    }

    async fn unlock(&self, unlock: Unlock, at: Timestamp) -> Result<Head, LedgerError> {
        let freed = self.cleaner.freed(unlock, at)?;
        let now = self.now();
        self.open()?.unlock_object(&freed, now)
    }

    async fn locks(&self, filter: &LockFilter) -> Result<Vec<LockRow>, LedgerError> {
        let object = filter.object.as_deref().map(|object| self.cleaner.lock_object(object));
        Ok(self.open()?.locked(filter, object.as_deref()))
    }

    async fn runs_over(&self, filter: &OverFilter) -> Result<Vec<RunRecord>, LedgerError> {
        let now = self.now();
        let memory = self.open()?;
        let latest = now.saturating_sub(i64::try_from(filter.older_than_ms).unwrap_or(i64::MAX));
        Ok(memory
            .runs
            .values()
            .filter(|run| run.record.state.is_final())
            .filter(|run| filter.state.is_none_or(|state| run.record.state == state))
            .filter(|run| run.record.updated_at.0 <= latest)
            .filter(|run| filter.after.as_ref().is_none_or(|after| run.record.id > *after))
            .take(rules::page(filter.limit) as usize)
            .map(|run| run.shown(now))
            .collect())
    }

    async fn prune(&self, prune: Prune) -> Result<Tombstone, LedgerError> {
        let prune = self.cleaner.prune(prune)?;
        let now = self.now();
        let mut memory = self.open()?;
        if let (false, Some(tombstone)) =
            (memory.runs.contains_key(&prune.run), memory.tombstones.get(&prune.run))
        {
            return Ok(tombstone.clone());
        }
        let parent =
            memory.run(&prune.run)?.record.parent.as_ref().map(|parent| parent.run.clone());
        let asks = |id: RunId| memory.runs.get(&id).map(|run| run.record.state);
        let parent_asks = parent.and_then(asks).is_some_and(|state| state != RunState::Completed);
        let run = memory.run(&prune.run)?;
        retention::refuse_prune(&prune, run.record.state, run.head())?;
        if parent_asks {
            return Err(rules::refused(&prune.run, run.record.state, rules::PARENT_MAY_ASK));
        }
        let mut proposals = run.entries.iter().filter(|entry| entry.kind == "proposed");
        if proposals.any(|entry| retention::is_shared(&entry.body)) {
            return Err(rules::refused(&prune.run, run.record.state, rules::OWNS_SHARED));
        }
        let tombstone = Tombstone {
            run: prune.run.clone(),
            caller_key: run.caller_key.clone(),
            workflow: run.record.workflow.clone(),
            definition: run.record.definition.clone(),
            input_hash: retention::input_hash(&json::canonical(&run.record.input)),
            state: run.record.state,
            head: run.head(),
            created_at: run.record.created_at,
            ended_at: run.record.updated_at,
            pruned_at: Timestamp(now),
            pruned_by: prune.by,
            export: prune.export,
            export_digest: prune.export_digest,
        };
        memory.runs.remove(&prune.run);
        memory.effects.retain(|_, (owner, _)| *owner != prune.run);
        memory.tombstones.insert(prune.run, tombstone.clone());
        memory.commits += 1;
        Ok(tombstone)
    }

    async fn tombstone(&self, id: &RunId) -> Result<Option<Tombstone>, LedgerError> {
        Ok(self.open()?.tombstones.get(id).cloned())
    }

    async fn run(&self, id: &RunId) -> Result<Option<RunRecord>, LedgerError> {
        Ok(self.open()?.runs.get(id).map(|run| run.shown(self.now())))
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>, LedgerError> {
        let now = self.now();
        let memory = self.open()?;
        let place = |run: &Run| (run.record.created_at, run.record.id.clone());
        let before = match &filter.before {
            Some(id) => match memory.runs.get(id) {
                Some(run) => Some(place(run)),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        let mut found: Vec<&Run> = memory
            .runs
            .values()
            .filter(|run| before.as_ref().is_none_or(|before| place(run) < *before))
            .filter(|run| filter.state.is_none_or(|state| run.record.state == state))
            .filter(|run| filter.workflow.as_ref().is_none_or(|name| run.record.workflow == *name))
            .filter(|run| !filter.open || !run.record.state.is_final())
            .filter(|run| filter.parent.as_ref().is_none_or(|id| run.is_child_of(id)))
            .collect();
        found.sort_by_key(|run| std::cmp::Reverse(place(run)));
        found.truncate(rules::page(filter.limit) as usize);
        Ok(found.into_iter().map(|run| run.shown(now)).collect())
    }

    async fn head(&self, run: &RunId) -> Result<Head, LedgerError> {
        Ok(self.open()?.run(run)?.head())
    }

    async fn history(
        &self,
        run: &RunId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<Entry>, LedgerError> {
        let memory = self.open()?;
        let entries = memory.runs.get(run).into_iter().flat_map(|run| &run.entries);
        let page = rules::page(limit) as usize;
        Ok(entries.filter(|entry| entry.seq > after).take(page).cloned().collect())
    }

    async fn effect(&self, id: &EffectId) -> Result<Option<Effect>, LedgerError> {
        let memory = self.open()?;
        let Some((owner, _)) = memory.effects.get(id) else { return Ok(None) };
        let entries = memory.runs.get(owner).into_iter().flat_map(|run| &run.entries);
        let own = entries.filter(|entry| entry.effect.as_ref() == Some(id)).cloned().collect();
        Ok(rows::fold(own)?.pop())
    }

    async fn step_effects(&self, run: &RunId, step: &StepId) -> Result<Vec<Effect>, LedgerError> {
        let memory = self.open()?;
        let entries = memory.runs.get(run).into_iter().flat_map(|run| &run.entries);
        let effects =
            rows::fold(entries.filter(|entry| entry.effect.is_some()).cloned().collect())?;
        Ok(effects.into_iter().filter(|effect| effect.proposal.step() == *step).collect())
    }

    async fn effects(&self, filter: &EffectFilter) -> Result<Vec<EffectRow>, LedgerError> {
        let now = self.now();
        let memory = self.open()?;
        let rows = memory.effects.values().map(|(owner, effect)| memory.row(owner, effect, now));
        Ok(rows
            .filter(|row| filter.run.as_ref().is_none_or(|run| row.run == *run))
            .filter(|row| filter.state.is_none_or(|state| row.state == state))
            .filter(|row| !filter.held || row.held)
            .filter(|row| !filter.approvals || row.approves.is_some())
            .filter(|row| !filter.waiting || !row.state.is_final())
            .filter(|row| filter.after.as_ref().is_none_or(|after| row.id > *after))
            .take(rules::page(filter.limit) as usize)
            .collect())
    }

    async fn now(&self) -> Result<Timestamp, LedgerError> {
        Ok(Timestamp(self.now()))
    }

    async fn next_due_ms(&self) -> Result<Option<u64>, LedgerError> {
        Ok(self.open()?.next_due_ms(self.now()))
    }

    async fn overview(&self) -> Result<Overview, LedgerError> {
        Ok(self.open()?.overview(self.now()))
    }

    fn notices(&self) -> Notices {
        Notices(self.notice.subscribe())
    }

    async fn put_definition(&self, digest: &str, text: &str) -> Result<(), LedgerError> {
        let text = self.cleaner.whole("definition", text)?;
        self.open()?.definitions.entry(digest.to_owned()).or_insert(text);
        Ok(())
    }

    async fn definition(&self, digest: &str) -> Result<Option<String>, LedgerError> {
        Ok(self.open()?.definitions.get(digest).cloned())
    }

    async fn put_module(
        &self,
        name: &Name,
        digest: &str,
        bytes: &[u8],
        at: Timestamp,
    ) -> Result<(), LedgerError> {
        let mut memory = self.open()?;
        if memory.modules.get(name).is_some_and(|current| current.digest == digest) {
            return Ok(());
        }
        let stored = memory.module_bytes.entry(digest.to_owned()).or_insert_with(|| bytes.to_vec());
        let bytes = stored.len() as u64;
        let row = ModuleRow { name: name.clone(), digest: digest.to_owned(), bytes, added_at: at };
        memory.modules.insert(name.clone(), row);
        Ok(())
    }

    async fn module(&self, name: &Name) -> Result<Option<ModuleRow>, LedgerError> {
        Ok(self.open()?.modules.get(name).cloned())
    }

    async fn module_bytes(&self, digest: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        Ok(self.open()?.module_bytes.get(digest).cloned())
    }

    async fn modules(&self) -> Result<Vec<ModuleRow>, LedgerError> {
        Ok(self.open()?.modules.values().cloned().collect())
    }

    fn commits(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).commits
    }

    async fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
    }
}
