//! What stands behind WASI preview 1 in a core module that was built for it (C, Go, …): a small adapter, linked into the
//! component, that asks the host for nothing but what every node may ask for. So such a node imports no WASI.

use std::sync::LazyLock;

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::NODE_WIT;

/// The module that the adapter replaces.
pub(crate) const PREVIEW1: &str = "wasi_snapshot_preview1";

/// The world that the adapter is in: it may import what a node may.
const WORLD: &str = "package twice:adapter; world adapter { import twice:node/log@0.1.0; import twice:node/context@0.1.0; }";

/// The adapter as a core module that says its world.
pub(crate) fn adapter() -> &'static [u8] {
    static ADAPTER: LazyLock<Vec<u8>> = LazyLock::new(|| {
        assemble().unwrap_or_else(|error| panic!("the adapter for {PREVIEW1} is broken: {error}"))
    });
    &ADAPTER
}

fn assemble() -> Result<Vec<u8>, String> {
    let mut module =
        wat::parse_str(include_str!("adapter.wat")).map_err(|error| error.to_string())?;
    let mut resolve = Resolve::default();
    resolve.push_str("node.wit", NODE_WIT).map_err(|error| format!("{error:#}"))?;
    let package = resolve.push_str("adapter.wit", WORLD).map_err(|error| format!("{error:#}"))?;
    let world =
        resolve.select_world(&[package], Some("adapter")).map_err(|error| format!("{error:#}"))?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| format!("{error:#}"))?;
    Ok(module)
}
