//! An executor in this process, on a ledger of its own and against a simulated provider, with a clock that a test moves:
//! windows of hours pass in milliseconds, and in step for the executor, its ledger and the provider.

mod setup;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinError;
use twice::engine::NEEDS_PERSON;
use twice::engine::boundary::{Boundaries, Boundary};
use twice::engine::observer::Silent;
use twice::engine::{Engine, EngineError, Parts, Performer, RunEnd, StartRun, StartedRun};
use twice::tool::Drivers;
use twice::tool::http::{HttpConfig, HttpDriver};
use twice::tool::secret::FixedSecrets;
use twice_core::chain::{self, Content, Entry};
use twice_core::effect::Effect;
use twice_core::event::{EffectEvent, RunEvent};
use twice_core::ids::{EffectId, RunId, WorkerId};
use twice_core::redact::Redactor;
use twice_core::run::Priority;
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{EffectFilter, EffectRow, Ledger, RunFilter, RunRecord};
use twice_provider_sim::{OperationCounters, Sim, SimConfig};
use twice_workflow::model::Definition;

pub use setup::{MovableClock, Setup, Store};
pub(crate) use setup::{definitions, open_ledger, register, sandbox};

/// The provider's credential, as the tools refer to it (`env:API_KEY`).
pub const API_KEY: &str = "canary-provider-key-0123456789";
/// The length of a lease. Milliseconds; the clock of the ledger moves only as the test says, so it can be long.
pub const LEASE_MS: u64 = 30_000;
/// How often [`Host::finish`] resumes a run at most.
const RESUMES_MAX: usize = 300;

/// How time passes while a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The clocks are moved to the instant at which the run is due.
    Jump,
    /// As it does: for providers that are slow in real time.
    Real,
}

/// An executor with everything around it.
pub struct Host {
    /// The provider.
    pub sim: Sim,
    /// The executor's and the ledger's clock.
    pub clock: Arc<MovableClock>,
    /// The executor.
    pub engine: Engine,
    /// Where everything is recorded.
    pub ledger: Arc<dyn Ledger>,
    definitions: Vec<Definition>,
    drivers: Arc<Performer>,
    workers: AtomicU32,
    dir: TempDir,
}

