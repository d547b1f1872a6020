//! Rules and words that every implementation of the ledger shares.

use twice_core::approval;
use twice_core::chain::Content;
use twice_core::event::Parent;
use twice_core::ids::{Fence, RunId};
use twice_core::limits::{CRASHES_MAX, PAGE_MAX};
use twice_core::mutation;
use twice_core::run::RunState;
use twice_core::saga::{self, Asked};

use crate::stored::{Change, Ready, Write};
use crate::{LedgerError, RunRecord};

pub(crate) const HELD: &str =
    "a worker holds it; a decision is taken only while none does, so wait or stop the worker";
pub(crate) const GROWN: &str =
    "its chain has grown since the decision was prepared; read it again and decide anew";
pub(crate) const NOT_TO_RUNNING: &str =
    "a decision leaves a run ready, waiting, halted or ended; only a claim makes it running";
pub(crate) const OVER: &str = "it is over";
pub(crate) const STUCK: &str = "a person decides about it: `twice runs release` has it tried again, `twice runs resolve` says that it is settled";
pub(crate) const POISON: &str = "release it first; until then it is not loaded";
pub(crate) const NOT_OVER: &str = "only a run that is over is removed";
pub(crate) const PARENT_MAY_ASK: &str = "the run that started it may still ask what became of it: that one has to be completed, or removed first";
pub(crate) const OWNS_SHARED: &str = "it owns an effect with `scope = \"object\"`, which any run may still ask for; such a run is kept for good";
pub(crate) const ILLEGAL_MOVE: &str =
    "an entry is a move that its effect cannot make; nothing was written, read the effect again";
pub(crate) const EFFECT_MISSING: &str =
    "every effect that entries touch must come with its state after them; nothing was written";

/// How many rows a page has; 0 asks for as many as there may be.
pub(crate) const fn page(limit: u32) -> u32 {
    if limit == 0 || limit > PAGE_MAX { PAGE_MAX } else { limit }
}

/// The end of a lease that starts now. Milliseconds, without wrapping.
pub(crate) fn lease_end(now: i64, lease_ms: u64) -> i64 {
    now.saturating_add(i64::try_from(lease_ms).unwrap_or(i64::MAX))
}

/// Since when a worker may take a run that no worker holds.
pub(crate) fn claim_at(state: RunState, due_at: Option<i64>, now: i64) -> Option<i64> {
    match state {
        RunState::Ready => Some(due_at.unwrap_or(now)),
        RunState::Waiting => due_at,
        RunState::Running
        | RunState::Halted
        | RunState::Completed
        | RunState::Failed
        | RunState::Cancelled
        | RunState::Stuck
        | RunState::Quarantined => None,
    }
}

/// Whether a worker may take a run that may be taken since `claim_at`; of a run that is held, that is its lease's end.
pub(crate) fn is_due(claim_at: Option<i64>, now: i64) -> bool {
    claim_at.is_some_and(|at| at <= now || mutation::is("take-live-lease"))
}

/// Whether a run that waits is to be made due now: one that is due already has its place among those that are.
pub(crate) fn wakes(state: RunState, claim_at: Option<i64>, now: i64) -> bool {
    state == RunState::Waiting && claim_at.is_none_or(|at| at > now)
}

/// Refuses to take a run for the child that another starts, unless it is. Which of its effects does is no matter: a run that
/// is ordered to be tried again asks anew.
pub(crate) fn refuse_other_parent(
    existing: &RunRecord,
    parent: Option<&Parent>,
) -> Result<(), LedgerError> {
    let run = |parent: &Parent| parent.run.clone();
    if parent.is_some() && existing.parent.as_ref().map(run) != parent.map(run) {
        return Err(conflict(&existing.id, "another parent"));
    }
    Ok(())
}

/// Whether the lease of `fence` is the one that a run is held under (I7).
pub(crate) fn holds(state: RunState, current: Fence, fence: Fence) -> bool {
    state == RunState::Running && (current == fence || mutation::is("skip-fence"))
}

/// Why a run is not cancelled, by its state.
pub(crate) fn refuse_cancel(run: &RunId, state: RunState) -> Result<(), LedgerError> {
    match state {
        RunState::Ready | RunState::Running | RunState::Waiting | RunState::Halted => Ok(()),
        RunState::Completed | RunState::Failed | RunState::Cancelled => {
            Err(refused(run, state, OVER))
        }
        RunState::Stuck => Err(refused(run, state, STUCK)),
        RunState::Quarantined => Err(refused(run, state, POISON)),
    }
}

/// Refuses what a run that is to be cancelled may not do any more: ask for something new, or be completed.
pub(crate) fn refuse_new(write: &Write, past_pivot: bool) -> Result<(), LedgerError> {
    let asks = |ready: &Ready| match &ready.entry.content {
        Content::Effect { effect, event } => write.effects.iter().any(|told| {
            let attempts = usize::try_from(told.attempts).unwrap_or(usize::MAX);
            let of_node = told.undoes.is_none() && told.approves.is_none();
            let asked = Asked { state: told.state, attempts, of_node };
            told.id == *effect && saga::asks_anew(event, asked)
        }),
        Content::Run(_) => false,
    };
    let completes = write.change.as_ref().is_some_and(|c| c.state == RunState::Completed);
    if !past_pivot && (completes || write.entries.iter().any(asks)) {
        return Err(LedgerError::Cancelled { run: write.run.clone() });
    }
    Ok(())
}

/// Whether a write is an answer to what a person was asked, and nothing else: it rests on that question alone, so that it does not
/// matter who holds the run, or how far it has come meanwhile.
pub(crate) fn is_answer(write: &Write) -> bool {
    let settles = |ready: &Ready| match &ready.entry.content {
        Content::Effect { event, .. } => approval::is_answer(event),
        Content::Run(_) => false,
    };
    let asked = !write.effects.is_empty() && write.effects.iter().all(|e| e.approves.is_some());
    write.change.is_none() && asked && write.entries.iter().all(settles)
}

/// Whether a run would be left to wait by one who does not know that it is to be cancelled.
pub(crate) fn missed_cancel(cancelled: bool, change: &Change) -> bool {
    let waits = matches!(change.state, RunState::Ready | RunState::Waiting | RunState::Halted);
    cancelled && !change.cancel_seen && waits
}

/// Whether a run that vanished workers left `crashes` times is not loaded any more.
pub(crate) const fn is_poison(crashes: u32) -> bool {
    crashes >= CRASHES_MAX
}

pub(crate) fn quarantine_reason(run: &RunId, crashes: u32) -> String {
    format!(
        "{crashes} workers in a row vanished with it and it made no progress; find the cause, then `twice runs release {run} --reason 'WHY'`"
    )
}

pub(crate) fn refused(run: &RunId, state: RunState, rule: &'static str) -> LedgerError {
    LedgerError::State { run: run.clone(), state: state.as_str().to_owned(), rule }
}

pub(crate) fn absent(what: &'static str, id: impl ToString) -> LedgerError {
    LedgerError::Absent { what, id: id.to_string() }
}

pub(crate) fn conflict(run: &RunId, difference: impl Into<String>) -> LedgerError {
    LedgerError::RunConflict { run: run.clone(), difference: difference.into() }
}
