//! The runs that a run started, and that those started: for whoever stays with a run until all of them are done, in one
//! process and without a worker.

use futures_util::stream::{self, StreamExt as _};
use twice_core::ids::RunId;
use twice_core::limits::PAGE_MAX;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{Ledger, LedgerError, RunFilter, RunRecord};

use super::stop::NEEDS_PERSON;
use super::{Engine, EngineError};

/// Most descendants that are run at a time.
const AT_A_TIME: usize = 8;

/// What came of looking after the descendants of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descendants {
    /// How many were run until they waited or ended.
    pub taken: usize,
    /// How many of the others are not over.
    pub open: usize,
    /// When the first of those is due; none when each of them waits for a person, or for one that does.
    pub due: Option<Timestamp>,
}

/// The descendants of a run that are not over.
///
/// # Errors
/// When the ledger cannot be read.
pub async fn descendants(ledger: &dyn Ledger, run: &RunId) -> Result<Vec<RunRecord>, LedgerError> {
    let mut found: Vec<RunRecord> = Vec::new();
    let mut parents = vec![run.clone()];
    while let Some(parent) = parents.pop() {
        let mut filter =
            RunFilter { parent: Some(parent), open: true, limit: PAGE_MAX, ..RunFilter::default() };
        loop {
            let page = ledger.runs(&filter).await?;
            filter.before = page.last().map(|last| last.id.clone());
            let is_last = page.len() < PAGE_MAX as usize;
            parents.extend(page.iter().map(|child| child.id.clone()));
            found.extend(page);
            if is_last {
                break;
            }
        }
    }
    Ok(found)
}

impl Engine {
    /// Runs the descendants of a run that may be taken now until each waits or ends, several at a time. `early` takes those
    /// that wait before they are due.
    ///
    /// # Errors
    /// As [`Engine::resume`]; the others have come to their end then too.
    pub async fn resume_descendants(
        &self,
        run: &RunId,
        early: bool,
    ) -> Result<Descendants, EngineError> {
        let now = self.parts.clock.now();
        let all = descendants(&*self.parts.ledger, run).await?;
        let (ready, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|record| is_ready(record, now, early));
        let due = others.iter().filter_map(due_at).min();
        let came: Vec<_> = stream::iter(&ready)
            .map(|record| self.resume(&record.id, early))
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        for end in came {
            end?;
        }
        Ok(Descendants { taken: ready.len(), open: others.len(), due })
    }

    /// Gives back a run and its descendants, as far as this executor was running them; see [`Engine::give_back`].
    ///
    /// # Errors
    /// [`EngineError::Ledger`]; the leases then run out by themselves.
    pub async fn give_back_family(&self, run: &RunId, why: &str) -> Result<(), EngineError> {
        self.give_back(run, why).await?;
        for child in descendants(&*self.parts.ledger, run).await? {
            self.give_back(&child.id, why).await?;
        }
        Ok(())
    }
}

/// Whether a run may be taken now, as far as can be told.
fn is_ready(record: &RunRecord, now: Timestamp, early: bool) -> bool {
    match record.state {
        RunState::Ready => early || record.due_at.is_none_or(|at| at <= now),
        RunState::Waiting => early || record.due_at.is_some_and(|at| at <= now),
        RunState::Running => !record.lease_live,
        RunState::Halted
        | RunState::Stuck
        | RunState::Quarantined
        | RunState::Completed
        | RunState::Failed
        | RunState::Cancelled => false,
    }
}

/// When a run goes on by itself, if it does. One that waits for a child which waits for a person only looks for it.
fn due_at(record: &RunRecord) -> Option<Timestamp> {
    let blocked = record.reason.as_ref().is_some_and(|why| why.starts_with(NEEDS_PERSON));
    match record.state {
        RunState::Ready => Some(record.due_at.unwrap_or(record.updated_at)),
        RunState::Waiting => record.due_at.filter(|_| !blocked),
        RunState::Running => record.lease_until,
        RunState::Halted
        | RunState::Stuck
        | RunState::Quarantined
        | RunState::Completed
        | RunState::Failed
        | RunState::Cancelled => None,
    }
}
