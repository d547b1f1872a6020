//! Takes a claimed run on: asks the planner, records what it decides, and has several steps under way at once, until the run
//! is over or nothing can go on.
//!
//! The steps of a run are futures of one task. A step that waits holds nothing in memory and leaves the others running; the
//! run waits only when all do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use twice_core::event::EndCause;
use twice_core::progress::StepId;
use twice_core::time::Timestamp;
use twice_ledger::Cancel;
use twice_workflow::plan::{Plan, PlannedStep};
use twice_workflow::units::duration_text;

use super::run::RESTARTED;
use super::step::{self, Start, StepEnd};
use super::steps::Steps;
use super::stop::Stop;
use super::{EngineError, ending};

/// Most steps at once that are no elements of a fan-out, which has a bound of its own.
const BRANCHES_MAX: usize = 8;
/// Shortest sleep before a step that waits is looked at again while others run.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often the ledger is asked for answers of people that steps wait for, while others are under way.
const ANSWERS_LOOK: Duration = Duration::from_secs(1);

/// Why the executor lets go of a run.
pub(super) enum Outcome {
    /// Every node is done.
    Completed(Value),
    /// It does not go on.
    Ends {
        /// What ends it.
        cause: EndCause,
        /// Why, in words.
        why: String,
    },
    /// It waits.
    Stopped(Stop),
    /// It is given back, as this worker is to stop.
    HandedOver,
}

/// What there is to do next.
enum Look {
    /// Nothing but waiting for what is under way.
    Await,
    Over(Outcome),
}

type UnderWay<'e> = BoxFuture<'e, (StepId, Result<StepEnd, EngineError>)>;

/// A run that is being taken on.
pub(super) struct Schedule<'e> {
    pub(super) steps: Steps<'e>,
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
    /// Steps whose time was over when they were last looked at.
    expired: BTreeSet<StepId>,
    /// When the next step is too late that has not ended.
    deadline: Option<Timestamp>,
    /// When the ledger was last asked for answers of people.
    answers_at: Instant,
}

impl<'e> Schedule<'e> {
    /// A run just claimed. `fresh`: it was started with the claim. `early`: it was taken before it was due.
    pub(super) fn new(steps: Steps<'e>, fresh: bool, early: bool) -> Self {
        Self {
            steps,
            tasks: FuturesUnordered::new(),
            running: BTreeSet::new(),
            stopped: BTreeMap::new(),
            known: BTreeSet::new(),
            fresh,
            early,
            expired: BTreeSet::new(),
            deadline: None,
            answers_at: Instant::now(),
        }
    }

    /// Takes the run on until it is over or nothing of it can go on now.
    ///
    /// # Errors
    /// [`EngineError`] when the executor itself cannot go on; what is under way is dropped then.
    pub(super) async fn run(&mut self) -> Result<Outcome, EngineError> {
        let lease = Arc::clone(&self.steps.session.lease);
        loop {
            if let Look::Over(outcome) = self.look().await? {
                return Ok(outcome);
            }
            let wake = self.wake_in();
            tokio::select! {
                Some((id, end)) = self.tasks.next() => self.ended(id, end?),
                // Another worker has the run: calls are cut off, and the session can write nothing any more.
                () = lease.lost() => return Err(EngineError::LeaseLost),
                () = lease.cancelled(), if !self.steps.session.is_ending() && !self.steps.session.is_past_pivot() => {}
                () = sleep(wake) => {}
            }
        }
    }

    /// Records what is decided, and starts what can run.
    async fn look(&mut self) -> Result<Look, EngineError> {
        self.steps.session.hear_of_cancel().await?;
        if !self.tasks.is_empty() {
            if self.answers_at.elapsed() >= ANSWERS_LOOK {
                self.answers_at = Instant::now();
                let session = &self.steps.session;
                for step in session.awaits.answered(session.ledger(), session.id()).await? {
                    self.stopped.remove(&step);
                }
            }
            let now = self.steps.session.now();
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
            if let Some((cause, why)) = self.ends() {
                return Ok(self.end(cause, why));
            }
            let (session, compiled) = (&self.steps.session, &self.steps.compiled);
            session.load_receipts(&compiled.sources).await?;
            let (plan, run_deadline) = session.plan(compiled);
            let run_deadline = run_deadline.filter(|_| !self.steps.session.is_past_pivot());
            let workflow = &compiled.definition.workflow;
            match plan {
                Plan::Decide(decisions) => {
                    decisions.into_iter().for_each(|decision| session.record_run(decision));
                }
                Plan::Complete { output } => return Ok(Look::Over(Outcome::Completed(output))),
                Plan::Fail { why } => return Ok(self.end(EndCause::Failed, why)),
                Plan::Run(_) if run_deadline.is_some_and(|at| at <= session.now()) => {
                    let limit = workflow.timeout_ms.map_or_else(String::new, duration_text);
                    let why = format!("the run took longer than its `timeout` of {limit}");
                    return Ok(self.end(EndCause::TimedOut, why));
                }
                Plan::Run(steps) => return self.start_all(steps, run_deadline).await,
            }
        }
    }

