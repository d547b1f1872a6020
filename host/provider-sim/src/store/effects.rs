//! Finding effects.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Row;

use super::{Doing, Store, StoreError};
use crate::operation::Operation;

/// An object in the provider's books, and how it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Position in the books, rising.
    pub seq: i64,
    /// Its id.
    pub id: String,
    /// The operation that made it, e.g. `refund`.
    pub operation: String,
    /// The business object it is about; of an object that changed another one, the id of that.
    pub object: String,
    /// The caller's reference.
    pub reference: Option<String>,
    /// The idempotency key it was made under.
    pub idempotency_key: Option<String>,
    /// Its status, e.g. `authorized` or `voided`.
    pub status: Option<String>,
    /// The id of the object that gave it a status other than its first, e.g. of a void.
    pub changed_by: Option<String>,
}

/// What a listing asks for. Every field that is set narrows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) id: Option<String>,
    pub(crate) reference: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) object: Option<String>,
    /// Text that occurs in the title, body or reference, whatever the case.
    pub(crate) text: Option<String>,
    /// Only what was committed at this instant or before. Milliseconds since the epoch.
    pub(crate) until_ms: Option<i64>,
    /// Only what follows the object with this id.
    pub(crate) after: Option<String>,
    pub(crate) limit: i64,
}

impl Store {
    /// The objects that match, oldest first.
    pub(crate) async fn find(
        &self,
        operation: Operation,
        filter: &Filter,
    ) -> Result<Vec<Value>, StoreError> {
        let bodies: Vec<String> = sqlx::query_scalar(
            "SELECT body FROM effect \
             WHERE operation = $1 \
               AND ($2 IS NULL OR id = $2) \
               AND ($3 IS NULL OR reference = $3) \
               AND ($4 IS NULL OR key = $4) \
               AND ($5 IS NULL OR object = $5) \
               AND ($6 IS NULL OR instr(lower(coalesce(json_extract(body, '$.title'), '') || char(10) || \
                    coalesce(json_extract(body, '$.body'), '') || char(10) || \
                    coalesce(reference, '')), lower($6)) > 0) \
               AND ($7 IS NULL OR created_ms <= $7) \
               AND ($8 IS NULL OR seq > (SELECT seq FROM effect WHERE id = $8)) \
             ORDER BY seq LIMIT $9",
        )
        .bind(operation.as_str())
        .bind(&filter.id)
        .bind(&filter.reference)
        .bind(&filter.key)
        .bind(&filter.object)
        .bind(&filter.text)
        .bind(filter.until_ms)
        .bind(&filter.after)
        .bind(filter.limit)
        .fetch_all(&self.pool)
        .await
        .doing("list effects")?;
        bodies.iter().map(|body| super::settings::parse(body, "effect", "body")).collect()
    }

    /// The books after a position, oldest first.
    pub(crate) async fn objects(&self, after: i64, limit: i64) -> Result<Vec<Object>, StoreError> {
        let rows = sqlx::query(
            "SELECT seq, id, operation, object, reference, key, \
                    json_extract(body, '$.status') AS status, \
                    json_extract(body, '$.changed_by') AS changed_by \
             FROM effect WHERE seq > $1 ORDER BY seq LIMIT $2",
        )
        .bind(after)
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .doing("list objects")?;
        let object = |row: sqlx::sqlite::SqliteRow| Object {
            seq: row.get("seq"),
            id: row.get("id"),
            operation: row.get("operation"),
            object: row.get("object"),
            reference: row.get("reference"),
            idempotency_key: row.get("key"),
            status: row.get("status"),
            changed_by: row.get("changed_by"),
        };
        Ok(rows.into_iter().map(object).collect())
    }

    /// How many effects were committed since the last reset, of one operation or of all.
    pub(crate) async fn committed(&self, operation: Option<&str>) -> Result<u64, StoreError> {
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM effect WHERE ($1 IS NULL OR operation = $1)")
                .bind(operation)
                .fetch_one(&self.pool)
                .await
                .doing("count effects")?;
        Ok(count.unsigned_abs())
    }
}
