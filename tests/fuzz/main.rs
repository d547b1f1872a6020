//! Fuzzing: whatever bytes come in from outside, nothing panics, hangs, or is taken for what it is not. How to run one target
//! for long, and what to do with what it finds, is in `docs/testing.md`.

#![expect(clippy::unwrap_used, reason = "a helper of a test may fail like the test itself")]

mod component;
mod driver;
mod export;
mod files;
mod http;
mod json;
mod webhook;
