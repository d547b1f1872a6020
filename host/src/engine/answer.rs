//! What a person answers who is asked for an approval.

use std::collections::BTreeSet;

use twice_core::approval::{self, Answer, Standing};
use twice_core::effect::Effect;
use twice_core::ids::{EffectId, RunId};
use twice_core::limits::PAGE_MAX;
use twice_core::saga::WayBack;
use twice_ledger::{EffectFilter, Ledger, LedgerError, RunRecord, progress_of};

use super::operator::{Decision, DecisionError, add, not_now};
use super::{Engine, EngineError};

impl Engine {
    /// Records a person's answer to an approval, which may be named by the effect that waits for it, whoever holds its run. The run
    /// is due at once, or its worker hears of it.
    ///
    /// # Errors
    /// [`DecisionError::NotNow`], [`DecisionError::NotAsked`] when nothing is asked of a person about that effect, or not any more.
    pub async fn answer(
        &self,
        id: &EffectId,
        answer: Answer,
        decision: &Decision,
    ) -> Result<Effect, DecisionError> {
        let (effect, run) = self.effect_and_run(id).await?;
        let mut approval = match &effect.proposal.approval {
            None => effect,
            Some(_) => {
                let asked = self.ledger().effect(&approval::id_of(&effect.proposal)).await?;
                asked.ok_or_else(|| not_now(&effect, "nobody was asked to approve it yet"))?
            }
        };
        let at = self.parts.clock.now();
        self.refuse_in_vain(&approval, &run).await?;
        let Decision { who, why } = decision;
        let event = approval::answer(&approval, answer, who, why, at).map_err(|standing| {
            let Some(standing) = standing else {
                let rule = "it needs no approval; `twice approvals list` shows what is asked";
                return not_now(&approval, rule);
            };
            DecisionError::NotAsked {
                approval: approval.id.clone(),
                how: ended(&approval, standing),
            }
        })?;
        let mut entries = Vec::new();
        add(&mut approval, &mut entries, run.fence, at, event)?;
        self.write_decision(&run, entries, vec![approval.clone()], decision, None, at).await?;
        self.ledger().wake(&run.id).await.map_err(EngineError::from)?;
        Ok(approval)
    }

    /// Refuses an answer that cannot count any more, as the run does not go on.
    async fn refuse_in_vain(
        &self,
        approval: &Effect,
        run: &RunRecord,
    ) -> Result<(), DecisionError> {
        let Some(of) = &approval.proposal.approves else { return Ok(()) };
        let of = self.ledger().effect(of).await?;
        let undoes = of.is_some_and(|effect| effect.proposal.undoes.is_some());
        if approval.state.is_final() || undoes {
            return Ok(());
        }
        let going_back = progress_of(&**self.ledger(), run).await?.compensating.is_some();
        // Behind its point of no return a run goes on, whoever asked that it be cancelled.
        let cancelled =
            run.cancel.is_some() && !matches!(self.way_back(run).await?, WayBack::Closed(_));
        if cancelled || going_back || run.state.is_final() {
            let how = "not needed any more, as its run does not go on".to_owned();
            return Err(DecisionError::NotAsked { approval: approval.id.clone(), how });
        }
        Ok(())
    }
}

/// How an approval ended, as the end of a sentence.
fn ended(approval: &Effect, standing: Standing<'_>) -> String {
    let at = approval.answered_at.unwrap_or(approval.updated_at);
    match standing {
        Standing::Granted { who, why } => format!("granted by {who} at {at}: {why}"),
        Standing::Refused { who, why } => format!("refused by {who} at {at}: {why}"),
        Standing::Expired => "expired: whoever was asked did not answer in time".to_owned(),
        Standing::Void => format!("called off since {at}, as nothing waits for it any more"),
        Standing::Open => "open".to_owned(),
    }
}

/// Which of these approvals are not open any more, by the ledger.
pub(super) async fn answered(
    ledger: &dyn Ledger,
    run: &RunId,
    mut asked: BTreeSet<EffectId>,
) -> Result<BTreeSet<EffectId>, LedgerError> {
    let mut filter = EffectFilter {
        run: Some(run.clone()),
        waiting: true,
        approvals: true,
        limit: PAGE_MAX,
        ..EffectFilter::default()
    };
    loop {
        let page = ledger.effects(&filter).await?;
        for row in &page {
            asked.remove(&row.id);
        }
        match page.last() {
            Some(last) if page.len() == PAGE_MAX as usize => filter.after = Some(last.id.clone()),
            Some(_) | None => return Ok(asked),
        }
    }
}
