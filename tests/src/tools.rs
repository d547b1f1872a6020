//! Tool files by class, with windows that suit the test.

use serde_json::{Value, json};

use crate::host::{Setup, steps};

/// What a tool offers to ensure that an effect happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A key that is honoured, and a consistent lookup.
    KeyLookup,
    /// A key that is honoured.
    Key,
    /// By a consistent lookup.
    Lookup,
    /// By a lookup that is behind.
    Lagging,
    /// Nothing.
    Neither,
    /// It need not: it may be repeated.
    Read,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 6] =
        [Self::KeyLookup, Self::Key, Self::Lookup, Self::Lagging, Self::Neither, Self::Read];

    /// Whether a key is honoured.
    #[must_use]
    pub const fn has_key(self) -> bool {
        match self {
            Self::KeyLookup | Self::Key => true,
            Self::Lookup | Self::Lagging | Self::Neither | Self::Read => false,
        }
    }

    pub(crate) const fn consistency(self) -> Option<&'static str> {
        match self {
            Self::KeyLookup | Self::Lookup => Some("\"strong\""),
            Self::Lagging => Some("{ lag = \"2m\" }"),
            Self::Key | Self::Neither | Self::Read => None,
        }
    }

    /// The name that the provider counts its requests under.
    #[must_use]
    pub const fn counted_as(self) -> &'static str {
        match self {
            Self::KeyLookup | Self::Key | Self::Lookup | Self::Lagging | Self::Neither => "refund",
            Self::Read => "model",
        }
    }
}

/// The windows of an operation. The clock is moved over all but `timeout`, which passes as it does.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    /// For one attempt.
    pub timeout: &'static str,
    /// How long after the last byte a request may still be processed.
    pub settle: &'static str,
    /// How long it is tried to learn what happened.
    pub horizon: &'static str,
    /// How long the provider remembers a key.
    pub retention: &'static str,
    /// Most attempts.
    pub attempts: u32,
}

/// Windows as real providers have them.
pub const WINDOWS: Windows =
    Windows { timeout: "20s", settle: "60s", horizon: "20m", retention: "24h", attempts: 3 };

/// Windows for providers that answer too late, as little too late as a test can wait.
pub const IMPATIENT: Windows = Windows { timeout: "2s", ..WINDOWS };

/// Windows for providers that commit too late, which only real time shows.
pub const REAL: Windows = Windows { timeout: "2s", settle: "4s", ..WINDOWS };

/// The tool `payments` with one operation, `refund`: of the class, within the windows.
#[must_use]
pub fn payments(class: Class, windows: Windows) -> String {
    if class == Class::Read {
        return model(windows);
    }
    let limits = limits(class, windows);
    let (key, lookup) = (key("refund", class, windows), lookup("refund", "/v1/refunds", class));
    format!(
        r#"
tool = "payments"
version = "1"
kind = "http"
base_url = "env:PROVIDER_URL"

[secrets]
api-key = "env:API_KEY"

[operation.refund]
incidental = ["/reason"]
{limits}
[operation.refund.args.inline]
type = "object"
additionalProperties = false
required = ["order_id", "amount_cents"]
[operation.refund.args.inline.properties]
order_id = {{ type = "string" }}
amount_cents = {{ type = "integer", minimum = 1 }}
reason = {{ type = "string" }}

[operation.refund.request]
method = "POST"
path = "/v1/orders/{{/args/order_id}}/refunds"
headers = {{ Authorization = "Bearer {{secret:api-key}}" }}
body = {{ order_id = "{{/args/order_id}}", amount_cents = "{{/args/amount_cents}}", reference = "{{/effect_id}}", reason = "{{/args/reason?}}" }}
{key}{lookup}
[operation.refund.response]
external_id = "/id"
echo = {{ "/order_id" = "/order_id", "/amount_cents" = "/amount_cents" }}
expose = ["/id", "/status", "/amount_cents"]
refused = [{{ status = 402 }}]
not_processed = [{{ status = 429 }}]
"#
    )
}

/// Within what an operation of the class is tried, and what it lacks.
pub(crate) fn limits(class: Class, windows: Windows) -> String {
    let Windows { timeout, settle, horizon, attempts, .. } = windows;
    let no_key = if class.has_key() { "" } else { "key = \"none\"" };
    let no_lookup = if class.consistency().is_some() { "" } else { "lookup = \"none\"" };
    format!(
        r#"timeout = "{timeout}"
settle = "{settle}"
horizon = "{horizon}"
retry = {{ attempts = {attempts}, initial = "1s", max = "30s" }}
{no_key}
{no_lookup}
"#
    )
}

/// The key that an operation of the class honours, if it honours one.
pub(crate) fn key(operation: &str, class: Class, windows: Windows) -> String {
    if !class.has_key() {
        return String::new();
    }
    let retention = windows.retention;
    format!(
        r#"
[operation.{operation}.key]
header = "Idempotency-Key"
format = "uuid"
retention = "{retention}"
basis = "first_send"
replay = "first_answer"
mismatch = [{{ status = 422, pointer = "/error/code", equals = "idempotency_key_reused" }}]
in_flight = [{{ status = 409, pointer = "/error/code", equals = "idempotency_key_in_use" }}]
replayed = [{{ header = "idempotent-replayed", equals = "true" }}]
"#
    )
}

