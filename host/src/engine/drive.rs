//! Does what [`reconcile::next`] says about a set of effects until every one is answered or has to wait. A first request,
//! a retry, a resume and a reconciliation are this one loop.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use twice_core::contract::ToolClass;
use twice_core::effect::{Attempt, Effect, State};
use twice_core::event::{AttemptStart, EffectEvent, Failure, ProbeResult};
use twice_core::ids::{EffectId, RunId};
use twice_core::mutation;
use twice_core::outcome::{self, Exchange};
use twice_core::reconcile::{self, Next};
use twice_core::time::Timestamp;
use twice_workflow::model::{Operation, Tool};

use super::authorize::{self, Authorized};
use super::boundary::Boundary;
use super::child::{self, Question, Stands};
use super::compiled::{CompiledSlot, Target};
use super::error::EngineError;
use super::late::Request;
use super::step::StepContext;
use super::step_session::StepSession;
use super::stop::{Stop, sooner};
use crate::tool::{AnyRequest, Call, Prepared};

/// Most requests that one step has under way at a time; more wait for their turn.
const CONCURRENT_MAX: usize = 64;

/// How long a run waits whose request this worker lacks a setting for. Milliseconds.
const SETTING_POLL_MS: u64 = 60_000;

/// What an observation is called that rests on an answer which could not be written.
const UNWRITTEN_ANSWER: &str = "answer that its worker could not write";
/// The same of a lookup.
const UNWRITTEN_LOOKUP: &str = "lookup that its worker could not write";

/// What the network, or the ledger, is asked in one round.
enum Move {
    Send {
        id: EffectId,
        attempt: u32,
        prepared: Box<Prepared<AnyRequest>>,
    },
    Lookup {
        effect: Box<Effect>,
    },
    /// `begins`: nobody asked before, so that what is recorded of it has to be durable first.
    Child {
        id: EffectId,
        question: Box<Question>,
        begins: bool,
    },
}

/// What the network answered.
enum Reply {
    Sent { id: EffectId, attempt: u32, exchange: Exchange },
    LookedUp { id: EffectId, request: Value, result: ProbeResult },
    Child { id: EffectId, child: RunId, stands: Result<Stands, EngineError> },
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
    let mut waits = Waits::new();
    loop {
        let mut moves = Vec::new();
        let mut stop = None;
        let mut asked = false;
        for id in ids {
            if moves.len() == CONCURRENT_MAX {
                break;
            }
            if let Some(wait) = waits.get(id) {
                stop = Some(sooner(stop, wait.clone()));
                continue;
            }
            match plan(session, context, id, &mut asked)? {
                Planned::Answered => {}
                Planned::Move(planned) => moves.push(planned),
                Planned::Stop(found) => stop = Some(sooner(stop, found)),
            }
        }
        if asked {
            // Whoever is asked can see it at once, whatever else is under way.
            session.flush().await?;
        }
        if moves.is_empty() {
            return Ok(stop);
        }
        if moves.iter().any(Move::begins) {
            // I3: every REQUESTED entry of this round is durable before the first byte leaves.
            if !mutation::is("send-before-commit") {
                session.flush().await?;
            }
            session.boundaries.pass(Boundary::AfterRequestedCommit);
            // The rest of the round is done: what is on record may be under way already.
            moves.retain(|planned| !session.is_refused(planned.effect()));
        }
        perform(session, context, moves, &mut waits).await?;
    }
}

/// Effects whose runs were not over when the ledger was asked, and until when to wait for them.
type Waits = BTreeMap<EffectId, Stop>;

impl Move {
    /// Whether something leaves with it that must be on record.
    const fn begins(&self) -> bool {
        match self {
            Self::Send { .. } => true,
            Self::Child { begins, .. } => *begins,
            Self::Lookup { .. } => false,
        }
    }

    /// What it is about.
    const fn effect(&self) -> &EffectId {
        match self {
            Self::Send { id, .. } | Self::Child { id, .. } => id,
            Self::Lookup { effect } => &effect.id,
        }
    }
}

enum Planned {
    Answered,
    Move(Move),
    Stop(Stop),
}

