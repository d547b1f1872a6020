//! The command line as it is met for the first time: from an empty folder to a refund and what is recorded of it.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use twice_tests::project::{Project, Provider};

use super::shop::{REFUND, SCRIPTED, check_settled, order, refund_step, script, shop, start};

/// The fields that the documentation promises of an effect.
const PROMISED: [&str; 9] = [
    "effect_id",
    "run_id",
    "type",
    "request_hash",
    "idempotency_key",
    "state",
    "attempts",
    "external_receipt",
    "last_error",
];
const KEY: &str = "refund/run-781/order-42/full-damaged-item";

/// Builds go where earlier ones left their dependencies.
pub(super) fn share_build(project: &Project) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nodes");
    project.write(".cargo/config.toml", format!("[build]\ntarget-dir = {target:?}\n"));
}

#[test]
fn from_an_empty_folder_to_a_refund() {
    let provider = Provider::start();
    let project = Project::empty(super::shop::TWICE).at(&provider);
    let made = project.ok(&["init", "--name", "shop"]);
    assert!(made.contains("twice node new refund"), "{made}");
    let again = project.twice(&["init"]);
    assert_eq!(again.code, Some(1), "{again}");
    share_build(&project);

    project.ok(&["node", "new", "refund"]);
    let built = project.ok(&["node", "build", "nodes/refund"]);
    assert!(built.contains("registered refund: sha256:"), "{built}");
    let checked = project.ok(&["check"]);
    assert!(checked.contains("workflow damaged-item-refund version 1: fine"), "{checked}");
    assert!(checked.contains("operation payments.refund:"), "{checked}");

    let ran = project.ok(&["run", REFUND, "--input", "input.json", "--run-id", "run-781"]);
    assert!(ran.contains("run run-781 completed"), "{ran}");
    check_settled(&project, "run-781");

    let nodes = project.json(&["node", "list"]);
    assert_eq!(nodes[0]["name"], "refund");
    let node = project.json(&["node", "inspect", "refund"]);
    assert_eq!(node["digest"], nodes[0]["digest"]);
    assert_eq!(node["exports"], json!(["run"]));
    assert!(node["imports"].as_array().unwrap().contains(&json!("twice:node/effects@0.1.0")));
    let fixed = node["limits"]["fixed"].as_array().unwrap();
    assert_eq!(fixed.len(), twice_sandbox::FIXED_LIMITS.len());
    let stack = json!({ "name": "stack", "value": 2 << 20, "unit": "bytes of stack", "reached": "the call ends" });
    assert!(fixed.contains(&stack), "{fixed:?}");
    let memory = json!({
        "name": "memory", "default": 64 << 20, "unit": "bytes of memory", "set_by": "limits.memory",
    });
    assert_eq!(node["limits"]["node"][0], memory);

    let runs = project.json(&["runs", "list"]);
    assert_eq!((&runs[0]["run_id"], &runs[0]["state"]), (&json!("run-781"), &json!("completed")));
    // As the README has it.
    let tried = project.ok(&["crashtest", REFUND, "--input", "input.json", "--pause", "8h"]);
    assert!(tried.contains("everything holds, and nobody is needed"), "{tried}");
    check_names_what_is_not_registered(&project);
    for shown in [
        project.ok(&["runs", "list"]),
        project.ok(&["runs", "show", "run-781"]),
        project.ok(&["effects", "list"]),
        project.ok(&["node", "list"]),
        project.ok(&["node", "inspect", "refund"]),
    ] {
        assert!(!shown.trim().is_empty());
    }
}

