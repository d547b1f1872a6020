//! What the executor tells whoever watches: for progress on a terminal and for logs. Nothing depends on it.

use twice_core::effect::State;
use twice_core::ids::{EffectId, RunId};
use twice_core::progress::StepId;
use twice_core::time::Timestamp;

/// Something that just happened in a run.
#[derive(Debug, Clone)]
pub enum Progress<'a> {
    /// A worker took the run.
    Claimed {
        /// Whether the worker before vanished.
        takeover: bool,
    },
    /// A step starts.
    StepStarted {
        /// Which.
        step: &'a StepId,
        /// Which attempt.
        attempt: u32,
    },
    /// A step returned.
    StepCompleted {
        /// Which.
        step: &'a StepId,
    },
    /// A step failed.
    StepFailed {
        /// Which.
        step: &'a StepId,
        /// Why.
        message: &'a str,
        /// When it is started again, if it is.
        retry_at: Option<Timestamp>,
    },
    /// The run does not go on; what it did is undone.
    Compensating {
        /// Why.
        why: &'a str,
    },
    /// An effect moved.
    Effect {
        /// Which.
        id: &'a EffectId,
        /// Its readable key.
        key: &'a str,
        /// Its state now.
        state: State,
        /// What happened, e.g. `requested`.
        event: &'a str,
    },
    /// The guest said something.
    Log {
        /// The step.
        step: &'a StepId,
        /// `debug`, `info`, `warn` or `error`.
        level: &'a str,
        /// What it said.
        message: &'a str,
    },
}

/// Whoever watches.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, run: &RunId, progress: &Progress<'_>);
}

/// Watches nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {
    fn observe(&self, _run: &RunId, _progress: &Progress<'_>) {}
}
