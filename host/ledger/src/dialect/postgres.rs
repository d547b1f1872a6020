//! Postgres: a server that several processes write to at once. Rows are locked where they are read for writing, in one
//! order everywhere; what two processes do to each other all the same is undone by the server and tried again by the
//! writer.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{
    PgArguments, PgConnectOptions, PgConnection, PgDatabaseError, PgPool, PgPoolOptions, PgRow,
    PgSeverity,
};
use sqlx::query::Query;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection as _, Postgres, Row as _, SqlSafeStr, SqlStr,
    TypeInfo, ValueRef,
};
use tokio::sync::watch;

use crate::dialect::notify;
use crate::dialect::session::{self, Place};
pub(crate) use crate::dialect::session::{is_url, password};
use crate::dialect::{Connection, Dialect, Held, Migration, Trouble};
use crate::value::{Cell, Row, Value};
use crate::{LedgerError, LedgerOptions};

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_initial",
        text: include_str!("../../../../migrations/postgres/0001_initial.sql"),
    },
    Migration {
        version: 2,
        name: "0002_retention",
        text: include_str!("../../../../migrations/postgres/0002_retention.sql"),
    },
    Migration {
        version: 3,
        name: "0003_approvals",
        text: include_str!("../../../../migrations/postgres/0003_approvals.sql"),
    },
    Migration {
        version: 4,
        name: "0004_contradictions",
        text: include_str!("../../../../migrations/postgres/0004_contradictions.sql"),
    },
];

/// Each statement sees what was committed before it began: what is read after a lock was waited for is the latest.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// A statement timeout that strikes while the server waits for its standbys makes it say "committed" all the same.
const COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";
/// The same, and listeners hear of it when it is durable.
const COMMIT_DUE: &str = "SET LOCAL statement_timeout = 0; NOTIFY twice_due; COMMIT";

/// As [`BEGIN`], for the schema: behind whoever changes it now, for as long as that takes. The number means nothing but
/// that it is always the same.
const BEGIN_ALONE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = 0; \
     SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(7811944236105)";

/// Longest wait to be connected.
const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Longest wait for an answer, beyond what the server is told to allow: then the connection is taken to be lost.
const ANSWER_MAX: Duration = Duration::from_secs(45);
/// Longest wait for a connection for reading, which covers a server that is just being started again.
const READER_MAX: Duration = Duration::from_secs(15);

/// While one transaction is on its way to the disk, others are worked on; the server lets those that end together share one
/// write to it.
const WRITERS: usize = 4;

pub(crate) struct PostgresDialect {
    location: String,
    options: PgConnectOptions,
    readers: PgPool,
    /// A read meets no more broken connections than there are.
    tries: u32,
}

impl PostgresDialect {
    /// Describes the database; nothing is opened yet.
    ///
    /// # Errors
    /// [`LedgerError::Open`] when the URL is not understood.
    pub(crate) fn new(url: &str, options: &LedgerOptions) -> Result<Self, LedgerError> {
        let Place { location, options: common } = session::place(url, options)?;
        let readers = options.readers.max(1);
        let pool = PgPoolOptions::new()
            .min_connections(0)
            .max_connections(readers)
            .acquire_timeout(READER_MAX)
            .test_before_acquire(false)
            .after_connect(|connection, _| Box::pin(session::check(connection)))
            .connect_lazy_with(common.clone().options([("default_transaction_read_only", "on")]));
        Ok(Self { location, options: common, readers: pool, tries: readers + 1 })
    }
}

#[async_trait]
impl Dialect for PostgresDialect {
    fn location(&self) -> &str {
        &self.location
    }

    fn migrations(&self) -> &'static [Migration] {
        MIGRATIONS
    }

    /// Tables of others live beside ours; a schema that is in the way says so when ours is made.
    async fn objection(&self) -> Result<Option<String>, sqlx::Error> {
        Ok(None)
    }

    fn writers(&self) -> usize {
        WRITERS
    }

    async fn connect(&self) -> Result<Box<dyn Connection>, sqlx::Error> {
        let connecting = async {
            let mut connection = self.options.connect().await?;
            session::check(&mut connection).await?;
            Ok(connection)
        };
        let connection = within(CONNECT_MAX, connecting).await?;
        let line = Line { patience: Some(ANSWER_MAX), lost: false };
        Ok(Box::new(Writer { connection, line }))
    }

    async fn read(&self, sql: &'static str, args: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let mut tried = 0;
        loop {
            tried += 1;
            let reading = async {
                let rows = bound(sql.into_sql_str(), args.clone()).fetch_all(&self.readers).await?;
                Ok(rows.iter().map(cells).collect())
            };
            match within(READER_MAX + ANSWER_MAX, reading).await {
                // Nothing is lost with a connection that only reads; a server that was started again left all broken.
                Err(error) if tried < self.tries && self.judge(&error) == Trouble::Lost => {
                    tracing::warn!(%error, "a connection for reading is gone; taking another");
                }
                done => return done,
            }
        }
    }

    async fn close_readers(&self) {
        self.readers.close().await;
    }

    fn listen(&self, notice: watch::Sender<()>, running: watch::Receiver<()>) {
        tokio::spawn(notify::listen(self.options.clone(), notice, running));
    }

    fn judge(&self, error: &sqlx::Error) -> Trouble {
        match error {
            sqlx::Error::Database(error) => {
                let fatal = error.try_downcast_ref::<PgDatabaseError>().is_none_or(|error| {
                    matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
                });
                judge_code(error.code().as_deref().unwrap_or_default(), fatal)
            }
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Trouble::Lost
            }
            // What a write rests on is no longer so; see `Batch::flush`.
            sqlx::Error::RowNotFound => Trouble::InTheWay,
            _ => Trouble::Unclear,
        }
    }

    fn explain(&self, error: &sqlx::Error) -> String {
        session::explain(error)
    }
}

