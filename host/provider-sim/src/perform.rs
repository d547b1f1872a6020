//! A request for an effect, from its arrival to its answer. It runs in a task of its own, so that a client that goes
//! away changes nothing about what the provider does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use crate::body;
use crate::fault::{Fault, FixedAnswer, FixedRefusal};
use crate::keys::{self, Claim, Held};
use crate::limits::{FILE_LOOK_MS, PAUSE_MS_MAX};
use crate::operation::Operation;
use crate::replier::Replier;
use crate::reply::{Answer, Shape, huge_bytes};
use crate::server::App;
use crate::store::{Commit, NewEffect, Refusal, SavedAs, StoreError};

/// A request for an effect.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    pub(crate) path: String,
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) key: Option<String>,
    pub(crate) body: Value,
    /// The epoch in which it arrived; a reset leaves it behind.
    pub(crate) epoch: u64,
}

/// Does what the request asks, as far as the switches let it.
pub(crate) async fn perform(
    app: &App,
    call: Call,
    replier: &mut Replier,
) -> Result<(), StoreError> {
    match early(app, "POST", &call.path).await? {
        Early::Go => {}
        Early::Answer(answer) => return replier.answer(app, answer).await,
        Early::Reset => return replier.reset(app).await,
    }
    let effect = match body::read(call.operation, &call.params, &call.body) {
        Ok(effect) => effect,
        Err(invalid) => return replier.answer(app, Answer::invalid(&invalid)).await,
    };
    let (held, success_only) = match keys::claim(app, &call).await? {
        Claim::Work { held, success_only } => (Some(held), success_only),
        Claim::WorkWithoutKey => (None, false),
        Claim::Answer(answer) if (200..300).contains(&answer.status) => {
            let answer = spoil(app, "POST", &call.path, answer).await?;
            return replier.answer(app, answer).await;
        }
        Claim::Answer(answer) => return replier.answer(app, answer).await,
    };
    Work { app, call: &call, held, success_only, replier }.run(effect).await
}

/// What happens before a request is looked at.
pub(crate) enum Early {
    Go,
    Answer(Answer),
    Reset,
}

/// The faults of an edge in front of the service, for either method.
pub(crate) async fn early(app: &App, method: &str, path: &str) -> Result<Early, StoreError> {
    let switches = &app.switches;
    if switches.fire(Fault::DropBeforeCommit, method, path).await?.is_some() {
        return Ok(Early::Reset);
    }
    if let Some(fired) = switches.fire(Fault::Storm429, method, path).await? {
        let seconds = fired.value.as_u64().unwrap_or(1);
        let answer = Answer::error(429, "rate_limited", "too many requests; nothing was done")
            .header("retry-after", seconds.to_string());
        return Ok(Early::Answer(answer));
    }
    if let Some(fired) = switches.fire(Fault::Status, method, path).await?
        && let Some(fixed) = FixedAnswer::read(&fired.value)
    {
        let mut answer = Answer::new(fixed.status, fixed.body);
        answer.headers = fixed.headers;
        return Ok(Early::Answer(answer));
    }
    let unsaved = |value: &Value| !is_saved(value, false);
    if switches.fire_if(Fault::Fail500, method, path, unsaved).await?.is_some() {
        return Ok(Early::Answer(internal_error()));
    }
    Ok(Early::Go)
}

/// The faults of the wire, for an answer with an object.
pub(crate) async fn spoil(
    app: &App,
    method: &str,
    path: &str,
    answer: Answer,
) -> Result<Answer, StoreError> {
    let switches = &app.switches;
    if let Some(fired) = switches.fire(Fault::HugeBody, method, path).await? {
        return Ok(answer.shape(Shape::Huge(huge_bytes(&fired.value))));
    }
    for (fault, shape) in [
        (Fault::EndlessBody, Shape::Endless),
        (Fault::InvalidJson, Shape::Broken),
        (Fault::DuplicateKeyJson, Shape::DuplicateKey),
    ] {
        if switches.fire(fault, method, path).await?.is_some() {
            return Ok(answer.shape(shape));
        }
    }
    Ok(answer)
}

fn is_saved(value: &Value, default: bool) -> bool {
    value.as_str().map_or(default, |text| text == "saved")
}

fn internal_error() -> Answer {
    Answer::error(500, "internal_error", "something went wrong")
}

/// The work on a request that may have an effect.
struct Work<'a> {
    app: &'a App,
    call: &'a Call,
    held: Option<Held>,
    success_only: bool,
    replier: &'a mut Replier,
}

