//! The repository's nodes, built by their own toolchain, once per process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The repository's top folder.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
        .to_path_buf()
}

/// The component of `nodes/<name>`.
///
/// # Panics
/// When it cannot be built; the message says what is missing.
#[must_use]
pub fn component(name: &str) -> Vec<u8> {
    static BUILT: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(component) = built.get(name) {
        return component.clone();
    }
    let dir = repository().join("nodes").join(name);
    let component = match twice_toolchain::build(&dir, &mut |line| eprintln!("{line}")) {
        Ok(node) => node.component,
        Err(error) => panic!("nodes/{name} cannot be built: {error}"),
    };
    built.insert(name.to_owned(), component.clone());
    component
}
