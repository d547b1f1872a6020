//! The durable ledger. Every method of [`Ledger`] is one transaction, named after what it means; no statement, row or
//! transaction handle leaves this crate.

mod api;
mod error;

pub use api::*;
pub use error::*;
