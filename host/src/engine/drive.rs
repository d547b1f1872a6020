//! Does what [`reconcile::next`] says about a set of effects until every one is answered or has to wait. A first request,
//! a retry, a resume and a reconciliation are this one loop.

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use twice_core::contract::ToolClass;
use twice_core::effect::{Attempt, Effect, State};
use twice_core::event::{AttemptStart, Authorization, EffectEvent, Failure, ProbeResult};
use twice_core::ids::EffectId;
use twice_core::mutation;
use twice_core::outcome::{self, Exchange};
use twice_core::reconcile::{self, Next};
use twice_core::time::Timestamp;

use super::boundary::Boundary;
use super::compiled::{CompiledSlot, Permission};
use super::error::EngineError;
use super::late::Request;
use super::step::StepContext;
use super::step_session::StepSession;
use crate::tool::{AnyRequest, Call, Prepared};

/// Most requests that one step has under way at a time; more wait for their turn.
const CONCURRENT_MAX: usize = 64;

/// How long a run waits whose request this worker lacks a setting for. Milliseconds.
const SETTING_POLL_MS: u64 = 60_000;

/// What an observation is called that rests on an answer which could not be written.
const UNWRITTEN_ANSWER: &str = "answer that its worker could not write";
/// The same of a lookup.
const UNWRITTEN_LOOKUP: &str = "lookup that its worker could not write";

/// Why a step cannot go on now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Until an instant.
    Wait {
        /// When to go on.
        until: Timestamp,
        /// For people.
        why: String,
    },
    /// Until a person decides.
    Person {
        /// Why, and what to do.
        why: String,
    },
}

impl Stop {
    /// What a person is needed for, if one is.
    pub(super) fn person(self) -> Option<String> {
        match self {
            Self::Wait { .. } => None,
            Self::Person { why } => Some(why),
        }
    }

    /// Whichever of several lets the run go on first; a person is waited for only when nothing goes on by itself, and is told of
    /// in any case.
    pub(super) fn first<'a>(stops: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let (mut wait, mut person): (Option<(Timestamp, &str)>, Option<&str>) = (None, None);
        for stop in stops {
            match stop {
                Self::Wait { until, why } if wait.is_none_or(|(first, _)| *until < first) => {
                    wait = Some((*until, why));
                }
                Self::Wait { .. } => {}
                Self::Person { why } => drop(person.get_or_insert(why)),
            }
        }
        match (wait, person) {
            (Some((until, why)), person) => {
                let person = person.map(|why| format!("; and a person is needed: {why}"));
                let why = format!("{why}{}", person.unwrap_or_default());
                Some(Self::Wait { until, why })
            }
            (None, Some(why)) => Some(Self::Person { why: why.to_owned() }),
            (None, None) => None,
        }
    }
}

/// What the network is asked in one round.
enum Move {
    Send { id: EffectId, attempt: u32, prepared: Box<Prepared<AnyRequest>> },
    Lookup { effect: Box<Effect> },
}

/// What the network answered.
enum Reply {
    Sent { id: EffectId, attempt: u32, exchange: Exchange },
    LookedUp { id: EffectId, request: Value, result: ProbeResult },
}

/// Drives effects until all are answered; returns why not, if some cannot be now.
///
/// # Errors
/// [`EngineError`] when the ledger fails; nothing was sent after the failure.
pub(super) async fn drive(
    session: &mut StepSession,
    context: &StepContext,
    ids: &[EffectId],
) -> Result<Option<Stop>, EngineError> {
    loop {
        let mut moves = Vec::new();
        let mut stop = None;
        for id in ids {
            if moves.len() == CONCURRENT_MAX {
                break;
            }
            match plan(session, context, id)? {
                Planned::Answered => {}
                Planned::Move(planned) => moves.push(planned),
                Planned::Stop(found) => stop = Some(sooner(stop, found)),
            }
        }
        if moves.is_empty() {
            return Ok(stop);
        }
        if moves.iter().any(|planned| matches!(planned, Move::Send { .. })) {
            // I3: every REQUESTED entry of this round is durable before the first byte leaves.
            if !mutation::is("send-before-commit") {
                session.flush().await?;
            }
            session.boundaries.pass(Boundary::AfterRequestedCommit);
        }
        perform(session, context, moves).await?;
    }
}

enum Planned {
    Answered,
    Move(Move),
    Stop(Stop),
}

