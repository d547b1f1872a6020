//! One step: a component is called with the state, its requests are answered, and what it returned decides what becomes
//! of the step.

use std::any::Any;
use std::sync::Arc;

use std::time::Duration;

use serde_json::Value;
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, Failure, RunEvent, StepFailure};
use twice_core::ids::{EffectId, Name};
use twice_core::json;
use twice_core::limits::PAYLOAD_BYTES_MAX;
use twice_core::progress::StepId;
use twice_core::time::Timestamp;
use twice_sandbox::{Ended, Sandbox};
use twice_workflow::plan;
use twice_workflow::units::duration_text;

use super::Performer;
use super::authorize;
use super::boundary::Boundary;
use super::child;
use super::circuit::Circuits;
use super::compiled::{Compiled, CompiledNode, CompiledSlot};
use super::drive;
use super::error::EngineError;
use super::gateway::Gateway;
use super::object_lock::Obstacle;
use super::observer::Progress;
use super::resolve::Receipts;
use super::session::Session;
use super::step_session::StepSession;
use super::stop::Stop;

/// What a step needs besides its session.
#[derive(Clone)]
pub(super) struct StepContext {
    compiled: Arc<Compiled>,
    node: usize,
    drivers: Arc<Performer>,
    circuits: Arc<Circuits>,
}

impl StepContext {
    /// The context of the node at that place in the definition.
    #[must_use]
    pub(super) const fn new(
        compiled: Arc<Compiled>,
        node: usize,
        drivers: Arc<Performer>,
        circuits: Arc<Circuits>,
    ) -> Self {
        Self { compiled, node, drivers, circuits }
    }

    /// The circuits of the tools' operations.
    pub(super) fn circuits(&self) -> &Circuits {
        &self.circuits
    }

    /// The node.
    #[must_use]
    pub(super) fn node(&self) -> &CompiledNode {
        &self.compiled.nodes[self.node]
    }

    /// The session of a step of this node.
    pub(super) fn session(
        &self,
        session: Arc<Session>,
        step: StepId,
        element: Option<Value>,
    ) -> StepSession {
        StepSession::new(session, Arc::clone(&self.compiled), self.node, step, element)
    }

    /// The tools.
    #[must_use]
    pub(super) fn drivers(&self) -> &Performer {
        self.drivers.as_ref()
    }

    /// The slot through which an effect of this step was requested.
    #[must_use]
    pub(super) fn slot_of(&self, effect: &Effect) -> Option<&CompiledSlot> {
        let slot = self.node().slots.get(&effect.proposal.slot)?;
        match &effect.proposal.undoes {
            None => Some(slot.as_ref()),
            Some(_) => slot.undo.as_deref(),
        }
    }
}

/// A step that is to run.
pub(super) struct Start {
    /// Which.
    pub(super) id: StepId,
    /// The element that it is about, in a fan-out.
    pub(super) element: Option<Value>,
    /// Whether nobody started it before, so that it has no effects yet.
    pub(super) fresh: bool,
    /// When it is too late, once its first start is on record.
    pub(super) deadline: Option<Timestamp>,
}

/// How a step ended.
#[derive(Debug)]
pub(super) enum StepEnd {
    /// It returned; that is recorded (in memory).
    Completed,
    /// It waits.
    Stopped(Stop),
    /// It is started again later, because of this.
    Retry(Timestamp, String),
    /// It failed for good; that is recorded.
    Failed,
}

/// Runs one step.
///
/// # Errors
/// [`EngineError`] when the executor itself cannot go on.
pub(super) async fn run(
    session: Arc<Session>,
    context: StepContext,
    sandbox: Arc<Sandbox>,
    start: Start,
) -> Result<StepEnd, EngineError> {
    let Start { id, element, fresh, deadline } = start;
    let mut session = context.session(session, id, element);
    if !fresh {
        load(&mut session).await?;
    }
    let attempt = next_attempt(&session);
    let since = session.due_since();
    let receipts = receipts(&session, context.node()).await?;
    session.observe(&Progress::StepStarted { step: &session.step, attempt });

    let input = json::canonical(&session.state());
    let component = context.node().component.clone();
    let mut limits = context.node().limits();
    let timeout_ms = context.node().node.timeout_ms;
    let deadline = deadline.or_else(|| Some(session.now().plus_ms(timeout_ms?)));
    if let Some(deadline) = deadline {
        let left = Duration::from_millis(deadline.ms_since(session.now()));
        limits.time = limits.time.min(left);
    }
    let gateway = Gateway::new(session, context.clone(), receipts, since, attempt);
    let (ended, host) = sandbox.run(&component, &input, limits, Box::new(gateway)).await;
    let host: Box<dyn Any> = host;
    let gateway = host.downcast::<Gateway>().expect("the sandbox hands back the host it was given");
    let Gateway { mut session, stop, asked, .. } = *gateway;
    let stop = stop.transpose()?;
    drive::abandon(&mut session)?;
    let name = &session.step.node;
    let cause = match (ended, stop) {
        (Ended::Suspended, Some(Obstacle::Stop(stop))) => return Ok(StepEnd::Stopped(stop)),
        (Ended::Suspended, Some(Obstacle::Deadlock(message))) => StepFailure::Deadlock { message },
        (Ended::Suspended, None) => {
            StepFailure::Trap { message: "the call was suspended without a reason".to_owned() }
        }
        (Ended::Returned(text), _) => match output(&context, &text) {
            Ok(output) => return returned(session, &context, attempt, output, &asked).await,
            Err(message) => StepFailure::BadOutput { message },
        },
        (Ended::Retryable(message), _) => StepFailure::Retryable { message },
        (Ended::Fatal(message), _) => StepFailure::Fatal { message },
        (Ended::Trapped { message }, _) => StepFailure::Trap { message },
        (Ended::Limit { .. }, _) if is_over(deadline, session.now()) => too_late(timeout_ms, name),
        (Ended::Limit { limit, message }, _) => {
            StepFailure::Limit { limit: limit.to_owned(), message }
        }
    };
    failed(session, &context, attempt, cause, deadline).await
}

