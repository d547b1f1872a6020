//! The ledger through its public interface: one suite for every implementation, then what only a file or a server can show.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod cancel;
mod children;
mod claims;
mod crash;
mod definitions;
mod differential;
mod effects;
mod file;
mod listings;
mod locks;
mod postgres;
mod proxy;
mod retention;
mod runs;
mod several;
mod sharing;
mod support;
mod turns;