    /// Why the run does not go on, if that is decided already or a person asks for it.
    fn ends(&self) -> Option<(EndCause, String)> {
        let session = &self.steps.session;
        let decided = session.progress(|p| p.compensating.as_ref().map(ending::of_record));
        if decided.is_some() || self.steps.session.is_past_pivot() {
            return decided;
        }
        let Cancel { who, why } = session.cancel()?;
        Some((EndCause::Cancelled, format!("cancelled by {who}: {why}")))
    }

    async fn start_all(
        &mut self,
        steps: Vec<PlannedStep>,
        run_deadline: Option<Timestamp>,
    ) -> Result<Look, EngineError> {
        if !std::mem::replace(&mut self.fresh, true) {
            self.known.extend(steps.iter().map(|step| step.id.clone()));
        }
        if self.steps.engine.is_draining() {
            return Ok(self.await_or(Outcome::HandedOver));
        }
        let now = self.steps.session.now();
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
            self.start(step)?;
        }
        Ok(self.await_or_stop())
    }

    fn start(&mut self, step: PlannedStep) -> Result<(), EngineError> {
        let PlannedStep { id, deadline, .. } = step;
        let element = self.steps.element(&id)?;
        let fresh = self.known.insert(id.clone());
        let context = self.steps.context(&id)?;
        let session = Arc::clone(&self.steps.session);
        if self.steps.compiled.records_start(&id.node) {
            session.record_start(&id);
        }
        let sandbox = Arc::clone(&self.steps.engine.parts.sandbox);
        let start = Start { id: id.clone(), element, fresh, deadline };
        self.task(id, step::run(session, context, sandbox, start).boxed());
        Ok(())
    }

    fn expire(&mut self, id: StepId) {
        if let Ok(context) = self.steps.context(&id) {
            let session = Arc::clone(&self.steps.session);
            self.task(id.clone(), step::expire(session, context, id).boxed());
        }
    }

    fn task(&mut self, id: StepId, task: BoxFuture<'e, Result<StepEnd, EngineError>>) {
        self.running.insert(id.clone());
        self.tasks.push(async move { (id, task.await) }.boxed());
    }

    /// The run does not go on: what is under way comes to its end first, and asks for nothing new.
    fn end(&self, cause: EndCause, why: String) -> Look {
        self.steps.session.set_ending(true);
        self.await_or(Outcome::Ends { cause, why })
    }

    fn await_or(&self, outcome: Outcome) -> Look {
        if self.running.is_empty() { Look::Over(outcome) } else { Look::Await }
    }

    /// Nothing can be started: what is under way is waited for; if nothing is, the run waits until the first of its steps may
    /// go on, and for a person only when no step goes on by itself.
    fn await_or_stop(&self) -> Look {
        if !self.running.is_empty() {
            return Look::Await;
        }
        let stop = match Stop::first(self.stopped.values()) {
            Some(Stop::Wait { until, why }) => Stop::Wait {
                until: self.deadline.map_or(until, |deadline| deadline.min(until)),
                why,
            },
            Some(person) => person,
            None => {
                Stop::Person { why: "no step of it can run; its definition is damaged".to_owned() }
            }
        };
        Look::Over(Outcome::Stopped(stop))
    }

    fn ended(&mut self, id: StepId, end: StepEnd) {
        self.running.remove(&id);
        match end {
            StepEnd::Completed | StepEnd::Failed => {
                self.known.remove(&id);
                self.expired.remove(&id);
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
        let left = Duration::from_millis(first.ms_since(self.steps.session.now()));
        let most = match self.steps.session.awaits.approvals() {
            0 => Duration::MAX,
            _ => ANSWERS_LOOK,
        };
        Some(left.min(most).max(LOOK_AGAIN))
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
