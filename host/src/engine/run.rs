//! Running a claimed run until it waits or ends.

use std::sync::Arc;

use serde_json::Value;
use twice_core::event::RunEvent;
use twice_core::ids::{Fence, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{Claim, LedgerError, progress_of};

use super::boundary::Boundary;
use super::child;
use super::ending::{Conclusion, Ending};
use super::lease::{Heartbeat, LeaseClock};
use super::observer::Progress;
use super::schedule::{Outcome, Schedule};
use super::session::{Parts, Session};
use super::steps::Steps;
use super::{Engine, EngineError, HeldRun, NEEDS_PERSON, Stop};

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
    /// It was cancelled; what it had done is undone.
    Cancelled {
        /// Why.
        why: String,
    },
    /// It can neither go on nor back; a person decides.
    Stuck {
        /// Why, and what to do.
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
        let parent = held.claim.run.parent.clone();
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
        if end.as_ref().is_ok_and(tells_parent) {
            child::wake_parent(&*self.parts.ledger, parent.as_ref()).await;
        }
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
        Ok(HeldRun { claim, lease: Arc::clone(lease), created_now: false, early: true })
    }

    async fn run_steps(&self, held: HeldRun) -> Result<RunEnd, EngineError> {
        let HeldRun { claim, lease, created_now, early } = held;
        let Claim { run, fence, head } = claim;
        let compiled = self.compiled(&run.id, &run.definition).await?;
        self.learn_secrets(&compiled.definition);
        let takeover = run.crashes > 0;
        // The claim itself is the last entry; what stands between it and the checkpoint is folded.
        let progress = if head.seq > run.progress_seq + 1 {
            progress_of(&*self.parts.ledger, &run).await?
        } else {
            run.progress.clone()
        };
        let session = Arc::new(Session::new(Parts {
            run,
            fence,
            lease,
            progress,
            ledger: Arc::clone(&self.parts.ledger),
            clock: Arc::clone(&self.parts.clock),
            observer: Arc::clone(&self.parts.observer),
            boundaries: self.parts.boundaries.clone(),
            late: Arc::clone(&self.late),
        }));
        session.observe(&Progress::Claimed { takeover });
        let steps = Steps::new(self, Arc::clone(&session), compiled);
        let end = go_on(&session, Schedule::new(steps, created_now, early), early).await;
        match (end, session.failure()) {
            (Err(_), Some(failure)) => Err(EngineError::Ledger(failure)),
            (end, _) => end,
        }
    }
}

/// Takes a run on until it waits or ends.
async fn go_on(
    session: &Session,
    mut schedule: Schedule<'_>,
    early: bool,
) -> Result<RunEnd, EngineError> {
    loop {
        let (cause, why) = match schedule.run().await? {
            Outcome::Completed(output) => match complete(session, output).await? {
                Some(end) => return Ok(end),
                None => continue,
            },
            Outcome::Stopped(stop) => return stop_at(session, stop).await,
            Outcome::HandedOver => return hand_over(session).await,
            Outcome::Ends { cause, why } => (cause, why),
        };
        session.forget_refused();
        let ending = Ending { steps: &mut schedule.steps, cause, why, early };
        let conclusion = tokio::select! {
            conclusion = ending.conclude() => conclusion?,
            () = session.lease.lost() => return Err(EngineError::LeaseLost),
        };
        match conclusion {
            Conclusion::Failed(why) => return fail(session, why).await,
            Conclusion::Cancelled(why) => return cancel(session, why).await,
            Conclusion::Stuck(why) => return stick(session, why).await,
            Conclusion::Stopped(stop) => return stop_at(session, stop).await,
            Conclusion::GoOn => {
                session.set_ending(false);
                session.pass_pivot();
            }
        }
    }
}

async fn stop_at(session: &Session, stop: Stop) -> Result<RunEnd, EngineError> {
    match stop {
        Stop::Wait { until, why } => park(session, until, why).await,
        Stop::Person { why } => halt(session, why).await,
    }
}

