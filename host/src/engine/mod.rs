//! The executor: claims runs, runs their steps, and does what the rules in `twice-core` say about their effects. It owns
//! no rules itself.

pub mod boundary;
mod circuit;
pub mod compiled;
mod drive;
mod durable;
mod error;
mod gateway;
mod late;
pub mod lease;
pub mod observer;
pub mod operator;
mod resolve;
mod session;
mod step;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value;
use twice_core::chain::{Content, NewEntry};
use twice_core::event::RunEvent;
use twice_core::identity::IDENTITY_ALG;
use twice_core::ids::{Fence, Name, RunId, WorkerId};
use twice_core::run::RunState;
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{
    Append, Claim, ClaimBy, ClaimOutcome, Ledger, LedgerError, NewRun, RunChange, RunRecord,
    Started,
};
use twice_sandbox::{Component, Sandbox};
use twice_workflow::model::Definition;

pub use drive::Stop;
pub use error::EngineError;

use self::boundary::{Boundaries, Boundary};
use self::circuit::Circuits;
use self::compiled::{Compiled, CompiledNode, CompiledSlot};
use self::late::Late;
use self::lease::{Heartbeat, LeaseClock};
use self::observer::{Observer, Progress};
use self::session::Session;
use self::step::{StepContext, StepEnd};
use crate::tool::{AnyRequest, Driver, PrepareError};

/// What performs effects: the drivers of all kinds of tools behind one object.
pub type Performer = dyn Driver<Request = AnyRequest>;

/// Everything an executor is made of.
pub struct Parts {
    /// Where everything is recorded.
    pub ledger: Arc<dyn Ledger>,
    /// What runs components.
    pub sandbox: Arc<Sandbox>,
    /// What performs effects.
    pub drivers: Arc<Performer>,
    /// The host's clock.
    pub clock: Arc<dyn Clock>,
    /// Whoever watches.
    pub observer: Arc<dyn Observer>,
    /// Where crashes are injected.
    pub boundaries: Boundaries,
    /// This process, as the ledger knows it.
    pub worker: WorkerId,
    /// The length of a lease. Milliseconds.
    pub lease_ms: u64,
}

/// The executor.
pub struct Engine {
    parts: Parts,
    compiled: Mutex<HashMap<String, Arc<Compiled>>>,
    components: Mutex<HashMap<String, Component>>,
    circuits: Arc<Circuits>,
    late: Arc<Late>,
    /// Definitions that the ledger is known to have, with their digests; the newest last.
    pinned: Mutex<Vec<Arc<(Definition, String)>>>,
}

/// How many definitions are remembered as stored.
const PINNED_MAX: usize = 16;

/// How a run stands when the executor lets go of it.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    /// Every node is done.
    Completed(Value),
    /// It failed for good.
    Failed {
        /// Why.
        why: String,
    },
    /// It waits for an instant.
    Waiting {
        /// When it is due.
        until: Timestamp,
        /// Why.
        why: String,
    },
    /// It waits for a person.
    Halted {
        /// Why, and what to do.
        why: String,
    },
    /// It killed too many workers.
    Quarantined,
    /// Another worker holds it, or took it.
    Elsewhere,
}

/// A run to start.
#[derive(Debug, Clone)]
pub struct StartRun {
    /// Its id.
    pub id: RunId,
    /// The caller's own key.
    pub caller_key: Option<String>,
    /// Its input, strictly parsed and checked by the workflow's schema.
    pub input: Value,
    /// Whether to claim it in the same transaction.
    pub claim: bool,
}

/// A run that was started, or found started.
pub enum StartedRun {
    /// It is new.
    Created(Option<HeldRun>),
    /// It was started before with the same workflow and input.
    Existing(RunRecord),
}

/// What the reason of a run begins with that waits to start a step again; how the step failed follows.
pub const RESTARTED: &str = "a step is started again after its backoff";

/// A claimed run, to be handed to [`Engine::run_held`].
pub struct HeldRun {
    claim: Claim,
    lease: Arc<LeaseClock>,
    created_now: bool,
}

