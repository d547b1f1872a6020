//! Runs untrusted components. All that a component can do is compute and ask; what it asks goes to a [`Host`], and
//! nothing else of this machine can be reached from it (I8).

mod api;

pub use api::*;