impl Host {
    /// Starts everything.
    ///
    /// # Panics
    /// When something cannot be started, or the project has errors.
    pub async fn start(setup: Setup) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let sim = Sim::start(SimConfig {
            api_key: Some(API_KEY.to_owned()),
            switches: setup.switches,
            ..SimConfig::new(dir.path().join("provider.db"))
        })
        .await
        .expect("the simulator starts");
        let clock = Arc::new(MovableClock::default());
        let redactor = Arc::new(RwLock::new(Redactor::default()));
        let now = Arc::clone(&clock);
        let now = Arc::new(move || now.now());
        let ledger = open_ledger(setup.store, dir.path(), now, &redactor).await;
        register(ledger.as_ref(), clock.now()).await;
        let definitions = definitions(&setup.files);
        let secrets = FixedSecrets::new([
            ("env:PROVIDER_URL".to_owned(), sim.url()),
            ("env:API_KEY".to_owned(), API_KEY.to_owned()),
        ]);
        let http = HttpDriver::new(HttpConfig {
            secrets: Arc::new(secrets),
            redactor,
            root: dir.path().to_owned(),
        });
        let drivers: Arc<Performer> = Arc::new(Drivers::new(http));
        let drivers = match &setup.wrap {
            Some(wrap) => wrap(drivers, Arc::clone(&ledger)),
            None => drivers,
        };
        let workers = AtomicU32::new(0);
        let engine = engine(&ledger, &drivers, &clock, &workers, Boundaries::none());
        Self { sim, clock, engine, ledger, definitions, drivers, workers, dir }
    }

    /// A fresh executor, as after a restart of the process: another worker, nothing in memory.
    #[must_use]
    pub fn another(&self, boundaries: Boundaries) -> Engine {
        engine(&self.ledger, &self.drivers, &self.clock, &self.workers, boundaries)
    }

    /// The same on a machine whose clock is wrong, by so much. Milliseconds; the ledger's is right.
    #[must_use]
    pub fn another_off_by(&self, ms: i64) -> Engine {
        let clock = Arc::new(MovableClock::off_by(ms));
        engine(&self.ledger, &self.drivers, &clock, &self.workers, Boundaries::none())
    }

    /// The folder that goes with the host.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a run of a workflow and runs it until it waits or ends.
    ///
    /// # Panics
    /// When there is no such workflow, the run exists, or the executor fails.
    pub async fn run_of(&self, workflow: &str, id: &str, input: Value) -> RunEnd {
        self.try_run_of(&self.engine, workflow, id, input).await.expect("the executor can go on")
    }

    /// As [`Host::run_of`], of the first workflow.
    ///
    /// # Panics
    /// As [`Host::run_of`].
    pub async fn run(&self, id: &str, input: Value) -> RunEnd {
        let workflow = self.definitions[0].workflow.name.to_string();
        self.run_of(&workflow, id, input).await
    }

    /// As [`Host::run_of`], by another executor of this host.
    ///
    /// # Errors
    /// What stopped the executor.
    ///
    /// # Panics
    /// When there is no such workflow, or the run exists.
    pub async fn try_run_of(
        &self,
        engine: &Engine,
        workflow: &str,
        id: &str,
        input: Value,
    ) -> Result<RunEnd, EngineError> {
        let definition = self.definition(workflow);
        let start = StartRun {
            id: run_id(id),
            caller_key: None,
            input,
            priority: Priority::default(),
            claim: true,
        };
        match engine.start(definition, start).await? {
            StartedRun::Created(Some(held)) => engine.run_held(held).await,
            StartedRun::Created(None) => panic!("the run was to be claimed"),
            StartedRun::Existing(_) => panic!("run {id} exists"),
        }
    }

    /// A workflow with everything it is pinned to.
    ///
    /// # Panics
    /// When there is none of that name.
    #[must_use]
    pub fn definition(&self, workflow: &str) -> &Definition {
        self.definitions
            .iter()
            .find(|found| found.workflow.name.as_str() == workflow)
            .unwrap_or_else(|| panic!("no workflow is named {workflow}"))
    }

    /// Resumes a run whenever it is due until it completes, fails, halts, or was resumed too often.
    ///
    /// # Panics
    /// When the executor fails.
    pub async fn finish(&self, id: &str, pace: Pace) -> RunEnd {
        let id = run_id(id);
        let mut end = self.engine.standing(&id).await.expect("the run exists");
        for _ in 0..RESUMES_MAX {
            let Some(until) = self.goes_on(&id, &end).await else { return end };
            self.pass_until(until, pace).await;
            end = self.engine.resume(&id, false).await.expect("the executor can go on");
        }
        end
    }

    /// As [`Host::finish`], with the runs that it starts, which are taken by the same executor.
    ///
    /// # Panics
    /// When the executor fails.
    pub async fn finish_family(&self, id: &str) -> RunEnd {
        let id = run_id(id);
        let mut end = self.engine.standing(&id).await.expect("the run exists");
        for _ in 0..RESUMES_MAX {
            let Some(until) = self.goes_on(&id, &end).await else { return end };
            let others = self.engine.resume_descendants(&id, false).await;
            let others = others.expect("the executor can go on");
            let blocked = |end: &RunEnd| matches!(end, RunEnd::Waiting { why, .. } if why.starts_with(NEEDS_PERSON));
            if others.taken == 0 {
                if blocked(&end) && others.due.is_none() {
                    return end;
                }
                let due = others.due.map_or(until, |due| due.plus_ms(1).min(until));
                self.pass_until(due, Pace::Jump).await;
            }
            end = self.engine.resume(&id, false).await.expect("the executor can go on");
        }
        end
    }

    /// The runs that a run started, in the order of their ids.
    ///
    /// # Panics
    /// When the ledger cannot be read.
    pub async fn children(&self, id: &str) -> Vec<RunRecord> {
        let filter = RunFilter { parent: Some(run_id(id)), ..RunFilter::default() };
        let mut found = self.ledger.runs(&filter).await.expect("the ledger can be read");
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }

    /// Starts a run and finishes it.
    ///
    /// # Panics
    /// As [`Host::run_of`].
    pub async fn run_and_finish(&self, id: &str, input: Value, pace: Pace) -> RunEnd {
        match self.run(id, input).await {
            RunEnd::Waiting { .. } => self.finish(id, pace).await,
            end => end,
        }
    }

    /// Starts a run and lets its worker vanish when it passes a boundary for the `nth` time; true if it got that far.
    ///
    /// # Panics
    /// As [`Host::run_of`].
    pub async fn crash_run(
        self: &Arc<Self>,
        id: &str,
        input: Value,
        boundary: Boundary,
        nth: u32,
    ) -> bool {
        let host = Arc::clone(self);
        let id = id.to_owned();
        let task = tokio::spawn(async move {
            let engine = host.another(vanish_at(boundary, nth));
            let workflow = host.definitions[0].workflow.name.to_string();
            host.try_run_of(&engine, &workflow, &id, input).await
        });
        vanished(task.await)
    }

    /// As [`Host::crash_run`], with a run that exists and is resumed.
    ///
    /// # Panics
    /// When the executor fails.
    pub async fn crash_resume(self: &Arc<Self>, id: &str, boundary: Boundary, nth: u32) -> bool {
        let host = Arc::clone(self);
        let id = run_id(id);
        let task =
            tokio::spawn(
                async move { host.another(vanish_at(boundary, nth)).resume(&id, true).await },
            );
        vanished(task.await)
    }

    /// Resumes a run now, due or not.
    ///
    /// # Panics
    /// When the executor fails.
    pub async fn resume(&self, id: &str) -> RunEnd {
        self.engine.resume(&run_id(id), true).await.expect("the executor can go on")
    }

    /// Takes a run on that is due, and finishes it.
    ///
    /// # Panics
    /// When the executor fails.
    pub async fn finish_due(&self, id: &str) -> RunEnd {
        self.engine.resume(&run_id(id), false).await.expect("the executor can go on");
        self.finish(id, Pace::Jump).await
    }

    /// As [`Host::finish_due`], until it ends or goes on only when a person decides something.
    ///
    /// # Panics
    /// When the executor fails.
    pub async fn finish_due_blocked(&self, id: &str) -> RunEnd {
        let run = run_id(id);
        let mut end = self.engine.resume(&run, false).await.expect("the executor can go on");
        for _ in 0..RESUMES_MAX {
            let RunEnd::Waiting { until, why } = &end else { break };
            if why.starts_with(NEEDS_PERSON) {
                break;
            }
            self.pass_until(*until, Pace::Jump).await;
            end = self.engine.resume(&run, false).await.expect("the executor can go on");
        }
        end
    }

    /// Moves every clock forward.
    ///
    /// # Panics
    /// When the simulator cannot be told.
    pub async fn advance(&self, ms: u64) {
        let ms = i64::try_from(ms).expect("a test moves the clock by less than ages");
        // The provider's first: for a moment it is ahead of us, never behind, so that no window of ours is over early.
        self.sim.advance_clock(ms).await.expect("the simulator's clock can be moved");
        self.clock.advance(ms);
    }

    /// Moves every clock over the end of a lease that nobody renews any more.
    pub async fn outlive_lease(&self) {
        self.advance(LEASE_MS + 1).await;
    }

    async fn pass_until(&self, until: Timestamp, pace: Pace) {
        let ms = until.ms_since(self.clock.now());
        match pace {
            Pace::Jump => self.advance(ms).await,
            Pace::Real => tokio::time::sleep(Duration::from_millis(ms + 1)).await,
        }
    }

    /// When a run goes on that came to this, if it does.
    async fn goes_on(&self, id: &RunId, end: &RunEnd) -> Option<Timestamp> {
        match end {
            RunEnd::Waiting { until, .. } => Some(*until),
            RunEnd::Elsewhere => Some(self.lease_end(id).await),
            RunEnd::Completed(_)
            | RunEnd::Failed { .. }
            | RunEnd::Cancelled { .. }
            | RunEnd::Stuck { .. }
            | RunEnd::Halted { .. }
            | RunEnd::Quarantined => None,
        }
    }

    async fn lease_end(&self, id: &RunId) -> Timestamp {
        let record = self.ledger.run(id).await.expect("the ledger can be read");
        record.and_then(|run| run.lease_until).unwrap_or(self.clock.now()).plus_ms(1)
    }

    /// The entries of a run, after its chain was verified.
    ///
    /// # Panics
    /// When the chain is broken.
    pub async fn history(&self, id: &str) -> Vec<Entry> {
        let run = run_id(id);
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map_or(0, |entry| entry.seq);
            let page = self.ledger.history(&run, after, 0).await.expect("the ledger can be read");
            if page.is_empty() {
                break;
            }
            entries.extend(page);
        }
        let head = chain::verify(&run, &entries).unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!(head, self.ledger.head(&run).await.expect("the run exists"));
        entries
    }

    /// What the entries of a run say.
    ///
    /// # Panics
    /// As [`Host::history`].
    pub async fn contents(&self, id: &str) -> Vec<Content> {
        let entries = self.history(id).await;
        entries.iter().map(|entry| entry.content().expect("a verified entry is readable")).collect()
    }

    /// What happened to the run itself.
    ///
    /// # Panics
    /// As [`Host::history`].
    pub async fn run_events(&self, id: &str) -> Vec<RunEvent> {
        let of_run = |content| match content {
            Content::Run(event) => Some(event),
            Content::Effect { .. } => None,
        };
        self.contents(id).await.into_iter().filter_map(of_run).collect()
    }

    /// What happened to the effects of a run.
    ///
    /// # Panics
    /// As [`Host::history`].
    pub async fn effect_events(&self, id: &str) -> Vec<(EffectId, EffectEvent)> {
        let of_effect = |content| match content {
            Content::Effect { effect, event } => Some((effect, event)),
            Content::Run(_) => None,
        };
        self.contents(id).await.into_iter().filter_map(of_effect).collect()
    }

    /// The effects of a run as they are listed.
    ///
    /// # Panics
    /// When the ledger cannot be read.
    pub async fn listed(&self, id: &str) -> Vec<EffectRow> {
        let filter = EffectFilter { run: Some(run_id(id)), ..EffectFilter::default() };
        self.ledger.effects(&filter).await.expect("the ledger can be read")
    }

    /// The effects of a run, whole, in the order of their readable keys.
    ///
    /// # Panics
    /// When the ledger cannot be read.
    pub async fn effects(&self, id: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for row in self.listed(id).await {
            let effect = self.ledger.effect(&row.id).await.expect("the ledger can be read");
            effects.push(effect.expect("a listed effect exists"));
        }
        effects.sort_by(|a, b| a.proposal.idempotency_key.cmp(&b.proposal.idempotency_key));
        effects
    }

    /// The only effect of a run.
    ///
    /// # Panics
    /// When there is none, or more.
    pub async fn effect(&self, id: &str) -> Effect {
        let mut effects = self.effects(id).await;
        assert_eq!(effects.len(), 1, "run {id} has {} effects", effects.len());
        effects.remove(0)
    }

    /// What the provider counted of an operation.
    ///
    /// # Panics
    /// When the simulator cannot be read.
    pub async fn counted(&self, operation: &str) -> OperationCounters {
        let counters = self.sim.counters().await.expect("the simulator can be read");
        counters.operations.get(operation).cloned().unwrap_or_default()
    }

    /// Waits until the provider has committed so many effects of an operation.
    ///
    /// # Panics
    /// When it has not within half a minute.
    pub async fn committed(&self, operation: &str, count: u64) {
        let wait_for = twice_provider_sim::WaitFor::Committed;
        let patience = Duration::from_secs(30);
        let seen = self.sim.wait(wait_for, count, Some(operation), patience).await;
        assert!(
            seen.expect("the simulator can be read"),
            "{operation} was not committed {count} times"
        );
    }
}

