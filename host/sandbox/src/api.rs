//! The border between a component and the executor.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use twice_core::wit::TypedImport;

/// A request for an effect, as a guest made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRequest {
    /// The slot it names.
    pub slot: String,
    /// The element it picks, for slots bound to an array.
    pub item: Option<u32>,
    /// JSON text, not parsed yet.
    pub args: String,
}

/// The answer to a request, as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectAnswer {
    /// It happened.
    Receipt {
        /// The effect's id.
        effect_id: String,
        /// JSON text.
        body: String,
    },
    /// It did not happen.
    Failed {
        /// A stable word.
        code: String,
        /// For people.
        message: String,
    },
    /// It is not allowed.
    Denied {
        /// The policy that refused.
        policy: String,
        /// For people.
        message: String,
    },
}

/// The request cannot be answered yet (or ever, in this instance): the instance is dropped. Why is the host's business,
/// which keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspend;

/// How loud a log message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// For the author.
    Debug,
    /// For the operator.
    Info,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

/// Where a guest stands, as it may know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The run.
    pub run: String,
    /// The node.
    pub node: String,
    /// The visit, from 1.
    pub visit: u32,
    /// The attempt of this visit, from 1.
    pub attempt: u32,
}

/// What stands behind the imports of a component. One value serves one call of `run`. It is [`Any`], so that the caller
/// can turn the box it gets back into its own type again.
#[async_trait]
pub trait Host: Any + Send {
    /// Answers requests, in their order; one for `request`, several for `request-all`.
    ///
    /// # Errors
    /// [`Suspend`] when not every one can be answered now.
    async fn request(&mut self, requests: Vec<EffectRequest>)
    -> Result<Vec<EffectAnswer>, Suspend>;

    /// Takes note of a request that was refused before it got here, because its args are no JSON.
    fn refused(&mut self, slot: &str, policy: &'static str, message: &str);

    /// Where the guest stands.
    fn position(&self) -> Position;

    /// The durable clock. Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&mut self) -> u64;

    /// The next durable random bytes.
    fn random(&mut self, count: usize) -> Vec<u8>;

    /// Takes a log message, already truncated and counted.
    fn log(&mut self, level: LogLevel, message: &str);
}

/// The limits of one call of `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLimits {
    /// Linear memory of all memories together. Bytes.
    pub memory_bytes: usize,
    /// From the start of the call to its return, waiting in host calls included.
    pub time: Duration,
    /// Most effect requests.
    pub effects: u32,
    /// Longest JSON text in either direction. Bytes.
    pub payload_bytes: usize,
    /// Most bytes of log.
    pub log_bytes: usize,
}

/// How a call of `run` ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With an output: JSON text, not parsed yet.
    Returned(String),
    /// With `retryable`.
    Retryable(String),
    /// With `fatal`.
    Fatal(String),
    /// The host suspended it.
    Suspended,
    /// It trapped.
    Trapped {
        /// The cause and the guest's stack, in words.
        message: String,
    },
    /// It reached a limit.
    Limit {
        /// Which: `memory`, `time` and `effects` of [`CallLimits`], or one of [`FIXED_LIMITS`](crate::FIXED_LIMITS).
        limit: &'static str,
        /// In words, with the value of the limit and where to change it.
        message: String,
    },
}

/// An interface of WASI that a component imports. None of them leads out of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WasiInterface {
    /// E.g. `wasi:clocks/wall-clock@0.2.6`.
    pub name: String,
    /// What is behind it, in words.
    pub gets: &'static str,
}

/// What a registered component is, without running it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// `sha256:` and the digest of the component's bytes.
    pub digest: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The world it was checked against.
    pub world: String,
    /// Every interface it imports, e.g. `twice:node/effects@0.1.0`, without those of WASI.
    pub imports: Vec<String>,
    /// Every function that it imports from another package: each has to be granted as a slot.
    pub typed: Vec<TypedImport>,
    /// Every interface of WASI that its language's runtime insists on, and what it gets of it.
    pub wasi: Vec<WasiInterface>,
    /// Everything it exports.
    pub exports: Vec<String>,
    /// How long compiling took, or `None` when the compiled code came from the cache.
    pub compiled_in: Option<Duration>,
}

/// Why a component is refused or cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// It is not a component, and not a core module that could be made one.
    #[error("not a WebAssembly component: {problem}")]
    NotAComponent {
        /// What it is instead, and the fix.
        problem: String,
    },
    /// It imports what the host does not offer.
    #[error("the component imports what is not offered:{}", list(.unknown))]
    UnknownImports {
        /// One line per import: its name, why it is not offered, and what is.
        unknown: Vec<String>,
    },
    /// It imports functions that nothing grants.
    #[error("the component imports what nothing grants:{}", list(.ungranted))]
    Ungranted {
        /// One line per function: its name, and the fix.
        ungranted: Vec<String>,
    },
    /// It does not export `run` as the world says.
    #[error(
        "the component does not export `run: func(input: string) -> result<string, node-error>`: {problem}"
    )]
    NoRun {
        /// What it exports instead.
        problem: String,
    },
    /// It is too big.
    #[error("the component has {bytes} bytes; the limit is {limit}")]
    TooBig {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// It is made of too much, or takes too much to compile.
    #[error("the component reaches the limit `{limit}`: {message}")]
    Limit {
        /// Which, as in [`FIXED_LIMITS`](crate::FIXED_LIMITS).
        limit: &'static str,
        /// In words, with the value of the limit.
        message: String,
    },
    /// The engine cannot compile it.
    #[error("the component cannot be compiled: {problem}")]
    Compile {
        /// What the compiler says.
        problem: String,
    },
    /// The engine itself cannot be set up.
    #[error("the WebAssembly engine cannot be set up: {problem}")]
    Engine {
        /// What it says.
        problem: String,
    },
}

fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  - {line}")).collect()
}
