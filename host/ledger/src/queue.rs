//! Runs as workers see them: which one is next, when another will be, and how all of them stand.

use tokio::sync::watch;
use twice_core::ids::{Name, RunId, WorkerId};

/// Which run a worker wants.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// This one.
    Run {
        /// Its id.
        id: RunId,
        /// Whether it is taken before it is due, if it waits.
        early: bool,
    },
    /// The next one that is due.
    Turn(Turn),
}

impl Wanted {
    /// This one; before it is due, if `early`.
    #[must_use]
    pub fn run(id: &RunId, early: bool) -> Self {
        Self::Run { id: id.clone(), early }
    }

    /// Any that is due.
    #[must_use]
    pub fn any() -> Self {
        Self::Turn(Turn::default())
    }
}

/// A worker's turn. Among the workflows that have a run due, those whose most urgent one is most urgent come first; among
/// equals the next after the last turn's, by name and round, so that a flood of one workflow starves no other. Within the
/// workflow the most urgent run is taken, among equals the one that has been due longest.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    /// The workflow that had the last turn.
    pub after: Option<Name>,
    /// Workflows that are left out.
    pub not: Vec<Name>,
}

/// How the runs of a ledger stand that are not over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overview {
    /// By workflow, in the order of names. Only workflows that have such runs.
    pub workflows: Vec<WorkflowLoad>,
    /// Who holds runs, in the order of ids.
    pub workers: Vec<WorkerLoad>,
}

/// How many runs of a workflow stand how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowLoad {
    /// The workflow.
    pub workflow: Name,
    /// Claimable now: ready or waiting and due, or left by a worker whose lease is over.
    pub ready: u64,
    /// Held under a live lease.
    pub running: u64,
    /// Not due yet, or waiting for something that is no instant.
    pub waiting: u64,
    /// Waiting for a person.
    pub halted: u64,
    /// Neither going on nor back by themselves; a person decides.
    pub stuck: u64,
    /// Not loaded any more until a person releases it.
    pub quarantined: u64,
    /// For how long the run has been claimable that has been so longest. Milliseconds, by the database's clock.
    pub lag_ms: Option<u64>,
}

impl WorkflowLoad {
    /// Nothing yet.
    pub(crate) const fn none(workflow: Name) -> Self {
        Self {
            workflow,
            ready: 0,
            running: 0,
            waiting: 0,
            halted: 0,
            stuck: 0,
            quarantined: 0,
            lag_ms: None,
        }
    }
}

/// How many runs a worker holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLoad {
    /// The worker.
    pub worker: WorkerId,
    /// How many, under live leases.
    pub runs: u64,
}

/// Notices of runs that may have become claimable. They are hints: one may come for nothing, several may come as one, and
/// one may be lost, so whoever waits also looks for himself from time to time.
#[derive(Debug)]
pub struct Notices(pub(crate) watch::Receiver<()>);

impl Notices {
    /// Returns when there was a notice since the last time, or since these were asked for.
    pub async fn heard(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody is left who could give one.
            std::future::pending().await
        }
    }
}
