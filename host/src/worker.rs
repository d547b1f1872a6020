//! A worker: takes runs in turns and runs them, as many at a time as it may, until it is told to stop.
//!
//! It looks at the ledger, never at what it was told: notices and due times only say when to look again. Whatever is missed
//! costs the time to the next look.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use twice_core::ids::{Fence, Name, RunId};
use twice_core::limits::PAGE_MAX;
use twice_core::run::RunState;
use twice_ledger::{LedgerError, Notices, RunFilter, RunRecord, Turn};

use crate::engine::NEEDS_PERSON;
use crate::engine::{Engine, EngineError, HeldRun, RunEnd, Taken};

/// Longest time between two looks at the ledger, more or less.
const SCAN: Duration = Duration::from_secs(1);
/// Time between the looks that must all find nothing before there is taken to be nothing.
const IDLE_SCAN: Duration = Duration::from_millis(250);
/// Looks in a row that must find nothing: one may fall between another worker's steps.
const IDLE_LOOKS: u32 = 2;
/// Looks in a row after which runs that are due and cannot be taken are left: a worker that is frozen in mid-write holds
/// its run for seconds, one that cannot be read is never to be had.
const STUCK_LOOKS: u32 = 60;
/// The pause after the first failure of a kind; it doubles with each in a row.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// How often in a row one that ends when there is nothing more to do bears that the ledger cannot be asked: a connection that was
/// cut is made anew.
const TROUBLES_MAX: u32 = 3;
/// The longest pause before the ledger is tried again.
const LEDGER_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause before a run is tried again with which the executor cannot go on.
const RUN_PAUSE_MAX: Duration = Duration::from_secs(300);
/// How often letting a run go is tried while the database is away, which is a minute and a half; then its lease is over, and
/// whoever takes it counts a crash.
const LET_GO_TRIES: u32 = 20;
/// The longest pause between those.
const LET_GO_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Runs whose failures are remembered. More of them are only tried again sooner.
const FAILURES_MAX: usize = 4_096;

/// What a worker may do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most runs at a time.
    pub concurrency: NonZeroUsize,
    /// Most runs of a workflow at a time.
    pub per_workflow: BTreeMap<Name, NonZeroUsize>,
    /// Whether to end when nothing is due or running, and nothing will become due by itself.
    pub until_idle: bool,
}

/// What a worker tells of its work.
#[derive(Debug)]
pub enum Event<'a> {
    /// It took a run.
    Taken {
        /// Which.
        run: &'a RunId,
        /// Its workflow.
        workflow: &'a Name,
        /// Whether the worker before vanished with it.
        takeover: bool,
    },
    /// A run ended, waits, or has another worker.
    Left {
        /// Which.
        run: &'a RunId,
        /// Its workflow, if it was taken.
        workflow: Option<&'a Name>,
        /// How.
        end: &'a RunEnd,
    },
    /// A run is left to its lease.
    Lost {
        /// Which.
        run: &'a RunId,
        /// Its workflow.
        workflow: &'a Name,
        /// Why.
        why: &'a str,
    },
    /// The ledger failed; it is tried again.
    Trouble {
        /// How.
        why: &'a str,
        /// When.
        pause: Duration,
    },
}

/// Works until told to stop by a `true` in `stop`, or until idle if that is asked for. When told, it takes no more runs and
/// lets those under way come to their end or to their next step, where they are given back.
///
/// # Errors
/// When the ledger is closed; with `until_idle`, also when it fails.
pub async fn work(
    engine: &Arc<Engine>,
    options: &Options,
    stop: watch::Receiver<bool>,
    tell: &(dyn Fn(&Event<'_>) + Sync),
) -> Result<(), EngineError> {
    let worker = Worker {
        engine,
        options,
        stop,
        tell,
        notices: engine.ledger().notices(),
        tasks: JoinSet::new(),
        slots: HashMap::new(),
        turn: Turn::default(),
        failures: HashMap::new(),
    };
    worker.work().await
}

/// A run under way.
struct Slot {
    run: RunId,
    workflow: Name,
}

/// How a task ended.
enum Done {
    Left { end: RunEnd, failed: bool },
    Lost(String),
}

struct Worker<'a> {
    engine: &'a Arc<Engine>,
    options: &'a Options,
    stop: watch::Receiver<bool>,
    tell: &'a (dyn Fn(&Event<'_>) + Sync),
    notices: Notices,
    tasks: JoinSet<Done>,
    slots: HashMap<Id, Slot>,
    turn: Turn,
    /// How often in a row the executor could not go on with a run.
    failures: HashMap<RunId, u32>,
}

