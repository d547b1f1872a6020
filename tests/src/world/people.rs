//! The people of a world: they cancel runs, find out at the provider what happened, and decide what is held for them. What they
//! say is true.

use twice::engine::EngineError;
use twice::engine::operator::{Decision, DecisionError, Finding};
use twice::engine::retry::Evidence;
use twice_core::effect::{Hold, State};
use twice_core::event::ConflictRule;
use twice_core::ids::RunId;
use twice_core::run::RunState;
use twice_ledger::{LedgerError, effects_of};

use super::World;
use crate::dice::Dice;

fn ada() -> Decision {
    Decision { who: "ada".to_owned(), why: "looked it up".to_owned() }
}

/// Nothing is decided about a run that is elsewhere by now.
fn allowed<T>(decided: Result<T, EngineError>) {
    match decided {
        Ok(_)
        | Err(EngineError::Ledger(LedgerError::State { .. } | LedgerError::Absent { .. })) => {}
        Err(error) => panic!("a person could not decide: {error:?}"),
    }
}

fn made<T>(decided: Result<T, DecisionError>) {
    if let Err(error) = decided {
        panic!("a person could not decide: {error:?}");
    }
}

impl World<'_> {
    /// Asks that a run be cancelled, if it can be.
    ///
    /// # Panics
    /// When the ledger cannot be written.
    pub async fn cancel(&self, run: &RunId) {
        allowed(self.theatre.engine.cancel(run, &ada()).await);
    }

    /// Decides what a run waits for; whether there was anything.
    ///
    /// # Panics
    /// When the ledger cannot be written.
    pub async fn decide(&self, run: &RunId, dice: &mut Dice) -> bool {
        let engine = &self.theatre.engine;
        let record = self.ledger().run(run).await.expect("the ledger can be read");
        match record.expect("the run exists").state {
            RunState::Halted => {}
            RunState::Stuck => {
                let tried = engine.retry(run, Evidence::Heeded, &ada()).await;
                if tried.is_err() && dice.one_in(2) {
                    made(engine.resolve_undo(run, None, &ada()).await);
                } else if tried.is_err() {
                    allowed(engine.release(run, Evidence::Heeded, &ada()).await);
                }
                return true;
            }
            _ => return false,
        }
        let effects = effects_of(self.ledger(), run).await.expect("the ledger can be read");
        for effect in effects.into_values().map(|recorded| recorded.effect) {
            let id = &effect.id;
            if matches!(effect.state, State::Unknown | State::Requested) {
                let finding = match self.stage.provider.made_by(id.as_str()) {
                    Some(result) => {
                        let external_id = result["id"].as_str().map(str::to_owned);
                        Finding::Confirmed { result, external_id }
                    }
                    None => Finding::Failed,
                };
                made(engine.resolve(id, finding, &ada()).await);
            }
            let known = self.ledger().effect(id).await.expect("the ledger can be read");
            let mut hold = known.and_then(|known| known.hold);
            while let Some(held) = hold {
                let rule = match held {
                    Hold::Conflict(_) if dice.one_in(3) => ConflictRule::Fail,
                    Hold::Conflict(_) | Hold::Discrepancy(_) => ConflictRule::Keep,
                };
                made(engine.decide_conflict(id, rule, &ada()).await);
                let known = self.ledger().effect(id).await.expect("the ledger can be read");
                hold = known.and_then(|known| known.hold);
            }
        }
        true
    }
}
