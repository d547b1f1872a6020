//! Workflows that undo what they did: refunds, which reversals undo.

use serde_json::Value;
use twice_core::event::Observation;
use twice_core::outcome::Verdict;

use crate::graphs::graph;
use crate::host::Setup;
use crate::tools::{self, Class, WINDOWS, Windows, payments};

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
    let limits = tools::limits(class, windows);
    let key = tools::key("reverse", class, windows);
    let lookup = tools::lookup("reverse", "/v1/reversals", class);
    format!(
        r#"
[operation.reverse]
{limits}
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

/// What a provider's event says by which an effect that is recorded as failed happened.
#[must_use]
pub fn happened_after_all() -> Observation {
    Observation {
        what: "event of the provider".to_owned(),
        attempt: None,
        verdict: Some(Verdict::Succeeded),
        rule: None,
        message: Some("evt_1 says so".to_owned()),
        status: None,
        external_id: None,
        breach: false,
        detail: Value::Null,
    }
}
