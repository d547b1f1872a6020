//! Locks on business objects, and who waits for them.

use std::collections::BTreeMap;

use twice_core::chain::Head;
use twice_core::ids::{Fence, Name, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;

use super::Memory;
use crate::locks::{self, Asked, Edge, Freed, Holder, Standing};
use crate::{LedgerError, LockFilter, LockRow, Locked, ObjectLock, Waits, rules};

/// The locks that runs have, by name and object.
#[derive(Default)]
pub(super) struct Locks {
    held: BTreeMap<(Name, String), Lock>,
    waits: BTreeMap<(RunId, Name, String), Wait>,
}

struct Lock {
    run: RunId,
    taken_at: i64,
    expires_at: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Wait {
    fence: Fence,
    since: i64,
}

impl Locks {
    /// Lets go of what a run has that is over.
    pub(super) fn release(&mut self, run: &RunId) {
        self.held.retain(|_, lock| lock.run != *run);
        self.waits.retain(|(waiting, ..), _| waiting != run);
    }
}

impl Memory {
    /// Takes a lock for a run that holds its lease, or says who has it.
    pub(super) fn lock_object(&mut self, asked: &Asked, now: i64) -> Result<Locked, LedgerError> {
        let wanted = &asked.wanted;
        self.held(&wanted.run, wanted.fence)?;
        let key = (wanted.name.clone(), wanted.object.clone());
        let known = self.locks.held.get(&key);
        let holder =
            known.map(|lock| Holder { run: lock.run.clone(), expires_at: lock.expires_at });
        match locks::standing(wanted, holder, now) {
            Standing::Enough(until) => Ok(Locked::Taken { until: until.map(Timestamp) }),
            Standing::Held(holder) => Ok(self.wait_for(wanted, holder, now)),
            Standing::Free { until, expired } => {
                let had = known.filter(|lock| lock.run == wanted.run).map(|lock| lock.taken_at);
                let taken_at = had.unwrap_or(now);
                let (name, object) = key.clone();
                let lock = Lock { run: wanted.run.clone(), taken_at, expires_at: until };
                self.locks.held.insert(key, lock);
                self.locks.waits.remove(&(wanted.run.clone(), name, object));
                self.run(&wanted.run)?.push(&locks::taken(asked, until, expired));
                self.commits += 1;
                Ok(Locked::Taken { until: until.map(Timestamp) })
            }
        }
    }

    fn wait_for(&mut self, wanted: &ObjectLock, holder: Holder, now: i64) -> Locked {
        let ObjectLock { run, fence, name, object, .. } = wanted;
        let key = (run.clone(), name.clone(), object.clone());
        let known = self.locks.waits.get(&key).copied();
        let going_on =
            known.filter(|wait| locks::still_waits(wait.fence, *fence, RunState::Running));
        let since = going_on.map_or(now, |wait| wait.since);
        let waits = Waits { run: run.clone(), name: name.clone(), object: object.clone() };
        let asked = Edge { waits, since, holder: holder.run.clone() };
        if let Some(circle) = locks::circle(&asked, &self.edges(now)) {
            self.locks.waits.remove(&key);
            return Locked::Deadlock { circle };
        }
        self.locks.waits.insert(key, Wait { fence: *fence, since });
        let until = holder.expires_at.map(Timestamp);
        Locked::Held { by: holder.run, until, since: Timestamp(since) }
    }

    /// Every run that waits for a lock of another.
    fn edges(&self, now: i64) -> BTreeMap<RunId, Vec<Edge>> {
        let mut edges: BTreeMap<RunId, Vec<Edge>> = BTreeMap::new();
        for ((run, name, object), wait) in &self.locks.waits {
            let key = (name.clone(), object.clone());
            let Some(lock) = self.locks.held.get(&key).filter(|lock| lock.run != *run) else {
                continue;
            };
            if locks::is_over(lock.expires_at, now) || !self.still_waits(run, wait) {
                continue;
            }
            let waits = Waits { run: run.clone(), name: name.clone(), object: object.clone() };
            let edge = Edge { waits, since: wait.since, holder: lock.run.clone() };
            edges.entry(run.clone()).or_default().push(edge);
        }
        edges
    }

    fn still_waits(&self, run: &RunId, wait: &Wait) -> bool {
        self.runs
            .get(run)
            .is_some_and(|run| locks::still_waits(wait.fence, run.record.fence, run.record.state))
    }

    /// Takes a lock from a run that no worker holds.
    pub(super) fn unlock_object(&mut self, freed: &Freed, now: i64) -> Result<Head, LedgerError> {
        let Freed { run, name, object, entry } = freed;
        let shown = self.run(run)?.shown(now);
        if shown.lease_live {
            return Err(rules::refused(run, shown.state, rules::HELD));
        }
        let key = (name.clone(), object.clone());
        if self.locks.held.get(&key).is_none_or(|lock| lock.run != *run) {
            return Err(locks::absent(name, object));
        }
        self.locks.held.remove(&key);
        self.commits += 1;
        let run = self.run(run)?;
        run.record.fence.0 += 1;
        run.push(&entry.entry);
        Ok(run.head())
    }

    /// A page of locks; `object` is that of the filter as it is stored.
    pub(super) fn locked(&self, filter: &LockFilter, object: Option<&str>) -> Vec<LockRow> {
        let after = filter.after.as_ref();
        self.locks
            .held
            .iter()
            .filter(|(_, lock)| filter.run.as_ref().is_none_or(|run| lock.run == *run))
            .filter(|((_, on), _)| object.is_none_or(|object| on == object))
            .filter(|(key, _)| after.is_none_or(|after| *key > after))
            .filter_map(|((name, object), lock)| self.row_of_lock(name, object, lock))
            .take(rules::page(filter.limit) as usize)
            .collect()
    }

    fn row_of_lock(&self, name: &Name, object: &str, lock: &Lock) -> Option<LockRow> {
        let waits = self.locks.waits.iter();
        let mut waiting: Vec<(RunId, Timestamp)> = waits
            .filter(|((_, of, on), _)| of == name && on == object)
            .filter(|((run, ..), wait)| self.still_waits(run, wait))
            .map(|((run, ..), wait)| (run.clone(), Timestamp(wait.since)))
            .collect();
        waiting.sort_by(|(a, since), (b, other)| (since, a).cmp(&(other, b)));
        Some(LockRow {
            name: name.clone(),
            object: object.to_owned(),
            run: lock.run.clone(),
            run_state: self.runs.get(&lock.run)?.record.state,
            taken_at: Timestamp(lock.taken_at),
            expires_at: lock.expires_at.map(Timestamp),
            waiting,
        })
    }
}
