//! Rust: cargo, for a target without WASI.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::error::BuildError;
use crate::job::{Job, Made};

/// What nodes are built for: no WASI, nothing but what the world offers.
const TARGET: &str = "wasm32-unknown-unknown";
const INSTALL: &str = "install Rust (https://rustup.rs) or put it on the PATH";
/// What cargo says of a workspace with a member that has no Cargo.toml, or none that can be read.
const NO_MEMBER: &str = "failed to load manifest for workspace member";
const MEMBERS: &str = "name the folders of Rust nodes in `members` of the workspace's Cargo.toml, in place of `*`, or name the \
                       others in its `exclude`; a node whose own Cargo.toml has `[workspace]` needs neither";
const CDYLIB: &str = "its Cargo.toml needs `[lib]` with `crate-type = [\"cdylib\"]`";

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    let manifest = job.dir.join("Cargo.toml");
    ensure_target(job)?;
    let mut command = Command::new(tool("CARGO", "cargo"));
    command
        .args(["build", "--release", "--target", TARGET])
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--manifest-path")
        .arg(&manifest);
    // The component is what a run is pinned to: it must not depend on where its author's sources and crates lie.
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    if let Some(home) = home {
        let remap = Value::from(format!("--remap-path-prefix={}=cargo", home.display()));
        command.arg("--config").arg(format!("target.{TARGET}.rustflags=[{remap}]"));
    }
    let output = job.run(&mut command, INSTALL).map_err(with_remedy)?;
    artifact(&String::from_utf8_lossy(&output.stdout), &manifest)
        .map(Made::utf8)
        .ok_or_else(|| BuildError::NoArtifact { dir: job.dir.clone(), fix: CDYLIB })
}

/// Adds what helps where a workspace takes in folders that are no Rust nodes.
fn with_remedy(error: BuildError) -> BuildError {
    match error {
        BuildError::Failed { tool, dir, diagnostics } if diagnostics.contains(NO_MEMBER) => {
            let diagnostics = format!("{diagnostics}\nfix: {MEMBERS}");
            BuildError::Failed { tool, dir, diagnostics }
        }
        other => other,
    }
}

/// Adds the target to the toolchain when it is missing.
fn ensure_target(job: &mut Job<'_>) -> Result<(), BuildError> {
    let mut ask = Command::new(tool("RUSTC", "rustc"));
    let libraries = job.run(ask.args(["--print", "target-libdir", "--target", TARGET]), INSTALL)?;
    if Path::new(String::from_utf8_lossy(&libraries.stdout).trim()).is_dir() {
        return Ok(());
    }
    (job.say)(&format!("adding the Rust target {TARGET} (`rustup target add {TARGET}`)"));
    let added = job.run(Command::new("rustup").args(["target", "add", TARGET]), INSTALL);
    added.map(|_| ()).map_err(|error| BuildError::NoTarget {
        problem: match error {
            BuildError::Failed { diagnostics, .. } => diagnostics,
            other => other.to_string(),
        },
    })
}

/// The tool that the caller's own cargo uses, or the one on the PATH.
fn tool(variable: &str, name: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| name.to_owned())
}

/// The WebAssembly file of the package itself among cargo's messages.
fn artifact(messages: &str, manifest: &Path) -> Option<PathBuf> {
    let ours = |message: &Value| {
        message["reason"] == "compiler-artifact"
            && message["manifest_path"].as_str().map(Path::new) == Some(manifest)
    };
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(ours)
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .rfind(|path| path.extension().is_some_and(|extension| extension == "wasm"))
}
