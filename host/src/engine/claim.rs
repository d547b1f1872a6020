//! Taking a run, and giving it back.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use twice_core::chain::{Content, NewEntry};
use twice_core::event::RunEvent;
use twice_core::ids::{Fence, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{
    Append, Claim, ClaimBy, ClaimOutcome, LedgerError, RunChange, RunRecord, Turn, Wanted,
};

use super::lease::LeaseClock;
use super::{Engine, EngineError, RunEnd};

/// A claimed run, to be handed to [`Engine::run_held`].
pub struct HeldRun {
    pub(super) claim: Claim,
    pub(super) lease: Arc<LeaseClock>,
    pub(super) created_now: bool,
    /// Whether it was taken before it was due, so that what waits for an instant is not to wait.
    pub(super) early: bool,
}

impl HeldRun {
    /// The run as it was when claimed.
    #[must_use]
    pub const fn record(&self) -> &RunRecord {
        &self.claim.run
    }

    /// The token of its lease.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.claim.fence
    }
}

/// What came of a turn.
pub enum Taken {
    /// This run is ours.
    Held(Box<HeldRun>),
    /// This run had killed too many workers, and is in quarantine now.
    Quarantined(RunId),
    /// Nothing is due.
    Nothing,
}

impl Engine {
    /// Takes a run and runs it until it waits or ends. `early` takes a waiting run before it is due.
    ///
    /// # Errors
    /// [`EngineError`] when the executor itself cannot go on; the run is unharmed.
    pub async fn resume(&self, id: &RunId, early: bool) -> Result<RunEnd, EngineError> {
        let asked = Instant::now();
        let now = self.parts.clock.now();
        match self.parts.ledger.claim(&self.claim_by(), &Wanted::run(id, early), now).await? {
            ClaimOutcome::Claimed(claim) => {
                self.run_held(HeldRun { early, ..self.held(*claim, asked, false) }).await
            }
            ClaimOutcome::Quarantined(_) => Ok(RunEnd::Quarantined),
            ClaimOutcome::Nothing => self.standing(id).await,
        }
    }

    /// Takes the next run of a turn, to be handed to [`Engine::run_held`].
    ///
    /// # Errors
    /// [`EngineError::Ledger`].
    pub async fn take_next(&self, turn: &Turn) -> Result<Taken, EngineError> {
        let asked = Instant::now();
        let wanted = Wanted::Turn(turn.clone());
        let outcome =
            self.parts.ledger.claim(&self.claim_by(), &wanted, self.parts.clock.now()).await?;
        Ok(match outcome {
            ClaimOutcome::Claimed(claim) => Taken::Held(Box::new(self.held(*claim, asked, false))),
            ClaimOutcome::Quarantined(run) => Taken::Quarantined(run),
            ClaimOutcome::Nothing => Taken::Nothing,
        })
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
            RunState::Cancelled => RunEnd::Cancelled { why },
            RunState::Stuck => RunEnd::Stuck { why },
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
        self.park_record(run, now, why).await
    }

    /// Lets a run go that the executor could not go on with: it waits for `pause_ms`, and then any worker may take it. One
    /// that is over, waits, or has another lease by now stays as it is. Tells how it stands.
    ///
    /// # Errors
    /// [`EngineError::Ledger`]; the lease then runs out by itself.
    pub async fn let_go(
        &self,
        id: &RunId,
        fence: Fence,
        why: &str,
        pause_ms: u64,
    ) -> Result<RunEnd, EngineError> {
        let Some(run) = self.parts.ledger.run(id).await? else { return Ok(RunEnd::Elsewhere) };
        if run.state != RunState::Running || run.fence != fence {
            return self.standing(id).await;
        }
        let until = self.parts.clock.now().plus_ms(pause_ms);
        self.park_record(run, until, why).await?;
        Ok(RunEnd::Waiting { until, why: why.to_owned() })
    }

    /// Parks a run whose session is gone, as it is in the ledger.
    async fn park_record(
        &self,
        run: RunRecord,
        until: Timestamp,
        why: &str,
    ) -> Result<(), EngineError> {
        let event = RunEvent::Parked { why: why.to_owned(), until: Some(until) };
        let change = RunChange {
            state: RunState::Waiting,
            progress: None,
            output: None,
            reason: Some(why.to_owned()),
            due_at: Some(until),
            cancel_seen: false,
        };
        let append = Append {
            run: run.id,
            fence: run.fence,
            entries: vec![NewEntry { content: Content::Run(event), at: self.parts.clock.now() }],
            effects: Vec::new(),
            run_change: Some(change),
            progress_made: false,
            past_pivot: false,
        };
        self.parts.ledger.append(append).await?;
        Ok(())
    }

    pub(super) fn claim_by(&self) -> ClaimBy {
        ClaimBy { worker: self.parts.worker.clone(), lease_ms: self.parts.lease_ms }
    }

    pub(super) fn held(&self, claim: Claim, asked: Instant, created_now: bool) -> HeldRun {
        HeldRun {
            claim,
            lease: LeaseClock::new(asked, self.parts.lease_ms),
            created_now,
            early: false,
        }
    }
}
