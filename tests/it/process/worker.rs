//! Several worker processes on one ledger, which are killed, frozen and told to stop.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twice_provider_sim::{Fault, Switch};
use twice_test_postgres::{Cluster, Database};
use twice_tests::project::{Halted, Project, Provider, Worker, for_each};
use twice_tests::{families, graphs};

use super::shop::{
    BUNDLE, REFUND, REFUND_AND_TELL, SCRIPTED, TWICE, check_ended_well, check_settled, history,
    order, script, shop, shop_in, start_with,
};

/// Longest wait for what nothing announces.
const PATIENCE: Duration = Duration::from_secs(100);
const UNTIL_IDLE: [&str; 2] = ["worker", "--until-idle"];

fn shop_on(provider: &Provider, database: &Database<'_>) -> Project {
    let project = Project::init(TWICE).at(provider);
    shop_in(project.with_env("TWICE_DATABASE_URL", &database.url()))
}

#[track_caller]
fn wait_until(what: &str, there: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < deadline, "{what}: that never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Records runs and leaves them to workers; half of them refund, half also tell the customer.
fn record(project: &Project, runs: usize) -> Vec<String> {
    let ids: Vec<String> = (0..runs).map(|number| format!("run-{number}")).collect();
    let jobs = ids.iter().cloned().enumerate().map(|(number, run)| (run.clone(), (number, run)));
    for_each(jobs.collect(), 3, |(number, run)| {
        let workflow = if number % 2 == 0 { REFUND } else { REFUND_AND_TELL };
        let input = order(&format!("order-{number}"));
        let said = project.ok(&start_with(workflow, &input, &run, &["--detach"]));
        assert!(said.contains("a worker runs it (`twice worker`)"), "{said}");
    });
    ids
}

/// Every run is settled, and the provider did what was asked for, once.
#[track_caller]
fn check_all(project: &Project, provider: &Provider, runs: &[String]) {
    let jobs = runs.iter().map(|run| (run.clone(), run)).collect();
    for_each(jobs, 3, |run| check_settled(project, run));
    let operations = provider.counters().operations;
    for (operation, count) in [("refund", runs.len()), ("message", runs.len() / 2)] {
        let counted = &operations[operation];
        let count = u64::try_from(count).unwrap();
        assert_eq!((counted.effects, counted.duplicates), (count, 0), "{operation}: {counted:?}");
    }
    let status = project.json(&["status"]);
    assert_eq!(status, json!({ "workflows": [], "workers": [] }));
}

/// What nodes say is kept nowhere; a worker passes it on to whoever asks.
#[test]
fn what_a_node_logs_is_in_the_workers_log_when_asked() {
    let provider = Provider::start();
    let project = shop(&provider);
    let said = ["debug", "error"].map(|level| {
        json!({ "do": "log", "level": level, "message": format!("said as {level}\u{1b}[31m") })
    });
    let mut workers = Vec::new();
    for (run, env) in [("run-1", &[][..]), ("run-2", &[("TWICE_LOG", "node=info")])] {
        let input = script(run, &json!(said));
        project.ok(&start_with(SCRIPTED, &input, run, &["--detach"]));
        workers.push(project.spawn(&UNTIL_IDLE, env).finish());
    }
    assert_eq!(workers[0].stderr, "", "{}", workers[0]);
    let log = &workers[1].stderr;
    assert!(log.contains("said as error\\u{1b}[31m") && log.contains("run-2"), "{log}");
    assert!(!log.contains("said as debug"), "{log}");
}

/// The numbers and kinds of a run's entries, without what was only observed.
fn decided(project: &Project, run: &str) -> Value {
    let shown = project.run(run);
    let entries = history(&shown).iter().filter(|entry| entry["kind"] != "observed");
    entries.map(|entry| json!([entry["seq"], entry["kind"], entry["hash"]])).collect()
}

/// One worker is killed after a provider paid, one is frozen past its leases and woken when others have done its work.
fn many_runs_by_workers_that_fail(project: &Project, provider: &Provider, concurrency: &str) {
    let runs = record(project, 40);
    let working = ["worker", "--until-idle", "--concurrency", concurrency];
    let killed = project.spawn(&working, &[("TWICE_TEST_KILL", "after-reply:5")]);
    let mut frozen = project.spawn(&working, &[("TWICE_TEST_STOP", "before-intent:6")]);
    assert_eq!(frozen.wait_for_stop(), Halted::Stopped);
    assert_eq!(killed.finish().code, None, "it was to be killed");

    let third = project.spawn(&working, &[]).finish();
    assert_eq!(third.code, Some(0), "{third}");
    assert!(third.stdout.contains("taken over from a worker that vanished"), "{third}");
    assert!(third.stdout.contains("found nothing more to do"), "{third}");
    let before: Vec<Value> = runs.iter().map(|run| decided(project, run)).collect();

    frozen.go_on();
    let woken = frozen.finish();
    assert_eq!(woken.code, Some(0), "{woken}");
    assert!(woken.stdout.contains("was taken by another worker"), "{woken}");
    for (run, before) in runs.iter().zip(&before) {
        assert_eq!(&decided(project, run), before, "{run}: the woken worker wrote");
    }
    check_all(project, provider, &runs);
}

#[test]
fn workers_that_fail_on_a_file_lose_and_repeat_nothing() {
    let provider = Provider::start();
    let project = shop(&provider);
    // One run at a time: so that no other one of the process holds the file when the process is frozen.
    many_runs_by_workers_that_fail(&project, &provider, "1");
}

#[test]
fn workers_that_fail_on_a_server_lose_and_repeat_nothing() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let provider = Provider::start();
    let database = Cluster::shared().database();
    let project = shop_on(&provider, &database);
    many_runs_by_workers_that_fail(&project, &provider, "4");
}

