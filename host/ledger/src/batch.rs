//! One transaction of many writes: what they touch is read in bulk, changed in memory, and written in bulk. A write that is
//! refused leaves nothing behind; an error of the database fails the whole transaction.

use std::collections::{BTreeMap, BTreeSet};

use twice_core::chain::{Entry, Head};
use twice_core::effect::State;
use twice_core::event::Parent;
use twice_core::ids::{EffectId, ElementId, Fence, Name, RunId};
use twice_core::mutation;
use twice_core::run::{Priority, RunState};

use crate::dialect::{Connection, Held};
use crate::rows::{self, RunLock};
use crate::sql::{self, Bulk};
use crate::stored::Projection;
use crate::value::{Cell, Row, Value};
use crate::work::Work;
use crate::{LedgerError, RunRecord};

/// Why a write was not staged.
pub(crate) enum Refused {
    /// For a reason of its own; the transaction goes on.
    Alone(LedgerError),
    /// The transaction is lost.
    Database(sqlx::Error),
}

impl From<LedgerError> for Refused {
    fn from(error: LedgerError) -> Self {
        Self::Alone(error)
    }
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// What only a new run writes.
pub(crate) struct Birth {
    pub(crate) caller_key: Option<String>,
    pub(crate) workflow: Name,
    pub(crate) definition: String,
    pub(crate) input: String,
    pub(crate) priority: Priority,
    pub(crate) created_at: i64,
    pub(crate) parent: Option<Parent>,
}

struct Known {
    lock: RunLock,
    /// Fence and number of the last entry as they are in the database.
    read: (Fence, i64),
    birth: Option<Birth>,
    dirty: bool,
}

enum RunSlot {
    Absent,
    /// As read; parsed by the write that needs it, so that a damaged row refuses only that one.
    Raw(Row),
    Known(Box<Known>),
}

enum EffectSlot {
    Absent,
    Raw(Row),
    Known { owner: RunId, state: State, dirty: Option<Box<Projection>> },
}

/// An entry with the move that it is.
pub(crate) struct Staged {
    pub(crate) entry: Entry,
    pub(crate) moved: Option<(Option<State>, State)>,
}

pub(crate) struct Batch<'c> {
    pub(crate) connection: &'c mut dyn Connection,
    /// The instant of a clock that stands in for the database's.
    pub(crate) clock: Option<i64>,
    now: Option<i64>,
    runs: BTreeMap<RunId, RunSlot>,
    effects: BTreeMap<EffectId, EffectSlot>,
    entries: Vec<Staged>,
    /// Runs that cannot be read; they must not keep others from being claimed (I11).
    pub(crate) damaged: BTreeSet<RunId>,
    /// Whether a run becomes claimable by what is written.
    due: bool,
    wrote: bool,
}

impl<'c> Batch<'c> {
    /// Reads what the writes touch. The transaction has begun.
    pub(crate) async fn load(
        connection: &'c mut dyn Connection,
        clock: Option<i64>,
        works: &[&Work],
    ) -> Result<Self, sqlx::Error> {
        let mut batch = Self {
            connection,
            clock,
            now: None,
            runs: BTreeMap::new(),
            effects: BTreeMap::new(),
            entries: Vec::new(),
            damaged: BTreeSet::new(),
            due: false,
            wrote: false,
        };
        for work in works {
            for run in work.runs() {
                batch.runs.entry(run.clone()).or_insert(RunSlot::Absent);
            }
            for effect in work.effects() {
                batch.effects.entry(effect.clone()).or_insert(EffectSlot::Absent);
            }
        }
        let ids: Vec<String> = batch.runs.keys().map(ToString::to_string).collect();
        for (id, row) in batch.read_many(&sql::LOCK_RUNS, ids, Some(Held::Wait)).await? {
            if let Some(slot) = RunId::parse(id).ok().and_then(|id| batch.runs.get_mut(&id)) {
                *slot = RunSlot::Raw(row);
            }
        }
        let ids: Vec<String> = batch.effects.keys().map(ToString::to_string).collect();
        // An effect changes only in transactions that hold the run which owns it. Its first proposal by two runs at once is
        // seen when it is written: the second one meets a row with another owner.
        for (id, row) in batch.read_many(&sql::LOCK_EFFECTS, ids, None).await? {
            if let Some(slot) = EffectId::parse(id).ok().and_then(|id| batch.effects.get_mut(&id)) {
                *slot = EffectSlot::Raw(row);
            }
        }
        Ok(batch)
    }

