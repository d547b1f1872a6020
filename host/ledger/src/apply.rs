//! Each write of the ledger, decided on what its transaction has read. Whatever is refused is refused before anything of
//! it is staged.

use std::collections::BTreeMap;

use twice_core::chain::{self, Content, Entry, Head, NewEntry};
use twice_core::effect::State;
use twice_core::event::{Parent, RunEvent};
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_core::{json, transition};

use crate::batch::{Batch, Birth, Refused, Staged};
use crate::rows::{self, RunLock};
use crate::rules;
use crate::stored::{Change, Ready, Write};
use crate::work::{Reply, Start, Work};
use crate::{Claim, ClaimBy, ClaimOutcome, LedgerError, RunRecord, Started, Wanted, sql};

impl Batch<'_> {
    /// Stages one write.
    pub(crate) async fn apply(&mut self, work: &Work) -> Result<Reply, Refused> {
        match work {
            Work::Start(start) => self.start(start).await,
            Work::Claim { by, wanted: Wanted::Run { id, early }, at } => {
                self.claim_named(by, id, *early, *at).await.map(Reply::Claim)
            }
            Work::Claim { by, wanted: Wanted::Turn(turn), at } => {
                self.claim_next(by, turn, *at).await.map(Reply::Claim)
            }
            Work::Renew { run, fence, lease_ms } => self.renew(run, *fence, *lease_ms).await,
            Work::Append { write, fence, progress_made, past_pivot } => {
                self.append(write, *fence, *progress_made, *past_pivot).await
            }
            Work::Decide { write, expected_head } => self.decide(write, *expected_head).await,
            Work::Cancel { run, cancel, entry } => self.cancel(run, cancel, entry).await,
            Work::Observe { run, effect, entry } => self.observe(run, effect, entry).await,
            Work::Wake { run } => self.wake(run).await,
            Work::Prune(prune) => self.prune(prune).await,
            Work::Lock(asked) => self.lock_object(asked).await,
            Work::Unlock(freed) => self.unlock_object(freed).await,
            Work::PutDefinition { digest, text } => {
                let args = vec![digest.as_str().into(), text.as_str().into()];
                self.execute(sql::PUT_DEFINITION, args).await?;
                Ok(Reply::Done)
            }
            Work::PutModule { name, digest, bytes, at } => {
                self.put_module(name, digest, bytes, *at).await
            }
        }
    }

    async fn start(&mut self, start: &Start) -> Result<Reply, Refused> {
        if let Some(existing) = self.started_before(start).await? {
            return Ok(Reply::Started(Box::new(Started::Existing(existing))));
        }
        let args = vec![start.definition.as_str().into()];
        if self.connection.fetch(sql::DEFINITION_EXISTS, args).await?.is_empty() {
            return Err(rules::absent("definition", &start.definition).into());
        }
        if let Some(Parent { run, .. }) = start.parent() {
            self.held(run, start.parent_fence.unwrap_or_default())?;
        }
        let now = self.now().await?;
        let entry = sealed(&start.id, Head::empty(&start.id), Fence(0), &start.entry);
        let head = Head { seq: entry.seq, hash: entry.hash };
        let birth = Birth {
            caller_key: start.caller_key.clone(),
            workflow: start.workflow.clone(),
            definition: start.definition.clone(),
            input: start.input.clone(),
            priority: start.priority,
            created_at: start.entry.entry.at.0,
            parent: start.parent().cloned(),
        };
        let mut record = start.record()?;
        let mut entries = vec![Staged { entry, moved: None }];
        let mut lock = lock_of(&record, head, now);
        let mut created = None;
        if let Some(by) = &start.claim {
            let taken = take(&mut record, head, by, start.entry.entry.at, now, false);
            lock = lock_of(&record, taken.head, now);
            entries.push(taken.entry);
            created = Some(Claim { fence: record.fence, head: taken.head, run: record });
        }
        let progress = serde_json::to_value(start.progress()).expect("progress is plain data");
        lock.progress = Some((json::canonical(&progress), 1));
        self.stage_birth(&start.id, birth, lock);
        self.stage_entries(entries);
        Ok(Reply::Started(Box::new(Started::Created(created))))
    }

    /// The run that a start repeats, if it repeats one.
    async fn started_before(&mut self, start: &Start) -> Result<Option<RunRecord>, Refused> {
        let of_key = match &start.caller_key {
            Some(key) => self.owner_of_key(key).await?,
            None => None,
        };
        let of_id = match self.lock(&start.id)? {
            Some(_) => self.record(&start.id).await?,
            None => None,
        };
        let existing = match (of_id, of_key) {
            (None, None) => {
                let key = start.caller_key.as_deref();
                self.refuse_restart(&start.id, key, &start.workflow, &start.input).await?;
                return Ok(None);
            }
            (Some((record, _)), owner)
                if start.caller_key.is_none() || owner.as_ref() == Some(&record.id) =>
            {
                record
            }
            (Some((record, _)), _) => {
                return Err(rules::conflict(&record.id, "another caller's key").into());
            }
            (None, Some(owner)) => match self.record(&owner).await? {
                Some((record, _)) => record,
                None => return Err(rules::absent("run", owner).into()),
            },
        };
        if existing.workflow != start.workflow {
            let difference = format!("another workflow (`{}`)", existing.workflow);
            return Err(rules::conflict(&existing.id, difference).into());
        }
        if json::canonical(&existing.input) != start.input {
            return Err(rules::conflict(&existing.id, "another input").into());
        }
        rules::refuse_other_parent(&existing, start.parent())?;
        Ok(Some(existing))
    }

    async fn claim_named(
        &mut self,
        by: &ClaimBy,
        run: &RunId,
        early: bool,
        at: Timestamp,
    ) -> Result<ClaimOutcome, Refused> {
        let Some(lock) = self.lock(run)? else { return Err(rules::absent("run", run).into()) };
        let now = self.now().await?;
        let due = rules::is_due(lock.claim_at, now);
        let waits = matches!(lock.state, RunState::Ready | RunState::Waiting);
        if !(due || early && waits) {
            return Ok(ClaimOutcome::Nothing);
        }
        match self.record(run).await? {
            Some((record, head)) => self.claim(by, record, head, at).await,
            None => Err(rules::absent("run", run).into()),
        }
    }

    /// Takes a run that is claimable.
    pub(crate) async fn claim(
        &mut self,
        by: &ClaimBy,
        mut record: RunRecord,
        head: Head,
        at: Timestamp,
    ) -> Result<ClaimOutcome, Refused> {
        let now = self.now().await?;
        let read = (record.fence, head.seq);
        let takeover = record.state == RunState::Running;
        let taken = take(&mut record, head, by, at, now, takeover);
        self.stage_read_run(&record.id, read, lock_of(&record, taken.head, now));
        self.stage_entries([taken.entry]);
        if record.state == RunState::Quarantined {
            return Ok(ClaimOutcome::Quarantined(record.id));
        }
        let claim = Claim { fence: record.fence, head: taken.head, run: record };
        Ok(ClaimOutcome::Claimed(Box::new(claim)))
    }

    async fn renew(&mut self, run: &RunId, fence: Fence, lease_ms: u64) -> Result<Reply, Refused> {
        let mut lock = self.held(run, fence)?;
        let until = rules::lease_end(self.now().await?, lease_ms);
        lock.lease_until = Some(until);
        lock.claim_at = Some(until);
        let cancelled = lock.cancelled;
        self.stage_run(run, lock);
        Ok(Reply::Renewed { cancelled })
    }

    /// Whoever holds the run learns of it when he asks for something new, or with his next renewal, so that no lease is asked for.
    async fn cancel(&mut self, run: &RunId, cancel: &str, ready: &Ready) -> Result<Reply, Refused> {
        let Some(mut lock) = self.lock(run)? else { return Err(rules::absent("run", run).into()) };
        rules::refuse_cancel(run, lock.state)?;
        if lock.cancelled {
            return Ok(Reply::Head(lock.head));
        }
        self.execute(sql::CANCEL, vec![run.as_str().into(), cancel.into()]).await?;
        let entry = sealed(run, lock.head, lock.fence, ready);
        let head = Head { seq: entry.seq, hash: entry.hash };
        lock.head = head;
        lock.cancelled = true;
        lock.updated_at = entry.at.0;
        if lock.state != RunState::Running {
            lock.state = RunState::Ready;
            lock.reason = None;
            lock.due_at = None;
            lock.claim_at = rules::claim_at(lock.state, None, self.now().await?);
        }
        self.stage_run(run, lock);
        self.stage_entries([Staged { entry, moved: None }]);
        Ok(Reply::Head(head))
    }

    async fn wake(&mut self, run: &RunId) -> Result<Reply, Refused> {
        let Some(mut lock) = self.lock(run)? else { return Ok(Reply::Done) };
        let now = self.now().await?;
        if rules::wakes(lock.state, lock.claim_at, now) {
            lock.due_at = Some(now);
            lock.claim_at = Some(now);
            self.stage_run(run, lock);
        }
        Ok(Reply::Done)
    }

    /// A run under the lease of that token (I7).
    pub(crate) fn held(&mut self, run: &RunId, fence: Fence) -> Result<RunLock, LedgerError> {
        let Some(lock) = self.lock(run)? else { return Err(rules::absent("run", run)) };
        if rules::holds(lock.state, lock.fence, fence) {
            Ok(lock)
        } else {
            Err(LedgerError::Fenced { run: run.clone(), fence })
        }
    }

    async fn append(
        &mut self,
        write: &Write,
        fence: Fence,
        progress_made: bool,
        past_pivot: bool,
    ) -> Result<Reply, Refused> {
        let mut lock = self.held(&write.run, fence)?;
        if write.is_empty() && !progress_made {
            return Ok(Reply::Head(lock.head));
        }
        if lock.cancelled {
            rules::refuse_new(write, past_pivot)?;
        }
        let staged = self.seal(write, fence, &mut lock)?;
        if let Some(change) = &write.change {
            let now = self.now().await?;
            change_run(&mut lock, change, now);
        }
        if progress_made {
            lock.crashes = 0;
        }
        let head = lock.head;
        self.stage(write, lock, staged);
        Ok(Reply::Head(head))
    }

    async fn decide(&mut self, write: &Write, expected_head: Head) -> Result<Reply, Refused> {
        let run = &write.run;
        let Some(mut lock) = self.lock(run)? else { return Err(rules::absent("run", run).into()) };
        let now = self.now().await?;
        if !rules::is_answer(write) {
            if lock.state == RunState::Running && lock.lease_until.is_some_and(|until| until > now)
            {
                return Err(rules::refused(run, lock.state, rules::HELD).into());
            }
            if lock.head != expected_head {
                return Err(rules::refused(run, lock.state, rules::GROWN).into());
            }
            lock.fence = Fence(lock.fence.0 + 1);
        }
        let fence = lock.fence;
        let staged = self.seal(write, fence, &mut lock)?;
        if let Some(change) = &write.change {
            if change.state == RunState::Running {
                return Err(rules::refused(run, lock.state, rules::NOT_TO_RUNNING).into());
            }
            change_run(&mut lock, change, now);
            lock.crashes = 0;
        }
        let head = lock.head;
        self.stage(write, lock, staged);
        Ok(Reply::Head(head))
    }

    /// No lease is asked for: an observation decides nothing, so it does not matter whose run it is.
    async fn observe(
        &mut self,
        run: &RunId,
        effect: &EffectId,
        ready: &Ready,
    ) -> Result<Reply, Refused> {
        let Some(mut lock) = self.lock(run)? else { return Err(rules::absent("run", run).into()) };
        let state = match self.effect(effect)? {
            None => return Err(rules::absent("effect", effect).into()),
            Some((owner, _)) if owner != *run => {
                return Err(LedgerError::EffectOwned { effect: effect.clone(), owner }.into());
            }
            Some((_, state)) => state,
        };
        let mut states = BTreeMap::from([(effect, Some(state))]);
        let moved = move_of(&ready.entry, &mut states)
            .map_err(|rule| rules::refused(run, lock.state, rule))?;
        let entry = sealed(run, lock.head, lock.fence, ready);
        let head = Head { seq: entry.seq, hash: entry.hash };
        lock.head = head;
        lock.updated_at = entry.at.0;
        self.touch_effect(effect, entry.at.0).await?;
        self.stage_run(run, lock);
        self.stage_entries([Staged { entry, moved }]);
        Ok(Reply::Head(head))
    }

    fn stage(&mut self, write: &Write, lock: RunLock, entries: Vec<Staged>) {
        for projection in &write.effects {
            self.stage_effect(&write.run, projection.clone());
        }
        self.stage_run(&write.run, lock);
        self.stage_entries(entries);
    }

    /// Puts entries in their places, if each is a legal move of an effect that this run owns or now proposes.
    fn seal(
        &mut self,
        write: &Write,
        fence: Fence,
        lock: &mut RunLock,
    ) -> Result<Vec<Staged>, LedgerError> {
        let mut states: BTreeMap<&EffectId, Option<State>> = BTreeMap::new();
        for projection in &write.effects {
            let state = match self.effect(&projection.id)? {
                Some((owner, _)) if owner != write.run => {
                    return Err(LedgerError::EffectOwned { effect: projection.id.clone(), owner });
                }
                Some((_, state)) => Some(state),
                None => None,
            };
            states.insert(&projection.id, state);
        }
        let mut staged = Vec::with_capacity(write.entries.len());
        for ready in &write.entries {
            let moved = move_of(&ready.entry, &mut states)
                .map_err(|rule| rules::refused(&write.run, lock.state, rule))?;
            let entry = sealed(&write.run, lock.head, fence, ready);
            lock.head = Head { seq: entry.seq, hash: entry.hash };
            lock.updated_at = entry.at.0;
            staged.push(Staged { entry, moved });
        }
        let told = write.effects.iter().all(|effect| states[&effect.id] == Some(effect.state));
        if told {
            Ok(staged)
        } else {
            Err(rules::refused(&write.run, lock.state, rules::EFFECT_MISSING))
        }
    }

    async fn put_module(
        &mut self,
        name: &Name,
        digest: &str,
        bytes: &[u8],
        at: Timestamp,
    ) -> Result<Reply, Refused> {
        let current =
            match self.connection.fetch(sql::MODULE, vec![name.as_str().into()]).await?.pop() {
                Some(row) => Some(rows::module(row)?),
                None => None,
            };
        let number = match current {
            Some((module, _)) if module.digest == digest => return Ok(Reply::Done),
            Some((_, number)) => number + 1,
            None => 1,
        };
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        self.execute(sql::PUT_MODULE, vec![digest.into(), size.into(), bytes.into()]).await?;
        let args = vec![name.as_str().into(), number.into(), digest.into(), at.0.into()];
        self.execute(sql::PUT_MODULE_NAME, args).await?;
        Ok(Reply::Done)
    }
}

