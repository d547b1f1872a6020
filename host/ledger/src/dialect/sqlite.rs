//! SQLite: one file, one connection that writes, several that read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::query::Query;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool,
    SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection as _, Row as _, Sqlite, TypeInfo, ValueRef};
use tokio::sync::watch;

use crate::LedgerOptions;
use crate::dialect::{Connection, Dialect, Held, Migration, Trouble};
use crate::value::{Cell, Row, Value};

const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_initial",
        text: include_str!("../../../../migrations/sqlite/0001_initial.sql"),
    },
    Migration {
        version: 2,
        name: "0002_retention",
        text: include_str!("../../../../migrations/sqlite/0002_retention.sql"),
    },
    Migration {
        version: 3,
        name: "0003_approvals",
        text: include_str!("../../../../migrations/sqlite/0003_approvals.sql"),
    },
    Migration {
        version: 4,
        name: "0004_contradictions",
        text: include_str!("../../../../migrations/sqlite/0004_contradictions.sql"),
    },
];

/// A transaction that starts reading and writes later fails at once when another process wrote in between, whatever the
/// busy timeout; one that takes the write lock first waits for it.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// Page cache of the writer, in negative kibibytes: the indexes of a busy ledger, so that appending does not read.
const CACHE: &str = "-32768";

/// Pages of the write-ahead log after which they are moved into the file: 16 MiB, a few times the usual, because runs that
/// write at once touch the same pages again and again.
const CHECKPOINT_PAGES: &str = "4096";

/// Tables of a file that are not SQLite's own, and how many columns of our table of migrations it has.
const TABLES: &str = "SELECT group_concat(name, ', ') AS tables, (SELECT COUNT(*) FROM pragma_table_info('schema_migration') \
     WHERE name IN ('version', 'name', 'digest')) AS ours FROM (SELECT name FROM sqlite_master WHERE type = 'table' \
     AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT 3)";

/// The primary result codes SQLITE_BUSY and SQLITE_LOCKED.
const BUSY: [i32; 2] = [5, 6];

pub(crate) struct SqliteDialect {
    path: PathBuf,
    create: bool,
    location: String,
    options: SqliteConnectOptions,
    readers: SqlitePool,
}

impl SqliteDialect {
    /// Describes the database; nothing is opened yet.
    pub(crate) fn new(path: &Path, options: &LedgerOptions) -> Self {
        let common = SqliteConnectOptions::new()
            .filename(PathBuf::from(path))
            .foreign_keys(true)
            .busy_timeout(Duration::from_millis(options.busy_timeout_ms))
            .disable_statement_logging();
        let readers = SqlitePoolOptions::new()
            .min_connections(0)
            .max_connections(options.readers.max(1))
            .test_before_acquire(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(common.clone().pragma("query_only", "ON"));
        // FULL, because a receipt that vanishes with the power breaks I3.
        let writer = common
            .create_if_missing(options.create)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("cache_size", CACHE)
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
        let (path, create) = (path.to_owned(), options.create);
        Self {
            path: path.clone(),
            create,
            location: path.display().to_string(),
            options: writer,
            readers,
        }
    }
}

#[async_trait]
impl Dialect for SqliteDialect {
    fn location(&self) -> &str {
        &self.location
    }

    fn migrations(&self) -> &'static [Migration] {
        MIGRATIONS
    }

    async fn objection(&self) -> Result<Option<String>, sqlx::Error> {
        if !self.path.exists() {
            return Ok((!self.create).then(|| {
                "there is no such file, and this makes none; check the path, or start a run there".to_owned()
            }));
        }
        let row = sqlx::query(TABLES).fetch_one(&self.readers).await?;
        let tables: Option<String> = row.try_get("tables")?;
        let ours: i64 = row.try_get("ours")?;
        Ok(tables.filter(|_| ours != 3).map(|tables| {
            format!("it is a database of something else (it has the tables {tables}), and was not touched; give a file of its own")
        }))
    }

    fn writers(&self) -> usize {
        1
    }

    async fn connect(&self) -> Result<Box<dyn Connection>, sqlx::Error> {
        Ok(Box::new(Writer(self.options.connect().await?)))
    }

    async fn read(&self, sql: &'static str, args: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let rows = bound(sql, args).fetch_all(&self.readers).await?;
        Ok(rows.iter().map(cells).collect())
    }

    async fn close_readers(&self) {
        self.readers.close().await;
    }

    /// Other processes have no way to tell.
    fn listen(&self, _: watch::Sender<()>, _: watch::Receiver<()>) {}

