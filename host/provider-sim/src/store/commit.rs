//! Making an effect, together with the answer kept under its key: one transaction.

use serde_json::{Map, Value};
use sqlx::{Row, Sqlite, Transaction};

use super::{Doing, Store, StoreError};
use crate::operation::Operation;

/// An effect about to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewEffect {
    pub(crate) operation: Operation,
    /// The business object it is about; empty when each effect is an object of its own.
    pub(crate) object: String,
    /// The caller's reference.
    pub(crate) reference: Option<String>,
    /// The resource as answered, without `id` and `created`.
    pub(crate) body: Map<String, Value>,
    /// What else changes with it.
    pub(crate) change: Change,
}

/// What changes together with a new effect.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// Nothing.
    Nothing,
    /// The status of an earlier object of this operation and id, if it is the one to start from.
    Status { of: Operation, id: String, from: &'static str, to: &'static str },
    /// The model moves on to the next line of its script.
    NextLine,
}

/// What is kept under the key.
#[derive(Debug, Clone)]
pub(crate) struct SavedAs {
    pub(crate) key: String,
    pub(crate) fingerprint: String,
    /// `None`: the 201 with the object; otherwise this status and body.
    pub(crate) instead: Option<(u16, Value)>,
}

/// One commit.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    pub(crate) effect: NewEffect,
    /// The key given, recorded on the object whether it is honoured or not.
    pub(crate) key: Option<String>,
    /// The answer to keep; `None` when keys are not honoured.
    pub(crate) saved: Option<SavedAs>,
    /// The epoch in which the request arrived.
    pub(crate) epoch: u64,
    pub(crate) now_ms: i64,
}

/// What was committed.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) body: Value,
}

/// Why nothing was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such object.
    Absent { id: String },
    /// The object has another status than the one to start from, since that change.
    Already { id: String, status: String, changed_by: Option<String> },
    /// There was a reset since the request arrived.
    Outdated,
}

/// The answer kept under a key.
#[derive(Debug, Clone)]
pub(crate) struct Saved {
    pub(crate) fingerprint: String,
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) effect_id: Option<String>,
    pub(crate) created_ms: i64,
}