/// What there is to do next.
enum Next {
    /// Look again then.
    Look(Duration),
    /// Wait for a run to end.
    Wait,
    /// Nothing, for good.
    End,
}

impl Worker<'_> {
    async fn work(mut self) -> Result<(), EngineError> {
        let (mut trouble, mut idle) = (0, 0);
        loop {
            let next = match self.look(&mut idle).await {
                Ok(next) => {
                    trouble = 0;
                    next
                }
                Err(error)
                    if self.options.until_idle && trouble >= TROUBLES_MAX || is_closed(&error) =>
                {
                    while let Some(ended) = self.tasks.join_next_with_id().await {
                        self.ended(ended);
                    }
                    return Err(error);
                }
                Err(error) => {
                    let pause = doubled(trouble, LEDGER_PAUSE_MAX);
                    trouble += 1;
                    (self.tell)(&Event::Trouble { why: &chain(&error), pause });
                    Next::Look(pause)
                }
            };
            match next {
                Next::End => return Ok(()),
                Next::Wait => self.wait(None).await,
                Next::Look(pause) => self.wait(Some(pause)).await,
            }
        }
    }

    /// Takes what is due while a slot is free.
    async fn look(&mut self, idle: &mut u32) -> Result<Next, EngineError> {
        while !self.stops() {
            if self.tasks.len() >= self.options.concurrency.get() {
                return Ok(Next::Wait);
            }
            self.turn.not = self.at_their_limit();
            match self.engine.take_next(&self.turn).await? {
                Taken::Held(held) => self.begin(*held),
                Taken::Quarantined(run) => {
                    let end = RunEnd::Quarantined;
                    (self.tell)(&Event::Left { run: &run, workflow: None, end: &end });
                }
                Taken::Nothing => return self.nothing_is_due(idle).await,
            }
            *idle = 0;
        }
        Ok(if self.tasks.is_empty() { Next::End } else { Next::Wait })
    }

    async fn nothing_is_due(&mut self, idle: &mut u32) -> Result<Next, EngineError> {
        let next = self.engine.ledger().next_due_ms().await?.map(Duration::from_millis);
        let look = Next::Look(next.unwrap_or(SCAN).min(jittered(SCAN)));
        if !self.options.until_idle || !self.tasks.is_empty() {
            *idle = 0;
            return Ok(look);
        }
        let loads = self.engine.ledger().overview().await?.workflows;
        let under_way = loads.iter().any(|load| load.ready + load.running > 0);
        if next.is_some() && (under_way || self.some_wait().await?) {
            *idle = 0;
            return Ok(look);
        }
        *idle += 1;
        let stuck = loads.iter().any(|load| load.ready > 0);
        let looks = if stuck { STUCK_LOOKS } else { IDLE_LOOKS };
        Ok(if *idle < looks { Next::Look(IDLE_SCAN) } else { Next::End })
    }

    /// Whether a run waits that goes on by itself: not one that goes on sooner only when a person decides something, whoever left it
    /// so.
    async fn some_wait(&self) -> Result<bool, EngineError> {
        let mut filter =
            RunFilter { state: Some(RunState::Waiting), limit: PAGE_MAX, ..RunFilter::default() };
        let for_person =
            |run: &RunRecord| run.reason.as_ref().is_some_and(|why| why.starts_with(NEEDS_PERSON));
        loop {
            let page = self.engine.ledger().runs(&filter).await?;
            if !page.iter().all(for_person) {
                return Ok(true);
            }
            match page.last() {
                Some(last) if page.len() == PAGE_MAX as usize => {
                    filter.before = Some(last.id.clone());
                }
                Some(_) | None => return Ok(false),
            }
        }
    }

    fn stops(&self) -> bool {
        *self.stop.borrow()
    }

    fn at_their_limit(&self) -> Vec<Name> {
        let running =
            |name: &Name| self.slots.values().filter(|slot| slot.workflow == *name).count();
        let limits = self.options.per_workflow.iter();
        limits
            .filter(|(name, most)| running(name) >= most.get())
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn begin(&mut self, held: HeldRun) {
        let (run, workflow) = (held.record().id.clone(), held.record().workflow.clone());
        let takeover = held.record().crashes > 0;
        (self.tell)(&Event::Taken { run: &run, workflow: &workflow, takeover });
        self.turn.after = Some(workflow.clone());
        let failures = self.failures.get(&run).copied().unwrap_or(0);
        let task = self.tasks.spawn(run_one(Arc::clone(self.engine), held, failures));
        self.slots.insert(task.id(), Slot { run, workflow });
    }

    /// Waits until a run ends, the worker is to stop, or it is time to look again.
    async fn wait(&mut self, pause: Option<Duration>) {
        let stops = self.stops();
        if stops && pause.is_some() {
            return;
        }
        let stop = &mut self.stop;
        let told_to_stop = async {
            if stop.wait_for(|stop| *stop).await.is_err() {
                // Nobody is left who could tell it to stop: it works on.
                std::future::pending::<()>().await;
            }
        };
        let look_again = async {
            match pause {
                Some(pause) => {
                    // A notice that comes earlier than the pause is over is one more reason to look.
                    let _ = timeout(pause, self.notices.heard()).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
            () = told_to_stop, if !stops => {}
            () = look_again => {}
        }
    }

    fn ended(&mut self, ended: Result<(Id, Done), JoinError>) {
        let (id, done) = match ended {
            Ok((id, done)) => (id, done),
            Err(error) => (error.id(), Done::Lost(format!("its task ended: {error}"))),
        };
        let Some(Slot { run, workflow }) = self.slots.remove(&id) else { return };
        match done {
            Done::Left { end, failed } => {
                if !failed {
                    self.failures.remove(&run);
                } else if self.failures.len() < FAILURES_MAX || self.failures.contains_key(&run) {
                    *self.failures.entry(run.clone()).or_default() += 1;
                }
                (self.tell)(&Event::Left { run: &run, workflow: Some(&workflow), end: &end });
            }
            Done::Lost(why) => {
                (self.tell)(&Event::Lost { run: &run, workflow: &workflow, why: &why });
            }
        }
    }
}

/// Runs a run; one with which the executor cannot go on is let go, so that it neither keeps its slot nor counts as a crash.
async fn run_one(engine: Arc<Engine>, held: HeldRun, failures: u32) -> Done {
    let (run, fence) = (held.record().id.clone(), held.fence());
    match engine.run_held(held).await {
        Ok(end) => Done::Left { end, failed: false },
        Err(error) => let_go(&engine, &run, fence, &error, failures).await,
    }
}

async fn let_go(
    engine: &Engine,
    run: &RunId,
    fence: Fence,
    error: &EngineError,
    failures: u32,
) -> Done {
    let why = format!("its worker could not go on with it: {}", chain(error));
    let pause_ms = u64::try_from(doubled(failures, RUN_PAUSE_MAX).as_millis()).unwrap_or(u64::MAX);
    let mut tried = 0;
    loop {
        match engine.let_go(run, fence, &why, pause_ms).await {
            Ok(end) => return Done::Left { end, failed: true },
            Err(problem) => {
                tried += 1;
                if tried == LET_GO_TRIES || !is_away(&problem) {
                    return Done::Lost(format!(
                        "{why}; and it could not be let go: {}",
                        chain(&problem)
                    ));
                }
                sleep(doubled(tried - 1, LET_GO_PAUSE_MAX)).await;
            }
        }
    }
}

const fn is_closed(error: &EngineError) -> bool {
    matches!(error, EngineError::Ledger(LedgerError::Closed))
}

/// Whether the ledger may be there again later.
const fn is_away(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Ledger(LedgerError::NotApplied { .. } | LedgerError::Indeterminate { .. })
    )
}

fn doubled(times: u32, longest: Duration) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << times.min(16)).min(longest)
}

/// Three to five quarters of it, so that workers which were started at once do not look at once for ever.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [128_u8];
    // Without randomness they do.
    let _ = getrandom::fill(&mut byte);
    pause * (384 + u32::from(byte[0])) / 512
}

/// An error with its causes.
fn chain(error: &EngineError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
