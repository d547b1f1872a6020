//! Tools: what performs an effect, and what may be relied on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twice_core::contract::Contract;
use twice_core::identity::KeyFormat;
use twice_core::ids::Name;
use twice_core::outcome::Declarations;
use twice_core::webhook::{Meaning, Scheme};

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
    /// The WIT interface whose functions are its operations; absent: the one of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wit: Option<String>,
    /// How what its provider posts by itself is signed, if that is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Its operations.
    pub operations: BTreeMap<Name, Operation>,
}

/// How what a provider posts by itself is verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// How it is signed.
    pub scheme: Scheme,
    /// The keys, any of which may have signed it: references `env:NAME` or `file:PATH`, never values.
    pub secrets: Vec<String>,
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
    /// What the provider's events say about an outcome, if they are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Meaning>,
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
