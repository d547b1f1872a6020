//! Reads and checks workflow and tool files. Given the text of the files, everything here is a pure function; what it
//! finds wrong is said with file, line, reason and fix.
//!
//! [`project::Project::load`] reads a project, [`model`] is what comes of it. While a run goes on, [`policy`] decides
//! about its requests, [`source`] finds its business objects, and [`schema`] checks its values.

pub mod condition;
mod definition;
pub mod diagnostic;
pub mod draw;
pub mod elements;
mod explain;
pub mod expression;
pub mod files;
pub mod fill;
pub mod flow;
mod graph;
pub mod model;
pub mod plan;
pub mod policy;
pub mod project;
mod read;
pub mod schema;
mod schemas;
mod shape;
pub mod source;
mod template;
pub mod tool;
pub mod typed;
pub mod units;

pub use definition::DefinitionError;
pub use explain::explain;
pub use project::Project;
