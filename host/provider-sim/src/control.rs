//! The control routes under `/_sim`: how a test or a demo drives the simulator from outside.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Json, Query, State};
use axum::response::Response;
use axum::routing::{get, post, put};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::limits::{PAGE_DEFAULT, PAGE_MAX, SCRIPT_LINES_MAX, WAIT_MS_DEFAULT, WAIT_MS_MAX};
use crate::reply::Answer;
use crate::server::{App, Shared, broken};
use crate::store::StoreError;
use crate::switches::{ReplaceError, Switch};

/// The control routes.
pub(crate) fn router() -> Router<Shared> {
    Router::new()
        .route("/_sim", get(health))
        .route("/_sim/switches", get(switches).put(set_switches))
        .route("/_sim/counters", get(counters))
        .route("/_sim/objects", get(objects))
        .route("/_sim/requests", get(requests))
        .route("/_sim/reset", post(reset))
        .route("/_sim/continue", post(go_on))
        .route("/_sim/wait", get(wait))
        .route("/_sim/clock", get(clock).post(advance_clock))
        .route("/_sim/script", put(set_script))
}

/// What `/_sim/wait` can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// So many requests arrived in full.
    Received,
    /// So many effects were committed.
    Committed,
    /// So many replies are paused at this moment.
    Paused,
    /// So many requests were answered or dropped.
    Settled,
}

