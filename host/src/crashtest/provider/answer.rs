//! What the provider does with a request and what it answers: by the declarations of the operation, never better.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use twice_core::contract::{Consistency, LookupBy, Replay};
use twice_core::outcome::{self, Answer, Body, Exchange, Sent, Verdict};
use twice_workflow::model::{Lookup, Operation};
use twice_workflow::schema::Schema;

use super::books::{Books, Commit, KeyRecord, Seen};
use super::instance::{Avoid, Reply, mark, put, smallest};
use super::unify::{Bindings, Received};

/// An operation with its name and what its author wants it to answer.
#[derive(Clone, Copy)]
pub(super) struct Offer<'a> {
    pub(super) name: &'a str,
    pub(super) operation: &'a Operation,
    pub(super) example: Option<&'a Value>,
    /// Whether it is refused for good, whoever asks.
    pub(super) refused: bool,
}

/// Does what is asked for, or answers as to a repetition. The second value says that the answer is to be held back.
pub(super) fn perform(
    offer: &Offer<'_>,
    bound: &Bindings,
    received: &Received,
    books: &mut Books,
) -> (Reply, bool) {
    let operation = offer.operation;
    let key = key_of(operation, bound, received);
    let seen = Seen {
        operation: offer.name.to_owned(),
        reference: bound.text("/effect_id").map(str::to_owned),
        key: key.clone(),
        args: bound.args(),
        effect: true,
    };
    books.seen.push(seen.clone());
    if offer.refused {
        let mut reply = refusal(422, "refused, as the test was told");
        if let Some(matcher) = operation.declarations.refused.first() {
            mark(&mut reply, matcher);
        }
        return (judged(offer, bound, reply, Verdict::Rejected, books), false);
    }
    if operation.contract.read {
        let object = object(offer, bound, "read", 1);
        return (checked(offer, bound, object, books), false);
    }
    if let Some(key) = &key {
        let slot = (offer.name.to_owned(), key.clone());
        if let Some(known) = remembered(operation, books, &slot).cloned() {
            return (again(operation, bound, key, &known, books), false);
        }
        let commit = books.commits.len();
        let record = KeyRecord { first: books.now, content: bound.content(), commit };
        books.keys.insert(slot, record);
    }
    let identity = seen.reference.as_deref().or(key.as_deref());
    let identity = identity.map_or_else(|| bound.content(), str::to_owned);
    let earlier = books.commits.iter().filter(|commit| {
        commit.operation == offer.name
            && commit.reference == seen.reference
            && commit.key == seen.key
            && commit.args == seen.args
    });
    let object = object(offer, bound, &identity, earlier.count() + 1);
    let reply = checked(offer, bound, object.clone(), books);
    books.commits.push(Commit {
        operation: seen.operation,
        reference: seen.reference,
        key: seen.key,
        args: seen.args,
        at: books.now,
        object,
    });
    let held = books.hold == Some(books.commits.len());
    if let Some(key) = key.filter(|_| held) {
        books.in_flight.insert(key);
    }
    (reply, held)
}

fn key_of(operation: &Operation, bound: &Bindings, received: &Received) -> Option<String> {
    let carrier = operation.key_carrier.as_ref()?;
    let text = match &carrier.header {
        Some(header) => received.headers.get(&header.to_lowercase())?.as_str(),
        None => bound.text("/key")?,
    };
    let text = if carrier.quoted { text.trim_matches('"') } else { text };
    Some(text.to_owned())
}

fn remembered<'a>(
    operation: &Operation,
    books: &'a Books,
    slot: &(String, String),
) -> Option<&'a KeyRecord> {
    let retention = operation.contract.key.as_ref()?.retention_ms;
    books.keys.get(slot).filter(|known| books.now.ms_since(known.first) < retention)
}

