//! All integration tests, in one binary.

#![expect(clippy::unwrap_used, reason = "a test that meets what it did not expect has failed")]

mod bench;
mod crashtest;
mod fault;
mod matrix;
mod process;
mod tidy;
