//! A run: its states, and how urgent it is. Where its steps stand is [`crate::progress`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// The states of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// May be claimed, at once or when it is due.
    Ready,
    /// A worker holds its lease (or held it and died: see the lease).
    Running,
    /// Waits for an instant or an answer.
    Waiting,
    /// Waits for a person.
    Halted,
    /// Every node is done.
    Completed,
    /// Failed for good; what it had done is undone, as far as its workflow says how.
    Failed,
    /// Cancelled; what it had done is undone, as far as its workflow says how.
    Cancelled,
    /// Can neither go on nor back by itself: a compensation failed for good, or it failed behind its point of no return. A
    /// person decides.
    Stuck,
    /// Killed too many workers; not loaded until a person releases it.
    Quarantined,
}

impl RunState {
    /// Every state.
    pub const ALL: [Self; 9] = [
        Self::Ready,
        Self::Running,
        Self::Waiting,
        Self::Halted,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Stuck,
        Self::Quarantined,
    ];

    /// The word used in the ledger, in listings and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Halted => "halted",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Stuck => "stuck",
            Self::Quarantined => "quarantined",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether it goes on only when a person decides.
    #[must_use]
    pub const fn needs_person(self) -> bool {
        match self {
            Self::Halted | Self::Stuck | Self::Quarantined => true,
            Self::Ready
            | Self::Running
            | Self::Waiting
            | Self::Completed
            | Self::Failed
            | Self::Cancelled => false,
        }
    }

    /// Whether it can never go on.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Ready
            | Self::Running
            | Self::Waiting
            | Self::Halted
            | Self::Stuck
            | Self::Quarantined => false,
        }
    }
}

/// How urgent a run is among the due runs of a ledger: −9 to 9, 0 unless said; the greater is taken first. It is fixed when
/// the run starts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "i64", into = "i64")]
pub struct Priority(i8);

impl Priority {
    /// The last to be taken.
    pub const MIN: Self = Self(-9);
    /// The first to be taken.
    pub const MAX: Self = Self(9);

    /// Whether nothing else was said.
    #[must_use]
    pub const fn is_usual(&self) -> bool {
        self.0 == 0
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0 as i64
    }
}

impl TryFrom<i64> for Priority {
    type Error = InvalidPriority;

    fn try_from(number: i64) -> Result<Self, InvalidPriority> {
        match i8::try_from(number) {
            Ok(small) if (Self::MIN.0..=Self::MAX.0).contains(&small) => Ok(Self(small)),
            Ok(_) | Err(_) => Err(InvalidPriority(number)),
        }
    }
}

impl From<Priority> for i64 {
    fn from(priority: Priority) -> Self {
        priority.get()
    }
}

/// A number that is no priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no priority; give a whole number from -9 to 9")]
pub struct InvalidPriority(pub i64);

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