/// One worker vanishes when a child is over, before its parent was told; what others do is enough.
fn children_by_workers_that_fail(project: &Project, provider: &Provider) {
    let runs: Vec<String> = (0..6).map(|number| format!("run-{number}")).collect();
    for run in &runs {
        let input = families::bundle(run, &families::parcel(run));
        project.ok(&start_with(BUNDLE, &input, run, &["--detach"]));
    }
    let killed = project.spawn(&["worker"], &[("TWICE_TEST_KILL", "after-checkpoint:2")]);
    assert_eq!(killed.finish().code, None, "it was to be killed");
    let listed = project.json(&["effects", "list", "--unknown"]);
    let ours = |effect: &&Value| effect["type"].as_str().unwrap().starts_with("workflow.");
    assert_eq!(listed.as_array().unwrap().iter().filter(ours).count(), 0, "{listed:#}");
    let workers = [0, 1].map(|_| project.spawn(&UNTIL_IDLE, &[]));
    for worker in workers {
        let ran = worker.finish();
        assert_eq!(ran.code, Some(0), "{ran}");
    }
    for run in &runs {
        check_settled(project, run);
        let shown = project.run(run);
        let child = &shown["children"][0];
        assert_eq!((&child["workflow"], &child["state"]), (&json!("parcel"), &json!("completed")));
        let child = child["run_id"].as_str().unwrap();
        check_settled(project, child);
        assert_eq!(project.run(child)["run"]["parent"]["run_id"], json!(run));
        let listed = project.json(&["runs", "list", "--parent", run]);
        assert_eq!((listed.as_array().unwrap().len(), &listed[0]["run_id"]), (1, &json!(child)));
    }
    let refunds = &provider.counters().operations["refund"];
    assert_eq!((refunds.effects, refunds.duplicates), (6, 0), "{refunds:?}");
    assert_eq!(project.json(&["status"]), json!({ "workflows": [], "workers": [] }));
}

