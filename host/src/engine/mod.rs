//! The executor: claims runs, runs their steps, and does what the rules in `twice-core` say about their effects. It owns
//! no rules itself.
//!
//! Reading order: `start` and `claim` lead to a run that is held; `run` takes it on, and `schedule` has its steps (`step`)
//! under way as the planner says; what a step asks for comes in at `gateway` and is done in `drive`; `ending` undoes what a run
//! did that does not go on; `session` is the one way to the ledger.

mod answer;
mod authorize;
mod awaits;
pub mod boundary;
pub mod child;
mod circuit;
mod claim;
pub mod compiled;
mod drive;
mod durable;
mod ending;
mod error;
pub mod family;
mod gateway;
mod late;
pub mod lease;
mod load;
mod object_lock;
pub mod observer;
pub mod operator;
mod resolve;
pub mod retry;
mod run;
mod schedule;
mod session;
mod start;
mod step;
mod step_session;
mod steps;
mod stop;
mod undo_operator;
pub mod webhook;
mod writing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use twice_core::ids::WorkerId;
use twice_core::time::Clock;
use twice_core::wit::TypedImport;
use twice_ledger::Ledger;
use twice_sandbox::{Component, Sandbox};
use twice_workflow::model::Definition;

pub use claim::{HeldRun, Taken};
pub use error::EngineError;
pub use run::{HANDED_OVER, RESTARTED, RunEnd};
pub use start::{StartRun, StartedRun};
pub use stop::{NEEDS_PERSON, Stop};

use self::boundary::Boundaries;
use self::circuit::Circuits;
use self::compiled::Compiled;
use self::late::Late;
use self::observer::Observer;
use crate::tool::{AnyRequest, Driver};

/// What performs effects: the drivers of all kinds of tools behind one object.
pub type Performer = dyn Driver<Request = AnyRequest>;

/// Everything an executor is made of.
pub struct Parts {
    /// Where everything is recorded.
    pub ledger: Arc<dyn Ledger>,
    /// What runs components.
    pub sandbox: Arc<Sandbox>,
    /// What performs effects.
    pub drivers: Arc<Performer>,
    /// The host's clock.
    pub clock: Arc<dyn Clock>,
    /// Whoever watches.
    pub observer: Arc<dyn Observer>,
    /// Where crashes are injected.
    pub boundaries: Boundaries,
    /// This process, as the ledger knows it.
    pub worker: WorkerId,
    /// The length of a lease. Milliseconds.
    pub lease_ms: u64,
}

/// The executor.
pub struct Engine {
    parts: Parts,
    compiled: Mutex<HashMap<String, Arc<Compiled>>>,
    components: Mutex<HashMap<String, Component>>,
    /// What components import of tools.
    imports: Mutex<HashMap<String, Arc<Vec<TypedImport>>>>,
    circuits: Arc<Circuits>,
    late: Arc<Late>,
    draining: AtomicBool,
    /// Definitions that the ledger is known to have, with their digests; the newest last.
    pinned: Mutex<Vec<Arc<(Definition, String)>>>,
}

impl Engine {
    /// The executor made of `parts`.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            late: Late::new(Arc::clone(&parts.ledger), Arc::clone(&parts.clock)),
            parts,
            compiled: Mutex::new(HashMap::new()),
            components: Mutex::new(HashMap::new()),
            imports: Mutex::new(HashMap::new()),
            circuits: Arc::default(),
            draining: AtomicBool::new(false),
            pinned: Mutex::new(Vec::new()),
        }
    }

    /// The ledger it records in.
    #[must_use]
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.parts.ledger
    }

    /// This process, as the ledger knows it.
    #[must_use]
    pub const fn worker(&self) -> &WorkerId {
        &self.parts.worker
    }

    /// From now on no step is begun: a run that comes to its next step is given back, so that another worker takes it.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether a request is still under way, or an answer that came too late is being kept.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.late.is_busy()
    }

    /// Returns when no request is under way any more, and every answer that came too late for its run is kept in the ledger.
    /// Each request has a time of its own, so this returns at some time. A process that ends earlier loses those answers;
    /// their effects are UNKNOWN either way.
    pub async fn settle_late(&self) {
        self.late.settled().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
