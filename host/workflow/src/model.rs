//! What a checked project says. These types are also the form in which a run's definition is pinned (I9).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twice_core::contract::Contract;
use twice_core::event::ConflictRule;
use twice_core::identity::KeyFormat;
use twice_core::ids::Name;
use twice_core::outcome::Declarations;

/// A workflow with everything it will be interpreted under, as pinned when a run starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The version of this format.
    pub format: u32,
    /// The workflow.
    pub workflow: Workflow,
    /// The tools its slots use, by name.
    pub tools: BTreeMap<Name, Tool>,
    /// The digest of each component, by module name.
    pub components: BTreeMap<Name, String>,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    /// Its name.
    pub name: Name,
    /// Its version, raised by its author with each change.
    pub version: u32,
    /// JSON Schema of its input.
    pub input_schema: Option<Value>,
    /// Its nodes, in an order in which each stands behind what it comes after.
    pub nodes: Vec<Node>,
}

/// A node of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: Name,
    /// The registered module it runs.
    pub component: Name,
    /// The nodes that must be done first.
    pub after: Vec<Name>,
    /// What it may use up.
    pub limits: NodeLimits,
    /// How often a step that failed is started again.
    pub retry: StepRetry,
    /// What it may ask for.
    pub slots: Vec<Slot>,
}

/// What one call of a node may use up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLimits {
    /// Linear memory. Bytes.
    pub memory_bytes: u64,
    /// From start to return, waiting included. Milliseconds.
    pub time_ms: u64,
    /// Most effect requests of one call.
    pub effects: u32,
    /// Most bytes of log of one call.
    pub log_bytes: u64,
}

/// How often a step that failed is started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRetry {
    /// Most attempts, the first included.
    pub attempts: u32,
    /// Wait before the second; doubles from there. Milliseconds.
    pub initial_ms: u64,
    /// Longest wait. Milliseconds.
    pub max_ms: u64,
}

/// An effect that the workflow lets a node request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// The name the node uses.
    pub name: Name,
    /// The tool.
    pub tool: Name,
    /// The operation of the tool.
    pub operation: Name,
    /// Where the business object is: a JSON Pointer into trusted durable state, `/input/…` or
    /// `/receipts/<node>/<slot>/…`; relative to the element (`/…`) when `use_` is `ForEach`. Absent only for reads.
    pub object: Option<String>,
    /// What is meant.
    pub intent: String,
    /// Whether the effect is shared between runs.
    pub shared: bool,
    /// How often the slot may be used in one step.
    pub uses: Uses,
    /// CEL over `args` and `state`; absent: the grant itself permits.
    pub allow: Option<String>,
    /// What happens when the effect is requested again with other args.
    pub on_conflict: OnConflict,
}

impl Slot {
    /// The pointer to the array it is bound to, if it is.
    #[must_use]
    pub fn array(&self) -> Option<&str> {
        match &self.uses {
            Uses::ForEach(pointer) => Some(pointer),
            Uses::Once | Uses::Repeat(_) => None,
        }
    }
}

/// How often a slot may be used in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uses {
    /// Once.
    Once,
    /// Once per element of a trusted array; `item` selects. JSON Pointer to the array.
    ForEach(String),
    /// Up to so many times; the host counts.
    Repeat(u32),
}

/// The declared rule for conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// A person decides.
    Halt,
    /// The guest gets the recorded receipt.
    Keep,
}

impl OnConflict {
    /// The decision it stands for, if it decides by itself.
    #[must_use]
    pub const fn rule(self) -> Option<ConflictRule> {
        match self {
            Self::Halt => None,
            Self::Keep => Some(ConflictRule::Keep),
        }
    }
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Its name.
    pub name: Name,
    /// The version of its file.
    pub version: String,
    /// Whether its answers come from a model; then they are never a source of identity.
    pub model: bool,
    /// What performs it.
    pub kind: ToolKind,
    /// Its operations.
    pub operations: BTreeMap<Name, Operation>,
}

