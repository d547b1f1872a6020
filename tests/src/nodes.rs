//! The repository's nodes, built by their own toolchain, once per process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use twice_toolchain::BuildError;

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
    built(name).unwrap_or_else(|error| panic!("nodes/{name} cannot be built: {error}"))
}

/// The component of `nodes/<name>`, or `None` where the tools of its language are missing: it is said, and in CI a failure.
///
/// # Panics
/// When it cannot be built for another reason.
#[must_use]
pub fn language_component(name: &str) -> Option<Vec<u8>> {
    match built(name) {
        Ok(component) => Some(component),
        Err(error @ BuildError::NoTool { .. }) if std::env::var_os("CI").is_none() => {
            eprintln!("LEFT OUT: nodes/{name}: {error}");
            None
        }
        Err(error) => panic!("nodes/{name} cannot be built: {error}"),
    }
}

/// Where the compilers are that `.ci/toolchains` installs, for a command's `TWICE_TOOLS`.
#[must_use]
pub fn compiler_folders() -> String {
    std::env::var("TWICE_TOOLS").unwrap_or_default()
}

fn built(name: &str) -> Result<Vec<u8>, BuildError> {
    static BUILT: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(component) = built.get(name) {
        return Ok(component.clone());
    }
    let dir = repository().join("nodes").join(name);
    let node = twice_toolchain::build(&dir, &mut |line| eprintln!("{line}"))?;
    built.insert(name.to_owned(), node.component.clone());
    Ok(node.component)
}
