//! What a person answers who is asked for an approval.

use twice_core::approval::{self, Answer, NotOpen};
use twice_core::effect::Effect;
use twice_core::ids::EffectId;

use super::Engine;
use super::operator::{Decision, DecisionError, add, not_now};

impl Engine {
    /// Records a person's answer to an approval, which may be named by the effect that waits for it; its run is due again at once.
    ///
    /// # Errors
    /// [`DecisionError::NotNow`] when nothing is asked of a person about that effect, or not any more.
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
        let Decision { who, why } = decision;
        let event = approval::answer(&approval, answer, who, why, at).map_err(|problem| {
            let rule = match problem {
                NotOpen::NoApproval => {
                    "it needs no approval; `twice approvals list` shows what is asked"
                }
                NotOpen::Answered => {
                    "it is not open any more; `twice effects show` tells how it ended"
                }
                NotOpen::Expired => "it has expired, and its effect will not be sent",
            };
            not_now(&approval, rule)
        })?;
        let mut entries = Vec::new();
        add(&mut approval, &mut entries, run.fence, at, event)?;
        self.decide(&run, approval, entries, decision).await
    }
}
