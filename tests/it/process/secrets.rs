//! A secret is in the environment of a worker and in the request that needs it, and nowhere else: not in a file of the
//! project, not in a word of any command.

use std::path::Path;

use serde_json::json;
use twice_provider_sim::{Fault, Switch};
use twice_tests::project::{Project, Provider, Ran};

use super::newcomer::share_build;
use super::shop::{REFUND, SCRIPTED, TWICE, furnish, order, refund_step, script, start};

/// Long enough to be found in any disguise, with characters that each of them changes.
const CANARY: &str = "canary/7f3a+9d=c0ffee?";
/// The same, base64 (the middle of it, at each alignment), percent-encoded, and in hexadecimal.
const DISGUISES: [&str; 6] = [
    "Y2FuYXJ5LzdmM2ErOWQ9YzBmZmVl",
    "NhbmFyeS83ZjNhKzlkPWMwZmZlZ",
    "jYW5hcnkvN2YzYSs5ZD1jMGZmZW",
    "canary%2F7f3a%2B9d%3Dc0ffee%3F",
    "canary%2f7f3a%2b9d%3dc0ffee%3f",
    "63616e6172792f376633612b39643d6330666665653f",
];

/// A node that knows the secret without anyone having written it into a file that is looked through: what it does with
/// it, the input says.
const LEAKY: &str = r#"
use serde_json::{Value, json};
use twice_node::{NodeError, State, effects, log};

twice_node::node!(run);

fn run(state: State<Value>) -> Result<Value, NodeError> {
    let secret: String = "?eeff0c=d9+a3f7/yranac".chars().rev().collect();
    match state.input["leak"].as_str().unwrap_or_default() {
        "panic" => panic!("the key {secret} does not work"),
        "fatal" => Err(NodeError::fatal(format!("the key {secret} does not work"))),
        "retryable" => Err(NodeError::retryable(format!("the key {secret} does not work"))),
        "log" => {
            log::error!("the key is {secret}");
            Ok(json!({}))
        }
        "output" => Ok(json!({ "key": secret, secret: true })),
        "slot" => {
            let denied = effects::request::<Value>(&secret, &json!({}));
            Ok(json!({ "denied": denied.is_err() }))
        }
        _ => {
            let args = json!({ "order_id": "order-1", "amount_cents": 1200, "reason": secret });
            effects::request::<Value>("refund", &args)?;
            Ok(json!({}))
        }
    }
}
"#;

const LEAKY_WORKFLOW: &str = r#"
workflow = "leaky"
version = 1

[[node]]
name = "leaky"
component = "leaky"
retry = { attempts = 2, initial = "100ms", max = "100ms" }

[[node.effect]]
slot = "refund"
tool = "payments.refund"
object = "/input/order_id"
intent = "full-damaged-item"
"#;

#[track_caller]
fn check_clean(what: &str, bytes: &[u8]) {
    for form in [CANARY].iter().chain(&DISGUISES) {
        let found = bytes.windows(form.len()).any(|window| window == form.as_bytes());
        assert!(!found, "{what} holds the secret as `{form}`: {}", String::from_utf8_lossy(bytes));
    }
}

#[track_caller]
fn check_said(ran: &Ran) {
    check_clean(&format!("standard output of {}", ran.args), ran.stdout.as_bytes());
    check_clean(&format!("standard error of {}", ran.args), ran.stderr.as_bytes());
}

/// Looks through every file below the folder; tells how many there were.
#[track_caller]
fn check_files(folder: &Path) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += check_files(&path);
        } else {
            check_clean(&path.display().to_string(), &std::fs::read(&path).unwrap());
            files += 1;
        }
    }
    files
}

/// Everything that can be asked about what is recorded, and every file.
#[track_caller]
fn check_everything(project: &Project) {
    let runs = project.json(&["runs", "list"]);
    for run in runs.as_array().unwrap() {
        let run = run["run_id"].as_str().unwrap();
        check_said(&project.twice(&["runs", "show", run]));
        check_said(&project.twice(&["runs", "show", run, "--json"]));
        for effect in project.effects(run) {
            check_clean("an effect", effect.to_string().as_bytes());
            check_said(&project.twice(&["effects", "show", effect["effect_id"].as_str().unwrap()]));
        }
    }
    for args in [&["runs", "list"][..], &["effects", "list"], &["check"]] {
        check_said(&project.twice(args));
    }
    let files = check_files(project.root());
    assert!(files > 10, "{files} files are not a project");
}

fn project(provider: &Provider) -> Project {
    let project = Project::init(TWICE)
        .at(provider)
        .with_env("PAYMENTS_API_KEY", CANARY)
        .with_env("TWICE_LOG", "trace");
    furnish(&project);
    project
}

#[test]
fn the_secret_that_a_request_needs_is_kept_nowhere() {
    let provider = Provider::with_key(CANARY);
    provider.switch([
        Switch::new(Fault::CommitThenDrop).times(1),
        Switch::new(Fault::LookupError).times(1),
    ]);
    let project = project(&provider);
    let args = start(REFUND, &order("order-1"), "run-1");
    let dead = project.spawn(&args, &[("TWICE_TEST_KILL", "after-lookup:1")]).finish();
    assert_eq!(dead.code, None, "{dead}");
    check_said(&dead);
    let ran = project.twice(&args);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stderr.contains("TRACE"), "nothing was traced, so nothing was tested");
    check_said(&ran);
    assert_eq!(provider.counters().operations["refund"].effects, 1);
    check_everything(&project);
}

