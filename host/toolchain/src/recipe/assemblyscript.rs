//! AssemblyScript: asc, for no system at all.

use std::process::Command;

use crate::error::BuildError;
use crate::job::{Job, Made, Strings};

const INSTALL: &str =
    "install AssemblyScript (`npm install --save-dev assemblyscript@0.28.20`) and Node.js";

/// The module's exports, around the author's `assembly/index.ts`. It lies in the node's `target/twice`.
const ENTRY: &str = "\
import { node } from \"../../assembly/index\";
import { finish, start } from \"twice\";
export { realloc as cabi_realloc } from \"twice/abi\";
// Here for `--use`, which names what is in them.
import \"twice/console\";
import \"twice/runtime\";

export function run(at: usize, units: i32): usize {
  return start(at, units, node);
}

export function cabi_post_run(result: usize): void {
  finish(result);
}
";

/// What the library would import from a JavaScript host, and what stands there instead.
const INSTEAD: [&str; 3] = [
    "abort=~lib/twice/runtime/abort",
    "seed=~lib/twice/runtime/seed",
    "console=~lib/twice/console/console",
];

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    let artifact = job.work.join("node.wasm");
    job.write(&job.work.join("entry.ts"), ENTRY.as_bytes())?;
    let mut command = Command::new(job.find(&["asc"], INSTALL)?);
    // Paths relative to the node's folder, as they get into messages about errors that are thrown.
    command
        .args(["target/twice/entry.ts", "--config", "asconfig.json"])
        .args(["--path", "target/twice/sdk/assemblyscript"])
        .args(["-O3s", "--runtime", "incremental", "--stackSize", "262144"])
        .args(INSTEAD.iter().flat_map(|instead| ["--use", *instead]))
        .arg("--outFile")
        .arg(&artifact);
    job.run(&mut command, INSTALL)?;
    Ok(Made { path: artifact, strings: Strings::Utf16 })
}
