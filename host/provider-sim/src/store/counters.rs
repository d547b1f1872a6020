//! Counters: what arrived, what was done, and what was done too often.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::Row;

use super::{Doing, Store, StoreError};

/// What the provider counted since the last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Effects committed, of all operations.
    pub effects: u64,
    /// Sum of the operations' `duplicates`.
    pub duplicates: u64,
    /// By operation, e.g. `refund`.
    pub operations: BTreeMap<String, OperationCounters>,
}

/// The counters of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCounters {
    /// Requests that arrived in full, whatever became of them.
    pub requests: u64,
    /// Of these, requests without an idempotency key.
    pub requests_without_key: u64,
    /// Of these, requests by their idempotency key.
    pub deliveries_per_key: BTreeMap<String, u64>,
    /// What became of them: `answered`, `replayed`, `dropped`, `client_gone`.
    pub outcomes: BTreeMap<String, u64>,
    /// Effects committed.
    pub effects: u64,
    /// Effects by business object.
    pub effects_per_object: BTreeMap<String, u64>,
    /// Effects beyond the first of each business object. Model calls have none: each line is one.
    pub duplicates: u64,
    /// Effects beyond the first of each reference.
    pub duplicate_references: u64,
}

impl Store {
    /// All counters, read at one instant.
    pub(crate) async fn counters(&self) -> Result<Counters, StoreError> {
        let mut tx = self.begin().await?;
        let mut counters = Counters::default();
        let received = sqlx::query("SELECT operation, key, requests FROM received")
            .fetch_all(&mut *tx)
            .await
            .doing("read the requests counted")?;
        for row in received {
            let requests = row.get::<i64, _>("requests").unsigned_abs();
            let operation = counters.operations.entry(row.get("operation")).or_default();
            operation.requests += requests;
            let key: String = row.get("key");
            if key.is_empty() {
                operation.requests_without_key += requests;
            } else {
                operation.deliveries_per_key.insert(key, requests);
            }
        }
        let outcomes = sqlx::query("SELECT operation, outcome, requests FROM outcome")
            .fetch_all(&mut *tx)
            .await
            .doing("read the outcomes counted")?;
        for row in outcomes {
            let operation = counters.operations.entry(row.get("operation")).or_default();
            let requests = row.get::<i64, _>("requests").unsigned_abs();
            operation.outcomes.insert(row.get("outcome"), requests);
        }
        let effects = sqlx::query(
            "SELECT operation, object, count(*) AS effects FROM effect GROUP BY operation, object",
        )
        .fetch_all(&mut *tx)
        .await
        .doing("count effects by object")?;
        for row in effects {
            let operation = counters.operations.entry(row.get("operation")).or_default();
            let effects = row.get::<i64, _>("effects").unsigned_abs();
            operation.effects += effects;
            operation.duplicates += effects - 1;
            counters.effects += effects;
            counters.duplicates += effects - 1;
            operation.effects_per_object.insert(row.get("object"), effects);
        }
        let references = sqlx::query(
            "SELECT operation, count(*) - count(DISTINCT reference) AS repeated FROM effect \
             WHERE reference IS NOT NULL GROUP BY operation",
        )
        .fetch_all(&mut *tx)
        .await
        .doing("count effects by reference")?;
        for row in references {
            let operation = counters.operations.entry(row.get("operation")).or_default();
            operation.duplicate_references = row.get::<i64, _>("repeated").unsigned_abs();
        }
        Ok(counters)
    }
}
