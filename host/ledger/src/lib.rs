//! The durable ledger. Every method of [`Ledger`] is one transaction, named after what it means; no statement, row or
//! transaction handle leaves this crate.
//!
//! Reading order: [`Ledger`] is the contract; [`MemoryLedger`] its executable specification. [`SqlLedger`] cleans what it
//! is given of secrets (`stored`), hands writes to the writer of their run (`writers`, `writer`), which stages them in a transaction
//! (`batch`, `apply`) with the statements of `sql`; what differs between databases is in `dialect`.
//!
//! Architecture invariant: no statement outside `sql`, no driver type outside `dialect`, no write outside `writer`.

mod api;
mod apply;
mod batch;
mod dialect;
mod error;
mod locks;
mod memory;
mod migrate;
mod options;
mod progress;
mod queue;
mod retention;
mod rows;
mod rules;
mod sql;
mod sql_ledger;
mod stored;
mod turns;
mod value;
mod work;
mod writer;
mod writers;

pub use api::*;
pub use error::*;
pub use locks::{LockFilter, LockRow, Locked, ObjectLock, Unlock, Waits};
pub use memory::MemoryLedger;
pub use options::*;
pub use progress::{Recorded, effects_of, progress_of};
pub use queue::*;
pub use retention::{OverFilter, Prune, Tombstone};
pub use sql_ledger::SqlLedger;
