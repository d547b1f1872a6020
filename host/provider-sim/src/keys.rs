//! Idempotency keys: what is in flight, what is remembered, and what a second request gets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::fault::Fault;
use crate::limits::KEY_CHARS_MAX;
use crate::operation::Invalid;
use crate::perform::Call;
use crate::reply::Answer;
use crate::server::App;
use crate::store::{Saved, StoreError};

/// The header of the IETF draft.
pub const KEY_HEADER: &str = "idempotency-key";

/// Reads the key: plain, or an RFC 8941 string in quotes. Parameters after the closing quote are ignored.
pub(crate) fn read_key(headers: &HeaderMap) -> Result<Option<String>, Invalid> {
    let refuse = |message: &str| Invalid {
        code: "idempotency_key_invalid",
        message: format!("{KEY_HEADER} {message}"),
    };
    let mut values = headers.get_all(KEY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(refuse("must be given once"));
    }
    let text = value.to_str().map_err(|_| refuse("must be visible ASCII"))?.trim();
    let key = match text.strip_prefix('"') {
        Some(rest) => unquote(rest).ok_or_else(|| refuse("has no closing quote"))?,
        None => text.to_owned(),
    };
    if key.is_empty() || key.chars().count() > KEY_CHARS_MAX {
        return Err(refuse(&format!("must have 1 to {KEY_CHARS_MAX} characters")));
    }
    Ok(Some(key))
}

fn unquote(rest: &str) -> Option<String> {
    let mut key = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(key),
            '\\' => key.push(chars.next()?),
            c => key.push(c),
        }
    }
}

/// What is being worked on, by epoch and key: the fingerprint of the request that holds it. A restart ends all work, so this
/// lives in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashMap<(u64, String), String>>>);

impl InFlight {
    /// Takes the key, or tells the fingerprint of the request that has it.
    fn take(&self, epoch: u64, key: &str, fingerprint: &str) -> Result<Held, String> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = held.get(&(epoch, key.to_owned())) {
            return Err(holder.clone());
        }
        held.insert((epoch, key.to_owned()), fingerprint.to_owned());
        Ok(Held {
            epoch,
            key: key.to_owned(),
            fingerprint: fingerprint.to_owned(),
            in_flight: self.clone(),
        })
    }
}

/// A key held by one request until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    epoch: u64,
    pub(crate) key: String,
    pub(crate) fingerprint: String,
    in_flight: InFlight,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.in_flight
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(self.epoch, self.key.clone()));
    }
}

/// What a request may do as far as its key is concerned.
#[derive(Debug)]
pub(crate) enum Claim {
    /// Work, and keep the answer under the key.
    Work {
        held: Held,
        /// Only a success is kept.
        success_only: bool,
    },
    /// Work; there is no key, or it is not honoured.
    WorkWithoutKey,
    /// Answer this and do nothing.
    Answer(Answer),
}

/// Decides about a request as far as its key is concerned.
pub(crate) async fn claim(app: &App, call: &Call) -> Result<Claim, StoreError> {
    let path = call.path.as_str();
    let key = call.key.as_deref().filter(|_| call.operation.honours_keys());
    let Some(key) = key else { return Ok(Claim::WorkWithoutKey) };
    if app.switches.fire(Fault::IgnoreKeys, "POST", path).await?.is_some() {
        return Ok(Claim::WorkWithoutKey);
    }
    let fingerprint = json!({ "path": path, "body": call.body }).to_string();
    // The key is held before the memory is asked: whoever held it before has stored its answer by then.
    let held = match app.in_flight.take(call.epoch, key, &fingerprint) {
        Ok(held) => held,
        Err(holder) if !same(&holder, &fingerprint) => return Ok(Claim::Answer(mismatch())),
        Err(_) => {
            return Ok(Claim::Answer(Answer::error(
                409,
                "idempotency_key_in_use",
                "a request with this key is still being worked on; ask again later with the same key",
            )));
        }
    };
    let success_only = app.switches.fire(Fault::SuccessOnlyReplay, "POST", path).await?.is_some();
    let Some(saved) = app.store.saved(key).await? else {
        return Ok(Claim::Work { held, success_only });
    };
    if let Some(fired) = app.switches.fire(Fault::ForgetKeysAfterMs, "POST", path).await? {
        let age_ms = app.clock.now_ms().saturating_sub(saved.created_ms);
        if age_ms >= fired.value.as_i64().unwrap_or(i64::MAX) {
            return Ok(Claim::Work { held, success_only });
        }
    }
    if !same(&saved.fingerprint, &fingerprint) {
        return Ok(Claim::Answer(mismatch()));
    }
    if success_only && !(200..300).contains(&saved.status) {
        return Ok(Claim::Work { held, success_only });
    }
    let conflict = app.switches.fire(Fault::ConflictWithId, "POST", path).await?.is_some();
    Ok(Claim::Answer(replay(saved, conflict)))
}

fn replay(saved: Saved, conflict: bool) -> Answer {
    match saved.effect_id {
        Some(id) if conflict => Answer::new(
            409,
            json!({ "error": {
                "code": "idempotent_creation_conflict",
                "message": "an object was made under this key before",
                "resource_id": id,
                "links": { "conflicting_resource_id": id },
            } }),
        ),
        _ => Answer::new(saved.status, saved.body).into_replay(),
    }
}

fn mismatch() -> Answer {
    Answer::error(
        422,
        "idempotency_key_reused",
        "this key was used before for a request with another path or body",
    )
}

/// Whether two fingerprints stand for the same request, whatever the order of the members.
fn same(a: &str, b: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    a == b || read(a).is_some_and(|a| read(b) == Some(a))
}
