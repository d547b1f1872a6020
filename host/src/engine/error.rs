//! What stops the executor itself. What goes wrong *in* a run is recorded in the run, never returned as an error.

use twice_core::ids::{Name, RunId};
use twice_core::transition::Illegal;
use twice_ledger::LedgerError;
use twice_sandbox::SandboxError;

/// Why the executor could not go on with a run. The run itself is unharmed and can be resumed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The ledger refused or failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The pinned definition of the run is missing or cannot be read.
    #[error("run {run}: its pinned definition {digest} {problem}")]
    Definition {
        /// The run.
        run: RunId,
        /// The digest it is pinned to.
        digest: String,
        /// What is wrong.
        problem: String,
    },
    /// A pinned component is missing.
    #[error(
        "component `{name}` ({digest}) is not in the ledger; register the file it was made from again with `twice node add {name} FILE.wasm`"
    )]
    ComponentMissing {
        /// The module's name.
        name: String,
        /// The digest that is pinned.
        digest: String,
    },
    /// A pinned component cannot be loaded.
    #[error("component `{name}` cannot be loaded")]
    Component {
        /// The module's name.
        name: String,
        /// Why.
        #[source]
        source: SandboxError,
    },
    /// A node's component imports functions that its slots do not grant.
    #[error("the component of node `{node}` cannot be run here:{}", lines(.problems))]
    Ungranted {
        /// The node.
        node: Name,
        /// One line for each function, with the fix.
        problems: Vec<String>,
    },
    /// The history of an effect makes a move that the state machine does not know.
    #[error(
        "the history of effect {effect} is not legal; find its run with `twice effects show {effect}`; `twice runs show RUN` verifies it"
    )]
    History {
        /// The effect.
        effect: String,
        /// Which move.
        #[source]
        source: Illegal,
    },
    /// What was to be recorded holds the value of a secret.
    #[error(
        "{what} holds the value of a secret; nothing was recorded\nfix: leave it out; a tool adds its secrets to the requests that need them"
    )]
    HoldsSecret {
        /// What was to be recorded, never the value.
        what: &'static str,
    },
    /// A write of the run failed, and with it everything else that was recorded of it here.
    #[error("a write of the run failed; it goes on when it is taken again")]
    GivenUp,
    /// The lease was lost while a step ran; whoever has the run now goes on with it.
    #[error("the lease was lost; another worker has the run")]
    LeaseLost,
}

impl EngineError {
    /// Whether another worker took the run, which is no fault at all.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        matches!(self, Self::LeaseLost | Self::Ledger(LedgerError::Fenced { .. }))
    }
}

fn lines(problems: &[String]) -> String {
    problems.iter().map(|problem| format!("\n  - {problem}")).collect()
}
