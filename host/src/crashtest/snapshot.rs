//! What a case's ledger shows to an operator at one moment.

use std::path::Path;
use std::sync::{Arc, RwLock};

use twice_core::chain::{Content, Entry, Head};
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, RunEvent};
use twice_core::ids::RunId;
use twice_core::limits::PAGE_MAX;
use twice_core::redact::Redactor;
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{EffectFilter, RunRecord};

use super::CrashtestError;
use super::provider::Mark;
use super::worker::{RUN, open};

/// An effect as listed, and as folded.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    /// The state that a listing shows.
    pub(super) shown: State,
    /// `tool.operation`.
    pub(super) operation: String,
    pub(super) effect: Effect,
}

impl Listed {
    /// How the provider's books know it.
    pub(super) fn mark(&self) -> Mark<'_> {
        Mark {
            operation: &self.operation,
            effect: &self.effect.id,
            key: &self.effect.proposal.provider_key,
            args: &self.effect.proposal.args,
        }
    }
}

/// What a ledger shows.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) run: Option<RunRecord>,
    pub(super) effects: Vec<Listed>,
    pub(super) entries: Vec<Entry>,
    pub(super) head: Option<Head>,
}

/// One moment.
struct At(Timestamp);

impl Clock for At {
    fn now(&self) -> Timestamp {
        self.0
    }
}

impl Snapshot {
    /// Reads a ledger as it is at `now`.
    pub(super) async fn take(file: &Path, now: Timestamp) -> Result<Self, CrashtestError> {
        let id = RunId::parse(RUN).expect("the run's id is well formed");
        let ledger = open(file, Arc::new(RwLock::new(Redactor::default())), At(now)).await?;
        let run = ledger.run(&id).await?;
        let mut effects = Vec::new();
        let mut entries: Vec<Entry> = Vec::new();
        let mut head = None;
        if run.is_some() {
            head = Some(ledger.head(&id).await?);
            let mut filter = EffectFilter { run: Some(id.clone()), ..EffectFilter::default() };
            loop {
                let page = ledger.effects(&filter).await?;
                let full = page.len() == PAGE_MAX as usize;
                filter.after = page.last().map(|row| row.id.clone());
                for row in page {
                    if let Some(effect) = ledger.effect(&row.id).await? {
                        effects.push(Listed { shown: row.state, operation: row.operation, effect });
                    }
                }
                if !full {
                    break;
                }
            }
            loop {
                let after = entries.last().map_or(0, |entry| entry.seq);
                let page = ledger.history(&id, after, PAGE_MAX).await?;
                if page.is_empty() {
                    break;
                }
                entries.extend(page);
            }
        }
        ledger.close().await;
        Ok(Self { run, effects, entries, head })
    }

    /// What the entries say, in order; an entry that cannot be read is left to the check of the chain.
    pub(super) fn contents(&self) -> impl Iterator<Item = Content> + '_ {
        self.entries.iter().filter_map(|entry| entry.content().ok())
    }

    /// The events of effects.
    pub(super) fn effect_events(&self) -> impl Iterator<Item = (String, EffectEvent)> + '_ {
        self.contents().filter_map(|content| match content {
            Content::Effect { effect, event } => Some((effect.to_string(), event)),
            Content::Run(_) => None,
        })
    }

    /// The events of the run.
    pub(super) fn run_events(&self) -> impl Iterator<Item = RunEvent> + '_ {
        self.contents().filter_map(|content| match content {
            Content::Run(event) => Some(event),
            Content::Effect { .. } => None,
        })
    }

    /// Whether something was undone.
    pub(super) fn is_undone(&self) -> bool {
        self.effects.iter().any(|listed| listed.effect.proposal.undoes.is_some())
    }

    /// The effect of that id.
    pub(super) fn find(&self, id: &str) -> Option<&Listed> {
        self.effects.iter().find(|listed| listed.effect.id.as_str() == id)
    }
}