/// Settles what a step asked for that does not run any more, as the run does not go on. Why not, if some of it cannot be now.
///
/// # Errors
/// As [`run`].
pub(super) async fn settle(
    session: Arc<Session>,
    context: StepContext,
    id: StepId,
) -> Result<Option<Stop>, EngineError> {
    let mut session = context.session(session, id, None);
    load(&mut session).await?;
    let unsent = |_: &EffectId| "the run did not go on before it was sent";
    settle_outstanding(&mut session, &context, unsent).await
}

/// Finds out what became of what a step asked for, as far as that is not known.
///
/// # Errors
/// As [`run`].
pub(super) async fn reconcile(
    session: Arc<Session>,
    context: StepContext,
    id: StepId,
) -> Result<Option<Stop>, EngineError> {
    let mut session = context.session(session, id, None);
    load(&mut session).await?;
    let in_doubt = in_doubt(&session);
    drive::drive(&mut session, &context, &in_doubt).await
}

/// Fails a step whose time is over, once everything that it asked for is settled.
///
/// # Errors
/// As [`run`].
pub(super) async fn expire(
    session: Arc<Session>,
    context: StepContext,
    id: StepId,
) -> Result<StepEnd, EngineError> {
    let mut session = context.session(session, id, None);
    load(&mut session).await?;
    let attempt = next_attempt(&session);
    let cause = too_late(context.node().node.timeout_ms, &session.step.node);
    let over = Some(session.now());
    failed(session, &context, attempt, cause, over).await
}

/// Reads the effects of a step that may have been started before. A request of this very lease that nobody waits for any more
/// was left by a call that was cut off.
pub(super) async fn load(session: &mut StepSession) -> Result<(), EngineError> {
    session.load().await?;
    drive::abandon(session)
}

fn next_attempt(session: &StepSession) -> u32 {
    let failed =
        session.progress(|progress| progress.step(&session.step).map(|step| step.failed_attempts));
    failed.unwrap_or(0) + 1
}

fn is_over(deadline: Option<Timestamp>, now: Timestamp) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}

fn too_late(timeout_ms: Option<u64>, node: &Name) -> StepFailure {
    let limit = timeout_ms.map_or_else(|| "its limit".to_owned(), duration_text);
    StepFailure::Limit {
        limit: "timeout".to_owned(),
        message: format!(
            "a visit may take {limit} from its first start, waiting included; raise `timeout` of `{node}`, or find out what it waited for"
        ),
    }
}

/// What a node returned, if it can be taken.
fn output(context: &StepContext, text: &str) -> Result<Value, String> {
    let node = &context.node().node;
    let output = json::parse(text, PAYLOAD_BYTES_MAX).map_err(|problem| {
        format!("node `{}` returned something that is not strict JSON: {problem}", node.name)
    })?;
    plan::route(node, &output)?;
    Ok(output)
}

