//! WASI 0.2, as far as the runtime of a language insists on it. All of it is inert or durable: there is nothing of this machine
//! in it, and a node that is started again meets the same.
//!
//! Streams, polling, files, sockets and the command line are those of `wasmtime-wasi` with nothing granted. Clocks and
//! randomness are the node's own durable ones, and what is printed goes to the log.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::io::AsyncWrite;
use wasmtime::Result;
use wasmtime::component::{HasData, HasSelf, Linker, Resource, ResourceTable};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView as _};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
use wasmtime_wasi::p2::bindings::random::{insecure, insecure_seed, random};
use wasmtime_wasi::p2::bindings::{cli, filesystem, sockets};
use wasmtime_wasi::p2::{
    DynPollable, OutputStream, Pollable, StreamError, StreamResult, subscribe,
};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_io::bindings::wasi::io;

use crate::api::LogLevel;
use crate::state::{State, Stop};

/// Most handles (streams, pollables, …) that a node has at once.
pub(crate) const HANDLES_MAX: usize = 1_024;
/// How much later each reading of a clock is than the one before. Nanoseconds.
const TICK_NS: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// What a line costs beside its text until it is in the log. Bytes.
const LINE_COST_BYTES: usize = 32;
/// What a stream takes at once. Bytes.
const PERMIT_BYTES: usize = 64 << 10;

/// The interfaces of WASI that are there, and what a node gets of each.
pub const INTERFACES: [(&str, &str); 27] = [
    ("wasi:cli/environment", "no variables, no arguments, no working directory"),
    ("wasi:cli/exit", "ends the call like a trap, with the status"),
    ("wasi:cli/stdin", "at its end"),
    ("wasi:cli/stdout", "the run's log, a message at level info for each line"),
    ("wasi:cli/stderr", "the run's log, a message at level warn for each line"),
    ("wasi:cli/terminal-input", "no terminal"),
    ("wasi:cli/terminal-output", "no terminal"),
    ("wasi:cli/terminal-stdin", "no terminal"),
    ("wasi:cli/terminal-stdout", "no terminal"),
    ("wasi:cli/terminal-stderr", "no terminal"),
    (
        "wasi:clocks/monotonic-clock",
        "the durable time, a microsecond more with each reading; waiting ends at once and moves it",
    ),
    ("wasi:clocks/wall-clock", "the durable time, a microsecond more with each reading"),
    ("wasi:filesystem/preopens", "no folder"),
    ("wasi:filesystem/types", "nothing to open"),
    ("wasi:io/error", "for the streams of the log"),
    ("wasi:io/poll", "for the streams of the log and for clocks"),
    ("wasi:io/streams", "for the log"),
    ("wasi:random/insecure", "the step's durable bytes"),
    ("wasi:random/insecure-seed", "the step's durable bytes"),
    ("wasi:random/random", "the step's durable bytes; not secret"),
    ("wasi:sockets/instance-network", "a network without addresses"),
    ("wasi:sockets/ip-name-lookup", "an error"),
    ("wasi:sockets/network", "a network without addresses"),
    ("wasi:sockets/tcp", "no socket"),
    ("wasi:sockets/tcp-create-socket", "an error"),
    ("wasi:sockets/udp", "no socket"),
    ("wasi:sockets/udp-create-socket", "an error"),
];

/// Versions that are offered; they are compatible.
const TRACK: &str = "0.2.";

/// What a node gets of the interface `name` (with its version), or `None` when it is not offered.
pub(crate) fn gets(name: &str) -> Option<&'static str> {
    let (interface, version) = name.split_once('@')?;
    let (_, gets) = INTERFACES.into_iter().find(|(known, _)| *known == interface)?;
    version.starts_with(TRACK).then_some(gets)
}

/// The packages that are offered, in words.
pub(crate) fn packages() -> String {
    let mut packages: Vec<&str> =
        INTERFACES.iter().filter_map(|(name, _)| name.split('/').next()).collect();
    packages.dedup();
    packages.join(", ")
}

/// What WASI keeps of one call; made when a node first asks for any of it.
pub(crate) struct Wasi {
    ctx: WasiCtx,
    table: ResourceTable,
    clock: Arc<Mutex<Clock>>,
    printed: Arc<Mutex<Printer>>,
}

/// Nanoseconds, as all below.
#[derive(Debug, Default)]
struct Clock {
    /// What was read last.
    last: u64,
    /// How long it was waited in all, without waiting.
    slept: u64,
}

