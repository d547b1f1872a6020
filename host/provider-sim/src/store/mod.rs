//! The provider's own database. Each boundary is one transaction; one connection serves all, so that transactions
//! follow one another and never meet.

mod commit;
mod counters;
mod effects;
mod requests;
mod settings;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Sqlite, SqlitePool, Transaction};

pub(crate) use commit::{Change, Commit, NewEffect, Refusal, Saved, SavedAs};
pub use counters::{Counters, OperationCounters};
pub(crate) use effects::Filter;
pub use effects::Object;
pub(crate) use requests::Arrival;
pub use requests::{Outcome, Request};

/// The database failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A statement or transaction failed; a transaction did nothing then.
    #[error("the provider's database failed to {doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// The driver's error.
        #[source]
        source: sqlx::Error,
    },
    /// A stored value does not read back.
    #[error(
        "column {column} of table {table} does not read back; reset the database or delete its file"
    )]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
}

/// Names what was being done when the driver failed.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError>;
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Database { doing, source })
    }
}

/// The database.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pool: SqlitePool,
    /// Rises with each reset. Compared within transactions, which follow one another, so that nothing that arrived
    /// before a reset is written after it.
    epoch: Arc<AtomicU64>,
}

impl Store {
    /// Opens the file, creating it and its tables as needed.
    pub(crate) async fn open(path: &Path) -> Result<Self, StoreError> {
        // NORMAL loses nothing when a process dies, only when the machine does; a simulator may.
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(10));
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await
            .doing("open its file")?;
        sqlx::raw_sql(include_str!("schema.sql"))
            .execute(&pool)
            .await
            .doing("create its tables")?;
        Ok(Self { pool, epoch: Arc::default() })
    }

    /// Waits for the running transaction and closes the file.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    /// The number of resets so far.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    async fn begin(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.pool.begin_with("BEGIN IMMEDIATE").await.doing("begin a transaction")
    }
}
