use std::fmt;

use crate::effects::EffectError;

/// Why a node does not return an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeError {
    /// Start the step again later, with backoff, as often as the workflow allows. What was confirmed meanwhile stays so.
    Retryable(String),
    /// The run cannot go on, and fails once each of its effects is known to have happened or not.
    Fatal(String),
}

impl NodeError {
    /// Asks for a restart of the step later.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self::Retryable(message.into())
    }

    /// Ends the run.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::Fatal(message.into())
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retryable(message) => write!(f, "retryable: {message}"),
            Self::Fatal(message) => write!(f, "fatal: {message}"),
        }
    }
}

impl std::error::Error for NodeError {}

/// `?` on a request ends the run: the outcome is final, and a restarted node would get the same answer.
impl From<EffectError> for NodeError {
    fn from(error: EffectError) -> Self {
        Self::Fatal(error.to_string())
    }
}

/// `?` on JSON ends the run: the same text fails again.
impl From<serde_json::Error> for NodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Fatal(format!("JSON does not fit: {error}"))
    }
}
