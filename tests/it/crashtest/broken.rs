//! Workflows that do not work even undisturbed: a crash test of them shows nothing, and must not look as if it did.

use serde_json::{Value, json};
use twice_tests::nodes::repository;
use twice_tests::project::Project;

use super::{conformance, finding, says, shows, tried};

/// A node with one slot, `s`, that permits as `allow` says.
fn granted(allow: &str) -> Project {
    let file = repository().join("nodes/crashtest-examples/good/tools/payments.toml");
    let node = format!(
        "[[node]]\nname = \"n\"\ncomponent = \"conformance\"\nlimits = {{ time = \"60s\", log = \"0B\" }}\n\
        retry = {{ attempts = 2, initial = \"1s\" }}\n\
        [[node.effect]]\nslot = \"s\"\ntool = \"payments.refund\"\nobject = \"/input/id\"\nintent = \"x\"\nallow = {allow:?}"
    );
    conformance(&std::fs::read_to_string(file).unwrap(), &[&node])
}

fn request(slot: &str, must: bool) -> Value {
    let args = json!({ "order_id": "o-1", "amount_cents": 5 });
    json!({ "do": "request", "slot": slot, "args": args, "must": must })
}

/// Tries a run of these steps: the test fails, for this reason and with this fix, and says so before anything else.
#[track_caller]
fn check(project: &Project, steps: &[Value], kind: &str, reason: &[&str], fix: &str) {
    let input = json!({ "id": "o-1", "steps": steps }).to_string();
    let args = ["w", "--input", &input, "--junit", "out.xml"];
    let report = tried(project, &args, 3);
    assert_eq!(report["verdict"], "violated");
    let found = finding(&report, kind);
    assert_eq!(found["severity"], "violation");
    says(&found, reason);
    assert!(found["fix"].as_str().unwrap().contains(fix), "`{fix}` is not in: {found:#}");
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 1, "no crash is tried: {report:#}");
    assert_eq!((&cases[0]["result"], &cases[0]["broken"]), (&json!("violated"), &found["message"]));
    let xml = std::fs::read_to_string(project.root().join("out.xml")).unwrap();
    assert!(
        xml.contains("failures=\"1\"") && xml.contains("<failure message=\"even without"),
        "{xml}"
    );

    let ran = project.twice(&["crashtest", "w", "--input", &input]);
    shows(&ran, 3, &["so that no crash was tried", fix]);
    let first = ran.stdout.lines().next().unwrap();
    assert!(first.contains("even without a crash") && first.contains(reason[0]), "{ran}");
    assert!(!ran.stdout.contains("everything holds"), "{ran}");
}

#[test]
fn a_node_that_always_panics() {
    let panics = json!({ "do": "panic", "message": "out of cheese" });
    check(
        &granted("true"),
        &[panics],
        "run_fails",
        &["the run fails", "node `n` trapped"],
        "node `n` panics or traps",
    );
}

#[test]
fn a_slot_that_is_not_granted() {
    let project = granted("true");
    let fix = "grant it in the workflow file, with a `[[node.effect]]` of `slot = \"other\"`";
    let refused = "refused: node `n` may not request `other`";
    let asks = [request("other", true)];
    check(&project, &asks, "run_fails", &["the run fails", refused], fix);
    // A node that makes nothing of the refusal ends well, and has done nothing.
    let asks = [request("other", false)];
    check(&project, &asks, "no_effects", &["asks for none of the effects", refused], fix);
}

#[test]
fn a_node_that_never_asks() {
    check(
        &granted("true"),
        &[],
        "no_effects",
        &["asks for none of the effects that the workflow grants"],
        "give an input with which its nodes ask",
    );
}

#[test]
fn a_policy_that_denies_everything() {
    check(
        &granted("false"),
        &[request("s", false)],
        "no_effects",
        &["no effect of it is performed: payments.refund"],
        "correct the expression of slot `s`",
    );
}

#[test]
fn an_output_that_is_no_json() {
    check(
        &granted("true"),
        &[json!({ "do": "bad_output" })],
        "run_fails",
        &["the run fails", "not strict JSON"],
        "return one strict JSON value",
    );
}

#[test]
fn args_that_do_not_fit() {
    let asks = json!({ "do": "request", "slot": "s", "args": { "order_id": 7 }, "must": true });
    check(
        &granted("true"),
        &[asks],
        "run_fails",
        &["the run fails", "refused: the args do not fit `payments.refund`"],
        "fit the operation's `args` schema",
    );
}

#[test]
fn a_node_that_gives_up() {
    check(
        &granted("true"),
        &[json!({ "do": "fatal", "message": "no such order" })],
        "run_fails",
        &["node `n` gave up: no such order"],
        "node `n` gives this reason itself",
    );
}