impl Engine {
    /// The executor made of `parts`.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            late: Late::new(Arc::clone(&parts.ledger), Arc::clone(&parts.clock)),
            parts,
            compiled: Mutex::new(HashMap::new()),
            components: Mutex::new(HashMap::new()),
            circuits: Arc::default(),
            pinned: Mutex::new(Vec::new()),
        }
    }

    /// The ledger it records in.
    #[must_use]
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.parts.ledger
    }

    /// Whether a request is still under way, or an answer that came too late is being kept.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.late.is_busy()
    }

    /// Returns when no request is under way any more, and every answer that came too late for its run is kept in the ledger.
    /// Each request has a time of its own, so this returns at some time. A process that ends earlier loses those answers;
    /// their effects are UNKNOWN either way.
    pub async fn settle_late(&self) {
        self.late.settled().await;
    }

    /// Starts a run under a definition, which is pinned with it (I9).
    ///
    /// # Errors
    /// [`EngineError::Ledger`], with `RunConflict` when the id or key belongs to another run;
    /// [`EngineError::HoldsSecret`].
    pub async fn start(
        &self,
        definition: &Definition,
        run: StartRun,
    ) -> Result<StartedRun, EngineError> {
        self.learn_secrets(definition);
        self.refuse_secret("the run's input", &run.input)?;
        self.refuse_secret("the run's id", &Value::from(run.id.as_str()))?;
        self.refuse_secret("the run's key", &Value::from(run.caller_key.clone()))?;
        let digest = self.pin(definition).await?;
        let event = RunEvent::Started {
            workflow: definition.workflow.name.clone(),
            version: definition.workflow.version,
            definition: digest.clone(),
            input: run.input.clone(),
            identity_alg: IDENTITY_ALG,
        };
        let asked = Instant::now();
        let new = NewRun {
            id: run.id,
            caller_key: run.caller_key,
            workflow: definition.workflow.name.clone(),
            definition: digest,
            input: run.input,
            entry: NewEntry { content: Content::Run(event), at: self.parts.clock.now() },
            claim: run.claim.then(|| self.claim_by()),
        };
        Ok(match self.parts.ledger.start_run(new).await? {
            Started::Created(claim) => {
                StartedRun::Created(claim.map(|claim| self.held(claim, asked, true)))
            }
            Started::Existing(record) => StartedRun::Existing(record),
        })
    }

    /// Stores a definition unless it is known to be stored; returns its digest. Definitions are never deleted.
    async fn pin(&self, definition: &Definition) -> Result<String, EngineError> {
        let known = lock(&self.pinned).iter().find(|known| known.0 == *definition).cloned();
        if let Some(known) = known {
            return Ok(known.1.clone());
        }
        let digest = definition.digest();
        self.parts.ledger.put_definition(&digest, &definition.to_text()).await?;
        let mut pinned = lock(&self.pinned);
        if pinned.len() == PINNED_MAX {
            pinned.remove(0);
        }
        pinned.push(Arc::new((definition.clone(), digest.clone())));
        Ok(digest)
    }

    /// Reads the secrets of a definition's tools, so that what is recorded and shown from now on is kept clean of them.
    pub fn learn_secrets(&self, definition: &Definition) {
        definition.tools.values().for_each(|tool| self.parts.drivers.learn_secrets(tool));
    }

    /// What this worker lacks to perform a definition's effects, each with the fix. Nothing is asked of a provider.
    #[must_use]
    pub fn missing_settings(&self, definition: &Definition) -> Vec<PrepareError> {
        let tools = definition.tools.values();
        tools.flat_map(|tool| self.parts.drivers.missing_settings(tool)).collect()
    }

    /// I10: what a person hands in is refused rather than changed.
    fn refuse_secret(&self, what: &'static str, value: &Value) -> Result<(), EngineError> {
        if self.parts.drivers.holds_secret(value) {
            return Err(EngineError::HoldsSecret { what });
        }
        Ok(())
    }

    /// Takes a run and runs it until it waits or ends. `early` takes a waiting run before it is due.
    ///
    /// # Errors
    /// [`EngineError`] when the executor itself cannot go on; the run is unharmed.
    pub async fn resume(&self, id: &RunId, early: bool) -> Result<RunEnd, EngineError> {
        let asked = Instant::now();
        let now = self.parts.clock.now();
        match self.parts.ledger.claim(&self.claim_by(), Some(id), early, now).await? {
            ClaimOutcome::Claimed(claim) => self.run_held(self.held(*claim, asked, false)).await,
            ClaimOutcome::Quarantined(_) => Ok(RunEnd::Quarantined),
            ClaimOutcome::Nothing => self.standing(id).await,
        }
    }

    /// Takes the run that has been due longest, if any is due, and runs it.
    ///
    /// # Errors
    /// As [`Engine::resume`].
    pub async fn run_next(&self) -> Result<Option<(RunId, RunEnd)>, EngineError> {
        let asked = Instant::now();
        let now = self.parts.clock.now();
        match self.parts.ledger.claim(&self.claim_by(), None, false, now).await? {
            ClaimOutcome::Claimed(claim) => {
                let id = claim.run.id.clone();
                let end = self.run_held(self.held(*claim, asked, false)).await?;
                Ok(Some((id, end)))
            }
            ClaimOutcome::Quarantined(id) => Ok(Some((id, RunEnd::Quarantined))),
            ClaimOutcome::Nothing => Ok(None),
        }
    }

    /// How a run stands, by its record.
    ///
    /// # Errors
    /// [`EngineError::Ledger`], with `Absent` when there is no such run.
    pub async fn standing(&self, id: &RunId) -> Result<RunEnd, EngineError> {
        let record = self
            .parts
            .ledger
            .run(id)
            .await?
            .ok_or_else(|| LedgerError::Absent { what: "run", id: id.to_string() })?;
        let why = record.reason.clone().unwrap_or_default();
        Ok(match record.state {
            RunState::Completed => RunEnd::Completed(record.output.unwrap_or(Value::Null)),
            RunState::Failed => RunEnd::Failed { why },
            RunState::Halted => RunEnd::Halted { why },
            RunState::Quarantined => RunEnd::Quarantined,
            RunState::Waiting | RunState::Ready => {
                RunEnd::Waiting { until: record.due_at.unwrap_or(record.updated_at), why }
            }
            RunState::Running => RunEnd::Elsewhere,
        })
    }

    /// Gives a run back that this executor was running and whose future was dropped: it waits, due at once, instead of until
    /// its lease has run out. To be called when [`Engine::settle_late`] has returned, so that nothing of it is still being
    /// written. A run that is over, waits, or has another worker stays as it is.
    ///
    /// # Errors
    /// [`EngineError::Ledger`]; the lease then runs out by itself.
    pub async fn give_back(&self, id: &RunId, why: &str) -> Result<(), EngineError> {
        let Some(run) = self.parts.ledger.run(id).await? else { return Ok(()) };
        if run.state != RunState::Running || run.worker.as_ref() != Some(&self.parts.worker) {
            return Ok(());
        }
        let now = self.parts.clock.now();
        let event = RunEvent::Parked { why: why.to_owned(), until: Some(now) };
        let change = RunChange {
            state: RunState::Waiting,
            progress: run.progress,
            output: None,
            reason: Some(why.to_owned()),
            due_at: Some(now),
        };
        let append = Append {
            run: run.id,
            fence: run.fence,
            entries: vec![NewEntry { content: Content::Run(event), at: now }],
            effects: Vec::new(),
            run_change: Some(change),
            progress_made: false,
        };
        self.parts.ledger.append(append).await?;
        Ok(())
    }

    fn claim_by(&self) -> ClaimBy {
        ClaimBy { worker: self.parts.worker.clone(), lease_ms: self.parts.lease_ms }
    }

    fn held(&self, claim: Claim, asked: Instant, created_now: bool) -> HeldRun {
        HeldRun { claim, lease: LeaseClock::new(asked, self.parts.lease_ms), created_now }
    }

    /// Runs a claimed run until it waits or ends.
    ///
    /// # Errors
    /// As [`Engine::resume`].
    pub async fn run_held(&self, held: HeldRun) -> Result<RunEnd, EngineError> {
        self.parts.boundaries.pass(Boundary::AfterClaim);
        let heartbeat = Heartbeat::start(
            Arc::clone(&self.parts.ledger),
            held.claim.run.id.clone(),
            held.claim.fence,
            Arc::clone(&held.lease),
            self.parts.lease_ms,
        );
        let (id, fence) = (held.claim.run.id.clone(), held.claim.fence);
        let lease = Arc::clone(&held.lease);
        let mut end = self.run_steps(held).await;
        // Another run proposed a shared effect first, so that nothing of ours was written or sent. The step starts anew
        // and finds that effect; as it is there for good, this cannot go on for ever.
        while let Err(EngineError::Ledger(LedgerError::EffectOwned { .. })) = &end {
            end = match self.still_held(&id, fence, &lease).await {
                Ok(held) => self.run_steps(held).await,
                Err(error) => Err(error),
            };
        }
        drop(heartbeat);
        match end {
            Err(error) if error.is_fenced() => Ok(RunEnd::Elsewhere),
            end => end,
        }
    }

    /// A run that we hold, as the ledger has it now.
    async fn still_held(
        &self,
        id: &RunId,
        fence: Fence,
        lease: &Arc<LeaseClock>,
    ) -> Result<HeldRun, EngineError> {
        let record = self.parts.ledger.run(id).await?;
        let run = record.ok_or_else(|| LedgerError::Absent { what: "run", id: id.to_string() })?;
        let head = self.parts.ledger.head(id).await?;
        let claim = Claim { run, fence, head };
        Ok(HeldRun { claim, lease: Arc::clone(lease), created_now: false })
    }

    async fn run_steps(&self, held: HeldRun) -> Result<RunEnd, EngineError> {
        let record = &held.claim.run;
        let compiled = self.compiled(&record.id, &record.definition).await?;
        self.learn_secrets(&compiled.definition);
        let takeover = record.crashes > 0;
        let mut fresh = held.created_now;
        let mut session = Session::new(
            held.claim,
            held.lease,
            Arc::clone(&self.parts.ledger),
            Arc::clone(&self.parts.clock),
            Arc::clone(&self.parts.observer),
            self.parts.boundaries.clone(),
            Arc::clone(&self.late),
        );
        session.observe(&Progress::Claimed { takeover });
        loop {
            let Some(node) = next_node(&session, &compiled) else {
                return complete(session, &compiled).await;
            };
            let context = StepContext::new(
                Arc::clone(&compiled),
                node,
                Arc::clone(&self.parts.drivers),
                Arc::clone(&self.circuits),
            );
            let end;
            (session, end) = step::run(session, context, &self.parts.sandbox, fresh).await?;
            fresh = true;
            match end {
                StepEnd::Completed => {}
                StepEnd::Retry(at, failure) => {
                    let why = format!("{RESTARTED}; {failure}");
                    return park(session, at, why).await;
                }
                StepEnd::Stopped(Stop::Wait { until, why }) => {
                    return park(session, until, why).await;
                }
                StepEnd::Stopped(Stop::Person { why }) => return halt(session, why).await,
                StepEnd::Failed(why) => return fail(session, why).await,
            }
        }
    }

    async fn compiled(&self, run: &RunId, digest: &str) -> Result<Arc<Compiled>, EngineError> {
        if let Some(compiled) = lock(&self.compiled).get(digest) {
            return Ok(Arc::clone(compiled));
        }
        let damaged = |problem: String| damaged(run, digest, problem);
        let definition = self.pinned(run, digest).await?;
        let mut nodes = Vec::with_capacity(definition.workflow.nodes.len());
        for node in &definition.workflow.nodes {
            let pinned = definition.components.get(&node.component).ok_or_else(|| {
                damaged(format!("names no digest for component `{}`", node.component))
            })?;
            let mut slots = std::collections::BTreeMap::new();
            for slot in &node.slots {
                let compiled = CompiledSlot::new(&definition, slot).map_err(damaged)?;
                slots.insert(slot.name.clone(), Arc::new(compiled));
            }
            let component = self.component(&node.component, pinned).await?;
            nodes.push(CompiledNode { node: node.clone(), component, slots });
        }
        let compiled = Arc::new(Compiled { digest: digest.to_owned(), definition, nodes });
        lock(&self.compiled).insert(digest.to_owned(), Arc::clone(&compiled));
        Ok(compiled)
    }

    /// The definition that a run is pinned to.
    async fn pinned(&self, run: &RunId, digest: &str) -> Result<Definition, EngineError> {
        let text = self.parts.ledger.definition(digest).await?;
        let text = text.ok_or_else(|| damaged(run, digest, "is not in the ledger".to_owned()))?;
        Definition::from_text(&text)
            .map_err(|problem| damaged(run, digest, format!("cannot be read: {problem}")))
    }

    async fn component(&self, name: &Name, digest: &str) -> Result<Component, EngineError> {
        if let Some(component) = lock(&self.components).get(digest) {
            return Ok(component.clone());
        }
        let missing =
            || EngineError::ComponentMissing { name: name.to_string(), digest: digest.to_owned() };
        let bytes = self.parts.ledger.module_bytes(digest).await?.ok_or_else(missing)?;
        let sandbox = Arc::clone(&self.parts.sandbox);
        let loaded = tokio::task::spawn_blocking(move || sandbox.load(&bytes)).await;
        let component = loaded
            .expect("loading a component does not panic")
            .map_err(|source| EngineError::Component { name: name.to_string(), source })?;
        lock(&self.components).insert(digest.to_owned(), component.clone());
        Ok(component)
    }
}

