//! The `http` tool against a server that fails in every way there is.

mod bodies;
mod lookup;
mod requests;
mod secrets;
mod statuses;
mod support;
mod transport;