/// The answer to a request under a key that is remembered.
fn again(
    operation: &Operation,
    bound: &Bindings,
    key: &str,
    known: &KeyRecord,
    books: &mut Books,
) -> Reply {
    let declared = &operation.declarations;
    let object = books.commits.get(known.commit).map(|commit| commit.object.clone());
    let object = object.unwrap_or_default();
    if known.content != bound.content() {
        let mut reply = refusal(422, "the key was used with another request");
        if let Some(matcher) = declared.mismatch.first() {
            mark(&mut reply, matcher);
        }
        return reply;
    }
    if books.in_flight.remove(key)
        && let Some(matcher) = declared.in_flight.first()
    {
        let mut reply = refusal(409, "the first request under the key is being worked on");
        mark(&mut reply, matcher);
        return reply;
    }
    let replay = operation.contract.key.as_ref().map(|contract| contract.replay);
    match (replay, declared.duplicate.first()) {
        (Some(Replay::ConflictWithId), Some(matcher)) => {
            let mut reply = Reply { status: 409, headers: Vec::new(), body: Some(object.clone()) };
            mark(&mut reply, matcher);
            if let (Some(from), Some(to), Some(body)) =
                (&declared.external_id, &declared.duplicate_id, &mut reply.body)
            {
                put(body, to, object.pointer(from).cloned().unwrap_or_default());
            }
            reply
        }
        (
            Some(
                Replay::ConflictWithId
                | Replay::FirstAnswer
                | Replay::SuccessOnly
                | Replay::CurrentState
                | Replay::RedrivesFailed,
            )
            | None,
            _,
        ) => {
            let mut reply = success(operation, object);
            if let Some(matcher) = declared.replayed.first() {
                mark(&mut reply, matcher);
            }
            reply
        }
    }
}

fn refusal(status: u16, message: &str) -> Reply {
    Reply { status, headers: Vec::new(), body: Some(json!({ "message": message })) }
}

fn success(operation: &Operation, object: Value) -> Reply {
    let silent = operation.declarations.no_body
        && operation.response_schema.is_none()
        && operation.declarations.external_id.is_none();
    if silent {
        return Reply { status: 204, headers: Vec::new(), body: None };
    }
    Reply { status: 200, headers: Vec::new(), body: Some(object) }
}

/// The object that comes of a request, as the provider describes it.
fn object(offer: &Offer<'_>, bound: &Bindings, identity: &str, ordinal: usize) -> Value {
    let operation = offer.operation;
    let declared = &operation.declarations;
    let lookup = operation.lookup.as_ref();
    let avoid = avoided(operation);
    let schema = operation.response_schema.as_ref();
    let mut object = match (offer.example, schema) {
        (Some(example), _) => example.clone(),
        (None, Some(schema)) => smallest(schema, &avoid),
        (None, None) => json!({}),
    };
    let args = bound.args();
    for echo in &declared.echo {
        if let Some(value) = args.get(&echo.args) {
            put(&mut object, &echo.result, value.clone());
        }
    }
    for (pointer, values) in lookup.iter().flat_map(|l| l.pending.iter().chain(&l.failed)) {
        if object.pointer(pointer).is_none_or(|state| values.contains(state)) {
            put(&mut object, pointer, json!("done"));
        }
    }
    if let Some((pointer, ours)) = lookup.and_then(|lookup| lookup.matches.as_ref())
        && let Some(text) = bound.text(ours)
    {
        put(&mut object, pointer, json!(text));
    }
    let id_pointers =
        [declared.external_id.as_ref(), lookup.and_then(|lookup| lookup.external_id.as_ref())];
    for pointer in id_pointers.into_iter().flatten() {
        let before = object.clone();
        let id = external_id(offer.name, identity, ordinal, object.pointer(pointer));
        put(&mut object, pointer, id);
        let fits = |object: &Value| {
            schema.is_none_or(|s| Schema::compile(s).is_ok_and(|s| s.check(object).is_ok()))
        };
        // A made-up id that breaks the provider's own form of ids is no better than the example's.
        if before.pointer(pointer).is_some() && !fits(&object) && fits(&before) {
            object = before;
        }
    }
    object
}

/// Where values stand that would mean something else than a success.
fn avoided(operation: &Operation) -> Avoid {
    let declared = &operation.declarations;
    let matchers = [
        &declared.mismatch,
        &declared.in_flight,
        &declared.duplicate,
        &declared.refused,
        &declared.not_processed,
        &declared.pending,
    ];
    let by_matcher = matchers
        .into_iter()
        .flatten()
        .filter_map(|matcher| Some((matcher.pointer.clone()?, vec![matcher.equals.clone()?])));
    let by_lookup =
        operation.lookup.iter().flat_map(|l| l.pending.iter().chain(&l.failed)).cloned();
    by_matcher.chain(by_lookup).collect()
}

/// An id that depends on what was asked for and not on when: an undisturbed run and a disturbed one get the same, and a
/// second object under one reference another.
fn external_id(name: &str, identity: &str, ordinal: usize, like: Option<&Value>) -> Value {
    let digest = Sha256::digest(format!("{name}/{identity}/{ordinal}"));
    let number = digest.iter().take(4).fold(0_u32, |n, byte| (n << 8) | u32::from(*byte));
    match like {
        Some(Value::Number(_)) => json!(number >> 1),
        Some(
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
        )
        | None => {
            let operation = name.rsplit('.').next().unwrap_or(name);
            json!(format!("{operation}-{number:08x}"))
        }
    }
}

