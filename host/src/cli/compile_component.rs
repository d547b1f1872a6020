//! `twice compile-component`: what the sandbox starts to have a component compiled in a process that can be ended.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use twice_sandbox::CompilerProgram;

use super::exit::Exit;

/// Compile the component on standard input; the code goes to standard output.
#[derive(Debug, Args)]
pub(super) struct CompileComponent {}

impl CompileComponent {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        match twice_sandbox::compile_here(io::stdin().lock(), io::stdout().lock()) {
            Ok(()) => Ok(Exit::Done),
            Err(problem) => {
                // As it is: whoever started this puts it into a sentence of its own.
                io::stderr().write_all(problem.as_bytes())?;
                Ok(Exit::Error)
            }
        }
    }
}

/// This command, by this very program: a file that replaced it meanwhile is another one, whose code would not load.
pub(super) fn program() -> Option<CompilerProgram> {
    let running = PathBuf::from("/proc/self/exe");
    let program = if running.exists() { running } else { std::env::current_exe().ok()? };
    Some(CompilerProgram { program, args: vec!["compile-component".to_owned()] })
}
