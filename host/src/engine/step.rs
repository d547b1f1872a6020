//! One step: a component is called with the state, its requests are answered, and what it returned decides what becomes
//! of the run.

use std::any::Any;
use std::sync::Arc;

use serde_json::{Value, json};
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, Failure, RunEvent, StepFailure};
use twice_core::ids::{EffectId, Name};
use twice_core::json;
use twice_core::limits::PAYLOAD_BYTES_MAX;
use twice_core::time::Timestamp;
use twice_sandbox::{Ended, Sandbox};

use super::Performer;
use super::boundary::Boundary;
use super::circuit::Circuits;
use super::compiled::{Compiled, CompiledNode, CompiledSlot};
use super::drive::{self, Stop};
use super::error::EngineError;
use super::gateway::Gateway;
use super::observer::Progress;
use super::resolve::Receipts;
use super::session::Session;

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

    /// The tools.
    #[must_use]
    pub(super) fn drivers(&self) -> &Performer {
        self.drivers.as_ref()
    }

    /// The slot through which an effect of this step was requested.
    #[must_use]
    pub(super) fn slot_of(&self, effect: &Effect) -> Option<&CompiledSlot> {
        self.node().slots.get(&effect.proposal.slot).map(AsRef::as_ref)
    }
}

/// How a step ended.
#[derive(Debug)]
pub(super) enum StepEnd {
    /// It returned; the checkpoint is recorded (in memory).
    Completed,
    /// It waits.
    Stopped(Stop),
    /// It is started again later, because of this.
    Retry(Timestamp, String),
    /// It failed for good.
    Failed(String),
}

/// Runs one step.
///
/// # Errors
/// [`EngineError`] when the executor itself cannot go on.
pub(super) async fn run(
    mut session: Session,
    context: StepContext,
    sandbox: &Sandbox,
    fresh: bool,
) -> Result<(Session, StepEnd), EngineError> {
    let name = context.node().node.name.clone();
    let reached = session.progress.nodes.get(&name).cloned();
    let attempt = reached.as_ref().map_or(0, |progress| progress.failed_attempts) + 1;
    if fresh {
        session.forget_step();
    } else {
        session.load_step(&name, 1).await?;
    }
    let since = due_since(&session, context.node());
    let receipts = receipts(&session, context.node()).await?;
    session.observe(&Progress::StepStarted { node: &name, attempt });

    let input = json::canonical(&session.progress.state(&session.run.input));
    let component = context.node().component.clone();
    let limits = context.node().limits();
    let lease = Arc::clone(&session.lease);
    let gateway = Gateway::new(session, context.clone(), receipts, since, attempt);
    let called = tokio::select! {
        called = sandbox.run(&component, &input, limits, Box::new(gateway)) => called,
        // Another worker has the run: the call is cut off, and its session can write nothing any more.
        () = lease.lost() => return Err(EngineError::LeaseLost),
    };
    let (ended, host) = called;
    let host: Box<dyn Any> = host;
    let gateway = host.downcast::<Gateway>().expect("the sandbox hands back the host it was given");
    let Gateway { mut session, stop, asked, .. } = *gateway;
    let stop = stop.transpose()?;
    drive::abandon(&mut session)?;
    let end = match (ended, stop) {
        (Ended::Suspended, Some(stop)) => return Ok((session, StepEnd::Stopped(stop))),
        (Ended::Suspended, None) => failure("the call was suspended without a reason"),
        (Ended::Returned(text), _) => match json::parse(&text, PAYLOAD_BYTES_MAX) {
            Ok(output) => return returned(session, &context, attempt, output, &asked).await,
            Err(problem) => StepFailure::BadOutput {
                message: format!(
                    "node `{name}` returned something that is not strict JSON: {problem}"
                ),
            },
        },
        (Ended::Retryable(message), _) => StepFailure::Retryable { message },
        (Ended::Fatal(message), _) => StepFailure::Fatal { message },
        (Ended::Trapped { message }, _) => StepFailure::Trap { message },
        (Ended::Limit { limit, message }, _) => {
            StepFailure::Limit { limit: limit.to_owned(), message }
        }
    };
    failed(session, &context, attempt, end).await
}

fn failure(message: &str) -> StepFailure {
    StepFailure::Trap { message: message.to_owned() }
}

/// When the step became due: when the last of the nodes before it returned, or when the run started.
fn due_since(session: &Session, node: &CompiledNode) -> Timestamp {
    node.node
        .after
        .iter()
        .filter_map(|name| session.progress.nodes.get(name)?.finished_at)
        .max()
        .unwrap_or(session.run.created_at)
}