/// The answer of a success.
fn checked(offer: &Offer<'_>, bound: &Bindings, object: Value, books: &mut Books) -> Reply {
    let reply = success(offer.operation, object);
    judged(offer, bound, reply, Verdict::Succeeded, books)
}

/// An answer, judged as the executor will judge it: one that does not mean what it is for would test nothing.
fn judged(
    offer: &Offer<'_>,
    bound: &Bindings,
    reply: Reply,
    meant: Verdict,
    books: &mut Books,
) -> Reply {
    let operation = offer.operation;
    let schema_error = match (&operation.response_schema, &reply.body) {
        (Some(schema), Some(body)) => Schema::compile(schema)
            .ok()
            .and_then(|schema| schema.check(body).err())
            .map(|p| p.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        (Some(_) | None, _) => None,
    };
    let exchange = Exchange {
        sent: Sent::Maybe,
        result: Ok(Answer {
            status: reply.status,
            headers: reply.headers.clone(),
            body: reply.body.clone().map_or(Body::Empty, Body::Json),
            body_hash: None,
            schema_error,
        }),
    };
    let mut args = json!({});
    for (pointer, value) in bound.args() {
        put(&mut args, &pointer, value);
    }
    let judged = outcome::classify(&exchange, &operation.declarations, &args, true);
    if meant == Verdict::Rejected && judged.verdict != meant {
        books.problems.push(format!(
            "no answer could be made for {} that its own declarations take for a refusal: {}\nfix: declare one in `refused` of its response",
            offer.name, judged.message
        ));
    } else if judged.verdict != meant || judged.discrepancy.is_some() {
        books.problems.push(format!(
            "no answer could be made for {} that its own declarations take for a success: {}{}\nfix: put an answer of the real provider into examples/{}.json",
            offer.name,
            judged.message,
            judged.discrepancy.map(|d| format!(" ({d})")).unwrap_or_default(),
            offer.name
        ));
    }
    reply
}

/// Answers a lookup: what the books show by now to whoever asks so.
pub(super) fn look_up(
    offer: &Offer<'_>,
    lookup: &Lookup,
    bound: &Bindings,
    books: &mut Books,
) -> Reply {
    books.seen.push(Seen {
        operation: offer.name.to_owned(),
        reference: bound.text("/effect_id").map(str::to_owned),
        key: bound.text("/key").map(str::to_owned),
        args: bound.args(),
        effect: false,
    });
    let mut found: Vec<Value> = books
        .commits
        .iter()
        .filter(|commit| commit.operation == offer.name)
        .filter(|commit| is_asked_for(bound, commit))
        .filter(|commit| is_visible(offer.operation, books, commit))
        .map(|commit| commit.object.clone())
        .collect();
    match (&lookup.items, found.is_empty()) {
        (Some(pointer), _) => {
            let mut body = json!({});
            put(&mut body, pointer, Value::Array(found));
            Reply { status: 200, headers: Vec::new(), body: Some(body) }
        }
        (None, true) => {
            refusal(lookup.absent_statuses.first().copied().unwrap_or(404), "there is none")
        }
        (None, false) => {
            Reply { status: 200, headers: Vec::new(), body: Some(found.swap_remove(0)) }
        }
    }
}

fn is_asked_for(bound: &Bindings, commit: &Commit) -> bool {
    let agrees = |asked: Option<&str>, kept: &Option<String>| {
        asked.is_none_or(|asked| kept.as_deref() == Some(asked))
    };
    agrees(bound.text("/effect_id"), &commit.reference)
        && agrees(bound.text("/key"), &commit.key)
        && bound
            .args()
            .iter()
            .all(|(pointer, value)| commit.args.get(pointer).is_none_or(|kept| kept == value))
}

fn is_visible(operation: &Operation, books: &Books, commit: &Commit) -> bool {
    let Some(contract) = &operation.contract.lookup else { return false };
    let age = books.now.ms_since(commit.at);
    let settled = match contract.consistency {
        Consistency::Strong => true,
        Consistency::Lagging(lag) => age >= lag,
    };
    let known = match (contract.by, &operation.contract.key) {
        (LookupBy::Key, Some(key)) => age < key.retention_ms,
        (LookupBy::Key, None) | (LookupBy::Reference, _) => true,
    };
    settled && known
}
