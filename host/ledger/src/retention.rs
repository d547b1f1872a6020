//! Removing a run that is over. What stays of it is a [`Tombstone`]: who it was, how its chain ended, and where its entries
//! went; so a start that repeats it is still found, and an export can still be held against the head of its chain.

use serde_json::Value as Json;
use twice_core::chain::{Hash, Head};
use twice_core::identity::tagged_sha256;
use twice_core::ids::{Name, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_core::{identity, json};

use crate::batch::{Batch, Refused};
use crate::rows::{self, Fields};
use crate::value::{Cell, Row};
use crate::work::Reply;
use crate::{LedgerError, rules, sql};

/// Which runs may be removed.
#[derive(Debug, Clone, Default)]
pub struct OverFilter {
    /// In this state; `completed` and `failed` ones otherwise.
    pub state: Option<RunState>,
    /// Whose latest entry is at least so old, by the database's clock. Milliseconds.
    pub older_than_ms: u64,
    /// After this id, for paging.
    pub after: Option<RunId>,
    /// At most so many; 0 and whatever exceeds the page limit mean the page limit.
    pub limit: u32,
}

/// A run to remove.
#[derive(Debug, Clone)]
pub struct Prune {
    /// Which.
    pub run: RunId,
    /// The head of its chain as it was exported.
    pub expected_head: Head,
    /// Who removes it.
    pub by: String,
    /// Where its export is, for people.
    pub export: String,
    /// The digest of its export.
    pub export_digest: String,
}

/// What stays of a run that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The run.
    pub run: RunId,
    /// The caller's own key.
    pub caller_key: Option<String>,
    /// The workflow.
    pub workflow: Name,
    /// Digest of the pinned definition.
    pub definition: String,
    /// Digest of its input.
    pub input_hash: Hash,
    /// How it ended.
    pub state: RunState,
    /// The head of its chain.
    pub head: Head,
    /// When it was started.
    pub created_at: Timestamp,
    /// When its latest entry was made.
    pub ended_at: Timestamp,
    /// When it was removed, by the database's clock.
    pub pruned_at: Timestamp,
    /// Who removed it.
    pub pruned_by: String,
    /// Where its export was written.
    pub export: String,
    /// The digest of its export.
    pub export_digest: String,
}

/// The digest of a run's input, canonical.
pub(crate) fn input_hash(canonical: &str) -> Hash {
    tagged_sha256("twice/input/v1", canonical.as_bytes())
}

/// Whether a body proposes an effect that other runs may adopt. One that cannot be read may.
pub(crate) fn is_shared(body: &str) -> bool {
    let proposal = serde_json::from_str::<Json>(body).unwrap_or_default();
    let scope = &proposal["data"]["identity"]["scope"];
    serde_json::from_value::<identity::Scope>(scope.clone())
        .map_or(true, |scope| matches!(scope, identity::Scope::Object { .. }))
}

/// Refuses a start that repeats one of these runs.
pub(crate) fn refuse_restart(
    removed: &[Tombstone],
    id: &RunId,
    key: Option<&str>,
    workflow: &Name,
    input: &str,
) -> Result<(), LedgerError> {
    let by_id = removed.iter().find(|tombstone| tombstone.run == *id);
    let of_key = |tombstone: &&Tombstone| key.is_some() && tombstone.caller_key.as_deref() == key;
    let by_key = removed.iter().find(of_key);
    let Some(found) = by_id.or(by_key) else { return Ok(()) };
    if key.is_some() && by_key != Some(found) {
        return Err(rules::conflict(&found.run, "another caller's key"));
    }
    if found.workflow != *workflow {
        let difference = format!("another workflow (`{}`)", found.workflow);
        return Err(rules::conflict(&found.run, difference));
    }
    if found.input_hash != input_hash(input) {
        return Err(rules::conflict(&found.run, "another input"));
    }
    Err(LedgerError::Pruned { tombstone: Box::new(found.clone()) })
}

