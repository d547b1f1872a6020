//! The provider as the executor reaches it: the executor's own `Driver` trait.

use async_trait::async_trait;
use serde_json::{Value, json};
use twice::tool::gate::{Gate as SendGate, Shut};
use twice::tool::{AnyRequest, Call, Driver, PrepareError, Prepared};
use twice_core::effect::Effect;
use twice_core::event::ProbeResult;
use twice_core::identity::tagged_sha256;
use twice_core::ids::{EffectId, Fence, RunId};
use twice_core::json::canonical;
use twice_core::outcome::{self, Exchange, FaultKind, Sent};
use twice_core::time::{Clock as _, Timestamp};

use super::super::seat::{Gate, Seat, current};
use super::super::{Stage, Turntable, lock};
use super::{LookupTrouble, Object, State, dropped, fault};
use crate::host::LEASE_MS;

/// A request as it arrives.
pub(super) struct Request {
    pub(super) effect: String,
    /// Whether it reverses a refund.
    pub(super) reverses: bool,
    /// Whose request it is: it is sent by a task that is not the worker's own.
    run: RunId,
    fence: Fence,
    pub(super) key: Option<String>,
    pub(super) args: Value,
    pub(super) timeout_ms: u64,
    pub(super) settle_ms: u64,
    pub(super) retention_ms: u64,
}

impl Request {
    fn read(request: AnyRequest) -> Self {
        let AnyRequest::InProcess(value) = request else {
            panic!("this provider made the request")
        };
        let number = |name: &str| value[name].as_u64().expect("it is a number");
        Self {
            effect: value["effect"].as_str().expect("it is a text").to_owned(),
            reverses: value["args"]["refund_id"].is_string(),
            run: serde_json::from_value(value["run"].clone()).expect("it is a run's id"),
            fence: serde_json::from_value(value["fence"].clone()).expect("it is a token"),
            key: value["key"].as_str().map(str::to_owned),
            args: value["args"].clone(),
            timeout_ms: number("timeout_ms"),
            settle_ms: number("settle_ms"),
            retention_ms: number("retention_ms"),
        }
    }
}

/// The number of the latest attempt.
fn number_of(effect: &Effect) -> u32 {
    effect.attempts.last().map_or(0, |attempt| attempt.number)
}

impl Stage {
    /// I3: the request's REQUESTED entry is durable under the worker's own token, and the worker knows it.
    async fn check_recorded(&self, effect: &EffectId, seat: &Seat) {
        let fence = seat.lease().map(|lease| lease.fence);
        let known = self.ledger.effect(effect).await.expect("the ledger can be read");
        let recorded = known.as_ref().is_some_and(|known| {
            known.attempts.last().is_some_and(|a| Some(a.fence) == fence && a.verdict.is_none())
        });
        if !recorded {
            self.breaks("I3", format!("{effect} was sent before that was durable"));
        }
        if !known.is_some_and(|known| seat.knows(effect, number_of(&known))) {
            let what =
                format!("{effect} was sent by a worker that does not know that it is durable");
            self.breaks("I3", what);
        }
    }

    /// Time that passes while a worker waits for the network, with its lease kept alive meanwhile.
    async fn wait(&self, ms: u64, seat: &Seat) {
        self.clock.advance(ms);
        let Some(lease) = seat.lease() else { return };
        if self.ledger.renew(&lease.run, lease.fence, LEASE_MS).await.is_ok() {
            seat.renewed(self.clock.now());
        }
    }
}

#[async_trait]
impl Driver for Turntable {
    type Request = AnyRequest;

