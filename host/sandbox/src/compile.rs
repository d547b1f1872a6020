//! Compilation within bounds.
//!
//! Cranelift cannot be interrupted. So a host that can start itself as another process has components compiled there: when
//! the time is over the process is killed, and memory that a compilation needs beyond its limit, or a bug of the compiler,
//! ends that process and not this one. A host that cannot (a library, a test) compiles in a thread; one that is given up keeps
//! its place among the [`PLACES`] until it ends, and is not begun a second time meanwhile.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rlimit::Resource;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::api::SandboxError;
use crate::limits::{self, FixedLimit};
use crate::{cache, engine};

/// Most compilations at once. Each uses all cores; the second is there so that one that is given up does not hold up the rest.
const PLACES: usize = 2;
/// Stack of a thread that compiles. Bytes.
const STACK_BYTES: usize = 16 << 20;
/// By how much more than by the clock a process that nobody waits for may compute.
const CORES_ASSUMED: u64 = 4;
/// Longest report of a process that failed. Bytes.
const REPORT_BYTES_MAX: u64 = 4 << 10;

/// A program that compiles: it reads a component from its standard input, calls [`compile_here`], and that is all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

/// Compiles components, a few at a time.
#[derive(Debug)]
pub(crate) struct Compiler {
    places: Arc<Places>,
    time: Duration,
    program: Option<CompilerProgram>,
}

#[derive(Debug, Default)]
struct Places {
    taken: Mutex<Vec<Work>>,
    freed: Condvar,
}

/// What keeps a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Work {
    digest: String,
    given_up: bool,
}

/// A place that is taken until it is dropped.
struct Place {
    places: Arc<Places>,
    digest: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = taken.iter().position(|work| work.digest == self.digest) {
            taken.swap_remove(at);
        }
        drop(taken);
        self.places.freed.notify_one();
    }
}

impl Compiler {
    /// Lets each compilation take as long as `time`, in `program` if there is one.
    pub(crate) fn new(time: Duration, program: Option<CompilerProgram>) -> Self {
        Self { places: Arc::default(), time, program }
    }

    /// Compiles `component`, whose digest is `digest`, and says how long it took. Blocks.
    pub(crate) fn compile(
        &self,
        engine: &Engine,
        digest: &str,
        component: &[u8],
    ) -> Result<(Component, Duration), SandboxError> {
        let place = self.place(digest)?;
        let begun = Instant::now();
        let compiled = match self.program.as_ref().map(CompilerProgram::start) {
            Some(Ok(child)) => {
                let code = self.in_process(child, component);
                drop(place);
                cache::from_own_process(engine, &code?).map_err(|error| {
                    refused(format!("what the compiling process made does not load: {error:#}"))
                })
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "no process can be started to compile in; compiling in this one");
                self.in_thread(engine, component, place)
            }
            None => self.in_thread(engine, component, place),
        };
        Ok((compiled?, begun.elapsed()))
    }

    /// Waits for a place, as long as a compilation may take.
    fn place(&self, digest: &str) -> Result<Place, SandboxError> {
        let deadline = Instant::now() + self.time;
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if taken.iter().any(|work| work.given_up && work.digest == digest) {
                return Err(
                    self.out_of_time("it did before, and that compilation has not ended yet")
                );
            }
            if taken.len() < PLACES {
                taken.push(Work { digest: digest.to_owned(), given_up: false });
                let places = Arc::clone(&self.places);
                return Ok(Place { places, digest: digest.to_owned() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(
                    self.out_of_time("all of it was spent on waiting for other compilations")
                );
            }
            let (woken, _) =
                self.places.freed.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner);
            taken = woken;
        }
    }

    fn in_thread(
        &self,
        engine: &Engine,
        component: &[u8],
        place: Place,
    ) -> Result<Component, SandboxError> {
        let (done, wait) = mpsc::channel();
        let (places, digest) = (Arc::clone(&self.places), place.digest.clone());
        let (engine, bytes) = (engine.clone(), component.to_vec());
        std::thread::Builder::new()
            .name("twice-compile".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let compiled = Component::from_binary(&engine, &bytes);
                // Free before anybody hears of it, so that who compiles one after the other never waits for itself.
                drop(place);
                // The receiver is gone when nobody waits any more.
                _ = done.send(compiled);
            })
            .map_err(|error| refused(format!("no thread can be started for it: {error}")))?;
        match wait.recv_timeout(self.time) {
            Ok(Ok(component)) => Ok(component),
            Ok(Err(error)) => Err(refused(format!("{error:#}"))),
            Err(RecvTimeoutError::Timeout) => {
                let mut taken = places.taken.lock().unwrap_or_else(PoisonError::into_inner);
                for work in taken.iter_mut().filter(|work| work.digest == digest) {
                    work.given_up = true;
                }
                Err(self.out_of_time("it was given up"))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(refused("the compiler itself failed on it".to_owned()))
            }
        }
    }

    /// Has the process `child` compile, and ends it when that takes too long.
    fn in_process(&self, mut child: Child, component: &[u8]) -> Result<Vec<u8>, SandboxError> {
        let (done, wait) = mpsc::channel();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let finished = std::thread::scope(|scope| {
            scope.spawn(move || {
                // One that ends early says why, and does not read on.
                _ = stdin.map(|mut stdin| stdin.write_all(component));
            });
            let report = scope.spawn(move || read(stderr, REPORT_BYTES_MAX));
            scope.spawn(move || {
                // The receiver is gone when the time is over.
                _ = done.send(read(stdout, cache::ENTRY_BYTES_MAX));
            });
            let code = wait.recv_timeout(self.time);
            if code.is_err() {
                // It may have ended by itself meanwhile.
                _ = child.kill();
            }
            let status = child.wait();
            (code, status, report.join().unwrap_or_default())
        });
        let (code, status, report) = finished;
        let Ok(code) = code else { return Err(self.out_of_time("it was ended")) };
        match status {
            Ok(status) if status.success() => Ok(code),
            // Refused in words.
            Ok(status) if status.code().is_some() && !report.is_empty() => {
                Err(refused(String::from_utf8_lossy(&report).trim().to_owned()))
            }
            Ok(status) => Err(SandboxError::Limit {
                limit: limits::COMPILE_MEMORY.name,
                message: format!(
                    "the process that compiled it broke down ({status}), most likely for want of memory: it may use {} bytes. \
                     Make the component smaller",
                    limits::COMPILE_MEMORY.value
                ),
            }),
            Err(error) => Err(refused(format!("the compiling process is lost: {error}"))),
        }
    }

    fn out_of_time(&self, what_became: &str) -> SandboxError {
        SandboxError::Limit {
            limit: limits::COMPILE_TIME.name,
            message: format!(
                "compiling it takes longer than its limit of {} ms; {what_became}. Make the component smaller, above all its \
                 largest functions",
                self.time.as_millis()
            ),
        }
    }
}

