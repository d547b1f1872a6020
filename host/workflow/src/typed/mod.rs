//! Typed tools: the operations of a tool as functions of a WIT interface (docs/typed-tools.md).
//!
//! `write` makes the WIT that authors build against, `signature` says how a function that a component imports is a request
//! for an operation, by the types of the one and the schemas of the other (`fit`), and `grants` which slots of a node stand
//! behind what its component imports.

mod fit;
mod grants;
mod receipt;
mod schema;
mod signature;
mod write;

pub use grants::{check_tools, grants};
pub use signature::signature;
pub use write::{Written, write};

use twice_core::wit::{InterfaceName, wit_name_of};

use crate::model::Tool;

/// The interface whose functions are a tool's operations: what its file states, or `tools:NAME/NAME`. `None` when its name is
/// not a WIT name and the file states none.
#[must_use]
pub fn interface(tool: &Tool) -> Option<InterfaceName> {
    if let Some(stated) = &tool.wit {
        return InterfaceName::parse(stated);
    }
    let name = wit_name_of(tool.name.as_str())?;
    InterfaceName::parse(&format!("tools:{name}/{name}"))
}
