//! The rules, tested through the crate's public interface.

mod chain;
mod fixtures;
mod json;
mod outcome;
mod reconcile;
mod settle;
