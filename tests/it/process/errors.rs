//! What the command says when something is wrong: each text says what, where, and what to do, and is compared whole.

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use twice_tests::project::{Project, Provider, Ran};

use super::shop::{REFUND, SCRIPTED, TWICE, history, order, refund_step, script, shop, start};

const RUN: &str = "run-1";

/// The text without what differs from one time to the next.
fn steady(project: &Project, text: &str) -> String {
    let text = text.replace(&project.root().display().to_string(), "<project>");
    let words = |c: char| !(c.is_ascii_alphanumeric() || "_-:.".contains(c));
    let mut out = String::new();
    for piece in text.split_inclusive(words) {
        let word = piece.trim_end_matches(words);
        let mark = match word {
            _ if word.starts_with("eff_") => "<effect>",
            _ if word.starts_with("20") && word.ends_with('Z') && word.contains('T') => "<time>",
            _ => word,
        };
        out.push_str(mark);
        out.push_str(&piece[word.len()..]);
    }
    out
}

#[track_caller]
fn check_text(project: &Project, ran: &Ran, code: i32, expect: &Expect) {
    assert_eq!(ran.code, Some(code), "{ran}");
    // Results on standard output, problems on standard error; here they are read together.
    expect.assert_eq(&steady(project, &format!("{}{}", ran.stdout, ran.stderr)));
}

#[track_caller]
fn check(project: &Project, args: &[&str], code: i32, expect: Expect) {
    check_text(project, &project.twice(args), code, &expect);
}

/// Plays these steps and compares what is said of it; hands back the run.
#[track_caller]
fn check_steps(steps: &Value, code: i32, expect: Expect) -> (Project, Provider) {
    let provider = Provider::start();
    let project = shop(&provider);
    let ran = project.twice(&start(SCRIPTED, &script("order-1", steps), RUN));
    check_text(&project, &ran, code, &expect);
    (project, provider)
}

#[test]
fn what_is_not_there() {
    let provider = Provider::start();
    let empty = Project::empty(TWICE);
    check(&empty, &["runs", "list"], 1, expect![[""]]);
    let project = Project::init(TWICE).at(&provider);
    check(&project, &["run", REFUND, "--input", "nothing.json"], 1, expect![[""]]);
    check(&project, &["run", "refunds", "--input", "input.json"], 1, expect![[""]]);
    check(&project, &["run", REFUND, "--input", "input.json"], 1, expect![[""]]);
    check(&project, &["runs", "show", "run-9"], 1, expect![[""]]);
    check(&project, &["runs", "resume", "run-9"], 1, expect![[""]]);
    check(&project, &["runs", "release", "run-9", "--reason", "x"], 1, expect![[""]]);
    check(&project, &["effects", "show", "eff_aaaaaaaa"], 1, expect![[""]]);
    check(&project, &["effects", "show", "refund"], 1, expect![[""]]);
    check(&project, &["node", "add", "refund", "refund.wasm"], 1, expect![[""]]);
    check(&project, &["node", "build", "nodes/refund"], 1, expect![[""]]);
    check(&project, &["node", "inspect", "refund"], 1, expect![[""]]);
    check(&project, &["--project", "elsewhere", "check"], 1, expect![[""]]);
}

#[test]
fn what_is_wrong_in_a_file() {
    let project = Project::init(TWICE);
    let workflow = "workflows/damaged-item-refund.toml";
    project.edit(workflow, "intent = ", "intend = ");
    check(&project, &["check"], 1, expect![[""]]);
    project.edit(workflow, "intend = ", "intent = ");
    project.edit(workflow, "\"/input/order_id\"", "\"/nodes/refund/order_id\"");
    check(&project, &["check"], 1, expect![[""]]);
    project.write(workflow, "workflow = \"damaged\nversion = 1\n");
    check(&project, &["check"], 1, expect![[""]]);
}

