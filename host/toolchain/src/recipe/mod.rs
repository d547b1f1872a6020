//! How each language makes WebAssembly of a node's folder.

pub(crate) mod assemblyscript;
pub(crate) mod c;
mod clang;
pub(crate) mod cpp;
pub(crate) mod go;
pub(crate) mod javascript;
pub(crate) mod python;
pub(crate) mod rust;
pub(crate) mod typescript;
pub(crate) mod zig;
