//! The project that is measured: three shapes of runs on one tool that has a key and a lookup.

use std::collections::BTreeMap;

use anyhow::bail;
use serde_json::{Value, json};
use twice_core::ids::Name;
use twice_workflow::Project;
use twice_workflow::model::Definition;

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One step with 32 effects, one after the other.
    Many,
    /// Eight steps with an effect each.
    Steps,
    /// One step with one effect.
    One,
}

impl Shape {
    pub(super) const ALL: [Self; 3] = [Self::Many, Self::Steps, Self::One];

    /// The word in reports, and the workflow's name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Many => "one-step-32-effects",
            Self::Steps => "eight-steps-8-effects",
            Self::One => "one-step-1-effect",
        }
    }

    pub(super) const fn steps(self) -> u32 {
        match self {
            Self::Many | Self::One => 1,
            Self::Steps => 8,
        }
    }

    pub(super) const fn effects(self) -> u32 {
        match self {
            Self::Many => 32,
            Self::Steps => 8,
            Self::One => 1,
        }
    }

    /// The input of a run.
    pub(super) fn input(self) -> Value {
        match self {
            Self::Many => {
                let orders: Vec<_> =
                    (0..self.effects()).map(|n| json!({ "id": format!("order-{n}") })).collect();
                let step =
                    json!({ "do": "request_many", "slot": "refund", "count": self.effects() });
                json!({ "order": "order-1", "orders": orders, "steps": [step] })
            }
            Self::Steps | Self::One => {
                let args = json!({ "item": 1 });
                let step = json!({ "do": "request", "slot": "refund", "args": args, "must": true });
                json!({ "order": "order-1", "steps": [step] })
            }
        }
    }

    fn workflow(self) -> String {
        let mut text = format!("workflow = \"{}\"\nversion = 1\n", self.as_str());
        for step in 1..=self.steps() {
            let after = if step > 1 { format!("\"step-{}\"", step - 1) } else { String::new() };
            let bound = match self {
                Self::Many => "for_each = \"/input/orders\"\nobject = \"/id\"",
                Self::Steps | Self::One => "object = \"/input/order\"",
            };
            text += &format!(
                "\n[[node]]\nname = \"step-{step}\"\ncomponent = \"conformance\"\nafter = [{after}]\n\
                 limits = {{ memory = \"64MiB\", time = \"60s\", effects = 64 }}\n\n\
                 [[node.effect]]\nslot = \"refund\"\ntool = \"payments.refund\"\n{bound}\nintent = \"full-refund\"\n"
            );
        }
        text
    }
}

const TOOL: &str = r#"
tool = "payments"
version = "1"
kind = "http"
base_url = "env:BENCH_PAYMENTS_URL"

[operation.refund]
args = { schema = "schemas/args.json" }
timeout = "10s"
settle = "2s"
horizon = "24h"
retry = { attempts = 5, initial = "500ms", max = "30s" }

[operation.refund.request]
method = "POST"
path = "/v1/refunds"
body = { args = "{/args/item}", reference = "{/effect_id}" }

[operation.refund.key]
header = "Idempotency-Key"
format = "uuid"
retention = "24h"
basis = "first_send"
replay = "first_answer"
mismatch = [{ status = 422 }]
in_flight = [{ status = 409 }]
replayed = [{ header = "idempotent-replayed", equals = "true" }]

[operation.refund.lookup]
by = "reference"
consistency = "strong"
method = "GET"
path = "/v1/refunds"
query = { reference = "{/effect_id}" }
absent = []
items = "/data"
matches = { "/reference" = "/effect_id" }
pending = { "/status" = ["pending"] }
failed = { "/status" = ["failed"] }
external_id = "/id"

[operation.refund.response]
schema = "schemas/result.json"
external_id = "/id"
expose = ["/id", "/status"]
refused = [{ status = 402 }]
not_processed = [{ status = 429 }]
"#;

const ARGS: &str = r#"{ "type": "object", "required": ["item"], "properties": { "item": { "type": "integer" } } }"#;
const RESULT: &str = r#"{ "type": "object", "required": ["id"], "properties": { "id": { "type": "string" },
    "status": { "type": "string" }, "reference": { "type": "string" } } }"#;

/// The definition of a shape, with this component as `conformance`.
pub(super) fn definition(shape: Shape, component: &str) -> anyhow::Result<Definition> {
    let mut files = BTreeMap::from([
        ("twice.toml".to_owned(), "project = \"bench\"\n".to_owned()),
        ("tools/payments.toml".to_owned(), TOOL.to_owned()),
        ("schemas/args.json".to_owned(), ARGS.to_owned()),
        ("schemas/result.json".to_owned(), RESULT.to_owned()),
    ]);
    files.insert(format!("workflows/{}.toml", shape.as_str()), shape.workflow());
    match Project::load(&files) {
        Ok(project) => {
            let components = BTreeMap::from([(Name::parse("conformance")?, component.to_owned())]);
            Ok(project.definition(&Name::parse(shape.as_str())?, &components)?)
        }
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            bail!("the benchmark's project is refused:\n{}", lines.join("\n"))
        }
    }
}
