//! From what a guest asked for to an identified proposal: which effect this is, by trusted durable state alone (I2).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use twice_core::contract::Retry;
use twice_core::effect::Effect;
use twice_core::event::{Compensation, Proposal};
use twice_core::identity::{IDENTITY_ALG, Identity, KeyFormat, RequestHash, Scope, Selector};
use twice_core::ids::{EffectId, Name};
use twice_core::mutation;
use twice_core::progress::StepId;
use twice_sandbox::EffectRequest;
use twice_workflow::model::{Template, Uses};
use twice_workflow::{fill, source};

use super::compiled::CompiledSlot;
use super::step_session::StepSession;

/// Why a request never became an effect. The guest gets it as a denial, the ledger as an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The rule that refuses.
    pub(super) policy: &'static str,
    /// In words, with the fix.
    pub(super) message: String,
}

/// The confirmed effects of other steps that this step's slots take their objects from, as `{ external_id, result }`.
pub(super) type Receipts = BTreeMap<(Name, Name), Value>;

/// Counts the requests of each slot in this call.
#[derive(Debug, Default)]
pub(super) struct Counters(BTreeMap<Name, u32>);

/// The proposal that a request amounts to, in its first generation.
///
/// # Errors
/// [`Refusal`] when the request breaks a rule of its slot.
pub(super) fn propose(
    session: &StepSession,
    slot: &CompiledSlot,
    request: &EffectRequest,
    receipts: &Receipts,
    counters: &mut Counters,
) -> Result<Proposal, Refusal> {
    let args =
        twice_core::json::parse(&request.args, twice_core::limits::PAYLOAD_BYTES_MAX).map_err(
            |p| Refusal { policy: "args", message: format!("the args are not strict JSON: {p}") },
        )?;
    if let Some(problem) = slot.args_problem(&args) {
        return Err(Refusal {
            policy: "args",
            message: format!(
                "the args do not fit `{}.{}`: {problem}",
                slot.slot.tool, slot.slot.operation
            ),
        });
    }
    let selector = select(slot, request, counters)?;
    let object = object(session, slot, request.item, receipts)?;
    let scope = if slot.slot.shared {
        Scope::Object { tool: slot.slot.tool.clone(), operation: slot.slot.operation.clone() }
    } else {
        Scope::Run {
            run: session.id().clone(),
            node: session.step.node.clone(),
            visit: session.step.visit,
            element: session.step.element.clone(),
            slot: slot.slot.name.clone(),
        }
    };
    let identity = Identity {
        alg: IDENTITY_ALG,
        scope,
        object,
        intent: slot.slot.intent.clone(),
        selector,
        generation: 1,
    };
    let compensation = freeze(session, slot, &identity, &args)?;
    let object = identity.object.as_deref();
    let approval = slot.approval(&args, object, || session.state()).map(Box::new);
    Ok(Proposal { compensation, approval, ..with_identity(identity, &session.step, slot, args) })
}

/// How the effect will be undone, decided before anything of it is sent: what is asked for now cannot be asked for if it could
/// not be taken back as the workflow says.
fn freeze(
    session: &StepSession,
    slot: &CompiledSlot,
    identity: &Identity,
    args: &Value,
) -> Result<Option<Box<Compensation>>, Refusal> {
    let (Some(declared), Some(undo)) = (&slot.slot.compensate, &slot.undo) else { return Ok(None) };
    let mut known = json!({ "args": args, "input": session.run.input });
    if let Some(element) = &session.element {
        known["element"] = element.clone();
    }
    let frozen = fill::freeze(&declared.args, &known).map_err(|problem| Refusal {
        policy: "compensate",
        message: format!(
            "the effect could not be undone as the workflow says: in the args of `{}`, {problem}",
            undo.operation_name()
        ),
    })?;
    let key = identity.compensation(&declared.tool, &declared.operation, 1).key();
    Ok(Some(Box::new(Compensation {
        tool: declared.tool.clone(),
        tool_version: undo.version(),
        operation: declared.operation.clone(),
        args: serde_json::to_value(&frozen).expect("a template is plain data with text keys"),
        on_unknown: declared.on_unknown,
        idempotency_key: key,
        retry: Retry {
            attempts: declared.retry.attempts,
            initial_ms: declared.retry.initial_ms,
            max_ms: declared.retry.max_ms,
        },
    })))
}

