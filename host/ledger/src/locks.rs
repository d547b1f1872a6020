//! Locks on business objects: two runs about one order do not come between each other. A run takes a lock and has it until it
//! is over; another that asks meanwhile is told who has it, and waits. When runs wait for each other in a circle, the one
//! that began to wait last is told so, and no other.

use std::collections::{BTreeMap, VecDeque};

use twice_core::chain::{self, Content, Head, NewEntry};
use twice_core::event::RunEvent;
use twice_core::identity::{hash_text, tagged_sha256};
use twice_core::ids::{Fence, Name, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;

use crate::batch::{Batch, Refused, Staged};
use crate::rows::{self, Fields, RunLock};
use crate::stored::Ready;
use crate::value::Row;
use crate::work::Reply;
use crate::{LedgerError, rules, sql};

/// Longest object that a lock is on as it is. Bytes; well below what an index of any of our databases takes. A longer one is
/// shortened, with its digest.
const OBJECT_BYTES_MAX: usize = 1_024;
/// How much of a longer one is kept. Bytes.
const OBJECT_BYTES_KEPT: usize = 256;

/// A lock that a run asks for.
#[derive(Debug, Clone)]
pub struct ObjectLock {
    /// The run.
    pub run: RunId,
    /// The token of its lease.
    pub fence: Fence,
    /// The name of the lock: what kind of object it is on.
    pub name: Name,
    /// The object.
    pub object: String,
    /// For how long, from now by the database's clock; none: until the run is over. Milliseconds.
    pub expires_ms: Option<u64>,
}

/// What came of asking for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locked {
    /// The run has it.
    Taken {
        /// When another run may take it; none: not before this one is over.
        until: Option<Timestamp>,
    },
    /// Another run has it; that this one waits is on record.
    Held {
        /// Which.
        by: RunId,
        /// When it may be taken from that run; none: not before it is over.
        until: Option<Timestamp>,
        /// Since when this run has been waiting for it.
        since: Timestamp,
    },
    /// It would wait for ever: the circle, this run first. Each waits for a lock that the next has, and the last for one that
    /// the first has. Of these runs only this one is told; it is not on record as waiting.
    Deadlock {
        /// Who waits for what.
        circle: Vec<Waits>,
    },
}

/// A run that waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    /// The run.
    pub run: RunId,
    /// The name of the lock.
    pub name: Name,
    /// The object.
    pub object: String,
}

/// A lock that a person takes from a run.
#[derive(Debug, Clone)]
pub struct Unlock {
    /// The run that has it.
    pub run: RunId,
    /// The name of the lock.
    pub name: Name,
    /// The object, as listed.
    pub object: String,
    /// Who takes it.
    pub who: String,
    /// Why, in their words.
    pub why: String,
}

/// Which locks to list, in the order of their names and objects.
#[derive(Debug, Clone, Default)]
pub struct LockFilter {
    /// That this run has.
    pub run: Option<RunId>,
    /// On this object, whatever the name.
    pub object: Option<String>,
    /// After this name and object, for paging.
    pub after: Option<(Name, String)>,
    /// At most so many; 0 and whatever exceeds the page limit mean the page limit.
    pub limit: u32,
}

/// A lock as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRow {
    /// Its name.
    pub name: Name,
    /// The object.
    pub object: String,
    /// The run that has it.
    pub run: RunId,
    /// Where that run stands.
    pub run_state: RunState,
    /// Since when it has it, by the database's clock.
    pub taken_at: Timestamp,
    /// When another run may take it, if it may before that run is over.
    pub expires_at: Option<Timestamp>,
    /// Who waits for it, and since when; who has waited longest first.
    pub waiting: Vec<(RunId, Timestamp)>,
}

/// A lock to take, with the object as it will be stored.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) wanted: ObjectLock,
    pub(crate) at: Timestamp,
}

