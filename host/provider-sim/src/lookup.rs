//! Questions: finding what was made, as well or badly as the switches let it be found.

use std::collections::BTreeMap;

use serde_json::json;

use crate::fault::Fault;
use crate::limits::{DELAY_MS_MAX, PAGE_DEFAULT, PAGE_MAX, TICKET_SEARCH_LAG_MS};
use crate::operation::{Invalid, Operation};
use crate::perform::{Early, early, spoil};
use crate::reply::{Answer, Reply};
use crate::server::App;
use crate::store::{Filter, StoreError};

/// How objects are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A list, read from the system of record.
    List,
    /// One object by its id.
    ById,
    /// A search index, which is behind.
    Search,
}

/// A question.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) of: Operation,
    pub(crate) kind: Kind,
    pub(crate) path: String,
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) query: BTreeMap<String, String>,
}

/// Answers a question.
pub(crate) async fn look(app: &App, question: &Question) -> Result<Reply, StoreError> {
    let path = question.path.as_str();
    match early(app, "GET", path).await? {
        Early::Go => {}
        Early::Answer(answer) => return Ok(Reply::Answer(answer)),
        Early::Reset => return Ok(Reply::Reset),
    }
    let switches = &app.switches;
    if let Some(fired) = switches.fire(Fault::DelayMs, "GET", path).await? {
        let ms = fired.value.as_u64().unwrap_or(0).min(DELAY_MS_MAX);
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }
    if switches.fire(Fault::NoLookup, "GET", path).await?.is_some() {
        return Ok(Reply::Answer(Answer::error(404, "unknown_route", "there is no such route")));
    }
    if let Some(fired) = switches.fire(Fault::LookupError, "GET", path).await? {
        let status = fired.value.as_u64().and_then(|s| u16::try_from(s).ok()).unwrap_or(503);
        return Ok(Reply::Answer(Answer::error(status, "lookup_failed", "try again later")));
    }
    let mut filter = match filter(question) {
        Ok(filter) => filter,
        Err(invalid) => return Ok(Reply::Answer(Answer::invalid(&invalid))),
    };
    let default_lag = (question.kind == Kind::Search).then_some(TICKET_SEARCH_LAG_MS);
    let lag = switches.fire(Fault::LookupLagMs, "GET", path).await?;
    if let Some(lag_ms) = lag.and_then(|fired| fired.value.as_u64()).or(default_lag) {
        let lag_ms = i64::try_from(lag_ms).unwrap_or(i64::MAX);
        filter.until_ms = Some(app.clock.now_ms().saturating_sub(lag_ms));
    }
    let flapping = switches.fire(Fault::LookupFlapping, "GET", path).await?;
    let mut found = if flapping.is_some_and(|fired| fired.nth % 2 == 1) {
        Vec::new()
    } else {
        // One more than asked for tells whether there are more.
        let limit = filter.limit + 1;
        app.store.find(question.of, &Filter { limit, ..filter.clone() }).await?
    };
    let asked = usize::try_from(filter.limit).unwrap_or(0);
    let has_more = found.len() > asked;
    found.truncate(asked);
    let answer = match question.kind {
        Kind::List | Kind::Search => {
            Answer::new(200, json!({ "data": found, "has_more": has_more }))
        }
        Kind::ById => match found.into_iter().next() {
            Some(object) => Answer::new(200, object),
            None => Answer::error(404, "not_found", "there is no such object"),
        },
    };
    if answer.status == 200 {
        return Ok(Reply::Answer(spoil(app, "GET", path, answer).await?));
    }
    Ok(Reply::Answer(answer))
}

/// Reads the query. A parameter that is not known is refused: ignoring it would answer another question.
fn filter(question: &Question) -> Result<Filter, Invalid> {
    let refuse = |message: String| Invalid { code: "parameter_invalid", message };
    let mut filter =
        Filter { id: question.params.get("id").cloned(), limit: PAGE_DEFAULT, ..Filter::default() };
    for (name, value) in &question.query {
        let value = value.clone();
        match (name.as_str(), question.kind) {
            ("reference", Kind::List) => filter.reference = Some(value),
            ("idempotency_key", Kind::List) => filter.key = Some(value),
            ("order_id", Kind::List) if question.of.is_about_an_order() => {
                filter.object = Some(value);
            }
            ("q", Kind::Search) => filter.text = Some(value),
            ("starting_after", Kind::List | Kind::Search) => filter.after = Some(value),
            ("limit", Kind::List | Kind::Search) => {
                filter.limit =
                    value.parse().ok().filter(|n| (1..=PAGE_MAX).contains(n)).ok_or_else(|| {
                        refuse(format!("limit must be a number from 1 to {PAGE_MAX}"))
                    })?;
            }
            _ => return Err(refuse(format!("there is no parameter `{name}` here"))),
        }
    }
    if question.kind == Kind::Search && filter.text.as_ref().is_none_or(String::is_empty) {
        return Err(Invalid { code: "parameter_missing", message: "q is required".to_owned() });
    }
    Ok(filter)
}