/// Records what needs no network, until the next thing about an effect does.
fn plan(
    session: &mut StepSession,
    context: &StepContext,
    id: &EffectId,
) -> Result<Planned, EngineError> {
    loop {
        let Some(effect) = session.effect(id) else { return Ok(Planned::Answered) };
        let Some(slot) = context.slot_of(effect) else {
            return Ok(Planned::Stop(Stop::Person {
                why: format!("effect {id} belongs to no slot of the pinned definition"),
            }));
        };
        match reconcile::next(effect, session.fence, session.now()) {
            Next::Answered => return Ok(Planned::Answered),
            Next::Wait { until, why } => return Ok(Planned::Stop(Stop::Wait { until, why })),
            Next::Person { why } => return Ok(Planned::Stop(Stop::Person { why })),
            Next::Authorize => {
                let event = authorize(session, effect, slot);
                session.record(id, event)?;
            }
            Next::MarkUnknown(reason) => {
                session.boundaries.pass(Boundary::BeforeUnknown);
                session.record(id, EffectEvent::Unknown(reason))?;
            }
            Next::GiveUp(failure) => session.record(id, EffectEvent::Failed(failure))?,
            Next::Lookup => {
                return Ok(Planned::Move(Move::Lookup { effect: Box::new(effect.clone()) }));
            }
            Next::Send { attempt } => match build(context, effect, slot, session.now()) {
                Built::Ready(prepared) => {
                    let start = AttemptStart {
                        attempt,
                        request: prepared.stored.clone(),
                        body_hash: prepared.body_hash.clone(),
                    };
                    session.record(id, EffectEvent::Requested(start))?;
                    return Ok(Planned::Move(Move::Send { id: id.clone(), attempt, prepared }));
                }
                Built::Failed(failure) => session.record(id, EffectEvent::Failed(failure))?,
                Built::Stop(stop) => return Ok(Planned::Stop(stop)),
            },
        }
    }
}

fn authorize(session: &StepSession, effect: &Effect, slot: &CompiledSlot) -> EffectEvent {
    match slot.permission(&effect.proposal.args, || session.state()) {
        Permission::Permitted(policy) => EffectEvent::Authorized(Authorization {
            policy,
            request_hash: effect.proposal.request_hash.clone(),
        }),
        Permission::Refused { policy, message } => EffectEvent::Failed(Failure {
            code: "denied".to_owned(),
            message,
            denied: true,
            source: None,
            rule: None,
            verdict: None,
            detail: json!({ "policy": policy }),
        }),
    }
}

/// What came of building a request.
enum Built {
    Ready(Box<Prepared<AnyRequest>>),
    Failed(Failure),
    Stop(Stop),
}

/// Builds the request; one that cannot be built fails the effect, unless an earlier one may have happened.
fn build(context: &StepContext, effect: &Effect, slot: &CompiledSlot, now: Timestamp) -> Built {
    let prepared = match context.drivers().prepare(&call(effect, slot)) {
        Ok(prepared) => prepared,
        // Nothing can be said about the effect by a worker that cannot ask; another, or this one later, may be able to.
        Err(problem) if problem.is_setting() => {
            return Built::Stop(Stop::Wait {
                until: now.plus_ms(SETTING_POLL_MS),
                why: format!("the request of effect {} cannot be built: {problem}", effect.id),
            });
        }
        Err(problem) if effect.state == State::Unknown => {
            return Built::Stop(Stop::Person {
                why: format!(
                    "effect {} is UNKNOWN and its request cannot be built again: {problem}",
                    effect.id
                ),
            });
        }
        Err(problem) => {
            return Built::Failed(Failure {
                code: "not_built".to_owned(),
                message: problem.to_string(),
                denied: false,
                source: None,
                rule: None,
                verdict: None,
                detail: Value::Null,
            });
        }
    };
    let differs = |sent: &Attempt| sent.in_doubt() && sent.body_hash != prepared.body_hash;
    if effect.attempts.iter().any(differs) {
        return Built::Stop(Stop::Person {
            why: format!(
                "effect {} would be sent again with other bytes than those that may have been processed; nothing was sent. A setting that its request is built from has changed; restore it, or find out what happened, then {}",
                effect.id,
                twice_core::reconcile::resolve_commands(&effect.id)
            ),
        });
    }
    Built::Ready(Box::new(prepared))
}

fn call<'a>(effect: &'a Effect, slot: &'a CompiledSlot) -> Call<'a> {
    Call {
        tool: &slot.tool,
        operation: &slot.operation,
        args: &effect.proposal.args,
        key: &effect.proposal.provider_key,
        effect: &effect.id,
        run: &effect.run,
    }
}

