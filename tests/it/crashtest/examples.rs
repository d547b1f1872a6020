//! The set-ups of `nodes/crashtest-examples`, and the example project.

use serde_json::Value;

use twice_tests::project::Project;
use twice_tests::{families, graphs};

use super::{all_held, conformance, finding, project, says, shows, tried};

#[test]
fn a_good_set_up_holds_at_every_boundary() {
    let project = project("crashtest-examples/good", &["refund", "notify"]);
    let args = ["refund", "--input", "input.json", "--junit", "out.xml", "--report", "out.json"];
    let report = tried(&project, &args, 0);
    all_held(&report);
    assert_eq!(report["verdict"], "holds");
    assert_eq!(report["not_reached"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["effects"], 2);
    // Two effects, two nodes: each of them is interrupted at each place by itself.
    let cases = report["cases"].as_array().unwrap();
    let count = |boundary: &str, action: &str| {
        let of = |case: &&Value| case["boundary"] == boundary && case["action"] == action;
        cases.iter().filter(of).count()
    };
    for (boundary, kills) in [
        ("after-claim", 1),
        ("before-intent", 2),
        // Of two slots that lock one order the second has the lock already.
        ("after-lock", 1),
        ("after-requested-commit", 2),
        ("after-provider-commit", 2),
        ("after-reply", 2),
        ("before-checkpoint", 2),
        ("after-checkpoint", 1),
    ] {
        assert_eq!(count(boundary, "kill"), kills, "{boundary}: {report:#}");
    }
    assert_eq!(count("after-requested-commit", "freeze"), 2);
    assert_eq!(count("after-reply", "freeze"), 2);
    assert!(cases.iter().all(|case| case["run_state"] == "completed"), "{report:#}");

    let file = std::fs::read_to_string(project.root().join("out.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&file).unwrap(), report);
    let xml = std::fs::read_to_string(project.root().join("out.xml")).unwrap();
    assert_eq!(xml.matches("<testcase ").count(), cases.len());
    assert!(xml.contains(&format!("tests=\"{}\" failures=\"0\"", cases.len())), "{xml}");
    assert!(!xml.contains("<failure"), "{xml}");
}

#[test]
fn the_example_project_holds_and_needs_a_person_for_its_mail() {
    let project = project("example-project", &["refund", "notify"]);
    let report = tried(&project, &["damaged-item-refund", "--input", "example-input.json"], 4);
    all_held(&report);
    assert_eq!(report["verdict"], "needs_person");
    let finding = finding(&report, "no_key_no_lookup");
    assert_eq!(finding["about"], "mail.send");
    says(&finding, &["mail.send has neither an idempotency key nor a lookup", "ends at a person"]);
    // The refund before it, which has both, never does.
    for case in report["cases"].as_array().unwrap() {
        let person = case["person"].as_str();
        assert!(person.is_none_or(|why| why.contains("neither an idempotency key")), "{case:#}");
    }
}

#[test]
fn a_mail_without_key_and_lookup_ends_at_a_person() {
    let project = project("crashtest-examples/no-key-no-lookup", &["refund", "notify"]);
    let args = ["crashtest", "refund", "--input", "input.json", "--boundary", "after-reply"];
    let ran = project.twice(&args);
    shows(
        &ran,
        4,
        &[
            "Would need a person",
            "mail.send has neither an idempotency key nor a lookup: a crash between its request and the answer ends at a person",
            "fix: let the provider honour an idempotency key, or plant `{/effect_id}`",
            "first seen: after-reply 2, kill",
            "everything holds; in some cases a person would be needed",
            "violated 0, skipped 0",
        ],
    );
}

#[test]
fn a_key_that_is_forgotten_during_a_pause_ends_at_a_person() {
    let project = project("crashtest-examples/short-retention", &["refund"]);
    let report = tried(&project, &["refund", "--input", "input.json", "--pause", "48h"], 4);
    all_held(&report);
    let finding = finding(&report, "key_forgotten");
    assert_eq!(
        (finding["about"].as_str(), finding["severity"].as_str()),
        (Some("payments.refund"), Some("person"))
    );
    says(
        &finding,
        &["forgets a key after 1h", "relied upon for 30m", "paused for 2d", "there is no lookup"],
    );
    // Taken up again at once, the same set-up needs nobody.
    let report =
        tried(&project, &["refund", "--input", "input.json", "--boundary", "after-reply"], 0);
    all_held(&report);
}

#[test]
fn a_node_that_asks_for_another_amount_is_shown_both() {
    let project = project("crashtest-examples/changed-amount", &["conformance"]);
    let args =
        ["refund", "--input", "input.json", "--junit", "out.xml", "--boundary", "after-reply"];
    let report = tried(&project, &args, 3);
    assert_eq!(report["verdict"], "violated");
    let conflict = finding(&report, "conflict");
    says(
        &conflict,
        &[
            "node `refund` asks for something else after a restart",
            "slot `refund`",
            "\n  /amount_cents: 2500 was requested, 2600 is asked for now",
        ],
    );
    for case in report["cases"].as_array().unwrap() {
        assert_eq!(case["checks"]["no_new_action"]["result"], "violated", "{case:#}");
        assert_eq!(case["checks"]["at_most_once"]["result"], "held", "{case:#}");
    }
    let xml = std::fs::read_to_string(project.root().join("out.xml")).unwrap();
    assert!(xml.contains("<failure message=\"no_new_action: payments.refund"), "{xml}");
    let ran = project.twice(&[
        "crashtest",
        "refund",
        "--input",
        "input.json",
        "--boundary",
        "after-claim",
    ]);
    shows(&ran, 3, &["Does not hold", "Must be changed", "something does not hold"]);
}

#[test]
fn a_node_that_no_longer_asks_is_named() {
    let tool = std::fs::read_to_string(
        twice_tests::nodes::repository().join("nodes/crashtest-examples/good/tools/payments.toml"),
    );
    let node = "[[node]]\nname = \"n\"\ncomponent = \"conformance\"\nlimits = { time = \"60s\" }\n\
        [[node.effect]]\nslot = \"s\"\ntool = \"payments.refund\"\nobject = \"/input/id\"\nintent = \"x\"";
    let project = conformance(&tool.unwrap(), &[node]);
    let input = r#"{ "id": "o-1", "steps": [
        { "do": "request", "slot": "s", "args": { "order_id": "o-1", "amount_cents": 5 }, "until_attempt": 2 },
        { "do": "retryable", "message": "later", "until_attempt": 2 }
    ] }"#;
    let report = tried(&project, &["w", "--input", input, "--boundary", "before-checkpoint"], 3);
    let finding = finding(&report, "divergence");
    says(
        &finding,
        &["node `n` does not ask for slot `s` any more after a restart", "was confirmed before"],
    );
}

/// A workflow whose only node starts a run of another, with the input in that file; the name of its own input's file.
fn parent_of(project: &Project, workflow: &str, input: &str) -> String {
    project.add_node("conformance");
    let slot = families::child_of(workflow, "/input/order");
    project.write("workflows/bundle.toml", graphs::named("bundle", "", &[("send", &slot)]));
    let input = std::fs::read_to_string(project.root().join(input)).unwrap();
    let input = families::bundle("order-1", &serde_json::from_str(&input).unwrap());
    project.write("bundle.json", input.to_string());
    "bundle.json".to_owned()
}

#[test]
fn a_run_is_tried_with_what_it_starts() {
    let project = project("crashtest-examples/good", &["refund", "notify"]);
    let input = parent_of(&project, "refund", "input.json");
    let report = tried(&project, &["bundle", "--input", &input], 0);
    all_held(&report);
    assert_eq!(report["verdict"], "holds");
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["effects"], 3, "its own, and both of the run that it starts");
    let cases = report["cases"].as_array().unwrap();
    assert!(cases.iter().all(|case| case["run_state"] == "completed"), "{report:#}");
    let commits = cases.iter().filter(|case| case["boundary"] == "after-provider-commit").count();
    assert_eq!(commits, 2, "{report:#}");
}

