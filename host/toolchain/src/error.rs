//! Why a node cannot be built.

use std::path::PathBuf;

use twice_sandbox::SandboxError;

use crate::language::Language;

/// Why a node cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no source.
    #[error(
        "{dir} holds no node: none of {known}\nfix: give the folder of a node; `twice node new NAME --lang LANGUAGE` writes one",
        known = Language::main_files()
    )]
    NoSource {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// There are sources of more than one node.
    #[error("{dir} holds the main files of several languages: {}\nfix: keep one node in a folder", .found.join(", "))]
    Ambiguous {
        /// The folder.
        dir: PathBuf,
        /// What was found.
        found: Vec<&'static str>,
    },
    /// A tool is not there, or cannot be started.
    #[error("`{tool}` cannot be started: {problem}\nfix: {fix}")]
    NoTool {
        /// Which.
        tool: String,
        /// Why.
        problem: String,
        /// How to get it.
        fix: &'static str,
    },
    /// The Rust target is missing and cannot be added.
    #[error(
        "the Rust target wasm32-unknown-unknown is not installed and cannot be added: {problem}\nfix: run `rustup target add \
         wasm32-unknown-unknown`, or install your distribution's package of it"
    )]
    NoTarget {
        /// Why.
        problem: String,
    },
    /// A tool refuses.
    #[error("{tool} cannot build {dir}:\n{diagnostics}")]
    Failed {
        /// Which.
        tool: String,
        /// The node.
        dir: PathBuf,
        /// What it says.
        diagnostics: String,
    },
    /// The tools end well, but leave no WebAssembly behind.
    #[error("{dir} builds, but makes no WebAssembly module\nfix: {fix}")]
    NoArtifact {
        /// The node.
        dir: PathBuf,
        /// What is missing in it.
        fix: &'static str,
    },
    /// The node's own WIT is no world for a node.
    #[error("{path} is no world for a node: {problem}")]
    Wit {
        /// The folder.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
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