/// The proposal that undoes an effect, for the so-many-th time.
///
/// # Errors
/// In words, when it cannot be made of what is recorded; nothing about that changes by waiting.
pub(super) fn propose_undo(
    effect: &Effect,
    compensation: &Compensation,
    undo: &CompiledSlot,
    attempt: u32,
    state: impl FnOnce() -> Value,
) -> Result<Proposal, String> {
    let frozen: Template = serde_json::from_value(compensation.args.clone())
        .map_err(|problem| format!("its frozen args cannot be read: {problem}"))?;
    let receipt = effect.receipt.as_ref().map_or(
        Value::Null,
        |receipt| json!({ "external_id": receipt.external_id, "result": receipt.result }),
    );
    let args = fill::fill(&frozen, &receipt).map_err(|problem| {
        format!("the args of `{}` cannot be made: {problem}", undo.operation_name())
    })?;
    if let Some(problem) = undo.args_problem(&args) {
        return Err(format!("the args do not fit `{}`: {problem}", undo.operation_name()));
    }
    let identity = &effect.proposal.identity;
    let identity = identity.compensation(&compensation.tool, &compensation.operation, attempt);
    let undoes = Some(effect.id.clone());
    let approval = undo.approval(&args, identity.object.as_deref(), state).map(Box::new);
    let mut proposal = with_identity(identity, &effect.proposal.step(), undo, args);
    if mutation::is("undo-under-its-key") {
        proposal.provider_key.clone_from(&effect.proposal.provider_key);
    }
    Ok(Proposal { undoes, approval, ..proposal })
}

fn with_identity(identity: Identity, step: &StepId, slot: &CompiledSlot, args: Value) -> Proposal {
    let operation = slot.operation().map(|(_, operation)| operation);
    let carrier = operation.and_then(|operation| operation.key_carrier.as_ref());
    let format = carrier.map_or(KeyFormat::Uuid, |key| key.format);
    let incidental = operation.map_or(&[][..], |operation| &operation.incidental);
    let version = slot.version();
    Proposal {
        node: step.node.clone(),
        visit: step.visit,
        element: step.element.clone(),
        slot: slot.slot.name.clone(),
        tool: slot.slot.tool.clone(),
        operation: slot.slot.operation.clone(),
        request_hash: RequestHash::of(
            &slot.slot.tool,
            &version,
            &slot.slot.operation,
            &args,
            incidental,
        ),
        tool_version: version,
        args,
        idempotency_key: identity.key(),
        provider_key: identity.provider_key(format),
        contract: slot.contract().clone(),
        compensation: None,
        undoes: None,
        approval: None,
        approves: None,
        identity,
    }
}

/// The same request as the next generation: a new logical action, which only a person can order.
#[must_use]
pub(super) fn next_generation(proposal: &Proposal, slot: &CompiledSlot) -> Proposal {
    let mut identity = proposal.identity.clone();
    identity.generation += 1;
    let compensation = proposal.compensation.clone().map(|mut compensation| {
        let Compensation { tool, operation, .. } = &*compensation;
        compensation.idempotency_key = identity.compensation(tool, operation, 1).key();
        compensation
    });
    let next = with_identity(identity, &proposal.step(), slot, proposal.args.clone());
    Proposal { compensation, approval: proposal.approval.clone(), ..next }
}

/// The id of a proposal.
#[must_use]
pub(super) fn effect_id(proposal: &Proposal) -> EffectId {
    proposal.identity.effect_id()
}

fn select(
    slot: &CompiledSlot,
    request: &EffectRequest,
    counters: &mut Counters,
) -> Result<Selector, Refusal> {
    let name = &slot.slot.name;
    match (&slot.slot.uses, request.item) {
        (Uses::Once, None) => Ok(Selector::Once),
        (Uses::Repeat(limit), None) => {
            let made = counters.0.entry(name.clone()).or_insert(0);
            if *made >= *limit {
                return Err(Refusal {
                    policy: "repeat",
                    message: format!(
                        "slot `{name}` may be requested {limit} times in one step (`repeat = {limit}`), and was"
                    ),
                });
            }
            *made += 1;
            Ok(Selector::Ordinal(*made - 1))
        }
        (Uses::ForEach(_), Some(item)) => Ok(Selector::Item(item)),
        (Uses::ForEach(pointer), None) => Err(Refusal {
            policy: "item",
            message: format!(
                "slot `{name}` is bound to the array `{pointer}`; say which element with `item`"
            ),
        }),
        (Uses::Once | Uses::Repeat(_), Some(_)) => Err(Refusal {
            policy: "item",
            message: format!(
                "slot `{name}` is not bound to an array; leave `item` out, or bind it with `for_each` in the workflow"
            ),
        }),
    }
}

/// The business object, by the workflow's pointer into trusted durable state.
fn object(
    session: &StepSession,
    slot: &CompiledSlot,
    item: Option<u32>,
    receipts: &Receipts,
) -> Result<Option<String>, Refusal> {
    let find = |node: &Name, name: &Name| receipts.get(&(node.clone(), name.clone())).cloned();
    let trusted = source::Trusted {
        input: &session.run.input,
        element: session.element.as_ref(),
        receipts: &find,
    };
    source::object_of(&slot.slot, item, trusted)
        .map_err(|problem| Refusal { policy: "object", message: problem.to_string() })
}
