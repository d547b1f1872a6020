//! What the tests of Twice stand on: servers that misbehave exactly as told.

pub mod bench;
pub mod fault;
pub mod nodes;
