//! The simulated provider keeps the promises of a tool file, whatever they are, and says when it cannot.

use serde_json::{Value, json};
use twice_tests::nodes::repository;
use twice_tests::project::Project;

use super::{all_held, conformance, finding, says, shows, tried};

fn node(tool: &str) -> String {
    format!(
        "[[node]]\nname = \"n\"\ncomponent = \"conformance\"\nlimits = {{ time = \"60s\" }}\n\
        [[node.effect]]\nslot = \"s\"\ntool = \"{tool}\"\nobject = \"/input/id\"\nintent = \"x\""
    )
}

/// One request of a declared provider of the repository.
fn declared(file: &str, operation: &str, args: &Value) -> (Project, String) {
    let file = repository().join("nodes/providers").join(file);
    let project = conformance(&std::fs::read_to_string(file).unwrap(), &[&node(operation)]);
    let step = json!({ "do": "request", "slot": "s", "args": args, "must": true });
    (project, json!({ "id": "o-1", "steps": [step] }).to_string())
}

#[test]
fn a_lost_request_is_sent_again_only_on_proof_that_it_was_lost() {
    let file = repository().join("nodes/crashtest-examples/good/tools/payments.toml");
    let tool = std::fs::read_to_string(file).unwrap();
    // The same provider without its key: the lookup alone has to tell.
    let (before, rest) = tool.split_once("[operation.refund.key]").unwrap();
    let (_, lookup) = rest.split_once("[operation.refund.lookup]").unwrap();
    let before = before.replace("incidental = []", "incidental = []\nkey = \"none\"");
    let tool = format!("{before}[operation.refund.lookup]{lookup}");
    let project = conformance(&tool, &[&node("payments.refund")]);
    let args = json!({ "order_id": "o-1", "amount_cents": 5 });
    let step = json!({ "do": "request", "slot": "s", "args": args, "must": true });
    let input = json!({ "id": "o-1", "steps": [step] }).to_string();
    let report = tried(&project, &["w", "--input", &input], 0);
    all_held(&report);
    // Proof takes the settle window and the time that a frozen sender may still be at it.
    let lost = report["cases"].as_array().unwrap().iter().filter(|case| {
        case["boundary"] == "after-requested-commit" && case["run_state"] == "completed"
    });
    let waited: Vec<u64> = lost.map(|case| case["waited_ms"].as_u64().unwrap()).collect();
    assert_eq!(waited.len(), 2, "{report:#}");
    assert!(waited.iter().all(|ms| *ms >= 60_000 + 10_000 + 2_000), "{waited:?}");
}

#[test]
fn a_conflict_that_names_the_object_settles_it() {
    let args = json!({ "mandate": "m", "amount_pence": 100 });
    let (project, input) = declared("bank-debit-30d.toml", "bank-debit.collect", &args);
    let report =
        tried(&project, &["w", "--input", &input, "--boundary", "after-provider-commit"], 0);
    all_held(&report);
}

#[test]
fn a_lookup_by_key_finds_what_was_done() {
    let args = json!({
        "account_id": "a", "external_account_id": "e", "amount_cents": 7, "statement_descriptor": "s"
    });
    let (project, input) = declared("payouts-list-by-key.toml", "payouts.pay", &args);
    let report = tried(&project, &["w", "--input", &input], 0);
    all_held(&report);
}

#[test]
fn a_lookup_that_lags_cannot_prove_that_a_request_was_lost() {
    let args = json!({ "title": "t", "body": "b" });
    let (project, input) = declared("ticket-tracker.toml", "tickets.open", &args);
    let report =
        tried(&project, &["w", "--input", &input, "--boundary", "after-requested-commit"], 4);
    all_held(&report);
    says(
        &finding(&report, "lookup_cannot_refute"),
        &[
            "tickets.open has no idempotency key",
            "its lookup lags by up to 10m",
            "ends at a person",
        ],
    );
    // What was done is found, however late.
    let report =
        tried(&project, &["w", "--input", &input, "--boundary", "after-provider-commit"], 0);
    all_held(&report);
}