/// A lock to take from a run, with the entry that says so.
#[derive(Debug)]
pub(crate) struct Freed {
    pub(crate) run: RunId,
    pub(crate) name: Name,
    pub(crate) object: String,
    pub(crate) entry: Ready,
}

/// Who has a lock.
pub(crate) struct Holder {
    pub(crate) run: RunId,
    pub(crate) expires_at: Option<i64>,
}

/// A run that waits for a lock of another.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub(crate) waits: Waits,
    pub(crate) since: i64,
    pub(crate) holder: RunId,
}

/// What a holder means for a run that asks.
pub(crate) enum Standing {
    /// It has the lock already, for as long as it asks for.
    Enough(Option<i64>),
    /// It may have it, until then. The run had it that is named.
    Free { until: Option<i64>, expired: Option<RunId> },
    /// Another run has it.
    Held(Holder),
}

/// An object as it is stored with a lock on it.
pub(crate) fn object(text: String) -> String {
    if text.len() <= OBJECT_BYTES_MAX {
        return text;
    }
    let digest = hash_text(&tagged_sha256("twice/lock-object/v1", text.as_bytes()));
    let end = (0..=OBJECT_BYTES_KEPT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}… {digest}", &text[..end])
}

/// What may become of a lock that a run asks for.
pub(crate) fn standing(wanted: &ObjectLock, holder: Option<Holder>, now: i64) -> Standing {
    let until = wanted.expires_ms.map(|ms| rules::lease_end(now, ms));
    let Some(holder) = holder else { return Standing::Free { until, expired: None } };
    if holder.run == wanted.run {
        // Never for less long than it has it already.
        let longer = holder.expires_at.and_then(|had| Some(until?.max(had)));
        if longer == holder.expires_at {
            return Standing::Enough(longer);
        }
        return Standing::Free { until: longer, expired: None };
    }
    if is_over(holder.expires_at, now) {
        return Standing::Free { until, expired: Some(holder.run) };
    }
    Standing::Held(holder)
}

/// Whether a lock may be taken from whoever has it.
pub(crate) fn is_over(expires_at: Option<i64>, now: i64) -> bool {
    expires_at.is_some_and(|at| at <= now)
}

/// Whether a wait that was written under one token still counts under the token of its run now: that has not been taken up
/// since, or has and may not have asked yet.
pub(crate) fn still_waits(written: Fence, now: Fence, state: RunState) -> bool {
    now == written || state == RunState::Running && now.0 == written.0 + 1
}

/// The entry of a lock that is taken.
pub(crate) fn taken(asked: &Asked, until: Option<i64>, expired: Option<RunId>) -> NewEntry {
    let ObjectLock { name, object, .. } = &asked.wanted;
    let event = RunEvent::ObjectLocked {
        name: name.clone(),
        object: object.clone(),
        until: until.map(Timestamp),
        expired,
    };
    NewEntry { content: Content::Run(event), at: asked.at }
}

/// The circle that `asked` closes, if every other run in it began to wait before: so that of the runs in a circle exactly one
/// is told, whoever of them looks first.
pub(crate) fn circle(asked: &Edge, edges: &BTreeMap<RunId, Vec<Edge>>) -> Option<Vec<Waits>> {
    let earlier = |edge: &&Edge| (edge.since, &edge.waits.run) < (asked.since, &asked.waits.run);
    let mut came_by: BTreeMap<&RunId, &Edge> = BTreeMap::from([(&asked.holder, asked)]);
    let mut open = VecDeque::from([&asked.holder]);
    while let Some(run) = open.pop_front() {
        for edge in edges.get(run).into_iter().flatten().filter(earlier) {
            if edge.holder == asked.waits.run {
                let mut circle = vec![edge.waits.clone()];
                let mut at = run;
                while let Some(before) = came_by.get(at) {
                    circle.push(before.waits.clone());
                    at = &before.waits.run;
                }
                circle.reverse();
                return Some(circle);
            }
            if !came_by.contains_key(&edge.holder) {
                came_by.insert(&edge.holder, edge);
                open.push_back(&edge.holder);
            }
        }
    }
    None
}

