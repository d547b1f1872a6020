//! Workers, a ledger and a provider in one thread, under a clock that stands still until it is moved. Workers vanish, are
//! frozen and wake up again; the store and the provider fail as they are told. Nothing here depends on real time or on
//! how threads are scheduled, so that a seed tells the whole story.
//!
//! What no end result shows is looked at as it happens: a request that leaves before its REQUESTED entry is durable (I3),
//! a write without the lease (I7).

pub mod crashes;
mod people;
pub mod provider;
pub mod row_count;
pub mod saga_schedules;
pub mod sagas;
pub mod schedule;
mod seat;
pub mod shapes;
pub mod sweep;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use twice::engine::boundary::{Boundaries, Boundary};
use twice::engine::family::descendants;
use twice::engine::observer::Silent;
use twice::engine::{Engine, EngineError, Parts, RunEnd, StartRun, StartedRun};
use twice_core::ids::{RunId, WorkerId};
use twice_core::redact::Redactor;
use twice_core::run::Priority;
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{Ledger, LedgerError, RunFilter};
use twice_workflow::model::Definition;

use self::provider::{Mood, Provider};
pub use self::seat::{Gate, Place};
use self::seat::{SEAT, Seat, Seats, current};
use crate::host::{
    LEASE_MS, Setup, Store, Vanished, definitions, open_ledger, register, run_id, sandbox,
};
use crate::invariants::{Books, Broken, Ended, check, holds, undone};
use crate::store::{Point, StoreFault, Watched};
use crate::tools::{Class, WINDOWS, Windows, for_each_within};

/// When every world begins. Milliseconds since 1970.
const EPOCH: i64 = 1_767_603_600_000;
/// How often a run is resumed at most until it must have ended.
const RESUMES_MAX: usize = 300;
/// How long a worker may take in real time before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a world's future on this thread alone.
///
/// # Panics
/// When there can be no runtime.
pub fn alone<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct StillClock(AtomicI64);

