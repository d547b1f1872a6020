//! What can go wrong with the ledger, sorted by the one question that matters: may the write have been applied?

use twice_core::ids::{EffectId, Fence, RunId};

use crate::Tombstone;

/// Why a ledger operation did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another worker holds (or held) the run since; nothing was written (I7).
    #[error("run {run}: the lease under fencing token {fence} is gone; nothing was written")]
    Fenced {
        /// The run.
        run: RunId,
        /// The token that is no longer current.
        fence: Fence,
    },
    /// The run is to be cancelled, and something new was asked for, or it would have been completed; nothing was written.
    #[error("run {run} is to be cancelled: nothing new is asked for; nothing was written")]
    Cancelled {
        /// The run.
        run: RunId,
    },
    /// There is no such thing.
    #[error("there is no {what} `{id}` in this ledger")]
    Absent {
        /// What was looked for, e.g. `run`.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// The run exists with another workflow or input; nothing was written.
    #[error(
        "run `{run}` exists already with {difference}; choose another run id, or repeat the first start exactly"
    )]
    RunConflict {
        /// The run.
        run: RunId,
        /// What differs, in words.
        difference: String,
    },
    /// The run is over and was removed; nothing was started.
    #[error(
        "run `{}` {} and was removed from the ledger on {}; it is not run again, and what there is of it is in its export, {}",
        .tombstone.run, .tombstone.state, .tombstone.pruned_at, .tombstone.export
    )]
    Pruned {
        /// What stays of it.
        tombstone: Box<Tombstone>,
    },
    /// Another run proposed this shared effect first; nothing was written.
    #[error("effect {effect} was proposed by run {owner} first")]
    EffectOwned {
        /// The effect.
        effect: EffectId,
        /// Whose it is.
        owner: RunId,
    },
    /// The run is in a state that does not allow this; nothing was written.
    #[error("run `{run}` is {state}: {rule}")]
    State {
        /// The run.
        run: RunId,
        /// Its state.
        state: String,
        /// What would be allowed.
        rule: &'static str,
    },
    /// A stored value cannot be read: the file was damaged or written by something else.
    #[error("{table}.{column} of `{key}` is damaged: {problem}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The row's key.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A text cannot be stored as it is; nothing was written.
    #[error("the {what} cannot be stored: {rule}; nothing was written")]
    Unstorable {
        /// What it is, e.g. `caller's key`.
        what: &'static str,
        /// Which rule it breaks.
        rule: &'static str,
    },
    /// The database refused or failed, and nothing was written.
    #[error("the ledger could not {action}; nothing was written")]
    NotApplied {
        /// What was to be done.
        action: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The connection failed while committing: the write may or may not be there. Read again before anything is sent.
    #[error(
        "the ledger lost its connection while it committed ({action}); whether it was written is not known"
    )]
    Indeterminate {
        /// What was to be done.
        action: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The database cannot be opened or brought up to date.
    #[error("cannot open the ledger {url}: {problem}")]
    Open {
        /// Where it is, without credentials.
        url: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The writer stopped.
    #[error("the ledger is shut down")]
    Closed,
}
