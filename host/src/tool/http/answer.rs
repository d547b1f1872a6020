//! Reads a response: head, the headers that may be kept, and a body that is bounded, strictly parsed and redacted.

use std::collections::BTreeSet;

use serde_json::Value;
use twice_core::limits::{EXCERPT_BYTES_MAX, RESPONSE_BYTES_MAX};
use twice_core::outcome::{Answer, Body, Declarations, Fault};
use twice_core::redact::Redactor;
use twice_workflow::schema::Schema;

use super::fault;
use super::request::digest;

/// Headers kept of every answer, besides those that the operation's matchers name.
const KEPT: [&str; 17] = [
    "cf-ray",
    "content-length",
    "content-type",
    "date",
    "idempotent-replayed",
    "link",
    "location",
    "paypal-debug-id",
    "request-id",
    "retry-after",
    "stripe-should-retry",
    "transient-error",
    "x-amzn-requestid",
    "x-correlation-id",
    "x-idempotency-lookup",
    "x-ratelimit-reset",
    "x-request-id",
];
/// Never kept, whoever names them: they are credentials.
const NEVER_KEPT: [&str; 2] = ["set-cookie", "www-authenticate"];
/// Most of one header's value that is kept. Bytes.
const HEADER_BYTES_MAX: usize = 1024;
/// Most of what a schema's validator says that is kept. Bytes.
const SCHEMA_ERROR_BYTES_MAX: usize = 500;

/// What an answer is read by.
pub(super) struct Reading<'a> {
    pub(super) watched: &'a BTreeSet<String>,
    pub(super) bytes_max: u64,
    pub(super) schema: Option<&'a Value>,
}

/// The headers that an operation's matchers look at, in lower case.
pub(super) fn watched_headers(declarations: &Declarations) -> BTreeSet<String> {
    [
        &declarations.succeeded,
        &declarations.pending,
        &declarations.refused,
        &declarations.not_processed,
        &declarations.in_flight,
        &declarations.mismatch,
        &declarations.duplicate,
        &declarations.replayed,
    ]
    .into_iter()
    .flatten()
    .filter_map(|matcher| matcher.header.as_ref())
    .map(|name| name.to_ascii_lowercase())
    .collect()
}

/// Reads the rest of a response whose head is there. What it returns is not redacted yet.
pub(super) async fn read(
    mut response: reqwest::Response,
    reading: &Reading<'_>,
) -> Result<Answer, Fault> {
    let status = response.status().as_u16();
    let headers = kept_headers(&response, reading.watched);
    let cap = reading.bytes_max.min(RESPONSE_BYTES_MAX);
    let mut bytes = Vec::new();
    let mut too_large = response.content_length().is_some_and(|length| length > cap);
    while bytes.len() as u64 <= cap {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => break,
            // Too large already by its own account: that it did not come whole changes nothing.
            Err(_) if too_large => break,
            Err(error) => return Err(fault::in_body(&error, status)),
        }
    }
    // The connection is closed here if there is more: it must not be used again with a body still in it.
    drop(response);
    too_large = too_large || bytes.len() as u64 > cap;
    let mut answer = judge_body(status, bytes, too_large.then_some(cap), reading.schema);
    answer.headers = headers;
    Ok(answer)
}

fn judge_body(status: u16, bytes: Vec<u8>, cut: Option<u64>, schema: Option<&Value>) -> Answer {
    let mut answer = Answer {
        status,
        headers: Vec::new(),
        body: Body::Empty,
        body_hash: None,
        schema_error: None,
    };
    if let Some(cap) = cut {
        let excerpt = String::from_utf8_lossy(&bytes).into_owned();
        answer.body = Body::TooLarge { excerpt, cap };
    } else if !bytes.is_empty() {
        match parse(&bytes) {
            Ok(value) => {
                // The schema is that of a success; the body of a refusal is of another kind.
                answer.schema_error = schema
                    .filter(|_| (200..300).contains(&status))
                    .and_then(|schema| schema_error(schema, &value));
                answer.body = Body::Json(value);
            }
            Err(problem) => {
                let excerpt = String::from_utf8_lossy(&bytes).into_owned();
                answer.body = Body::NotJson { excerpt, problem };
            }
        }
    }
    answer.body_hash = (!bytes.is_empty()).then(|| digest(&bytes));
    answer
}

/// Takes secrets out of an answer and cuts its excerpts, in this order: a cut through a secret would leave a part of it
/// that no search finds. Where reading itself stopped, the end may be such a part, so as much as the longest secret can
/// take (`secret_bytes_max`, each byte written as `\\u00xx`) is left out.
pub(super) fn redact(redactor: &Redactor, answer: &mut Answer, secret_bytes_max: usize) {
    for (_, value) in &mut answer.headers {
        *value = cut(redactor.text(value), HEADER_BYTES_MAX);
    }
    if let Some(error) = &mut answer.schema_error {
        *error = cut(redactor.text(error), SCHEMA_ERROR_BYTES_MAX);
    }
    match &mut answer.body {
        Body::Empty => {}
        Body::Json(value) => redactor.value(value),
        Body::NotJson { excerpt, problem } => {
            *excerpt = cut(redactor.text(excerpt), EXCERPT_BYTES_MAX);
            *problem = cut(redactor.text(problem), SCHEMA_ERROR_BYTES_MAX);
        }
        Body::TooLarge { excerpt, cap } => {
            let text = redactor.text(excerpt);
            let whole = text.len().saturating_sub(secret_bytes_max.saturating_mul(6));
            let cap = usize::try_from(*cap).unwrap_or(usize::MAX);
            *excerpt = cut(text, whole.min(cap).min(EXCERPT_BYTES_MAX));
        }
    }
}

fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

fn kept_headers(response: &reqwest::Response, watched: &BTreeSet<String>) -> Vec<(String, String)> {
    response
        .headers()
        .iter()
        .filter(|(name, _)| {
            let name = name.as_str();
            (KEPT.contains(&name) || watched.contains(name)) && !NEVER_KEPT.contains(&name)
        })
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect()
}

fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))?;
    twice_core::json::parse(text, bytes.len()).map_err(|error| error.to_string())
}

fn schema_error(schema: &Value, value: &Value) -> Option<String> {
    let problems = match Schema::compile(schema) {
        Ok(schema) => schema.check(value).err()?,
        Err(error) => return Some(format!("the operation's response schema: {error}")),
    };
    let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Some(words.join("; "))
}
