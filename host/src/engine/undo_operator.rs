//! What a person decides about the way back of a run: that it is taken, tried again, or settled by other means.

use twice_core::chain::{Content, NewEntry};
use twice_core::effect::Effect;
use twice_core::event::RunEvent;
use twice_core::evidence;
use twice_core::ids::{EffectId, RunId};
use twice_core::progress::StepId;
use twice_core::run::RunState;
use twice_core::saga::{self, WayBack};
use twice_ledger::{Cancel, LedgerError, RunRecord, effects_of, progress_of};

use super::operator::{Decision, DecisionError, released};
use super::retry::{Evidence, failed_effects, renewals};
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
        if !run.state.is_final() && matches!(self.way_back(&run).await?, WayBack::Closed(_)) {
            return Err(refused(&run, "it has passed its point of no return, and can only go on"));
        }
        let cancel = Cancel { who: decision.who.clone(), why: decision.why.clone() };
        self.parts.ledger.request_cancel(id, &cancel, self.parts.clock.now()).await?;
        self.record(id).await
    }

    pub(super) async fn way_back(&self, run: &RunRecord) -> Result<WayBack, EngineError> {
        let definition = self.pinned(&run.id, &run.definition).await?;
        let Some((node, slot)) = definition.workflow.pivot() else { return Ok(WayBack::Open) };
        let step = StepId { node: node.name.clone(), visit: 1, element: None };
        let effects = self.parts.ledger.step_effects(&run.id, &step).await?;
        Ok(saga::way_back(&effects, &slot.name))
    }

    /// Has the compensations tried again that failed for good, as new actions, recorded as this person's decision. Of one that
    /// happened after all by what came since, the run stays stuck, if that is heeded.
    pub(super) async fn release_stuck(
        &self,
        run: &RunRecord,
        heed: Evidence,
        decision: &Decision,
    ) -> Result<(), EngineError> {
        if matches!(self.way_back(run).await?, WayBack::Closed(_)) {
            return Err(refused(
                run,
                "it has passed its point of no return, so that nothing of it is undone and a release does not help; mend what it failed of, then `twice runs retry` has it go on",
            ));
        }
        let at = self.parts.clock.now();
        let mut failed = failed_effects(&*self.parts.ledger, &run.id).await?;
        // The run is stuck at all of them, and says of one why: what may be undone after all is not undone again unseen.
        let seen =
            |effect: &Effect| heed == Evidence::Heeded && evidence::against(effect).is_some();
        failed.retain(|effect| effect.proposal.undoes.is_some() && !seen(effect));
        let (entries, renewed) = renewals(failed, run.fence, decision, at)?;
        let event = Some(released(decision));
        self.write_decision(run, entries, renewed, decision, event, at).await
    }

    /// Records that effects which could not be undone are settled by other means: all that the run is stuck at, or the one of them
    /// that is named. The run goes on with its way back. Returns which they are.
    ///
    /// # Errors
    /// [`LedgerError::State`] when the run is not stuck, or is behind its point of no return; [`DecisionError::NoEffect`],
    /// [`DecisionError::NotStuckAt`] when the run is stuck, but not at the one that is named.
    pub async fn resolve_undo(
        &self,
        id: &RunId,
        named: Option<&EffectId>,
        decision: &Decision,
    ) -> Result<Vec<EffectId>, DecisionError> {
        let run = self.record(id).await?;
        if run.state != RunState::Stuck {
            return Err(refused(&run, "only a stuck run has something to resolve so; an UNKNOWN effect is settled with `twice effects resolve`").into());
        }
        if matches!(self.way_back(&run).await?, WayBack::Closed(_)) {
            return Err(refused(&run, "it has passed its point of no return, so that there is nothing to resolve; `twice runs retry` has it go on").into());
        }
        let progress = progress_of(&*self.parts.ledger, &run).await?;
        let now = self.parts.clock.now();
        let all = effects_of(&*self.parts.ledger, id).await?;
        let mut effects: Vec<_> = all.values().collect();
        effects.sort_by_key(|recorded| recorded.seq);
        let effects: Vec<&Effect> = effects.iter().map(|recorded| &recorded.effect).collect();
        let at = saga::stuck_at(&effects, &progress.undo_resolved, now);
        let at: Vec<EffectId> = at.into_iter().map(|effect| effect.id.clone()).collect();
        if at.is_empty() {
            return Err(refused(
                &run,
                "nothing of it is to be undone; `twice runs show` tells what it is stuck at",
            )
            .into());
        }
        let found = match named {
            None => at,
            Some(named) if at.contains(named) => vec![named.clone()],
            Some(named) if !all.contains_key(named) => {
                return Err(DecisionError::NoEffect(named.clone()));
            }
            Some(named) => {
                let (run, effect) = (run.id, named.clone());
                return Err(DecisionError::NotStuckAt { run, effect, at });
            }
        };
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
