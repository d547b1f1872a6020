//! What the tests of Twice stand on: servers that misbehave exactly as told, and the command in a project of its own.

pub mod bench;
pub mod fault;
pub mod faulty;
pub mod host;
pub mod nodes;
pub mod project;
pub mod world;
