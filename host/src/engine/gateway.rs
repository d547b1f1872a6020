//! What stands behind a component's imports while a step runs: turns requests into effects, answers from the ledger what
//! is answered there, and drives the rest.

use std::sync::Arc;

use async_trait::async_trait;
use twice_core::effect::{Effect, Hold, Meant, State};
use twice_core::event::{
    Conflict, ConflictDecision, ConflictRule, EffectEvent, Proposal, RunEvent,
};
use twice_core::identity::RequestHash;
use twice_core::ids::{EffectId, Name};
use twice_core::json;
use twice_core::mutation;
use twice_core::progress::StepId;
use twice_core::time::Timestamp;
use twice_sandbox::{EffectAnswer, EffectRequest, Host, LogLevel, Position, Suspend};

use super::boundary::Boundary;
use super::compiled::CompiledSlot;
use super::drive;
use super::durable::{DurableClock, DurableRandom};
use super::error::EngineError;
use super::object_lock::{self, Obstacle};
use super::observer::Progress;
use super::resolve::{self, Counters, Receipts, Refusal};
use super::step::StepContext;
use super::step_session::StepSession;
use super::stop::Stop;

/// How long a run waits before it looks again at an effect that another run owns. Milliseconds.
const SHARED_POLL_MS: u64 = 1_000;

/// The host side of one call of a node.
pub(super) struct Gateway {
    /// The step's session; handed back when the call ends.
    pub(super) session: StepSession,
    /// Why the call was suspended, when it was.
    pub(super) stop: Option<Result<Obstacle, EngineError>>,
    /// The effects that were asked for in this call.
    pub(super) asked: Vec<EffectId>,
    context: StepContext,
    position: Position,
    receipts: Receipts,
    counters: Counters,
    clock: DurableClock,
    random: DurableRandom,
}

/// Where a request leads.
enum Routed {
    /// To an effect of this run, by a request with that request hash.
    Own { id: EffectId, request_hash: RequestHash },
    /// To the recorded effect of another run.
    Foreign(Box<Effect>),
    /// To an answer without an effect.
    Answer(EffectAnswer),
}

impl Gateway {
    /// The gateway of one call.
    #[must_use]
    pub(super) fn new(
        session: StepSession,
        context: StepContext,
        receipts: Receipts,
        since: Timestamp,
        attempt: u32,
    ) -> Self {
        let step = &session.step;
        let position = Position {
            run: session.id().to_string(),
            node: step.node.to_string(),
            visit: step.visit,
            attempt,
        };
        Self {
            random: DurableRandom::new(session.id(), step),
            clock: DurableClock::new(since),
            stop: None,
            asked: Vec::new(),
            counters: Counters::default(),
            session,
            context,
            position,
            receipts,
        }
    }

    async fn answer_all(
        &mut self,
        requests: Vec<EffectRequest>,
    ) -> Result<Result<Vec<EffectAnswer>, Obstacle>, EngineError> {
        self.session.boundaries.pass(Boundary::BeforeIntent);
        let mut routes = Vec::with_capacity(requests.len());
        for request in &requests {
            match self.route(request).await? {
                Ok(route) => routes.push(route),
                Err(stop) => return Ok(Err(stop)),
            }
        }
        let own: Vec<EffectId> = routes
            .iter()
            .filter_map(|route| match route {
                Routed::Own { id, .. } => Some(id.clone()),
                Routed::Foreign(_) | Routed::Answer(_) => None,
            })
            .collect();
        if let Some(stop) = drive::drive(&mut self.session, &self.context, &own).await? {
            return Ok(Err(stop.into()));
        }
        let mut answers = Vec::with_capacity(routes.len());
        for route in routes {
            answers.push(match route {
                Routed::Answer(answer) => answer,
                // What a person decided about a conflict holds for the run that owns the effect.
                Routed::Foreign(effect) => answer_of(&mut self.clock, &effect, None),
                Routed::Own { id, request_hash } => match self.session.effect(&id) {
                    Some(effect) => {
                        let decided = effect.decision_about(&request_hash);
                        answer_of(&mut self.clock, effect, decided)
                    }
                    None => refused_answer(&Refusal {
                        policy: "ledger",
                        message: format!("effect {id} vanished from its step"),
                    }),
                },
            });
        }
        Ok(Ok(answers))
    }