impl Store {
    /// Makes the effect and keeps its answer, or does nothing.
    pub(crate) async fn commit(
        &self,
        commit: Commit,
    ) -> Result<Result<Committed, Refusal>, StoreError> {
        let Commit { effect, key, saved, epoch, now_ms } = commit;
        let mut tx = self.begin().await?;
        if self.epoch() != epoch {
            return Ok(Err(Refusal::Outdated));
        }
        let earlier = count(&mut tx, effect.operation).await?;
        let id = format!("{}_{:06}", effect.operation.id_prefix(), earlier + 1);
        let mut body = effect.body;
        match &effect.change {
            Change::Nothing => {}
            Change::Status { of, id: changed, from, to } => {
                let change = StatusChange { of: *of, id: changed, from, to, by: &id };
                if let Err(refusal) = change.make(&mut tx).await? {
                    return Ok(Err(refusal));
                }
            }
            Change::NextLine => {
                body.insert("call".to_owned(), Value::from(earlier + 1));
                let script = super::settings::script(&mut tx).await?;
                body.insert("output".to_owned(), line(&script, earlier));
            }
        }
        body.insert("id".to_owned(), Value::from(id.clone()));
        body.insert("created".to_owned(), Value::from(now_ms));
        let body = Value::Object(body);
        sqlx::query(
            "INSERT INTO effect (id, operation, object, reference, key, body, created_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(&id)
        .bind(effect.operation.as_str())
        .bind(if effect.object.is_empty() { &id } else { &effect.object })
        .bind(&effect.reference)
        .bind(&key)
        .bind(body.to_string())
        .bind(now_ms)
        .execute(&mut *tx)
        .await
        .doing("insert an effect")?;
        if let Some(saved) = saved {
            let (status, answer) = saved.instead.clone().unwrap_or_else(|| (201, body.clone()));
            save(&mut tx, &saved, status, &answer, Some(&id), now_ms).await?;
        }
        tx.commit().await.doing("commit an effect")?;
        Ok(Ok(Committed { body }))
    }

    /// Keeps an answer that made no effect; keeps nothing when there was a reset since the request arrived.
    pub(crate) async fn save_answer(
        &self,
        saved: &SavedAs,
        status: u16,
        answer: &Value,
        epoch: u64,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        if self.epoch() != epoch {
            return Ok(());
        }
        save(&mut tx, saved, status, answer, None, now_ms).await?;
        tx.commit().await.doing("commit a saved answer")
    }

    /// The answer kept under a key.
    pub(crate) async fn saved(&self, key: &str) -> Result<Option<Saved>, StoreError> {
        let row = sqlx::query(
            "SELECT fingerprint, status, body, effect_id, created_ms FROM idempotency WHERE key = $1",
        )
        .bind(key)
        .fetch_optional(&self.pool)
        .await
        .doing("read a saved answer")?;
        let Some(row) = row else { return Ok(None) };
        let body: String = row.get("body");
        Ok(Some(Saved {
            fingerprint: row.get("fingerprint"),
            status: row.get("status"),
            body: super::settings::parse(&body, "idempotency", "body")?,
            effect_id: row.get("effect_id"),
            created_ms: row.get("created_ms"),
        }))
    }
}

/// The caller holds the key and has seen that nothing valid is kept under it, so a row found here is a forgotten one.
async fn save(
    tx: &mut Transaction<'static, Sqlite>,
    saved: &SavedAs,
    status: u16,
    answer: &Value,
    effect_id: Option<&str>,
    now_ms: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT OR REPLACE INTO idempotency (key, fingerprint, status, body, effect_id, created_ms) \
         VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(&saved.key)
    .bind(&saved.fingerprint)
    .bind(status)
    .bind(answer.to_string())
    .bind(effect_id)
    .bind(now_ms)
    .execute(&mut **tx)
    .await
    .doing("save an answer")
    .map(|_| ())
}

async fn count(
    tx: &mut Transaction<'static, Sqlite>,
    operation: Operation,
) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT count(*) FROM effect WHERE operation = $1")
        .bind(operation.as_str())
        .fetch_one(&mut **tx)
        .await
        .doing("count effects")
}

/// A change of an object's status.
struct StatusChange<'a> {
    of: Operation,
    id: &'a str,
    from: &'a str,
    to: &'a str,
    /// The id of what makes the change.
    by: &'a str,
}

impl StatusChange<'_> {
    async fn make(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
    ) -> Result<Result<(), Refusal>, StoreError> {
        let Self { of, id, from, to, by } = *self;
        let body: Option<String> =
            sqlx::query_scalar("SELECT body FROM effect WHERE id = $1 AND operation = $2")
                .bind(id)
                .bind(of.as_str())
                .fetch_optional(&mut **tx)
                .await
                .doing("read an object")?;
        let Some(body) = body else { return Ok(Err(Refusal::Absent { id: id.to_owned() })) };
        let mut body: Map<String, Value> = super::settings::parse(&body, "effect", "body")?;
        let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        let status = text("status").unwrap_or_default();
        if status != from {
            let changed_by = text("changed_by");
            return Ok(Err(Refusal::Already { id: id.to_owned(), status, changed_by }));
        }
        body.insert("status".to_owned(), Value::from(to));
        body.insert("changed_by".to_owned(), Value::from(by));
        sqlx::query("UPDATE effect SET body = $1 WHERE id = $2")
            .bind(Value::Object(body).to_string())
            .bind(id)
            .execute(&mut **tx)
            .await
            .doing("change an object")?;
        Ok(Ok(()))
    }
}

/// The line at this position; the script starts over at its end. Without a script each line tells its number.
fn line(script: &[Value], position: i64) -> Value {
    let position = usize::try_from(position).unwrap_or(0);
    match script.len() {
        0 => Value::from(format!("line {}", position + 1)),
        length => script[position % length].clone(),
    }
}