fn holder(row: Row) -> Result<Holder, LedgerError> {
    let mut f = Fields::of("object_lock", row);
    Ok(Holder { run: f.parsed("run_id", RunId::parse)?, expires_at: f.optional_int("expires_at")? })
}

fn edge(row: Row) -> Result<Edge, LedgerError> {
    let mut f = Fields::of("object_lock_wait", row);
    let run = f.parsed("run_id", RunId::parse)?;
    let name = f.parsed("name", Name::parse)?;
    let waits = Waits { run, name, object: f.text("object")? };
    let since = f.int("since")?;
    Ok(Edge { waits, since, holder: f.parsed("run_id", RunId::parse)? })
}

/// Locks as listed, from one row for each run that waits for one.
pub(crate) fn listed(found: Vec<Row>) -> Result<Vec<LockRow>, LedgerError> {
    let mut locks: Vec<LockRow> = Vec::new();
    for row in found {
        let mut f = Fields::of("object_lock", row);
        let lock = LockRow {
            name: f.parsed("name", Name::parse)?,
            object: f.text("object")?,
            run: f.parsed("run_id", RunId::parse)?,
            run_state: f.parsed("state", rows::run_state)?,
            taken_at: f.time("taken_at")?,
            expires_at: f.optional_int("expires_at")?.map(Timestamp),
            waiting: Vec::new(),
        };
        let waits = match f.optional_parsed("run_id", RunId::parse)? {
            Some(run) => Some((run, f.time("since")?)),
            None => None,
        };
        match locks.last_mut() {
            Some(last) if (&last.name, &last.object) == (&lock.name, &lock.object) => {
                last.waiting.extend(waits);
            }
            Some(_) | None => locks.push(LockRow { waiting: waits.into_iter().collect(), ..lock }),
        }
    }
    Ok(locks)
}