#[test]
fn what_is_wrong_with_an_input() {
    let provider = Provider::start();
    let project = shop(&provider);
    let text = r#"{"order_id":"order 42","amount_cents":"12","paid_cents":5000}"#;
    check(&project, &["run", REFUND, "--input", text], 1, expect![[""]]);
    check(&project, &["run", REFUND, "--input", r#"{"a":1,"a":2}"#], 1, expect![[""]]);
    check(&project, &["run", REFUND, "--input", "input.json", "--run-id", "Run 1"], 1, expect![[""]]);
    assert_eq!(project.json(&["runs", "list"]), json!([]), "something was started");
}

#[test]
fn a_component_that_imports_what_is_not_offered() {
    let project = Project::init(TWICE);
    let sockets = r#"(component (import "wasi:sockets/tcp@0.2.0" (instance (export "x" (func)))))"#;
    project.write("sockets.wasm", wat::parse_str(sockets).unwrap());
    check(&project, &["node", "add", "sockets", "sockets.wasm"], 1, expect![[""]]);
    project.write("text.wasm", "no component at all");
    check(&project, &["node", "add", "text", "text.wasm"], 1, expect![[""]]);
    assert_eq!(project.json(&["node", "list"]), json!([]), "something was registered");
}

#[test]
fn a_node_that_traps() {
    check_steps(&json!([{ "do": "trap" }]), 3, expect![[""]]);
    check_steps(&json!([{ "do": "panic", "message": "no such order" }]), 3, expect![[""]]);
}

#[test]
fn a_node_that_gives_up() {
    check_steps(&json!([{ "do": "fatal", "message": "no such order" }]), 3, expect![[""]]);
    check_steps(&json!([{ "do": "retryable", "message": "not yet" }]), 3, expect![[""]]);
}

#[test]
fn a_node_that_uses_too_much() {
    check_steps(&json!([{ "do": "loop" }]), 3, expect![[""]]);
    check_steps(&json!([{ "do": "grow", "bytes": 64 << 20 }]), 3, expect![[""]]);
    check_steps(&json!([{ "do": "recurse" }]), 3, expect![[""]]);
}

#[test]
fn a_node_that_returns_no_json() {
    check_steps(&json!([{ "do": "bad_output" }]), 3, expect![[""]]);
}

#[test]
fn a_slot_that_was_not_granted() {
    let steps = json!([{ "do": "request", "slot": "payout", "args": {} }]);
    let (project, provider) = check_steps(&steps, 0, expect![[""]]);
    assert_eq!(provider.counters().effects, 0);
    let shown = project.run(RUN);
    let refused = history(&shown).iter().find(|entry| entry["kind"] == "request_refused");
    assert_eq!(refused.unwrap()["body"]["policy"], "grant");
    assert!(project.effects(RUN).is_empty());
}

#[test]
fn args_that_do_not_fit() {
    let steps = json!([{ "do": "request", "slot": "refund", "args": { "order_id": "order-1" } }]);
    let (_, provider) = check_steps(&steps, 0, expect![[""]]);
    assert_eq!(provider.counters().effects, 0);
}

/// One slot, other args: the run stops, nothing more is sent, both requests are shown.
#[track_caller]
fn check_conflict(project: &Project, provider: &Provider, sent: u64) {
    assert_eq!(provider.requests("refund"), sent);
    let held = project.json(&["effects", "list", "--conflict"]);
    assert_eq!(held.as_array().unwrap().len(), 1, "{held:#}");
    let id = held[0]["effect_id"].as_str().unwrap();
    let shown = project.json(&["effects", "show", id]);
    let conflict = &shown["held"]["conflict"];
    assert_eq!(conflict["recorded"]["args"]["amount_cents"], 1200);
    assert_eq!(conflict["requested"]["args"]["amount_cents"], 1300);
    assert_ne!(conflict["recorded"]["request_hash"], conflict["requested"]["request_hash"]);
    let text = project.ok(&["effects", "show", id]);
    assert!(text.contains("1200") && text.contains("1300"), "{text}");
    // It stays so, however often it is resumed.
    let before = project.run(RUN);
    let again = project.twice(&["runs", "resume", RUN]);
    assert_eq!(again.code, Some(4), "{again}");
    assert_eq!(project.run(RUN), before);
    assert_eq!(provider.requests("refund"), sent);
    // A person's decision lets it go on.
    project.ok(&["effects", "conflict", id, "--keep", "--reason", "the first amount is right"]);
    project.ok(&["runs", "resume", RUN]);
    let refunds = &provider.counters().operations["refund"];
    assert_eq!((refunds.effects, refunds.duplicates), (1, 0));
}

#[test]
fn one_slot_twice_with_other_args() {
    let steps = json!([refund_step("order-1", 1200), refund_step("order-1", 1300)]);
    let (project, provider) = check_steps(&steps, 4, expect![[""]]);
    check_conflict(&project, &provider, 1);
}

#[test]
fn one_slot_twice_at_once_with_other_args() {
    let steps = json!([{ "do": "request_all", "requests": [
        { "slot": "refund", "args": { "order_id": "order-1", "amount_cents": 1200 } },
        { "slot": "refund", "args": { "order_id": "order-1", "amount_cents": 1300 } },
    ] }]);
    let (project, provider) = check_steps(&steps, 4, expect![[""]]);
    check_conflict(&project, &provider, 0);
}

#[test]
fn one_slot_twice_with_the_same_args() {
    let provider = Provider::start();
    let project = shop(&provider);
    let steps = json!([refund_step("order-1", 1200), refund_step("order-1", 1200)]);
    let ran = project.twice(&start(SCRIPTED, &script("order-1", &steps), RUN));
    assert_eq!(ran.code, Some(0), "{ran}");
    let notes = project.run(RUN)["run"]["output"]["notes"].clone();
    assert_eq!(notes[0], notes[1]);
    assert_eq!(provider.requests("refund"), 1);
}

#[test]
fn a_policy_that_says_no() {
    let provider = Provider::start();
    let project = shop(&provider);
    let mut input = order("order-1");
    // The policy of the workflow reads the input; the node checks too, so that it is the policy's input that is short.
    input["paid_cents"] = json!(1);
    let ran = project.twice(&start(REFUND, &input, RUN));
    check_text(&project, &ran, 3, &expect![[""]]);
    assert_eq!(provider.requests("refund"), 0);
}
