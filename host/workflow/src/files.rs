//! The files of a project, wherever they are kept.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use twice_core::limits::FILE_BYTES_MAX;

/// Why a file could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("there is no file `{path}`")]
    Missing {
        /// The path as asked for.
        path: String,
    },
    /// It is not UTF-8.
    #[error("`{path}` is not UTF-8 text")]
    NotText {
        /// The path as asked for.
        path: String,
    },
    /// It is larger than [`FILE_BYTES_MAX`].
    #[error("`{path}` is larger than {FILE_BYTES_MAX} bytes")]
    TooLarge {
        /// The path as asked for.
        path: String,
    },
    /// The path leaves the project.
    #[error("`{path}` is not a path within the project")]
    Outside {
        /// The path as asked for.
        path: String,
    },
    /// The system refused.
    #[error("`{path}` cannot be read ({kind})")]
    System {
        /// The path as asked for.
        path: String,
        /// The kind of refusal.
        kind: io::ErrorKind,
    },
}

/// The files of a project. Paths are relative to its folder, with `/` between their parts.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// [`FileError`] when there is none, or none that can be used.
    fn read(&self, path: &str) -> Result<String, FileError>;

    /// The names of the files directly in a folder, in order; none when there is no such folder.
    ///
    /// # Errors
    /// [`FileError`] when the folder exists and cannot be listed.
    fn list(&self, dir: &str) -> Result<Vec<String>, FileError>;
}

/// Files in memory, by path.
impl Files for BTreeMap<String, String> {
    fn read(&self, path: &str) -> Result<String, FileError> {
        let text = self.get(path).ok_or_else(|| FileError::Missing { path: path.to_owned() })?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { path: path.to_owned() });
        }
        Ok(text.clone())
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, FileError> {
        let prefix = format!("{dir}/");
        let names = self.keys().filter_map(|path| path.strip_prefix(&prefix));
        Ok(names.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }
}

/// Files on disk.
#[derive(Debug, Clone)]
pub struct DiskFiles {
    /// The folder of the project.
    pub root: PathBuf,
}

impl DiskFiles {
    fn locate(&self, path: &str) -> Result<PathBuf, FileError> {
        if is_inside(path) {
            Ok(self.root.join(path))
        } else {
            Err(FileError::Outside { path: path.to_owned() })
        }
    }
}

impl Files for DiskFiles {
    fn read(&self, path: &str) -> Result<String, FileError> {
        let system = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => FileError::Missing { path: path.to_owned() },
            kind => FileError::System { path: path.to_owned(), kind },
        };
        let file = fs::File::open(self.locate(path)?).map_err(system)?;
        let mut bytes = Vec::new();
        // One byte over the limit tells a file of the limit's size from a larger one, without reading the rest.
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(system)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { path: path.to_owned() });
        }
        String::from_utf8(bytes).map_err(|_| FileError::NotText { path: path.to_owned() })
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, FileError> {
        let system =
            |error: io::Error| FileError::System { path: dir.to_owned(), kind: error.kind() };
        let entries = match fs::read_dir(self.locate(dir)?) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(system(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(system)?;
            if entry.path().is_file() {
                let name = entry.file_name().into_string();
                names.push(name.map_err(|_| FileError::NotText { path: dir.to_owned() })?);
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Whether a path stays within the project: relative, with plain parts only.
pub(crate) fn is_inside(path: &str) -> bool {
    !path.contains(['\\', '\0', ':'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}
