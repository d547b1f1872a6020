//! The real command, as processes that are killed and stopped, on real files, against a provider that survives them.

mod approvals;
mod clocks;
mod command_line;
mod demo;
mod errors;
mod fan_out;
mod fencing;
mod kills;
mod languages;
mod late;
mod locks;
mod many;
mod newcomer;
mod postgres;
mod retention;
mod saga;
mod saga_undo;
mod secrets;
mod shop;
mod sweep;
mod typed;
mod webhooks;
mod worker;