/// The results that the node's slots take their objects from: `/receipts/<node>/<slot>/…`.
async fn receipts(session: &Session, node: &CompiledNode) -> Result<Receipts, EngineError> {
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
        for effect in session.effects_of(&source, 1).await? {
            if let Some(receipt) = effect.receipt {
                let trusted =
                    json!({ "external_id": receipt.external_id, "result": receipt.result });
                receipts.insert((source.clone(), effect.proposal.slot), trusted);
            }
        }
    }
    Ok(receipts)
}

fn source_node(pointer: &str) -> Option<Name> {
    let rest = pointer.strip_prefix("/receipts/")?;
    Name::parse(rest.split('/').next()?).ok()
}

async fn returned(
    mut session: Session,
    context: &StepContext,
    attempt: u32,
    output: Value,
    asked: &[EffectId],
) -> Result<(Session, StepEnd), EngineError> {
    if let Some(stop) = settle_outstanding(&mut session, context, asked).await? {
        return Ok((session, StepEnd::Stopped(stop)));
    }
    let diverged: Vec<EffectId> = session
        .effects()
        .filter(|effect| effect.state == State::Confirmed && !asked.contains(&effect.id))
        .filter(|effect| !effect.is_renewed())
        .map(|effect| effect.id.clone())
        .collect();
    let node = context.node().node.name.clone();
    session.boundaries.pass(Boundary::BeforeCheckpoint);
    session.record_run(RunEvent::StepCompleted {
        node: node.clone(),
        visit: 1,
        element: None,
        attempt,
        output,
        diverged,
    });
    session.observe(&Progress::StepCompleted { node: &node });
    Ok((session, StepEnd::Completed))
}

/// No step ends with an effect unexplained: what may have happened is reconciled, what was never sent is called off.
async fn settle_outstanding(
    session: &mut Session,
    context: &StepContext,
    asked: &[EffectId],
) -> Result<Option<Stop>, EngineError> {
    let in_doubt: Vec<EffectId> = session
        .effects()
        .filter(|effect| matches!(effect.state, State::Requested | State::Unknown))
        .map(|effect| effect.id.clone())
        .collect();
    if let Some(stop) = drive::drive(session, context, &in_doubt).await? {
        return Ok(Some(stop));
    }
    let unsent: Vec<EffectId> = session
        .effects()
        .filter(|effect| matches!(effect.state, State::Proposed | State::Authorized))
        .map(|effect| effect.id.clone())
        .collect();
    for id in unsent {
        let message = if asked.contains(&id) {
            "the step ended before it was sent"
        } else {
            "an earlier attempt of the step asked for it, the last one did not; it was never sent"
        };
        session.record(
            &id,
            EffectEvent::Failed(Failure {
                code: "cancelled".to_owned(),
                message: message.to_owned(),
                denied: false,
                source: None,
                rule: None,
                verdict: None,
                detail: Value::Null,
            }),
        )?;
    }
    Ok(None)
}

async fn failed(
    mut session: Session,
    context: &StepContext,
    attempt: u32,
    cause: StepFailure,
) -> Result<(Session, StepEnd), EngineError> {
    let node = context.node();
    let name = &node.node.name;
    let message = describe(name, &cause);
    let retry = &node.node.retry;
    let final_attempt = matches!(cause, StepFailure::Fatal { .. }) || attempt >= retry.attempts;
    if final_attempt && let Some(stop) = settle_outstanding(&mut session, context, &[]).await? {
        return Ok((session, StepEnd::Stopped(stop)));
    }
    let retry_at = (!final_attempt).then(|| {
        let doubled = retry.initial_ms.saturating_mul(1 << (attempt - 1).min(32));
        session.now().plus_ms(doubled.min(retry.max_ms))
    });
    session.record_run(RunEvent::StepFailed {
        node: name.clone(),
        visit: 1,
        element: None,
        attempt,
        cause,
        retry_at,
    });
    session.observe(&Progress::StepFailed { node: name, message: &message, retry_at });
    let end = match retry_at {
        Some(at) => StepEnd::Retry(at, message),
        None => StepEnd::Failed(message),
    };
    Ok((session, end))
}

fn describe(node: &Name, cause: &StepFailure) -> String {
    match cause {
        StepFailure::Retryable { message } => {
            format!("node `{node}` asked for a later start: {message}")
        }
        StepFailure::Fatal { message } => format!("node `{node}` gave up: {message}"),
        StepFailure::Trap { message } => format!("node `{node}` trapped: {message}"),
        StepFailure::Limit { limit, message } => {
            format!("node `{node}` reached its {limit} limit: {message}")
        }
        StepFailure::BadOutput { message } | StepFailure::BadRequest { message } => message.clone(),
    }
}
