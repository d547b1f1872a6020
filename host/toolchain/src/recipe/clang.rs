//! C and C++: a clang with a C library for WASI, or the one that is in zig; for WASI preview 1 as a reactor.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BuildError;
use crate::job::{Job, Made};

const TARGET: &str = "wasm32-wasi";
/// The first that is there and can do it is taken.
const CLANGS: [&str; 5] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang"];
const INSTALL: &str = "install zig (`pip install ziglang==0.17.1`, or https://ziglang.org/download), or clang with a C library for WASI (Debian, \
    Ubuntu: `apt-get install clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32 libc++-19-dev-wasm32 libc++abi-19-dev-wasm32`; elsewhere: \
    https://github.com/WebAssembly/wasi-sdk, with its bin folder on the PATH)";

/// A language of the C family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    C,
    Cpp,
}

/// Builds the node of `dialect` in the job's folder, together with the files `sdk` of the SDK.
pub(super) fn build(job: &mut Job<'_>, dialect: Dialect, sdk: &[&str]) -> Result<Made, BuildError> {
    let compiler = Compiler::find(job, dialect)?;
    let mut sources: Vec<PathBuf> = sdk.iter().map(|path| job.sdk.join(path)).collect();
    sources.extend(sources_of(&job.dir, dialect)?);
    let mut objects = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let object = job.work.join(format!("objects/{index}.o"));
        // The compiler does not make the folder.
        job.write(&object, b"")?;
        let mut command = compiler.command();
        command.args(flags_of(source)).args(["-Os", "-Wall", "-Wextra"]);
        for include in ["c", "cpp"] {
            command.arg("-I").arg(job.sdk.join(include));
        }
        command.arg("-c").arg(source).arg("-o").arg(&object);
        job.run(&mut command, INSTALL)?;
        objects.push(object);
    }
    let artifact = job.work.join("node.wasm");
    let mut command = compiler.command();
    command.args(compiler.link(dialect)).args(objects).arg("-o").arg(&artifact);
    job.run(&mut command, INSTALL)?;
    Ok(Made::utf8(artifact))
}

/// The sources in a node's folder, in the order of their names, which is part of what is built.
fn sources_of(dir: &Path, dialect: Dialect) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |source| BuildError::File { path: dir.to_owned(), source };
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        // Without its folder, so that no path of the author's machine gets into the node.
        let source = PathBuf::from(entry.map_err(failed)?.file_name());
        let taken = dialect_of(&source).is_some_and(|of| of == Dialect::C || of == dialect);
        if taken {
            sources.push(source);
        }
    }
    sources.sort();
    Ok(sources)
}

fn dialect_of(source: &Path) -> Option<Dialect> {
    match source.extension()?.to_str()? {
        "c" => Some(Dialect::C),
        "cpp" | "cc" | "cxx" => Some(Dialect::Cpp),
        _ => None,
    }
}

fn flags_of(source: &Path) -> &'static [&'static str] {
    match dialect_of(source) {
        // There is no unwinding in a component: the C++ library is built without exceptions.
        Some(Dialect::Cpp) => &["-x", "c++", "-std=c++23", "-fno-exceptions"],
        Some(Dialect::C) | None => &["-x", "c", "-std=gnu17"],
    }
}

enum Compiler {
    Clang { program: PathBuf },
    Zig { command: Vec<OsString>, dialect: Dialect },
}

impl Compiler {
    fn find(job: &Job<'_>, dialect: Dialect) -> Result<Self, BuildError> {
        let clangs = CLANGS.iter().filter_map(|name| job.find(&[name], INSTALL).ok());
        if let Some(program) = clangs.into_iter().find(|program| has_library(program, dialect)) {
            return Ok(Self::Clang { program });
        }
        let command = super::zig::compiler(job, INSTALL).map_err(|_| BuildError::NoTool {
            tool: "clang-19` or `zig".to_owned(),
            problem: "there is no zig, and no clang with a C library for WASI".to_owned(),
            fix: INSTALL,
        })?;
        Ok(Self::Zig { command, dialect })
    }

    fn command(&self) -> Command {
        match self {
            Self::Clang { program } => clang(program),
            Self::Zig { command, dialect } => {
                let driver = match dialect {
                    Dialect::C => "cc",
                    Dialect::Cpp => "c++",
                };
                let mut zig = super::zig::command(command);
                zig.args([driver, "-target", TARGET]);
                zig
            }
        }
    }

    /// What makes a reactor of objects: a module whose functions are called, and which has no main. The stack is as deep as
    /// that of other languages, and stands first in memory, so that its end is noticed (as zig places it anyway). The names of
    /// functions are kept: a trap tells them.
    fn link(&self, dialect: Dialect) -> Vec<&'static str> {
        let mut flags =
            vec!["-mexec-model=reactor", "-Wl,--strip-debug", "-Wl,-z,stack-size=1048576"];
        match self {
            Self::Clang { .. } => {
                flags.push("-Wl,--stack-first");
                if dialect == Dialect::Cpp {
                    flags.push("--driver-mode=g++");
                }
            }
            Self::Zig { .. } => flags.push("-Os"),
        }
        flags
    }
}

/// A clang that sees nothing of the author's machine but its own folder and the system's: a `wasm-opt` on the PATH, say of an npm
/// package, would be run over the node.
fn clang(program: &Path) -> Command {
    let own = program.parent().unwrap_or(Path::new("/usr/bin"));
    let mut command = Command::new(program);
    command.arg(format!("--target={TARGET}")).env_clear();
    let path = std::env::join_paths([own, Path::new("/usr/bin"), Path::new("/bin")]);
    command.env("PATH", path.unwrap_or_else(|_| OsString::from("/usr/bin:/bin")));
    command
}

/// Whether a clang has what it needs for the target: start files, libraries and its own run-time functions.
fn has_library(program: &Path, dialect: Dialect) -> bool {
    let mut asked = vec!["-print-file-name=crt1-reactor.o", "-print-libgcc-file-name"];
    if dialect == Dialect::Cpp {
        asked.push("-print-file-name=libc++.a");
    }
    // Of a file that it does not have, clang prints the bare name.
    let is_there = |asked| {
        clang(program).arg(asked).output().is_ok_and(|output| {
            let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
            path.is_absolute() && path.is_file()
        })
    };
    asked.into_iter().all(is_there)
}