impl StillClock {
    /// Moves it.
    pub fn advance(&self, ms: u64) {
        let ms = i64::try_from(ms).expect("a test moves the clock by less than ages");
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// What is to become of a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// It vanishes when it passes that boundary for the nth time.
    pub vanish: Option<(Boundary, u32)>,
    /// It is frozen when it comes to that gate for the nth time.
    pub freeze: Option<(Gate, u32)>,
    /// The store fails at that write of its.
    pub fault: Option<StoreFault>,
}

/// What a worker does.
#[derive(Debug, Clone)]
pub enum Task {
    /// Starts a run, or goes on with it if it is started.
    Start(RunId, Value),
    /// Takes a run that is due, or waits.
    Resume(RunId),
}

/// What became of a worker.
#[derive(Debug)]
pub enum Came {
    /// It let go of its run.
    Ended(RunEnd),
    /// It vanished.
    Vanished,
    /// It is frozen.
    Frozen,
    /// It gave its run up, as the ledger failed.
    GaveUp(LedgerError),
}

/// What everything in a world shares.
struct Stage {
    clock: Arc<StillClock>,
    ledger: Arc<dyn Ledger>,
    provider: Provider,
    seats: Seats,
    broken: Mutex<Vec<(&'static str, String)>>,
}

impl Stage {
    fn breaks(&self, invariant: &'static str, what: String) {
        lock(&self.broken).push((invariant, what));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Zombie {
    seat: Arc<Seat>,
    task: JoinHandle<Result<RunEnd, EngineError>>,
}

/// What an executor stands on: the ledger, the provider and the clock of the world that is played now.
#[derive(Default)]
struct Turntable(Mutex<Option<Arc<Stage>>>);

impl Turntable {
    fn stage(&self) -> Arc<Stage> {
        lock(&self.0).clone().expect("a world is being played")
    }
}

impl Clock for Turntable {
    fn now(&self) -> Timestamp {
        self.stage().clock.now()
    }
}

/// Makes worlds, one after the other, which differ in everything but their workflow and what an executor keeps of that:
/// compiling it takes longer than playing a world. (An executor also remembers for a second which operations broke their
/// response schema; the tools here have none.)
pub struct Theatre {
    definition: Definition,
    engine: Arc<Engine>,
    turntable: Arc<Turntable>,
}

impl Theatre {
    /// For refunds by a tool of that class.
    #[must_use]
    pub fn new(class: Class) -> Self {
        Self::of(&for_each_within(class, Windows { horizon: "4h", ..WINDOWS }, ""))
    }

    /// For the only workflow of a project.
    #[must_use]
    pub fn of(setup: &Setup) -> Self {
        let turntable = Arc::new(Turntable::default());
        let engine = Engine::new(Parts {
            ledger: Arc::new(Watched(Arc::clone(&turntable))),
            sandbox: Arc::clone(sandbox()),
            drivers: Arc::<Turntable>::clone(&turntable),
            clock: Arc::<Turntable>::clone(&turntable),
            observer: Arc::new(Silent),
            boundaries: Boundaries::inject(|boundary| {
                if current().is_some_and(|seat| seat.vanishes_at(boundary)) {
                    std::panic::resume_unwind(Box::new(Vanished));
                }
            }),
            worker: WorkerId::parse("worker").expect("this is a worker id"),
            lease_ms: LEASE_MS,
        });
        let definition = definitions(&setup.files).swap_remove(0);
        Self { definition, engine: Arc::new(engine), turntable }
    }

    /// For the only workflow of another project, in the place of this: their worlds cannot be played at once.
    #[must_use]
    pub fn sharing(&self, setup: &Setup) -> Self {
        let definition = definitions(&setup.files).swap_remove(0);
        let (engine, turntable) = (Arc::clone(&self.engine), Arc::clone(&self.turntable));
        Self { definition, engine, turntable }
    }

    /// A new world, with a provider of that mood. The one before it is over.
    ///
    /// # Panics
    /// When something cannot be set up.
    pub async fn world(&self, store: Store, mood: Mood) -> World<'_> {
        let clock = Arc::new(StillClock(AtomicI64::new(EPOCH)));
        let dir = match store {
            Store::Memory => None,
            Store::Sqlite => Some(tempfile::tempdir().expect("a temporary folder can be made")),
        };
        let now = Arc::clone(&clock);
        let path = dir.as_ref().map_or(Path::new(""), TempDir::path);
        let redactor = Arc::new(RwLock::new(Redactor::default()));
        let ledger = open_ledger(store, path, Arc::new(move || now.now()), &redactor).await;
        register(&*ledger, clock.now()).await;
        let (digest, text) = (self.definition.digest(), self.definition.to_text());
        ledger.put_definition(&digest, &text).await.expect("the ledger takes the definition");
        for child in self.definition.descendants() {
            let put = ledger.put_definition(&child.digest, &child.definition.to_text()).await;
            put.expect("the ledger takes the definition");
        }
        let stage = Arc::new(Stage {
            clock,
            ledger,
            provider: Provider::new(mood),
            seats: Seats::default(),
            broken: Mutex::default(),
        });
        *lock(&self.turntable.0) = Some(Arc::clone(&stage));
        let (zombies, workers) = (Mutex::default(), Mutex::default());
        World { theatre: self, stage, zombies, workers, _dir: dir }
    }
}

/// Workers, their ledger and their provider.
pub struct World<'t> {
    theatre: &'t Theatre,
    stage: Arc<Stage>,
    zombies: Mutex<Vec<Zombie>>,
    /// Everyone who has worked, in order.
    workers: Mutex<Vec<Arc<Seat>>>,
    /// Where the ledger's file is, if it has one.
    _dir: Option<TempDir>,
}

impl World<'_> {
    /// Everyone's clock.
    #[must_use]
    pub fn clock(&self) -> &StillClock {
        &self.stage.clock
    }

    /// The ledger itself, which does not fail.
    #[must_use]
    pub fn ledger(&self) -> &dyn Ledger {
        &*self.stage.ledger
    }