fn judge_code(code: &str, fatal: bool) -> Trouble {
    match code {
        // serialization_failure, deadlock_detected, lock_not_available; unique_violation: somebody else was first.
        "40001" | "40P01" | "55P03" | "23505" => Trouble::InTheWay,
        // cannot_connect_now, too_many_connections.
        "57P03" | "53300" => Trouble::InTheWay,
        // read_only_sql_transaction: the server has become a standby.
        "25006" => Trouble::Lost,
        code if fatal || code.starts_with("08") => Trouble::Lost,
        _ => Trouble::Refused,
    }
}

struct Writer {
    connection: PgConnection,
    line: Line,
}

/// What is known of a connection's other end.
struct Line {
    /// Longest wait for an answer; none while the schema is changed.
    patience: Option<Duration>,
    /// An answer is outstanding that nobody waits for any more: whatever came next would be taken for another's.
    lost: bool,
}

impl Line {
    /// Waits for an answer, as long as is allowed.
    async fn answer<T>(
        &mut self,
        asking: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        if self.lost {
            return Err(sqlx::Error::WorkerCrashed);
        }
        // Until it is there; this may never be polled to its end.
        self.lost = true;
        let answer = match self.patience {
            Some(patience) => within(patience, asking).await,
            None => asking.await,
        };
        self.lost = matches!(&answer, Err(sqlx::Error::Io(_) | sqlx::Error::Protocol(_)));
        answer
    }
}

impl Writer {
    async fn rows(&mut self, sql: SqlStr, args: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let asking = bound(sql, args).fetch_all(&mut self.connection);
        Ok(self.line.answer(asking).await?.iter().map(cells).collect())
    }
}

#[async_trait]
impl Connection for Writer {
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        self.line.patience = Some(ANSWER_MAX);
        self.script(BEGIN).await
    }

    async fn begin_alone(&mut self) -> Result<(), sqlx::Error> {
        self.line.patience = None;
        self.script(BEGIN_ALONE).await
    }

    async fn commit(&mut self, due: bool) -> Result<(), sqlx::Error> {
        self.script(if due { COMMIT_DUE } else { COMMIT }).await
    }

    async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        self.script("ROLLBACK").await
    }

    async fn script(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        let asking = sqlx::raw_sql(text).execute(&mut self.connection);
        self.line.answer(asking).await.map(drop)
    }

    async fn execute(&mut self, sql: &'static str, args: Vec<Value>) -> Result<u64, sqlx::Error> {
        let asking = bound(sql.into_sql_str(), args).execute(&mut self.connection);
        Ok(self.line.answer(asking).await?.rows_affected())
    }

    async fn fetch(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        self.rows(sql.into_sql_str(), args).await
    }

    /// No key of a row is ever changed, so that rows which refer to a locked one can be written meanwhile.
    async fn fetch_locked(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
        held: Held,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let lock = match held {
            Held::Wait => "FOR NO KEY UPDATE",
            Held::Skip => "FOR NO KEY UPDATE SKIP LOCKED",
        };
        self.rows(AssertSqlSafe(format!("{sql} {lock}")).into_sql_str(), args).await
    }

    async fn close(self: Box<Self>) {
        if let Err(error) = within(ANSWER_MAX, self.connection.close()).await {
            tracing::warn!(%error, "the ledger's connection did not close cleanly");
        }
    }
}

async fn within<T>(
    longest: Duration,
    asking: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(longest, asking).await.unwrap_or_else(|_| {
        let silent = format!("no answer within {} s", longest.as_secs());
        Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, silent)))
    })
}

fn bound(sql: SqlStr, args: Vec<Value>) -> Query<'static, Postgres, PgArguments> {
    args.into_iter().fold(sqlx::query(sql), |query, arg| match arg {
        Value::Int(value) => query.bind(value),
        Value::Text(value) => query.bind(value),
        Value::Blob(value) => query.bind(value),
    })
}

fn cells(row: &PgRow) -> Row {
    (0..row.len()).map(|index| cell(row, index)).collect()
}

fn cell(row: &PgRow, index: usize) -> Cell {
    let Ok(raw) = row.try_get_raw(index) else { return Cell::Foreign("no value".to_owned()) };
    if raw.is_null() {
        return Cell::Null;
    }
    let kind = raw.type_info().name().to_owned();
    let value = match kind.as_str() {
        "INT8" => row.try_get_unchecked(index).map(Cell::Int),
        "INT4" => row.try_get_unchecked::<i32, _>(index).map(|value| Cell::Int(value.into())),
        "TEXT" => row.try_get_unchecked(index).map(Cell::Text),
        "BYTEA" => row.try_get_unchecked(index).map(Cell::Blob),
        _ => return Cell::Foreign(kind),
    };
    value.unwrap_or_else(|_| Cell::Foreign(format!("unreadable {kind}")))
}
