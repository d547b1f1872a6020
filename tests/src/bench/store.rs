//! Where a case's ledger lives, how large it is, and what its database can do at most.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
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

fn size(database: &Database<'_>) -> anyhow::Result<f64> {
    let said = database.sql("SELECT pg_database_size(current_database())");
    said.map_err(|problem| anyhow!(problem))?.trim().parse().context("the size of the database")
}