#[test]
fn children_by_workers_that_fail_on_a_file() {
    let provider = Provider::start();
    children_by_workers_that_fail(&shop(&provider), &provider);
}

#[test]
fn children_by_workers_that_fail_on_a_server() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let provider = Provider::start();
    let database = Cluster::shared().database();
    children_by_workers_that_fail(&shop_on(&provider, &database), &provider);
}

#[test]
fn a_command_runs_the_children_of_its_run_to_their_end() {
    let provider = Provider::start();
    let project = shop(&provider);
    let input = families::bundle("order-1", &families::parcel("order-1"));
    let said = project.ok(&start_with(BUNDLE, &input, "run-1", &[]));
    assert!(said.contains("run run-1 completed"), "{said}");
    check_settled(&project, "run-1");
    let shown = project.ok(&["runs", "show", "run-1"]);
    assert!(shown.contains("of parcel: completed"), "{shown}");

    // A child that needs a person is said at once, and when the person has decided the same command goes on.
    let slot = families::child_of("scripted", "/input/order");
    project.write("workflows/letter.toml", graphs::named("letter", "", &[("send", &slot)]));
    provider.switch([Switch::new(Fault::CommitThenDrop).times(1)]);
    let mail = json!({
        "do": "request", "slot": "mail", "must": true,
        "args": { "to": "ada@example.com", "subject": "Refund", "text": "It is on its way." },
    });
    let letter = families::bundle("order-2", &script("order-2", &json!([mail])));
    let ran = project.twice(&start_with("letter", &letter, "run-2", &["--json", "--wait", "600"]));
    assert_eq!(ran.code, Some(4), "{ran}");
    let shown = project.run("run-2");
    let child = &shown["children"][0];
    assert_eq!((&shown["run"]["state"], &child["state"]), (&json!("waiting"), &json!("halted")));
    let (why, child) = (ran.json()["reason"].clone(), child["run_id"].as_str().unwrap().to_owned());
    assert!(
        why.as_str().unwrap().contains(&format!("run {child} of `scripted` is halted")),
        "{why}"
    );
    let effect = project.effects(&child).remove(0)["effect_id"].as_str().unwrap().to_owned();
    let finding = ["--confirmed", "--receipt", r#"{"id":"msg_1"}"#, "--external-id", "msg_1"];
    let evidence = ["--evidence", "the mail service's own log"];
    project.ok(&[&["effects", "resolve", &effect], &finding[..], &evidence].concat());
    project.ok(&["runs", "resume", "run-2"]);
    check_settled(&project, "run-2");
    check_settled(&project, &child);
}

#[test]
fn a_worker_outlives_its_server() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let provider = Provider::start();
    let cluster = Cluster::start();
    let database = cluster.database();
    let project = shop_on(&provider, &database);
    let mut worker = project.spawn(&["worker"], &[]);
    let ready = || project.json(&["status"])["workflows"] == json!([]);
    let runs = record(&project, 2);
    wait_until("the first runs are done", ready);
    // One run has its answer and cannot write it.
    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(1)]);
    project.ok(&start_with(REFUND, &order("order-2"), "run-2", &["--detach"]));
    provider.wait_until_paused();
    cluster.stop();
    provider.go_on();
    worker.wait_for_complaint("trying again in 1 s");
    cluster.go_on();
    wait_until("the run that was under way is done", ready);
    worker.terminate();
    let ran = worker.finish();
    assert_eq!(ran.code, Some(0), "{ran}");
    for run in runs.iter().map(String::as_str).chain(["run-2"]) {
        check_settled(&project, run);
    }
    let refunds = &provider.counters().operations["refund"];
    assert_eq!((refunds.effects, refunds.duplicates), (3, 0), "{refunds:?}");
}

/// A worker in the middle of a run's first step, which the provider does not let go on.
fn worker_in_mid_step(provider: &Provider, project: &Project) -> Worker {
    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(1)]);
    let input = order("order-1");
    project.ok(&start_with(REFUND_AND_TELL, &input, "run-1", &["--detach"]));
    let worker = project.spawn(&["worker"], &[]);
    provider.wait_until_paused();
    worker
}

