//! Python: componentize-py.

use std::path::Path;
use std::process::Command;

use crate::error::BuildError;
use crate::job::{Job, Made};

const INSTALL: &str = "python3 -m pip install componentize-py==0.25.1";

/// Under which names the SDK finds our interfaces: short ones belong to what a node's own world imports.
const NAMES: [&str; 3] = [
    "twice:node/effects@0.1.0=twice_effects",
    "twice:node/context@0.1.0=twice_context",
    "twice:node/log@0.1.0=twice_log",
];

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    let tool = job.find(&["componentize-py"], INSTALL)?;
    let made = job.work.join("node.wasm");
    let mut command = Command::new(tool);
    // Without an environment to look in, it takes the packages that happen to be installed beside it.
    let none = job.work.join("no-packages");
    folder(&none.join("lib/site-packages"))?;
    command.env("VIRTUAL_ENV", none).env_remove("PYTHONPATH");
    // It says what is wrong in front of a backtrace of itself.
    command.env("RUST_BACKTRACE", "0");
    command.arg("--quiet").arg("--wit-path").arg(&job.wit).args(["--world", &job.world]);
    for name in NAMES {
        command.args(["--import-interface-name", name]);
    }
    command.args(["componentize", "twice_app", "--python-path"]).arg(&job.dir);
    let packages = job.dir.join("packages");
    if packages.is_dir() {
        command.arg("--python-path").arg(packages);
    }
    command.arg("--python-path").arg(job.sdk.join("python")).arg("--output").arg(&made);
    job.run(&mut command, INSTALL)?;
    Ok(Made::utf8(made))
}

fn folder(path: &Path) -> Result<(), BuildError> {
    std::fs::create_dir_all(path)
        .map_err(|source| BuildError::File { path: path.to_owned(), source })
}
