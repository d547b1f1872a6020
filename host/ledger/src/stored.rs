//! What is asked for, in the form in which it will be stored: without secrets (I10), before anything is hashed. Done by
//! the caller's task, so that the writers spend no time on it.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value as Json;
use twice_core::chain::{Content, NewEntry};
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, Observation, RunEvent};
use twice_core::ids::{EffectId, ElementId, Name, RunId};
use twice_core::json;
use twice_core::redact::Redactor;
use twice_core::run::RunState;
use twice_core::time::Timestamp;

use crate::locks::{self, Asked, Freed};
use crate::{Cancel, EffectRow, LedgerError, ObjectLock, Prune, RunChange, Unlock};

/// Longest caller's key. Bytes; well below what an index of any of our databases takes.
const CALLER_KEY_BYTES_MAX: usize = 1_024;

/// A [`RunChange`] as stored.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) state: RunState,
    pub(crate) progress: Option<String>,
    pub(crate) output: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) due_at: Option<i64>,
    pub(crate) cancel_seen: bool,
}

/// An effect as listed.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    pub(crate) id: EffectId,
    pub(crate) node: Name,
    pub(crate) visit: u32,
    pub(crate) element: Option<ElementId>,
    pub(crate) slot: Name,
    pub(crate) operation: String,
    pub(crate) idempotency_key: String,
    pub(crate) request_hash: String,
    pub(crate) state: State,
    pub(crate) attempts: u32,
    pub(crate) external_id: Option<String>,
    pub(crate) held: bool,
    pub(crate) undoes: Option<EffectId>,
    pub(crate) approves: Option<EffectId>,
    pub(crate) settled_here: bool,
    pub(crate) last_error: Option<String>,
    pub(crate) updated_at: i64,
}

impl Projection {
    /// The listed form, under the state to show.
    pub(crate) fn row(&self, owner: &RunId, shown: State) -> EffectRow {
        EffectRow {
            id: self.id.clone(),
            run: owner.clone(),
            node: self.node.clone(),
            visit: self.visit,
            element: self.element.clone(),
            slot: self.slot.clone(),
            operation: self.operation.clone(),
            idempotency_key: self.idempotency_key.clone(),
            request_hash: self.request_hash.clone(),
            state: shown,
            attempts: self.attempts,
            external_id: self.external_id.clone(),
            held: self.held,
            undoes: self.undoes.clone(),
            approves: self.approves.clone(),
            last_error: self.last_error.clone(),
            updated_at: Timestamp(self.updated_at),
        }
    }
}

/// An entry with its body as it will be hashed and stored.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub(crate) entry: NewEntry,
    pub(crate) body: String,
}

/// Entries, effects and change of one write, ready to be stored.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) run: RunId,
    pub(crate) entries: Vec<Ready>,
    pub(crate) effects: Vec<Projection>,
    pub(crate) change: Option<Change>,
}

impl Write {
    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.effects.is_empty() && self.change.is_none()
    }
}

/// Takes secrets out.
#[derive(Clone)]
pub(crate) struct Cleaner(pub(crate) Arc<RwLock<Redactor>>);

impl Cleaner {
    /// A poisoned lock still holds every secret added so far, so it is used as it is.
    fn redactor(&self) -> std::sync::RwLockReadGuard<'_, Redactor> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A text that stands for something, and so is kept as it is or not at all.
    pub(crate) fn whole(&self, what: &'static str, text: &str) -> Result<String, LedgerError> {
        if text.contains('\0') {
            return Err(LedgerError::Unstorable { what, rule: "it holds the character U+0000" });
        }
        Ok(self.redactor().text(text))
    }

    /// A caller's key.
    /// The texts of a removal.
    pub(crate) fn prune(&self, prune: Prune) -> Result<Prune, LedgerError> {
        let by = self.whole("name of whoever removes a run", &prune.by)?;
        let export = self.whole("place of an export", &prune.export)?;
        Ok(Prune { by, export, ..prune })
    }

    pub(crate) fn key(&self, key: Option<&str>) -> Result<Option<String>, LedgerError> {
        const WHAT: &str = "caller's key";
        match key {
            Some(key) if key.len() > CALLER_KEY_BYTES_MAX => {
                Err(LedgerError::Unstorable { what: WHAT, rule: "it is longer than 1024 bytes" })
            }
            Some(key) => self.whole(WHAT, key).map(Some),
            None => Ok(None),
        }
    }

    /// A text for people. U+0000, which not every database can hold, shows as U+FFFD; entries keep it, escaped.
    fn shown(&self, text: &str) -> String {
        let text = self.redactor().text(text);
        if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
    }

    fn optional(&self, text: Option<&str>) -> Option<String> {
        text.map(|text| self.shown(text))
    }