    /// Finds the effect that a request means, recording a proposal when it is new.
    async fn route(
        &mut self,
        request: &EffectRequest,
    ) -> Result<Result<Routed, Obstacle>, EngineError> {
        let context = self.context.clone();
        let node = context.node();
        let slot = Name::parse(request.slot.clone()).ok();
        let Some(slot) = slot.and_then(|name| node.slots.get(&name)) else {
            let granted: Vec<&str> = node.slots.keys().map(Name::as_str).collect();
            let refusal = Refusal {
                policy: "grant",
                message: format!(
                    "node `{}` may not request `{}`: the workflow grants it {}; add a [[node.effect]] with slot = \"{}\" to grant it",
                    node.node.name,
                    request.slot,
                    if granted.is_empty() { "nothing".to_owned() } else { granted.join(", ") },
                    request.slot
                ),
            };
            return Ok(Ok(self.refuse(request, refusal)));
        };
        let proposed =
            resolve::propose(&self.session, slot, request, &self.receipts, &mut self.counters);
        let mut proposal = match proposed {
            Ok(proposal) => proposal,
            Err(refusal) => return Ok(Ok(self.refuse(request, refusal))),
        };
        // I10: a guest that was handed a secret, or guessed one, does not get it into the ledger.
        if context.drivers().holds_secret(&proposal.args) {
            let refusal = Refusal {
                policy: "secret",
                message: format!(
                    "the args of `{}` hold the value of a secret; leave it out: the tool adds its secrets itself",
                    slot.slot.name
                ),
            };
            return Ok(Ok(self.refuse(request, refusal)));
        }
        loop {
            let id = resolve::effect_id(&proposal);
            let known = self.session.effect(&id).cloned();
            let known = match known {
                None if slot.slot.shared => match self.session.shared_effect(&id).await? {
                    Some(effect) if !self.is_own(&effect) => {
                        let elsewhere = effect.run != *self.session.id();
                        if elsewhere && effect.is_void_for_others()
                            || self.leads_on(&effect, &proposal, slot).await?
                        {
                            proposal = resolve::next_generation(&proposal, slot);
                            continue;
                        }
                        return Ok(self.foreign(&effect, &proposal).map_err(Obstacle::from));
                    }
                    other => other.map(Arc::unwrap_or_clone),
                },
                known => known,
            };
            match known {
                None if self.session.is_ending() => {
                    return Ok(Err(drive::nothing_new(&self.session).into()));
                }
                None => {
                    let operation = format!("{}.{}", proposal.tool, proposal.operation);
                    let open = context.circuits().open(&self.session, &operation).await?;
                    if let Some(stop) = open {
                        return Ok(Err(stop.into()));
                    }
                    if let Some(obstacle) = self.lock_object(&proposal, slot).await? {
                        return Ok(Err(obstacle));
                    }
                    let request_hash = proposal.request_hash.clone();
                    self.session.record(&id, EffectEvent::Proposed(proposal))?;
                    return Ok(Ok(self.own(id, request_hash)));
                }
                Some(effect) if self.leads_on(&effect, &proposal, slot).await? => {
                    proposal = resolve::next_generation(&proposal, slot);
                }
                Some(effect) => {
                    // I6: asked for twice in this very call with other args, nobody knows which was meant. The first is
                    // answered before the second is met, as if one had been asked after the other.
                    let undecided = effect.meant_by(&proposal.request_hash) == Meant::Undecided;
                    if undecided && self.asked.contains(&id) {
                        let first = std::slice::from_ref(&id);
                        let driven = drive::drive(&mut self.session, &self.context, first).await?;
                        if let Some(stop) = driven {
                            return Ok(Err(stop.into()));
                        }
                    }
                    let effect = self.session.effect(&id).cloned().unwrap_or(effect);
                    return Ok(Ok(self.again(&effect, proposal, slot)?));
                }
            }
        }
    }

