//! The hash chain that binds the ledger entries of a run together: each hash covers the entry's content and the hash
//! before it, so that a changed, missing or reordered entry is found. What a chain alone cannot show is that its tail
//! was cut off.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::ToolClass;
use crate::effect::State;
use crate::event::{Authorization, EffectEvent, RunEvent};
use crate::identity::{RequestHash, Scope, tagged_sha256};
use crate::ids::{EffectId, Fence, RunId};
use crate::json;
use crate::limits::{ENTRY_BYTES_MAX, ENTRY_DEPTH_MAX};
use crate::time::Timestamp;
use crate::transition;

/// A digest in the chain.
pub type Hash = [u8; 32];

/// What an entry says.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "contents are made one at a time and written at once, never kept in bulk"
)]
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

/// Why the stored form of an event cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The body is not JSON as we write it.
    #[error("its body is not strict JSON: {0}")]
    Json(json::JsonError),
    /// The body is no event that this version knows.
    #[error("its body is no event known to this version: {0}")]
    Event(String),
    /// The kind beside the body is not that of the body.
    #[error("it is filed as `{stored}`, but its body says `{found}`")]
    Kind {
        /// The kind beside the body.
        stored: String,
        /// The kind that the body has.
        found: &'static str,
    },
}

impl Content {
    /// Reads the stored form back: the kind, the effect it is about (none: it is about the run) and the body.
    ///
    /// # Errors
    /// [`Unreadable`]; stored data is never trusted to be what this version wrote.
    pub fn from_stored(
        kind: &str,
        effect: Option<EffectId>,
        body: &str,
    ) -> Result<Self, Unreadable> {
        let value =
            json::parse_deeper(body, ENTRY_BYTES_MAX, ENTRY_DEPTH_MAX).map_err(Unreadable::Json)?;
        let unknown = |error: serde_json::Error| Unreadable::Event(error.to_string());
        let content = match effect {
            Some(effect) => {
                let event = serde_json::from_value(value).map_err(unknown)?;
                Self::Effect { effect, event }
            }
            None => Self::Run(serde_json::from_value(value).map_err(unknown)?),
        };
        let found = content.kind();
        if found == kind {
            Ok(content)
        } else {
            Err(Unreadable::Kind { stored: kind.to_owned(), found })
        }
    }

    /// The effect it is about.
    #[must_use]
    pub const fn effect(&self) -> Option<&EffectId> {
        match self {
            Self::Effect { effect, .. } => Some(effect),
            Self::Run(_) => None,
        }
    }

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
}

impl Head {
    /// The head of a chain without entries. It depends on the run, so that no entry fits two chains.
    #[must_use]
    pub fn empty(run: &RunId) -> Self {
        Self { seq: 0, hash: tagged_sha256("twice/chain/v1", run.as_str().as_bytes()) }
    }
}

