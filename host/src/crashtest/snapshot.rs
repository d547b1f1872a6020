//! What a case's ledger shows to an operator at one moment.

use std::path::Path;
use std::sync::{Arc, RwLock};

use twice_core::chain::{Content, Entry, Head};
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, RunEvent};
use twice_core::ids::RunId;
use twice_core::limits::PAGE_MAX;
use twice_core::redact::Redactor;
use twice_core::run::RunState;
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{EffectFilter, Ledger, RunFilter, RunRecord};

use super::CrashtestError;
use super::provider::Mark;
use super::worker::{RUN, open};
use crate::engine::NEEDS_PERSON;

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
    /// Of the run, and of those that it started.
    pub(super) effects: Vec<Listed>,
    pub(super) entries: Vec<Entry>,
    pub(super) head: Option<Head>,
    /// The runs that it started, and those that they did.
    pub(super) descendants: Vec<Descendant>,
}

/// A run that the run of the case started, or one of those.
#[derive(Debug, Clone)]
pub(super) struct Descendant {
    pub(super) run: RunRecord,
    pub(super) entries: Vec<Entry>,
    pub(super) head: Head,
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
        let mut taken = Self {
            run,
            effects: Vec::new(),
            entries: Vec::new(),
            head: None,
            descendants: Vec::new(),
        };
        if taken.run.is_some() {
            taken.head = Some(ledger.head(&id).await?);
            taken.effects = effects_of(&*ledger, &id).await?;
            taken.entries = entries_of(&*ledger, &id).await?;
            let mut parents = vec![id];
            while let Some(parent) = parents.pop() {
                for run in children_of(&*ledger, parent).await? {
                    taken.effects.extend(effects_of(&*ledger, &run.id).await?);
                    let entries = entries_of(&*ledger, &run.id).await?;
                    let head = ledger.head(&run.id).await?;
                    parents.push(run.id.clone());
                    taken.descendants.push(Descendant { run, entries, head });
                }
            }
        }
        ledger.close().await;
        Ok(taken)
    }

    /// The run that a person has to look after: the run itself, or the one that it waits for.
    pub(super) fn needs_person(&self) -> Option<&RunRecord> {
        let run = self.run.as_ref()?;
        let waits = run.state == RunState::Waiting
            && run.reason.as_ref().is_some_and(|why| why.starts_with(NEEDS_PERSON));
        let halted = |run: &&RunRecord| matches!(run.state, RunState::Halted | RunState::Stuck);
        match waits {
            true => self.descendants.iter().map(|descendant| &descendant.run).find(halted),
            false => Some(run).filter(halted),
        }
    }

    /// What the entries say, in order, run by run; an entry that cannot be read is left to the check of the chain.
    pub(super) fn contents(&self) -> impl Iterator<Item = Content> + '_ {
        let others = self.descendants.iter().flat_map(|descendant| &descendant.entries);
        self.entries.iter().chain(others).filter_map(|entry| entry.content().ok())
    }

    /// The events of effects.
    pub(super) fn effect_events(&self) -> impl Iterator<Item = (String, EffectEvent)> + '_ {
        self.contents().filter_map(|content| match content {
            Content::Effect { effect, event } => Some((effect.to_string(), event)),
            Content::Run(_) => None,
        })
    }

    /// The events of the runs.
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

async fn effects_of(ledger: &dyn Ledger, run: &RunId) -> Result<Vec<Listed>, CrashtestError> {
    let mut filter = EffectFilter { run: Some(run.clone()), ..EffectFilter::default() };
    let mut effects = Vec::new();
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
            return Ok(effects);
        }
    }
}

async fn entries_of(ledger: &dyn Ledger, run: &RunId) -> Result<Vec<Entry>, CrashtestError> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map_or(0, |entry| entry.seq);
        let page = ledger.history(run, after, PAGE_MAX).await?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}

/// The runs that a run started, in the order of their ids.
async fn children_of(ledger: &dyn Ledger, run: RunId) -> Result<Vec<RunRecord>, CrashtestError> {
    let mut filter = RunFilter { parent: Some(run), limit: PAGE_MAX, ..RunFilter::default() };
    let mut children = Vec::new();
    loop {
        let page = ledger.runs(&filter).await?;
        let full = page.len() == PAGE_MAX as usize;
        filter.before = page.last().map(|child| child.id.clone());
        children.extend(page);
        if !full {
            children.sort_by(|a, b| a.id.cmp(&b.id));
            return Ok(children);
        }
    }
}
