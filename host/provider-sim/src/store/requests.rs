//! The log of requests. Headers that carry credentials are kept by name only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::Row;

use super::{Doing, Store, StoreError};
use crate::limits::LOG_LENGTH_MAX;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) at_ms: i64,
    pub(crate) operation: &'static str,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) key: Option<String>,
    pub(crate) body_hash: String,
    pub(crate) body_bytes: i64,
}

/// One request in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Position in the log, rising; the log keeps the latest ones.
    pub seq: i64,
    /// When it had arrived in full. Milliseconds since the epoch, by the simulator's clock.
    pub at_ms: i64,
    /// The operation, e.g. `refund`.
    pub operation: String,
    /// The method.
    pub method: String,
    /// The path as sent.
    pub path: String,
    /// The query as sent, without `?`.
    pub query: String,
    /// The headers, names in lower case; the value of a credential is replaced by `(redacted)`.
    pub headers: BTreeMap<String, String>,
    /// The idempotency key, unquoted.
    pub idempotency_key: Option<String>,
    /// `sha256:` and the digest of the exact body bytes.
    pub body_hash: String,
    /// Length of the body. Bytes.
    pub body_bytes: i64,
    /// What became of it; `None` while it is being worked on.
    pub outcome: Option<Outcome>,
    /// The status of the answer; `None` when there was none.
    pub status: Option<u16>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was answered.
    Answered,
    /// It was answered with what is kept under its key.
    Replayed,
    /// Its connection was reset on purpose.
    Dropped,
    /// It could have been answered, but the client was gone.
    ClientGone,
}

impl Outcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Replayed => "replayed",
            Self::Dropped => "dropped",
            Self::ClientGone => "client_gone",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Answered, Self::Replayed, Self::Dropped, Self::ClientGone]
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }
}

impl Store {
    /// Logs and counts a request, before anything is done about it.
    pub(crate) async fn arrive(&self, arrival: &Arrival) -> Result<i64, StoreError> {
        let headers =
            serde_json::to_string(&arrival.headers).expect("a map of texts always has a JSON form");
        let mut tx = self.begin().await?;
        let seq: i64 = sqlx::query_scalar(
            "INSERT INTO request \
               (at_ms, operation, method, path, query, headers, key, body_hash, body_bytes) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING seq",
        )
        .bind(arrival.at_ms)
        .bind(arrival.operation)
        .bind(&arrival.method)
        .bind(&arrival.path)
        .bind(&arrival.query)
        .bind(headers)
        .bind(&arrival.key)
        .bind(&arrival.body_hash)
        .bind(arrival.body_bytes)
        .fetch_one(&mut *tx)
        .await
        .doing("log a request")?;
        sqlx::query("DELETE FROM request WHERE seq <= $1")
            .bind(seq - LOG_LENGTH_MAX)
            .execute(&mut *tx)
            .await
            .doing("cut the log")?;
        sqlx::query(
            "INSERT INTO received (operation, key, requests) VALUES ($1, $2, 1) \
             ON CONFLICT (operation, key) DO UPDATE SET requests = requests + 1",
        )
        .bind(arrival.operation)
        .bind(arrival.key.as_deref().unwrap_or_default())
        .execute(&mut *tx)
        .await
        .doing("count a request")?;
        tx.commit().await.doing("commit a request")?;
        Ok(seq)
    }

    /// Logs and counts what became of a request.
    pub(crate) async fn settle(
        &self,
        seq: i64,
        operation: &str,
        outcome: Outcome,
        status: Option<u16>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let known = sqlx::query("UPDATE request SET outcome = $1, status = $2 WHERE seq = $3")
            .bind(outcome.as_str())
            .bind(status)
            .bind(seq)
            .execute(&mut *tx)
            .await
            .doing("log an outcome")?;
        // Gone with a reset: its request is not counted any more, so neither is its outcome.
        if known.rows_affected() == 0 {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO outcome (operation, outcome, requests) VALUES ($1, $2, 1) \
             ON CONFLICT (operation, outcome) DO UPDATE SET requests = requests + 1",
        )
        .bind(operation)
        .bind(outcome.as_str())
        .execute(&mut *tx)
        .await
        .doing("count an outcome")?;
        tx.commit().await.doing("commit an outcome")
    }

    /// The log after a position, oldest first.
    pub(crate) async fn requests(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Vec<Request>, StoreError> {
        let rows = sqlx::query("SELECT * FROM request WHERE seq > $1 ORDER BY seq LIMIT $2")
            .bind(after)
            .bind(limit)
            .fetch_all(&self.pool)
            .await
            .doing("list requests")?;
        rows.into_iter()
            .map(|row| {
                let headers: String = row.get("headers");
                let outcome: Option<String> = row.get("outcome");
                Ok(Request {
                    seq: row.get("seq"),
                    at_ms: row.get("at_ms"),
                    operation: row.get("operation"),
                    method: row.get("method"),
                    path: row.get("path"),
                    query: row.get("query"),
                    headers: super::settings::parse(&headers, "request", "headers")?,
                    idempotency_key: row.get("key"),
                    body_hash: row.get("body_hash"),
                    body_bytes: row.get("body_bytes"),
                    outcome: outcome.as_deref().and_then(Outcome::parse),
                    status: row.get("status"),
                })
            })
            .collect()
    }

    /// How many requests were answered or dropped since the last reset, of one operation or of all.
    pub(crate) async fn settled(&self, operation: Option<&str>) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT coalesce(sum(requests), 0) FROM outcome \
             WHERE ($1 IS NULL OR operation = $1)",
        )
        .bind(operation)
        .fetch_one(&self.pool)
        .await
        .doing("count outcomes")?;
        Ok(count.unsigned_abs())
    }

    /// How many requests arrived since the last reset, for one operation or all.
    pub(crate) async fn received(&self, operation: Option<&str>) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT coalesce(sum(requests), 0) FROM received \
             WHERE ($1 IS NULL OR operation = $1)",
        )
        .bind(operation)
        .fetch_one(&self.pool)
        .await
        .doing("count requests")?;
        Ok(count.unsigned_abs())
    }
}
