//! What the writer is asked to do, and what it answers.

use twice_core::chain::{Content, Head, NewEntry};
use twice_core::event::{Parent, RunEvent};
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::progress::Progress;
use twice_core::run::{Priority, RunState};
use twice_core::time::Timestamp;

use crate::locks::{Asked, Freed, Locked};
use crate::stored::{Ready, Write};
use crate::{ClaimBy, ClaimOutcome, LedgerError, Prune, RunRecord, Started, Tombstone, Wanted};

/// A run to start, ready to be stored.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) id: RunId,
    pub(crate) caller_key: Option<String>,
    pub(crate) workflow: Name,
    pub(crate) definition: String,
    pub(crate) input: String,
    pub(crate) priority: Priority,
    pub(crate) entry: Ready,
    pub(crate) claim: Option<ClaimBy>,
    pub(crate) parent_fence: Option<Fence>,
}

impl Start {
    /// The checkpoint that has taken in the first entry.
    pub(crate) fn progress(&self) -> Progress {
        let NewEntry { content, at } = &self.entry.entry;
        let event = match content {
            Content::Run(event) => Some((event, *at)),
            Content::Effect { .. } => None,
        };
        Progress::of(event)
    }

    /// The effect that it is, when another run starts it.
    pub(crate) const fn parent(&self) -> Option<&Parent> {
        match &self.entry.entry.content {
            Content::Run(RunEvent::Started { parent, .. }) => parent.as_ref(),
            Content::Run(_) | Content::Effect { .. } => None,
        }
    }

    /// The run as it will be, before anyone claims it.
    pub(crate) fn record(&self) -> Result<RunRecord, LedgerError> {
        let input = serde_json::from_str(&self.input).map_err(|problem| LedgerError::Corrupt {
            table: "run",
            column: "input",
            key: self.id.to_string(),
            problem: problem.to_string(),
        })?;
        Ok(RunRecord {
            id: self.id.clone(),
            workflow: self.workflow.clone(),
            definition: self.definition.clone(),
            input,
            priority: self.priority,
            state: RunState::Ready,
            progress: self.progress(),
            progress_seq: 1,
            output: None,
            reason: None,
            cancel: None,
            due_at: None,
            worker: None,
            fence: Fence(0),
            lease_live: false,
            lease_until: None,
            crashes: 0,
            created_at: self.entry.entry.at,
            updated_at: self.entry.entry.at,
            parent: self.parent().cloned(),
        })
    }
}

/// One write. Whole or not at all.
#[derive(Debug)]
pub(crate) enum Work {
    Start(Box<Start>),
    Claim { by: ClaimBy, wanted: Wanted, at: Timestamp },
    Renew { run: RunId, fence: Fence, lease_ms: u64 },
    Append { write: Write, fence: Fence, progress_made: bool, past_pivot: bool },
    Decide { write: Write, expected_head: Head },
    Wake { run: RunId },
    Prune(Box<Prune>),
    Observe { run: RunId, effect: EffectId, entry: Box<Ready> },
    Cancel { run: RunId, cancel: String, entry: Box<Ready> },
    Lock(Box<Asked>),
    Unlock(Box<Freed>),
    PutDefinition { digest: String, text: String },
    PutModule { name: Name, digest: String, bytes: Vec<u8>, at: Timestamp },
}

/// What came of a write.
#[derive(Debug)]
pub(crate) enum Reply {
    Started(Box<Started>),
    Claim(ClaimOutcome),
    Head(Head),
    Tombstone(Box<Tombstone>),
    Renewed { cancelled: bool },
    Locked(Locked),
    Done,
}

impl Reply {
    /// The head that a write of entries is answered by.
    pub(crate) fn into_head(self) -> Head {
        let Self::Head(head) = self else {
            unreachable!("a write of entries is answered by a head")
        };
        head
    }
}