    fn judge(&self, error: &sqlx::Error) -> Trouble {
        let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
        if code.is_some_and(|code| BUSY.contains(&(code & 0xff))) {
            Trouble::InTheWay
        } else {
            Trouble::Unclear
        }
    }

    fn explain(&self, error: &sqlx::Error) -> String {
        format!(
            "{error}; check that its folder exists and that the file may be written and is a ledger"
        )
    }
}

struct Writer(SqliteConnection);

#[async_trait]
impl Connection for Writer {
    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        self.script(BEGIN).await
    }

    async fn begin_alone(&mut self) -> Result<(), sqlx::Error> {
        self.begin().await
    }

    async fn commit(&mut self, _: bool) -> Result<(), sqlx::Error> {
        self.script("COMMIT").await
    }

    async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        self.script("ROLLBACK").await
    }

    async fn script(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(text).execute(&mut self.0).await.map(drop)
    }

    async fn execute(&mut self, sql: &'static str, args: Vec<Value>) -> Result<u64, sqlx::Error> {
        Ok(bound(sql, args).execute(&mut self.0).await?.rows_affected())
    }

    async fn fetch(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let rows = bound(sql, args).fetch_all(&mut self.0).await?;
        Ok(rows.iter().map(cells).collect())
    }

    /// The write lock that the transaction began with covers every row.
    async fn fetch_locked(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
        _: Held,
    ) -> Result<Vec<Row>, sqlx::Error> {
        self.fetch(sql, args).await
    }

    async fn close(self: Box<Self>) {
        if let Err(error) = self.0.close().await {
            tracing::warn!(%error, "the ledger's connection did not close cleanly");
        }
    }
}

fn bound(sql: &'static str, args: Vec<Value>) -> Query<'static, Sqlite, SqliteArguments> {
    args.into_iter().fold(sqlx::query(unnumbered(sql)), |query, arg| match arg {
        Value::Int(value) => query.bind(value),
        Value::Text(value) => query.bind(value),
        Value::Blob(value) => query.bind(value),
    })
}

/// The statement with `?` for its placeholders, if they stand in the order of their numbers, each once: SQLite finds the name
/// of a numbered placeholder by walking over all before it, which costs a statement about many rows more than the rows.
fn unnumbered(sql: &'static str) -> &'static str {
    static KNOWN: LazyLock<RwLock<HashMap<Address, &'static str>>> = LazyLock::new(RwLock::default);
    let address = (sql.as_ptr() as usize, sql.len());
    if let Some(known) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&address) {
        return known;
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    // There are few statements, and they live as long as the program.
    known.entry(address).or_insert_with(|| without_numbers(sql).map_or(sql, |text| text.leak()))
}

/// Where a statement's text is and how long, which is told faster than the text.
type Address = (usize, usize);

fn without_numbers(sql: &str) -> Option<String> {
    let mut parts = sql.split('$');
    let mut text = parts.next()?.to_owned();
    for (number, part) in (1..).zip(parts) {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if part[..digits].parse() != Ok(number) {
            return None;
        }
        text.push('?');
        text.push_str(&part[digits..]);
    }
    Some(text)
}

fn cells(row: &SqliteRow) -> Row {
    (0..row.len()).map(|index| cell(row, index)).collect()
}

fn cell(row: &SqliteRow, index: usize) -> Cell {
    let Ok(raw) = row.try_get_raw(index) else { return Cell::Foreign("no value".to_owned()) };
    if raw.is_null() {
        return Cell::Null;
    }
    let kind = raw.type_info().name().to_owned();
    let value = match kind.as_str() {
        "INTEGER" => row.try_get_unchecked(index).map(Cell::Int),
        "TEXT" => row.try_get_unchecked(index).map(Cell::Text),
        "BLOB" => row.try_get_unchecked(index).map(Cell::Blob),
        _ => return Cell::Foreign(kind),
    };
    value.unwrap_or_else(|_| Cell::Foreign(format!("unreadable {kind}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_lose_their_numbers_only_where_nothing_changes() {
        let text = |sql: &'static str| without_numbers(sql);
        assert_eq!(
            text("VALUES ($1, CAST($2 AS TEXT)), ($3, $4)").as_deref(),
            Some("VALUES (?, CAST(? AS TEXT)), (?, ?)")
        );
        assert_eq!(text("SELECT 1").as_deref(), Some("SELECT 1"));
        for sql in ["a = $1 OR b = $1", "a = $2 AND b = $1", "a = $2", "a = $1 AND b = $10"] {
            assert_eq!(text(sql), None, "{sql}");
        }
    }
}
