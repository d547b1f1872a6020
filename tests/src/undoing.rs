//! Workflows that undo what they did: refunds, which reversals undo.

use crate::graphs::graph;
use crate::host::Setup;
use crate::tools::{Class, WINDOWS, payments};

/// The tool `payments` of the class, with the operation `reverse` beside `refund`, which honours keys and can be asked.
#[must_use]
pub fn payments_and_back(class: Class) -> String {
    format!("{}{REVERSE}", payments(class, WINDOWS))
}

const REVERSE: &str = r#"
[operation.reverse]
timeout = "20s"
settle = "60s"
horizon = "20m"
retry = { attempts = 3, initial = "1s", max = "30s" }

[operation.reverse.args.inline]
type = "object"
additionalProperties = false
required = ["refund_id"]
[operation.reverse.args.inline.properties]
refund_id = { type = "string" }
order_id = { type = "string" }

[operation.reverse.request]
method = "POST"
path = "/v1/refunds/{/args/refund_id}/reverse"
headers = { Authorization = "Bearer {secret:api-key}" }
body = { reference = "{/effect_id}" }

[operation.reverse.key]
header = "Idempotency-Key"
format = "uuid"
retention = "24h"
basis = "first_send"
replay = "first_answer"
mismatch = [{ status = 422, pointer = "/error/code", equals = "idempotency_key_reused" }]
in_flight = [{ status = 409, pointer = "/error/code", equals = "idempotency_key_in_use" }]

[operation.reverse.lookup]
by = "reference"
consistency = "strong"
method = "GET"
path = "/v1/reversals"
query = { reference = "{/effect_id}" }
headers = { Authorization = "Bearer {secret:api-key}" }
items = "/data"
matches = { "/reference" = "/effect_id" }
external_id = "/id"

[operation.reverse.response]
external_id = "/id"
echo = { "/refund_id" = "/refund_id" }
expose = ["/id"]
refused = [{ status = 402 }]
not_processed = [{ status = 429 }]
"#;

/// The slot `refund` of this object, whose effect is undone; `more` of the slot, and `more` of its compensation.
#[must_use]
pub fn undone_refund(object: &str, more: &str, compensate: &str) -> String {
    format!(
        "[[node.effect]]\nslot = \"refund\"\ntool = \"payments.refund\"\nobject = \"{object}\"\nintent = \"full\"\nallow = \"true\"\n{more}\n\
         compensate = {{ tool = \"payments.reverse\", args = {{ refund_id = \"/receipt/external_id\" }}, allow = \"true\"{compensate} }}\n"
    )
}

/// A host whose only workflow is that one, with the tool of [`payments_and_back`].
#[must_use]
pub fn setup(class: Class, head: &str, nodes: &[(&str, &str)]) -> Setup {
    Setup::new(&[&graph(head, nodes)]).tool(payments_and_back(class))
}