impl CompilerProgram {
    fn start(&self) -> io::Result<Child> {
        Command::new(&self.program)
            .args(&self.args)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

fn read(from: Option<impl Read>, bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What was cut off does not load, which is reported then.
    _ = from.map(|from| from.take(bytes_max).read_to_end(&mut bytes));
    bytes
}

fn refused(problem: String) -> SandboxError {
    match of_pool(&problem) {
        Some(limit) => SandboxError::Limit {
            limit: limit.name,
            message: format!(
                "it has more than {} {} ({problem}). Build it smaller, or make several nodes of it",
                limit.value, limit.unit
            ),
        },
        None => SandboxError::Compile { problem },
    }
}

/// The limit of ours that the engine's pool speaks of in words of its own: it has no other way to say so.
fn of_pool(problem: &str) -> Option<FixedLimit> {
    let limits = [
        ("minimum element size", limits::TABLE),
        ("Wasm linear memories, which exceeds", limits::MEMORIES),
        ("defined memories count", limits::MEMORIES),
        ("tables, which exceeds", limits::TABLES),
        ("defined tables count", limits::TABLES),
        ("core module instances, which exceeds", limits::INSTANCES),
    ];
    limits.into_iter().find_map(|(words, limit)| problem.contains(words).then_some(limit))
}

/// Compiles the component that `input` holds and writes the code to `output`, with no more memory than a compilation may
/// have: what a [`CompilerProgram`] does. For a process that does nothing else.
///
/// # Errors
/// In words.
pub fn compile_here(mut input: impl Read, mut output: impl Write) -> Result<(), String> {
    // A limit that the system sets already may be lower, and cannot be raised.
    let memory = rlimit::getrlimit(Resource::AS)
        .map(|(_, hard)| hard.min(limits::COMPILE_MEMORY.value))
        .and_then(|memory| rlimit::setrlimit(Resource::AS, memory, memory));
    memory.map_err(|error| format!("its memory cannot be limited: {error}"))?;
    // Whoever started this ends it in time, unless that was killed itself.
    rlimit::getrlimit(Resource::CPU)
        .map(|(_, hard)| hard.min(limits::COMPILE_TIME.value * CORES_ASSUMED))
        .and_then(|seconds| rlimit::setrlimit(Resource::CPU, seconds, seconds))
        .map_err(|error| format!("its time cannot be limited: {error}"))?;
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| format!("it cannot be read: {error}"))?;
    let engine = engine::compiling().map_err(|error| error.to_string())?;
    let code = engine.precompile_component(&bytes).map_err(|error| format!("{error:#}"))?;
    output.write_all(&code).map_err(|error| format!("its code cannot be passed on: {error}"))
}
