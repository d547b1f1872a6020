//! The rules, tested through the crate's public interface.

mod approval;
mod chain;
mod effect;
mod fixtures;
mod identity;
mod json;
mod observed;
mod outcome;
mod progress;
mod reconcile;
mod redact;
mod saga;
mod settle;
mod transition;
mod webhook;