    /// A worker does something, and what is planned for it happens to it.
    ///
    /// # Errors
    /// [`Broken`] when the executor cannot go on though nothing that it stands on failed.
    pub async fn work(&self, at: &str, task: Task, plan: Plan) -> Result<Came, Broken> {
        if let Some(fault) = plan.fault {
            let made = self.writes().get(&fault.point).copied().unwrap_or(0);
            self.stage.seats.arm(Some(StoreFault { nth: made + fault.nth, ..fault }));
        }
        let seat = Arc::new(Seat::new(plan));
        lock(&self.workers).push(Arc::clone(&seat));
        let engine = Arc::clone(&self.theatre.engine);
        let definition = self.theatre.definition.clone();
        let worker = async move {
            match task {
                Task::Resume(run) => engine.resume(&run, true).await,
                Task::Start(run, input) => {
                    let start = StartRun {
                        id: run.clone(),
                        caller_key: None,
                        input,
                        priority: Priority::default(),
                        claim: true,
                    };
                    match engine.start(&definition, start).await? {
                        StartedRun::Created(Some(held)) => engine.run_held(held).await,
                        StartedRun::Created(None) | StartedRun::Existing(_) => {
                            engine.resume(&run, true).await
                        }
                    }
                }
            }
        };
        let task = tokio::spawn(SEAT.scope(Arc::clone(&seat), worker));
        let came = self.watch(at, seat, task).await;
        if plan.fault.is_some() {
            self.stage.seats.arm(None);
        }
        came
    }

    /// The store fails at that write, counted from the beginning, whichever worker makes it.
    pub fn fail_at(&self, fault: StoreFault) {
        self.stage.seats.arm(Some(fault));
    }

    async fn watch(
        &self,
        at: &str,
        seat: Arc<Seat>,
        mut task: JoinHandle<Result<RunEnd, EngineError>>,
    ) -> Result<Came, Broken> {
        let joined = tokio::select! {
            biased;
            joined = &mut task => joined,
            () = seat.frozen() => {
                lock(&self.zombies).push(Zombie { seat, task });
                return Ok(Came::Frozen);
            }
            () = tokio::time::sleep(PATIENCE) => {
                task.abort();
                let what = "a worker does not come back".to_owned();
                return Err(Broken { invariant: "I11", at: at.to_owned(), what });
            }
        };
        match joined {
            Ok(Ok(end)) => Ok(Came::Ended(end)),
            Ok(Err(EngineError::Ledger(error))) if seat.met_fault() => Ok(Came::GaveUp(error)),
            Ok(Err(error)) => {
                let what = format!("the executor cannot go on: {error:?}");
                Err(Broken { invariant: "I11", at: at.to_owned(), what })
            }
            Err(error) => match error.try_into_panic().map(|panic| panic.downcast::<Vanished>()) {
                Ok(Ok(_)) => Ok(Came::Vanished),
                Ok(Err(other)) => std::panic::resume_unwind(other),
                Err(error) => panic!("nobody stops a worker: {error}"),
            },
        }
    }

    /// How often each worker, in the order in which they began, came to each place.
    #[must_use]
    pub fn passed(&self) -> Vec<BTreeMap<Place, u32>> {
        lock(&self.workers).iter().map(|seat| seat.passed()).collect()
    }

    /// How many workers are frozen.
    pub fn frozen(&self) -> usize {
        lock(&self.zombies).len()
    }

    /// Wakes the frozen worker of that number.
    ///
    /// # Errors
    /// As [`World::work`].
    ///
    /// # Panics
    /// When there is none.
    pub async fn thaw(&self, at: &str, number: usize) -> Result<Came, Broken> {
        let Zombie { seat, task } = lock(&self.zombies).remove(number);
        seat.thaw();
        self.watch(at, seat, task).await
    }

    /// Wakes every frozen worker, the longest frozen first.
    ///
    /// # Errors
    /// As [`World::work`].
    pub async fn thaw_all(&self, at: &str) -> Result<(), Broken> {
        while self.frozen() > 0 {
            self.thaw(at, 0).await?;
        }
        Ok(())
    }

    /// Lets a run go on, with workers to which nothing happens, until it has ended or waits for a person. Time passes as
    /// it has to.
    ///
    /// # Errors
    /// As [`World::work`], and when it does not come to an end.
    ///
    /// # Panics
    /// When the ledger cannot be read.
    pub async fn finish(&self, at: &str, run: &RunId, input: &Value) -> Result<RunEnd, Broken> {
        for _ in 0..RESUMES_MAX {
            let record = self.ledger().run(run).await.expect("the ledger can be read");
            if record.is_none() {
                self.work(at, Task::Start(run.clone(), input.clone()), Plan::default()).await?;
                continue;
            }
            let until = match self.standing(run).await {
                (end, None) => return Ok(end),
                (_, Some(until)) => until,
            };
            let open = descendants(self.ledger(), run).await.expect("the ledger can be read");
            for child in open {
                self.work(at, Task::Resume(child.id), Plan::default()).await?;
            }
            self.advance_to(until);
            self.work(at, Task::Resume(run.clone()), Plan::default()).await?;
        }
        let what = format!("resumed {RESUMES_MAX} times and not ended");
        Err(Broken { invariant: "I11", at: at.to_owned(), what })
    }

