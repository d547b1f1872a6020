//! Zig, for no system at all.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::error::BuildError;
use crate::job::{Job, Made};

const INSTALL: &str = "install zig 0.17.1 (`pip install ziglang==0.17.1`, or https://ziglang.org/download) and put it on the PATH";

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    let artifact = job.work.join("node.wasm");
    let zig = compiler(job, INSTALL)?;
    let root = job.sdk.join("zig/root.zig");
    let sdk = job.sdk.join("zig/twice.zig");
    let module = |name: &str, path: &Path| {
        let mut flag = OsString::from(format!("-M{name}="));
        flag.push(path);
        flag
    };
    let mut command = self::command(&zig);
    command
        .args(["build-exe", "-target", "wasm32-freestanding", "-fno-entry", "-rdynamic"])
        // Checked: a sum that overflows must end the node, not the account.
        .args(["-O", "ReleaseSafe", "-fstrip", "--stack", "1048576"])
        // The SDK is the root, as what is there alone says how a panic ends. It runs the author's module `node`.
        .args(["--dep", "twice", "--dep", "node"])
        .arg(module("root", &root))
        .arg(module("twice", &sdk))
        .args(["--dep", "twice"])
        .arg(module("node", &job.dir.join("main.zig")));
    let mut emit = OsString::from("-femit-bin=");
    emit.push(&artifact);
    command.arg(emit);
    job.run(&mut command, INSTALL)?;
    Ok(Made::utf8(artifact))
}

/// How zig is started: as a program, or as the Python package that holds it.
pub(super) fn compiler(job: &Job<'_>, fix: &'static str) -> Result<Vec<OsString>, BuildError> {
    let missing = match job.find(&["zig"], fix) {
        Ok(zig) => return Ok(vec![zig.into()]),
        Err(missing) => missing,
    };
    let Ok(python) = job.find(&["python3", "python"], fix) else { return Err(missing) };
    let zig = vec![python.into(), "-m".into(), "ziglang".into()];
    let works = command(&zig).arg("version").output().is_ok_and(|output| output.status.success());
    if works { Ok(zig) } else { Err(missing) }
}

pub(super) fn command(zig: &[OsString]) -> Command {
    let mut command = Command::new(&zig[0]);
    command.args(&zig[1..]);
    command
}