impl Batch<'_> {
    /// Takes a lock for a run that holds its lease, or says who has it.
    pub(crate) async fn lock_object(&mut self, asked: &Asked) -> Result<Reply, Refused> {
        let wanted = &asked.wanted;
        let mut lock = self.held(&wanted.run, wanted.fence)?;
        let now = self.now().await?;
        let key = || vec![wanted.name.as_str().into(), wanted.object.as_str().into()];
        loop {
            let found = self.connection.fetch(sql::OBJECT_LOCK, key()).await?.pop();
            match standing(wanted, found.map(holder).transpose()?, now) {
                Standing::Enough(until) => {
                    return Ok(Reply::Locked(Locked::Taken { until: until.map(Timestamp) }));
                }
                Standing::Held(holder) => return self.wait_for(wanted, holder, now).await,
                Standing::Free { until, expired } => {
                    let mut args = key();
                    args.extend([wanted.run.as_str().into(), now.into(), until.into()]);
                    // Another process may have taken it since it was read.
                    if !self.wrote_one(sql::PUT_OBJECT_LOCK, args).await? {
                        continue;
                    }
                    let mut args = vec![wanted.run.as_str().into()];
                    args.extend(key());
                    self.execute(sql::DELETE_WAIT, args).await?;
                    let entry = chain::seal(
                        &wanted.run,
                        lock.head,
                        lock.fence,
                        &taken(asked, until, expired),
                    );
                    self.stage_last(&wanted.run, &mut lock, entry);
                    return Ok(Reply::Locked(Locked::Taken { until: until.map(Timestamp) }));
                }
            }
        }
    }

    /// Puts on record that a run waits, unless it would wait for ever.
    async fn wait_for(
        &mut self,
        wanted: &ObjectLock,
        holder: Holder,
        now: i64,
    ) -> Result<Reply, Refused> {
        let key = || {
            [wanted.run.as_str().into(), wanted.name.as_str().into(), wanted.object.as_str().into()]
        };
        let known = match self.connection.fetch(sql::WAIT, key().to_vec()).await?.pop() {
            Some(row) => {
                let mut f = Fields::of("object_lock_wait", row);
                Some((Fence(f.int("fence")?), f.int("since")?))
            }
            None => None,
        };
        let going_on =
            known.filter(|(fence, _)| still_waits(*fence, wanted.fence, RunState::Running));
        let since = going_on.map_or(now, |(_, since)| since);
        let waits = Waits {
            run: wanted.run.clone(),
            name: wanted.name.clone(),
            object: wanted.object.clone(),
        };
        let asked = Edge { waits, since, holder: holder.run.clone() };
        let edges = self.edges_from(&holder.run, now).await?;
        if let Some(circle) = circle(&asked, &edges) {
            self.execute(sql::DELETE_WAIT, key().to_vec()).await?;
            return Ok(Reply::Locked(Locked::Deadlock { circle }));
        }
        if known != Some((wanted.fence, since)) {
            let mut args = key().to_vec();
            args.extend([wanted.fence.0.into(), since.into()]);
            self.execute(sql::PUT_WAIT, args).await?;
        }
        Ok(Reply::Locked(Locked::Held {
            by: holder.run,
            until: holder.expires_at.map(Timestamp),
            since: Timestamp(since),
        }))
    }

    /// What a run waits for, and what those wait for that have it, and so on.
    async fn edges_from(
        &mut self,
        first: &RunId,
        now: i64,
    ) -> Result<BTreeMap<RunId, Vec<Edge>>, Refused> {
        let mut edges = BTreeMap::new();
        let mut open = vec![first.clone()];
        while let Some(run) = open.pop() {
            if edges.contains_key(&run) {
                continue;
            }
            let args = vec![run.as_str().into(), now.into()];
            let found = self.connection.fetch(sql::WAITS_OF_RUN, args).await?;
            let found = found.into_iter().map(edge).collect::<Result<Vec<_>, _>>()?;
            open.extend(found.iter().map(|edge| edge.holder.clone()));
            edges.insert(run, found);
        }
        Ok(edges)
    }

    /// Takes a lock from a run that no worker holds.
    pub(crate) async fn unlock_object(&mut self, freed: &Freed) -> Result<Reply, Refused> {
        let Freed { run, name, object, entry } = freed;
        let Some(mut lock) = self.lock(run)? else { return Err(rules::absent("run", run).into()) };
        let now = self.now().await?;
        if lock.state == RunState::Running && lock.lease_until.is_some_and(|until| until > now) {
            return Err(rules::refused(run, lock.state, rules::HELD).into());
        }
        let args = vec![name.as_str().into(), object.as_str().into(), run.as_str().into()];
        if !self.wrote_one(sql::DELETE_OBJECT_LOCK, args).await? {
            return Err(absent(name, object).into());
        }
        lock.fence = Fence(lock.fence.0 + 1);
        let entry = chain::seal_text(
            run,
            lock.head,
            lock.fence,
            entry.entry.at,
            &entry.entry.content,
            entry.body.clone(),
        );
        let head = self.stage_last(run, &mut lock, entry);
        Ok(Reply::Head(head))
    }

    /// Stages an entry as the last of its run.
    fn stage_last(&mut self, run: &RunId, lock: &mut RunLock, entry: chain::Entry) -> Head {
        let head = Head { seq: entry.seq, hash: entry.hash };
        lock.head = head;
        lock.updated_at = entry.at.0;
        self.stage_run(run, lock.clone());
        self.stage_entries([Staged { entry, moved: None }]);
        head
    }
}

/// That a run has no such lock.
pub(crate) fn absent(name: &Name, object: &str) -> LedgerError {
    rules::absent("lock", format_args!("{name} {object}").to_string())
}