fn damaged(run: &RunId, digest: &str, problem: String) -> EngineError {
    EngineError::Definition { run: run.clone(), digest: digest.to_owned(), problem }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first node that is not done and whose predecessors are; nodes stand in such an order.
fn next_node(session: &Session, compiled: &Compiled) -> Option<usize> {
    compiled.nodes.iter().position(|node| !session.progress.is_done(&node.node.name))
}

async fn complete(mut session: Session, compiled: &Compiled) -> Result<RunEnd, EngineError> {
    let output = compiled
        .nodes
        .last()
        .and_then(|node| session.progress.nodes.get(&node.node.name)?.output.clone())
        .unwrap_or(Value::Null);
    session.record_run(RunEvent::Completed { output: output.clone() });
    session.leave(RunState::Completed, None, None, Some(output.clone())).await?;
    session.boundaries.pass(Boundary::AfterCheckpoint);
    Ok(RunEnd::Completed(output))
}

async fn park(mut session: Session, until: Timestamp, why: String) -> Result<RunEnd, EngineError> {
    session.boundaries.pass(Boundary::BeforePark);
    session.record_run(RunEvent::Parked { why: why.clone(), until: Some(until) });
    session.leave(RunState::Waiting, Some(why.clone()), Some(until), None).await?;
    session.boundaries.pass(Boundary::AfterPark);
    Ok(RunEnd::Waiting { until, why })
}

async fn halt(mut session: Session, why: String) -> Result<RunEnd, EngineError> {
    session.boundaries.pass(Boundary::BeforePark);
    session.record_run(RunEvent::Halted { why: why.clone() });
    session.leave(RunState::Halted, Some(why.clone()), None, None).await?;
    session.boundaries.pass(Boundary::AfterPark);
    Ok(RunEnd::Halted { why })
}

async fn fail(mut session: Session, why: String) -> Result<RunEnd, EngineError> {
    session.boundaries.pass(Boundary::BeforeCheckpoint);
    session.record_run(RunEvent::Failed { why: why.clone() });
    session.leave(RunState::Failed, Some(why.clone()), None, None).await?;
    session.boundaries.pass(Boundary::AfterCheckpoint);
    Ok(RunEnd::Failed { why })
}
