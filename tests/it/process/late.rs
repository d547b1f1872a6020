//! A process does not end while an answer may come, and shows what came too late to be applied.

use serde_json::{Value, json};
use twice_provider_sim::{Fault, Switch};
use twice_tests::project::{Project, Provider, Worker};

use super::shop::{REFUND, SCRIPTED, check_settled, order, script, shop, start, start_with};

const RUN: &str = "run-1";
const WAITS: &str = "a request is still under way";

/// A mail, which nobody can be asked about, is under way when its node's time is up. The provider has sent it and keeps
/// its answer to itself.
fn cut_off(provider: &Provider) -> (Project, Worker) {
    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(1)]);
    let project = shop(provider);
    project.edit("tools/mail.toml", "timeout = \"3s\"", "timeout = \"2m\"");
    project.edit("workflows/scripted.toml", "time = \"4s\"", "time = \"2s\"");
    let mail = json!({
        "do": "request", "slot": "mail", "must": true,
        "args": { "to": "ada@example.com", "subject": "Your refund", "text": "It is on its way." },
    });
    let worker = project.spawn(&start(SCRIPTED, &script("order-1", &json!([mail])), RUN), &[]);
    provider.wait_until_paused();
    (project, worker)
}

#[track_caller]
fn check_in_doubt(project: &Project, observations: usize) -> Value {
    let shown = project.run(RUN);
    assert_eq!((&shown["run"]["state"], &shown["chain"]), (&json!("halted"), &json!("holds")));
    let effect = project.effects(RUN).remove(0);
    assert_eq!(effect["state"], "UNKNOWN", "{effect:#}");
    assert_eq!(effect["observations"].as_array().unwrap().len(), observations, "{effect:#}");
    effect
}

#[test]
fn an_answer_that_comes_too_late_is_waited_for_kept_and_shown_as_evidence() {
    let provider = Provider::start();
    let (project, mut worker) = cut_off(&provider);
    worker.wait_for_complaint(WAITS);
    check_in_doubt(&project, 0);
    provider.go_on();
    let ran = worker.finish();
    assert_eq!(ran.code, Some(4), "{ran}");
    assert!(ran.stdout.contains("run run-1 needs a person"), "{ran}");

    let effect = check_in_doubt(&project, 1);
    let shown = &effect["observations"][0];
    assert_eq!(shown["applied"], false, "{shown:#}");
    let seen = &shown["observation"];
    assert_eq!((&seen["what"], &seen["verdict"]), (&json!("late answer"), &json!("SUCCEEDED")));
    assert_eq!((&seen["attempt"], &seen["status"]), (&json!(1), &json!(201)), "{seen:#}");
    let external_id = seen["external_id"].as_str().unwrap();

    let id = effect["effect_id"].as_str().unwrap();
    let words = project.ok(&["effects", "show", id]);
    let line = |name: &str| {
        let found = words.lines().find(|line| line.trim_start().starts_with(name));
        found.unwrap_or_else(|| panic!("no `{name}` in {words}"))
    };
    let observed = line("observed");
    for part in ["late answer, of attempt 1", "SUCCEEDED", "http.201", external_id, "not applied"] {
        assert!(observed.contains(part), "no `{part}` in {observed}");
    }
    let resolve = format!(
        "twice effects resolve {id} --confirmed --receipt '{{}}' --external-id {external_id}"
    );
    assert!(line("evidence").contains(&resolve), "{words}");
    assert!(project.ok(&["runs", "show", RUN]).contains(" observed "), "it is in the history");

    let resolve =
        ["effects", "resolve", id, "--confirmed", "--receipt", "{}", "--evidence", "late"];
    project.ok(&[&resolve[..], &["--external-id", external_id]].concat());
    project.ok(&["runs", "resume", RUN]);
    assert_eq!(provider.requests("message"), 1);
    assert!(
        !project.ok(&["effects", "show", id]).contains("evidence "),
        "there is nothing to find"
    );
}

#[test]
fn who_does_not_want_to_wait_for_a_late_answer_interrupts() {
    let provider = Provider::start();
    let (project, mut worker) = cut_off(&provider);
    worker.wait_for_complaint(WAITS);
    worker.interrupt();
    let ran = worker.finish();
    assert_eq!(ran.code, Some(4), "{ran}");
    assert!(ran.stderr.contains("its effect is UNKNOWN"), "{ran}");
    check_in_doubt(&project, 0);
}

/// A worker is frozen while its request is under way; when it wakes up, another one has finished its run.
#[test]
fn a_worker_that_finds_its_lease_lost_keeps_the_answer_that_is_still_to_come() {
    let provider = Provider::start();
    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(1)]);
    let project = shop(&provider);
    project.edit("tools/payments.toml", "\ntimeout = \"3s\"", "\ntimeout = \"2m\"");
    let args = start_with(REFUND, &order("order-1"), RUN, &["--wait", "0"]);
    let mut worker = project.spawn(&args, &[]);
    provider.wait_until_paused();
    worker.stop();
    project.ok(&["runs", "resume", RUN]);
    let before = project.effects(RUN).remove(0);
    worker.go_on();
    worker.wait_for_complaint(WAITS);
    provider.go_on();
    let zombie = worker.finish();
    assert_eq!(zombie.code, Some(4), "{zombie}");
    assert!(zombie.stdout.contains("run run-1 is held by another worker"), "{zombie}");

    check_settled(&project, RUN);
    let effect = project.effects(RUN).remove(0);
    assert_eq!(effect["external_receipt"], before["external_receipt"]);
    let seen = &effect["observations"][0]["observation"];
    assert_eq!((&seen["what"], &seen["verdict"]), (&json!("late answer"), &json!("SUCCEEDED")));
    let refunds = &provider.counters().operations["refund"];
    assert_eq!((refunds.requests, refunds.effects), (1, 1), "{refunds:?}");
}
