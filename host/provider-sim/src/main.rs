//! The provider.
fn main() {}
