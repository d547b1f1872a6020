//! A failed run that is tried again: on a person's order, or as another run asks anew for what it does. What is confirmed keeps its
//! receipt, what failed may be requested anew as the next generation.

use twice_core::chain::NewEntry;
use twice_core::effect::{Effect, State};
use twice_core::event::{ConflictDecision, ConflictRule, EffectEvent, RunEvent};
use twice_core::evidence;
use twice_core::ids::{Fence, RunId};
use twice_core::limits::PAGE_MAX;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{EffectFilter, Ledger, LedgerError, RunRecord, effects_of};

use super::operator::{Decision, DecisionError, add, write};
use super::{Engine, EngineError};

/// Whether what came since an effect failed is heeded where it is to be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// What may have happened after all is not tried again.
    Heeded,
    /// It is, as the person says that it did not happen.
    Overruled,
}

impl Engine {
    /// Orders a failed run to be tried again. What is confirmed keeps its receipt; what failed may be requested anew, as
    /// the next generation: a new logical action, recorded as this person's decision. Returns how many effects that is.
    ///
    /// # Errors
    /// [`DecisionError::Contradicted`] when one of them may have happened, and that is heeded; [`LedgerError::State`] when the run did
    /// not fail, or is the child of another: that one takes in that it failed, and
    /// has it tried again when it asks for it anew.
    pub async fn retry(
        &self,
        id: &RunId,
        evidence: Evidence,
        decision: &Decision,
    ) -> Result<usize, DecisionError> {
        let run = self.record(id).await?;
        let refuse = |rule| {
            let (run, state) = (id.clone(), run.state.to_string());
            Err(DecisionError::Engine(EngineError::Ledger(LedgerError::State { run, state, rule })))
        };
        if run.parent.is_some() {
            return refuse(
                "a child run is tried again by the run that started it: give `runs retry` that one",
            );
        }
        if !matches!(run.state, RunState::Failed | RunState::Stuck) {
            return refuse(
                "only a failed run, or one that is stuck behind its point of no return, can be tried again; one that waits goes on by itself or with `runs resume`",
            );
        }
        if is_undone(&*self.parts.ledger, id).await? {
            if run.state == RunState::Stuck {
                return refuse(
                    "it is on its way back: `twice runs release` has what could not be undone tried again, `twice runs resolve` says that it is settled otherwise",
                );
            }
            return refuse(
                "what it did is undone, or was begun to be, so that there is nothing to go on from; start a new run",
            );
        }
        let at = self.parts.clock.now();
        let failed = failed_effects(&*self.parts.ledger, id).await?;
        let against = failed.iter().find_map(|effect| Some((effect, evidence::against(effect)?)));
        if let (Some((effect, seen)), Evidence::Heeded) = (against, evidence) {
            return Err(DecisionError::Contradicted {
                effect: effect.id.clone(),
                says: seen.says().to_owned(),
            });
        }
        let (entries, effects) = renewals(failed, run.fence, decision, at)?;
        let renewed = effects.len();
        let event = Some(retried(decision));
        self.write_decision(&run, entries, effects, decision, event, at).await?;
        Ok(renewed)
    }
}

/// Whether something of a run was undone, or is being undone.
///
/// # Errors
/// When the ledger cannot be read.
pub(super) async fn is_undone(ledger: &dyn Ledger, id: &RunId) -> Result<bool, EngineError> {
    let effects = effects_of(ledger, id).await?;
    Ok(effects.values().any(|recorded| recorded.effect.proposal.undoes.is_some()))
}

/// Whether something of a run that failed happened after all, by what came since.
///
/// # Errors
/// When the ledger cannot be read.
pub(super) async fn is_contradicted(ledger: &dyn Ledger, id: &RunId) -> Result<bool, EngineError> {
    let failed = failed_effects(ledger, id).await?;
    Ok(failed.iter().any(|effect| evidence::against(effect).is_some()))
}

/// Has a run that failed tried again, as another run asks for what it does anew.
///
/// # Errors
/// [`LedgerError::State`] when it has changed since it was read.
pub(super) async fn try_again(
    ledger: &dyn Ledger,
    run: &RunRecord,
    decision: &Decision,
    at: Timestamp,
) -> Result<(), EngineError> {
    let failed = failed_effects(ledger, &run.id).await?;
    let (entries, effects) = renewals(failed, run.fence, decision, at)?;
    write(ledger, run, entries, effects, Some(retried(decision)), at).await
}

/// The entries by which effects that failed may be requested anew, and those effects.
///
/// # Errors
/// [`EngineError::History`].
pub(super) fn renewals(
    mut effects: Vec<Effect>,
    fence: Fence,
    decision: &Decision,
    at: Timestamp,
) -> Result<(Vec<NewEntry>, Vec<Effect>), EngineError> {
    let mut entries = Vec::new();
    for effect in &mut effects {
        let event = EffectEvent::ConflictDecided(ConflictDecision {
            decision: ConflictRule::Renew,
            who: decision.who.clone(),
            why: decision.why.clone(),
            requested_hash: effect.proposal.request_hash.clone(),
        });
        add(effect, &mut entries, fence, at, event)?;
    }
    Ok((entries, effects))
}

/// The effects of a run that failed and were not renewed yet. An approval is asked for anew with what it was for.
pub(super) async fn failed_effects(
    ledger: &dyn Ledger,
    id: &RunId,
) -> Result<Vec<Effect>, EngineError> {
    let mut filter = EffectFilter {
        run: Some(id.clone()),
        state: Some(State::Failed),
        limit: PAGE_MAX,
        ..EffectFilter::default()
    };
    let mut found = Vec::new();
    loop {
        let page = ledger.effects(&filter).await?;
        for row in &page {
            let effect = ledger.effect(&row.id).await?;
            let stands = |effect: &Effect| {
                effect.proposal.approves.is_none()
                    && !effect.is_renewed_for(&effect.proposal.request_hash)
            };
            found.extend(effect.filter(stands));
        }
        match page.last() {
            Some(last) if page.len() == PAGE_MAX as usize => filter.after = Some(last.id.clone()),
            Some(_) | None => return Ok(found),
        }
    }
}

fn retried(decision: &Decision) -> RunEvent {
    RunEvent::Retried { who: decision.who.clone(), why: decision.why.clone() }
}
