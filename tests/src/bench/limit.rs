//! What the database can do at most: rows of the same number and size, without indexes, constraints or triggers, under the
//! same promise of durability. SQLite: from one task that does nothing else. Postgres: from `pgbench`, a transaction an effect.

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use serde::Serialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use twice_test_postgres::Database;

use super::{cpu, percentile};

/// How many effects' rows share a commit.
const GROUPS: u32 = 64;
/// How many rows a statement takes, as in the ledger.
const ROWS: usize = 32;

/// What the ledger writes about an effect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) entries_per_effect: f64,
    pub(super) body_bytes_per_effect: f64,
}

/// The raw limit for what a case writes.
#[derive(Debug, Serialize)]
pub struct Limit {
    /// Effects whose rows were written per second.
    pub effects_per_second: f64,
    /// Processor time of the whole process per effect; absent where it cannot be told. Microseconds.
    pub cpu_us_per_effect: Option<f64>,
    /// How many effects were committed by one statement; the server may let more share one write to the disk.
    pub effects_per_commit: u32,
    /// Rows of entries per effect; rows of effects and runs come on top, two of each per effect as in a sequential run.
    pub entry_rows_per_effect: f64,
    /// Bytes of bodies per effect.
    pub body_bytes_per_effect: f64,
}

/// What one small durable row costs.
#[derive(Debug, Serialize)]
pub struct SingleCommit {
    /// How many were made.
    pub commits: u32,
    /// Per second.
    pub per_second: f64,
    /// The middle one. Microseconds.
    pub median_us: f64,
    /// What 99 of 100 stay below. Microseconds.
    pub p99_us: f64,
}

const TABLES: &str = "\
    CREATE TABLE entry (run_id TEXT, seq INTEGER, fence INTEGER, made_at INTEGER, effect_id TEXT, kind TEXT, body TEXT, \
    prev_hash BLOB, hash BLOB, from_state TEXT, to_state TEXT);\
    CREATE TABLE projection (id TEXT, run_id TEXT, node TEXT, slot TEXT, idempotency_key TEXT, request_hash TEXT, \
    state TEXT, updated_at INTEGER)";
const ENTRY: &str = "INSERT INTO entry (run_id, seq, fence, made_at, effect_id, kind, body, prev_hash, hash, from_state, \
    to_state) VALUES ";
const PROJECTION: &str = "INSERT INTO projection (id, run_id, node, slot, idempotency_key, request_hash, state, \
    updated_at) VALUES ";
const RUN: &str = "run-000001";
const EFFECT: &str = "eff_2v3kq5sjx6p3y4l7w4w2mzhb7dq2m5n5zq3a5vxk3m4n5b6c7d2q";

