//! Runs untrusted components. All that a component can do is compute and ask; what it asks goes to a [`Host`], and
//! nothing else of this machine can be reached from it (I8).
//!
//! A component passes four gates before it runs: it is read and its imports and its `run` are checked without compiling it
//! (`shape` counts what it is made of, `check` reads what it asks for), it is compiled once in a bounded way (`compile`), the
//! compiled code is kept on disk under a key of this machine (`cache`), and each call gets a fresh instance with its own limits
//! (`call`). Only `engine` configures wasmtime. What it imports from other packages (`typed`) is a request for an effect as well,
//! and has to be granted before it runs.
//!
//! **Invariant:** nothing outlives a call. An instance is dropped when its call ends, however it ends, and the [`Host`] goes
//! back to the caller, who knows what was in flight.

mod adapter;
mod api;
mod bindings;
mod cache;
mod call;
mod check;
mod compile;
mod componentize;
mod engine;
mod explain;
mod limits;
mod sandbox;
mod shape;
mod state;
mod typed;
mod wasi;

/// The contract of a node, as WIT: `guest-sdk/wit/node.wit`.
pub const NODE_WIT: &str = include_str!("../../../guest-sdk/wit/node.wit");

pub use api::*;
pub use check::typed_imports;
pub use compile::{CompilerProgram, compile_here};
pub use componentize::{componentize, lacks_metadata};
pub use limits::{FIXED_LIMITS, FixedLimit};
pub use sandbox::{Component, Sandbox, SandboxConfig};
pub use typed::{ValueError, from_json, to_json};
pub use wasi::INTERFACES as WASI;
pub use wasmtime::component::Val;