#[test]
fn a_run_whose_child_ends_at_a_person_needs_one() {
    let project = project("example-project", &["refund", "notify"]);
    let input = parent_of(&project, "damaged-item-refund", "example-input.json");
    let report = tried(&project, &["bundle", "--input", &input, "--boundary", "after-reply"], 4);
    all_held(&report);
    assert_eq!(report["verdict"], "needs_person");
    assert_eq!(finding(&report, "no_key_no_lookup")["about"], "mail.send");
}

/// An order that cannot be shipped: what was done is undone, wherever its worker dies on either way.
#[test]
fn a_saga_finds_its_way_back_from_every_boundary() {
    let project = twice_tests::saga::ORDER.project(super::TWICE);
    let args = ["order", "--input", "input.json", "--refuse", "shipments.create"];
    let report = tried(&project, &args, 0);
    all_held(&report);
    // Reserved, authorized, refused, voided, released.
    assert_eq!(report["effects"], 5, "{report:#}");
    let cases = report["cases"].as_array().unwrap();
    assert!(cases.iter().all(|case| case["run_state"] == "failed"), "{report:#}");
    let kills = cases
        .iter()
        .filter(|case| case["boundary"] == "after-requested-commit" && case["action"] == "kill");
    assert_eq!(kills.count(), 5, "{report:#}");
    let mistyped = ["order", "--input", "input.json", "--refuse", "shipment.create"];
    let ran = project.twice(&[&["crashtest"][..], &mistyped].concat());
    shows(&ran, 1, &["have no such operation", "shipments.create"]);
}

#[test]
fn what_a_person_has_to_approve_is_granted_and_holds_at_every_boundary() {
    let project = project("crashtest-examples/good", &["refund", "notify"]);
    let file = "workflows/refund.toml";
    let text = std::fs::read_to_string(project.root().join(file)).unwrap();
    // One question after the other.
    let slot = "\nslot = ";
    assert_eq!(text.matches(slot).count(), 2, "{text}");
    let approved = format!("\napprove = {{ by = \"finance\", expires = \"24h\" }}{slot}");
    project.write(file, text.replace(slot, &approved));
    let report = tried(&project, &["refund", "--input", "input.json"], 0);
    all_held(&report);
    assert_eq!(report["verdict"], "holds");
    let parked = |case: &&Value| case["boundary"] == "before-park" && case["action"] == "kill";
    assert!(report["cases"].as_array().unwrap().iter().any(|case| parked(&case)), "{report:#}");
}
