//! Effects and entries to test with. Everything is made through the crate's own functions.

use serde_json::{Value, json};
use twice_core::contract::{
    Consistency, Contract, KeyContract, LookupBy, LookupContract, Replay, RetentionBasis, Retry,
};
use twice_core::effect::Effect;
use twice_core::event::{
    AttemptStart, Authorization, Deferral, EffectEvent, Failure, Observation, Probe, ProbeResult,
    Proposal, Receipt, Source, UnknownReason,
};
use twice_core::identity::{IDENTITY_ALG, Identity, KeyFormat, RequestHash, Scope, Selector};
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::outcome::{RuleId, Verdict};
use twice_core::time::Timestamp;

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const HOUR: u64 = 3_600 * SECOND;
pub(crate) const DAY: u64 = 24 * HOUR;
/// When the first attempt of [`requested`] starts.
pub(crate) const START: Timestamp = Timestamp(1_750_000_000_000);
pub(crate) const FENCE: Fence = Fence(3);

pub(crate) fn run() -> RunId {
    RunId::parse("run-781").expect("a run id")
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

pub(crate) fn identity() -> Identity {
    Identity {
        alg: IDENTITY_ALG,
        scope: Scope::Run {
            run: run(),
            node: name("refund"),
            visit: 1,
            element: None,
            slot: name("refund"),
        },
        object: Some("order-42".to_owned()),
        intent: "full-damaged-item".to_owned(),
        selector: Selector::Once,
        generation: 1,
    }
}

pub(crate) fn key() -> KeyContract {
    KeyContract {
        retention_ms: DAY,
        basis: RetentionBasis::FirstSend,
        replay: Replay::CurrentState,
    }
}

pub(crate) fn lookup() -> LookupContract {
    LookupContract { by: LookupBy::Reference, consistency: Consistency::Strong }
}

/// A contract with a settle window of a minute, a timeout of ten seconds and a horizon of three days.
pub(crate) fn contract(key: Option<KeyContract>, lookup: Option<LookupContract>) -> Contract {
    Contract {
        read: false,
        key,
        lookup,
        settle_ms: 60 * SECOND,
        timeout_ms: 10 * SECOND,
        retry: Retry { attempts: 3, initial_ms: SECOND, max_ms: 60 * SECOND },
        horizon_ms: 3 * DAY,
        settled_here: false,
    }
}

pub(crate) fn read() -> Contract {
    Contract { read: true, settle_ms: 0, ..contract(None, None) }
}

pub(crate) fn args() -> Value {
    json!({ "order_id": "order-42", "amount_cents": 8200, "reason": "arrived broken" })
}

pub(crate) fn proposal(contract: Contract) -> Proposal {
    let identity = identity();
    let (tool, operation) = (name("payments"), name("refund"));
    let args = args();
    Proposal {
        node: name("refund"),
        visit: 1,
        element: None,
        slot: name("refund"),
        request_hash: RequestHash::of(&tool, "1", &operation, &args, &["/reason".to_owned()]),
        tool,
        tool_version: "1".to_owned(),
        operation,
        args,
        idempotency_key: identity.key(),
        provider_key: identity.provider_key(KeyFormat::Uuid),
        contract,
        identity,
        compensation: None,
        undoes: None,
        approval: None,
        approves: None,
    }
}

pub(crate) fn proposed(contract: Contract) -> Effect {
    let event = EffectEvent::Proposed(proposal(contract));
    Effect::begin(identity().effect_id(), run(), &event, START).expect("a proposal comes first")
}

/// An effect whose first attempt starts at [`START`] under [`FENCE`].
pub(crate) fn requested(contract: Contract) -> Effect {
    let mut effect = proposed(contract);
    apply(&mut effect, &authorized(), START);
    apply(&mut effect, &start(1), START);
    effect
}

#[track_caller]
pub(crate) fn apply(effect: &mut Effect, event: &EffectEvent, at: Timestamp) {
    effect.apply(event, FENCE, at).expect("a legal move");
}

pub(crate) fn effect_id() -> EffectId {
    identity().effect_id()
}

pub(crate) fn request_hash() -> RequestHash {
    proposal(contract(None, None)).request_hash
}

pub(crate) fn authorized() -> EffectEvent {
    EffectEvent::Authorized(Authorization {
        policy: "granted".to_owned(),
        request_hash: request_hash(),
        approval: None,
    })
}

pub(crate) fn start(attempt: u32) -> EffectEvent {
    EffectEvent::Requested(AttemptStart {
        attempt,
        request: json!({ "method": "POST", "url": "https://psp.example/refunds" }),
        body_hash: "sha256:00".to_owned(),
    })
}

pub(crate) fn unknown() -> UnknownReason {
    UnknownReason {
        verdict: Verdict::Indeterminate,
        rule: RuleId::new("transport.timeout"),
        message: "no answer in time".to_owned(),
        external_id: None,
        answered: false,
        quarantined: false,
        breach: false,
        not_before: None,
        detail: Value::Null,
    }
}

pub(crate) fn deferred() -> EffectEvent {
    EffectEvent::Deferred(Deferral {
        verdict: Verdict::NotSent,
        rule: RuleId::new("transport.dns"),
        message: "the host name did not resolve".to_owned(),
        not_before: None,
    })
}

pub(crate) fn probed(result: ProbeResult) -> EffectEvent {
    EffectEvent::Probed(Probe { result, request: json!({ "method": "GET" }), not_before: None })
}

pub(crate) fn failed() -> EffectEvent {
    EffectEvent::Failed(Failure {
        code: "http_402".to_owned(),
        message: "declined".to_owned(),
        denied: false,
        source: Some(Source::Reply { attempt: 1 }),
        rule: Some(RuleId::new("http.402")),
        verdict: Some(Verdict::Rejected),
        detail: Value::Null,
    })
}

pub(crate) fn receipt() -> Receipt {
    Receipt {
        schema: 1,
        request_hash: request_hash(),
        idempotency_key: identity().key(),
        external_id: Some("re_1".to_owned()),
        result: json!({ "id": "re_1", "amount": 8200 }),
        result_hash: None,
        truncated: false,
        exposed: json!({ "id": "re_1" }),
        source: Source::Reply { attempt: 1 },
        rule: RuleId::new("http.200"),
        verdict: Some(Verdict::Succeeded),
        discrepancy: None,
        tool: name("payments"),
        tool_version: "1".to_owned(),
        operation: name("refund"),
        policy: "granted".to_owned(),
        approval: None,
        attempts: 1,
        requested_at: START,
        confirmed_at: START.plus_ms(200),
    }
}

/// Something that arrived about an effect, and was not applied.
pub(crate) fn seen(verdict: Verdict) -> Observation {
    Observation {
        what: "late answer".to_owned(),
        attempt: None,
        verdict: Some(verdict),
        rule: None,
        message: None,
        status: None,
        external_id: None,
        breach: false,
        detail: Value::Null,
    }
}
