//! The hash chain that binds the ledger entries of a run together: each hash covers the entry's content and the hash
//! before it, so that a changed, missing or reordered entry is found. What a chain alone cannot show is that its tail
//! was cut off.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{EffectEvent, RunEvent};
use crate::identity::tagged_sha256;
use crate::ids::{EffectId, Fence, RunId};
use crate::json;
use crate::time::Timestamp;

/// A digest in the chain.
pub type Hash = [u8; 32];

/// What an entry says.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Something about an effect.
    Effect {
        /// Which.
        effect: EffectId,
        /// What.
        event: EffectEvent,
    },
    /// Something about the run itself.
    Run(RunEvent),
}

/// An entry before it has its place in the chain.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEntry {
    /// What it says.
    pub content: Content,
    /// When it was made, by the host's clock.
    pub at: Timestamp,
}

/// The head of a chain: where the next entry goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last entry; 0 when there is none.
    pub seq: i64,
    /// Its hash; that of the empty chain when there is none.
    pub hash: Hash,
}

/// An entry in its place, in the form in which it is stored and hashed.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The run, which is the chain.
    pub run: RunId,
    /// From 1, without gaps.
    pub seq: i64,
    /// The lease under which it was written.
    pub fence: Fence,
    /// When it was made.
    pub at: Timestamp,
    /// The effect it is about.
    pub effect: Option<EffectId>,
    /// The kind of event, e.g. `requested` or `step_completed`.
    pub kind: String,
    /// Canonical JSON of the event.
    pub body: String,
    /// The hash of the entry before.
    pub prev: Hash,
    /// Its own.
    pub hash: Hash,
}

/// Why a chain does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The numbers are not 1, 2, 3, ….
    #[error(
        "entry {found} of run {run} stands where entry {expected} belongs: entries are missing, doubled or reordered"
    )]
    Sequence {
        /// The run.
        run: RunId,
        /// The number that belongs there.
        expected: i64,
        /// The number that stands there.
        found: i64,
    },
    /// An entry does not continue the one before it.
    #[error("entry {seq} of run {run} does not continue the entry before it")]
    Link {
        /// The run.
        run: RunId,
        /// Which entry.
        seq: i64,
    },
    /// An entry's content is not what was hashed.
    #[error("entry {seq} of run {run} was changed after it was written")]
    Content {
        /// The run.
        run: RunId,
        /// Which entry.
        seq: i64,
    },
    /// An entry cannot be read.
    #[error("entry {seq} of run {run} cannot be read: {message}")]
    Unreadable {
        /// The run.
        run: RunId,
        /// Which entry.
        seq: i64,
        /// Why.
        message: String,
    },
    /// An entry is a move that the state machine does not know.
    #[error("entry {seq} of run {run} is not legal there: {message}")]
    IllegalMove {
        /// The run.
        run: RunId,
        /// Which entry.
        seq: i64,
        /// Why.
        message: String,
    },
}

impl Content {
    /// The kind of event.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Effect { event, .. } => event.kind().as_str(),
            Self::Run(event) => event.kind(),
        }
    }

    /// The event as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Effect { event, .. } => serde_json::to_value(event),
            Self::Run(event) => serde_json::to_value(event),
        }
        .expect("events are plain data")
    }

    /// Reads an event back from its stored form.
    ///
    /// # Errors
    /// In words, when the body is not an event of that kind.
    pub fn from_stored(kind: &str, effect: Option<EffectId>, body: &str) -> Result<Self, String> {
        let content = match effect {
            Some(effect) => {
                let event = serde_json::from_str(body).map_err(|error| error.to_string())?;
                Self::Effect { effect, event }
            }
            None => Self::Run(serde_json::from_str(body).map_err(|error| error.to_string())?),
        };
        if content.kind() == kind {
            Ok(content)
        } else {
            Err(format!("the body is a `{}`, not a `{kind}`", content.kind()))
        }
    }
}

impl Head {
    /// The head of a chain without entries; differs from run to run.
    #[must_use]
    pub fn empty(run: &RunId) -> Self {
        Self { seq: 0, hash: tagged_sha256("twice/chain/v1", run.as_str().as_bytes()) }
    }
}

/// Puts an entry in its place after `head`.
#[must_use]
pub fn seal(run: &RunId, head: Head, fence: Fence, entry: &NewEntry) -> Entry {
    let (effect, kind) = match &entry.content {
        Content::Effect { effect, event } => (Some(effect.clone()), event.kind().as_str()),
        Content::Run(event) => (None, event.kind()),
    };
    let seq = head.seq + 1;
    let body = json::canonical(&entry.content.to_value());
    let sealed = serde_json::json!({
        "run": run, "seq": seq, "fence": fence, "at": entry.at, "effect": effect, "kind": kind,
        "body": body, "prev": data_encoding::HEXLOWER.encode(&head.hash),
    });
    let hash = tagged_sha256("twice/entry/v1", json::canonical(&sealed).as_bytes());
    Entry {
        run: run.clone(),
        seq,
        fence,
        at: entry.at,
        effect,
        kind: kind.to_owned(),
        body,
        prev: head.hash,
        hash,
    }
}
