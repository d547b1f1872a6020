//! One build under way: its folders, and the tools it runs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::error::BuildError;

/// The environment variable with folders in which tools are looked for first, written as PATH is.
const TOOLS: &str = "TWICE_TOOLS";

/// What a recipe works with.
pub(crate) struct Job<'a> {
    /// The node's folder. Absolute.
    pub(crate) dir: PathBuf,
    /// Where everything goes that is made on the way; it is there. `target/twice` in the node's folder.
    pub(crate) work: PathBuf,
    /// The SDKs of this host's version, laid out as `guest-sdk/` is: `wit/`, `python/`, …
    pub(crate) sdk: PathBuf,
    /// The WIT package of the node's world, with everything it depends on: the SDK's, or the node's own `wit/` folder.
    pub(crate) wit: PathBuf,
    /// The name of its world.
    pub(crate) world: String,
    pub(crate) say: &'a mut dyn FnMut(&str),
}

/// What a recipe made: a component, or a core module with or without component metadata.
pub(crate) struct Made {
    /// Where it lies.
    pub(crate) path: PathBuf,
    /// How strings lie in its memory; of interest for a core module without metadata.
    pub(crate) strings: Strings,
}

/// How a module's strings lie in its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strings {
    Utf8,
    Utf16,
}

impl Made {
    pub(crate) const fn utf8(path: PathBuf) -> Self {
        Self { path, strings: Strings::Utf8 }
    }
}

impl Job<'_> {
    /// Runs `command` in the node's folder to its end and hands on what it says on standard error line by line.
    ///
    /// # Errors
    /// [`BuildError::NoTool`] with `fix` when it cannot be started, [`BuildError::Failed`] when it says no.
    pub(crate) fn run(
        &mut self,
        command: &mut Command,
        fix: &'static str,
    ) -> Result<Output, BuildError> {
        let tool = program(command);
        let output = followed(command.current_dir(&self.dir), self.say).map_err(|error| {
            BuildError::NoTool { tool: tool.clone(), problem: error.to_string(), fix }
        })?;
        if output.status.success() {
            return Ok(output);
        }
        // Some tools say what is wrong on standard output.
        let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
        let diagnostics = said.join("\n").trim().to_owned();
        Err(BuildError::Failed { tool, dir: self.dir.clone(), diagnostics })
    }

    /// The first of `names` that is in a folder of [`TOOLS`], in a `node_modules/.bin` of the node's folder or one above, or on
    /// the PATH.
    ///
    /// # Errors
    /// [`BuildError::NoTool`] with `fix`.
    pub(crate) fn find(&self, names: &[&str], fix: &'static str) -> Result<PathBuf, BuildError> {
        let [first, last] = [TOOLS, "PATH"].map(|name| std::env::var_os(name).unwrap_or_default());
        let beside = self.dir.ancestors().map(|dir| dir.join("node_modules/.bin"));
        let first = std::env::split_paths(&first).filter(|place| place.is_absolute());
        let places: Vec<PathBuf> =
            first.chain(beside).chain(std::env::split_paths(&last)).collect();
        let found = names
            .iter()
            .flat_map(|name| places.iter().map(move |place| place.join(name)))
            .find(|file| is_executable(file));
        found.ok_or_else(|| BuildError::NoTool {
            tool: names.join("` or `"),
            problem:
                "it is neither on the PATH, nor in a node_modules/.bin, nor where TWICE_TOOLS says"
                    .to_owned(),
            fix,
        })
    }

    /// Reads a file.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>, BuildError> {
        std::fs::read(path).map_err(|source| BuildError::File { path: path.to_owned(), source })
    }

    /// Writes a file of the work folder.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
        write(path, bytes)
    }
}

/// Writes a file, and the folders above it, unless it is there with this content.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    folder
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|source| BuildError::File { path: path.to_owned(), source })
}

pub(crate) fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn followed(command: &mut Command, say: &mut dyn FnMut(&str)) -> std::io::Result<Output> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = piped?;
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
    let status = child.wait()?;
    Ok(Output { status, stdout: stdout?, stderr })
}
