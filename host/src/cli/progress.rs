//! What a command that runs something prints while it does.

use twice_core::ids::RunId;

use super::out::Out;
use super::term::visible;
use crate::engine::observer::{Observer, Progress};

/// Prints a line for each thing that happens; nothing when the command prints JSON.
pub(super) struct Watch {
    out: Out,
    quiet: bool,
}

impl Watch {
    /// A watch that prints to `term`.
    #[must_use]
    pub(super) fn new(out: &Out, quiet: bool) -> Self {
        Self { out: out.clone(), quiet }
    }
}

impl Observer for Watch {
    fn observe(&self, _run: &RunId, progress: &Progress<'_>) {
        if self.quiet {
            return;
        }
        let line = match progress {
            Progress::Claimed { takeover: true } => {
                "  took the run over from a worker that vanished".to_owned()
            }
            Progress::Claimed { takeover: false } => return,
            Progress::StepStarted { step, attempt: 1 } => format!("  {step}: started"),
            Progress::StepStarted { step, attempt } => {
                format!("  {step}: started, attempt {attempt}")
            }
            Progress::StepCompleted { step } => format!("  {step}: done"),
            Progress::StepFailed { message, retry_at, .. } => match retry_at {
                Some(at) => format!("  {message}; started again at {at}"),
                None => format!("  {message}"),
            },
            Progress::Effect { key, state, event, .. } => {
                // Most events are the state that they lead to.
                let said = state.as_str().eq_ignore_ascii_case(event);
                let after = if said { format!(" {key}") } else { format!(" {key} ({event})") };
                self.out.status_line("    ", state.as_str(), &after);
                return;
            }
            Progress::Compensating { why } => format!("  going back: {why}"),
            Progress::Log { step, level, message } => format!("    {step} {level}: {message}"),
        };
        self.out.line(&line);
    }
}

/// Passes on what nodes log to the log of this process, which shows it when asked: a worker runs many at once, and what they say
/// is kept nowhere else.
pub(super) struct NodeLog;

impl Observer for NodeLog {
    fn observe(&self, run: &RunId, progress: &Progress<'_>) {
        let Progress::Log { step, level, message } = progress else { return };
        let message = visible(message);
        match *level {
            "debug" => tracing::debug!(target: "node", "{run} {step} {level}: {message}"),
            // How bad it is for the node says nothing of the worker.
            _ => tracing::info!(target: "node", "{run} {step} {level}: {message}"),
        }
    }
}