    /// Rows by the ids in their first columns, locked in the order of the ids or not at all.
    async fn read_many(
        &mut self,
        bulk: &Bulk,
        ids: Vec<String>,
        lock: Option<Held>,
    ) -> Result<Vec<(String, Row)>, sqlx::Error> {
        let mut found = Vec::new();
        let mut rest = ids.as_slice();
        while !rest.is_empty() {
            let (statement, taken, args) = named(bulk, rest);
            let rows = match lock {
                Some(held) => self.connection.fetch_locked(statement, args, held).await?,
                None => self.connection.fetch(statement, args).await?,
            };
            for row in rows {
                if let Some(Cell::Text(id)) = row.first() {
                    found.push((id.clone(), row));
                }
            }
            rest = &rest[taken..];
        }
        Ok(found)
    }

    /// Now, by the clock that judges leases; the same instant for the whole transaction.
    pub(crate) async fn now(&mut self) -> Result<i64, sqlx::Error> {
        if let Some(now) = self.now {
            return Ok(now);
        }
        let now = match self.clock {
            Some(now) => now,
            None => {
                let row = self.connection.fetch(sql::NOW, vec![None::<i64>.into()]).await?.pop();
                match row.as_deref() {
                    Some([Cell::Int(now)]) => *now,
                    Some(_) | None => return Err(sqlx::Error::RowNotFound),
                }
            }
        };
        self.now = Some(now);
        Ok(now)
    }

    /// A run for writing; `None` when there is none.
    pub(crate) fn lock(&mut self, id: &RunId) -> Result<Option<RunLock>, LedgerError> {
        let Some(slot) = self.runs.get_mut(id) else { return Ok(None) };
        match slot {
            RunSlot::Absent => Ok(None),
            RunSlot::Known(known) => Ok(Some(known.lock.clone())),
            RunSlot::Raw(row) => {
                let lock = rows::run_lock(row.clone())?;
                let read = (lock.fence, lock.head.seq);
                let known = Known { lock: lock.clone(), read, birth: None, dirty: false };
                *slot = RunSlot::Known(Box::new(known));
                Ok(Some(lock))
            }
        }
    }

    /// Stages a run that is in the database.
    pub(crate) fn stage_run(&mut self, id: &RunId, lock: RunLock) {
        if let Some(RunSlot::Known(known)) = self.runs.get_mut(id) {
            known.lock = lock;
            known.dirty = true;
        }
    }

    /// Stages a run that was read as a whole.
    pub(crate) fn stage_read_run(&mut self, id: &RunId, read: (Fence, i64), lock: RunLock) {
        let known = Known { lock, read, birth: None, dirty: true };
        self.runs.insert(id.clone(), RunSlot::Known(Box::new(known)));
    }

    /// Stages a new run.
    pub(crate) fn stage_birth(&mut self, id: &RunId, birth: Birth, lock: RunLock) {
        let read = (lock.fence, lock.head.seq);
        let known = Known { lock, read, birth: Some(birth), dirty: true };
        self.runs.insert(id.clone(), RunSlot::Known(Box::new(known)));
    }

    /// Takes a run and its effects out of what is known: they are gone.
    pub(crate) fn forget(&mut self, id: &RunId) {
        self.runs.insert(id.clone(), RunSlot::Absent);
        for slot in self.effects.values_mut() {
            if matches!(slot, EffectSlot::Raw(_) | EffectSlot::Known { .. }) {
                let owned = match slot {
                    EffectSlot::Known { owner, .. } => owner == id,
                    EffectSlot::Raw(row) => {
                        matches!(row.get(1), Some(Cell::Text(owner)) if owner == id.as_str())
                    }
                    EffectSlot::Absent => false,
                };
                if owned {
                    *slot = EffectSlot::Absent;
                }
            }
        }
    }

    pub(crate) fn stage_entries(&mut self, entries: impl IntoIterator<Item = Staged>) {
        self.entries.extend(entries);
    }

    /// Owner and state of an effect; `None` when there is none.
    pub(crate) fn effect(&mut self, id: &EffectId) -> Result<Option<(RunId, State)>, LedgerError> {
        let Some(slot) = self.effects.get_mut(id) else { return Ok(None) };
        match slot {
            EffectSlot::Absent => Ok(None),
            EffectSlot::Known { owner, state, .. } => Ok(Some((owner.clone(), *state))),
            EffectSlot::Raw(row) => {
                let (owner, state) = rows::effect_lock(row.clone())?;
                *slot = EffectSlot::Known { owner: owner.clone(), state, dirty: None };
                Ok(Some((owner, state)))
            }
        }
    }

    pub(crate) fn stage_effect(&mut self, owner: &RunId, projection: Projection) {
        let slot = EffectSlot::Known {
            owner: owner.clone(),
            state: projection.state,
            dirty: Some(Box::new(projection.clone())),
        };
        self.effects.insert(projection.id, slot);
    }