impl Work {
    /// What it does, as the end of "the ledger could not …".
    pub(crate) const fn action(&self) -> &'static str {
        match self {
            Self::Start(_) => "start a run",
            Self::Claim { .. } => "claim a run",
            Self::Renew { .. } => "renew a lease",
            Self::Append { .. } => "write a step of a run",
            Self::Decide { .. } => "write a person's decision",
            Self::Wake { .. } => "make a run due",
            Self::Prune(_) => "remove a run",
            Self::Observe { .. } => "keep an observation",
            Self::Cancel { .. } => "ask for the cancellation of a run",
            Self::Lock(_) => "take a lock on a business object",
            Self::Unlock(_) => "take a lock from a run",
            Self::PutDefinition { .. } => "store a definition",
            Self::PutModule { .. } => "register a component",
        }
    }

    /// The run it names.
    pub(crate) const fn run(&self) -> Option<&RunId> {
        match self {
            Self::Start(start) => Some(&start.id),
            Self::Prune(prune) => Some(&prune.run),
            Self::Lock(asked) => Some(&asked.wanted.run),
            Self::Unlock(freed) => Some(&freed.run),
            Self::Claim { wanted: Wanted::Run { id, .. }, .. } => Some(id),
            Self::Renew { run, .. }
            | Self::Wake { run }
            | Self::Observe { run, .. }
            | Self::Cancel { run, .. } => Some(run),
            Self::Append { write, .. } | Self::Decide { write, .. } => Some(&write.run),
            Self::Claim { wanted: Wanted::Turn(_), .. }
            | Self::PutDefinition { .. }
            | Self::PutModule { .. } => None,
        }
    }

    /// The runs that it reads or writes, as far as it names them.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &RunId> {
        let parent = match self {
            Self::Start(start) => start.parent().map(|parent| &parent.run),
            _ => None,
        };
        self.run().into_iter().chain(parent)
    }

    const fn write(&self) -> Option<&Write> {
        match self {
            Self::Append { write, .. } | Self::Decide { write, .. } => Some(write),
            Self::Start(_)
            | Self::Claim { .. }
            | Self::Renew { .. }
            | Self::Wake { .. }
            | Self::Prune(_)
            | Self::Observe { .. }
            | Self::Cancel { .. }
            | Self::Lock(_)
            | Self::Unlock(_)
            | Self::PutDefinition { .. }
            | Self::PutModule { .. } => None,
        }
    }

    const fn observed(&self) -> Option<&EffectId> {
        match self {
            Self::Observe { effect, .. } => Some(effect),
            Self::Start(_)
            | Self::Claim { .. }
            | Self::Renew { .. }
            | Self::Wake { .. }
            | Self::Prune(_)
            | Self::Append { .. }
            | Self::Decide { .. }
            | Self::Cancel { .. }
            | Self::Lock(_)
            | Self::Unlock(_)
            | Self::PutDefinition { .. }
            | Self::PutModule { .. } => None,
        }
    }

    /// The effects that it is about.
    pub(crate) fn effects(&self) -> impl Iterator<Item = &EffectId> {
        let written = self.write().into_iter().flat_map(|write| &write.effects);
        written.map(|effect| &effect.id).chain(self.observed())
    }

    /// The lock on a business object that it is about.
    pub(crate) fn lock(&self) -> Option<(&Name, &str)> {
        match self {
            Self::Lock(asked) => Some((&asked.wanted.name, &asked.wanted.object)),
            Self::Unlock(freed) => Some((&freed.name, &freed.object)),
            Self::Start(_)
            | Self::Claim { .. }
            | Self::Renew { .. }
            | Self::Prune(_)
            | Self::Append { .. }
            | Self::Decide { .. }
            | Self::Observe { .. }
            | Self::Wake { .. }
            | Self::Cancel { .. }
            | Self::PutDefinition { .. }
            | Self::PutModule { .. } => None,
        }
    }

    /// How much it adds to a transaction.
    pub(crate) fn entries(&self) -> usize {
        match self {
            // What is deleted counts as what is written.
            Self::Prune(prune) => usize::try_from(prune.expected_head.seq).unwrap_or(1),
            _ => self.write().map_or(1, |write| write.entries.len().max(1)),
        }
    }
}
