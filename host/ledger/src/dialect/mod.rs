//! The only places where databases may differ. A dialect opens connections, begins and ends transactions, locks rows, moves
//! values across and sorts errors; it knows no statement of the ledger.

mod notify;
pub(crate) mod postgres;
mod session;
pub(crate) mod sqlite;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::value::{Row, Value};

/// One version of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// Rows that another transaction holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Are waited for.
    Wait,
    /// Are left out.
    Skip,
}

/// What an error means for the transaction that met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Another process was in the way. Nothing of the transaction is or will be written, and trying again may help.
    InTheWay,
    /// The connection is gone, and a transaction that was not being committed with it. Another connection may help.
    Lost,
    /// The database refused. Nothing of the transaction is or will be written.
    Refused,
    /// It cannot be told.
    Unclear,
}

/// A connection for writing.
#[async_trait]
pub(crate) trait Connection: Send {
    /// Begins a transaction that may write. Where a database has one writer at a time, others are waited for.
    async fn begin(&mut self) -> Result<(), sqlx::Error>;
    /// Begins a transaction beside which no other process changes the schema.
    async fn begin_alone(&mut self) -> Result<(), sqlx::Error>;
    /// Makes the transaction durable. `due`: other processes are told that a run may have become claimable, if the database
    /// can.
    async fn commit(&mut self, due: bool) -> Result<(), sqlx::Error>;
    /// Undoes the transaction.
    async fn rollback(&mut self) -> Result<(), sqlx::Error>;
    /// Runs several statements without arguments.
    async fn script(&mut self, text: &'static str) -> Result<(), sqlx::Error>;
    /// Runs a statement; returns how many rows it wrote.
    async fn execute(&mut self, sql: &'static str, args: Vec<Value>) -> Result<u64, sqlx::Error>;
    /// Runs a query.
    async fn fetch(&mut self, sql: &'static str, args: Vec<Value>)
    -> Result<Vec<Row>, sqlx::Error>;
    /// Runs a query whose rows nobody else changes until this transaction ends. They are locked in the order in which
    /// they are returned.
    async fn fetch_locked(
        &mut self,
        sql: &'static str,
        args: Vec<Value>,
        held: Held,
    ) -> Result<Vec<Row>, sqlx::Error>;
    /// Closes the connection.
    async fn close(self: Box<Self>);
}

/// A database.
#[async_trait]
pub(crate) trait Dialect: Send + Sync {
    /// Where it is, without credentials.
    fn location(&self) -> &str;
    /// Its schema.
    fn migrations(&self) -> &'static [Migration];
    /// Why no ledger may be made or used there, in words, if that can be seen before anything is changed.
    async fn objection(&self) -> Result<Option<String>, sqlx::Error>;
    /// How many connections of a process write at once.
    fn writers(&self) -> usize;
    /// Opens a connection for writing.
    async fn connect(&self) -> Result<Box<dyn Connection>, sqlx::Error>;
    /// Runs a query on a connection for reading.
    async fn read(&self, sql: &'static str, args: Vec<Value>) -> Result<Vec<Row>, sqlx::Error>;
    /// Closes the connections for reading.
    async fn close_readers(&self);
    /// Passes on to `notice` what other processes tell of runs that may have become claimable, if the database can, until
    /// `running` is closed.
    fn listen(&self, notice: watch::Sender<()>, running: watch::Receiver<()>);
    /// What an error means.
    fn judge(&self, error: &sqlx::Error) -> Trouble;
    /// Why a connection could not be opened, and what to do.
    fn explain(&self, error: &sqlx::Error) -> String;
}