    /// Locks the object of something new, if its slot says so.
    async fn lock_object(
        &self,
        proposal: &Proposal,
        slot: &CompiledSlot,
    ) -> Result<Option<Obstacle>, EngineError> {
        match (&slot.slot.lock, &proposal.identity.object) {
            (Some(lock), Some(object)) => object_lock::take(&self.session, lock, object).await,
            (None, _) | (_, None) => Ok(None),
        }
    }

    /// Whether a request does not mean that effect, but one of a later generation: as a person decided of this request, or
    /// because there is one by now, which it is compared with in the place of this.
    async fn leads_on(
        &self,
        effect: &Effect,
        proposal: &Proposal,
        slot: &CompiledSlot,
    ) -> Result<bool, EngineError> {
        match effect.meant_by(&proposal.request_hash) {
            Meant::This => Ok(false),
            Meant::NextGeneration => Ok(true),
            Meant::Undecided if effect.is_renewed() => {
                let next = resolve::effect_id(&resolve::next_generation(proposal, slot));
                Ok(self.session.effect(&next).is_some()
                    || slot.slot.shared && self.session.shared_effect(&next).await?.is_some())
            }
            Meant::Undecided => Ok(false),
        }
    }

    fn own(&mut self, id: EffectId, request_hash: RequestHash) -> Routed {
        self.asked.push(id.clone());
        Routed::Own { id, request_hash }
    }

    /// A request under an identity that is on record already.
    fn again(
        &mut self,
        effect: &Effect,
        proposal: Proposal,
        slot: &CompiledSlot,
    ) -> Result<Routed, EngineError> {
        let id = effect.id.clone();
        let request_hash = proposal.request_hash.clone();
        let meant = effect.meant_by(&request_hash);
        if meant != Meant::Undecided || mutation::is("ignore-args") {
            return Ok(self.own(id, request_hash));
        }
        match effect.state {
            State::Proposed | State::Authorized
                if effect.indeterminate_attempts().next().is_none() =>
            {
                self.session.record(&id, EffectEvent::Proposed(proposal))?;
            }
            State::Proposed
            | State::Authorized
            | State::Requested
            | State::Confirmed
            | State::Failed
            | State::Unknown => {
                let undecided = matches!(
                    &effect.hold,
                    Some(Hold::Conflict(conflict)) if conflict.requested_hash == proposal.request_hash
                );
                if !undecided {
                    self.conflict(effect, &proposal, slot)?;
                }
            }
        }
        Ok(self.own(id, request_hash))
    }

    /// I6: nothing is sent; both requests are kept for the person (or the slot's rule) that decides.
    fn conflict(
        &mut self,
        effect: &Effect,
        proposal: &Proposal,
        slot: &CompiledSlot,
    ) -> Result<(), EngineError> {
        let conflict = Conflict {
            recorded_hash: effect.proposal.request_hash.clone(),
            requested_hash: proposal.request_hash.clone(),
            args: proposal.args.clone(),
        };
        self.session.record(&effect.id, EffectEvent::Conflicted(conflict))?;
        if let Some(decision) = slot.slot.on_conflict.rule() {
            let decision = ConflictDecision {
                decision,
                who: "slot".to_owned(),
                why: "the slot declares on_conflict".to_owned(),
                requested_hash: proposal.request_hash.clone(),
            };
            self.session.record(&effect.id, EffectEvent::ConflictDecided(decision))?;
        }
        Ok(())
    }

    /// Whether this very step asked for an effect first.
    fn is_own(&self, effect: &Effect) -> bool {
        effect.run == *self.session.id() && effect.proposal.step() == self.session.step
    }

