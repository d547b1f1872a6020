//! A run has one owner at a time, and the one that lost it writes nothing.

use serde_json::{Value, json};
use twice_core::limits::CRASHES_MAX;
use twice_provider_sim::{Fault, Switch};
use twice_tests::project::{Halted, Project, Provider, Ran, Worker};

use super::shop::{
    REFUND, SCRIPTED, check_settled, history, order, script, shop, start, start_with,
};

const RUN: &str = "run-1";
const RESUME: [&str; 3] = ["runs", "resume", RUN];

#[track_caller]
fn check_paid_once(project: &Project, provider: &Provider) {
    check_settled(project, RUN);
    let refunds = &provider.counters().operations["refund"];
    assert_eq!((refunds.effects, refunds.duplicates), (1, 0), "{refunds:?}");
}

#[test]
fn a_worker_that_slept_through_its_lease_is_turned_away() {
    let provider = Provider::start();
    let project = shop(&provider);
    let args = start_with(REFUND, &order("order-1"), RUN, &["--wait", "0"]);
    // Before its request is recorded, so that the record itself is what is refused.
    let mut worker = project.spawn(&args, &[("TWICE_TEST_STOP", "before-intent:1")]);
    assert_eq!(worker.wait_for_stop(), Halted::Stopped);
    project.ok(&RESUME);
    let (done, requests) = (project.run(RUN), provider.requests("refund"));
    assert_eq!(requests, 1);

    worker.go_on();
    let zombie = worker.finish();
    assert_eq!(zombie.code, Some(4), "{zombie}");
    assert!(zombie.stdout.contains("run run-1 is held by another worker"), "{zombie}");
    assert_eq!(project.run(RUN), done, "the zombie wrote");
    assert_eq!(provider.requests("refund"), 1, "the zombie sent");
    check_paid_once(&project, &provider);
}

#[test]
fn a_zombie_that_stays_learns_how_the_run_ended() {
    let provider = Provider::start();
    let project = shop(&provider);
    let args = start_with(REFUND, &order("order-1"), RUN, &["--json"]);
    let mut worker = project.spawn(&args, &[("TWICE_TEST_STOP", "after-requested-commit:1")]);
    assert_eq!(worker.wait_for_stop(), Halted::Stopped);
    project.ok(&RESUME);
    worker.go_on();
    let zombie = worker.finish();
    assert_eq!((zombie.code, &zombie.json()["state"]), (Some(0), &json!("completed")), "{zombie}");
    check_paid_once(&project, &provider);
}

#[test]
fn of_two_that_resume_at_once_one_runs() {
    let provider = Provider::start();
    // So that the first is still at it when the second asks.
    provider.switch([Switch::new(Fault::DelayMs).value(300)]);
    let project = shop(&provider);
    project.ok(&start_with(REFUND, &order("order-1"), RUN, &["--detach"]));
    let workers: Vec<Worker> = (0..2).map(|_| project.spawn(&RESUME, &[])).collect();
    let ran: Vec<Ran> = workers.into_iter().map(Worker::finish).collect();
    for ran in &ran {
        assert_eq!(ran.code, Some(0), "{ran}");
    }
    let ran_it = ran.iter().filter(|ran| ran.stdout.contains("refund: started")).count();
    assert_eq!(ran_it, 1, "{} {}", ran[0], ran[1]);
    assert_eq!(provider.requests("refund"), 1);
    check_paid_once(&project, &provider);
}

#[test]
fn twenty_starts_of_one_run_are_one_run() {
    let provider = Provider::start();
    let project = shop(&provider);
    let args = start(REFUND, &order("order-1"), RUN);
    let workers: Vec<Worker> = (0..20).map(|_| project.spawn(&args, &[])).collect();
    let ran: Vec<Ran> = workers.into_iter().map(Worker::finish).collect();
    for ran in &ran {
        assert_eq!(ran.code, Some(0), "{ran}");
    }
    let started = ran.iter().filter(|ran| ran.stdout.contains("run run-1 of")).count();
    assert_eq!(started, 1);
    assert_eq!(project.json(&["runs", "list"]).as_array().unwrap().len(), 1);
    check_paid_once(&project, &provider);
}

#[test]
fn a_run_id_means_one_input() {
    let provider = Provider::start();
    let project = shop(&provider);
    project.ok(&start(REFUND, &order("order-1"), RUN));
    let before = project.run(RUN);
    for other in [
        start(REFUND, &order("order-2"), RUN),
        start(SCRIPTED, &script("order-1", &json!([])), RUN),
    ] {
        let ran = project.twice(&other);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains("run `run-1` exists already with"), "{ran}");
        assert!(ran.stderr.contains("choose another run id"), "{ran}");
    }
    assert_eq!(project.run(RUN), before);
    check_paid_once(&project, &provider);
}