async fn perform(
    session: &mut StepSession,
    context: &StepContext,
    moves: Vec<Move>,
) -> Result<(), EngineError> {
    let send_before = session.lease.good_until();
    for _ in moves.iter().filter(|planned| matches!(planned, Move::Lookup { .. })) {
        session.boundaries.pass(Boundary::BeforeLookup);
    }
    let mut replies = FuturesUnordered::new();
    for planned in moves {
        replies.push(match planned {
            Move::Send { id, attempt, prepared } => {
                let request = Request {
                    run: session.id().clone(),
                    effect: id.clone(),
                    attempt,
                    context: context.clone(),
                };
                let awaited = session.late.send(request, prepared.request, send_before);
                async move { Reply::Sent { id, attempt, exchange: awaited.wait().await } }.boxed()
            }
            Move::Lookup { effect } => look_up(context, effect).boxed(),
        });
    }
    while let Some(reply) = replies.next().await {
        take_in(session, context, reply).await?;
    }
    Ok(())
}

async fn look_up(context: &StepContext, effect: Box<Effect>) -> Reply {
    let (request, result) = match context.slot_of(&effect) {
        Some(slot) => context.drivers().lookup(&call(&effect, slot)).await,
        None => {
            let message = "no such slot any more".to_owned();
            (Value::Null, ProbeResult::Error { message })
        }
    };
    Reply::LookedUp { id: effect.id, request, result }
}

async fn take_in(
    session: &mut StepSession,
    context: &StepContext,
    reply: Reply,
) -> Result<(), EngineError> {
    match reply {
        Reply::Sent { id, attempt, exchange } => {
            session.boundaries.pass(Boundary::AfterReply);
            let Some(effect) = session.effect(&id) else { return Ok(()) };
            let Some(slot) = context.slot_of(effect) else { return Ok(()) };
            let clean = effect.indeterminate_attempts().count() <= 1;
            let declared = &slot.operation.declarations;
            let outcome = outcome::classify(&exchange, declared, &effect.proposal.args, clean);
            let seen = outcome::observe(UNWRITTEN_ANSWER, attempt, &exchange, &outcome);
            let event = outcome::settle(effect, outcome, session.now());
            let class = effect.contract().class();
            if matches!(&event, EffectEvent::Unknown(reason) if reason.breach) {
                context.circuits().trip(slot.operation_name(), id.clone(), session.now());
            }
            session.learn(&id, seen);
            session.record(&id, event)?;
            // Nothing else could tell later what this answer told: it is made durable at once.
            if class == ToolClass::Neither {
                session.flush().await?;
            }
        }
        Reply::LookedUp { id, request, result } => {
            session.boundaries.pass(Boundary::AfterLookup);
            let Some(effect) = session.effect(&id) else { return Ok(()) };
            let Some(slot) = context.slot_of(effect) else { return Ok(()) };
            let expose = &slot.operation.declarations.expose;
            let seen = outcome::observe_lookup(UNWRITTEN_LOOKUP, &result);
            let events = outcome::settle_probe(effect, result, request, expose, session.now());
            session.learn(&id, seen);
            for event in events {
                session.record(&id, event)?;
            }
        }
    }
    Ok(())
}

/// Records that requests which were under way when the node's time was up are not known to have happened or not.
///
/// # Errors
/// [`EngineError::History`].
pub(super) fn abandon(session: &mut StepSession) -> Result<(), EngineError> {
    let open: Vec<EffectId> = session
        .all_effects()
        .filter(|effect| effect.state == State::Requested)
        .filter(|effect| effect.attempts.last().is_some_and(|a| a.fence == session.fence))
        .map(|effect| effect.id.clone())
        .collect();
    for id in open {
        let Some(effect) = session.effect(&id) else { continue };
        let reason = reconcile::without_answer(
            effect,
            reconcile::RULE_ABANDONED,
            "the node's time was up while the request was under way",
        );
        session.record(&id, EffectEvent::Unknown(reason))?;
    }
    Ok(())
}

/// Whichever stop lets the run go on first; a person is waited for only when nothing else is.
fn sooner(known: Option<Stop>, found: Stop) -> Stop {
    match (known, found) {
        (None, found) => found,
        (Some(Stop::Wait { until: a, why }), Stop::Wait { until: b, .. }) if a <= b => {
            Stop::Wait { until: a, why }
        }
        (Some(known @ Stop::Wait { .. }), Stop::Person { .. }) => known,
        (Some(known @ Stop::Person { .. }), Stop::Person { .. }) => known,
        (Some(_), found) => found,
    }
}
