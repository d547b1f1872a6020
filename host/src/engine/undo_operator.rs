//! What a person decides about the way back of a run: that it is taken, tried again, or settled by other means.

use twice_core::chain::{Content, NewEntry};
use twice_core::effect::{Effect, State};
use twice_core::event::{ConflictDecision, ConflictRule, EffectEvent, RunEvent};
use twice_core::ids::{EffectId, RunId};
use twice_core::run::RunState;
use twice_core::saga::{self, Next};
use twice_ledger::{Cancel, LedgerError, RunRecord, effects_of, progress_of};

use super::operator::{Decision, DecisionError, released};
use super::{Engine, EngineError};

impl Engine {
    /// Asks that a run be cancelled, whoever holds it: nothing new is asked for, and what it did is undone. Asking again does
    /// nothing.
    ///
    /// # Errors
    /// [`LedgerError::State`] when it is over, stuck, in quarantine, or behind its point of no return.
    pub async fn cancel(&self, id: &RunId, decision: &Decision) -> Result<RunRecord, EngineError> {
        let run = self.record(id).await?;
        self.refuse_secrets_of(&run, decision).await?;
        if let Some(pivot) = self.pivot_passed(&run).await? {
            tracing::info!(%id, %pivot, "not cancelled");
            return Err(refused(
                &run,
                "it has passed its point of no return, and can only go on; `twice runs show` tells which effect that was",
            ));
        }
        let cancel = Cancel { who: decision.who.clone(), why: decision.why.clone() };
        self.parts.ledger.request_cancel(id, &cancel, self.parts.clock.now()).await?;
        self.record(id).await
    }

    async fn pivot_passed(&self, run: &RunRecord) -> Result<Option<EffectId>, EngineError> {
        let definition = self.pinned(&run.id, &run.definition).await?;
        let pivot = definition.workflow.nodes.iter().find_map(|node| {
            let slot = node.slots.iter().find(|slot| slot.pivot)?;
            Some((node.name.clone(), slot.name.clone()))
        });
        let Some((node, slot)) = pivot else { return Ok(None) };
        let step = twice_core::progress::StepId { node, visit: 1, element: None };
        let effects = self.parts.ledger.step_effects(&run.id, &step).await?;
        let passed = effects.into_iter().find(|effect| {
            let proposal = &effect.proposal;
            proposal.slot == slot && proposal.undoes.is_none() && effect.state == State::Confirmed
        });
        Ok(passed.map(|effect| effect.id))
    }

    /// Has the compensations tried again that failed for good, as new actions, recorded as this person's decision.
    pub(super) async fn release_stuck(
        &self,
        run: &RunRecord,
        decision: &Decision,
    ) -> Result<(), EngineError> {
        let at = self.parts.clock.now();
        let mut entries = Vec::new();
        let mut renewed = Vec::new();
        for recorded in effects_of(&*self.parts.ledger, &run.id).await?.into_values() {
            let mut undo = recorded.effect;
            let refused = undo.proposal.undoes.is_some() && undo.state == State::Failed;
            if !refused || undo.is_renewed() {
                continue;
            }
            let event = EffectEvent::ConflictDecided(ConflictDecision {
                decision: ConflictRule::Renew,
                who: decision.who.clone(),
                why: decision.why.clone(),
                requested_hash: undo.proposal.request_hash.clone(),
            });
            undo.apply(&event, run.fence, at)
                .map_err(|source| EngineError::History { effect: undo.id.to_string(), source })?;
            entries
                .push(NewEntry { content: Content::Effect { effect: undo.id.clone(), event }, at });
            renewed.push(undo);
        }
        let event = Some(released(decision));
        self.write_decision(run, entries, renewed, decision, event, at).await
    }

    /// Records that effects which could not be undone are settled by other means: the one that is named, or all that are stuck.
    /// The run goes on with its way back. Returns which they are.
    ///
    /// # Errors
    /// [`LedgerError::State`] when the run is not stuck, or none of its effects is; [`DecisionError::NotNow`] when the one that
    /// is named is not one of those.
    pub async fn resolve_undo(
        &self,
        id: &RunId,
        effect: Option<&EffectId>,
        decision: &Decision,
    ) -> Result<Vec<EffectId>, DecisionError> {
        let run = self.record(id).await?;
        if run.state != RunState::Stuck {
            return Err(refused(&run, "only a stuck run has something to resolve so; an UNKNOWN effect is settled with `twice effects resolve`").into());
        }
        let progress = progress_of(&*self.parts.ledger, &run).await?;
        let now = self.parts.clock.now();
        let all = effects_of(&*self.parts.ledger, id).await?;
        let undos_of = |id: &EffectId| {
            let of = all.values().map(|recorded| &recorded.effect);
            let mut undos: Vec<&Effect> =
                of.filter(|undo| undo.proposal.undoes.as_ref() == Some(id)).collect();
            undos.sort_by_key(|undo| undo.proposal.identity.generation);
            undos
        };
        let stuck = |effect: &&Effect| {
            let resolved = progress.undo_resolved.contains(&effect.id);
            let next = saga::next(effect, &undos_of(&effect.id), resolved, now);
            matches!(next, Next::Stuck { .. }) || matches!(next, Next::Propose { .. })
        };
        let asked = all.values().map(|recorded| &recorded.effect);
        let asked = asked.filter(|effect| effect.proposal.undoes.is_none());
        let found: Vec<EffectId> = match effect {
            Some(named) => {
                let named = all.get(named).map(|recorded| &recorded.effect);
                let named = named.ok_or_else(|| match effect {
                    Some(id) => DecisionError::NoEffect(id.clone()),
                    None => DecisionError::from(refused(&run, "it has no effects")),
                })?;
                if !stuck(&named) {
                    return Err(DecisionError::NotNow {
                        effect: named.id.clone(),
                        state: named.state.to_string(),
                        rule: "there is nothing to undo about it, or it was undone; `twice runs show` tells what the run is stuck at",
                    });
                }
                vec![named.id.clone()]
            }
            None => {
                let refused_for_good = |effect: &&Effect| {
                    let resolved = progress.undo_resolved.contains(&effect.id);
                    let undos = undos_of(&effect.id);
                    matches!(saga::next(effect, &undos, resolved, now), Next::Stuck { .. })
                };
                asked.filter(refused_for_good).map(|effect| effect.id.clone()).collect()
            }
        };
        if found.is_empty() {
            return Err(refused(&run, "name the effect that it is stuck at with `--effect`").into());
        }
        let entry = |effect: &EffectId| {
            let (who, why) = (decision.who.clone(), decision.why.clone());
            let event = RunEvent::UndoResolved { effect: effect.clone(), who, why };
            NewEntry { content: Content::Run(event), at: now }
        };
        let entries = found.iter().map(entry).collect();
        let event = Some(released(decision));
        self.write_decision(&run, entries, Vec::new(), decision, event, now).await?;
        Ok(found)
    }
}

fn refused(run: &RunRecord, rule: &'static str) -> EngineError {
    let (run, state) = (run.id.clone(), run.state.to_string());
    EngineError::Ledger(LedgerError::State { run, state, rule })
}