    /// A shared effect that another run, or another step of this one, owns: its receipt is adopted, its settling waited for.
    fn foreign(&self, effect: &Effect, proposal: &Proposal) -> Result<Routed, Stop> {
        let elsewhere = effect.run != *self.session.id();
        let owner = if elsewhere {
            format!("run {}", effect.run)
        } else {
            format!("step {} of this run", effect.proposal.step())
        };
        if effect.proposal.request_hash != proposal.request_hash {
            return Err(Stop::Person {
                why: format!(
                    "effect {} is shared with {owner}, which requested it with other args ({} there, {} here); nothing was sent. Change the input or the workflow, or let the receipt of {} stand",
                    effect.id,
                    effect.proposal.args,
                    proposal.args,
                    if elsewhere { "that run" } else { "that step" }
                ),
            });
        }
        if !effect.state.is_final() || effect.hold.is_some() {
            return Err(Stop::Wait {
                until: self.session.now().plus_ms(SHARED_POLL_MS),
                why: format!("effect {} is being performed by {owner}", effect.id),
            });
        }
        if elsewhere {
            self.session.record_run(RunEvent::Adopted { effect: effect.id.clone() });
        }
        Ok(Routed::Foreign(Box::new(effect.clone())))
    }

    fn refuse(&mut self, request: &EffectRequest, refusal: Refusal) -> Routed {
        self.record_refusal(&request.slot, &refusal);
        Routed::Answer(refused_answer(&refusal))
    }

    fn record_refusal(&mut self, slot: &str, refusal: &Refusal) {
        let StepId { node, visit, element } = self.session.step.clone();
        self.session.record_run(RunEvent::RequestRefused {
            node,
            visit,
            element,
            slot: excerpt(slot),
            policy: refusal.policy.to_owned(),
            message: excerpt(&refusal.message),
        });
    }
}

/// What the guest is told about an answered effect, given what was decided about its very request; its clock moves to when
/// the effect was answered.
fn answer_of(
    clock: &mut DurableClock,
    effect: &Effect,
    decided: Option<&ConflictDecision>,
) -> EffectAnswer {
    if let Some(at) = effect.answered_at {
        clock.advance(at);
    }
    if let Some(decision) = decided.filter(|decided| decided.decision == ConflictRule::Fail) {
        return EffectAnswer::Failed {
            code: "conflict".to_owned(),
            message: format!("decided by {}: {}", decision.who, decision.why),
        };
    }
    match (&effect.receipt, &effect.failure) {
        (Some(receipt), _) => EffectAnswer::Receipt {
            effect_id: effect.id.to_string(),
            body: json::canonical(&receipt.exposed),
        },
        (None, Some(failure)) if failure.denied => EffectAnswer::Denied {
            policy: failure.detail["policy"].as_str().unwrap_or(&failure.code).to_owned(),
            message: failure.message.clone(),
        },
        (None, Some(failure)) => {
            EffectAnswer::Failed { code: failure.code.clone(), message: failure.message.clone() }
        }
        (None, None) => EffectAnswer::Failed {
            code: "internal".to_owned(),
            message: format!("effect {} is {} without an answer", effect.id, effect.state),
        },
    }
}

fn refused_answer(refusal: &Refusal) -> EffectAnswer {
    EffectAnswer::Denied { policy: refusal.policy.to_owned(), message: refusal.message.clone() }
}

fn excerpt(text: &str) -> String {
    text.chars().take(1_000).collect()
}

#[async_trait]
impl Host for Gateway {
    async fn request(
        &mut self,
        requests: Vec<EffectRequest>,
    ) -> Result<Vec<EffectAnswer>, Suspend> {
        match self.answer_all(requests).await {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(stop)) => {
                self.stop = Some(Ok(stop));
                Err(Suspend)
            }
            Err(error) => {
                self.stop = Some(Err(error));
                Err(Suspend)
            }
        }
    }

    fn refused(&mut self, slot: &str, policy: &'static str, message: &str) {
        self.record_refusal(slot, &Refusal { policy, message: message.to_owned() });
    }

    fn position(&self) -> Position {
        self.position.clone()
    }

    fn now_ms(&mut self) -> u64 {
        self.clock.now_ms()
    }

    fn random(&mut self, count: usize) -> Vec<u8> {
        self.random.next(count)
    }

    fn log(&mut self, level: LogLevel, message: &str) {
        let level = match level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        self.session.observe(&Progress::Log { step: &self.session.step, level, message });
    }
}
