//! A tool in the same process that answers at once: what is left is the price of Twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use twice::tool::{AnyRequest, Call, Driver, Gate, PrepareError, Prepared};
use twice_core::event::ProbeResult;
use twice_core::identity::{hash_text, tagged_sha256};
use twice_core::json;
use twice_core::outcome::{Answer, Body, Exchange, Fault, FaultKind, Sent};
use twice_workflow::model::Tool;

/// Answers requests as a payment service answers a refund.
#[derive(Debug, Clone)]
pub(super) struct InstantTool {
    answers: Answers,
    /// How many requests have come in.
    requests: Arc<AtomicU32>,
    answered: Arc<AtomicU32>,
}

#[derive(Debug, Clone)]
enum Answers {
    AtOnce,
    /// When there is a permit for each.
    Later(Arc<Semaphore>),
    /// 429, try again in an hour.
    Refusal,
}

impl InstantTool {
    /// Answers at once.
    pub(super) fn answering() -> Self {
        Self::with(Answers::AtOnce)
    }

    /// Answers as many requests as there are permits; the others wait.
    pub(super) fn holding(permits: Arc<Semaphore>) -> Self {
        Self::with(Answers::Later(permits))
    }

    /// Has no time for anybody.
    pub(super) fn busy() -> Self {
        Self::with(Answers::Refusal)
    }

    fn with(answers: Answers) -> Self {
        Self { answers, requests: Arc::default(), answered: Arc::default() }
    }

    /// How many requests wait for an answer.
    pub(super) fn held(&self) -> u32 {
        self.requests.load(Ordering::Acquire) - self.answered.load(Ordering::Acquire)
    }
}

fn digest(text: &str) -> String {
    hash_text(&tagged_sha256("bench/body", text.as_bytes()))
}

#[async_trait]
impl Driver for InstantTool {
    type Request = AnyRequest;

    fn prepare(&self, call: &Call<'_>) -> Result<Prepared<AnyRequest>, PrepareError> {
        let body = json!({ "args": call.args, "reference": call.effect.as_str() });
        let stored = json!({
            "method": "POST",
            "url": "http://payments.test/v1/refunds",
            "headers": { "content-type": "application/json", "idempotency-key": call.key },
            "body": body,
        });
        let body_hash = digest(&json::canonical(&body));
        Ok(Prepared { stored, body_hash, request: AnyRequest::InProcess(body) })
    }

    fn learn_secrets(&self, _tool: &Tool) {}

    fn holds_secret(&self, _value: &Value) -> bool {
        false
    }

    async fn send(&self, request: AnyRequest, _gate: Gate) -> Exchange {
        let AnyRequest::InProcess(body) = request else {
            let message = "only requests of this tool are answered here".to_owned();
            let fault = Fault { kind: FaultKind::Build, status: None, message };
            return Exchange { sent: Sent::Nothing, result: Err(fault) };
        };
        self.requests.fetch_add(1, Ordering::AcqRel);
        match &self.answers {
            Answers::AtOnce => {}
            Answers::Later(permits) => {
                if let Ok(permit) = permits.acquire().await {
                    permit.forget();
                }
            }
            Answers::Refusal => return refusal(),
        }
        self.answered.fetch_add(1, Ordering::AcqRel);
        let result = json!({
            "id": "re_8f14e45fceea167a",
            "object": "refund",
            "status": "succeeded",
            "amount_cents": 4200,
            "reference": body["reference"],
        });
        let answer = Answer {
            status: 200,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body_hash: Some(digest(&json::canonical(&result))),
            body: Body::Json(result),
            schema_error: None,
        };
        Exchange { sent: Sent::Maybe, result: Ok(answer) }
    }

    async fn lookup(&self, _call: &Call<'_>) -> (Value, ProbeResult) {
        (Value::Null, ProbeResult::Miss)
    }
}

fn refusal() -> Exchange {
    let answer = Answer {
        status: 429,
        headers: vec![("retry-after".to_owned(), "3600".to_owned())],
        body: Body::Empty,
        body_hash: None,
        schema_error: None,
    };
    Exchange { sent: Sent::Maybe, result: Ok(answer) }
}