/// A run id.
///
/// # Panics
/// When the text is none.
#[must_use]
pub fn run_id(text: &str) -> RunId {
    RunId::parse(text).expect("a test gives a valid run id")
}

/// The input that makes the conformance node do these steps, with more members beside them.
///
/// # Panics
/// When `more` is not an object.
#[must_use]
pub fn steps(more: Value, steps: Vec<Value>) -> Value {
    let mut input = more;
    input.as_object_mut().expect("more is an object").insert("steps".to_owned(), json!(steps));
    input
}

/// What a worker unwinds with when it is to vanish.
pub(crate) struct Vanished;

/// A worker that is gone when it passes that boundary for the `nth` time: whatever it held in memory is lost, and its
/// lease is neither renewed nor returned.
fn vanish_at(at: Boundary, nth: u32) -> Boundaries {
    let passed = AtomicU32::new(0);
    Boundaries::inject(move |boundary| {
        if boundary == at && passed.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            std::panic::resume_unwind(Box::new(Vanished));
        }
    })
}

/// Whether a worker vanished as it was told; anything else that goes wrong is passed on.
fn vanished(ended: Result<Result<RunEnd, EngineError>, JoinError>) -> bool {
    match ended {
        Ok(end) => {
            end.expect("the executor can go on");
            false
        }
        Err(error) => match error.into_panic().downcast::<Vanished>() {
            Ok(_) => true,
            Err(other) => std::panic::resume_unwind(other),
        },
    }
}

fn engine(
    ledger: &Arc<dyn Ledger>,
    drivers: &Arc<Performer>,
    clock: &Arc<MovableClock>,
    workers: &AtomicU32,
    boundaries: Boundaries,
) -> Engine {
    let number = workers.fetch_add(1, Ordering::SeqCst);
    Engine::new(Parts {
        ledger: Arc::clone(ledger),
        sandbox: Arc::clone(sandbox()),
        drivers: Arc::clone(drivers),
        clock: Arc::<MovableClock>::clone(clock),
        observer: Arc::new(Silent),
        boundaries,
        worker: WorkerId::parse(format!("worker-{number}")).expect("this is a worker id"),
        lease_ms: LEASE_MS,
    })
}
