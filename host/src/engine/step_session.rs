//! What one step keeps for itself of the session of its run: its effects, and the state that it sees.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;
use twice_core::effect::Effect;
use twice_core::event::EffectEvent;
use twice_core::ids::{EffectId, Name};
use twice_core::progress::StepId;
use twice_core::time::Timestamp;

use super::compiled::Compiled;
use super::error::EngineError;
use super::session::Session;

/// A step, and the session of its run.
pub(super) struct StepSession {
    session: Arc<Session>,
    compiled: Arc<Compiled>,
    /// The place of its node in the definition.
    node: usize,
    /// Which step.
    pub(super) step: StepId,
    /// The element that it is about, in a fan-out.
    pub(super) element: Option<Value>,
    /// How many visits were completed when it first started, where that is on record.
    seen: Option<u64>,
    effects: BTreeMap<EffectId, Arc<Effect>>,
}

impl Deref for StepSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl StepSession {
    /// A step without effects, as one is that nobody started before.
    pub(super) fn new(
        session: Arc<Session>,
        compiled: Arc<Compiled>,
        node: usize,
        step: StepId,
        element: Option<Value>,
    ) -> Self {
        let mut new =
            Self { session, compiled, node, step, element, seen: None, effects: BTreeMap::new() };
        new.seen = new.progress(|progress| progress.step(&new.step)?.seen);
        new
    }

    /// Reads the effects of the step.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn load(&mut self) -> Result<(), EngineError> {
        let effects = self.effects_of(&self.step).await?;
        self.effects = effects.into_iter().map(|effect| (effect.id.clone(), effect)).collect();
        Ok(())
    }

    /// Reads again how the approvals stand that nobody had answered: people answer whoever holds the run.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn hear_answers(&mut self) -> Result<(), EngineError> {
        let asks =
            |effect: &&Effect| effect.proposal.approves.is_some() && !effect.state.is_final();
        let open: Vec<EffectId> = self.all_effects().filter(asks).map(|e| e.id.clone()).collect();
        for id in open {
            if let Some(effect) = self.session.shared_effect(&id).await? {
                self.effects.insert(id, effect);
            }
        }
        Ok(())
    }

    /// An effect of this step.
    #[must_use]
    pub(super) fn effect(&self, id: &EffectId) -> Option<&Effect> {
        self.effects.get(id).map(AsRef::as_ref)
    }

    /// Every effect that the node asked for in this step.
    pub(super) fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.all_effects().filter(|effect| effect.proposal.is_of_node())
    }

    /// Every effect of this step, those included that undo others, or ask a person about them.
    pub(super) fn all_effects(&self) -> impl Iterator<Item = &Effect> {
        self.effects.values().map(AsRef::as_ref)
    }

    /// Records something about an effect, in memory.
    ///
    /// # Errors
    /// [`EngineError::History`] when the state machine does not know the move; nothing is recorded then.
    pub(super) fn record(&mut self, id: &EffectId, event: EffectEvent) -> Result<(), EngineError> {
        self.session.record_effect(&mut self.effects, id, event)
    }

    /// The state that the node and its policies see: the same at every start of the step.
    #[must_use]
    pub(super) fn state(&self) -> Value {
        let sees = |name: &Name| self.compiled.sees[self.node].contains(name);
        let (input, element) = (&self.run.input, self.element.as_ref());
        self.progress(|progress| progress.state_seen(input, element, self.seen, sees))
    }

    /// When the step became due, where its durable clock starts: when the last of the nodes before it returned, or, in a
    /// later round of a loop, the last of those that it sees; or when the run started.
    #[must_use]
    pub(super) fn due_since(&self) -> Timestamp {
        let before = &self.compiled.nodes[self.node].node.after;
        let latest = self.progress(|progress| {
            let ended = |name: &Name| progress.finished_at(name, self.seen);
            if self.step.visit == 1 {
                before.iter().filter_map(ended).max()
            } else {
                self.compiled.sees[self.node].iter().filter_map(ended).max()
            }
        });
        latest.unwrap_or(self.run.created_at)
    }
}