/// The body of `PUT /_sim/switches` and, with counts, of the answer to `GET`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchesBody {
    switches: Vec<Switch>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitQuery {
    #[serde(rename = "for")]
    wait_for: WaitFor,
    count: u64,
    operation: Option<String>,
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    after: Option<i64>,
    limit: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockBody {
    advance_ms: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptBody {
    lines: Vec<Value>,
}

/// A control answer: JSON, or the failure of the simulator itself.
fn respond(answer: Result<Answer, StoreError>) -> Response {
    answer.unwrap_or_else(|error| broken(&error)).into_response()
}

fn refuse(message: &str) -> Answer {
    Answer::error(400, "control_invalid", message)
}

async fn health() -> Response {
    respond(Ok(Answer::new(200, json!({ "ok": true }))))
}

async fn switches(State(app): State<Shared>) -> Response {
    respond(Ok(Answer::new(200, switches_json(&app))))
}

fn switches_json(app: &App) -> Value {
    json!({ "switches": app.switches.all() })
}

async fn set_switches(
    State(app): State<Shared>,
    body: Result<Json<SwitchesBody>, JsonRejection>,
) -> Response {
    let body = match body {
        Ok(Json(body)) => body,
        Err(rejection) => return respond(Ok(refuse(&rejection.body_text()))),
    };
    respond(match app.switches.replace(body.switches).await {
        Ok(()) => Ok(Answer::new(200, switches_json(&app))),
        Err(ReplaceError::Switch(error)) => Ok(refuse(&error.to_string())),
        Err(ReplaceError::Store(error)) => Err(error),
    })
}

async fn counters(State(app): State<Shared>) -> Response {
    respond(app.store.counters().await.map(|counters| Answer::new(200, json!(counters))))
}

type PageAsked = Result<Query<PageQuery>, QueryRejection>;

/// Where a page starts, and how long it is.
fn page(query: PageAsked) -> Result<(i64, i64), Answer> {
    match query {
        Ok(Query(page)) => {
            let limit = page.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
            Ok((page.after.unwrap_or(0), limit))
        }
        Err(rejection) => Err(refuse(&rejection.body_text())),
    }
}

fn listing(found: Result<Vec<impl Serialize>, StoreError>) -> Response {
    respond(found.map(|data| Answer::new(200, json!({ "data": data }))))
}

async fn objects(State(app): State<Shared>, query: PageAsked) -> Response {
    match page(query) {
        Ok((after, limit)) => listing(app.store.objects(after, limit).await),
        Err(refused) => respond(Ok(refused)),
    }
}

async fn requests(State(app): State<Shared>, query: PageAsked) -> Response {
    match page(query) {
        Ok((after, limit)) => listing(app.store.requests(after, limit).await),
        Err(refused) => respond(Ok(refused)),
    }
}

async fn reset(State(app): State<Shared>) -> Response {
    respond(app.reset().await.map(|()| Answer::new(200, json!({ "ok": true }))))
}

async fn go_on(State(app): State<Shared>) -> Response {
    let paused = app.go_on();
    respond(Ok(Answer::new(200, json!({ "continued": paused }))))
}

async fn wait(
    State(app): State<Shared>,
    query: Result<Query<WaitQuery>, QueryRejection>,
) -> Response {
    let wait = match query {
        Ok(Query(wait)) => wait,
        Err(rejection) => return respond(Ok(refuse(&rejection.body_text()))),
    };
    let timeout = wait.timeout_ms.unwrap_or(WAIT_MS_DEFAULT).min(WAIT_MS_MAX);
    let waited = app
        .wait(wait.wait_for, wait.count, wait.operation.as_deref(), Duration::from_millis(timeout))
        .await;
    respond(waited.map(|(reached, count)| {
        Answer::new(
            if reached { 200 } else { 504 },
            json!({ "for": wait.wait_for, "reached": reached, "count": count }),
        )
    }))
}

async fn clock(State(app): State<Shared>) -> Response {
    respond(Ok(Answer::new(200, clock_json(&app))))
}

fn clock_json(app: &App) -> Value {
    json!({ "now_ms": app.clock.now_ms(), "offset_ms": app.clock.offset_ms() })
}

async fn advance_clock(
    State(app): State<Shared>,
    body: Result<Json<ClockBody>, JsonRejection>,
) -> Response {
    match body {
        Ok(Json(ClockBody { advance_ms })) => respond(
            app.advance_clock(advance_ms).await.map(|()| Answer::new(200, clock_json(&app))),
        ),
        Err(rejection) => respond(Ok(refuse(&rejection.body_text()))),
    }
}

async fn set_script(
    State(app): State<Shared>,
    body: Result<Json<ScriptBody>, JsonRejection>,
) -> Response {
    let lines = match body {
        Ok(Json(ScriptBody { lines })) if lines.len() <= SCRIPT_LINES_MAX => lines,
        Ok(_) => {
            let message = format!("a script has at most {SCRIPT_LINES_MAX} lines");
            return respond(Ok(refuse(&message)));
        }
        Err(rejection) => return respond(Ok(refuse(&rejection.body_text()))),
    };
    let stored = app.store.set_script(&lines).await;
    respond(stored.map(|()| Answer::new(200, json!({ "lines": lines.len() }))))
}

impl App {
    /// Forgets everything. What is being worked on commits nothing any more.
    pub(crate) async fn reset(self: &Arc<Self>) -> Result<(), StoreError> {
        self.store.reset().await?;
        self.switches.forget();
        self.clock.set_offset_ms(0);
        self.go_on();
        Ok(())
    }

    /// Continues every reply that is paused, and every one whose effect is committed already. Tells how many were paused.
    pub(crate) fn go_on(&self) -> u64 {
        let paused = self.paused.load(Ordering::SeqCst);
        self.continued.send_modify(|n| *n += 1);
        paused
    }

    /// Moves the clock, which decides about lags and forgotten keys; delays are not shortened by it.
    pub(crate) async fn advance_clock(&self, ms: i64) -> Result<(), StoreError> {
        let offset_ms = self.clock.offset_ms().saturating_add(ms);
        self.store.set_clock_offset_ms(offset_ms).await?;
        self.clock.set_offset_ms(offset_ms);
        Ok(())
    }

    /// Waits until the count is reached or the time is over. Tells which, and the count.
    pub(crate) async fn wait(
        &self,
        wait_for: WaitFor,
        count: u64,
        operation: Option<&str>,
        timeout: Duration,
    ) -> Result<(bool, u64), StoreError> {
        let mut changed = self.changed.subscribe();
        let end = tokio::time::sleep(timeout);
        tokio::pin!(end);
        loop {
            changed.mark_unchanged();
            let now = match wait_for {
                WaitFor::Received => self.store.received(operation).await?,
                WaitFor::Committed => self.store.committed(operation).await?,
                WaitFor::Settled => self.store.settled(operation).await?,
                WaitFor::Paused => self.paused.load(Ordering::SeqCst),
            };
            if now >= count {
                return Ok((true, now));
            }
            tokio::select! {
                told = changed.changed() => if told.is_err() { return Ok((false, now)) },
                () = &mut end => return Ok((false, now)),
                () = self.stopped() => return Ok((false, now)),
            }
        }
    }
}