#[test]
fn a_worker_that_is_told_to_stop_gives_its_runs_back_at_their_next_step() {
    let provider = Provider::start();
    let project = shop(&provider);
    project.edit("tools/payments.toml", "timeout = \"3s\"", "timeout = \"2m\"");
    let mut worker = worker_in_mid_step(&provider, &project);
    worker.terminate();
    worker.wait_for_complaint("stopping:");
    // It takes nothing more.
    project.ok(&start_with(REFUND, &order("order-2"), "run-2", &["--detach"]));
    provider.go_on();
    let ran = worker.finish();
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stdout.contains("run run-1 of refund-and-tell given back"), "{ran}");
    assert!(ran.stdout.contains("was told to stop"), "{ran}");
    assert!(!ran.stdout.contains("run-2"), "{ran}");

    let status = project.json(&["status"]);
    assert_eq!(status["workers"], json!([]), "{status:#}");
    let shown = project.run("run-1");
    assert_eq!(shown["run"]["state"], "ready", "{shown:#}");
    assert_eq!(project.effects("run-1").len(), 1, "the second step was begun");

    let ran = project.spawn(&UNTIL_IDLE, &[]).finish();
    assert_eq!(ran.code, Some(0), "{ran}");
    for run in ["run-1", "run-2"] {
        check_settled(&project, run);
    }
    assert_eq!(project.run("run-1")["run"]["crashes"], 0);
    let operations = provider.counters().operations;
    assert_eq!((operations["refund"].requests, operations["message"].requests), (2, 1));
}

#[test]
fn a_worker_that_is_told_twice_stops_at_once() {
    let provider = Provider::start();
    let project = shop(&provider);
    project.edit("tools/payments.toml", "timeout = \"3s\"", "timeout = \"2m\"");
    let mut worker = worker_in_mid_step(&provider, &project);
    let status = project.json(&["status"]);
    assert_eq!(status["workflows"][0]["running"], 1, "{status:#}");
    assert_eq!(status["workers"][0]["runs"], 1, "{status:#}");
    worker.interrupt();
    worker.wait_for_complaint("stopping:");
    worker.terminate();
    let ran = worker.finish();
    assert_eq!(ran.code, Some(130), "{ran}");
    assert!(ran.stderr.contains("stopped at once"), "{ran}");
    provider.go_on();
    // Its lease runs out, and the effect is looked up.
    let ran = project.spawn(&UNTIL_IDLE, &[]).finish();
    assert_eq!(ran.code, Some(0), "{ran}");
    check_settled(&project, "run-1");
    assert_eq!(provider.counters().operations["refund"].effects, 1);
}

/// The tool of another account, whose secret this worker does not have.
fn add_other_account(project: &Project) {
    let read = |path: &str| std::fs::read_to_string(project.root().join(path)).unwrap();
    let tool = read("tools/payments.toml").replace("tool = \"payments\"", "tool = \"other\"");
    let tool = tool.replace("tool     = \"payments\"", "tool = \"other\"");
    project.write("tools/other.toml", tool.replace("PAYMENTS_API_KEY", "OTHER_API_KEY"));
    let workflow = read("workflows/refund-and-tell.toml");
    let workflow = workflow.replace("\"refund-and-tell\"", "\"other\"");
    project.write("workflows/other.toml", workflow.replace("payments.refund", "other.refund"));
}

