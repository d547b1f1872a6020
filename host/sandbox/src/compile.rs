//! Compilation within bounds.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::api::SandboxError;

/// Longest that a compilation may take; an interpreter of 20 MB takes about ten seconds of two cores.
const COMPILE_TIME_MAX: Duration = Duration::from_secs(120);

/// Compiles one component at a time (each uses all cores already).
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    turn: Arc<Mutex<()>>,
}

impl Compiler {
    /// Compiles `component`, and says how long it took. Blocks.
    ///
    /// Cranelift cannot be interrupted. A compilation that is given up goes on in its thread until it ends, and the next one
    /// waits for it, so that hostile input cannot pile up threads.
    pub(crate) fn compile(
        &self,
        engine: &Engine,
        component: &[u8],
    ) -> Result<(Component, Duration), SandboxError> {
        let (started, wait_start) = mpsc::channel();
        let (done, wait_end) = mpsc::channel();
        let (engine, bytes, turn) = (engine.clone(), component.to_vec(), Arc::clone(&self.turn));
        std::thread::Builder::new()
            .name("twice-compile".to_owned())
            .spawn(move || {
                let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                // The receivers are gone when nobody waits any more.
                let begun = Instant::now();
                _ = started.send(());
                let compiled = Component::from_binary(&engine, &bytes);
                _ = done.send((compiled, begun.elapsed()));
            })
            .map_err(|error| refused(format!("no thread can be started for it: {error}")))?;
        // Fails only when the thread panicked, which the wait below reports.
        _ = wait_start.recv();
        match wait_end.recv_timeout(COMPILE_TIME_MAX) {
            Ok((Ok(component), took)) => Ok((component, took)),
            Ok((Err(error), _)) => Err(refused(format!("{error:#}"))),
            Err(RecvTimeoutError::Timeout) => Err(refused(format!(
                "it takes longer than {} s; make it smaller",
                COMPILE_TIME_MAX.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(refused("the compiler itself failed on it".to_owned()))
            }
        }
    }
}

fn refused(problem: String) -> SandboxError {
    SandboxError::Compile { problem }
}
