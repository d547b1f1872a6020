//! What a node may know about where it runs. All of it is durable: a node that is started again sees the same values.

use crate::bindings::twice::node::context as wit;

/// The id of the run.
#[must_use]
pub fn run_id() -> String {
    wit::run_id()
}

/// The name of the node in the workflow.
#[must_use]
pub fn node() -> String {
    wit::node()
}

/// Which visit of the node in this run, from 1.
#[must_use]
pub fn visit() -> u32 {
    wit::visit()
}

/// Which attempt of this visit, from 1. For logs: nothing that is requested may depend on it.
#[must_use]
pub fn attempt() -> u32 {
    wit::attempt()
}

/// Milliseconds since 1970-01-01T00:00:00Z: when the step became due, moved forward by each answered effect to the time of
/// its answer.
#[must_use]
pub fn now() -> u64 {
    wit::now()
}

/// `count` random bytes, at most 65,536. Continues from call to call. Not secret: whoever knows the run can compute them.
#[must_use]
pub fn random(count: u32) -> Vec<u8> {
    wit::random(count)
}