#[test]
fn a_run_whose_secret_is_missing_blocks_no_other() {
    let provider = Provider::start();
    let project = shop(&provider);
    add_other_account(&project);
    // The one that cannot go on is the most urgent, and there is one place.
    let urgent = ["--detach", "--priority", "9"];
    project.ok(&start_with("other", &order("order-0"), "run-0", &urgent));
    for number in 1..4 {
        let (run, input) = (format!("run-{number}"), order(&format!("order-{number}")));
        project.ok(&start_with(REFUND, &input, &run, &["--detach"]));
    }
    let mut worker = project.spawn(&["worker", "--concurrency", "1", "--json"], &[]);
    let completed = || {
        let runs = project.json(&["runs", "list", "--state", "completed"]);
        runs.as_array().unwrap().len() == 3
    };
    wait_until("the others complete", completed);
    worker.interrupt();
    let ran = worker.finish();
    assert_eq!(ran.code, Some(0), "{ran}");
    let told: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told[0]["run_id"], "run-0", "{ran}");
    assert_eq!(told[0]["workflow"], "other", "{ran}");
    assert_eq!(told[0]["state"], "waiting", "{ran}");
    let completed = told.iter().filter(|told| told["state"] == "completed").count();
    assert_eq!(completed, 3, "{ran}");

    let shown = project.run("run-0");
    assert!(shown["run"]["reason"].as_str().unwrap().contains("OTHER_API_KEY"), "{shown:#}");
    assert_eq!((&shown["run"]["crashes"], &shown["run"]["priority"]), (&json!(0), &json!(9)));
    let key = [("OTHER_API_KEY", twice_tests::project::API_KEY)];
    let ran = project.spawn(&["runs", "resume", "run-0"], &key).finish();
    assert_eq!(ran.code, Some(0), "{ran}");
    check_settled(&project, "run-0");
}

#[test]
fn runs_are_taken_by_priority_and_in_turns() {
    let provider = Provider::start();
    let project = shop(&provider);
    for (run, workflow, priority) in [
        ("idle", REFUND, "-1"),
        ("a-1", REFUND, "0"),
        ("a-2", REFUND, "0"),
        ("a-3", REFUND, "0"),
        ("b-1", REFUND_AND_TELL, "0"),
        ("urgent", REFUND_AND_TELL, "3"),
    ] {
        let more = ["--detach", "--priority", priority];
        project.ok(&start_with(workflow, &order(&format!("order-{run}")), run, &more));
    }
    let status = project.json(&["status"]);
    let loads: Vec<_> = status["workflows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|load| (load["workflow"].as_str().unwrap(), load["ready"].as_u64().unwrap()))
        .collect();
    assert_eq!(loads, [(REFUND, 4), (REFUND_AND_TELL, 2)], "{status:#}");
    assert!(status["workflows"][0]["lag_ms"].is_u64(), "{status:#}");
    let words = project.ok(&["status"]);
    assert!(words.contains("no worker holds a run"), "{words}");

    let ran = project.spawn(&["worker", "--until-idle", "--concurrency", "1"], &[]).finish();
    assert_eq!(ran.code, Some(0), "{ran}");
    let taken: Vec<&str> = ran
        .stdout
        .lines()
        .filter(|line| line.ends_with(" taken"))
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!(taken, ["urgent", "a-1", "b-1", "a-2", "a-3", "idle"], "{ran}");
    let started = &history(&project.run("urgent"))[0]["body"]["data"].clone();
    assert_eq!(started["priority"], 3, "{started:#}");
    check_ended_well(&project, "idle");
}

#[test]
fn a_worker_is_told_how_it_is_used_wrongly() {
    let project = Project::init(TWICE);
    for (args, words) in [
        (vec!["worker", "--concurrency", "0"], "--concurrency"),
        (vec!["worker", "--per-workflow", "refunds"], "write WORKFLOW=N"),
        (vec!["worker", "--per-workflow", "refunds=0"], "no number of runs"),
        (vec!["run", "w", "--input", "{}", "--priority", "10"], "from -9 to 9"),
    ] {
        let ran = project.twice(&args);
        assert_eq!(ran.code, Some(2), "{ran}");
        assert!(ran.stderr.contains(words), "{ran}");
    }
}
