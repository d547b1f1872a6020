//! A provider within the world: it keeps the promises of its class, fails in every way that they permit, and keeps books.
//! What it does later it does by the world's clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::{Value, json};
use twice::tool::gate::{Gate as SendGate, Shut};
use twice::tool::{AnyRequest, Call, Driver, PrepareError, Prepared};
use twice_core::effect::Effect;
use twice_core::event::ProbeResult;
use twice_core::identity::tagged_sha256;
use twice_core::ids::{EffectId, Fence, RunId};
use twice_core::json::canonical;
use twice_core::outcome::{self, Answer, Body, Exchange, Fault, FaultKind, Sent};
use twice_core::time::{Clock as _, Timestamp};

use super::seat::{Gate, Seat, current};
use super::{Stage, Turntable, lock};
use crate::dice::Dice;
use crate::host::LEASE_MS;
use crate::invariants::Books;

/// What goes wrong with a request for an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No connection.
    NotConnected,
    /// The connection is reset; nothing is done.
    DropBeforeCommit,
    /// 429, before anything is looked at.
    TooMany,
    /// That status, before anything is looked at.
    Status(u16),
    /// Declined; that is the first answer under the key.
    Decline,
    /// 500, and nothing is done; that is the first answer under the key.
    FailSaved,
    /// It is done, over a cent more.
    WrongAmount,
    /// It is done, and the connection reset.
    CommitThenDrop,
    /// It is done, and 500 is the first answer under the key.
    CommitThenFailSaved,
    /// It is done, and something in front answers 500; under the key there is a success.
    CommitThenFail,
    /// It is done, and the answer's JSON breaks off.
    BrokenAnswer,
    /// It is done, and the answer is too long to be taken.
    HugeAnswer,
    /// It is done at some moment while the sender runs out of patience, or in the settle window after.
    Slow,
    /// The connection is reset, and it is done later, within the settle window.
    CommitLate,
}

impl Trouble {
    /// Every trouble.
    pub const ALL: [Self; 15] = [
        Self::NotConnected,
        Self::DropBeforeCommit,
        Self::TooMany,
        Self::Status(401),
        Self::Status(503),
        Self::Decline,
        Self::FailSaved,
        Self::WrongAmount,
        Self::CommitThenDrop,
        Self::CommitThenFailSaved,
        Self::CommitThenFail,
        Self::BrokenAnswer,
        Self::HugeAnswer,
        Self::Slow,
        Self::CommitLate,
    ];
}

/// What goes wrong with lookups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookupTrouble {
    /// How many of a hundred fail.
    pub errors: u64,
    /// How many of a hundred find nothing, whatever there is. Only for lookups that prove nothing.
    pub blind: u64,
    /// How long after its commit an object is found. Milliseconds.
    pub lag_ms: u64,
}

/// How a provider feels.
#[derive(Debug, Clone, Default)]
pub struct Mood {
    /// What goes wrong with the first requests, in order.
    pub script: VecDeque<Trouble>,
    /// What goes wrong after that: how many of a hundred requests have each trouble.
    pub chances: Vec<(Trouble, u64)>,
    /// What goes wrong with lookups.
    pub lookups: LookupTrouble,
    /// What all that depends on.
    pub seed: u64,
}

/// What is remembered of a key.
#[derive(Debug, Clone)]
struct Known {
    first: Timestamp,
    content: String,
    /// `None` while the first request is still being worked on.
    answer: Option<(u16, Value)>,
}

#[derive(Debug, Clone)]
struct Object {
    at: Timestamp,
    reference: String,
    body: Value,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    script: VecDeque<Trouble>,
    books: Books,
    keys: BTreeMap<String, Known>,
    objects: Vec<Object>,
    /// What is done later, under which key.
    late: Vec<(Object, Option<String>)>,
}

/// The provider.
pub struct Provider {
    mood: Mood,
    state: Mutex<State>,
}

/// A request as it arrives.
struct Request {
    effect: String,
    /// Whose request it is: it is sent by a task that is not the worker's own.
    run: RunId,
    fence: Fence,
    key: Option<String>,
    args: Value,
    timeout_ms: u64,
    settle_ms: u64,
    retention_ms: u64,
}

