//! `twice crashtest` on whole projects: what it says about good ones, and in which words it says what is wrong.

mod broken;
mod examples;
mod provider;

use serde_json::Value;
use twice_tests::project::{Project, Ran};

const TWICE: &str = env!("CARGO_BIN_EXE_twice-under-test");

/// The names of the five checks.
const CHECKS: [&str; 5] =
    ["at_most_once", "determinable", "reconciled", "receipts", "no_new_action"];

/// A copy of a project of the repository, with components registered for it.
fn project(folder: &str, components: &[&str]) -> Project {
    let project = Project::of_repository(TWICE, folder);
    components.iter().for_each(|name| project.add_node(name));
    project
}

/// A project of one workflow whose nodes do as the input says, with one tool.
fn conformance(tool: &str, nodes: &[&str]) -> Project {
    let project = Project::empty(TWICE);
    let mut workflow = "workflow = \"w\"\nversion = 1\n\
        input = { inline = { type = \"object\", required = [\"id\"] } }\n"
        .to_owned();
    workflow.extend(nodes.iter().map(|node| format!("\n{node}\n")));
    project.write("twice.toml", "project = \"tried\"\n");
    project.write("workflows/w.toml", workflow);
    project.write("tools/t.toml", tool);
    project.add_node("conformance");
    project
}

/// Runs the test, and hands back what it says as JSON.
#[track_caller]
fn tried(project: &Project, args: &[&str], code: i32) -> Value {
    let ran = project.twice(&[&["crashtest"], args, &["--json"]].concat());
    assert_eq!(ran.code, Some(code), "{ran}");
    ran.json()
}

/// Every check of every case has this result, or could not be made in the undisturbed run.
#[track_caller]
fn all_held(report: &Value) {
    let cases = report["cases"].as_array().unwrap();
    assert!(!cases.is_empty(), "{report:#}");
    for case in cases {
        for check in CHECKS {
            let result = case["checks"][check]["result"].as_str().unwrap();
            let undisturbed = case["boundary"] == "undisturbed" && check == "determinable";
            assert_eq!(result, if undisturbed { "skipped" } else { "held" }, "{case:#}");
        }
    }
}

/// The one finding of that kind.
#[track_caller]
fn finding(report: &Value, kind: &str) -> Value {
    let findings = report["findings"].as_array().unwrap();
    let found: Vec<&Value> = findings.iter().filter(|finding| finding["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "findings of kind {kind}: {findings:#?}");
    found[0].clone()
}

#[track_caller]
fn says(finding: &Value, words: &[&str]) {
    let message = finding["message"].as_str().unwrap();
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

#[track_caller]
fn shows(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{ran}");
    let text = format!("{}{}", ran.stdout, ran.stderr);
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {ran}");
    }
}
