//! What the tests of Twice stand on: servers that misbehave exactly as told, and the command in a project of its own.

pub mod bench;
pub mod crew;
pub mod dice;
pub mod families;
pub mod fault;
pub mod graphs;
pub mod host;
pub mod invariants;
pub mod mutations;
pub mod nodes;
pub mod project;
pub mod saga;
pub mod signed;
pub mod store;
pub mod tools;
pub mod undoing;
pub mod world;