const QUOTES: &str = r#"
tool = "quotes"
version = "1"
kind = "http"
base_url = "env:QUOTES_URL"
[operation.get]
read = true
incidental = []
timeout = "5s"
retry = { attempts = 3, initial = "100ms", max = "1s" }
args = { inline = { type = "object", required = ["pair"], properties = { pair = { type = "string" } } } }
request = { method = "GET", path = "/quotes/{/args/pair}" }
[operation.get.response]
expose = ["/rate"]
[operation.get.response.schema.inline]
type = "object"
required = ["rate"]
properties = { rate = { type = "string", pattern = "^[0-9]+[.][0-9]{2}$" } }
"#;

#[test]
fn an_answer_that_cannot_be_made_is_asked_for() {
    let slot = "[[node]]\nname = \"n\"\ncomponent = \"conformance\"\nlimits = { time = \"60s\" }\n\
        [[node.effect]]\nslot = \"s\"\ntool = \"quotes.get\"\nintent = \"x\"";
    let project = conformance(QUOTES, &[slot]);
    let input = r#"{ "id": "o-1", "steps": [{ "do": "request", "slot": "s", "args": { "pair": "a/b" }, "must": true }] }"#;
    let args = ["crashtest", "w", "--input", input, "--boundary", "after-reply"];
    shows(
        &project.twice(&args),
        1,
        &[
            "no answer could be made for quotes.get that its own declarations take for a success",
            "fix: put an answer of the real provider into examples/quotes.get.json",
        ],
    );
    project.write("examples/quotes.get.json", r#"{ "rate": "1.25" }"#);
    let report = tried(&project, &args[1..], 0);
    all_held(&report);
    assert_eq!(report["effects"], 1);
}

#[test]
fn effects_that_are_asked_for_together_are_interrupted_together() {
    let file = repository().join("nodes/crashtest-examples/good/tools/payments.toml");
    let node = "[[node]]\nname = \"n\"\ncomponent = \"conformance\"\nlimits = { time = \"60s\" }\n\
        [[node.effect]]\nslot = \"s\"\ntool = \"payments.refund\"\nfor_each = \"/input/orders\"\nobject = \"/id\"\nintent = \"x\"";
    let project = conformance(&std::fs::read_to_string(file).unwrap(), &[node]);
    let orders = ["o-1", "o-2", "o-3"];
    let request = |(item, order): (usize, &&str)| json!({ "slot": "s", "item": item, "args": { "order_id": order, "amount_cents": 5 } });
    let requests: Vec<Value> = orders.iter().enumerate().map(request).collect();
    let input = json!({
        "id": "batch",
        "orders": orders.map(|id| json!({ "id": id })),
        "steps": [{ "do": "request_all", "requests": requests }],
    });
    let report =
        tried(&project, &["w", "--input", &input.to_string(), "--boundary", "after-reply"], 0);
    all_held(&report);
    assert_eq!(report["effects"], 3);
    // One undisturbed, and each of the three answers interrupted by a kill and by a freeze.
    assert_eq!(report["cases"].as_array().unwrap().len(), 7);
}

#[test]
fn what_cannot_be_tried_is_said() {
    let (project, input) = declared("mail-plain.toml", "mail.send", &json!({}));
    let check = |args: &[&str], code: i32, words: &[&str]| {
        shows(&project.twice(&[&["crashtest", "w", "--input"], args].concat()), code, words);
    };
    check(
        &[&input, "--boundary", "half-time"],
        2,
        &["'half-time' for '--boundary", "after-requested-commit", "after-provider-commit"],
    );
    check(&[&input, "--pause", "soon"], 2, &["'soon' for '--pause", "48h"]);
    check(&[&input, "--pause", "5s"], 2, &["shorter than a lease", "give 1m or more"]);
    check(&["{}"], 1, &["the input does not fit workflow `w`"]);
}
