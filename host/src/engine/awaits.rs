//! What this ledger settles sooner or later, and a run waits for: children, and answers of people.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use twice_core::ids::{EffectId, RunId};
use twice_core::progress::StepId;
use twice_ledger::Ledger;

use super::answer;
use super::error::EngineError;
use super::lock;

/// What was not settled when it was looked at.
#[derive(Debug, Default)]
pub(super) struct Awaits {
    children: Mutex<BTreeSet<RunId>>,
    /// By the approval, the step that waits for its answer.
    approvals: Mutex<BTreeMap<EffectId, StepId>>,
}

impl Awaits {
    /// Takes in that a child was not over.
    pub(super) fn child(&self, child: RunId) {
        lock(&self.children).insert(child);
    }

    /// Takes in that a child is over.
    pub(super) fn child_is_over(&self, child: &RunId) {
        lock(&self.children).remove(child);
    }

    /// The children that were not over.
    pub(super) fn children(&self) -> BTreeSet<RunId> {
        lock(&self.children).clone()
    }

    /// Takes in that a step waits for an answer to that approval.
    pub(super) fn answer(&self, approval: EffectId, step: StepId) {
        lock(&self.approvals).insert(approval, step);
    }

    /// How many approvals steps wait for.
    pub(super) fn approvals(&self) -> usize {
        lock(&self.approvals).len()
    }

    /// The steps that wait for approvals which were answered meanwhile, by the ledger. Each is told once.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn answered(
        &self,
        ledger: &dyn Ledger,
        run: &RunId,
    ) -> Result<Vec<StepId>, EngineError> {
        let asked: BTreeSet<EffectId> = lock(&self.approvals).keys().cloned().collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let answered = answer::answered(ledger, run, asked).await?;
        let mut approvals = lock(&self.approvals);
        Ok(answered.iter().filter_map(|approval| approvals.remove(approval)).collect())
    }
}
