//! What a provider posts by itself: taken when it is genuine, and applied when the outcome of the effect that it names is not
//! known. Whatever else it says is kept as evidence, and changes nothing.

use std::collections::BTreeSet;

use serde_json::Value;
use twice_core::effect::Effect;
use twice_core::event::EffectEvent;
use twice_core::ids::{EffectId, Name};
use twice_core::json::{self, JsonError};
use twice_core::limits::WEBHOOK_BYTES_MAX;
use twice_core::time::Timestamp;
use twice_core::webhook::{self, Authentic, Delivery, Forgery, Judgement, UnclearEvent};
use twice_ledger::{LedgerError, RunRecord};
use twice_workflow::model::Tool;

use super::operator::{Decision, DecisionError, add};
use super::{Engine, EngineError};

/// What became of a genuine event.
#[derive(Debug, Clone)]
pub enum Taken {
    /// It is about nothing that this ledger knows: it names no effect, or that of another ledger. A provider has other clients, and
    /// posts what they did as well.
    Elsewhere(Option<EffectId>),
    /// It is about an effect of this ledger.
    Here {
        /// The effect, as it is now.
        effect: Box<Effect>,
        /// What was made of the event.
        made: Made,
    },
}

/// What was made of a genuine event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// The outcome was not known, and is now.
    Settled,
    /// It says what is recorded already.
    Known,
    /// It says nothing about the outcome.
    Nothing,
    /// It says otherwise than what is recorded, and is kept as evidence.
    Contradiction,
    /// Nothing was recorded: it is to be handed over again.
    NotYet(String),
}

/// Why an event is refused. Nothing was recorded then.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The tool takes no events.
    #[error("the tool `{0}` has no `[webhook]`, so that nothing can be verified")]
    NotTaken(Name),
    /// It is not genuine.
    #[error("it is not taken for genuine: {0}")]
    Forgery(#[from] Forgery),
    /// Its body is no text.
    #[error("its body is not UTF-8 text")]
    NotText,
    /// Its body is no strict JSON.
    #[error("its body is not strict JSON: {0}")]
    NotJson(#[from] JsonError),
    /// It names several effects.
    #[error("it names more than one effect: {} and {}", .0[0], .0[1])]
    SeveralReferences(Vec<EffectId>),
    /// The effect is that of another tool.
    #[error("effect {effect} is of the tool `{other}`, which does not speak for `{tool}`")]
    OtherTool {
        /// The effect.
        effect: EffectId,
        /// Its tool.
        other: Name,
        /// The tool whose key it was signed with.
        tool: Name,
    },
    /// The run was started under a version of the tool that takes no events.
    #[error(
        "run {run} of effect {effect} was started under a version of the tool that does not say what its events mean; what is known can be recorded with `twice effects resolve`"
    )]
    NotPinned {
        /// The effect.
        effect: EffectId,
        /// Its run.
        run: String,
    },
    /// It is genuine, and does not say enough.
    #[error(transparent)]
    Unclear(#[from] UnclearEvent),
    /// The ledger failed.
    #[error(transparent)]
    Decision(#[from] DecisionError),
}

impl From<EngineError> for WebhookError {
    fn from(error: EngineError) -> Self {
        Self::Decision(error.into())
    }
}

impl Engine {
    /// Takes in what the provider of `tool` posted, if it was signed with one of `keys`. Handing the same over again is safe: it
    /// finds what is recorded.
    ///
    /// # Errors
    /// [`WebhookError`]; nothing was recorded.
    pub async fn take_event(
        &self,
        tool: &Tool,
        keys: &[String],
        delivery: Delivery<'_>,
    ) -> Result<Taken, WebhookError> {
        let now = self.parts.clock.now();
        let webhook = tool.webhook.as_ref();
        let webhook = webhook.ok_or_else(|| WebhookError::NotTaken(tool.name.clone()))?;
        let authentic = webhook::verify(&webhook.scheme, keys, delivery, now)?;
        let text = std::str::from_utf8(delivery.body).map_err(|_| WebhookError::NotText)?;
        let event = json::parse(text, WEBHOOK_BYTES_MAX)?;
        let Some(named) = named(tool, &event)? else { return Ok(Taken::Elsewhere(None)) };
        let (effect, run) = match self.effect_and_run(&named).await {
            Err(DecisionError::NoEffect(id)) => return Ok(Taken::Elsewhere(Some(id))),
            found => found?,
        };
        let (of, id) = (&effect.proposal.tool, &effect.id);
        if *of != tool.name {
            let (other, tool) = (of.clone(), tool.name.clone());
            return Err(WebhookError::OtherTool { effect: id.clone(), other, tool });
        }
        let definition = self.pinned(&run.id, &run.definition).await?;
        let operation = definition.operation(&effect.proposal);
        let Some((operation, meaning)) =
            operation.and_then(|operation| Some((operation, operation.webhook.as_ref()?)))
        else {
            return Err(WebhookError::NotPinned { effect: id.clone(), run: run.id.to_string() });
        };
        let told = (&authentic, &event);
        let declarations = &operation.declarations;
        let judged = webhook::judge(&effect, run.lease_live, meaning, declarations, told, now)?;
        self.learn_secrets(&definition);
        if matches!(judged, Judgement::Settles(_) | Judgement::Contradicts(_)) {
            self.refuse_secret("the event", &event)?;
        }
        let made = match judged {
            Judgement::Nothing => Made::Nothing,
            Judgement::Known => Made::Known,
            Judgement::Early => {
                Made::NotYet("its worker waits for the answer to the request itself".to_owned())
            }
            Judgement::Contradicts(seen) => {
                let written = self.ledger().observe(&run.id, &effect.id, seen, now).await;
                written.map_err(EngineError::from)?;
                Made::Contradiction
            }
            Judgement::Settles(events) => {
                return self.settle_by_event(effect, &run, events, &authentic, now).await;
            }
        };
        Ok(Taken::Here { effect: Box::new(effect), made })
    }

    async fn settle_by_event(
        &self,
        effect: Effect,
        run: &RunRecord,
        events: Vec<EffectEvent>,
        authentic: &Authentic,
        now: Timestamp,
    ) -> Result<Taken, WebhookError> {
        let mut settled = effect.clone();
        let mut entries = Vec::new();
        for event in events {
            add(&mut settled, &mut entries, run.fence, now, event)?;
        }
        let event = authentic.id.as_deref().unwrap_or(&authentic.body_hash);
        let decision = Decision {
            who: format!("the provider of {}", effect.proposal.tool),
            why: format!("its event {event} says what became of effect {}", effect.id),
        };
        let (effect, made) = match self.decide(run, settled, entries, &decision).await {
            Ok(settled) => (settled, Made::Settled),
            // Whoever holds the run, or wrote to it meanwhile, may be finding out the same.
            Err(DecisionError::Engine(EngineError::Ledger(LedgerError::State {
                rule, ..
            }))) => (effect, Made::NotYet(rule.to_owned())),
            Err(error) => return Err(error.into()),
        };
        Ok(Taken::Here { effect: Box::new(effect), made })
    }
}

/// The effect that an event names.
fn named(tool: &Tool, event: &Value) -> Result<Option<EffectId>, WebhookError> {
    let meanings = tool.operations.values().filter_map(|operation| operation.webhook.as_ref());
    let found: BTreeSet<EffectId> =
        meanings.filter_map(|meaning| webhook::reference(meaning, event)).collect();
    match found.len() {
        0 | 1 => Ok(found.into_iter().next()),
        _ => Err(WebhookError::SeveralReferences(found.into_iter().collect())),
    }
}
