//! Builds a node written in Rust: the few steps that an author would otherwise have to know.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::api::SandboxError;
use crate::componentize::componentize;

/// What nodes are built for: no WASI, nothing but what the world offers.
const TARGET: &str = "wasm32-unknown-unknown";

/// A built node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The component, ready to be loaded.
    pub component: Vec<u8>,
    /// The core module that cargo wrote.
    pub artifact: PathBuf,
}

/// Why a node cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no cargo package.
    #[error("{dir} holds no Cargo.toml; give the folder of the node's package")]
    NoPackage {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// A tool cannot be started.
    #[error(
        "`{tool}` cannot be started: {source}; install Rust (https://rustup.rs) or put it on the PATH"
    )]
    NoTool {
        /// Which.
        tool: String,
        /// Why.
        source: std::io::Error,
    },
    /// The target is missing and cannot be added.
    #[error(
        "the Rust target wasm32-unknown-unknown is not installed and cannot be added: {problem}; run `rustup target add \
         wasm32-unknown-unknown`, or install your distribution's package of it"
    )]
    NoTarget {
        /// Why.
        problem: String,
    },
    /// Cargo refuses.
    #[error("cargo cannot build {dir}:\n{diagnostics}")]
    Failed {
        /// The package.
        dir: PathBuf,
        /// What cargo and rustc say.
        diagnostics: String,
    },
    /// The package builds, but makes no WebAssembly library.
    #[error(
        "{dir} builds, but makes no WebAssembly module; its Cargo.toml needs `[lib]` with `crate-type = [\"cdylib\"]`"
    )]
    NoArtifact {
        /// The package.
        dir: PathBuf,
    },
    /// The built file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What was built is no component.
    #[error("{path} was built, but is refused: {source}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        source: SandboxError,
    },
}

/// Builds the package in `dir` for release and makes a component of it. Adds the target to the toolchain when it is missing.
/// `say` gets a line for each step that takes time, among them what cargo says when it says it. Blocks.
///
/// # Errors
/// See [`BuildError`].
pub fn build_rust_node(dir: &Path, say: &mut dyn FnMut(&str)) -> Result<Built, BuildError> {
    let manifest = dir
        .join("Cargo.toml")
        .canonicalize()
        .map_err(|_| BuildError::NoPackage { dir: dir.to_owned() })?;
    ensure_target(dir, say)?;
    let output = cargo_build(dir, &manifest, say)?;
    if !output.status.success() {
        let diagnostics = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(BuildError::Failed { dir: dir.to_owned(), diagnostics });
    }
    let artifact = artifact(&String::from_utf8_lossy(&output.stdout), &manifest)
        .ok_or_else(|| BuildError::NoArtifact { dir: dir.to_owned() })?;
    let module = std::fs::read(&artifact)
        .map_err(|source| BuildError::Unreadable { path: artifact.clone(), source })?;
    match componentize(&module) {
        Ok(component) => Ok(Built { component: component.into_owned(), artifact }),
        Err(source) => Err(BuildError::Refused { path: artifact, source }),
    }
}

fn ensure_target(dir: &Path, say: &mut dyn FnMut(&str)) -> Result<(), BuildError> {
    let libraries = output(Command::new(tool("RUSTC", "rustc")).current_dir(dir).args([
        "--print",
        "target-libdir",
        "--target",
        TARGET,
    ]))?;
    if Path::new(String::from_utf8_lossy(&libraries.stdout).trim()).is_dir() {
        return Ok(());
    }
    say(&format!("adding the Rust target {TARGET} (`rustup target add {TARGET}`)"));
    let added = output(Command::new("rustup").current_dir(dir).args(["target", "add", TARGET]))
        .map_err(|error| BuildError::NoTarget { problem: error.to_string() })?;
    if added.status.success() {
        return Ok(());
    }
    Err(BuildError::NoTarget { problem: String::from_utf8_lossy(&added.stderr).trim().to_owned() })
}

fn cargo_build(
    dir: &Path,
    manifest: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Output, BuildError> {
    let mut command = Command::new(tool("CARGO", "cargo"));
    command
        .current_dir(dir)
        .args(["build", "--release", "--target", TARGET])
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--manifest-path")
        .arg(manifest);
    // The component is what a run is pinned to: it must not depend on where its author's sources and crates lie.
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    if let Some(home) = home {
        let remap = Value::from(format!("--remap-path-prefix={}=cargo", home.display()));
        command.arg("--config").arg(format!("target.{TARGET}.rustflags=[{remap}]"));
    }
    followed(&mut command, say)
}

/// As [`output`], handing on what goes to standard error line by line.
fn followed(command: &mut Command, say: &mut dyn FnMut(&str)) -> Result<Output, BuildError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let failed = |source| BuildError::NoTool { tool: tool.clone(), source };
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = piped.map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both are read at once: a pipe that is full stops its writer.
    let (stdout, stderr) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut all = Vec::new();
            let read = stdout.map(|mut stdout| stdout.read_to_end(&mut all)).transpose();
            read.map(|_| all)
        });
        let mut all = Vec::new();
        for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).split(b'\n')) {
            let Ok(line) = line else { break };
            say(String::from_utf8_lossy(&line).trim());
            all.extend_from_slice(&line);
            all.push(b'\n');
        }
        (reading.join().unwrap_or_else(|_| Ok(Vec::new())), all)
    });
    let status = child.wait();
    Ok(Output { status: status.map_err(failed)?, stdout: stdout.map_err(failed)?, stderr })
}

/// The tool that the caller's own cargo uses, or the one on the PATH.
fn tool(variable: &str, name: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| name.to_owned())
}

fn output(command: &mut Command) -> Result<Output, BuildError> {
    command.stdin(Stdio::null()).output().map_err(|source| BuildError::NoTool {
        tool: command.get_program().to_string_lossy().into_owned(),
        source,
    })
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