fn check_names_what_is_not_registered(project: &Project) {
    let node = "[[node]]\nname = \"n\"\ncomponent = \"absent\"\n";
    project.write("workflows/w.toml", format!("workflow = \"w\"\nversion = 1\n{node}"));
    let checked = project.twice(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
    let warning = "warning: workflow `w`: node `n` runs component `absent`, which is not registered\nfix: build and register it";
    assert!(checked.stderr.contains(warning), "{checked}");
    assert!(!checked.stderr.contains("component `refund`"), "{checked}");
    let missing = json!([{ "workflow": "w", "node": "n", "component": "absent" }]);
    assert_eq!(project.json(&["check"])["unregistered"], missing);
    // Where there is no ledger, nothing is compared, and none is made.
    let elsewhere = project.twice(&["--database", "none.db", "check"]);
    assert_eq!((elsewhere.code, elsewhere.stderr.as_str()), (Some(0), ""), "{elsewhere}");
    assert!(!project.root().join("none.db").exists());
    std::fs::remove_file(project.root().join("workflows/w.toml")).unwrap();
}

/// A node that no workflow names yet, or that no workflow grants anything, is as ready to build as any; and says where it
/// broke when it breaks.
#[test]
fn a_new_node_without_effects() {
    let project = Project::init(super::shop::TWICE);
    share_build(&project);
    project.ok(&["node", "new", "greet"]);
    let built = project.ok(&["node", "build", "nodes/greet"]);
    assert!(built.contains("registered greet: sha256:"), "{built}");
    let workflow = "workflow = \"greet\"\nversion = 1\n\n[[node]]\nname = \"hello\"\ncomponent = \"hello\"\nretry = { attempts = 1 }\n";
    project.write("workflows/greet.toml", workflow);
    project.ok(&["node", "new", "hello"]);
    project.ok(&["node", "build", "nodes/hello"]);
    let ran = project.ok(&["run", "greet", "--input", "{\"name\":\"Ada\"}"]);
    assert!(ran.contains(r#"completed: {"seen":{"name":"Ada"}}"#), "{ran}");

    let body = "#[inline(never)]\nfn greet_nobody(name: &Value) -> Value {\n    assert!(name.is_null(), \"a name\");\n    json!(1)\n}\n";
    let file = "nodes/hello/src/lib.rs";
    project.edit(file, "\"seen\": state.input", "\"seen\": greet_nobody(&state.input[\"name\"])");
    let source = std::fs::read_to_string(project.root().join(file)).unwrap();
    project.write(file, source + body);
    project.ok(&["node", "build", "nodes/hello"]);
    let ran = project.twice(&["run", "greet", "--input", "{\"name\":\"Ada\"}"]);
    assert_eq!(ran.code, Some(3), "{ran}");
    assert!(ran.stdout.contains("greet_nobody"), "no function is named: {ran}");
}

/// Each Rust node is a workspace of its own, and what is built below them is shared unless the author says otherwise.
#[test]
fn rust_nodes_share_what_is_built_below_them() {
    let project = Project::init(super::shop::TWICE);
    let config = project.root().join("nodes/.cargo/config.toml");
    project.ok(&["node", "new", "in-go", "--lang", "go"]);
    assert!(!config.exists());
    for node in ["one", "other"] {
        project.ok(&["node", "new", node]);
        assert!(std::fs::read_to_string(&config).unwrap().contains("target-dir = \"target\""));
        let manifest = project.root().join(format!("nodes/{node}/Cargo.toml"));
        assert!(std::fs::read_to_string(manifest).unwrap().contains("\n[workspace]\n"));
    }
    let project = Project::init(super::shop::TWICE);
    share_build(&project);
    project.ok(&["node", "new", "one"]);
    assert!(!project.root().join("nodes/.cargo").exists());
}

/// What cannot come to a good end is said before the time is spent that a build takes.
#[test]
fn a_build_that_cannot_be_named_or_written_is_not_begun() {
    let project = Project::init(super::shop::TWICE);
    project.write("nodes/My Node/main.c", "");
    let node = "nodes/My Node";
    for (args, fix) in [
        (vec![node], "fix: give its name with `--name`"),
        (vec![node, "--name", "n", "--out", "nodes"], "fix: name a file in it"),
    ] {
        let ran = project.twice(&[vec!["node", "build"], args].concat());
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains(fix), "no `{fix}`: {ran}");
    }
}

#[test]
fn an_effect_is_shown_with_all_that_is_promised() {
    let provider = Provider::start();
    provider.switch([
        twice_provider_sim::Switch::new(twice_provider_sim::Fault::CommitThenDrop).times(1),
        twice_provider_sim::Switch::new(twice_provider_sim::Fault::LookupError).times(1),
    ]);
    let project = shop(&provider);
    project.ok(&start(REFUND, &order("order-42"), "run-781"));
    let listed = project.json(&["effects", "list"]);
    let id = listed[0]["effect_id"].as_str().unwrap();
    let shown = project.json(&["effects", "show", id]);
    for field in PROMISED {
        assert!(shown.get(field).is_some(), "`{field}` is missing: {shown:#}");
    }
    for field in PROMISED.iter().filter(|field| **field != "external_receipt") {
        assert_eq!(shown[field], listed[0][field], "{field}");
    }
    assert_eq!(shown["run_id"], "run-781");
    assert_eq!(shown["type"], "payments.refund");
    assert_eq!(shown["idempotency_key"], KEY);
    assert_eq!(shown["state"], "CONFIRMED");
    assert!(shown["request_hash"].as_str().unwrap().starts_with("sha256:"));
    let receipt = &shown["external_receipt"];
    assert_eq!(receipt["request_hash"], shown["request_hash"]);
    assert_eq!(receipt["idempotency_key"], KEY);
    assert!(receipt["external_id"].as_str().unwrap().starts_with("re_"), "{receipt:#}");
    assert!(!shown["lookups"].as_array().unwrap().is_empty());

    // As people read it, and by the beginning of the id.
    let text = project.ok(&["effects", "show", &id[..12]]);
    for field in PROMISED.iter().filter(|field| **field != "last_error") {
        assert!(text.contains(field), "`{field}` is missing: {text}");
    }
    assert!(text.contains(KEY), "{text}");
}

#[test]
fn the_key_is_the_same_on_each_attempt() {
    let provider = Provider::start();
    let project = shop(&provider);
    let args = start(REFUND, &order("order-42"), "run-781");
    let keys = || {
        let effect = &project.effects("run-781")[0];
        ["effect_id", "idempotency_key", "provider_key", "request_hash"].map(|f| effect[f].clone())
    };
    let mut seen: Vec<[Value; 4]> = Vec::new();
    for place in ["after-requested-commit:1", "before-lookup:1", "after-reply:1"] {
        let dead = project.spawn(&args, &[("TWICE_TEST_KILL", place)]).finish();
        assert_eq!(dead.code, None, "{place}: {dead}");
        seen.push(keys());
    }
    project.ok(&args);
    seen.push(keys());
    assert_eq!(seen[0][1], KEY);
    assert!(seen.iter().all(|keys| *keys == seen[0]), "{seen:#?}");
    let delivered = &provider.counters().operations["refund"].deliveries_per_key;
    assert_eq!(delivered.len(), 1, "{delivered:?}");
    assert!(project.effects("run-781")[0]["attempts"].as_u64().unwrap() >= 2);
}

#[test]
fn exit_codes() {
    let provider = Provider::start();
    let project = shop(&provider);
    let fatal = script("order-1", &json!([{ "do": "fatal", "message": "no such order" }]));
    let later = json!([{ "do": "retryable", "message": "later", "until_attempt": 2 }]);
    let mut waits = start(SCRIPTED, &script("order-3", &later), "run-3");
    waits.extend(["--wait", "0"].map(str::to_owned));
    for (args, code) in [
        (start(SCRIPTED, &script("order-2", &json!([])), "run-2"), 0),
        (start("no-such-workflow", &json!({}), "run-9"), 1),
        (vec!["run".to_owned()], 2),
        (vec!["no-such-command".to_owned()], 2),
        (start(SCRIPTED, &fatal, "run-1"), 3),
        (["runs", "resume", "run-1"].map(str::to_owned).to_vec(), 3),
        (waits, 4),
    ] {
        let ran = project.twice(&args);
        assert_eq!(ran.code, Some(code), "{ran}");
    }
}

#[test]
fn json_is_one_document_and_nothing_else() {
    let provider = Provider::start();
    let project = shop(&provider);
    let steps = json!([
        { "do": "log", "level": "warn", "message": "a guest may say what it likes" },
        refund_step("order-1", 1200),
        { "do": "retryable", "message": "later", "until_attempt": 2 },
    ]);
    let mut run = start(SCRIPTED, &script("order-1", &steps), "run-1");
    run.push("--json".to_owned());
    let ran = project.twice(&run);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(ran.json()["state"], "completed");
    let mut detached = start(REFUND, &order("order-2"), "run-2");
    detached.extend(["--detach", "--json"].map(str::to_owned));
    for args in [run, detached] {
        let ran = project.twice(&args);
        assert_eq!(ran.code, Some(0), "{ran}");
        assert_eq!(ran.json()["run_id"], args[5]);
    }
    let id = project.effects("run-1")[0]["effect_id"].as_str().unwrap().to_owned();
    for args in [
        &["check"][..],
        &["runs", "list"],
        &["runs", "show", "run-1"],
        &["runs", "resume", "run-2"],
        &["effects", "list"],
        &["effects", "show", &id],
        &["node", "list"],
        &["node", "inspect", "refund"],
    ] {
        project.json(args);
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let provider = Provider::start();
    let project = shop(&provider);
    project.ok(&start(REFUND, &order("order-1"), "run-1"));
    for args in [
        &["runs", "show", "run-1"][..],
        &["runs", "show", "run-1", "--json"],
        &["effects", "list"],
        &["check"],
        &["--help"],
    ] {
        let mut command = project.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Nobody reads from the start: every write meets a closed pipe.
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = child.wait().unwrap().code();
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}
