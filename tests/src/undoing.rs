//! Workflows that undo what they did: refunds, which reversals undo.

use crate::graphs::graph;
use crate::host::Setup;
use crate::tools::{Class, WINDOWS, Windows, payments};

/// The tool `payments` of the class, with the operation `reverse` beside `refund`, which honours keys and can be asked.
#[must_use]
pub fn payments_and_back(class: Class) -> String {
    payments_and_back_within(class, Class::KeyLookup, WINDOWS)
}

/// The same within other windows, and with a `reverse` of another class. Not for reads.
#[must_use]
pub fn payments_and_back_within(class: Class, back: Class, windows: Windows) -> String {
    format!("{}{}", payments(class, windows), reverse(back, windows))
}

fn reverse(class: Class, windows: Windows) -> String {
    let Windows { timeout, settle, horizon, retention, attempts } = windows;
    let key = if class.has_key() {
        format!(
            r#"
[operation.reverse.key]
header = "Idempotency-Key"
format = "uuid"
retention = "{retention}"
basis = "first_send"
replay = "first_answer"
mismatch = [{{ status = 422, pointer = "/error/code", equals = "idempotency_key_reused" }}]
in_flight = [{{ status = 409, pointer = "/error/code", equals = "idempotency_key_in_use" }}]
"#
        )
    } else {
        String::new()
    };
    let lookup = class.consistency().map_or_else(String::new, |consistency| {
        format!(
            r#"
[operation.reverse.lookup]
by = "reference"
consistency = {consistency}
method = "GET"
path = "/v1/reversals"
query = {{ reference = "{{/effect_id}}" }}
headers = {{ Authorization = "Bearer {{secret:api-key}}" }}
items = "/data"
matches = {{ "/reference" = "/effect_id" }}
external_id = "/id"
"#
        )
    });
    let no_key = if class.has_key() { "" } else { "key = \"none\"" };
    let no_lookup = if class.consistency().is_some() { "" } else { "lookup = \"none\"" };
    format!(
        r#"
[operation.reverse]
timeout = "{timeout}"
settle = "{settle}"
horizon = "{horizon}"
retry = {{ attempts = {attempts}, initial = "1s", max = "30s" }}
{no_key}
{no_lookup}

[operation.reverse.args.inline]
type = "object"
additionalProperties = false
required = ["refund_id"]
[operation.reverse.args.inline.properties]
refund_id = {{ type = "string" }}
order_id = {{ type = "string" }}

[operation.reverse.request]
method = "POST"
path = "/v1/refunds/{{/args/refund_id}}/reverse"
headers = {{ Authorization = "Bearer {{secret:api-key}}" }}
body = {{ reference = "{{/effect_id}}" }}
{key}{lookup}
[operation.reverse.response]
external_id = "/id"
echo = {{ "/refund_id" = "/refund_id" }}
expose = ["/id"]
refused = [{{ status = 402 }}]
not_processed = [{{ status = 429 }}]
"#
    )
}

/// The slot `refund` of this object, whose effect is undone; `more` of the slot, and `more` of its compensation.
#[must_use]
pub fn undone_refund(object: &str, more: &str, compensate: &str) -> String {
    format!(
        "[[node.effect]]\nslot = \"refund\"\ntool = \"payments.refund\"\nobject = \"{object}\"\nintent = \"full\"\nallow = \"true\"\n{more}\n\
         compensate = {{ tool = \"payments.reverse\", args = {{ refund_id = \"/receipt/external_id\" }}, allow = \"true\"{compensate} }}\n"
    )
}

/// The same, undone by naming its order, so that no receipt is needed: whatever there is of it is taken back.
#[must_use]
pub fn released_refund(object: &str, more: &str, compensate: &str) -> String {
    undone_refund(object, more, compensate)
        .replace("\"/receipt/external_id\"", "\"/args/order_id\"")
}

/// A host whose only workflow is that one, with the tool of [`payments_and_back`].
#[must_use]
pub fn setup(class: Class, head: &str, nodes: &[(&str, &str)]) -> Setup {
    Setup::new(&[&graph(head, nodes)]).tool(payments_and_back(class))
}
