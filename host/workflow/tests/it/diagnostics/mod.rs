//! Every finding, as its reader sees it: one table of slips in the example project.

mod answers;
mod approvals;
mod contracts;
mod expressions;
mod fan_outs;
mod files;
mod graphs;
mod loops;
mod names;
mod sagas;
mod sources;
mod templates;
mod tools;
mod unsupported;
mod webhooks;

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use twice_workflow::Project;
use twice_workflow::diagnostic::Code;

use crate::support::{edit, example};

pub(super) const T: &str = "twice.toml";
pub(super) const W: &str = "workflows/damaged-item-refund.toml";
pub(super) const P: &str = "tools/payments.toml";
pub(super) const M: &str = "tools/mail.toml";

/// The refund without its lookup.
pub(super) const KEY_ONLY: (&str, &str, &str) = (
    P,
    "[operation.refund.lookup]\nby = \"reference\"\nconsistency = \"strong\"\nmethod = \"GET\"\npath = \"/v1/refunds\"\nquery = { reference = \"{/effect_id}\" }\nheaders = { Authorization = \"Bearer {secret:api-key}\" }\n# The route of a list answers with an empty list, so no status means that there is nothing.\nabsent = []\nitems = \"/data\"\nmatches = { \"/reference\" = \"/effect_id\" }\npending = { \"/status\" = [\"pending\"] }\nfailed = { \"/status\" = [\"failed\"] }\nexternal_id = \"/id\"\n\n",
    "",
);

/// Makes the edits (file, text, replacement) in the example project and compares all that is found then.
#[track_caller]
fn check(edits: &[(&str, &str, &str)], expect: Expect) -> BTreeSet<Code> {
    let mut files = example();
    for (path, from, to) in edits {
        edit(&mut files, path, from, to);
    }
    let found = match Project::load(&files) {
        Ok(project) => project.warnings,
        Err(found) => found,
    };
    let text: Vec<String> = found.iter().map(ToString::to_string).collect();
    expect.assert_eq(&text.join("\n"));
    found.iter().map(|finding| finding.code).collect()
}

/// A workflow with a table for each node, and what is found in it. The nodes are given as a name and further keys.
#[track_caller]
pub(super) fn flow(nodes: &[(&str, &str)], expect: Expect) -> BTreeSet<Code> {
    flow_with("", nodes, expect)
}

/// As [`flow`], with further keys of the workflow.
#[track_caller]
pub(super) fn flow_with(head: &str, nodes: &[(&str, &str)], expect: Expect) -> BTreeSet<Code> {
    check(&[("workflows/flow.toml", "", &flow_text("flow", head, nodes))], expect)
}

pub(super) fn flow_text(name: &str, head: &str, nodes: &[(&str, &str)]) -> String {
    let mut text = format!("workflow = '{name}'\nversion = 1\n{head}{INPUT}");
    for (name, keys) in nodes {
        text.push_str(&format!("[[node]]\nname = '{name}'\ncomponent = 'refund'\n"));
        text.push_str(&format!("limits = {{ time = '60s' }}\n{keys}\n"));
    }
    text
}

/// The input of [`flow`].
const INPUT: &str = "input.inline.type = 'object'
input.inline.additionalProperties = false
input.inline.required = ['id', 'orders', 'names', 'codes']
[input.inline.properties]
id = { type = 'string' }
cents = { type = 'integer' }
names = { type = 'array', items = { type = 'string' } }
codes = { type = 'array', uniqueItems = true, items = { type = 'integer' } }
[input.inline.properties.orders]
type = 'array'
items = { type = 'object', additionalProperties = false, required = ['id', 'price'], properties = { id = { type = 'string' }, note = { type = 'string' }, price = { type = 'number' } } }
";

/// A slot for a refund, with further keys.
pub(super) fn refund(slot: &str, keys: &str) -> String {
    format!(
        "[[node.effect]]\nslot = '{slot}'\ntool = 'payments.refund'\nobject = '/input/id'\nintent = '{slot}'\nallow = 'true'\n{keys}\n"
    )
}

/// A slot for a mail, which can be neither repeated nor looked up, with further keys.
pub(super) fn mail(slot: &str, keys: &str) -> String {
    format!(
        "[[node.effect]]\nslot = '{slot}'\ntool = 'mail.send'\nobject = '/input/id'\nintent = '{slot}'\nallow = 'true'\n{keys}\n"
    )
}