/// The lookup at `path` of an operation of the class, if it can be asked.
pub(crate) fn lookup(operation: &str, path: &str, class: Class) -> String {
    class.consistency().map_or_else(String::new, |consistency| {
        format!(
            r#"
[operation.{operation}.lookup]
by = "reference"
consistency = {consistency}
method = "GET"
path = "{path}"
query = {{ reference = "{{/effect_id}}" }}
headers = {{ Authorization = "Bearer {{secret:api-key}}" }}
items = "/data"
matches = {{ "/reference" = "/effect_id" }}
external_id = "/id"
"#
        )
    })
}

/// A read: a model that is asked.
fn model(windows: Windows) -> String {
    let Windows { timeout, attempts, .. } = windows;
    format!(
        r#"
tool = "payments"
version = "1"
kind = "http"
model = true
base_url = "env:PROVIDER_URL"

[secrets]
api-key = "env:API_KEY"

[operation.refund]
read = true
timeout = "{timeout}"
retry = {{ attempts = {attempts}, initial = "1s", max = "30s" }}

[operation.refund.args.inline]
type = "object"

[operation.refund.request]
method = "POST"
path = "/v1/model"
headers = {{ Authorization = "Bearer {{secret:api-key}}" }}
body = {{ prompt = "what to refund" }}

[operation.refund.response]
expose = [""]
not_processed = [{{ status = 429 }}]
refused = [{{ status = 402 }}]
"#
    )
}

/// A workflow of one conformance node `pay`, with more of its settings and its slots.
#[must_use]
pub fn workflow(name: &str, settings: &str, slots: &[&str]) -> String {
    format!(
        r#"
workflow = "{name}"
version = 1

[[node]]
name = "pay"
component = "conformance"
{settings}
{}"#,
        slots.join("\n")
    )
}

/// A slot for a refund of the order of the run's input, with more of its settings.
#[must_use]
pub fn refund_slot(name: &str, settings: &str) -> String {
    format!(
        r#"
[[node.effect]]
slot = "{name}"
tool = "payments.refund"
object = "/input/order_id"
intent = "{name}"
{settings}
"#
    )
}

/// A host whose only workflow, `refunds`, has one node with one slot, `refund`.
#[must_use]
pub fn one_refund(class: Class, windows: Windows) -> Setup {
    one_refund_in(class, windows, "limits = { time = \"2m\" }", "")
}

/// As [`one_refund`], with settings of the node and of the slot.
#[must_use]
pub fn one_refund_in(class: Class, windows: Windows, node: &str, slot: &str) -> Setup {
    let text = workflow("refunds", node, &[&refund_slot("refund", slot)]);
    Setup::new(&[&text]).tool(payments(class, windows))
}

/// The step that asks for a refund.
#[must_use]
pub fn ask(slot: &str, order: &str, amount_cents: u64) -> Value {
    json!({ "do": "request", "slot": slot, "args": { "order_id": order, "amount_cents": amount_cents } })
}

/// A run's input: an order, and steps.
#[must_use]
pub fn order(order: &str, todo: Vec<Value>) -> Value {
    steps(json!({ "order_id": order }), todo)
}

/// A step that is left out from this attempt on.
#[must_use]
pub fn until_attempt(attempt: u32, mut step: Value) -> Value {
    step["until_attempt"] = json!(attempt);
    step
}

/// The step by which a node asks to be started again.
#[must_use]
pub fn later() -> Value {
    json!({ "do": "retryable", "message": "not yet" })
}

/// A host whose only workflow has one slot, `refund`, for each of the run's orders.
#[must_use]
pub fn for_each(class: Class, node: &str) -> Setup {
    for_each_within(class, WINDOWS, node)
}

/// As [`for_each`], within other windows.
#[must_use]
pub fn for_each_within(class: Class, windows: Windows, node: &str) -> Setup {
    let slot = r#"
[[node.effect]]
slot = "refund"
tool = "payments.refund"
for_each = "/input/orders"
object = "/order_id"
intent = "full"
"#;
    Setup::new(&[&workflow("refunds", node, &[slot])]).tool(payments(class, windows))
}

/// All refunds of an input with so many orders, asked for at once.
#[must_use]
pub fn many_orders(count: usize) -> Value {
    let names: Vec<String> = (0..count).map(|n| format!("order-{n}")).collect();
    let orders: Vec<Value> = names.iter().map(|name| json!({ "order_id": name })).collect();
    let requests: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(item, name)| {
            json!({ "slot": "refund", "item": item, "args": { "order_id": name, "amount_cents": 100 } })
        })
        .collect();
    steps(json!({ "orders": orders }), vec![json!({ "do": "request_all", "requests": requests })])
}
