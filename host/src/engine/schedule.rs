//! Takes a claimed run on: asks the planner, records what it decides, and has several steps under way at once, until the run
//! is over or nothing can go on.
//!
//! The steps of a run are futures of one task. A step that waits holds nothing in memory and leaves the others running; the
//! run waits only when all do.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use twice_core::ids::Name;
use twice_core::progress::StepId;
use twice_core::time::Timestamp;
use twice_workflow::plan::{self, Plan, PlannedStep};
use twice_workflow::source::{self, Trusted};
use twice_workflow::units::duration_text;

use super::compiled::Compiled;
use super::drive::{Stop, sooner};
use super::run::RESTARTED;
use super::session::Session;
use super::step::{self, Start, StepContext, StepEnd};
use super::{Engine, EngineError};

/// Most steps at once that are no elements of a fan-out, which has a bound of its own.
const BRANCHES_MAX: usize = 8;
/// Shortest sleep before a step that waits is looked at again while others run.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Why the executor lets go of a run.
pub(super) enum Ending {
    /// Every node is done.
    Completed(Value),
    /// It failed for good.
    Failed(String),
    /// It waits.
    Stopped(Stop),
    /// It is given back, as this worker is to stop.
    HandedOver,
}

/// What there is to do next.
enum Look {
    /// Nothing but waiting for what is under way.
    Await,
    Over(Ending),
}

type UnderWay<'e> = BoxFuture<'e, (StepId, Result<StepEnd, EngineError>)>;

/// A run that is being taken on.
pub(super) struct Schedule<'e> {
    engine: &'e Engine,
    session: Arc<Session>,
    compiled: Arc<Compiled>,
    tasks: FuturesUnordered<UnderWay<'e>>,
    running: BTreeSet<StepId>,
    /// Steps that stopped under this claim, and why.
    stopped: BTreeMap<StepId, Stop>,
    /// Steps whose effects may be on record: those that could run when the run was claimed, and those that were started since.
    /// What could not run by what was durable has nothing durable.
    known: BTreeSet<StepId>,
    /// Whether every step that can run is new, so that the first look finds nothing that is known.
    fresh: bool,
    /// Whether what waits for an instant is not to wait.
    early: bool,
    /// Whether the run fails, once nothing that was asked for is unexplained.
    failing: bool,
    /// Steps that are settled, as the run fails.
    settled: BTreeSet<StepId>,
    /// Steps whose time was over when they were last looked at.
    expired: BTreeSet<StepId>,
    /// When the next step is too late that has not ended.
    deadline: Option<Timestamp>,
    /// The arrays of fan-outs, by node and visit.
    arrays: HashMap<(Name, u32), Arc<Vec<Value>>>,
}

impl<'e> Schedule<'e> {
    /// A run just claimed. `fresh`: it was started with the claim. `early`: it was taken before it was due.
    pub(super) fn new(
        engine: &'e Engine,
        session: Arc<Session>,
        compiled: Arc<Compiled>,
        fresh: bool,
        early: bool,
    ) -> Self {
        Self {
            engine,
            session,
            compiled,
            tasks: FuturesUnordered::new(),
            running: BTreeSet::new(),
            stopped: BTreeMap::new(),
            known: BTreeSet::new(),
            fresh,
            early,
            failing: false,
            settled: BTreeSet::new(),
            expired: BTreeSet::new(),
            deadline: None,
            arrays: HashMap::new(),
        }
    }

    /// Takes the run on until it is over or nothing of it can go on now.
    ///
    /// # Errors
    /// [`EngineError`] when the executor itself cannot go on; what is under way is dropped then.
    pub(super) async fn run(mut self) -> Result<Ending, EngineError> {
        let lease = Arc::clone(&self.session.lease);
        loop {
            if let Look::Over(ending) = self.look().await? {
                return Ok(ending);
            }
            let wake = self.wake_in();
            tokio::select! {
                Some((id, end)) = self.tasks.next() => self.ended(id, end?),
                // Another worker has the run: calls are cut off, and the session can write nothing any more.
                () = lease.lost() => return Err(EngineError::LeaseLost),
                () = sleep(wake) => {}
            }
        }
    }

