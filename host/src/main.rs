//! The `twice` command.
fn main() {}
