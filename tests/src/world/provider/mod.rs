//! A provider within the world: it keeps the promises of its class, fails in every way that they permit, and keeps books.
//! What it does later it does by the world's clock.

mod driver;
mod mood;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use serde_json::{Value, json};
use twice_core::json::canonical;
use twice_core::outcome::{Answer, Body, Exchange, Fault, FaultKind, Sent};
use twice_core::time::Timestamp;

use self::driver::Request;
pub use self::mood::{LookupTrouble, Mood, Trouble};
use super::lock;
use crate::dice::Dice;
use crate::invariants::Books;

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
    /// The refund that it reverses, by its id or by its order; `None`: it is one.
    reverses: Option<String>,
}

impl Object {
    fn new(request: &Request, at: Timestamp, body: Value) -> Self {
        let named = request.args["refund_id"].as_str().filter(|_| request.reverses);
        Self { at, reference: request.effect.clone(), body, reverses: named.map(str::to_owned) }
    }
}

#[derive(Debug)]
struct State {
    dice: Dice,
    script: VecDeque<Trouble>,
    back: VecDeque<Trouble>,
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
            back: mood.back.clone(),
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

    /// What came of an effect, once nothing is under way any more.
    pub(super) fn made_by(&self, effect: &str) -> Option<Value> {
        let mut state = lock(&self.state);
        state.settle(Timestamp::MAX);
        state
            .objects
            .iter()
            .find(|object| object.reference == effect)
            .map(|found| found.body.clone())
    }

    fn arrive(&self, request: &Request, now: Timestamp) -> Fate {
        let mut state = lock(&self.state);
        state.settle(now);
        let latency = 5 + state.dice.below(50);
        state.books.requests += 1;
        if let Some(key) = &request.key {
            *state.books.by_key.entry(key.clone()).or_default() += 1;
        }
        let trouble = state.trouble(request, &self.mood.chances);
        let slow = trouble == Some(Trouble::Slow);
        let exchange = state.perform(request, trouble, now);
        (exchange, if slow { request.timeout_ms } else { latency })
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
        *self.books.by_effect.entry(object.reference.clone()).or_default() += 1;
        match &object.reverses {
            None => {
                let order = object.body["order_id"].as_str().unwrap_or_default().to_owned();
                *self.books.done.entry(order).or_default() += 1;
            }
            Some(named) => {
                for refund in self.standing(named) {
                    *self.books.reversed.entry(refund).or_default() += 1;
                }
            }
        }
        self.objects.push(object);
    }

    /// The refunds that a reversal is about, by their effects: the one of that id, reversed before or not, as nothing but the
    /// caller keeps it from being reversed twice; or those of that order that are not reversed.
    fn standing(&self, named: &str) -> Vec<String> {
        let refunds = self.objects.iter().filter(|object| object.reverses.is_none());
        let found = refunds.filter(|refund| {
            let stands = !self.books.reversed.contains_key(&refund.reference);
            refund.body["id"] == named || refund.body["order_id"] == named && stands
        });
        found.map(|refund| refund.reference.clone()).collect()
    }

    fn trouble(&mut self, request: &Request, chances: &[(Trouble, u64)]) -> Option<Trouble> {
        let script = if request.reverses { &mut self.back } else { &mut self.script };
        if let Some(next) = script.pop_front() {
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
                let object = Object::new(request, at, saved.1);
                self.late.push((object, request.key.clone()));
            }
            at => {
                if at.is_some() {
                    let body = self.object_of(request, trouble);
                    self.commit(Object::new(request, now, body));
                }
                if let Some(known) = request.key.as_ref().and_then(|key| self.keys.get_mut(key)) {
                    known.answer = Some(saved);
                }
            }
        }
        shown
    }

    fn object_of(&self, request: &Request, trouble: Option<Trouble>) -> Value {
        if request.reverses {
            let asked = request.args["refund_id"].as_str().unwrap_or_default();
            let wrong = if trouble == Some(Trouble::WrongAmount) { "-otherwise" } else { "" };
            return json!({
                "id": format!("rev_{}_{}", request.effect, self.objects.len()),
                "refund_id": format!("{asked}{wrong}"),
                "status": "succeeded",
            });
        }
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