/// What performs a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolKind {
    /// JSON over HTTP.
    Http(HttpTool),
}

/// The connection of an `http` tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    /// Scheme, host, port and path prefix; literal, or a reference `env:NAME`.
    pub base_url: String,
    /// Secrets by name: references `env:NAME` or `file:PATH`, never values.
    pub secrets: BTreeMap<Name, String>,
    /// A PEM file of additional root certificates, if the provider's is not publicly trusted.
    pub ca_file: Option<String>,
    /// Most requests per second, over all operations.
    pub rate_per_second: Option<u32>,
    /// Most requests at a time, over all operations.
    #[serde(default)]
    pub concurrency: Option<u32>,
}

/// An operation of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// JSON Schema of the args.
    pub args_schema: Value,
    /// JSON Pointers to args that may be reworded: stored, not hashed.
    pub incidental: Vec<String>,
    /// The request.
    pub request: HttpRequest,
    /// How the key travels, if the provider honours one.
    pub key_carrier: Option<KeyCarrier>,
    /// How an outcome is looked up, if it can be.
    pub lookup: Option<Lookup>,
    /// JSON Schema of a success's body.
    pub response_schema: Option<Value>,
    /// What its answers mean.
    pub declarations: Declarations,
    /// What may be relied on.
    pub contract: Contract,
    /// Longest time for establishing a connection. Milliseconds.
    pub connect_timeout_ms: u64,
    /// Largest response body. Bytes.
    pub response_bytes_max: u64,
}

/// A request as a typed template. Templates are filled value by value; text is never pasted into JSON or a URL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRequest {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Path segments, each filled and then percent-encoded.
    pub path: Vec<Text>,
    /// Query parameters.
    pub query: BTreeMap<String, Text>,
    /// Headers.
    pub headers: BTreeMap<String, Text>,
    /// The body; absent: none.
    pub body: Option<Template>,
}

/// A JSON tree with references in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// A literal.
    Literal(Value),
    /// The value at a JSON Pointer into `{ "args": …, "key": …, "effect_id": …, "run": … }`; the member is left out when
    /// there is nothing there and `optional` is set, else it is an error.
    Reference {
        /// The pointer.
        pointer: String,
        /// Whether it may be missing.
        optional: bool,
    },
    /// Text made of parts.
    Text(Text),
    /// An object.
    Object(BTreeMap<String, Template>),
    /// An array.
    Array(Vec<Template>),
}

/// Text made of parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(pub Vec<Part>);

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Literal text.
    Literal(String),
    /// The string, integer or boolean at a JSON Pointer (see [`Template::Reference`]).
    Reference(String),
    /// A secret by name; filled in only while sending.
    Secret(Name),
}

/// How the key travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyCarrier {
    /// The header; absent when the request template itself places `/key`.
    pub header: Option<String>,
    /// Whether the header's value is quoted, as an RFC 8941 string.
    pub quoted: bool,
    /// The form of the key.
    pub format: KeyFormat,
}

/// How an outcome is looked up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lookup {
    /// The request.
    pub request: HttpRequest,
    /// Statuses that mean there is nothing, e.g. 404.
    pub absent_statuses: Vec<u16>,
    /// JSON Pointer to the array of objects found in the answer; absent: the body is the object.
    pub items: Option<String>,
    /// JSON Pointer within an object to our reference, and what it must equal (a pointer as in [`Template::Reference`]):
    /// filters what a search returns.
    pub matches: Option<(String, String)>,
    /// JSON Pointer within an object, and its values that mean it is still being worked on.
    pub pending: Option<(String, Vec<Value>)>,
    /// JSON Pointer within an object, and its values that mean that it did not happen.
    pub failed: Option<(String, Vec<Value>)>,
    /// JSON Pointer to the provider's id within an object.
    pub external_id: Option<String>,
}
