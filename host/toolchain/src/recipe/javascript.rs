//! JavaScript: one module by esbuild, a component of it by componentize-qjs (QuickJS).

use std::process::Command;

use crate::embed;
use crate::error::BuildError;
use crate::job::{Job, Made};
use crate::language::Language;

const INSTALL: &str = "npm install --save-exact componentize-qjs@0.4.5 esbuild@0.28.2";

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    component(job, Language::JavaScript, INSTALL)
}

/// Makes a component of the main file of `language`, what it imports, and the SDK.
pub(crate) fn component(
    job: &mut Job<'_>,
    language: Language,
    install: &'static str,
) -> Result<Made, BuildError> {
    let bundler = job.find(&["esbuild"], install)?;
    let tool = job.find(&["componentize-qjs"], install)?;
    let (bundle, made) = (job.work.join("node.js"), job.work.join("node.wasm"));
    let sdk = job.sdk.join("typescript/src");
    let mut command = Command::new(bundler);
    command.arg(sdk.join("entry.ts")).args([
        "--bundle",
        "--format=esm",
        "--target=es2023",
        // Neither a browser nor Node, but packages say only for these where their main file is.
        "--platform=neutral",
        "--main-fields=module,main",
        "--charset=utf8",
        "--log-level=warning",
    ]);
    for package in embed::imported_packages(&job.wit, &job.world)? {
        command.arg(format!("--external:{package}/*"));
    }
    let main = job.dir.join(language.main_file());
    command
        .arg(format!("--alias:twice-node={}", sdk.join("index.ts").display()))
        .arg(format!("--alias:twice-node/main={}", main.display()))
        .arg(format!("--outfile={}", bundle.display()));
    job.run(&mut command, install)?;
    let mut command = Command::new(tool);
    command
        .env("RUST_BACKTRACE", "0")
        .arg("--wit")
        .arg(&job.wit)
        .args(["--world", &job.world, "--sync", "--js"])
        .arg(&bundle)
        .arg("--module-root")
        .arg(&job.work)
        .arg("--output")
        .arg(&made);
    job.run(&mut command, install)?;
    Ok(Made::utf8(made))
}
