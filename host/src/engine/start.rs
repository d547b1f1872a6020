//! Starting a run: what it is interpreted under is pinned, and no secret gets in.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use twice_core::chain::{Content, NewEntry};
use twice_core::event::RunEvent;
use twice_core::identity::IDENTITY_ALG;
use twice_core::ids::RunId;
use twice_core::run::Priority;
use twice_ledger::{NewRun, RunRecord, Started};
use twice_workflow::model::Definition;

use super::{Engine, EngineError, HeldRun, lock};
use crate::tool::PrepareError;

/// How many definitions are remembered as stored.
const PINNED_MAX: usize = 16;

/// A run to start.
#[derive(Debug, Clone)]
pub struct StartRun {
    /// Its id.
    pub id: RunId,
    /// The caller's own key.
    pub caller_key: Option<String>,
    /// Its input, strictly parsed and checked by the workflow's schema.
    pub input: Value,
    /// How urgent it is.
    pub priority: Priority,
    /// Whether to claim it in the same transaction.
    pub claim: bool,
}

/// A run that was started, or found started.
pub enum StartedRun {
    /// It is new.
    Created(Option<HeldRun>),
    /// It was started before with the same workflow and input.
    Existing(RunRecord),
}

impl Engine {
    /// Starts a run under a definition, which is pinned with it (I9).
    ///
    /// # Errors
    /// [`EngineError::Ledger`], with `RunConflict` when the id or key belongs to another run;
    /// [`EngineError::HoldsSecret`]; [`EngineError::Ungranted`].
    pub async fn start(
        &self,
        definition: &Definition,
        run: StartRun,
    ) -> Result<StartedRun, EngineError> {
        self.learn_secrets(definition);
        self.refuse_secret("the run's input", &run.input)?;
        self.refuse_secret("the run's id", &Value::from(run.id.as_str()))?;
        self.refuse_secret("the run's key", &Value::from(run.caller_key.clone()))?;
        let digest = self.pin(definition).await?;
        let event = RunEvent::Started {
            workflow: definition.workflow.name.clone(),
            version: definition.workflow.version,
            definition: digest.clone(),
            input: run.input.clone(),
            identity_alg: IDENTITY_ALG,
            priority: run.priority,
            parent: None,
        };
        let asked = Instant::now();
        let new = NewRun {
            id: run.id,
            caller_key: run.caller_key,
            workflow: definition.workflow.name.clone(),
            definition: digest,
            input: run.input,
            priority: run.priority,
            entry: NewEntry { content: Content::Run(event), at: self.parts.clock.now() },
            claim: run.claim.then(|| self.claim_by()),
            parent_fence: None,
        };
        Ok(match self.parts.ledger.start_run(new).await? {
            Started::Created(claim) => {
                StartedRun::Created(claim.map(|claim| self.held(claim, asked, true)))
            }
            Started::Existing(record) => StartedRun::Existing(record),
        })
    }

    /// Stores a definition, and those of its children, unless it is known to be stored; returns its digest. Definitions are never deleted.
    async fn pin(&self, definition: &Definition) -> Result<String, EngineError> {
        let known = lock(&self.pinned).iter().find(|known| known.0 == *definition).cloned();
        if let Some(known) = known {
            return Ok(known.1.clone());
        }
        self.check_imports(definition).await?;
        for child in definition.descendants() {
            self.check_imports(&child.definition).await?;
        }
        let digest = definition.digest();
        // I9: what its children will be interpreted under is pinned with it, so that it is there when they start.
        for child in definition.descendants() {
            let text = child.definition.to_text();
            self.parts.ledger.put_definition(&child.digest, &text).await?;
        }
        self.parts.ledger.put_definition(&digest, &definition.to_text()).await?;
        let mut pinned = lock(&self.pinned);
        if pinned.len() == PINNED_MAX {
            pinned.remove(0);
        }
        pinned.push(Arc::new((definition.clone(), digest.clone())));
        Ok(digest)
    }

    /// Reads the secrets of the tools of a definition and its children, so that what is recorded and shown from now on is kept
    /// clean of them.
    pub fn learn_secrets(&self, definition: &Definition) {
        definition.all_tools().for_each(|tool| self.parts.drivers.learn_secrets(tool));
    }

    /// What this worker lacks to perform the effects of a definition and its children, each with the fix. Nothing is asked of a provider.
    #[must_use]
    pub fn missing_settings(&self, definition: &Definition) -> Vec<PrepareError> {
        let mut tools: Vec<_> = definition.all_tools().collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        tools.dedup();
        tools.into_iter().flat_map(|tool| self.parts.drivers.missing_settings(tool)).collect()
    }

    /// I10: what a person hands in is refused rather than changed.
    pub(super) fn refuse_secret(
        &self,
        what: &'static str,
        value: &Value,
    ) -> Result<(), EngineError> {
        if self.parts.drivers.holds_secret(value) {
            return Err(EngineError::HoldsSecret { what });
        }
        Ok(())
    }
}