/// Whether the run's parent, if it has one, has something new to take in: an answer, or that a person is needed.
fn tells_parent(end: &RunEnd) -> bool {
    match end {
        RunEnd::Completed(_)
        | RunEnd::Failed { .. }
        | RunEnd::Cancelled { .. }
        | RunEnd::Stuck { .. }
        | RunEnd::Halted { .. } => true,
        RunEnd::Waiting { why, .. } => why.starts_with(NEEDS_PERSON),
        RunEnd::Quarantined | RunEnd::Elsewhere => false,
    }
}

/// `None` when its cancellation was asked for before.
async fn complete(session: &Session, output: Value) -> Result<Option<RunEnd>, EngineError> {
    session.record_run(RunEvent::Completed { output: output.clone() });
    let left = session.leave(RunState::Completed, None, None, Some(output.clone())).await?;
    session.boundaries.pass(Boundary::AfterCheckpoint);
    Ok(left.then_some(RunEnd::Completed(output)))
}

async fn park(session: &Session, until: Timestamp, mut why: String) -> Result<RunEnd, EngineError> {
    let others = session.awaits.approvals().saturating_sub(1);
    if others > 0 {
        why.push_str(&format!(
            "; {others} other approval(s) are open: `twice approvals list --run {}`",
            session.id()
        ));
    }
    session.boundaries.pass(Boundary::BeforePark);
    session.record_run(RunEvent::Parked { why: why.clone(), until: Some(until) });
    session.leave(RunState::Waiting, Some(why.clone()), Some(until), None).await?;
    session.boundaries.pass(Boundary::AfterPark);
    child::wake_if_over(session.ledger(), session.id(), session.awaits.children()).await;
    // An answer that came while the run was held found nobody to wake.
    if session
        .awaits
        .answered(session.ledger(), session.id())
        .await
        .is_ok_and(|steps| !steps.is_empty())
    {
        child::wake(session.ledger(), session.id()).await;
    }
    Ok(RunEnd::Waiting { until, why })
}

/// Gives the run to whichever worker asks first. It has no due time: this worker's clock may be wrong.
async fn hand_over(session: &Session) -> Result<RunEnd, EngineError> {
    let (until, why) = (session.now(), HANDED_OVER.to_owned());
    session.boundaries.pass(Boundary::BeforePark);
    session.record_run(RunEvent::Parked { why: why.clone(), until: None });
    session.leave(RunState::Ready, Some(why.clone()), None, None).await?;
    session.boundaries.pass(Boundary::AfterPark);
    Ok(RunEnd::Waiting { until, why })
}

async fn halt(session: &Session, why: String) -> Result<RunEnd, EngineError> {
    session.boundaries.pass(Boundary::BeforePark);
    session.record_run(RunEvent::Halted { why: why.clone() });
    session.leave(RunState::Halted, Some(why.clone()), None, None).await?;
    session.boundaries.pass(Boundary::AfterPark);
    Ok(RunEnd::Halted { why })
}

async fn fail(session: &Session, why: String) -> Result<RunEnd, EngineError> {
    session.boundaries.pass(Boundary::BeforeCheckpoint);
    session.record_run(RunEvent::Failed { why: why.clone() });
    session.leave(RunState::Failed, Some(why.clone()), None, None).await?;
    session.boundaries.pass(Boundary::AfterCheckpoint);
    Ok(RunEnd::Failed { why })
}

async fn cancel(session: &Session, why: String) -> Result<RunEnd, EngineError> {
    session.boundaries.pass(Boundary::BeforeCheckpoint);
    session.record_run(RunEvent::Cancelled { why: why.clone() });
    session.leave(RunState::Cancelled, Some(why.clone()), None, None).await?;
    session.boundaries.pass(Boundary::AfterCheckpoint);
    Ok(RunEnd::Cancelled { why })
}

async fn stick(session: &Session, why: String) -> Result<RunEnd, EngineError> {
    session.boundaries.pass(Boundary::BeforePark);
    session.record_run(RunEvent::Stuck { why: why.clone() });
    session.leave(RunState::Stuck, Some(why.clone()), None, None).await?;
    session.boundaries.pass(Boundary::AfterPark);
    Ok(RunEnd::Stuck { why })
}
