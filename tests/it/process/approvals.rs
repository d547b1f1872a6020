//! Approvals on the command line: of the undoing of an order.

use serde_json::{Value, json};
use twice_tests::saga::{Fate, ORDER};

use super::saga::{OF_ORDER, RUN, Stage, address_unknown, fates};
use super::shop::TWICE;

const WORKFLOW: &str = "workflows/order.toml";
const UNSHIPPED: [&str; 3] = [OF_ORDER[0], OF_ORDER[1], OF_ORDER[2]];

/// An order that cannot be shipped; whether its payment may be voided is for finance to say.
fn stage() -> Stage {
    let template = ORDER.project(TWICE);
    let text = std::fs::read_to_string(template.root().join(WORKFLOW)).unwrap();
    let void = "authorization_id = \"/receipt/external_id\" }";
    assert!(text.contains(void), "{text}");
    let approved = format!("{void}, approve = {{ by = \"finance\", expires = \"24h\" }}");
    template.write(WORKFLOW, text.replace(void, &approved));
    let said = template.twice(&["check"]);
    assert!(said.code == Some(0) && !said.stdout.contains("warning"), "{said}");
    let stage = Stage::of(ORDER, &template);
    stage.services.switch("shipments", &[address_unknown()]);
    let ran = stage.run();
    assert_eq!(ran.code, Some(4), "{ran}");
    assert!(ran.stdout.contains("twice approvals grant"), "it does not say what to do: {ran}");
    stage
}

/// The only approval that is open, as a document.
fn asked(stage: &Stage) -> Value {
    let listed = stage.project.json(&["approvals", "list"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed:#}");
    listed[0].clone()
}

#[test]
fn an_undo_is_granted_as_the_run_says_and_the_books_agree() {
    let stage = stage();
    let open = asked(&stage);
    assert_eq!(open["operation"], "payments.void");
    assert_eq!(
        (&open["by"], &open["state"], &open["run_id"]),
        (&json!("finance"), &json!("open"), &json!(RUN))
    );
    assert_eq!(stage.services.requests("void") + stage.services.requests("release"), 0);
    let listed = stage.project.ok(&["approvals", "list", "--of", "finance", "--run", RUN]);
    assert!(listed.contains("payments.void") && listed.contains("open"), "{listed}");
    let none = stage.project.ok(&["approvals", "list", "--of", "sales"]);
    assert!(none.contains("nothing waits"), "{none}");
    // Coming back asks nobody again.
    let resumed = stage.resume();
    assert_eq!(resumed.code, Some(4), "{resumed}");
    assert_eq!(asked(&stage), open);
    let (id, effect) = (open["approval_id"].as_str().unwrap(), open["effect_id"].as_str().unwrap());
    let shown = stage.project.ok(&["effects", "show", effect]);
    assert!(shown.contains("finance") && shown.contains("PROPOSED"), "{shown}");

    let grant = ["approvals", "grant", id, "--by", "ann", "--reason", "she called"];
    let granted = stage.project.json(&grant);
    assert_eq!((&granted["state"], &granted["answered_by"]), (&json!("granted"), &json!("ann")));
    let twice = stage.project.twice(&grant);
    assert_eq!(twice.code, Some(1), "{twice}");
    let ended = stage.resume();
    assert_eq!(ended.code, Some(3), "{ended}");
    stage.check("failed", &fates(UNSHIPPED, [Fate::Undone, Fate::Undone, Fate::Failed]));
    let receipt = &stage.project.json(&["effects", "show", effect])["external_receipt"];
    assert_eq!(receipt["approval"], json!(id), "{receipt:#}");
    let all = stage.project.json(&["approvals", "list", "--all"]);
    assert_eq!((&all[0]["state"], &all[0]["reason"]), (&json!("granted"), &json!("she called")));
    stage.check_resumed_again();
}

/// Whoever left the run so: that is not what a queue has to be drained of.
#[test]
fn a_worker_until_idle_does_not_wait_for_people() {
    let stage = stage();
    let open = asked(&stage);
    stage.project.ok(&["worker", "--until-idle"]);
    assert_eq!(asked(&stage), open);
    let grant = ["approvals", "grant", open["approval_id"].as_str().unwrap(), "--reason", "fine"];
    stage.project.ok(&grant);
    stage.project.ok(&["worker", "--until-idle"]);
    stage.check("failed", &fates(UNSHIPPED, [Fate::Undone, Fate::Undone, Fate::Failed]));
}

#[test]
fn an_undo_that_is_refused_leaves_the_run_stuck_and_says_by_whom() {
    let stage = stage();
    let effect = asked(&stage)["effect_id"].as_str().unwrap().to_owned();
    // The beginning of its id will do, and that of what waits for it.
    let refuse = ["approvals", "refuse", &effect[..20], "--by", "ann", "--reason", "not ours"];
    let said = stage.project.ok(&refuse);
    assert!(said.contains("refused") && said.contains("twice runs resume"), "{said}");
    let ended = stage.project.twice(&["runs", "resume", RUN]);
    assert_eq!(ended.code, Some(4), "{ended}");
    stage.check("stuck", &fates(UNSHIPPED, [Fate::Stands, Fate::NotUndone, Fate::Failed]));
    let reason = stage.project.run(RUN)["run"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("ann refused") && reason.contains("not ours"), "{reason}");
    let unknown = stage.project.twice(&["approvals", "grant", "eff_zzzzzzzzzz", "--reason", "x"]);
    assert_eq!(unknown.code, Some(1), "{unknown}");
}