    /// Takes in when the latest entry about an effect was made, if that entry changes nothing else of it.
    pub(crate) async fn touch_effect(&mut self, id: &EffectId, at: i64) -> Result<(), sqlx::Error> {
        match self.effects.get_mut(id) {
            Some(EffectSlot::Known { dirty: Some(projection), .. }) => {
                projection.updated_at = at;
                Ok(())
            }
            Some(
                EffectSlot::Known { dirty: None, .. } | EffectSlot::Raw(_) | EffectSlot::Absent,
            )
            | None => self.execute(sql::TOUCH_EFFECT, vec![id.as_str().into(), at.into()]).await,
        }
    }

    /// A whole run as it is after everything staged so far.
    pub(crate) async fn record(
        &mut self,
        id: &RunId,
    ) -> Result<Option<(RunRecord, Head)>, Refused> {
        if matches!(self.runs.get(id), Some(RunSlot::Known(known)) if known.dirty) {
            self.flush().await?;
        }
        let args = vec![self.clock.into(), id.as_str().into()];
        match self.connection.fetch(sql::RUN, args).await?.pop() {
            Some(row) => Ok(Some(rows::run(row)?)),
            None => Ok(None),
        }
    }

    /// The run that a caller's key belongs to.
    pub(crate) async fn owner_of_key(&mut self, key: &str) -> Result<Option<RunId>, Refused> {
        let born = |slot: &RunSlot| matches!(slot, RunSlot::Known(known) if known.birth.is_some());
        if self.runs.values().any(born) {
            self.flush().await?;
        }
        let found = self.connection.fetch(sql::RUN_BY_CALLER_KEY, vec![key.into()]).await?.pop();
        let Some(row) = found else { return Ok(None) };
        let mut fields = rows::Fields::of("run", row);
        let id = fields.text("id")?;
        Ok(Some(RunId::parse(id).map_err(|problem| fields.corrupt("id", problem))?))
    }

    /// Runs a statement of its own.
    pub(crate) async fn execute(
        &mut self,
        statement: &'static str,
        args: Vec<Value>,
    ) -> Result<(), sqlx::Error> {
        self.wrote |= self.connection.execute(statement, args).await? > 0;
        Ok(())
    }

    /// Runs a statement about one row; whether it wrote that.
    pub(crate) async fn wrote_one(
        &mut self,
        statement: &'static str,
        args: Vec<Value>,
    ) -> Result<bool, sqlx::Error> {
        let rows = self.connection.execute(statement, args).await?;
        self.wrote |= rows > 0;
        Ok(rows == 1)
    }

    /// Whether a run becomes claimable by what was written, at once or at some time.
    pub(crate) const fn makes_due(&self) -> bool {
        self.due
    }

    /// Whether there is anything to commit.
    pub(crate) const fn wrote(&self) -> bool {
        self.wrote
    }

    /// Writes what is staged: runs, then effects, then entries, as they refer to each other. What runs had locked that are over
    /// is free with it.
    pub(crate) async fn flush(&mut self) -> Result<(), sqlx::Error> {
        let (mut births, mut updates, mut over) = (Vec::new(), Vec::new(), Vec::new());
        for (id, slot) in &mut self.runs {
            let RunSlot::Known(known) = slot else { continue };
            if !std::mem::take(&mut known.dirty) {
                continue;
            }
            self.due |= known.lock.state != RunState::Running && known.lock.claim_at.is_some();
            if known.lock.state.is_final() {
                over.push(id.to_string());
            }
            match known.birth.take() {
                Some(birth) => births.push(birth_values(id, birth, &mut known.lock)),
                None => updates.push(update_values(id, known.read, &mut known.lock)),
            }
            known.read = (known.lock.fence, known.lock.head.seq);
        }
        let mut effects = Vec::new();
        for slot in self.effects.values_mut() {
            if let EffectSlot::Known { owner, dirty, .. } = slot
                && let Some(projection) = dirty.take()
            {
                effects.push(effect_values(owner, *projection));
            }
        }
        let entries = std::mem::take(&mut self.entries).into_iter().map(entry_values).collect();
        self.write_many(&sql::INSERT_RUNS, births).await?;
        self.write_many(&sql::UPDATE_RUNS, updates).await?;
        self.write_many(&sql::PUT_EFFECTS, effects).await?;
        self.write_many(&sql::INSERT_ENTRIES, entries).await?;
        self.delete_of_runs(&sql::DELETE_LOCKS_OF_RUNS, &over).await?;
        self.delete_of_runs(&sql::DELETE_WAITS_OF_RUNS, &over).await
    }