    /// Records what is decided, and starts what can run.
    async fn look(&mut self) -> Result<Look, EngineError> {
        if !self.tasks.is_empty() {
            let now = self.session.now();
            let expired = &mut self.expired;
            self.stopped.retain(|id, stop| {
                let waits = !is_over(stop, now);
                if !waits {
                    // Looked at again, if its time is over.
                    expired.remove(id);
                }
                waits
            });
        }
        loop {
            self.session.load_receipts(&self.compiled.sources).await?;
            let (plan, run_deadline) = self.session.plan(&self.compiled);
            let workflow = &self.compiled.definition.workflow;
            match plan {
                Plan::Decide(decisions) => {
                    decisions.into_iter().for_each(|decision| self.session.record_run(decision));
                }
                Plan::Complete { output } => return Ok(Look::Over(Ending::Completed(output))),
                Plan::Fail { why, under_way } => return Ok(self.fail(why, under_way)),
                Plan::Run(_) if run_deadline.is_some_and(|at| at <= self.session.now()) => {
                    let limit = workflow.timeout_ms.map_or_else(String::new, duration_text);
                    let under_way = self.session.progress(|p| plan::under_way(workflow, p));
                    let why = format!("the run took longer than its `timeout` of {limit}");
                    return Ok(self.fail(why, under_way));
                }
                Plan::Run(steps) => return self.start_all(steps, run_deadline).await,
            }
        }
    }

    async fn start_all(
        &mut self,
        steps: Vec<PlannedStep>,
        run_deadline: Option<Timestamp>,
    ) -> Result<Look, EngineError> {
        if !std::mem::replace(&mut self.fresh, true) {
            self.known.extend(steps.iter().map(|step| step.id.clone()));
        }
        if self.engine.is_draining() {
            return Ok(self.await_or(Ending::HandedOver));
        }
        let now = self.session.now();
        let mut branches = self.running.iter().filter(|id| id.element.is_none()).count();
        let deadlines = steps.iter().filter_map(|step| step.deadline).chain(run_deadline);
        self.deadline = deadlines.filter(|at| *at > now).min();
        for step in steps {
            if self.running.contains(&step.id) {
                continue;
            }
            if step.deadline.is_some_and(|at| at <= now) {
                if self.expired.insert(step.id.clone()) {
                    self.stopped.remove(&step.id);
                    self.expire(step.id);
                }
                continue;
            }
            if self.stopped.contains_key(&step.id) {
                continue;
            }
            if let Some(until) = step.not_before.filter(|at| *at > now && !self.early) {
                let why = format!("{RESTARTED} of step {}", step.id);
                self.stopped.insert(step.id, Stop::Wait { until, why });
                continue;
            }
            let is_branch = step.id.element.is_none();
            if is_branch && branches >= BRANCHES_MAX {
                continue;
            }
            branches += usize::from(is_branch);
            self.start(step).await?;
        }
        Ok(self.await_or_stop())
    }

    async fn start(&mut self, step: PlannedStep) -> Result<(), EngineError> {
        let PlannedStep { id, deadline, .. } = step;
        let element = self.element(&id).await?;
        let fresh = self.known.insert(id.clone());
        let context = self.context(&id)?;
        if self.compiled.records_start(&id.node) {
            self.session.record_start(&id);
        }
        let session = Arc::clone(&self.session);
        let sandbox = Arc::clone(&self.engine.parts.sandbox);
        let start = Start { id: id.clone(), element, fresh, deadline };
        self.task(id, step::run(session, context, sandbox, start).boxed());
        Ok(())
    }

    fn expire(&mut self, id: StepId) {
        if let Ok(context) = self.context(&id) {
            let session = Arc::clone(&self.session);
            self.task(id.clone(), step::expire(session, context, id).boxed());
        }
    }

    fn task(&mut self, id: StepId, task: BoxFuture<'e, Result<StepEnd, EngineError>>) {
        self.running.insert(id.clone());
        self.tasks.push(async move { (id, task.await) }.boxed());
    }

    fn context(&self, id: &StepId) -> Result<StepContext, EngineError> {
        let place = self.compiled.place(&id.node).ok_or_else(|| self.damaged(id))?;
        Ok(StepContext::new(
            Arc::clone(&self.compiled),
            place,
            Arc::clone(&self.engine.parts.drivers),
            Arc::clone(&self.engine.circuits),
        ))
    }

    /// The element that a step of a fan-out is about.
    async fn element(&mut self, id: &StepId) -> Result<Option<Value>, EngineError> {
        let Some(element) = &id.element else { return Ok(None) };
        let key = (id.node.clone(), id.visit);
        if !self.arrays.contains_key(&key) {
            let array = self.array(&id.node).ok_or_else(|| self.damaged(id))?;
            self.arrays.insert(key.clone(), Arc::new(array));
        }
        let position = self.session.progress(|progress| {
            progress.nodes.get(&id.node)?.elements.as_ref()?.position(element)
        });
        let found = position.and_then(|at| self.arrays[&key].get(at as usize).cloned());
        found.map(Some).ok_or_else(|| self.damaged(id))
    }

