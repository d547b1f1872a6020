//! Builds nodes from source. An author needs the compiler of their language and this: the bindings, the adapter and the step
//! from a core module to a component are here.
//!
//! A folder is one node; its main file says the language ([`Language::of`]). A recipe runs the language's own tools in it and
//! hands over what they made; everything behind that is the same for all languages ([`build`]).
//!
//! **Invariant:** a build writes nowhere but to the node's `target/` folder, and to where the language's own tools keep their
//! caches.

mod build;
mod embed;
mod error;
mod job;
mod language;
mod recipe;
mod sdk;

pub use build::{Built, build};
pub use error::BuildError;
pub use language::Language;
pub use sdk::write_sdk;