impl Clock {
    /// The next reading, when the durable clock says `durable_ms`.
    fn read(&mut self, durable_ms: u64) -> u64 {
        let durable = durable_ms.saturating_mul(NS_PER_MS).saturating_add(self.slept);
        self.last = durable.max(self.last.saturating_add(TICK_NS));
        self.last
    }
}

/// What was written to the standard streams and is not in the log yet.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    /// Lines in the order of their ends, then what has no end yet.
    pub(crate) pieces: Vec<(LogLevel, Vec<u8>)>,
    /// Whether more was written than the log takes.
    pub(crate) lost: bool,
}

/// Collects what is printed.
#[derive(Debug)]
struct Printer {
    /// The beginnings of lines. A piece is a whole line, since a byte from each stream in turn would make pieces that cost many
    /// times their text.
    begun: [(LogLevel, Vec<u8>); 2],
    printed: Printed,
    /// All that was ever taken.
    bytes: usize,
    limit: usize,
}

impl Printer {
    fn new(limit: usize) -> Self {
        let begun = [LogLevel::Info, LogLevel::Warn].map(|level| (level, Vec::new()));
        Self { begun, limit, printed: Printed::default(), bytes: 0 }
    }

    fn add(&mut self, level: LogLevel, text: &[u8]) {
        let begun = self.begun.iter_mut().find(|(of, _)| *of == level);
        let Some((_, begun)) = begun else { return };
        for piece in text.split_inclusive(|byte| *byte == b'\n') {
            if self.bytes > self.limit {
                self.printed.lost = true;
                return;
            }
            let piece = &piece[..piece.len().min(self.limit - self.bytes + 1)];
            begun.extend_from_slice(piece);
            self.bytes += piece.len();
            if piece.ends_with(b"\n") {
                self.bytes += LINE_COST_BYTES;
                self.printed.pieces.push((level, std::mem::take(begun)));
            }
        }
    }

    fn take(&mut self) -> Printed {
        let mut printed = std::mem::take(&mut self.printed);
        let begun = self.begun.iter_mut().filter(|(_, text)| !text.is_empty());
        printed.pieces.extend(begun.map(|(level, text)| (*level, std::mem::take(text))));
        printed
    }
}

impl Wasi {
    fn new(log_bytes: usize) -> Self {
        let printed = Arc::new(Mutex::new(Printer::new(log_bytes)));
        let stream = |level| Stream { level, printed: Arc::clone(&printed) };
        let ctx = WasiCtx::builder()
            .stdout(stream(LogLevel::Info))
            .stderr(stream(LogLevel::Warn))
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        Self { ctx, table, clock: Arc::default(), printed }
    }