    fn prepare(&self, call: &Call<'_>) -> Result<Prepared<AnyRequest>, PrepareError> {
        let contract = &call.operation.contract;
        let key = contract.key.as_ref().map(|_| call.key);
        let lease = current().and_then(|seat| seat.lease());
        let Some(lease) = lease else { panic!("a worker that prepares a request has a lease") };
        let request = json!({
            "effect": call.effect,
            "run": lease.run,
            "fence": lease.fence,
            "key": key,
            "args": call.args,
            "timeout_ms": contract.timeout_ms,
            "settle_ms": contract.settle_ms,
            "retention_ms": contract.key.as_ref().map_or(0, |key| key.retention_ms),
        });
        let hash = tagged_sha256("test/body", canonical(call.args).as_bytes());
        let body_hash =
            format!("sha256:{}", hash.iter().map(|b| format!("{b:02x}")).collect::<String>());
        let stored = json!({ "method": "POST", "body": call.args });
        Ok(Prepared { stored, body_hash, request: AnyRequest::InProcess(request) })
    }

    async fn send(&self, request: AnyRequest, gate: SendGate) -> Exchange {
        let stage = self.stage();
        let request = Request::read(request);
        let seat = stage.seats.of(&request.run, request.fence).expect("a worker sends");
        let effect = EffectId::parse(request.effect.clone()).expect("it is an effect's id");
        stage.check_recorded(&effect, &seat).await;
        let Some(taken) = seat.lease() else { panic!("a worker that sends has a lease") };
        seat.gate(Gate::BeforeWitness).await;
        if stage.clock.now() >= taken.since.plus_ms(LEASE_MS - LEASE_MS / 5) {
            return fault(Sent::Nothing, FaultKind::LeaseTooShort);
        }
        if gate.shut() == Some(Shut::Abandoned) {
            return fault(Sent::Nothing, FaultKind::Abandoned);
        }
        seat.gate(Gate::BeforeSocket).await;
        // The time limit of the request goes on while its sender is frozen: it lets nothing out long after the lease.
        if stage.clock.now() > taken.since.plus_ms(LEASE_MS + request.timeout_ms) {
            return dropped();
        }
        let (exchange, took) = stage.provider.arrive(&request, stage.clock.now());
        stage.wait(took, &seat).await;
        seat.gate(Gate::AfterAnswer).await;
        exchange
    }

    async fn lookup(&self, call: &Call<'_>) -> (Value, ProbeResult) {
        let stage = self.stage();
        let seat = current().expect("a worker looks up");
        seat.gate(Gate::BeforeLookup).await;
        let now = stage.clock.now();
        let asked = json!({ "method": "GET", "reference": call.effect });
        let result = {
            let mut state = lock(&stage.provider.state);
            state.settle(now);
            state.look_up(call, stage.provider.mood.lookups, now)
        };
        stage.wait(20, &seat).await;
        seat.gate(Gate::AfterLookup).await;
        (asked, result)
    }
}

impl State {
    fn look_up(&mut self, call: &Call<'_>, trouble: LookupTrouble, now: Timestamp) -> ProbeResult {
        if self.dice.below(100) < trouble.errors {
            return ProbeResult::Error { message: "status 503".to_owned() };
        }
        if self.dice.below(100) < trouble.blind {
            return ProbeResult::Miss;
        }
        let found: Vec<&Object> = self
            .objects
            .iter()
            .filter(|object| object.reference == call.effect.as_str())
            .filter(|object| now.ms_since(object.at) >= trouble.lag_ms)
            .collect();
        let id = |object: &Object| object.body["id"].as_str().unwrap_or_default().to_owned();
        match found.as_slice() {
            [] => ProbeResult::Miss,
            [object] => {
                let (external_id, result) = (Some(id(object)), object.body.clone());
                let echo = &call.operation.declarations.echo;
                match outcome::discrepancy(&result, echo, call.args) {
                    None => ProbeResult::Match { external_id, result },
                    Some(difference) => ProbeResult::Mismatch { external_id, result, difference },
                }
            }
            [oldest, ..] => ProbeResult::Many {
                count: u32::try_from(found.len()).unwrap_or(u32::MAX),
                external_ids: found.iter().map(|object| id(object)).collect(),
                oldest: oldest.body.clone(),
            },
        }
    }
}
