//! Running a claimed run, step after step, until it waits or ends.

use std::sync::Arc;

use serde_json::Value;
use twice_core::event::RunEvent;
use twice_core::ids::{Fence, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{Claim, LedgerError};

use super::boundary::Boundary;
use super::compiled::Compiled;
use super::lease::{Heartbeat, LeaseClock};
use super::observer::Progress;
use super::session::Session;
use super::step::{self, StepContext, StepEnd};
use super::{Engine, EngineError, HeldRun, Stop};

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

/// What the reason of a run begins with that waits to start a step again; how the step failed follows.
pub const RESTARTED: &str = "a step is started again after its backoff";

/// The reason of a run that was given back between two steps.
pub const HANDED_OVER: &str = "its worker was told to stop; the next free one goes on with it";

impl Engine {
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
            if self.is_draining() {
                return hand_over(session).await;
            }
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

/// Gives the run to whichever worker asks first. It has no due time: this worker's clock may be wrong.
async fn hand_over(mut session: Session) -> Result<RunEnd, EngineError> {
    let (until, why) = (session.now(), HANDED_OVER.to_owned());
    session.boundaries.pass(Boundary::BeforePark);
    session.record_run(RunEvent::Parked { why: why.clone(), until: None });
    session.leave(RunState::Ready, Some(why.clone()), None, None).await?;
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