/// The results that the node's slots take their objects from: `/receipts/<node>/<slot>/…`.
async fn receipts(session: &StepSession, node: &CompiledNode) -> Result<Receipts, EngineError> {
    let mut receipts = Receipts::new();
    let mut sources: Vec<Name> = Vec::new();
    for slot in node.slots.values() {
        let pointers = [slot.slot.object.as_deref(), slot.slot.array()];
        for source in pointers.into_iter().flatten().filter_map(source_node) {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
    }
    for source in sources {
        let visit = session.progress(|progress| progress.visit(&source));
        for (slot, receipt) in &*session.receipts_of(&source, visit).await? {
            receipts.insert((source.clone(), slot.clone()), receipt.clone());
        }
    }
    Ok(receipts)
}

/// The node whose receipts a pointer leads into.
pub(super) fn source_node(pointer: &str) -> Option<Name> {
    let rest = pointer.strip_prefix("/receipts/")?;
    Name::parse(rest.split('/').next()?).ok()
}

async fn returned(
    mut session: StepSession,
    context: &StepContext,
    attempt: u32,
    output: Value,
    asked: &[EffectId],
) -> Result<StepEnd, EngineError> {
    let unsent = |id: &EffectId| {
        if asked.contains(id) {
            "the step ended before it was sent"
        } else {
            "an earlier attempt of the step asked for it, the last one did not; it was never sent"
        }
    };
    if let Some(stop) = settle_outstanding(&mut session, context, unsent).await? {
        return Ok(StepEnd::Stopped(stop));
    }
    let diverged: Vec<EffectId> = session
        .effects()
        .filter(|effect| effect.state == State::Confirmed && !asked.contains(&effect.id))
        .filter(|effect| !effect.is_renewed())
        .map(|effect| effect.id.clone())
        .collect();
    session.boundaries.pass(Boundary::BeforeCheckpoint);
    let StepId { node, visit, element } = session.step.clone();
    session.record_run(RunEvent::StepCompleted { node, visit, element, attempt, output, diverged });
    session.observe(&Progress::StepCompleted { step: &session.step });
    Ok(StepEnd::Completed)
}

/// No step ends with an effect unexplained: what may have happened is reconciled, what was never sent is called off.
async fn settle_outstanding(
    session: &mut StepSession,
    context: &StepContext,
    unsent: impl Fn(&EffectId) -> &'static str,
) -> Result<Option<Stop>, EngineError> {
    let in_doubt = in_doubt(session);
    for id in &in_doubt {
        let settled_here = |effect: &&Effect| effect.contract().settled_here;
        if let Some(child) = session.effect(id).filter(settled_here).map(child::run_of) {
            child::stop_child(session, &child, session.now()).await?;
        }
    }
    if let Some(stop) = drive::drive(session, context, &in_doubt).await? {
        return Ok(Some(stop));
    }
    let never_sent: Vec<EffectId> = session
        .effects()
        .filter(|effect| matches!(effect.state, State::Proposed | State::Authorized))
        .map(|effect| effect.id.clone())
        .collect();
    for id in never_sent {
        let message = unsent(&id).to_owned();
        session.record(
            &id,
            EffectEvent::Failed(Failure {
                code: "cancelled".to_owned(),
                message,
                denied: false,
                source: None,
                rule: None,
                verdict: None,
                detail: Value::Null,
            }),
        )?;
    }
    session.hear_answers().await?;
    authorize::void_approvals(session)?;
    Ok(None)
}

/// The failure of a step that could be tried again, had it the time.
fn no_time_left(mut cause: StepFailure, timeout_ms: Option<u64>) -> StepFailure {
    let limit = timeout_ms.map_or_else(String::new, |ms| format!(" of {}", duration_text(ms)));
    match &mut cause {
        StepFailure::Retryable { message }
        | StepFailure::Fatal { message }
        | StepFailure::Trap { message }
        | StepFailure::Limit { message, .. }
        | StepFailure::Deadlock { message }
        | StepFailure::BadOutput { message }
        | StepFailure::BadRequest { message } => message.push_str(&format!(
            "; it is not tried again, as its `timeout`{limit} would be over by then"
        )),
    }
    cause
}

/// What may have happened, and is not known to have.
fn in_doubt(session: &StepSession) -> Vec<EffectId> {
    let effects = session.effects();
    let open = effects.filter(|effect| matches!(effect.state, State::Requested | State::Unknown));
    open.map(|effect| effect.id.clone()).collect()
}

async fn failed(
    mut session: StepSession,
    context: &StepContext,
    attempt: u32,
    cause: StepFailure,
    deadline: Option<Timestamp>,
) -> Result<StepEnd, EngineError> {
    let retry = &context.node().node.retry;
    let doubled = retry.initial_ms.saturating_mul(1 << (attempt - 1).min(32));
    let next = session.now().plus_ms(doubled.min(retry.max_ms));
    let is_final = matches!(cause, StepFailure::Fatal { .. } | StepFailure::Deadlock { .. })
        || attempt >= retry.attempts;
    let (is_final, cause) = match context.node().node.timeout_ms {
        _ if is_final || !is_over(deadline, next) => (is_final, cause),
        limit => (true, no_time_left(cause, limit)),
    };
    let message = cause.describe(&session.step.node);
    let unsent = |_: &EffectId| "the step failed before it was sent";
    if is_final && let Some(stop) = settle_outstanding(&mut session, context, unsent).await? {
        return Ok(StepEnd::Stopped(stop));
    }
    let retry_at = (!is_final).then_some(next);
    let StepId { node, visit, element } = session.step.clone();
    session.record_run(RunEvent::StepFailed { node, visit, element, attempt, cause, retry_at });
    let step = &session.step;
    session.observe(&Progress::StepFailed { step, message: &message, retry_at });
    Ok(retry_at.map_or(StepEnd::Failed, |at| StepEnd::Retry(at, message)))
}