impl Entry {
    /// The head of the chain after this entry.
    #[must_use]
    pub const fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash }
    }

    /// What it says.
    ///
    /// # Errors
    /// [`Unreadable`] when its body is not the event that its kind promises.
    pub fn content(&self) -> Result<Content, Unreadable> {
        Content::from_stored(&self.kind, self.effect.clone(), &self.body)
    }

    /// The hash that its columns should have: SHA-256 over `twice/entry/v1`, a zero byte, and in this order `run`, `seq`,
    /// `fence`, `at`, `effect`, `kind`, `body`, `prev`. Texts are preceded by their length in bytes, numbers and lengths
    /// are 8 bytes, big-endian two's complement; the effect is preceded by a byte 1, or is a byte 0 when there is none;
    /// `prev` is 32 bytes.
    #[must_use]
    pub fn computed_hash(&self) -> Hash {
        fn put(out: &mut Vec<u8>, text: &str) {
            out.extend_from_slice(&(text.len() as u64).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        let mut bytes = Vec::with_capacity(self.body.len() + 256);
        put(&mut bytes, self.run.as_str());
        for number in [self.seq, self.fence.0, self.at.0] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.push(u8::from(self.effect.is_some()));
        if let Some(effect) = &self.effect {
            put(&mut bytes, effect.as_str());
        }
        put(&mut bytes, &self.kind);
        put(&mut bytes, &self.body);
        bytes.extend_from_slice(&self.prev);
        tagged_sha256("twice/entry/v1", &bytes)
    }
}

/// Puts an entry in its place after `head`.
#[must_use]
pub fn seal(run: &RunId, head: Head, fence: Fence, entry: &NewEntry) -> Entry {
    let body = json::canonical(&entry.content.to_value());
    seal_text(run, head, fence, entry.at, &entry.content, body)
}

/// As [`seal`], with the canonical JSON of the content made before: the writers of a ledger have no time for that.
#[must_use]
pub fn seal_text(
    run: &RunId,
    head: Head,
    fence: Fence,
    at: Timestamp,
    content: &Content,
    body: String,
) -> Entry {
    let mut sealed = Entry {
        run: run.clone(),
        seq: head.seq + 1,
        fence,
        at,
        effect: content.effect().cloned(),
        kind: content.kind().to_owned(),
        body,
        prev: head.hash,
        hash: [0; 32],
    };
    sealed.hash = sealed.computed_hash();
    sealed
}

/// Checks the entries of one run, all of them and in order: numbering, links, content, and that no effect made a move
/// that the state machine does not know. Returns the head to compare with what is remembered elsewhere: that the last
/// entries are missing cannot be seen from the others.
///
/// # Errors
/// [`Broken`], naming the first entry that does not hold.
pub fn verify<'a>(
    run: &RunId,
    entries: impl IntoIterator<Item = &'a Entry>,
) -> Result<Head, Broken> {
    let mut verifier = Verifier::new(run);
    for entry in entries {
        verifier.push(entry)?;
    }
    Ok(verifier.head())
}

/// As [`verify`], entry by entry; holds a few dozen bytes for each effect and nothing of the bodies.
#[derive(Debug, Clone)]
pub struct Verifier {
    run: RunId,
    head: Head,
    effects: BTreeMap<EffectId, Seen>,
}

/// What later entries of an effect are checked against.
#[derive(Debug, Clone)]
struct Seen {
    state: State,
    class: ToolClass,
    request_hash: RequestHash,
    attempts: u32,
    /// Whether an attempt was left in doubt.
    in_doubt: bool,
    /// Whether it may be sent only with a person's approval.
    needs_approval: bool,
    /// The effect that it asks a person's approval of, and the request.
    approves: Option<(EffectId, RequestHash)>,
}

impl Verifier {
    /// A verifier for the chain of a run, before its first entry.
    #[must_use]
    pub fn new(run: &RunId) -> Self {
        Self { run: run.clone(), head: Head::empty(run), effects: BTreeMap::new() }
    }

    /// The head after the entries so far.
    #[must_use]
    pub const fn head(&self) -> Head {
        self.head
    }

    /// Takes in the next entry.
    ///
    /// # Errors
    /// [`Broken`]; what follows such an entry proves nothing, so that the verifier is of no more use.
    pub fn push(&mut self, entry: &Entry) -> Result<(), Broken> {
        let run = || self.run.clone();
        let expected = self.head.seq + 1;
        if entry.seq != expected {
            return Err(Broken::Sequence { run: run(), expected, found: entry.seq });
        }
        if entry.prev != self.head.hash {
            return Err(Broken::Link { run: run(), seq: entry.seq });
        }
        if entry.run != self.run || entry.computed_hash() != entry.hash {
            return Err(Broken::Content { run: run(), seq: entry.seq });
        }
        let content = entry.content().map_err(|error| Broken::Unreadable {
            run: run(),
            seq: entry.seq,
            message: error.to_string(),
        })?;
        if let Content::Effect { effect, event } = &content {
            self.fold(effect, event).map_err(|message| Broken::IllegalMove {
                run: self.run.clone(),
                seq: entry.seq,
                message,
            })?;
        }
        self.head = entry.head();
        Ok(())
    }