    /// How a run stands, and when it can go on by itself, if it can.
    async fn standing(&self, run: &RunId) -> (RunEnd, Option<Timestamp>) {
        let end = self.theatre.engine.standing(run).await;
        let end = end.unwrap_or_else(|error| panic!("the run exists: {error}"));
        let until = match &end {
            RunEnd::Waiting { until, .. } => Some(*until),
            RunEnd::Elsewhere => {
                let record = self.ledger().run(run).await.expect("the ledger can be read");
                let lease = record.and_then(|record| record.lease_until);
                Some(lease.unwrap_or(self.clock().now()).plus_ms(1))
            }
            RunEnd::Completed(_)
            | RunEnd::Failed { .. }
            | RunEnd::Cancelled { .. }
            | RunEnd::Stuck { .. }
            | RunEnd::Halted { .. }
            | RunEnd::Quarantined => None,
        };
        (end, until)
    }

    /// When a run can go on by itself, if it can.
    async fn due(&self, run: &RunId) -> Option<Timestamp> {
        self.standing(run).await.1
    }

    /// Moves everyone's clock to an instant, unless it is over.
    fn advance_to(&self, until: Timestamp) {
        self.clock().advance(until.ms_since(self.clock().now()));
    }

    /// Checks everything when nobody works any more: what was seen as it happened, what came of it, and that resuming once
    /// more changes nothing.
    ///
    /// # Errors
    /// [`Broken`], for the first invariant that does not hold.
    ///
    /// # Panics
    /// When the ledger cannot be read.
    pub async fn check(&self, at: &str, runs: &[RunId]) -> Result<Vec<Ended>, Broken> {
        // What arrived too late is still being written down.
        self.theatre.engine.settle_late().await;
        if let Some((invariant, what)) = lock(&self.stage.broken).first() {
            return Err(Broken { invariant, at: at.to_owned(), what: what.clone() });
        }
        let books = self.books();
        let runs = &self.with_descendants(runs).await;
        let ended = check(at, self.ledger(), &books, runs).await?;
        let workflow = &self.theatre.definition.workflow;
        ended.iter().try_for_each(|ended| undone::check(at, workflow, ended, &books))?;
        for run in runs {
            let before = self.ledger().head(run).await.expect("the run exists");
            self.work(at, Task::Resume(run.clone()), Plan::default()).await?;
            let after = self.ledger().head(run).await.expect("the run exists");
            holds(before == after, "I1", at, || format!("{run}: resuming once more wrote"))?;
        }
        let again = self.books();
        holds(books == again, "I1", at, || "resuming once more sent".to_owned())?;
        Ok(ended)
    }

    /// These runs, and all that they started.
    async fn with_descendants(&self, runs: &[RunId]) -> Vec<RunId> {
        let mut all = runs.to_vec();
        let mut at = 0;
        while at < all.len() {
            let filter = RunFilter { parent: Some(all[at].clone()), ..RunFilter::default() };
            let children = self.ledger().runs(&filter).await.expect("the ledger can be read");
            all.extend(children.into_iter().map(|child| child.id));
            at += 1;
        }
        all
    }

    /// What the provider did.
    #[must_use]
    pub fn books(&self) -> Books {
        self.stage.provider.books()
    }

    /// How often each write of the ledger was made so far.
    #[must_use]
    pub fn writes(&self) -> BTreeMap<Point, u32> {
        self.stage.seats.writes()
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        lock(&self.zombies).iter().for_each(|zombie| zombie.task.abort());
    }
}

/// The ids of so many runs.
#[must_use]
pub fn run_ids(count: u64) -> Vec<RunId> {
    (0..count).map(|number| run_id(&format!("run-{number}"))).collect()
}
