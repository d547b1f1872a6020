//! A node that asks by a typed function: the same ledger rows as one that asks by slot and JSON, at the command line.

use serde_json::{Value, json};
use twice_tests::nodes::{language_component, repository};
use twice_tests::project::{Project, Provider};

use super::shop::{REFUND, TWICE};

const WORKFLOW: &str = "workflows/damaged-item-refund.toml";

/// The example's refund, without its mail, by the node in `folder`.
fn shop(provider: &Provider, folder: &str) -> Project {
    let project = Project::of_repository(TWICE, "example-project").at(provider);
    let text = std::fs::read_to_string(project.root().join(WORKFLOW)).unwrap();
    let refund = text.split("\n[[node]]\nname = \"notify\"").next().unwrap();
    project.write(WORKFLOW, refund);
    project.add_node_of(folder, "refund");
    project
}

fn input() -> String {
    json!({ "order_id": "order-42", "amount_cents": 1_500, "paid_cents": 1_500, "reason": "broken",
            "customer_email": "a@example.com" })
    .to_string()
}

fn too_much() -> String {
    json!({ "order_id": "order-43", "amount_cents": 1_500, "paid_cents": 1_400, "reason": "broken",
            "customer_email": "a@example.com" })
    .to_string()
}

fn run(project: &Project) -> Value {
    project.ok(&["run", REFUND, "--run-id", "run-1", "--input", &input()]);
    let effects = project.effects("run-1");
    assert_eq!(effects.len(), 1, "{effects:?}");
    effects[0].clone()
}

#[test]
fn a_typed_request_is_the_same_effect_as_one_by_slot() {
    let (one, other) = (Provider::start(), Provider::start());
    let by_slot = run(&shop(&one, "refund"));
    let typed = shop(&other, "typed/rust");
    let by_function = run(&typed);
    for field in ["effect_id", "type", "request_hash", "idempotency_key", "state", "attempts"] {
        assert_eq!(by_function[field], by_slot[field], "{field}");
    }
    // Asked for again, the run is found, and nothing is sent.
    assert_eq!(run(&typed), by_function);
    assert_eq!(other.requests("refund"), 1);
    let shown = typed.ok(&["node", "inspect", "refund"]);
    assert!(shown.contains("  tools:payments/payments#refund: func(args: record {"), "{shown}");
}

#[test]
fn typed_nodes_of_other_languages_ask_for_the_same_effect() {
    let provider = Provider::start();
    let by_slot = run(&shop(&provider, "refund"));
    for folder in ["typed/python", "typed/javascript"] {
        if language_component(folder).is_none() {
            continue;
        }
        let provider = Provider::start();
        let typed = shop(&provider, folder);
        let by_function = run(&typed);
        for field in ["effect_id", "type", "request_hash", "idempotency_key", "state", "attempts"] {
            assert_eq!(by_function[field], by_slot[field], "{folder}: {field}");
        }
        let denied = typed.twice(&["run", REFUND, "--run-id", "run-2", "--input", &too_much()]);
        // The node does not catch it, and the run ends by it: it is no crash.
        assert_eq!(denied.code, Some(3), "{folder}: {denied}");
        for words in
            ["gave up: denied by args.", "args.amount_cents <= state.input.paid_cents: slot"]
        {
            assert!(denied.stdout.contains(words), "{folder}: no `{words}`: {denied}");
        }
        assert_eq!(provider.requests("refund"), 1, "{folder}");
    }
}

#[test]
fn a_typed_node_that_is_killed_and_resumed_refunds_once() {
    for death in ["after-requested-commit:1", "after-reply:1"] {
        let provider = Provider::start();
        let project = shop(&provider, "typed/rust");
        let args = ["run", REFUND, "--run-id", "run-1", "--input", &input()];
        let killed = project.spawn(&args, &[("TWICE_TEST_KILL", death)]).finish();
        assert_eq!(killed.code, None, "{death}: {killed}");
        project.ok(&args);
        let resumed = (project.run("run-1"), provider.counters());
        assert_eq!(resumed.0["run"]["state"], "completed", "{death}");
        assert_eq!(resumed.1.effects, 1, "{death}");
        project.ok(&["runs", "resume", "run-1"]);
        assert_eq!((project.run("run-1"), provider.counters()), resumed, "{death}");
    }
}

#[test]
fn what_the_slots_do_not_grant_is_found_before_anything_runs() {
    let provider = Provider::start();
    let project = shop(&provider, "typed/rust");
    project.ok(&["check"]);
    project.edit(WORKFLOW, "slot = \"refund\"", "slot = \"refund\"\nimport = \"shop:api/other\"");
    let words = "`tools:payments/payments#refund`: no slot of node `refund` is for it";
    for args in [&["check"][..], &["run", REFUND, "--run-id", "run-1", "--input", &input()]] {
        let ran = project.twice(args);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains(words), "no `{words}`: {ran}");
    }
    assert_eq!(provider.requests("refund"), 0);
    assert_eq!(project.json(&["runs", "list"]), json!([]));
}