fn sealed(run: &RunId, head: Head, fence: Fence, ready: &Ready) -> Entry {
    let NewEntry { content, at } = &ready.entry;
    chain::seal_text(run, head, fence, *at, content, ready.body.clone())
}

/// The move that an entry is, if it is about an effect; takes it in `states`.
fn move_of(
    new: &NewEntry,
    states: &mut BTreeMap<&EffectId, Option<State>>,
) -> Result<Option<(Option<State>, State)>, &'static str> {
    match &new.content {
        Content::Run(_) => Ok(None),
        Content::Effect { effect, event } => {
            let state = states.get_mut(effect).ok_or(rules::EFFECT_MISSING)?;
            let from = *state;
            let to = transition::next(from, event.kind()).map_err(|_| rules::ILLEGAL_MOVE)?;
            *state = Some(to);
            Ok(Some((from, to)))
        }
    }
}

fn change_run(lock: &mut RunLock, change: &Change, now: i64) {
    let missed = rules::missed_cancel(lock.cancelled, change);
    lock.state = if missed { RunState::Ready } else { change.state };
    if let Some(progress) = &change.progress {
        lock.progress = Some((progress.clone(), lock.head.seq));
    }
    if change.output.is_some() {
        lock.output.clone_from(&change.output);
    }
    lock.reason.clone_from(&change.reason);
    lock.due_at = change.due_at.filter(|_| !missed);
    if change.state != RunState::Running {
        lock.lease_until = lock.lease_until.map(|until| until.min(now));
        lock.claim_at = rules::claim_at(lock.state, lock.due_at, now);
    }
}