    fn array(&self, node: &Name) -> Option<Vec<Value>> {
        let fan_out = self.compiled.nodes[self.compiled.place(node)?].node.for_each.as_ref()?;
        self.session.progress(|progress| {
            let receipts = |node: &Name, slot: &Name| self.session.receipt(progress, node, slot);
            let trusted =
                Trusted { input: &self.session.run.input, element: None, receipts: &receipts };
            match source::resolve(&fan_out.array, trusted).ok()?.into_owned() {
                Value::Array(items) => Some(items),
                _ => None,
            }
        })
    }

    fn damaged(&self, id: &StepId) -> EngineError {
        EngineError::Definition {
            run: self.session.id().clone(),
            digest: self.compiled.digest.clone(),
            problem: format!("does not fit its history: there is no step {id}"),
        }
    }

    /// The run fails when what is under way has ended and everything it asked for is settled.
    fn fail(&mut self, why: String, under_way: Vec<StepId>) -> Look {
        if !self.running.is_empty() {
            return Look::Await;
        }
        if !std::mem::replace(&mut self.failing, true) {
            // What waited to go on is to be settled instead.
            self.stopped.clear();
        }
        for id in under_way {
            if self.settled.contains(&id) || self.stopped.contains_key(&id) {
                continue;
            }
            if let Ok(context) = self.context(&id) {
                let session = Arc::clone(&self.session);
                self.task(id.clone(), step::settle(session, context, id).boxed());
            }
        }
        if self.running.is_empty() && self.stopped.is_empty() {
            return Look::Over(Ending::Failed(why));
        }
        self.await_or_stop()
    }

    fn await_or(&self, ending: Ending) -> Look {
        if self.running.is_empty() { Look::Over(ending) } else { Look::Await }
    }

    /// Nothing can be started: what is under way is waited for; if nothing is, the run waits until the first of its steps may
    /// go on, and for a person only when no step goes on by itself.
    fn await_or_stop(&self) -> Look {
        if !self.running.is_empty() {
            return Look::Await;
        }
        let instant = |stop: &'_ Stop| match stop {
            Stop::Wait { until, .. } => Some(*until),
            Stop::Person { .. } => None,
        };
        let mut waits: Vec<&Stop> =
            self.stopped.values().filter(|stop| instant(stop).is_some()).collect();
        waits.sort_by_key(|stop| instant(stop));
        let first = waits.into_iter().fold(None, |first, stop| Some(sooner(first, stop.clone())));
        let person = self.stopped.values().find_map(|stop| match stop {
            Stop::Person { why } => Some(why),
            Stop::Wait { .. } => None,
        });
        let stop = match (first, person) {
            (Some(Stop::Wait { until, why }), person) => {
                let until = self.deadline.map_or(until, |deadline| deadline.min(until));
                let person = person.map(|why| format!("; and a person is needed: {why}"));
                Stop::Wait { until, why: format!("{why}{}", person.unwrap_or_default()) }
            }
            (_, Some(why)) => Stop::Person { why: why.clone() },
            (_, None) => {
                Stop::Person { why: "no step of it can run; its definition is damaged".to_owned() }
            }
        };
        Look::Over(Ending::Stopped(stop))
    }

    fn ended(&mut self, id: StepId, end: StepEnd) {
        self.running.remove(&id);
        match end {
            StepEnd::Completed | StepEnd::Failed => {
                self.known.remove(&id);
                self.expired.remove(&id);
            }
            StepEnd::Settled => {
                self.settled.insert(id);
            }
            StepEnd::Stopped(stop) => {
                self.stopped.insert(id, stop);
            }
            StepEnd::Retry(until, failure) => {
                let why = format!("{RESTARTED}; {failure}");
                self.stopped.insert(id, Stop::Wait { until, why });
            }
        }
    }

    /// How long until a step that stopped may go on, or one is too late.
    fn wake_in(&self) -> Option<Duration> {
        let instants = self.stopped.values().filter_map(|stop| match stop {
            Stop::Wait { until, .. } => Some(*until),
            Stop::Person { .. } => None,
        });
        let first = instants.chain(self.deadline).min()?;
        let left = Duration::from_millis(first.ms_since(self.session.now()));
        Some(left.max(LOOK_AGAIN))
    }
}

fn is_over(stop: &Stop, now: Timestamp) -> bool {
    match stop {
        Stop::Wait { until, .. } => *until <= now,
        Stop::Person { .. } => false,
    }
}

async fn sleep(wake: Option<Duration>) {
    match wake {
        Some(wake) => tokio::time::sleep(wake).await,
        None => std::future::pending().await,
    }
}
