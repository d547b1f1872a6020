//! The sandbox, through its public interface: real nodes, hostile components, every limit.

#![expect(clippy::unwrap_used, reason = "a helper of a test may fail like the test itself")]

mod adapter;
mod bombs;
mod cache;
mod hostile;
mod hostile_wasi;
mod languages;
mod limits;
mod load;
mod nodes;
mod support;
mod typed;