    async fn delete_of_runs(&mut self, bulk: &Bulk, ids: &[String]) -> Result<(), sqlx::Error> {
        let mut rest = ids;
        while !rest.is_empty() {
            let (statement, taken, args) = named(bulk, rest);
            self.execute(statement, args).await?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    async fn write_many(&mut self, bulk: &Bulk, rows: Vec<Vec<Value>>) -> Result<(), sqlx::Error> {
        let mut rest = rows.into_iter();
        while rest.len() > 0 {
            let (statement, size) = bulk.at_most(rest.len());
            let args = rest.by_ref().take(size).flatten().collect();
            self.wrote = true;
            // Another process wrote in between: this transaction rests on what is no longer so.
            let written = self.connection.execute(statement, args).await?;
            if written != size as u64 && !mutation::is("ignore-row-count") {
                return Err(sqlx::Error::RowNotFound);
            }
        }
        Ok(())
    }
}

/// A statement about the first of these ids, how many of them it names, and its arguments.
fn named(bulk: &Bulk, ids: &[String]) -> (&'static str, usize, Vec<Value>) {
    let (statement, size) = bulk.at_least(ids.len());
    let taken = ids.len().min(size);
    // An id that is named twice is found once: the last one fills the statement up.
    let filler = ids.last().into_iter().cycle().take(size - taken);
    let args = ids[..taken].iter().chain(filler).map(|id| id.as_str().into()).collect();
    (statement, taken, args)
}

fn birth_values(id: &RunId, birth: Birth, lock: &mut RunLock) -> Vec<Value> {
    let (progress, progress_seq) = lock.progress.take().unzip();
    let (parent, effect) = birth.parent.map(|parent| (parent.run, parent.effect)).unzip();
    vec![
        id.as_str().into(),
        birth.caller_key.into(),
        birth.workflow.as_str().into(),
        birth.definition.into(),
        birth.input.into(),
        birth.priority.get().into(),
        birth.created_at.into(),
        parent.as_ref().map(RunId::as_str).into(),
        effect.as_ref().map(EffectId::as_str).into(),
        lock.state.as_str().into(),
        progress.into(),
        progress_seq.into(),
        lock.output.take().into(),
        lock.reason.clone().into(),
        lock.due_at.into(),
        lock.claim_at.into(),
        lock.worker.clone().into(),
        lock.fence.0.into(),
        lock.lease_until.into(),
        i64::from(lock.crashes).into(),
        lock.head.seq.into(),
        lock.head.hash.as_slice().into(),
        lock.updated_at.into(),
    ]
}

fn update_values(id: &RunId, read: (Fence, i64), lock: &mut RunLock) -> Vec<Value> {
    let (progress, progress_seq) = lock.progress.take().unzip();
    vec![
        id.as_str().into(),
        read.0.0.into(),
        read.1.into(),
        lock.state.as_str().into(),
        progress.into(),
        progress_seq.into(),
        lock.output.take().into(),
        lock.reason.clone().into(),
        lock.due_at.into(),
        lock.claim_at.into(),
        lock.worker.clone().into(),
        lock.fence.0.into(),
        lock.lease_until.into(),
        i64::from(lock.crashes).into(),
        lock.head.seq.into(),
        lock.head.hash.as_slice().into(),
        lock.updated_at.into(),
    ]
}

fn effect_values(owner: &RunId, effect: Projection) -> Vec<Value> {
    vec![
        effect.id.as_str().into(),
        owner.as_str().into(),
        effect.node.as_str().into(),
        i64::from(effect.visit).into(),
        effect.element.as_ref().map(ElementId::as_str).into(),
        effect.slot.as_str().into(),
        effect.operation.into(),
        effect.idempotency_key.into(),
        effect.request_hash.into(),
        effect.state.as_str().into(),
        i64::from(effect.attempts).into(),
        effect.external_id.into(),
        i64::from(effect.held).into(),
        effect.undoes.as_ref().map(EffectId::as_str).into(),
        effect.approves.as_ref().map(EffectId::as_str).into(),
        i64::from(effect.settled_here).into(),
        effect.last_error.into(),
        effect.updated_at.into(),
    ]
}

fn entry_values(staged: Staged) -> Vec<Value> {
    let Staged { entry, moved } = staged;
    let from = moved.map(|(from, _)| from.map_or("NONE", State::as_str));
    let to = moved.map(|(_, to)| to.as_str());
    vec![
        entry.run.as_str().into(),
        entry.seq.into(),
        entry.fence.0.into(),
        entry.at.0.into(),
        entry.effect.as_ref().map(EffectId::as_str).into(),
        entry.kind.into(),
        entry.body.into(),
        entry.prev.as_slice().into(),
        entry.hash.as_slice().into(),
        from.into(),
        to.into(),
    ]
}