/// Records what needs no network, until the next thing about an effect does. `asked` is set when a person is asked something.
fn plan(
    session: &mut StepSession,
    context: &StepContext,
    id: &EffectId,
    asked: &mut bool,
) -> Result<Planned, EngineError> {
    loop {
        let Some(effect) = session.effect(id) else { return Ok(Planned::Answered) };
        if session.is_refused(id) {
            return Ok(Planned::Stop(nothing_new(session)));
        }
        let Some(slot) = context.slot_of(effect) else {
            return Ok(Planned::Stop(Stop::Person {
                why: format!("effect {id} belongs to no slot of the pinned definition"),
            }));
        };
        let next = reconcile::next(effect, session.fence, session.now());
        if let (Next::Send { .. }, Some(lapsed)) = (&next, authorize::lapsed(session, effect)) {
            session.record(id, EffectEvent::Failed(lapsed))?;
            continue;
        }
        match next {
            Next::Answered => return Ok(Planned::Answered),
            Next::Wait { until, why } => return Ok(Planned::Stop(Stop::Wait { until, why })),
            Next::Person { mut why } => {
                if effect.state == State::Unknown
                    && slot.operation().is_some_and(|(_, operation)| operation.webhook.is_some())
                {
                    let tool = &effect.proposal.tool;
                    why.push_str(&format!(
                        "; or its provider's event tells: `twice webhooks accept {tool}`"
                    ));
                }
                return Ok(Planned::Stop(Stop::Person { why }));
            }
            Next::Authorize => match authorize::authorize(session, slot, id)? {
                Authorized::Decided => {}
                Authorized::Asked => *asked = true,
                Authorized::Waits(stop) => return Ok(Planned::Stop(stop)),
            },
            Next::MarkUnknown(reason) => {
                session.boundaries.pass(Boundary::BeforeUnknown);
                session.record(id, EffectEvent::Unknown(reason))?;
            }
            Next::GiveUp(failure) => session.record(id, EffectEvent::Failed(failure))?,
            Next::Lookup => {
                return Ok(Planned::Move(Move::Lookup { effect: Box::new(effect.clone()) }));
            }
            Next::AskLedger => return Ok(ask(session, effect, slot, false)),
            Next::Send { attempt } => match build(context, effect, slot, attempt, session.now()) {
                Built::Child(start) => {
                    let asked = ask(session, effect, slot, true);
                    session.record(id, EffectEvent::Requested(start))?;
                    return Ok(asked);
                }
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

/// Why a step does not ask for anything new.
pub(super) fn nothing_new(session: &StepSession) -> Stop {
    let why = "the run does not go on; nothing new is asked for".to_owned();
    Stop::Wait { until: session.now(), why }
}

/// The question how the run stands that an effect starts.
fn ask(session: &StepSession, effect: &Effect, slot: &CompiledSlot, begins: bool) -> Planned {
    match slot.child() {
        Some(workflow) => {
            let question = Box::new(Question::about(session, effect, workflow));
            Planned::Move(Move::Child { id: effect.id.clone(), question, begins })
        }
        None => Planned::Stop(Stop::Person {
            why: format!("effect {} starts a run, and its slot does not", effect.id),
        }),
    }
}

/// What came of building a request.
enum Built {
    Ready(Box<Prepared<AnyRequest>>),
    /// It is a run to start.
    Child(AttemptStart),
    Failed(Failure),
    Stop(Stop),
}

/// Builds the request; one that cannot be built fails the effect, unless an earlier one may have happened.
fn build(
    context: &StepContext,
    effect: &Effect,
    slot: &CompiledSlot,
    attempt: u32,
    now: Timestamp,
) -> Built {
    let call = match &slot.target {
        Target::Operation(tool, operation) => call(effect, tool, operation),
        Target::Child(workflow) => return Built::Child(child::start(effect, workflow, attempt)),
    };
    let prepared = match context.drivers().prepare(&call) {
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

const fn call<'a>(effect: &'a Effect, tool: &'a Tool, operation: &'a Operation) -> Call<'a> {
    Call {
        tool,
        operation,
        args: &effect.proposal.args,
        key: effect.proposal.provider_key.as_str(),
        effect: &effect.id,
        run: &effect.run,
    }
}

async fn perform(
    session: &mut StepSession,
    context: &StepContext,
    moves: Vec<Move>,
    waits: &mut Waits,
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
            Move::Child { id, question, .. } => async move {
                let child = question.child().clone();
                Reply::Child { id, child, stands: question.ask().await }
            }
            .boxed(),
        });
    }
    while let Some(reply) = replies.next().await {
        take_in(session, context, reply, waits).await?;
    }
    Ok(())
}

async fn look_up(context: &StepContext, effect: Box<Effect>) -> Reply {
    let operation = context.slot_of(&effect).and_then(CompiledSlot::operation);
    let (request, result) = match operation {
        Some((tool, operation)) => context.drivers().lookup(&call(&effect, tool, operation)).await,
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
    waits: &mut Waits,
) -> Result<(), EngineError> {
    match reply {
        Reply::Sent { id, attempt, exchange } => {
            session.boundaries.pass(Boundary::AfterReply);
            let Some(effect) = session.effect(&id) else { return Ok(()) };
            let Some(slot) = context.slot_of(effect) else { return Ok(()) };
            let Some((_, operation)) = slot.operation() else { return Ok(()) };
            let clean = effect.indeterminate_attempts().count() <= 1;
            let declared = &operation.declarations;
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
            let Some((_, operation)) = slot.operation() else { return Ok(()) };
            let expose = &operation.declarations.expose;
            let seen = outcome::observe_lookup(UNWRITTEN_LOOKUP, &result);
            let events = outcome::settle_probe(effect, result, request, expose, session.now());
            session.learn(&id, seen);
            for event in events {
                session.record(&id, event)?;
            }
        }
        Reply::Child { id, child, stands } => {
            let stands = stands?;
            session.boundaries.pass(Boundary::AfterReply);
            let Some(effect) = session.effect(&id) else { return Ok(()) };
            let now = session.now();
            match stands {
                Stands::Over(end) => {
                    session.awaits.child_is_over(&child);
                    let event = outcome::settle_child(effect, &child, end, now);
                    session.record(&id, event)?;
                }
                Stands::UnderWay { why } | Stands::NeedsPerson { why } => {
                    let until = now.plus_ms(reconcile::ask_again_ms(effect, now));
                    session.awaits.child(child);
                    waits.insert(id, Stop::Wait { until, why });
                }
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
        .filter(|effect| effect.state == State::Requested && !effect.contract().settled_here)
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
