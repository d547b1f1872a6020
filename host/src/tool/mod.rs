//! Tools: the adapters that perform effects. A tool decides nothing; it builds a request, sends it once, and says what
//! it saw.

pub mod gate;
pub mod http;
pub mod registry;
pub mod secret;

pub use gate::Gate;
pub use registry::{AnyRequest, Drivers};
pub use secret::SystemSecrets;

use async_trait::async_trait;
use serde_json::Value;
use twice_core::event::ProbeResult;
use twice_core::ids::{EffectId, RunId};
use twice_core::outcome::Exchange;
use twice_workflow::model::{Operation, Tool};

/// One effect, as a tool sees it.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The pinned tool.
    pub tool: &'a Tool,
    /// The pinned operation.
    pub operation: &'a Operation,
    /// The args.
    pub args: &'a Value,
    /// The key, in the provider's form.
    pub key: &'a str,
    /// The effect; also the reference that requests plant at the provider.
    pub effect: &'a EffectId,
    /// The run.
    pub run: &'a RunId,
}

/// A request ready to be sent: what the ledger keeps of it, and what only the sender sees.
#[derive(Debug)]
pub struct Prepared<R> {
    /// Method, URL, allow-listed headers and body, without secrets.
    pub stored: Value,
    /// `sha256:` and the digest of the exact body bytes.
    pub body_hash: String,
    /// The request itself.
    pub request: R,
}

/// Why a request cannot be built. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The template refers to something that is not there.
    #[error("{place} of {operation} refers to `{pointer}`, which {problem}")]
    Template {
        /// `path`, `query x`, `header x`, `body`.
        place: String,
        /// `tool.operation`.
        operation: String,
        /// The reference.
        pointer: String,
        /// What is wrong with what it points at.
        problem: String,
    },
    /// The request that the template describes is not a valid one.
    #[error("{place} of {operation}: {problem}")]
    Request {
        /// `method`, `path`, `query x`, `header x`, `body`.
        place: String,
        /// `tool.operation`.
        operation: String,
        /// What is wrong and the fix.
        problem: String,
    },
    /// The connection cannot be set up.
    #[error("connection of tool {tool}: {problem}")]
    Connection {
        /// The tool.
        tool: String,
        /// What is wrong and the fix.
        problem: String,
    },
    /// The base URL cannot be used.
    #[error("base_url of tool {tool}: {problem}")]
    BaseUrl {
        /// The tool.
        tool: String,
        /// What is wrong and the fix.
        problem: String,
    },
    /// A secret cannot be read.
    #[error("secret `{name}` of tool {tool} ({reference}): {problem}")]
    Secret {
        /// The tool.
        tool: String,
        /// The secret's name.
        name: String,
        /// The reference, never the value.
        reference: String,
        /// What is wrong and the fix.
        problem: String,
    },
}

impl PrepareError {
    /// Whether a setting of this worker is wrong or missing, which a person may put right without anybody else noticing,
    /// rather than what the workflow or the node asks for.
    #[must_use]
    pub const fn is_setting(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::BaseUrl { .. } | Self::Secret { .. } => true,
            Self::Template { .. } | Self::Request { .. } => false,
        }
    }
}

/// Performs the operations of one kind of tool. It never retries, follows or guesses.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// The request in the driver's own form.
    type Request: Send + 'static;

    /// Builds the request. No IO but reading secrets.
    ///
    /// # Errors
    /// [`PrepareError`]; nothing was sent.
    fn prepare(&self, call: &Call<'_>) -> Result<Prepared<Self::Request>, PrepareError>;

    /// Sends it, once, and within a time of its own. No request begins to leave once the gate is shut; one that began
    /// goes on, and what came of it is returned, whoever still waits for it.
    async fn send(&self, request: Self::Request, gate: Gate) -> Exchange;

    /// Reads the secrets that a tool declares, so that each is known before anything is recorded that could hold it. One
    /// that cannot be read is left to the request that needs it. A driver whose tools have no secrets has nothing to do.
    fn learn_secrets(&self, _tool: &Tool) {}

    /// What a worker lacks that would perform operations of a tool: secrets that cannot be read, and the like.
    fn missing_settings(&self, _tool: &Tool) -> Vec<PrepareError> {
        Vec::new()
    }

    /// Whether a value holds a known secret, in any of the forms that are looked for.
    fn holds_secret(&self, _value: &Value) -> bool {
        false
    }

    /// Takes every known secret out of a value.
    fn redact(&self, _value: &mut Value) {}

    /// Asks the provider what became of an effect. Returns the request made (without secrets) and what it told.
    async fn lookup(&self, call: &Call<'_>) -> (Value, ProbeResult);
}