#[test]
fn every_code_occurs() {
    let tables = [
        files::files_in_general(),
        unsupported::what_is_not_supported_yet(),
        names::the_graph_and_its_names(),
        sources::sources_of_identity(),
        expressions::expressions(),
        tools::tools_and_operations(),
        templates::request_templates(),
        contracts::keys_lookups_and_times(),
        answers::what_answers_mean(),
        graphs::joins_conditions_and_routes(),
        loops::loops(),
        fan_outs::fan_outs(),
        sagas::compensations_pivots_and_locks(),
        approvals::approvals(),
        webhooks::webhooks(),
        sagas::child_workflows(),
    ];
    let met: BTreeSet<Code> = tables.into_iter().flatten().flatten().collect();
    let all: BTreeSet<Code> = Code::ALL.iter().copied().collect();
    assert_eq!(met, all);
}

#[test]
fn accepts_what_is_sound() {
    let each = [
        (W, "args.order_id == state.input.order_id", "args.order_id == object"),
        (
            W,
            "object = \"/input/order_id\"\nintent = \"full",
            "object = \"/id\"\nfor_each = \"/input/orders\"\nintent = \"full",
        ),
        ("schemas/refund-request.json", "\"required\": [", "\"required\": [\"orders\", "),
        (
            "schemas/refund-request.json",
            "\"properties\": {",
            "\"$defs\": { \"order\": { \"required\": [\"id\"], \"properties\": { \"id\": { \"enum\": [1, \"a\"] } } } },\n  \"properties\": { \"orders\": { \"type\": \"array\", \"items\": { \"$ref\": \"#/$defs/order\" } },",
        ),
    ];
    let receipt = "object = \"/receipts/refund/refund/result/id\"\nintent = \"refund-notice\"";
    let read = "[operation.status]\nargs = { inline = { type = \"object\" } }\nread = true\ntimeout = \"5s\"\nretry = { attempts = 3, initial = \"1s\", max = \"1s\" }\n[operation.status.request]\nmethod = \"GET\"\npath = \"/v1/refunds/{/args/id}\"\n";
    let rows: [&[(&str, &str, &str)]; 20] = [
        &each,
        &[(P, "schema = \"schemas/refund.json\"", "schema = { inline = { type = \"object\" } }")],
        &[(P, "pending = { \"/status\" = [\"pending\"] }", "pending = {}")],
        &[(W, "object = \"/input/order_id\"\nintent = \"refund-notice\"", receipt)],
        &[
            (P, "[operation.refund]", &format!("{read}\n[operation.refund]")),
            (
                W,
                "",
                "\n[[node.effect]]\nslot = \"status\"\ntool = \"payments.status\"\nrepeat = 20\nallow = \"true\"\n",
            ),
        ],
        &[(P, "env:PAYMENTS_URL", "https://payments.example.com:8443/api")],
        &[(P, "env:PAYMENTS_URL", "http://localhost:4010/v1")],
        &[(P, "env:PAYMENTS_URL", "http://127.0.0.1:4010")],
        &[(P, "env:PAYMENTS_URL", "http://[::1]")],
        &[(P, "env:PAYMENTS_API_KEY", "file:secrets/api-key")],
        &[(W, "args.to == state.input.customer_email", " false ")],
        &[(W, "args.to == state.input.customer_email", "state.nodes.refund.any == args.to")],
        &[
            (
                "schemas/refund-request.json",
                "\"additionalProperties\": false",
                "\"additionalProperties\": true",
            ),
            (W, "args.to == state.input.customer_email", "state.input.other == 1"),
        ],
        &[
            (P, "header = \"Idempotency-Key\"\n", ""),
            (
                P,
                "reference = \"{/effect_id}\", ",
                "reference = \"{/effect_id}\", key = \"{/key}\", ",
            ),
        ],
        &[(P, "consistency = \"strong\"", "consistency = { lag = \"30s\" }")],
        &[(
            P,
            "reason = \"{/args/reason?}\"",
            "reason = \"{{literal}} for run {/run}\", tags = [1, true, 1.5, \"{/args/reason?}\"]",
        )],
        &[(W, "input = { schema = \"schemas/refund-request.json\" }\n", "")],
        &[
            (W, "version = 1", "version = 7"),
            (W, "after = [\"refund\"]", "retry = { attempts = 2, initial = \"2m\" }"),
        ],
        &[(
            W,
            "limits = { time = \"60s\" }",
            "limits = { time = \"24h\", memory = \"1GiB\", effects = 0, log = \"0B\" }",
        )],
        &[(T, "", "\n[database]\nurl = \"env:TWICE_DATABASE_URL\"\n")],
    ];
    for row in rows {
        check(row, expect![[""]]);
    }
}
