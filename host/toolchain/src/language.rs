//! The languages a node can be written in.

use std::path::Path;

use crate::error::BuildError;

/// A language that nodes can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// Rust, by cargo for wasm32-unknown-unknown.
    Rust,
    /// Python 3, by componentize-py.
    Python,
    /// JavaScript, by componentize-qjs (QuickJS).
    JavaScript,
    /// TypeScript, checked by tsc, bundled by esbuild, then as JavaScript.
    TypeScript,
    /// Go, by the standard toolchain for wasip1.
    Go,
    /// C, by clang with wasi-libc, or by zig.
    C,
    /// C++, by clang with libc++, or by zig.
    Cpp,
    /// Zig, freestanding.
    Zig,
    /// AssemblyScript, by asc.
    AssemblyScript,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Rust,
        Self::Python,
        Self::JavaScript,
        Self::TypeScript,
        Self::Go,
        Self::C,
        Self::Cpp,
        Self::Zig,
        Self::AssemblyScript,
    ];

    /// Its word on the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Go => "go",
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Zig => "zig",
            Self::AssemblyScript => "assemblyscript",
        }
    }

    /// The file in a node's folder that says its language.
    #[must_use]
    pub const fn main_file(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::Python => "main.py",
            Self::JavaScript => "main.js",
            Self::TypeScript => "main.ts",
            Self::Go => "go.mod",
            Self::C => "main.c",
            Self::Cpp => "main.cpp",
            Self::Zig => "main.zig",
            Self::AssemblyScript => "asconfig.json",
        }
    }

    pub(crate) fn main_files() -> String {
        let named =
            Self::ALL.map(|language| format!("{} ({})", language.main_file(), language.word()));
        named.join(", ")
    }

    /// The language of the node in `dir`.
    ///
    /// # Errors
    /// [`BuildError::NoSource`], [`BuildError::Ambiguous`].
    pub fn of(dir: &Path) -> Result<Self, BuildError> {
        let found: Vec<Self> = Self::ALL
            .into_iter()
            .filter(|language| dir.join(language.main_file()).is_file())
            .collect();
        match *found.as_slice() {
            [] => Err(BuildError::NoSource { dir: dir.to_owned() }),
            [language] => Ok(language),
            _ => Err(BuildError::Ambiguous {
                dir: dir.to_owned(),
                found: found.into_iter().map(Self::main_file).collect(),
            }),
        }
    }
}