/// Opens an empty database as the ledger opens its own.
async fn open(dir: &std::path::Path) -> anyhow::Result<SqliteConnection> {
    let mut connection = SqliteConnectOptions::new()
        .filename(dir.join("limit.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("cache_size", "-32768")
        .pragma("wal_autocheckpoint", "4096")
        .disable_statement_logging()
        .connect()
        .await?;
    sqlx::raw_sql(TABLES).execute(&mut connection).await?;
    Ok(connection)
}

/// `head`, and a list of `width` placeholders for each of `rows`. Leaked: there are few of them.
fn statement(head: &str, width: usize, rows: usize) -> &'static str {
    let row = format!("({})", vec!["?"; width].join(", "));
    format!("{head}{}", vec![row; rows].join(", ")).leak()
}

/// Writes as many groups of rows as fit into `commits` commits, at least for half a second.
pub(super) async fn batched(written: &Written, commits: u32) -> anyhow::Result<Limit> {
    let dir = tempfile::tempdir()?;
    let mut connection = open(dir.path()).await?;
    let entries = (written.entries_per_effect * f64::from(GROUPS)).round().max(1.0);
    let body_bytes = written.body_bytes_per_effect * f64::from(GROUPS) / entries;
    let body = "x".repeat(body_bytes.round() as usize);
    let entries = entries as usize;
    let projections = 4 * GROUPS as usize;
    let cpu_before = cpu::used_us();
    let begun = Instant::now();
    let mut made = 0;
    while made < commits || (commits > 50 && begun.elapsed() < Duration::from_millis(500)) {
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await?;
        for rows in chunks(projections) {
            let mut query = sqlx::query(statement_of(PROJECTION, 8, rows));
            for _ in 0..rows {
                query = query.bind(EFFECT).bind(RUN).bind("step-1").bind("refund");
                query = query.bind("refund/run-000001/order-1/full-refund").bind(EFFECT);
                query = query.bind("REQUESTED").bind(1_790_000_000_000_i64);
            }
            query.execute(&mut connection).await?;
        }
        for rows in chunks(entries) {
            let mut query = sqlx::query(statement_of(ENTRY, 11, rows));
            for row in 0..rows {
                query = query.bind(RUN).bind(row as i64).bind(1_i64).bind(1_790_000_000_000_i64);
                query = query.bind(EFFECT).bind("authorized").bind(body.clone());
                query = query.bind(vec![7_u8; 32]).bind(vec![9_u8; 32]);
                query = query.bind("PROPOSED").bind("AUTHORIZED");
            }
            query.execute(&mut connection).await?;
        }
        sqlx::raw_sql("COMMIT").execute(&mut connection).await?;
        made += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = cpu::used_us().zip(cpu_before).map(|(after, before)| after - before);
    connection.close().await?;
    Ok(Limit {
        effects_per_second: f64::from(made * GROUPS) / seconds,
        cpu_us_per_effect: cpu.map(|us| us / f64::from(made * GROUPS)),
        effects_per_commit: GROUPS,
        entry_rows_per_effect: written.entries_per_effect,
        body_bytes_per_effect: written.body_bytes_per_effect,
    })
}

/// What a run needs to be there in the tables of [`pgbench`]: a row that each effect changes.
const SERVER_TABLES: &str = "\
    DROP TABLE IF EXISTS bare_entry, bare_projection, bare_run;\
    CREATE TABLE bare_entry (run_id TEXT, seq BIGINT, fence BIGINT, made_at BIGINT, effect_id TEXT, kind TEXT, body TEXT, \
    prev_hash BYTEA, hash BYTEA, from_state TEXT, to_state TEXT);\
    CREATE TABLE bare_projection (id TEXT, run_id TEXT, node TEXT, slot TEXT, idempotency_key TEXT, request_hash TEXT, \
    state TEXT, updated_at BIGINT);\
    CREATE TABLE bare_run (id BIGINT PRIMARY KEY, state TEXT, head_seq BIGINT, head_hash BYTEA, updated_at BIGINT) \
    WITH (fillfactor = 70);\
    INSERT INTO bare_run SELECT n, 'running', 1, '\\x00', 1 FROM generate_series(0, 1023) AS n";

/// `pgbench` with as many clients as runs are under way, one transaction an effect: the run's row is changed, the effect's
/// row inserted, its entries appended.
pub(super) fn pgbench(
    database: &Database<'_>,
    written: &Written,
    clients: u32,
    seconds: u32,
) -> anyhow::Result<Limit> {
    let entries = written.entries_per_effect.round().max(1.0);
    let body = "x".repeat((written.body_bytes_per_effect / entries).round() as usize);
    let (hash, other) = ("07".repeat(32), "09".repeat(32));
    let row = format!(
        "('{RUN}', 1, 1, 1790000000000, '{EFFECT}', 'authorized', '{body}', '\\x{hash}', '\\x{other}', 'PROPOSED', \
         'AUTHORIZED')"
    );
    let rows = vec![row; entries as usize].join(", ");
    let script = format!(
        "BEGIN;\n\
         UPDATE bare_run SET head_seq = head_seq + 4, head_hash = '\\x{hash}', updated_at = 1790000000000 \
         WHERE id = :client_id;\n\
         INSERT INTO bare_projection VALUES ('{EFFECT}', '{RUN}', 'step-1', 'refund', \
         'refund/run-000001/order-1/full-refund', '{EFFECT}', 'REQUESTED', 1790000000000);\n\
         INSERT INTO bare_entry VALUES {rows};\n\
         COMMIT;\n"
    );
    let failed = |problem| anyhow!("pgbench: {problem}");
    database.sql(SERVER_TABLES).map_err(failed)?;
    let rate = database.pgbench(&script, clients, seconds).map_err(failed)?;
    database.sql("DROP TABLE bare_entry, bare_projection, bare_run").map_err(failed)?;
    Ok(Limit {
        effects_per_second: rate,
        cpu_us_per_effect: None,
        effects_per_commit: 1,
        entry_rows_per_effect: written.entries_per_effect,
        body_bytes_per_effect: written.body_bytes_per_effect,
    })
}

/// Row counts of the statements that write `rows` rows.
fn chunks(rows: usize) -> impl Iterator<Item = usize> {
    let rest = rows % ROWS;
    std::iter::repeat_n(ROWS, rows / ROWS).chain((rest > 0).then_some(rest))
}

fn statement_of(head: &'static str, width: usize, rows: usize) -> &'static str {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, PoisonError};
    static MADE: LazyLock<Mutex<HashMap<(&'static str, usize), &'static str>>> =
        LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry((head, rows)).or_insert_with(|| statement(head, width, rows))
}

/// Commits one small row at a time.
pub(super) async fn single(commits: u32) -> anyhow::Result<SingleCommit> {
    ensure!(commits > 0, "nothing to measure");
    let dir = tempfile::tempdir().context("a temporary folder")?;
    let mut connection = open(dir.path()).await?;
    let mut took = Vec::with_capacity(commits as usize);
    let begun = Instant::now();
    for number in 0..commits {
        let one = Instant::now();
        sqlx::query("INSERT INTO entry (run_id, seq) VALUES ('run-1', ?)")
            .bind(i64::from(number))
            .execute(&mut connection)
            .await?;
        took.push(one.elapsed().as_secs_f64() * 1e6);
    }
    let seconds = begun.elapsed().as_secs_f64();
    connection.close().await?;
    took.sort_by(f64::total_cmp);
    Ok(SingleCommit {
        commits,
        per_second: f64::from(commits) / seconds,
        median_us: percentile(&took, 50),
        p99_us: percentile(&took, 99),
    })
}
