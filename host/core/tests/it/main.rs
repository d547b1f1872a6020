//! The rules, tested through the crate's public interface.

mod json;