    /// What was printed since this was asked last.
    pub(crate) fn printed(&self) -> Printed {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl State {
    fn wasi(&mut self) -> &mut Wasi {
        let log_bytes = self.limits.log_bytes;
        self.wasi.get_or_insert_with(|| Box::new(Wasi::new(log_bytes)))
    }

    fn read_clock(&mut self) -> u64 {
        let now = self.host.now_ms();
        self.wasi().clock.lock().unwrap_or_else(PoisonError::into_inner).read(now)
    }

    /// Waiting until `due` (a reading of the clock): it ends when it is asked for.
    fn wait_until(&mut self, due: u64) -> Result<Resource<DynPollable>> {
        let wasi = self.wasi();
        let wait = Wait { due, clock: Arc::clone(&wasi.clock) };
        let wait = wasi.table.push(wait)?;
        subscribe(&mut wasi.table, wait)
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Wasi { ctx, table, .. } = self.wasi();
        WasiCtxView { ctx, table }
    }
}

struct Handles;

impl HasData for Handles {
    type Data<'a> = &'a mut ResourceTable;
}

/// Offers all of [`INTERFACES`].
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> Result<()> {
    let l = linker;
    io::error::add_to_linker::<_, Handles>(l, |state: &mut State| &mut state.wasi().table)?;
    io::poll::add_to_linker::<_, Handles>(l, |state: &mut State| &mut state.wasi().table)?;
    io::streams::add_to_linker::<_, Handles>(l, |state: &mut State| &mut state.wasi().table)?;

    wall_clock::add_to_linker::<_, HasSelf<State>>(l, |state| state)?;
    monotonic_clock::add_to_linker::<_, HasSelf<State>>(l, |state| state)?;
    random::add_to_linker::<_, HasSelf<State>>(l, |state| state)?;
    insecure::add_to_linker::<_, HasSelf<State>>(l, |state| state)?;
    insecure_seed::add_to_linker::<_, HasSelf<State>>(l, |state| state)?;

    cli::environment::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::exit::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::stdin::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::stdout::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::stderr::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::terminal_input::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::terminal_output::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::terminal_stdin::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::terminal_stdout::add_to_linker::<_, WasiCli>(l, State::cli)?;
    cli::terminal_stderr::add_to_linker::<_, WasiCli>(l, State::cli)?;

    filesystem::preopens::add_to_linker::<_, WasiFilesystem>(l, State::filesystem)?;
    filesystem::types::add_to_linker::<_, WasiFilesystem>(l, State::filesystem)?;

    let network = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<_, WasiSockets>(l, &network, State::sockets)?;
    sockets::instance_network::add_to_linker::<_, WasiSockets>(l, State::sockets)?;
    sockets::tcp::add_to_linker::<_, WasiSockets>(l, State::sockets)?;
    sockets::tcp_create_socket::add_to_linker::<_, WasiSockets>(l, State::sockets)?;
    sockets::udp::add_to_linker::<_, WasiSockets>(l, State::sockets)?;
    sockets::udp_create_socket::add_to_linker::<_, WasiSockets>(l, State::sockets)?;
    sockets::ip_name_lookup::add_to_linker::<_, WasiSockets>(l, State::sockets)
}

impl wall_clock::Host for State {
    fn now(&mut self) -> Result<wall_clock::Datetime> {
        let now = self.read_clock();
        let nanoseconds = u32::try_from(now % NS_PER_S).unwrap_or_default();
        Ok(wall_clock::Datetime { seconds: now / NS_PER_S, nanoseconds })
    }

    fn resolution(&mut self) -> Result<wall_clock::Datetime> {
        let nanoseconds = u32::try_from(TICK_NS).unwrap_or(1);
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds })
    }
}

impl monotonic_clock::Host for State {
    fn now(&mut self) -> Result<u64> {
        Ok(self.read_clock())
    }

    fn resolution(&mut self) -> Result<u64> {
        Ok(TICK_NS)
    }

    fn subscribe_instant(&mut self, when: u64) -> Result<Resource<DynPollable>> {
        self.wait_until(when)
    }

    fn subscribe_duration(&mut self, duration: u64) -> Result<Resource<DynPollable>> {
        let now = self.read_clock();
        self.wait_until(now.saturating_add(duration))
    }
}

impl random::Host for State {
    fn get_random_bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        self.random_bytes(count)
    }

    fn get_random_u64(&mut self) -> Result<u64> {
        self.random_number()
    }
}

impl insecure::Host for State {
    fn get_insecure_random_bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        self.random_bytes(count)
    }

    fn get_insecure_random_u64(&mut self) -> Result<u64> {
        self.random_number()
    }
}

impl insecure_seed::Host for State {
    fn insecure_seed(&mut self) -> Result<(u64, u64)> {
        Ok((self.random_number()?, self.random_number()?))
    }
}

/// Waiting for a clock.
struct Wait {
    due: u64,
    clock: Arc<Mutex<Clock>>,
}

#[async_trait]
impl Pollable for Wait {
    async fn ready(&mut self) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.due.saturating_sub(clock.last);
        clock.slept = clock.slept.saturating_add(left);
        clock.last = clock.last.saturating_add(left);
    }
}

/// A standard stream that ends in the log.
#[derive(Clone)]
struct Stream {
    level: LogLevel,
    printed: Arc<Mutex<Printer>>,
}

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Only preview 3 asks for it, which is not offered.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {}
}

impl OutputStream for Stream {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).add(self.level, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT_BYTES)
    }

    fn write_zeroes(&mut self, count: usize) -> StreamResult<()> {
        // Left to itself, this would make as many bytes here as a guest names, which costs the guest nothing.
        if count > PERMIT_BYTES {
            return Err(StreamError::Trap(
                Stop::Misuse(format!(
                    "the node wrote {count} zeroes at once; the most that a stream takes is {PERMIT_BYTES} bytes"
                ))
                .into(),
            ));
        }
        self.write(bytes::Bytes::from(vec![0; count]))
    }
}
