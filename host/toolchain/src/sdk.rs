//! The SDKs, as this host's version has them.

use std::path::Path;

use twice_sandbox::NODE_WIT;

use crate::error::BuildError;
use crate::job::write;
use crate::language::Language;

/// Files by their path below `guest-sdk/`.
type Files = &'static [(&'static str, &'static str)];

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../guest-sdk/", $path)))),*]
    };
}

const WIT: Files = &[("wit/node.wit", NODE_WIT)];

const fn of(language: Language) -> Files {
    match language {
        Language::Rust => files![
            "rust/Cargo.toml",
            "rust/src/lib.rs",
            "rust/src/context.rs",
            "rust/src/effects.rs",
            "rust/src/error.rs",
            "rust/src/log.rs",
        ],
        Language::Python => files![
            "python/twice_app.py",
            "python/twice_node/__init__.py",
            "python/twice_node/context.py",
            "python/twice_node/effects.py",
            "python/twice_node/errors.py",
            "python/twice_node/log.py",
            "python/twice_node/nodes.py",
            "python/twice_node/texts.py",
        ],
        Language::JavaScript | Language::TypeScript => files![
            "typescript/src/context.ts",
            "typescript/src/describe.ts",
            "typescript/src/effects.ts",
            "typescript/src/entry.ts",
            "typescript/src/errors.ts",
            "typescript/src/globals.ts",
            "typescript/src/index.ts",
            "typescript/src/json.ts",
            "typescript/src/log.ts",
            "typescript/src/node.ts",
            "typescript/src/world.d.ts",
        ],
        Language::Go => files![
            "go/go.mod",
            "go/node.go",
            "go/context/context.go",
            "go/effects/effects.go",
            "go/internal/host/component.go",
            "go/internal/host/elsewhere.go",
            "go/internal/host/host.go",
            "go/internal/text/text.go",
            "go/log/log.go",
        ],
        Language::C => files!["c/twice.c", "c/twice.h"],
        Language::Cpp => files!["c/twice.c", "c/twice.h", "cpp/twice.cpp", "cpp/twice.hpp"],
        Language::Zig => files!["zig/root.zig", "zig/twice.zig"],
        Language::AssemblyScript => files![
            "assemblyscript/twice/abi.ts",
            "assemblyscript/twice/console.ts",
            "assemblyscript/twice/context.ts",
            "assemblyscript/twice/index.ts",
            "assemblyscript/twice/json.ts",
            "assemblyscript/twice/log.ts",
            "assemblyscript/twice/runtime.ts",
        ],
    }
}

/// Writes the WIT package and the SDK of `language` to `dir`, laid out as `guest-sdk/` is. Files that are there with the same
/// content are left alone; others are written anew, since an SDK belongs to the host's version.
///
/// # Errors
/// [`BuildError::File`].
pub fn write_sdk(dir: &Path, language: Language) -> Result<(), BuildError> {
    for (path, text) in WIT.iter().chain(of(language)) {
        write(&dir.join(path), text.as_bytes())?;
    }
    Ok(())
}

/// Where the SDKs of a project lie, as the manifests of the nodes have it that `twice node new` writes in `nodes/`.
const OF_PROJECT: &str = "../../sdk";

/// Writes the project's SDK of `language` where the manifest of the node in `dir` names it and it is not there: projects need
/// not keep it with their sources.
pub(crate) fn restore_sdk(dir: &Path, language: Language) -> Result<(), BuildError> {
    let named = match language {
        Language::Rust => "rust",
        Language::Go => "go",
        // What these build with is never the project's.
        Language::Python
        | Language::JavaScript
        | Language::TypeScript
        | Language::C
        | Language::Cpp
        | Language::Zig
        | Language::AssemblyScript => return Ok(()),
    };
    let path = dir.join(language.main_file());
    let manifest = std::fs::read_to_string(&path)
        .map_err(|source| BuildError::File { path: path.clone(), source })?;
    let sdk = dir.join(OF_PROJECT);
    if sdk.join(named).exists() || !manifest.contains(&format!("{OF_PROJECT}/{named}")) {
        return Ok(());
    }
    write_sdk(&sdk, language)
}
