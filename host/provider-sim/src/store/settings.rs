//! Switches, the model's script and the clock's offset, and the way back to nothing.

use std::sync::atomic::Ordering;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::{Sqlite, Transaction};

use super::{Doing, Store, StoreError};
use crate::switches::SwitchState;

const SCRIPT: &str = "script";
const CLOCK_OFFSET_MS: &str = "clock_offset_ms";

/// Reads a stored JSON text.
pub(super) fn parse<T: DeserializeOwned>(
    text: &str,
    table: &'static str,
    column: &'static str,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|source| StoreError::Corrupt { table, column, source })
}

/// The model's script, within the transaction that takes the next line of it.
pub(super) async fn script(
    tx: &mut Transaction<'static, Sqlite>,
) -> Result<Vec<Value>, StoreError> {
    let script: Option<String> = sqlx::query_scalar("SELECT value FROM setting WHERE name = $1")
        .bind(SCRIPT)
        .fetch_optional(&mut **tx)
        .await
        .doing("read the script")?;
    script.map_or(Ok(Vec::new()), |script| parse(&script, "setting", "value"))
}

impl Store {
    pub(crate) async fn set_script(&self, lines: &[Value]) -> Result<(), StoreError> {
        self.set(SCRIPT, &Value::from(lines.to_vec()).to_string()).await
    }

    pub(crate) async fn clock_offset_ms(&self) -> Result<i64, StoreError> {
        let value: Option<String> = sqlx::query_scalar("SELECT value FROM setting WHERE name = $1")
            .bind(CLOCK_OFFSET_MS)
            .fetch_optional(&self.pool)
            .await
            .doing("read the clock's offset")?;
        value.map_or(Ok(0), |value| parse(&value, "setting", "value"))
    }

    pub(crate) async fn set_clock_offset_ms(&self, offset_ms: i64) -> Result<(), StoreError> {
        self.set(CLOCK_OFFSET_MS, &offset_ms.to_string()).await
    }

    async fn set(&self, name: &str, value: &str) -> Result<(), StoreError> {
        sqlx::query("INSERT OR REPLACE INTO setting (name, value) VALUES ($1, $2)")
            .bind(name)
            .bind(value)
            .execute(&self.pool)
            .await
            .doing("store a setting")
            .map(|_| ())
    }

    pub(crate) async fn switches(&self) -> Result<Vec<SwitchState>, StoreError> {
        let states: Vec<String> = sqlx::query_scalar("SELECT state FROM switch ORDER BY ordinal")
            .fetch_all(&self.pool)
            .await
            .doing("read the switches")?;
        states.iter().map(|state| parse(state, "switch", "state")).collect()
    }

    pub(crate) async fn replace_switches(&self, states: &[SwitchState]) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        sqlx::query("DELETE FROM switch").execute(&mut *tx).await.doing("clear the switches")?;
        for (ordinal, state) in (0_i64..).zip(states) {
            sqlx::query("INSERT INTO switch (ordinal, state) VALUES ($1, $2)")
                .bind(ordinal)
                .bind(text_of(state))
                .execute(&mut *tx)
                .await
                .doing("store a switch")?;
        }
        tx.commit().await.doing("commit the switches")
    }

    /// Stores the counts of one switch. Counts only rise, so a write that was overtaken by a later one is left out, and
    /// one for a set replaced meanwhile finds another switch and is left out too.
    pub(crate) async fn count_switch(
        &self,
        ordinal: usize,
        state: &SwitchState,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE switch SET state = $1 WHERE ordinal = $2 \
               AND json_extract(state, '$.seen') < $3 \
               AND json_extract(state, '$.switch') = json_extract($1, '$.switch')",
        )
        .bind(text_of(state))
        .bind(i64::try_from(ordinal).unwrap_or(i64::MAX))
        .bind(i64::try_from(state.seen).unwrap_or(i64::MAX))
        .execute(&self.pool)
        .await
        .doing("count a switch")
        .map(|_| ())
    }

    /// Forgets everything: effects, keys, log, counters, switches, script and clock.
    pub(crate) async fn reset(&self) -> Result<(), StoreError> {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let mut tx = self.begin().await?;
        sqlx::raw_sql(
            "DELETE FROM effect; DELETE FROM idempotency; DELETE FROM request; DELETE FROM received; \
             DELETE FROM outcome; DELETE FROM switch; DELETE FROM setting;",
        )
        .execute(&mut *tx)
        .await
        .doing("clear its tables")?;
        tx.commit().await.doing("commit a reset")
    }
}

fn text_of(state: &SwitchState) -> String {
    serde_json::to_string(state).expect("a switch always has a JSON form")
}