/// What a claim writes.
struct Taken {
    entry: Staged,
    head: Head,
}

/// Gives a run to a worker, or puts it into quarantine when it killed too many.
fn take(
    record: &mut RunRecord,
    head: Head,
    by: &ClaimBy,
    at: Timestamp,
    now: i64,
    takeover: bool,
) -> Taken {
    record.fence = Fence(record.fence.0 + 1);
    record.crashes += u32::from(takeover);
    record.due_at = None;
    let event = if takeover && rules::is_poison(record.crashes) {
        record.state = RunState::Quarantined;
        record.reason = Some(rules::quarantine_reason(&record.id, record.crashes));
        record.lease_live = false;
        RunEvent::Quarantined { crashes: record.crashes }
    } else {
        record.state = RunState::Running;
        record.reason = None;
        record.worker = Some(by.worker.clone());
        record.lease_until = Some(Timestamp(rules::lease_end(now, by.lease_ms)));
        record.lease_live = by.lease_ms > 0;
        RunEvent::Claimed { worker: by.worker.clone(), takeover }
    };
    let new = NewEntry { content: Content::Run(event), at };
    let entry = chain::seal(&record.id, head, record.fence, &new);
    record.updated_at = at;
    let head = Head { seq: entry.seq, hash: entry.hash };
    Taken { entry: Staged { entry, moved: None }, head }
}

/// The row that a record makes, but for checkpoint and output, which stay as they are.
fn lock_of(record: &RunRecord, head: Head, now: i64) -> RunLock {
    let lease_until = record.lease_until.map(|until| until.0);
    let due_at = record.due_at.map(|at| at.0);
    let claim_at = match record.state {
        RunState::Running => lease_until,
        RunState::Ready
        | RunState::Waiting
        | RunState::Halted
        | RunState::Completed
        | RunState::Failed
        | RunState::Cancelled
        | RunState::Stuck
        | RunState::Quarantined => rules::claim_at(record.state, due_at, now),
    };
    RunLock {
        state: record.state,
        head,
        fence: record.fence,
        lease_until,
        due_at,
        claim_at,
        worker: record.worker.as_ref().map(ToString::to_string),
        reason: record.reason.clone(),
        crashes: record.crashes,
        updated_at: record.updated_at.0,
        cancelled: record.cancel.is_some(),
        progress: None,
        output: None,
    }
}
