//! One worker: what is planned for it, and the lease that it holds. It also stands between the worker and the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use twice::engine::boundary::Boundary;
use twice_core::chain::{Content, Head, NewEntry};
use twice_core::event::EffectEvent;
use twice_core::ids::{EffectId, Fence, RunId};
use twice_core::time::{Clock as _, Timestamp};
use twice_ledger::{
    Append, Claim, ClaimBy, ClaimOutcome, Ledger, LedgerError, NewRun, Started, Wanted,
};

use super::{Plan, Turntable, lock};
use crate::store::{Between, Kind, Point, StoreFault, indeterminate, not_applied};

tokio::task_local! {
    /// The worker that the current task is.
    pub(super) static SEAT: Arc<Seat>;
}

/// The worker that the current task is, if it is one.
pub(super) fn current() -> Option<Arc<Seat>> {
    SEAT.try_with(Arc::clone).ok()
}

/// A place where a worker can be frozen, besides the writes of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// REQUESTED is durable; the last look at the lease is not taken.
    BeforeWitness,
    /// The last look at the lease is taken; the socket has nothing yet.
    BeforeSocket,
    /// The answer has come; nobody was told.
    AfterAnswer,
    /// About to look an outcome up.
    BeforeLookup,
    /// The lookup has answered; nobody was told.
    AfterLookup,
}

impl Gate {
    /// Every gate.
    pub const ALL: [Self; 5] = [
        Self::BeforeWitness,
        Self::BeforeSocket,
        Self::AfterAnswer,
        Self::BeforeLookup,
        Self::AfterLookup,
    ];
}

/// A place that a worker passes where something can happen to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Where it can vanish.
    Boundary(Boundary),
    /// Where it can be frozen.
    Gate(Gate),
}

/// The lease of a worker.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) run: RunId,
    pub(super) fence: Fence,
    /// When it was taken or renewed.
    pub(super) since: Timestamp,
}

/// A worker.
#[derive(Debug)]
pub(super) struct Seat {
    plan: Plan,
    /// How often it came to each place.
    passed: Mutex<BTreeMap<Place, u32>>,
    lease: Mutex<Option<Lease>>,
    met_fault: AtomicBool,
    /// The attempts that it knows to be on record, each by its effect and number.
    recorded: Mutex<BTreeSet<(EffectId, u32)>>,
    frozen: Semaphore,
    thawed: Semaphore,
}

impl Seat {
    pub(super) fn new(plan: Plan) -> Self {
        Self {
            plan,
            passed: Mutex::default(),
            lease: Mutex::new(None),
            met_fault: AtomicBool::new(false),
            recorded: Mutex::default(),
            frozen: Semaphore::new(0),
            thawed: Semaphore::new(0),
        }
    }

    pub(super) fn vanishes_at(&self, boundary: Boundary) -> bool {
        let nth = self.pass(Place::Boundary(boundary));
        self.plan.vanish == Some((boundary, nth))
    }

    /// Counts that it comes to a place; how often that is by now.
    fn pass(&self, place: Place) -> u32 {
        let mut passed = lock(&self.passed);
        let count = passed.entry(place).or_default();
        *count += 1;
        *count
    }

    /// How often it came to each place.
    pub(super) fn passed(&self) -> BTreeMap<Place, u32> {
        lock(&self.passed).clone()
    }

    /// Whether the store failed under it.
    pub(super) fn met_fault(&self) -> bool {
        self.met_fault.load(Ordering::SeqCst)
    }

    /// Whether it knows that this attempt is on record.
    pub(super) fn knows(&self, effect: &EffectId, attempt: u32) -> bool {
        lock(&self.recorded).contains(&(effect.clone(), attempt))
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        lock(&self.lease).clone()
    }

    pub(super) fn renewed(&self, now: Timestamp) {
        if let Some(lease) = &mut *lock(&self.lease) {
            lease.since = now;
        }
    }

    /// Returns once the worker is frozen.
    pub(super) async fn frozen(&self) {
        pass(&self.frozen).await;
    }

    pub(super) fn thaw(&self) {
        self.thawed.add_permits(1);
    }

    async fn freeze(&self) {
        self.frozen.add_permits(1);
        pass(&self.thawed).await;
    }

    /// Comes to a gate.
    pub(super) async fn gate(&self, gate: Gate) {
        let nth = self.pass(Place::Gate(gate));
        if self.plan.freeze == Some((gate, nth)) {
            self.freeze().await;
        }
    }

    /// Makes a write of which that goes wrong.
    async fn write<T>(
        &self,
        kind: Kind,
        write: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        let held_up = matches!(kind, Kind::HeldUp | Kind::HeldUpLonger);
        self.met_fault.store(!held_up, Ordering::SeqCst);
        match kind {
            Kind::NotApplied => Err(not_applied()),
            Kind::LostUnseen => Err(indeterminate()),
            Kind::AppliedUnseen => {
                write.await?;
                Err(indeterminate())
            }
            Kind::HeldUp | Kind::HeldUpLonger => {
                self.freeze().await;
                write.await
            }
        }
    }
}

