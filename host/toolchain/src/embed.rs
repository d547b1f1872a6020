//! What a toolchain that knows nothing of components leaves out: the description of the world, in the module.

use std::collections::BTreeSet;
use std::path::Path;

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::{PackageName, Resolve, WorldId, WorldKey};

use crate::error::BuildError;
use crate::job::Strings;

/// Describes `world` of the WIT folder `wit` in a core module that describes none; everything else is passed through.
pub(crate) fn world(
    mut bytes: Vec<u8>,
    wit: &Path,
    world: &str,
    strings: Strings,
) -> Result<Vec<u8>, BuildError> {
    if !twice_sandbox::lacks_metadata(&bytes) {
        return Ok(bytes);
    }
    let refused = |problem| BuildError::Wit { path: wit.to_owned(), problem };
    let (resolve, world) = select(wit, world).map_err(refused)?;
    let encoding = match strings {
        Strings::Utf8 => StringEncoding::UTF8,
        Strings::Utf16 => StringEncoding::UTF16,
    };
    embed_component_metadata(&mut bytes, &resolve, world, encoding)
        .map_err(|error| refused(format!("{error:#}")))?;
    Ok(bytes)
}

/// The packages of the interfaces that `world` imports, as `namespace:name`.
pub(crate) fn imported_packages(wit: &Path, world: &str) -> Result<BTreeSet<String>, BuildError> {
    let refused = |problem| BuildError::Wit { path: wit.to_owned(), problem };
    let (resolve, world) = select(wit, world).map_err(refused)?;
    let interfaces = resolve.worlds[world].imports.keys().filter_map(|key| match key {
        WorldKey::Interface(interface) => resolve.interfaces[*interface].package,
        WorldKey::Name(_) => None,
    });
    Ok(interfaces
        .map(|package| &resolve.packages[package].name)
        .map(|PackageName { namespace, name, .. }| format!("{namespace}:{name}"))
        .collect())
}

fn select(wit: &Path, world: &str) -> Result<(Resolve, WorldId), String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit).map_err(|error| format!("{error:#}"))?;
    let world =
        resolve.select_world(&[package], Some(world)).map_err(|error| format!("{error:#}"))?;
    Ok((resolve, world))
}

/// The name of the one world in the package of a WIT folder.
pub(crate) fn only_world(wit: &Path) -> Result<String, String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit).map_err(|error| format!("{error:#}"))?;
    let mut worlds = resolve.packages[package].worlds.keys();
    match (worlds.next(), worlds.next()) {
        (Some(world), None) => Ok(world.clone()),
        (None, _) => {
            Err("it has no world; add one that says `include twice:node/node@0.1.0;`".to_owned())
        }
        (Some(_), Some(_)) => Err("it has several worlds; keep the node's alone".to_owned()),
    }
}