    /// Canonical JSON without secrets.
    pub(crate) fn json(&self, value: &Json) -> String {
        let redactor = self.redactor();
        if redactor.finds_in(value) {
            let mut value = value.clone();
            redactor.value(&mut value);
            json::canonical(&value)
        } else {
            json::canonical(value)
        }
    }

    pub(crate) fn entry(&self, entry: NewEntry) -> Result<Ready, LedgerError> {
        let redactor = self.redactor();
        let mut value = entry.content.to_value();
        if !redactor.finds_in(&value) {
            return Ok(Ready { entry, body: json::canonical(&value) });
        }
        redactor.value(&mut value);
        let body = json::canonical(&value);
        let effect = match &entry.content {
            Content::Effect { effect, .. } => Some(effect.clone()),
            Content::Run(_) => None,
        };
        let content =
            Content::from_stored(entry.content.kind(), effect, &body).map_err(|problem| {
                LedgerError::NotApplied {
                    action: "keep an entry readable without the secret in it",
                    source: sqlx::Error::Encode(problem.to_string().into()),
                }
            })?;
        // What is read back is what is hashed, in case the two differ in more than the secret.
        let body = json::canonical(&content.to_value());
        Ok(Ready { entry: NewEntry { content, at: entry.at }, body })
    }

    /// An object as it is stored with a lock on it.
    pub(crate) fn lock_object(&self, object: &str) -> String {
        locks::object(self.shown(object))
    }

    /// A lock to take.
    pub(crate) fn asked(&self, wanted: ObjectLock, at: Timestamp) -> Asked {
        let object = self.lock_object(&wanted.object);
        Asked { wanted: ObjectLock { object, ..wanted }, at }
    }

    /// A lock to take from a run.
    pub(crate) fn freed(&self, unlock: Unlock, at: Timestamp) -> Result<Freed, LedgerError> {
        let Unlock { run, name, object, who, why } = unlock;
        let object = self.lock_object(&object);
        let event =
            RunEvent::ObjectUnlocked { name: name.clone(), object: object.clone(), who, why };
        let entry = self.entry(NewEntry { content: Content::Run(event), at })?;
        Ok(Freed { run, name, object, entry })
    }

    pub(crate) fn observation(
        &self,
        effect: &EffectId,
        observation: Observation,
        at: Timestamp,
    ) -> Result<Ready, LedgerError> {
        let event = EffectEvent::Observed(observation);
        self.entry(NewEntry { content: Content::Effect { effect: effect.clone(), event }, at })
    }

    /// A request to cancel a run, as its row and its chain keep it.
    pub(crate) fn cancel(
        &self,
        cancel: &Cancel,
        at: Timestamp,
    ) -> Result<(String, Ready), LedgerError> {
        let row = serde_json::to_value(cancel).expect("who and why are plain data");
        let Cancel { who, why } = cancel.clone();
        let content = Content::Run(RunEvent::CancelRequested { who, why });
        Ok((self.json(&row), self.entry(NewEntry { content, at })?))
    }

    pub(crate) fn write(
        &self,
        run: RunId,
        entries: Vec<NewEntry>,
        effects: &[Effect],
        change: Option<RunChange>,
    ) -> Result<Write, LedgerError> {
        Ok(Write {
            run,
            entries: entries
                .into_iter()
                .map(|entry| self.entry(entry))
                .collect::<Result<_, _>>()?,
            effects: effects.iter().map(|effect| self.projection(effect)).collect(),
            change: change.map(|change| self.change(change)),
        })
    }

    fn change(&self, change: RunChange) -> Change {
        Change {
            state: change.state,
            progress: change.progress.map(|progress| {
                self.json(&serde_json::to_value(&progress).expect("progress is plain data"))
            }),
            output: change.output.as_ref().map(|output| self.json(output)),
            reason: self.optional(change.reason.as_deref()),
            due_at: change.due_at.map(|at| at.0),
            cancel_seen: change.cancel_seen,
        }
    }

    pub(crate) fn projection(&self, effect: &Effect) -> Projection {
        let proposal = &effect.proposal;
        let external_id =
            effect.receipt.as_ref().and_then(|receipt| receipt.external_id.as_deref());
        Projection {
            id: effect.id.clone(),
            node: proposal.node.clone(),
            visit: proposal.visit,
            element: proposal.element.clone(),
            slot: proposal.slot.clone(),
            operation: format!("{}.{}", proposal.tool, proposal.operation),
            idempotency_key: self.shown(&proposal.idempotency_key),
            request_hash: proposal.request_hash.to_string(),
            state: effect.state,
            attempts: u32::try_from(effect.attempts.len()).unwrap_or(u32::MAX),
            external_id: self.optional(external_id),
            held: effect.hold.is_some(),
            undoes: proposal.undoes.clone(),
            approves: proposal.approves.clone(),
            settled_here: effect.contract().settled_here,
            last_error: self.optional(effect.last_error.as_deref()),
            updated_at: effect.updated_at.0,
        }
    }
}
