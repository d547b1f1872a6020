//! The only places where databases may differ. A dialect opens connections, begins and ends transactions, moves values
//! across and sorts errors; it knows no statement of the ledger.

pub(crate) mod sqlite;

use async_trait::async_trait;

use crate::value::{Row, Value};

/// One version of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// A connection for writing.
#[async_trait]
pub(crate) trait Connection: Send {
    /// Begins a transaction that may write, and waits for other writers first.
    async fn begin(&mut self) -> Result<(), sqlx::Error>;
    /// Makes the transaction durable.
    async fn commit(&mut self) -> Result<(), sqlx::Error>;
    /// Undoes the transaction.
    async fn rollback(&mut self) -> Result<(), sqlx::Error>;
    /// Runs several statements without arguments.
    async fn script(&mut self, text: &'static str) -> Result<(), sqlx::Error>;
    /// Runs a statement; returns how many rows it wrote.
    async fn execute(&mut self, sql: &'static str, args: Vec<Value>) -> Result<u64, sqlx::Error>;
    /// Runs a query.
    async fn fetch(&mut self, sql: &'static str, args: Vec<Value>)
    -> Result<Vec<Row>, sqlx::Error>;
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
    /// Opens a connection for writing.
    async fn connect(&self) -> Result<Box<dyn Connection>, sqlx::Error>;
    /// Runs a query on a connection for reading.
    async fn read(&self, sql: &'static str, args: Vec<Value>) -> Result<Vec<Row>, sqlx::Error>;
    /// Closes the connections for reading.
    async fn close_readers(&self);
    /// Whether another process held the database for too long: nothing was done, and trying again may help.
    fn is_busy(&self, error: &sqlx::Error) -> bool;
}