#[test]
fn a_secret_that_the_provider_repeats_is_taken_out() {
    for (status, code) in [(402, 3), (500, 4), (201, 4)] {
        let provider = Provider::with_key(CANARY);
        let echo = json!({
            "status": status,
            "body": { "error": { "code": "declined", "message": format!("your key {CANARY} is bad") },
                "id": CANARY },
            "headers": { "request-id": CANARY },
        });
        provider.switch([Switch::new(Fault::Status).value(echo)]);
        let project = project(&provider);
        let mut args = start(REFUND, &order("order-1"), "run-1");
        args.extend(["--wait", "0"].map(str::to_owned));
        let ran = project.twice(&args);
        assert_eq!(ran.code, Some(code), "{status}: {ran}");
        check_said(&ran);
        check_everything(&project);
    }
}

#[test]
fn an_input_that_holds_a_secret_starts_nothing() {
    let provider = Provider::with_key(CANARY);
    let project = project(&provider);
    let mut input = order("order-1");
    input["reason"] = json!(format!("they pay with {CANARY}"));
    let said = json!([{ "do": "panic", "message": CANARY }]);
    let encoded = json!([{ "do": "log", "level": "info", "message": DISGUISES[3] }]);
    let by_args = json!([{
        "do": "request", "slot": "refund",
        "args": { "order_id": "order-1", "amount_cents": 1200, "reason": CANARY },
    }]);
    for (workflow, input) in [
        (REFUND, input),
        (SCRIPTED, script("order-1", &said)),
        (SCRIPTED, script("order-1", &encoded)),
        (SCRIPTED, script("order-1", &by_args)),
        (SCRIPTED, script(CANARY, &json!([refund_step("order-1", 1200)]))),
    ] {
        let ran = project.twice(&start(workflow, &input, "run-1"));
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains("the run's input holds the value of a secret"), "{ran}");
        assert!(ran.stderr.contains("nothing was recorded"), "{ran}");
        // The args of the command itself are the caller's own words, which `Ran` repeats.
        check_clean("standard output", ran.stdout.as_bytes());
        check_clean("standard error", ran.stderr.as_bytes());
    }
    assert_eq!(project.json(&["runs", "list"]), json!([]));
    assert_eq!(provider.counters().effects, 0);
    check_everything(&project);
}

#[test]
fn a_decision_that_holds_a_secret_is_refused() {
    let provider = Provider::with_key(CANARY);
    provider.switch([Switch::new(Fault::CommitThenDrop)]);
    let project = project(&provider);
    let mail = json!([{
        "do": "request", "slot": "mail",
        "args": { "to": "ada@example.com", "subject": "Refund", "text": "It is on its way." },
    }]);
    let ran = project.twice(&start(SCRIPTED, &script("order-1", &mail), "run-1"));
    assert_eq!(ran.code, Some(4), "{ran}");
    let id = project.effects("run-1")[0]["effect_id"].as_str().unwrap().to_owned();
    let receipt = json!({ "id": CANARY }).to_string();
    for finding in [
        &["--confirmed", "--receipt", &receipt, "--evidence", "their log"][..],
        &["--failed", "--evidence", CANARY],
    ] {
        let ran = project.twice(&[&["effects", "resolve", &id], finding].concat());
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains("holds the value of a secret"), "{ran}");
        check_clean("standard error", ran.stderr.as_bytes());
    }
    assert_eq!(project.effects("run-1")[0]["state"], "UNKNOWN");
    check_everything(&project);
}

#[test]
fn a_node_that_knows_a_secret_cannot_make_it_known() {
    let provider = Provider::with_key(CANARY);
    let project = project(&provider);
    share_build(&project);
    project.write("workflows/leaky.toml", LEAKY_WORKFLOW);
    project.ok(&["node", "new", "leaky"]);
    project.write("nodes/leaky/src/lib.rs", LEAKY);
    check_said(&project.twice(&["node", "build", "nodes/leaky"]));
    for (leak, code) in [
        ("panic", 3),
        ("fatal", 3),
        ("retryable", 3),
        ("log", 0),
        ("output", 0),
        ("slot", 0),
        ("args", 3),
    ] {
        let input = json!({ "order_id": "order-1", "leak": leak });
        let ran = project.twice(&start("leaky", &input, leak));
        assert_eq!(ran.code, Some(code), "{leak}: {ran}");
        check_said(&ran);
        if !matches!(leak, "slot") {
            let told = format!("{}{}", ran.stdout, ran.stderr);
            assert!(
                told.contains("secret"),
                "{leak}: it is not said that anything was taken out: {ran}"
            );
        }
    }
    assert_eq!(provider.counters().effects, 0);
    let refused = project.run("args")["history"].to_string();
    assert!(refused.contains("request_refused") && refused.contains("hold the value of a secret"));
    check_everything(&project);
}
