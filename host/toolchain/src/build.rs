//! From a node's folder to a component.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use twice_sandbox::componentize;

use crate::embed;
use crate::error::BuildError;
use crate::job::{Job, Made, write};
use crate::language::Language;
use crate::recipe;
use crate::sdk::{restore_sdk, write_sdk};

/// What helps where a tool ends well and leaves nothing.
const SILENT: &str = "run its tools by hand, or install them anew";

/// A built node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The language of its source.
    pub language: Language,
    /// The component, ready to be loaded.
    pub component: Vec<u8>,
    /// The file that the language's tools wrote: a core module or a component.
    pub artifact: PathBuf,
}

/// Builds the node in `dir` for release and makes a component of it. `say` gets a line for each step that takes time, among
/// them what the language's tools say when they say it. Blocks.
///
/// The world is `twice:node/node`, or the one in the node's own `wit/` folder, which includes it.
///
/// Tools are looked for in the folders that the environment variable `TWICE_TOOLS` names, in a `node_modules/.bin` of the node's
/// folder or one above, and on the PATH.
///
/// # Errors
/// See [`BuildError`].
pub fn build(dir: &Path, say: &mut dyn FnMut(&str)) -> Result<Built, BuildError> {
    let language = Language::of(dir)?;
    let dir =
        dir.canonicalize().map_err(|source| BuildError::File { path: dir.to_owned(), source })?;
    let work = dir.join("target/twice");
    let _alone = alone(&work, say)?;
    clear(&work)?;
    let sdk = work.join("sdk");
    write_sdk(&sdk, language)?;
    restore_sdk(&dir, language)?;
    let (wit, world) = world(&dir, &work, &sdk)?;
    let mut job = Job { dir, work, sdk, wit, world, say };
    let made = match language {
        Language::Rust => recipe::rust::build(&mut job)?,
        Language::Python => recipe::python::build(&mut job)?,
        Language::JavaScript => recipe::javascript::build(&mut job)?,
        Language::TypeScript => recipe::typescript::build(&mut job)?,
        Language::Go => recipe::go::build(&mut job)?,
        Language::C => recipe::c::build(&mut job)?,
        Language::Cpp => recipe::cpp::build(&mut job)?,
        Language::Zig => recipe::zig::build(&mut job)?,
        Language::AssemblyScript => recipe::assemblyscript::build(&mut job)?,
    };
    finish(language, &made, &job)
}

/// Has the work folder to itself until what this returns is dropped; waits while another process builds the same node.
fn alone(work: &Path, say: &mut dyn FnMut(&str)) -> Result<File, BuildError> {
    let path = work.join("lock");
    let failed = |source| BuildError::File { path: path.clone(), source };
    std::fs::create_dir_all(work).map_err(failed)?;
    let file = File::create(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            say("waiting for another build of this node");
            file.lock().map_err(failed)?;
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    Ok(file)
}

/// Removes what an earlier build left: a tool that ends well and writes nothing must not have that taken for its work, and the WIT
/// must not keep what the author took out.
fn clear(work: &Path) -> Result<(), BuildError> {
    let (module, wit) = (work.join("node.wasm"), work.join("wit"));
    for (path, removed) in
        [(&module, std::fs::remove_file(&module)), (&wit, std::fs::remove_dir_all(&wit))]
    {
        if let Err(source) = removed
            && source.kind() != ErrorKind::NotFound
        {
            return Err(BuildError::File { path: path.clone(), source });
        }
    }
    Ok(())
}

fn finish(language: Language, made: &Made, job: &Job<'_>) -> Result<Built, BuildError> {
    if !made.path.is_file() {
        return Err(BuildError::NoArtifact { dir: job.dir.clone(), fix: SILENT });
    }
    let bytes = job.read(&made.path)?;
    let module = embed::world(bytes, &job.wit, &job.world, made.strings)?;
    let artifact = made.path.clone();
    match componentize(&module) {
        Ok(component) => Ok(Built { language, component: component.into_owned(), artifact }),
        Err(source) => Err(BuildError::Refused { path: artifact, source }),
    }
}

/// The WIT folder and the world of the node in `dir`: its own `wit/`, put together with ours, or ours.
fn world(dir: &Path, work: &Path, sdk: &Path) -> Result<(PathBuf, String), BuildError> {
    let ours = sdk.join("wit");
    let own = dir.join("wit");
    if !own.is_dir() {
        return Ok((ours, "node".to_owned()));
    }
    let together = work.join("wit");
    copy(&own, &together)?;
    let node = ours.join("node.wit");
    let text = std::fs::read(&node).map_err(|source| BuildError::File { path: node, source })?;
    write(&together.join("deps/twice-node/node.wit"), &text)?;
    let world =
        embed::only_world(&together).map_err(|problem| BuildError::Wit { path: own, problem })?;
    Ok((together, world))
}

fn copy(from: &Path, to: &Path) -> Result<(), BuildError> {
    let failed = |source| BuildError::File { path: from.to_owned(), source };
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            let bytes = std::fs::read(&path)
                .map_err(|source| BuildError::File { path: path.clone(), source })?;
            write(&target, &bytes)?;
        }
    }
    Ok(())
}