    fn fold(&mut self, effect: &EffectId, event: &EffectEvent) -> Result<(), String> {
        if let EffectEvent::Authorized(authorization) = event {
            self.is_approved(effect, authorization)
                .map_err(|message| format!("{effect}: {message}"))?;
        }
        let seen = self.effects.get_mut(effect);
        let from = seen.as_ref().map(|seen| seen.state);
        let state = transition::next(from, event.kind())
            .map_err(|illegal| format!("{effect}: {illegal}"))?;
        match (event, seen) {
            (EffectEvent::Proposed(proposal), seen) => {
                if proposal.identity.effect_id() != *effect {
                    return Err(format!(
                        "{effect} is proposed with an identity that is not its own"
                    ));
                }
                let approves = match (&proposal.approves, &proposal.identity.scope) {
                    (Some(effect), Scope::Approval { request, .. }) => {
                        Some((effect.clone(), request.clone()))
                    }
                    _ => None,
                };
                let proposed = Seen {
                    state,
                    class: proposal.contract.class(),
                    request_hash: proposal.request_hash.clone(),
                    attempts: seen.as_ref().map_or(0, |seen| seen.attempts),
                    in_doubt: seen.is_some_and(|seen| seen.in_doubt),
                    needs_approval: proposal.approval.is_some(),
                    approves,
                };
                self.effects.insert(effect.clone(), proposed);
                Ok(())
            }
            (_, Some(seen)) => {
                seen.take_in(event).map_err(|message| format!("{effect}: {message}"))?;
                seen.state = state;
                Ok(())
            }
            (_, None) => Err(format!("{effect} has no proposal")),
        }
    }

    /// Whether what is permitted has the approval that it needs: granted before, and for this very request.
    fn is_approved(&self, effect: &EffectId, given: &Authorization) -> Result<(), String> {
        let needs = self.effects.get(effect).is_some_and(|seen| seen.needs_approval);
        let Some(id) = &given.approval else {
            return match needs {
                true => Err("authorized without the approval that it needs".to_owned()),
                false => Ok(()),
            };
        };
        let approval = self.effects.get(id).filter(|seen| seen.state == State::Confirmed);
        let is_for = |(of, request): &(EffectId, RequestHash)| {
            of == effect && *request == given.request_hash
        };
        match approval.and_then(|seen| seen.approves.as_ref()) {
            Some(about) if is_for(about) => Ok(()),
            Some(_) => Err(format!("authorized under {id}, which approves something else")),
            None => Err(format!("authorized under {id}, which was not granted")),
        }
    }
}

impl Seen {
    /// What no honest host writes, though the table of moves knows it: a permit or receipt for another request than the
    /// one on record (I6), attempts that are not counted one by one (I4), a second request of what may be sent once (I1),
    /// a clean failure that clears an earlier doubt (I5).
    fn take_in(&mut self, event: &EffectEvent) -> Result<(), String> {
        match event {
            EffectEvent::Authorized(authorization) => {
                self.is_for(&authorization.request_hash, "authorized")
            }
            EffectEvent::Confirmed(receipt) => self.is_for(&receipt.request_hash, "confirmed"),
            EffectEvent::Requested(start) => {
                self.attempts += 1;
                if start.attempt != self.attempts {
                    return Err(format!(
                        "attempt {} is counted as {}",
                        self.attempts, start.attempt
                    ));
                }
                if self.class == ToolClass::Neither && self.in_doubt {
                    return Err("sent again in doubt, though its tool has neither key nor lookup"
                        .to_owned());
                }
                Ok(())
            }
            EffectEvent::Deferred(_) if self.in_doubt && self.class != ToolClass::Read => {
                Err("taken for not processed while an earlier attempt is in doubt".to_owned())
            }
            EffectEvent::Unknown(_) if self.class == ToolClass::Ledger => {
                Err("unknown, though this ledger tells what became of it".to_owned())
            }
            EffectEvent::Unknown(_) => {
                self.in_doubt = true;
                Ok(())
            }
            EffectEvent::Proposed(_)
            | EffectEvent::Failed(_)
            | EffectEvent::Deferred(_)
            | EffectEvent::Probed(_)
            | EffectEvent::Observed(_)
            | EffectEvent::Conflicted(_)
            | EffectEvent::ConflictDecided(_) => Ok(()),
        }
    }

    fn is_for(&self, hash: &RequestHash, kind: &str) -> Result<(), String> {
        if *hash == self.request_hash {
            return Ok(());
        }
        Err(format!("requested as {}, but `{kind}` is for {hash}", self.request_hash))
    }
}
