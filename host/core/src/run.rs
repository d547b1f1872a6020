//! A run: its states and the progress that a checkpoint holds.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::event::RunEvent;
use crate::ids::Name;
use crate::time::Timestamp;

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
    /// Failed for good.
    Failed,
    /// Killed too many workers; not loaded until a person releases it.
    Quarantined,
}

impl RunState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Running,
        Self::Waiting,
        Self::Halted,
        Self::Completed,
        Self::Failed,
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
            Self::Quarantined => "quarantined",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether it can never go on.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Failed => true,
            Self::Ready | Self::Running | Self::Waiting | Self::Halted | Self::Quarantined => false,
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

/// What a checkpoint holds: where each node stands. Folded from run events, like an effect from its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The nodes that have been reached, by name.
    pub nodes: BTreeMap<Name, NodeProgress>,
}

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeProgress {
    /// Its current visit, from 1.
    pub visit: u32,
    /// Attempts of the current visit that failed.
    pub failed_attempts: u32,
    /// Its last output; `None` until it returned once.
    pub output: Option<Value>,
    /// When it last returned; the durable clock of the steps after it starts here.
    pub finished_at: Option<Timestamp>,
}

impl Progress {
    /// Takes in one more event of the run.
    pub fn apply(&mut self, event: &RunEvent, at: Timestamp) {
        match event {
            RunEvent::StepCompleted { node, visit, output, .. } => {
                let entry = self.reached(node, *visit);
                entry.output = Some(output.clone());
                entry.finished_at = Some(at);
                entry.failed_attempts = 0;
            }
            RunEvent::StepFailed { node, visit, attempt, .. } => {
                self.reached(node, *visit).failed_attempts = *attempt;
            }
            RunEvent::Retried { .. } => {
                for node in self.nodes.values_mut().filter(|node| node.output.is_none()) {
                    node.failed_attempts = 0;
                }
            }
            RunEvent::Started { .. }
            | RunEvent::NodeEntered { .. }
            | RunEvent::StepSkipped { .. }
            | RunEvent::LoopDecided { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::Claimed { .. }
            | RunEvent::Parked { .. }
            | RunEvent::Halted { .. }
            | RunEvent::Released { .. }
            | RunEvent::RequestRefused { .. }
            | RunEvent::Adopted { .. }
            | RunEvent::Completed { .. }
            | RunEvent::Failed { .. }
            | RunEvent::Quarantined { .. } => {}
        }
    }

    fn reached(&mut self, node: &Name, visit: u32) -> &mut NodeProgress {
        let entry = self.nodes.entry(node.clone()).or_insert(NodeProgress {
            visit,
            failed_attempts: 0,
            output: None,
            finished_at: None,
        });
        if entry.visit != visit {
            (entry.visit, entry.failed_attempts) = (visit, 0);
        }
        entry
    }

    /// Whether a node has returned.
    #[must_use]
    pub fn is_done(&self, node: &Name) -> bool {
        self.nodes.get(node).is_some_and(|progress| progress.output.is_some())
    }

    /// The state a node sees: `{ "input": …, "nodes": { "<name>": <its last output> } }`.
    #[must_use]
    pub fn state(&self, input: &Value) -> Value {
        let nodes: Map<String, Value> = self
            .nodes
            .iter()
            .filter_map(|(name, progress)| Some((name.to_string(), progress.output.clone()?)))
            .collect();
        json!({ "input": input, "nodes": nodes })
    }
}