impl Request {
    fn read(request: AnyRequest) -> Self {
        let AnyRequest::InProcess(value) = request else {
            panic!("this provider made the request")
        };
        let number = |name: &str| value[name].as_u64().expect("it is a number");
        Self {
            effect: value["effect"].as_str().expect("it is a text").to_owned(),
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

/// What a request came to: the exchange, and how long it took. Milliseconds.
type Fate = (Exchange, u64);

fn fault(sent: Sent, kind: FaultKind) -> Exchange {
    let fault = Fault { kind, status: None, message: kind.as_str().to_owned() };
    Exchange { sent, result: Err(fault) }
}

fn dropped() -> Exchange {
    fault(Sent::Maybe, FaultKind::ClosedBeforeHead)
}

fn answer(status: u16, headers: &[(&str, &str)], body: Body) -> Exchange {
    let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let answer = Answer { status, headers, body, body_hash: None, schema_error: None };
    Exchange { sent: Sent::Maybe, result: Ok(answer) }
}

fn error(status: u16, code: &str) -> Exchange {
    answer(status, &[], Body::Json(json!({ "error": { "code": code } })))
}

impl Provider {
    pub(super) fn new(mood: Mood) -> Self {
        let state = State {
            dice: Dice::new(mood.seed),
            script: mood.script.clone(),
            books: Books::default(),
            keys: BTreeMap::new(),
            objects: Vec::new(),
            late: Vec::new(),
        };
        Self { mood, state: Mutex::new(state) }
    }

    /// What it did, and will have done when nothing is under way any more.
    #[must_use]
    pub fn books(&self) -> Books {
        let mut state = lock(&self.state);
        state.settle(Timestamp::MAX);
        state.books.clone()
    }

    fn arrive(&self, request: &Request, now: Timestamp) -> Fate {
        let mut state = lock(&self.state);
        state.settle(now);
        let latency = 5 + state.dice.below(50);
        state.books.requests += 1;
        if let Some(key) = &request.key {
            *state.books.by_key.entry(key.clone()).or_default() += 1;
        }
        let trouble = state.trouble(&self.mood.chances);
        let slow = trouble == Some(Trouble::Slow);
        let exchange = state.perform(request, trouble, now);
        (exchange, if slow { request.timeout_ms } else { latency })
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

impl State {
    /// Does what is due.
    fn settle(&mut self, now: Timestamp) {
        let (due, later) = std::mem::take(&mut self.late).into_iter().partition(|l| l.0.at <= now);
        self.late = later;
        let due: Vec<(Object, Option<String>)> = due;
        for (object, key) in due {
            if let Some(known) = key.and_then(|key| self.keys.get_mut(&key)) {
                known.answer = Some((201, object.body.clone()));
            }
            self.commit(object);
        }
    }

    fn commit(&mut self, object: Object) {
        let order = object.body["order_id"].as_str().unwrap_or_default().to_owned();
        *self.books.done.entry(order).or_default() += 1;
        self.objects.push(object);
    }

    fn trouble(&mut self, chances: &[(Trouble, u64)]) -> Option<Trouble> {
        if let Some(next) = self.script.pop_front() {
            return Some(next);
        }
        chances.iter().find(|(_, percent)| self.dice.below(100) < *percent).map(|(found, _)| *found)
    }

    fn perform(&mut self, request: &Request, trouble: Option<Trouble>, now: Timestamp) -> Exchange {
        match trouble {
            Some(Trouble::NotConnected) => return fault(Sent::Nothing, FaultKind::Connect),
            Some(Trouble::DropBeforeCommit) => return dropped(),
            Some(Trouble::TooMany) => {
                return answer(429, &[("retry-after", "1")], Body::Json(json!({})));
            }
            Some(Trouble::Status(status)) => return error(status, "edge"),
            _ => {}
        }
        let content = canonical(&request.args);
        if let Some(key) = &request.key {
            let known = self.keys.get(key);
            if let Some(known) = known.filter(|k| now.ms_since(k.first) < request.retention_ms) {
                return repeated(known, &content, trouble);
            }
            self.keys.insert(key.clone(), Known { first: now, content, answer: None });
        }
        let (saved, shown, at) = self.work(request, trouble, now);
        match at {
            Some(at) if at > now => {
                let body = saved.1;
                let object = Object { at, reference: request.effect.clone(), body };
                self.late.push((object, request.key.clone()));
            }
            at => {
                if at.is_some() {
                    let body = self.object_of(request, trouble);
                    self.commit(Object { at: now, reference: request.effect.clone(), body });
                }
                if let Some(known) = request.key.as_ref().and_then(|key| self.keys.get_mut(key)) {
                    known.answer = Some(saved);
                }
            }
        }
        shown
    }

    fn object_of(&self, request: &Request, trouble: Option<Trouble>) -> Value {
        let asked = request.args["amount_cents"].as_u64().unwrap_or_default();
        let more = u64::from(trouble == Some(Trouble::WrongAmount));
        json!({
            "id": format!("re_{}_{}", request.effect, self.objects.len()),
            "order_id": request.args["order_id"],
            "amount_cents": asked + more,
            "status": "succeeded",
        })
    }

    /// The work itself: the first answer under the key, the answer to this request, and when the effect happens, if it
    /// does.
    fn work(
        &mut self,
        request: &Request,
        trouble: Option<Trouble>,
        now: Timestamp,
    ) -> ((u16, Value), Exchange, Option<Timestamp>) {
        let body = self.object_of(request, trouble);
        let failure = || (500, json!({ "error": { "code": "internal_error" } }));
        let declined = || (402, json!({ "error": { "code": "card_declined" } }));
        let shown = |(status, body): (u16, Value)| answer(status, &[], Body::Json(body));
        let done = (201, body);
        match trouble {
            Some(Trouble::Decline) => (declined(), shown(declined()), None),
            Some(Trouble::FailSaved) => (failure(), shown(failure()), None),
            Some(Trouble::CommitThenDrop) => (done, dropped(), Some(now)),
            Some(Trouble::CommitThenFailSaved) => (failure(), shown(failure()), Some(now)),
            Some(Trouble::CommitThenFail) => (done, shown(failure()), Some(now)),
            Some(Trouble::BrokenAnswer | Trouble::HugeAnswer) => {
                (done, spoilt(trouble == Some(Trouble::HugeAnswer)), Some(now))
            }
            Some(Trouble::Slow) => {
                let at = now.plus_ms(self.dice.below(request.timeout_ms + request.settle_ms));
                (done, fault(Sent::Maybe, FaultKind::Timeout), Some(at))
            }
            Some(Trouble::CommitLate) => {
                let at = now.plus_ms(1 + self.dice.below(request.settle_ms));
                (done, dropped(), Some(at))
            }
            Some(
                Trouble::WrongAmount
                | Trouble::NotConnected
                | Trouble::DropBeforeCommit
                | Trouble::TooMany
                | Trouble::Status(_),
            )
            | None => (done.clone(), shown(done), Some(now)),
        }
    }
}

fn spoilt(huge: bool) -> Exchange {
    let excerpt = "{\"id\":".to_owned();
    if huge {
        answer(201, &[], Body::TooLarge { excerpt, cap: 1_048_576 })
    } else {
        answer(201, &[], Body::NotJson { excerpt, problem: "it breaks off".to_owned() })
    }
}

/// The answer to a request under a key that is remembered.
fn repeated(known: &Known, content: &str, trouble: Option<Trouble>) -> Exchange {
    if known.content != content {
        return error(422, "idempotency_key_reused");
    }
    let Some((status, body)) = &known.answer else {
        return error(409, "idempotency_key_in_use");
    };
    match trouble {
        Some(Trouble::CommitThenDrop | Trouble::CommitLate) => dropped(),
        Some(Trouble::Slow) => fault(Sent::Maybe, FaultKind::Timeout),
        Some(Trouble::BrokenAnswer | Trouble::HugeAnswer) if *status == 201 => {
            spoilt(trouble == Some(Trouble::HugeAnswer))
        }
        _ => answer(*status, &[("idempotent-replayed", "true")], Body::Json(body.clone())),
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
