//! What the tests of Twice stand on: servers that misbehave exactly as told.

pub mod fault;
pub mod host;
pub mod nodes;