async fn pass(gate: &Semaphore) {
    gate.acquire().await.expect("the gate is never closed").forget();
}

/// Who holds or held which run under which token, and what was written.
#[derive(Debug, Default)]
pub(super) struct Seats {
    by_lease: Mutex<BTreeMap<(RunId, Fence), Arc<Seat>>>,
    writes: Mutex<BTreeMap<Point, u32>>,
    fault: Mutex<Option<StoreFault>>,
}

impl Seats {
    fn take(&self, claim: &Claim, now: Timestamp) {
        let Some(seat) = current() else { return };
        let (run, fence) = (claim.run.id.clone(), claim.fence);
        *lock(&seat.lease) = Some(Lease { run: run.clone(), fence, since: now });
        lock(&self.by_lease).insert((run, fence), seat);
    }

    pub(super) fn of(&self, run: &RunId, fence: Fence) -> Option<Arc<Seat>> {
        lock(&self.by_lease).get(&(run.clone(), fence)).cloned()
    }

    /// The store fails at that write, counted from the beginning of the world.
    pub(super) fn arm(&self, fault: Option<StoreFault>) {
        *lock(&self.fault) = fault;
    }

    /// Counts a write; what goes wrong with it.
    fn count(&self, point: Point) -> Option<Kind> {
        let mut writes = lock(&self.writes);
        let made = writes.entry(point).or_default();
        *made += 1;
        let met = |fault: &StoreFault| fault.point == point && fault.nth == *made;
        lock(&self.fault).take_if(|fault| met(fault)).map(|fault| fault.kind)
    }

    pub(super) fn writes(&self) -> BTreeMap<Point, u32> {
        lock(&self.writes).clone()
    }
}

/// The attempt that an entry begins, if it begins one.
fn attempt(entry: &NewEntry) -> Option<(EffectId, u32)> {
    match &entry.content {
        Content::Effect { effect, event: EffectEvent::Requested(start) } => {
            Some((effect.clone(), start.attempt))
        }
        Content::Effect { .. } | Content::Run(_) => None,
    }
}

async fn written<T>(
    seat: Option<Arc<Seat>>,
    kind: Option<Kind>,
    write: impl Future<Output = Result<T, LedgerError>>,
) -> Result<T, LedgerError> {
    match (seat, kind) {
        (Some(seat), Some(kind)) => seat.write(kind, write).await,
        (_, None) | (None, _) => write.await,
    }
}

#[async_trait]
impl Between for Turntable {
    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.stage().ledger)
    }

    async fn start_run(&self, run: NewRun) -> Result<Started, LedgerError> {
        let stage = self.stage();
        let kind = stage.seats.count(Point::Start);
        let started = written(current(), kind, stage.ledger.start_run(run)).await?;
        if let Started::Created(Some(claim)) = &started {
            stage.seats.take(claim, stage.clock.now());
        }
        Ok(started)
    }

    async fn claim(
        &self,
        by: &ClaimBy,
        wanted: &Wanted,
        at: Timestamp,
    ) -> Result<ClaimOutcome, LedgerError> {
        let stage = self.stage();
        let kind = stage.seats.count(Point::Claim);
        let claim = async {
            let before = match wanted {
                Wanted::Run { id, .. } => stage.ledger.run(id).await?,
                Wanted::Turn(_) => None,
            };
            let outcome = stage.ledger.claim(by, wanted, at).await?;
            if let (Some(before), ClaimOutcome::Claimed(_)) = (before, &outcome)
                && before.lease_live
            {
                let what = format!("{} was taken while its lease was held", before.id);
                stage.breaks("I7", what);
            }
            Ok(outcome)
        };
        let outcome = written(current(), kind, claim).await?;
        if let ClaimOutcome::Claimed(claim) = &outcome {
            stage.seats.take(claim, stage.clock.now());
        }
        Ok(outcome)
    }

    async fn append(&self, append: Append) -> Result<Head, LedgerError> {
        let stage = self.stage();
        let (run, fence) = (append.run.clone(), append.fence);
        let kind = stage.seats.count(Point::of(&append));
        let attempts: Vec<(EffectId, u32)> = append.entries.iter().filter_map(attempt).collect();
        let made = i64::try_from(append.entries.len()).expect("they fit into memory");
        let write = async {
            let head = stage.ledger.append(append).await?;
            // Another worker may take the run right after the write, but not before it.
            let before = stage.ledger.history(&run, head.seq - made - 1, 1).await?;
            if let Some(newer) = before.iter().map(|entry| entry.fence).find(|at| *at > fence) {
                let what = format!("{run} was written to under {fence:?} after {newer:?}");
                stage.breaks("I7", what);
            }
            Ok(head)
        };
        // The write is a task of its own, which knows its worker only by the lease.
        let seat = stage.seats.of(&run, fence);
        let head = written(seat.clone(), kind, write).await?;
        if let Some(seat) = seat {
            lock(&seat.recorded).extend(attempts);
        }
        Ok(head)
    }
}