#[test]
fn a_component_that_no_tool_of_the_project_fits_is_not_registered() {
    let provider = Provider::start();
    let project = shop(&provider, "refund");
    project.edit(
        "schemas/refund-args.json",
        "\"amount_cents\": { \"type\": \"integer\"",
        "\"amount_cents\": { \"type\": \"string\"",
    );
    let node = repository().join("nodes/typed/rust");
    let ran = project.twice(&["node", "build", node.to_str().unwrap(), "--name", "refund"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    let words = "args, `/amount_cents`: the type is `u32`, and the schema says string";
    assert!(ran.stderr.contains(words), "no `{words}`: {ran}");
}

#[test]
fn the_wit_of_a_tool_is_written_for_a_node() {
    let provider = Provider::start();
    let project = shop(&provider, "refund");
    let printed = project.ok(&["tool", "wit", "payments"]);
    let out = project.root().join("nodes/new/wit");
    project.ok(&["tool", "wit", "payments", "--out", out.to_str().unwrap()]);
    let file = out.join("deps/tools-payments/payments.wit");
    assert_eq!(std::fs::read_to_string(file).unwrap().trim(), printed.trim());
    let world = std::fs::read_to_string(out.join("world.wit")).unwrap();
    assert!(
        world.contains("include twice:node/node@0.1.0;\n    import tools:payments/payments;"),
        "{world}"
    );
    let write = ["tool", "wit", "payments", "--out", out.to_str().unwrap()];
    let needed = "its world needs the line `import tools:payments/payments;`";
    let again = project.ok(&write);
    assert!(!again.contains(needed), "{again}");
    let without = world.replace("import tools:payments/payments;", "// import nothing");
    std::fs::write(out.join("world.wit"), without).unwrap();
    let again = project.ok(&write);
    assert!(again.contains(needed), "{again}");
    let ran = project.twice(&["tool", "wit", "bank"]);
    assert!(ran.stderr.contains("there is no tool `bank`"), "{ran}");
}

/// A project whose only workflow refunds each line of an order by the typed node `lines`.
fn lines(provider: &Provider) -> Project {
    let project = Project::of_repository(TWICE, "example-project").at(provider);
    project.write(
        WORKFLOW,
        r#"
workflow = "lines"
version = 1

[input.inline]
type = "object"
required = ["lines"]

[input.inline.properties.lines]
type = "array"
items = { type = "object", required = ["order_id"], properties = { order_id = { type = "string" } } }

[[node]]
name = "refund"
component = "lines"
limits = { time = "30s" }
retry = { attempts = 3, initial = "10ms", max = "10ms" }

[[node.effect]]
slot = "line"
tool = "payments.refund"
for_each = "/input/lines"
object = "/order_id"
intent = "line"
allow = "args.order_id == object && args.amount_cents < 5000"
"#,
    );
    project.add_node_of("typed/lines", "lines");
    let said = project.twice(&["check"]);
    let warned = format!("{}{}", said.stdout, said.stderr).contains("TW2129");
    assert!(said.code == Some(0) && !warned, "{said}");
    project
}

fn order(amounts: &[u32], more: &Value) -> String {
    let lines: Vec<Value> = amounts
        .iter()
        .enumerate()
        .map(|(at, cents)| json!({ "order_id": format!("order-{at}"), "amount_cents": cents }))
        .collect();
    let mut input = json!({ "lines": lines });
    for (key, value) in more.as_object().into_iter().flatten() {
        input[key] = value.clone();
    }
    input.to_string()
}

#[test]
fn a_typed_function_of_a_slot_for_an_array_takes_the_element() {
    let provider = Provider::start();
    let project = lines(&provider);
    let input = order(&[100, 200, 300], &json!({ "fails": 2 }));
    let start = ["run", "lines", "--run-id", "run-1", "--input", &input];
    let killed = project.spawn(&start, &[("TWICE_TEST_KILL", "after-requested-commit:2")]).finish();
    assert_eq!(killed.code, None, "{killed}");
    project.ok(&start);
    let effects = project.effects("run-1");
    let keys: Vec<&str> =
        effects.iter().map(|effect| effect["idempotency_key"].as_str().unwrap()).collect();
    assert_eq!(
        keys,
        [
            "line/run-1/order-0/line/node=refund/item=0",
            "line/run-1/order-1/line/node=refund/item=1",
            "line/run-1/order-2/line/node=refund/item=2"
        ]
    );
    // Started three times, and once more after the crash.
    assert_eq!((provider.counters().effects, provider.counters().duplicates), (3, 0));
    let output = &project.run("run-1")["run"]["output"];
    let amounts: Vec<&Value> =
        output.as_array().unwrap().iter().map(|line| &line["amount_cents"]).collect();
    assert_eq!(amounts, [100, 200, 300]);
}

#[test]
fn what_a_typed_function_is_refused_is_one_text_where_its_wit_says_so() {
    let provider = Provider::start();
    let project = lines(&provider);
    let denied = order(&[100, 9_000], &json!({}));
    let ran = project.twice(&["run", "lines", "--run-id", "run-1", "--input", &denied]);
    assert_eq!(ran.code, Some(3), "{ran}");
    assert!(
        ran.stdout
            .contains("`line` is denied by args.order_id == object && args.amount_cents < 5000: "),
        "{ran}"
    );
    assert_eq!(provider.counters().effects, 1);
}

#[test]
fn a_typed_request_with_other_args_is_a_conflict_that_a_person_decides() {
    let provider = Provider::start();
    let project = lines(&provider);
    let input = order(&[100], &json!({ "fails": 1, "grows_cents": 1 }));
    let start = ["run", "lines", "--run-id", "run-1", "--input", &input];
    let ran = project.twice(&start);
    assert_eq!(ran.code, Some(4), "{ran}");
    let effect = project.effects("run-1").remove(0);
    assert_eq!(effect["state"], "CONFIRMED");
    let id = effect["effect_id"].as_str().unwrap();
    let held = &effect["held"]["conflict"];
    assert_eq!(held["recorded"]["args"]["amount_cents"], 100);
    assert_eq!(held["requested"]["args"]["amount_cents"], 101);
    project.ok(&["effects", "conflict", id, "--keep", "--reason", "the first stands"]);
    project.ok(&["runs", "resume", "run-1"]);
    // The node gets what really happened.
    assert_eq!(project.run("run-1")["run"]["output"][0]["amount_cents"], 100);
    assert_eq!(provider.counters().effects, 1);
}