/// Why a run is not removed, by its state and head.
pub(crate) fn refuse_prune(prune: &Prune, state: RunState, head: Head) -> Result<(), LedgerError> {
    let refuse = |rule| Err(rules::refused(&prune.run, state, rule));
    match state {
        RunState::Completed | RunState::Failed | RunState::Cancelled
            if head == prune.expected_head =>
        {
            Ok(())
        }
        RunState::Completed | RunState::Failed | RunState::Cancelled => refuse(rules::GROWN),
        RunState::Ready
        | RunState::Running
        | RunState::Waiting
        | RunState::Halted
        | RunState::Stuck
        | RunState::Quarantined => refuse(rules::NOT_OVER),
    }
}

pub(crate) fn tombstone(row: Row) -> Result<Tombstone, LedgerError> {
    let mut fields = Fields::of("tombstone", row);
    Ok(Tombstone {
        run: fields.parsed("run_id", RunId::parse)?,
        caller_key: fields.optional_text("caller_key")?,
        workflow: fields.parsed("workflow", Name::parse)?,
        definition: fields.text("definition")?,
        input_hash: fields.hash("input_hash")?,
        state: fields.parsed("state", rows::run_state)?,
        head: Head { seq: fields.int("head_seq")?, hash: fields.hash("head_hash")? },
        created_at: fields.time("created_at")?,
        ended_at: fields.time("ended_at")?,
        pruned_at: fields.time("pruned_at")?,
        pruned_by: fields.text("pruned_by")?,
        export: fields.text("export")?,
        export_digest: fields.text("export_digest")?,
    })
}

impl Batch<'_> {
    /// Removes a run with everything that is its own, and leaves its tombstone.
    pub(crate) async fn prune(&mut self, prune: &Prune) -> Result<Reply, Refused> {
        let Some(lock) = self.lock(&prune.run)? else {
            let id = vec![prune.run.as_str().into()];
            return match self.connection.fetch(sql::TOMBSTONE, id).await?.pop() {
                Some(row) => Ok(Reply::Tombstone(Box::new(tombstone(row)?))),
                None => Err(rules::absent("run", &prune.run).into()),
            };
        };
        refuse_prune(prune, lock.state, lock.head)?;
        let id = || vec![prune.run.as_str().into()];
        if !self.connection.fetch(sql::PARENT_ASKS, id()).await?.is_empty() {
            return Err(rules::refused(&prune.run, lock.state, rules::PARENT_MAY_ASK).into());
        }
        let proposals = self.connection.fetch(sql::PROPOSALS, id()).await?;
        let shared = |row: &Row| !matches!(row.first(), Some(Cell::Text(body)) if !is_shared(body));
        if proposals.iter().any(shared) {
            return Err(rules::refused(&prune.run, lock.state, rules::OWNS_SHARED).into());
        }
        let Some((record, _)) = self.record(&prune.run).await? else {
            return Err(rules::absent("run", &prune.run).into());
        };
        self.flush().await?;
        let args = vec![
            prune.run.as_str().into(),
            input_hash(&json::canonical(&record.input)).as_slice().into(),
            self.now().await?.into(),
            prune.by.as_str().into(),
            prune.export.as_str().into(),
            prune.export_digest.as_str().into(),
        ];
        self.execute(sql::PUT_TOMBSTONE, args).await?;
        for statement in
            [sql::DELETE_ENTRIES, sql::DELETE_EFFECTS, sql::DELETE_RUN, sql::CLOSE_TOMBSTONE]
        {
            self.execute(statement, id()).await?;
        }
        self.forget(&prune.run);
        match self.connection.fetch(sql::TOMBSTONE, id()).await?.pop() {
            Some(row) => Ok(Reply::Tombstone(Box::new(tombstone(row)?))),
            None => Err(sqlx::Error::RowNotFound.into()),
        }
    }

    /// Refuses a start that repeats a run which was removed.
    pub(crate) async fn refuse_restart(
        &mut self,
        id: &RunId,
        key: Option<&str>,
        workflow: &Name,
        input: &str,
    ) -> Result<(), Refused> {
        let args = vec![id.as_str().into(), key.into()];
        let rows = self.connection.fetch(sql::TOMBSTONES_OF_START, args).await?;
        let removed = rows.into_iter().map(tombstone).collect::<Result<Vec<_>, _>>()?;
        Ok(refuse_restart(&removed, id, key, workflow, input)?)
    }
}
