//! Typed tools: what a component imports from other packages than ours, as functions of operations (docs/typed-tools.md).
//!
//! `read` takes the functions and their types from a component's bytes, `value` maps values to JSON and back, and `link` puts
//! a slot behind a function: its call is a request like any other.

pub(crate) mod link;
pub(crate) mod read;
mod value;

pub use value::{ValueError, from_json, to_json};
