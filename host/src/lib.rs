//! Twice runs workflow nodes that nobody has to trust. This crate is everything of it that meets the world.

pub mod cli;
pub mod clock;
pub mod crashtest;
pub mod engine;
pub mod retention;
pub mod tool;
pub mod view;
pub mod worker;