impl Work<'_> {
    async fn run(mut self, mut effect: NewEffect) -> Result<(), StoreError> {
        let app = self.app;
        if let Some(ms) = self.millis(Fault::HoldThenCommitLateMs).await? {
            self.replier.reset(app).await?;
            tokio::time::sleep(ms).await;
        }
        if let Some(ms) = self.millis(Fault::DelayMs).await? {
            tokio::time::sleep(ms).await;
        }
        if self.fires(Fault::Decline402).await? {
            let answer =
                Answer::error(402, "card_declined", "the bank declined; no money was moved");
            return self.refuse(answer).await;
        }
        let path = &self.call.path;
        if let Some(fired) = app.switches.fire(Fault::Refuse, "POST", path).await? {
            let FixedRefusal { status, code, message } =
                FixedRefusal::read(&fired.value).unwrap_or_default();
            return self.refuse(Answer::error(status, &code, &message)).await;
        }
        let saved = |value: &Value| is_saved(value, false);
        if app.switches.fire_if(Fault::Fail500, "POST", path, saved).await?.is_some() {
            return self.refuse(internal_error()).await;
        }
        if let Some(amount) = effect.body.get("amount_cents").and_then(Value::as_i64)
            && let Some(fired) = app.switches.fire(Fault::WrongAmount, "POST", path).await?
        {
            let more = fired.value.as_i64().unwrap_or(1);
            effect.body.insert("amount_cents".to_owned(), Value::from(amount + more));
        }
        // Taken before the commit becomes visible: a control call that follows the commit always continues this one.
        let continued = app.continued.subscribe();
        let failing = app.switches.fire(Fault::CommitThen500, "POST", path).await?;
        let failure_kept = failing.as_ref().is_some_and(|fired| is_saved(&fired.value, true));
        let committed = match app.store.commit(self.commit(effect, failure_kept)).await? {
            Ok(committed) => committed,
            Err(refusal) => {
                return match refused(&refusal) {
                    Some(answer) => self.refuse(answer).await,
                    None => self.replier.reset(app).await,
                };
            }
        };
        // The answer is on record now: the key is no longer in flight, even while this request waits.
        self.held = None;
        app.changed.send_modify(|n| *n += 1);
        self.after_commit(committed.body, failing.is_some(), continued).await
    }

    fn commit(&self, effect: NewEffect, failure_kept: bool) -> Commit {
        let instead = (failure_kept && !self.success_only).then(|| {
            let failure = internal_error();
            (failure.status, failure.body)
        });
        Commit {
            effect,
            key: self.call.key.clone(),
            saved: self.held.as_ref().map(|held| saved_as(held, instead)),
            epoch: self.call.epoch,
            now_ms: self.app.clock.now_ms(),
        }
    }

    async fn after_commit(
        self,
        body: Value,
        failing: bool,
        continued: tokio::sync::watch::Receiver<u64>,
    ) -> Result<(), StoreError> {
        let (app, path) = (self.app, &self.call.path);
        if let Some(ms) = self.millis(Fault::DelayAfterCommitMs).await? {
            tokio::time::sleep(ms).await;
        }
        if let Some(fired) = app.switches.fire(Fault::PauseBeforeReplyUntil, "POST", path).await?
            && !tokio::select! {
                told = pause(app, fired.value.as_str().map(Path::new), continued) => told,
                () = self.replier.gone() => true,
            }
        {
            return self.replier.reset(app).await;
        }
        if self.fires(Fault::CommitThenDrop).await? {
            return self.replier.reset(app).await;
        }
        let answer = if failing {
            internal_error()
        } else {
            spoil(app, "POST", path, Answer::new(201, body)).await?
        };
        self.replier.answer(app, answer).await
    }

    /// Answers without an effect, and keeps the answer under the key.
    async fn refuse(mut self, answer: Answer) -> Result<(), StoreError> {
        let held = self.held.take();
        if let Some(held) = &held
            && !self.success_only
        {
            let (app, now_ms) = (self.app, self.app.clock.now_ms());
            app.store
                .save_answer(
                    &saved_as(held, None),
                    answer.status,
                    &answer.body,
                    self.call.epoch,
                    now_ms,
                )
                .await?;
        }
        // Before the answer: whoever has it may send the next request at once.
        drop(held);
        self.replier.answer(self.app, answer).await
    }

    async fn fires(&self, fault: Fault) -> Result<bool, StoreError> {
        Ok(self.app.switches.fire(fault, "POST", &self.call.path).await?.is_some())
    }

    async fn millis(&self, fault: Fault) -> Result<Option<Duration>, StoreError> {
        let fired = self.app.switches.fire(fault, "POST", &self.call.path).await?;
        Ok(fired.and_then(|fired| fired.value.as_u64()).map(Duration::from_millis))
    }
}

fn saved_as(held: &Held, instead: Option<(u16, Value)>) -> SavedAs {
    SavedAs { key: held.key.clone(), fingerprint: held.fingerprint.clone(), instead }
}

/// The answer to a refused commit; none when there is nobody left to answer.
fn refused(refusal: &Refusal) -> Option<Answer> {
    match refusal {
        Refusal::Outdated => None,
        Refusal::Absent { id } => {
            Some(Answer::error(404, "not_found", &format!("there is no object {id}")))
        }
        Refusal::Already { id, status, changed_by } => {
            let message = format!("{id} is {status} already");
            let mut answer = Answer::error(409, &format!("already_{status}"), &message);
            answer.body["error"]["resource_id"] = Value::from(id.as_str());
            answer.body["error"]["changed_by"] = Value::from(changed_by.as_deref());
            Some(answer)
        }
    }
}

/// Waits for the file or the control call. False when neither came in time.
async fn pause(
    app: &App,
    file: Option<&Path>,
    mut continued: tokio::sync::watch::Receiver<u64>,
) -> bool {
    let _paused = Paused::enter(app);
    let appears = async {
        match file {
            // The file belongs to whoever drives the test; looking for it is the only way to notice it.
            Some(file) => {
                while !matches!(tokio::fs::try_exists(file).await, Ok(true)) {
                    tokio::time::sleep(Duration::from_millis(FILE_LOOK_MS)).await;
                }
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = appears => true,
        told = continued.changed() => told.is_ok(),
        () = tokio::time::sleep(Duration::from_millis(PAUSE_MS_MAX)) => false,
    }
}

/// Counts a paused reply as long as it lives.
struct Paused(Arc<std::sync::atomic::AtomicU64>, tokio::sync::watch::Sender<u64>);

impl Paused {
    fn enter(app: &App) -> Self {
        app.paused.fetch_add(1, Ordering::SeqCst);
        app.changed.send_modify(|n| *n += 1);
        Self(Arc::clone(&app.paused), app.changed.clone())
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
        self.1.send_modify(|n| *n += 1);
    }
}
