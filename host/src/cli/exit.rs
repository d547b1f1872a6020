//! Exit codes, as documented: scripts may rely on them.

use std::process::ExitCode;

use crate::engine::RunEnd;

/// How a command ended. Code 2, a command line that is not right, is given by the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// Done.
    Done,
    /// It could not be done; standard error says why.
    Error,
    /// The run failed, or was cancelled.
    RunFailed,
    /// The run waits, or needs a person.
    RunWaits,
    /// Ctrl-C ended it.
    Interrupted,
}

impl Exit {
    /// The code.
    #[must_use]
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Error => 1,
            Self::RunFailed => 3,
            Self::RunWaits => 4,
            Self::Interrupted => 130,
        }
    }

    /// The code for how a run ended.
    #[must_use]
    pub(super) const fn of_run(end: &RunEnd) -> Self {
        match end {
            RunEnd::Completed(_) => Self::Done,
            RunEnd::Failed { .. } | RunEnd::Cancelled { .. } => Self::RunFailed,
            RunEnd::Waiting { .. }
            | RunEnd::Halted { .. }
            | RunEnd::Stuck { .. }
            | RunEnd::Quarantined
            | RunEnd::Elsewhere => Self::RunWaits,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
