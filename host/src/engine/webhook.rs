//! What a provider posts by itself: taken when it is genuine, and applied when the outcome of the effect that it names is not
//! known. Whatever else it says is kept as evidence, and changes nothing.

use serde_json::Value;
use twice_core::effect::Effect;
use twice_core::event::EffectEvent;
use twice_core::ids::{EffectId, Name, RunId};
use twice_core::json::{self, JsonError};
use twice_core::limits::WEBHOOK_BYTES_MAX;
use twice_core::time::Timestamp;
use twice_core::webhook::{self, Authentic, Delivery, Forgery, Judgement, UnclearEvent};
use twice_ledger::{LedgerError, RunRecord};
use twice_workflow::model::{Definition, Tool};

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
    /// It says what cannot be applied, and is kept as evidence, once.
    Evidence,
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
    #[error("it names more than one effect: {}", .0.iter().map(EffectId::as_str).collect::<Vec<_>>().join(", "))]
    SeveralReferences(Vec<EffectId>),
    /// The effect is that of another tool.
    #[error("it was signed for the tool `{tool}`, and names effect {effect} of the tool `{other}`")]
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
        run: RunId,
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

impl WebhookError {
    /// Whether it is the event that is refused, so that handing it over again would not help, and not that we could not look at it.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Forgery(Forgery::NoKey | Forgery::BadKey { .. })
            | Self::NotTaken(_)
            | Self::Decision(_) => false,
            Self::Forgery(_)
            | Self::NotText
            | Self::NotJson(_)
            | Self::SeveralReferences(_)
            | Self::OtherTool { .. }
            | Self::NotPinned { .. }
            | Self::Unclear(_) => true,
        }
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
        let webhook = tool.webhook.as_ref();
        let webhook = webhook.ok_or_else(|| WebhookError::NotTaken(tool.name.clone()))?;
        let authentic = webhook::verify(&webhook.scheme, keys, delivery, self.parts.clock.now())?;
        let text = std::str::from_utf8(delivery.body).map_err(|_| WebhookError::NotText)?;
        let event = json::parse(text, WEBHOOK_BYTES_MAX)?;
        let mut left = TRIES_MAX;
        loop {
            left -= 1;
            let taken = self.take_genuine(tool, &authentic, &event).await?;
            // Somebody wrote to the run since it was read: another event of a crowd, most likely.
            let again = match &taken {
                Taken::Here { effect, made: Made::NotYet(_) } => {
                    left > 0 && !self.record(&effect.run).await?.lease_live
                }
                Taken::Here { .. } | Taken::Elsewhere(_) => false,
            };
            if !again {
                return Ok(taken);
            }
        }
    }

    async fn take_genuine(
        &self,
        tool: &Tool,
        authentic: &Authentic,
        event: &Value,
    ) -> Result<Taken, WebhookError> {
        let named = match self.named(tool, event).await? {
            Named::Here(named) => *named,
            Named::Elsewhere(id) => return Ok(Taken::Elsewhere(id)),
        };
        let About { effect, run, definition } = named;
        self.learn_secrets(&definition);
        let mut event = event.clone();
        self.parts.drivers.redact(&mut event);
        let operation = definition.operation(&effect.proposal);
        let Some((operation, meaning)) =
            operation.and_then(|operation| Some((operation, operation.webhook.as_ref()?)))
        else {
            return Err(WebhookError::NotPinned { effect: effect.id, run: run.id });
        };
        let now = self.parts.clock.now();
        let told = (authentic, &event);
        let declarations = &operation.declarations;
        let made = match webhook::judge(&effect, run.lease_live, meaning, declarations, told, now)?
        {
            Judgement::Nothing => Made::Nothing,
            Judgement::Known => Made::Known,
            Judgement::Kept => Made::Evidence,
            Judgement::Early => {
                Made::NotYet("its worker waits for the answer to the request itself".to_owned())
            }
            Judgement::Evidence(seen) => {
                let written = self.ledger().observe(&run.id, &effect.id, seen, now).await;
                written.map_err(EngineError::from)?;
                Made::Evidence
            }
            Judgement::Settles(events) => {
                return self.settle_by_event(effect, &run, events, authentic, now).await;
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

    /// The effect that an event names, by what the run that owns it was started under (I9).
    async fn named(&self, tool: &Tool, event: &Value) -> Result<Named, WebhookError> {
        let ids = webhook::effects_in(event);
        if ids.len() > NAMED_MAX {
            return Err(WebhookError::SeveralReferences(ids.into_iter().collect()));
        }
        let (mut found, mut refusal) = (Vec::new(), None);
        for id in &ids {
            let (effect, run) = match self.effect_and_run(id).await {
                Err(DecisionError::NoEffect(_)) => continue,
                read => read?,
            };
            let of = &effect.proposal.tool;
            if *of != tool.name {
                let (other, tool) = (of.clone(), tool.name.clone());
                refusal = Some(WebhookError::OtherTool { effect: id.clone(), other, tool });
                continue;
            }
            let definition = self.pinned(&run.id, &run.definition).await?;
            let operation = definition.operation(&effect.proposal);
            match operation.and_then(|operation| operation.webhook.as_ref()) {
                None => {
                    refusal = Some(WebhookError::NotPinned { effect: id.clone(), run: run.id });
                }
                Some(meaning) if webhook::reference(meaning, event).as_ref() == Some(id) => {
                    found.push(About { effect, run, definition });
                }
                // It is spoken of, and the event is not about it.
                Some(_) => {}
            }
        }
        match (found.len(), refusal) {
            (1, _) => Ok(Named::Here(Box::new(found.remove(0)))),
            (0, Some(refusal)) => Err(refusal),
            (0, None) => Ok(Named::Elsewhere(ids.into_iter().next())),
            _ => {
                let named = found.into_iter().map(|about| about.effect.id).collect();
                Err(WebhookError::SeveralReferences(named))
            }
        }
    }
}

/// How often an event is tried that comes at once with others.
const TRIES_MAX: u32 = 5;
/// Most effects that an event may speak of.
const NAMED_MAX: usize = 16;

/// What an event is about.
struct About {
    effect: Effect,
    run: RunRecord,
    definition: Definition,
}

enum Named {
    Here(Box<About>),
    Elsewhere(Option<EffectId>),
}
