//! Where secrets come from: references in tool files, resolved by the host at the moment of use.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Largest secret. Bytes; a private key in PEM form fits, a database by mistake does not.
pub const SECRET_BYTES_MAX: u64 = 16 << 10;

/// Reads what a reference (`env:NAME` or `file:PATH`) stands for.
pub trait SecretSource: Send + Sync + 'static {
    /// The value, without the line end that files usually have.
    ///
    /// # Errors
    /// [`SecretError`]; its text never holds a value.
    fn read(&self, reference: &str) -> Result<String, SecretError>;
}

/// Why a reference stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Neither `env:NAME` nor `file:PATH`.
    #[error("it is neither `env:NAME` nor `file:PATH`; values are never written into tool files")]
    BadReference,
    /// The variable is not set, or set to nothing.
    #[error("the environment variable {name} is not set; set it for the worker")]
    NotSet {
        /// The variable.
        name: String,
    },
    /// The file cannot be read.
    #[error("the file {path} cannot be read: {problem}")]
    Unreadable {
        /// The path.
        path: String,
        /// Why, in words.
        problem: String,
    },
    /// The value is not UTF-8 text of a sensible size.
    #[error("its value is not UTF-8 text of 1 to {SECRET_BYTES_MAX} bytes")]
    NotText,
}

/// The environment of the process, and files relative to the project.
#[derive(Debug, Clone)]
pub struct SystemSecrets {
    /// The directory that relative paths start from.
    pub root: PathBuf,
}

impl SecretSource for SystemSecrets {
    fn read(&self, reference: &str) -> Result<String, SecretError> {
        let value = match split(reference)? {
            Reference::Env(name) => std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => SecretError::NotSet { name: name.to_owned() },
                std::env::VarError::NotUnicode(_) => SecretError::NotText,
            })?,
            Reference::File(path) => self.read_file(path)?,
        };
        if value.is_empty() || value.len() as u64 > SECRET_BYTES_MAX {
            return Err(SecretError::NotText);
        }
        Ok(value)
    }
}

impl SystemSecrets {
    fn read_file(&self, path: &str) -> Result<String, SecretError> {
        let unreadable =
            |problem: String| SecretError::Unreadable { path: path.to_owned(), problem };
        let full = self.root.join(path);
        let size = std::fs::metadata(&full).map_err(|e| unreadable(e.kind().to_string()))?.len();
        if size > SECRET_BYTES_MAX {
            return Err(SecretError::NotText);
        }
        let bytes = std::fs::read(&full).map_err(|e| unreadable(e.kind().to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| SecretError::NotText)?;
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// A fixed set of references and values, for tests and simulations.
#[derive(Clone, Default)]
pub struct FixedSecrets {
    values: BTreeMap<String, String>,
}

impl FixedSecrets {
    /// The references and what they stand for.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

impl fmt::Debug for FixedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl SecretSource for FixedSecrets {
    fn read(&self, reference: &str) -> Result<String, SecretError> {
        let name = match split(reference)? {
            Reference::Env(name) | Reference::File(name) => name,
        };
        self.values
            .get(reference)
            .cloned()
            .ok_or_else(|| SecretError::NotSet { name: name.to_owned() })
    }
}

enum Reference<'a> {
    Env(&'a str),
    File(&'a str),
}

fn split(reference: &str) -> Result<Reference<'_>, SecretError> {
    match reference.split_once(':') {
        Some(("env", name)) if !name.is_empty() => Ok(Reference::Env(name)),
        Some(("file", path)) if !path.is_empty() => Ok(Reference::File(path)),
        Some(_) | None => Err(SecretError::BadReference),
    }
}
