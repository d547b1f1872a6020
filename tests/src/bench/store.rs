//! Where a case's ledger lives, how large it is, and what its database can do at most.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use twice_test_postgres::{Cluster, Database};

use super::Amount;
use super::limit::{self, Limit, Written};

/// A database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// A file.
    Sqlite,
    /// A server on this machine, started for the measurement.
    Postgres,
}

impl Store {
    /// Those that can be measured here; what is missing is said.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let server = !twice_test_postgres::is_missing();
        [Some(Self::Sqlite), server.then_some(Self::Postgres)].into_iter().flatten().collect()
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        })
    }
}

/// An empty database.
pub(super) struct Place {
    kind: Kind,
    /// Its size before anything that is measured was written. Bytes.
    empty: f64,
}

enum Kind {
    File { path: PathBuf, _dir: TempDir },
    Server(Database<'static>),
}

impl Place {
    pub(super) fn new(store: Store) -> anyhow::Result<Self> {
        let kind = match store {
            Store::Sqlite => {
                let dir = tempfile::tempdir().context("a temporary folder")?;
                Kind::File { path: dir.path().join("twice.db"), _dir: dir }
            }
            Store::Postgres => Kind::Server(Cluster::shared().database()),
        };
        Ok(Self { kind, empty: 0.0 })
    }

    pub(super) fn location(&self) -> anyhow::Result<String> {
        Ok(match &self.kind {
            Kind::File { path, .. } => {
                path.to_str().context("the temporary folder's name is no text")?.to_owned()
            }
            Kind::Server(database) => database.url(),
        })
    }

    /// To be called when the schema is there. A file's first pages are not worth it.
    pub(super) fn note_size(&mut self) -> anyhow::Result<()> {
        if let Kind::Server(database) = &self.kind {
            self.empty = size(database)?;
        }
        Ok(())
    }

    /// How much it has grown. A file must be closed before.
    pub(super) fn grown(&self) -> anyhow::Result<f64> {
        let now = match &self.kind {
            Kind::File { path, .. } => std::fs::metadata(path)?.len() as f64,
            Kind::Server(database) => size(database)?,
        };
        Ok(now - self.empty)
    }

    /// Copies the first runs (`run-000…`, of a thousand effects) once for each number from `from` to `to`, as they are in
    /// the tables, under other ids.
    pub(super) async fn copy_runs(&self, from: u32, to: u32) -> anyhow::Result<()> {
        let mut next = from;
        while next < to {
            // Bounded, so that neither log nor memory grows with the ledger.
            let last = to.min(next + COPIES);
            let statements = copy_statements(next, last);
            match &self.kind {
                Kind::File { path, .. } => {
                    let options = SqliteConnectOptions::new().filename(path).foreign_keys(true);
                    let mut connection = options.busy_timeout(BUSY).connect().await?;
                    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await?;
                    connection.close().await?;
                }
                Kind::Server(database) => {
                    database.sql(&statements).map_err(|problem| anyhow!(problem))?;
                }
            }
            next = last;
        }
        if let Kind::Server(database) = &self.kind {
            database.sql("ANALYZE").map_err(|problem| anyhow!(problem))?;
        }
        Ok(())
    }

    pub(super) async fn limit(
        &self,
        written: &Written,
        lanes: u32,
        amount: &Amount,
    ) -> anyhow::Result<Limit> {
        match &self.kind {
            Kind::File { .. } => limit::batched(written, amount.commits).await,
            Kind::Server(database) => limit::pgbench(database, written, lanes, amount.seconds),
        }
    }
}

/// Copies of the first runs in one transaction.
const COPIES: u32 = 10;
/// How long a copy waits for the ledger's own writer.
const BUSY: Duration = Duration::from_secs(60);

fn copy_statements(from: u32, to: u32) -> String {
    let numbers = format!(
        "WITH RECURSIVE n (k) AS (SELECT {from} UNION ALL SELECT k + 1 FROM n WHERE k + 1 < {to}) "
    );
    let run = "'copy-' || CAST(n.k AS TEXT) || '-' ||";
    let effect = |id: &str| format!("substr({id}, 1, 40) || CAST(100000000000 + n.k AS TEXT)");
    let (own, of_entry) = (effect("f.id"), effect("e.effect_id"));
    format!(
        "BEGIN;\n\
         {numbers}INSERT INTO run (id, workflow, definition, input, priority, state, progress, progress_seq, output, reason, due_at, \
         claim_at, worker, fence, lease_until, crashes, head_seq, head_hash, created_at, updated_at) \
         SELECT {run} r.id, r.workflow, r.definition, r.input, r.priority, r.state, r.progress, r.progress_seq, r.output, r.reason, \
         r.due_at, r.claim_at, r.worker, r.fence, r.lease_until, r.crashes, r.head_seq, r.head_hash, r.created_at, \
         r.updated_at FROM n, run r WHERE r.id < 'run-000031' AND r.id >= 'run-000000';\n\
         {numbers}INSERT INTO effect (id, run_id, node, visit, element, slot, operation, idempotency_key, request_hash, state, \
         attempts, external_id, held, settled_here, last_error, updated_at) \
         SELECT {own}, {run} f.run_id, f.node, f.visit, f.element, f.slot, f.operation, f.idempotency_key, f.request_hash, \
         f.state, f.attempts, f.external_id, f.held, f.settled_here, f.last_error, f.updated_at \
         FROM n, effect f WHERE f.run_id < 'run-000031' AND f.run_id >= 'run-000000';\n\
         {numbers}INSERT INTO ledger_entry (run_id, seq, fence, made_at, effect_id, kind, body, prev_hash, hash, \
         from_state, to_state) \
         SELECT {run} e.run_id, e.seq, e.fence, e.made_at, {of_entry}, e.kind, e.body, e.prev_hash, e.hash, \
         e.from_state, e.to_state FROM n, ledger_entry e WHERE e.run_id < 'run-000031' AND e.run_id >= 'run-000000' \
         ORDER BY n.k, e.run_id, e.seq;\n\
         COMMIT;"
    )
}

fn size(database: &Database<'_>) -> anyhow::Result<f64> {
    let said = database.sql("SELECT pg_database_size(current_database())");
    said.map_err(|problem| anyhow!(problem))?.trim().parse().context("the size of the database")
}