#[test]
fn a_key_of_the_caller_finds_its_run() {
    let provider = Provider::start();
    let project = shop(&provider);
    let args = |order_id: &str| {
        let input = order(order_id).to_string();
        ["run", REFUND, "--input", &input, "--key", "case-7", "--json"].map(str::to_owned)
    };
    let first = project.twice(&args("order-1")).json();
    let again = project.twice(&args("order-1")).json();
    assert_eq!(first, again);
    let other = project.twice(&args("order-2"));
    assert_eq!(other.code, Some(1), "{other}");
    assert_eq!(provider.requests("refund"), 1);
}

#[test]
fn a_run_that_kills_its_workers_is_put_aside() {
    let provider = Provider::start();
    let project = shop(&provider);
    let poison = [("TWICE_TEST_KILL", "after-claim:1")];
    let args = start(REFUND, &order("order-1"), RUN);
    let mut crashes = u32::from(project.spawn(&args, &poison).finish().code.is_none());
    let quarantined = loop {
        let ran = project.spawn(&RESUME, &poison).finish();
        if ran.code.is_some() {
            break ran;
        }
        crashes += 1;
        assert!(crashes <= CRASHES_MAX, "{crashes} workers died");
    };
    assert_eq!(crashes, CRASHES_MAX);
    assert_eq!(quarantined.code, Some(4), "{quarantined}");
    assert!(quarantined.stdout.contains("run run-1 is in quarantine"), "{quarantined}");
    assert_eq!(project.run(RUN)["run"]["state"], "quarantined");
    assert_eq!(provider.requests("refund"), 0);

    // Others go on, and this one stays aside however often it is resumed.
    project.ok(&start(REFUND, &order("order-2"), "run-2"));
    let ran = project.twice(&RESUME);
    assert_eq!(ran.code, Some(4), "{ran}");
    project.ok(&["runs", "release", RUN, "--reason", "the worker's memory was faulty"]);
    project.ok(&RESUME);
    check_settled(&project, RUN);
    let shown = project.run(RUN);
    let released = history(&shown).iter().find(|entry| entry["kind"] == "run_released").unwrap();
    assert_eq!(released["body"]["data"]["why"], "the worker's memory was faulty");
    assert_eq!(released["body"]["data"]["who"], "ada");
}

#[test]
fn a_long_step_keeps_its_lease() {
    let provider = Provider::start();
    // Several times the lease.
    provider.switch([Switch::new(Fault::DelayMs).value(2_500)]);
    let project = shop(&provider);
    let worker = project.spawn(&start(REFUND, &order("order-1"), RUN), &[]);
    let patient: Vec<Worker> = (0..2)
        .map(|_| {
            wait_until_started(&project);
            project.spawn(&RESUME, &[])
        })
        .collect();
    assert_eq!(worker.finish().code, Some(0));
    for resumer in patient {
        assert_eq!(resumer.finish().code, Some(0));
    }
    assert_eq!(project.run(RUN)["run"]["fence"], 1, "its lease was taken");
    check_paid_once(&project, &provider);
}

/// Returns once the run is on record.
fn wait_until_started(project: &Project) {
    let there = || project.twice(&["runs", "show", RUN, "--json"]).code == Some(0);
    assert!((0..200).any(|_| there()), "the run was never started");
}

#[test]
fn an_orphaned_request_is_listed_as_unknown_before_anyone_looks() {
    let provider = Provider::start();
    let project = shop(&provider);
    let args = start(REFUND, &order("order-1"), RUN);
    let dead = project.spawn(&args, &[("TWICE_TEST_KILL", "after-reply:1")]).finish();
    assert_eq!(dead.code, None, "{dead}");
    let listed = || project.json(&["effects", "list", "--unknown"]);
    let unknown = (0..500).map(|_| listed()).find(|listed| *listed != json!([])).unwrap();
    assert_eq!(unknown[0]["state"], "UNKNOWN");
    assert_eq!(unknown[0]["idempotency_key"], "refund/run-1/order-1/full-damaged-item");
    let recorded: Vec<Value> = history(&project.run(RUN)).clone();
    assert!(recorded.iter().all(|entry| entry["kind"] != "unknown"), "looking wrote");
    project.ok(&RESUME);
    check_paid_once(&project, &provider);
}
