//! What the command line does around its work: what it takes, what it makes and leaves alone, how it is stopped.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twice_provider_sim::{Fault, Switch};
use twice_tests::project::{Project, Provider};

use super::shop::{
    REFUND, REFUND_AND_TELL, SCRIPTED, TWICE, check_settled, order, refund_step, script, shop,
    start, start_with,
};

const RUN: &str = "run-1";

#[test]
fn a_mistake_of_usage_has_a_code_of_its_own() {
    let project = Project::init(TWICE);
    for (args, words) in [
        (&["runs", "show", "run 1"][..], "is not a valid run id"),
        (&["runs", "list", "--state", "sleeping"], "one of ready, running"),
        (&["runs", "list", "--workflow", "A B"], "is not a valid name"),
        (&["runs", "retry", "run-1", "--reason", " "], "say why"),
        (&["locks", "release", "order", "42", "--reason", " "], "say why"),
        (&["locks", "list", "--after", "order"], "--after <NAME> <OBJECT>"),
        (&["effects", "list", "--state", "MAYBE"], "one of PROPOSED"),
        (&["effects", "list", "--after", "eff_1"], "is not a valid effect id"),
        (&["effects", "show", "refund"], "at least 8 characters"),
        (
            &["effects", "resolve", "eff_aaaa", "--confirmed", "--receipt", "{", "--evidence", "x"],
            "not strict JSON",
        ),
        (&["run", REFUND, "--input", "input.json", "--run-id", "Run 1"], "is not a valid run id"),
        (&["crashtest", REFUND, "--input", "input.json", "--pause", "48"], "and a unit"),
        (&["crashtest", REFUND, "--input", "input.json", "--pause", "1s"], "shorter than a lease"),
        (&["crashtest", REFUND, "--input", "input.json", "--boundary", "never"], "after-claim"),
        (&["node", "new", "Re Fund"], "is not a valid name"),
        (&["init", "--name", "My Shop"], "is not a valid name"),
    ] {
        let ran = project.twice(args);
        assert_eq!(ran.code, Some(2), "{ran}");
        assert!(ran.stderr.contains(words), "no `{words}`: {ran}");
    }
    assert!(!project.root().join("twice.db").exists(), "something was opened");
}

#[test]
fn what_only_reads_makes_no_ledger() {
    let project = Project::init(TWICE);
    for args in [
        &["runs", "list"][..],
        &["effects", "list"],
        &["node", "list"],
        &["locks", "list"],
        &["runs", "show", RUN],
        &["runs", "resume", RUN],
        &["runs", "release", RUN, "--reason", "x"],
        &["effects", "reconcile"],
        &["effects", "show", "eff_aaaa"],
        &["effects", "conflict", "eff_aaaa", "--keep", "--reason", "x"],
    ] {
        let asked = project.twice(args);
        assert!(matches!(asked.code, Some(0 | 1)), "{asked}");
        assert!(!project.root().join("twice.db").exists(), "{asked}");
        let ran = project.twice(&[args, &["--database", "typo.db"]].concat());
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains("there is no such file"), "{ran}");
        assert!(!project.root().join("typo.db").exists(), "{ran}");
    }
    assert_eq!(project.json(&["runs", "list"]), json!([]));
}

#[test]
fn the_project_says_where_its_ledger_is_unless_the_user_does() {
    let provider = Provider::start();
    let project = shop(&provider);
    let settings = project.root().join("twice.toml");
    let state =
        |more: &[&str]| project.json(&[&["runs", "list"], more].concat()).as_array().map(Vec::len);
    let head = fs::read_to_string(&settings).unwrap();
    let head = head.lines().find(|line| line.starts_with("project")).unwrap().to_owned();
    let say = |url: &str| {
        let text = format!("{head}\n[database]\nurl = \"{url}\"\n[worker]\nlease = \"1h\"\n");
        fs::write(&settings, text).unwrap();
    };

    // From the project's folder, wherever the command is given; what was in the ledger is not in this one.
    fs::create_dir(project.root().join("state")).unwrap();
    say("state/other.db");
    assert_eq!(state(&[]), Some(0));
    assert!(!project.root().join("state/other.db").exists(), "reading made a ledger");
    assert_eq!(project.twice(&["runs", "list", "--database", "state/other.db"]).code, Some(1));

    say("env:SHOP_LEDGER_THAT_NOBODY_SET");
    let ran = project.twice(&["runs", "list"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("SHOP_LEDGER_THAT_NOBODY_SET, which is not set"), "{ran}");
    let file = project.root().join("twice.db");
    assert_eq!(state(&["--database", file.to_str().unwrap()]), Some(0), "the user comes first");

    say("postgres://ann:secret-word@db/shop");
    let ran = project.twice(&["runs", "list"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("TW2201") && !ran.stderr.contains("secret-word"), "{ran}");
}

#[test]
fn a_database_of_something_else_is_left_alone() {
    let provider = Provider::start();
    let project = shop(&provider);
    // The simulated provider's own is the one that lies nearest.
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("provider.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = twice_provider_sim::SimConfig::new(&file);
        twice_provider_sim::Sim::start(config).await.unwrap().stop().await;
    });
    let before = fs::read(&file).unwrap();
    let name = file.to_str().unwrap();
    let mut run = start(REFUND, &order("order-1"), RUN);
    run.extend(["--database", name].map(str::to_owned));
    let list = ["effects", "list", "--database", name].map(str::to_owned).to_vec();
    for args in [run, list] {
        let ran = project.twice(&args);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains("a database of something else"), "{ran}");
    }
    assert_eq!(fs::read(&file).unwrap(), before, "it was touched");
    assert_eq!(provider.counters().effects, 0);
}

#[test]
fn effects_of_a_run_that_is_not_there() {
    let provider = Provider::start();
    let project = shop(&provider);
    let ran = project.twice(&["effects", "list", "--run", "nope"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("there is no run `nope`"), "{ran}");
}

#[test]
fn effects_of_a_run_stand_in_the_order_of_asking() {
    let provider = Provider::start();
    let project = shop(&provider);
    project.ok(&start(REFUND_AND_TELL, &order("order-1"), RUN));
    let list = |more: &[&str]| -> Vec<String> {
        let args = [&["effects", "list", "--run", RUN], more].concat();
        let listed = project.json(&args);
        let effects = listed.as_array().unwrap().iter();
        effects.map(|effect| effect["node"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(list(&[]), ["refund", "notify"]);
    assert_eq!(list(&["--limit", "1"]), ["refund"]);
    let first = project.json(&["effects", "list", "--run", RUN, "--limit", "1"]);
    let first = first[0]["effect_id"].as_str().unwrap().to_owned();
    assert_eq!(list(&["--after", &first]), ["notify"]);
    assert_eq!(list(&["--state", "UNKNOWN"]), Vec::<String>::new());
}

#[test]
fn a_listing_says_what_is_not_in_it() {
    let provider = Provider::start();
    let project = shop(&provider);
    project.ok(&start(REFUND_AND_TELL, &order("order-1"), RUN));
    for more in [&[][..], &["--run", RUN]] {
        let list = |flags: &[&str]| project.twice(&[&["effects", "list"], more, flags].concat());
        for all in [list(&[]), list(&["--all"]), list(&["--limit", "2"])] {
            assert!(!all.stdout.contains("effects; "), "{all}");
        }
        let cut = list(&["--limit", "1"]);
        assert!(cut.stdout.contains("1 of 2 effects; `--all` or `--limit`"), "{cut}");
        let cut = list(&["--limit", "1", "--json"]);
        assert_eq!(cut.json().as_array().map(Vec::len), Some(1), "{cut}");
        assert!(cut.stderr.contains("1 of 2 effects"), "{cut}");
    }
}

#[test]
fn an_error_is_a_document_too_where_one_is_wanted() {
    let provider = Provider::start();
    let project = shop(&provider);
    let ran = project.twice(&["runs", "show", "run-9", "--json"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    let error = &ran.json()["error"];
    assert_eq!(error["code"], 1);
    assert_eq!(error["message"], "there is no run `run-9` in this ledger");
    assert_eq!(error["fix"], "`twice runs list` shows them");
    assert_eq!(error["causes"], json!([]));
    assert!(ran.stderr.contains("error: there is no run"), "{ran}");

    let steps = json!([refund_step("order-1", 1200), refund_step("order-1", 1300)]);
    let halted = project.twice(&start(SCRIPTED, &script("order-1", &steps), RUN));
    assert_eq!(halted.code, Some(4), "{halted}");
    let id = project.effects(RUN)[0]["effect_id"].as_str().unwrap().to_owned();
    let decided = project.json(&["effects", "conflict", &id, "--keep", "--reason", "the first"]);
    assert_eq!((&decided["effect_id"], &decided["held"]), (&json!(id), &Value::Null));
    assert_eq!(decided["decisions"].as_array().unwrap().len(), 1, "{decided:#}");
    assert_eq!(project.json(&["effects", "reconcile"]), json!([]));
}

/// The commands that a text names, each as it stands between two backquotes.
fn commands(text: &str) -> Vec<Vec<String>> {
    let quoted = text.split('`').skip(1).step_by(2).filter_map(|part| part.strip_prefix("twice "));
    quoted
        .map(|command| {
            // Words, and what stands between apostrophes as one.
            let parts =
                command.split('\'').enumerate().flat_map(|(number, part)| match number % 2 {
                    0 => part.split_whitespace().map(str::to_owned).collect(),
                    _ => vec![part.to_owned()],
                });
            parts.collect()
        })
        .collect()
}

#[test]
fn what_a_conflict_says_to_do_can_be_done_as_it_stands() {
    let provider = Provider::start();
    let original = shop(&provider);
    let steps = json!([refund_step("order-1", 1200), refund_step("order-1", 1300)]);
    let ran = original.twice(&start(SCRIPTED, &script("order-1", &steps), RUN));
    let commands = commands(&ran.stdout);
    assert_eq!(commands.len(), 4, "{commands:?}");
    for command in commands {
        let project = original.copy();
        let ran = project.twice(&command);
        assert_eq!(ran.code, Some(0), "{ran}");
    }
}

#[test]
fn what_an_unknown_outcome_says_to_do_can_be_done_as_it_stands() {
    let provider = Provider::start();
    provider.switch([Switch::new(Fault::CommitThenDrop)]);
    let original = shop(&provider);
    let mail = json!({
        "do": "request", "slot": "mail", "must": true,
        "args": { "to": "ada@example.com", "subject": "Your refund", "text": "It is on its way." },
    });
    let ran = original.twice(&start(SCRIPTED, &script("order-1", &json!([mail])), RUN));
    assert_eq!(ran.code, Some(4), "{ran}");
    let commands = commands(&ran.stdout);
    assert_eq!(commands.len(), 2, "{ran}");
    for command in commands {
        let project = original.copy();
        let ran = project.twice(&command);
        assert_eq!(ran.code, Some(0), "{ran}");
    }
}

#[test]
fn a_run_that_waits_says_why_its_step_failed() {
    let provider = Provider::start();
    let project = shop(&provider);
    project.edit("workflows/scripted.toml", "\"100ms\", max = \"100ms\"", "\"1h\", max = \"1h\"");
    let steps = json!([{ "do": "retryable", "message": "the depot is closed" }]);
    let ran = project.twice(&start(SCRIPTED, &script("order-1", &steps), RUN));
    assert_eq!(ran.code, Some(4), "{ran}");
    let reason = project.run(RUN)["run"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("asked for a later start: the depot is closed"), "{reason}");
    assert_eq!(project.json(&["runs", "list"])[0]["reason"], reason.as_str());
    for args in [&["runs", "list"][..], &["runs", "show", RUN]] {
        let shown = project.ok(args);
        assert!(shown.contains("the depot is closed"), "{shown}");
    }
}

#[test]
fn an_effect_as_people_read_it() {
    let provider = Provider::start();
    provider.switch([Switch::new(Fault::Storm429).value(0).times(2)]);
    let project = shop(&provider);
    project.ok(&start(REFUND, &order("order-1"), RUN));
    let id = project.effects(RUN)[0]["effect_id"].as_str().unwrap().to_owned();
    let text = project.ok(&["effects", "show", &id]);
    assert!(!text.contains("waits until"), "it is settled: {text}");
    assert_eq!(project.effects(RUN)[0]["not_before"], Value::Null);
    let count = |words: &str| text.matches(words).count();
    assert_eq!(count("of attempts 1–"), 1, "the same request is shown once: {text}");
    for time in ["\"requested_at\": \"20", "\"confirmed_at\": \"20"] {
        assert!(count(time) > 0, "no {time}: {text}");
    }
    assert!(text.contains("\n      \"external_id\": \"re_"), "it is not indented: {text}");
}

#[test]
fn an_interrupted_run_is_given_back_and_goes_on() {
    let provider = Provider::start();
    let project = shop(&provider).with_env("TWICE_LEASE_MS", "3600000");
    project.edit("workflows/scripted.toml", "time = \"4s\"", "time = \"100s\"");
    let steps = json!([refund_step("order-1", 1200), { "do": "loop" }]);
    let mut worker = project.spawn(&start(SCRIPTED, &script("order-1", &steps), RUN), &[]);
    let deadline = Instant::now() + Duration::from_secs(100);
    while project.json(&["effects", "list"]) == json!([]) {
        assert!(Instant::now() < deadline, "nothing is asked for");
    }
    worker.interrupt();
    let ran = worker.finish();
    assert_eq!(ran.code, Some(130), "{ran}");
    assert!(ran.stderr.contains("`twice runs resume run-1`"), "{ran}");
    // The lease would have an hour to run.
    let run = project.run(RUN);
    assert_eq!(
        (&run["run"]["state"], &run["run"]["reason"], &run["chain"]),
        (&json!("waiting"), &json!("interrupted"), &json!("holds"))
    );
}

#[test]
fn a_run_interrupted_while_it_pays_pays_once() {
    let provider = Provider::start();
    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(1)]);
    let project = shop(&provider);
    let mut worker = project.spawn(&start(REFUND, &order("order-1"), RUN), &[]);
    provider.wait_until_paused();
    worker.interrupt();
    worker.wait_for_complaint("goes on with `twice runs resume run-1`");
    provider.go_on();
    let ran = worker.finish();
    assert_eq!(ran.code, Some(130), "{ran}");
    project.ok(&["runs", "resume", RUN]);
    check_settled(&project, RUN);
    assert_eq!(provider.counters().effects, 1);
}

#[test]
fn who_interrupts_twice_waits_for_nothing() {
    let provider = Provider::start();
    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(1)]);
    let project = shop(&provider);
    let mut worker = project.spawn(&start(REFUND, &order("order-1"), RUN), &[]);
    provider.wait_until_paused();
    worker.interrupt();
    worker.wait_for_complaint("goes on with `twice runs resume run-1`");
    worker.interrupt();
    // The provider has not answered yet.
    let ran = worker.finish();
    assert_eq!(ran.code, Some(130), "{ran}");
    assert!(ran.stderr.contains("its answer is lost"), "{ran}");
    provider.go_on();
    project.ok(&["runs", "resume", RUN]);
    check_settled(&project, RUN);
    assert_eq!(provider.counters().effects, 1);
}

#[test]
fn a_crash_test_that_a_supervisor_ends_leaves_nothing_behind() {
    let provider = Provider::start();
    let project = shop(&provider);
    project.write("order.json", order("order-1").to_string());
    let args = ["crashtest", REFUND, "--input", "order.json"].map(str::to_owned);
    let mut test = project.spawn(&args, &[]);
    test.wait_for_complaint("crashtest 1/");
    test.terminate();
    let ran = test.finish();
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("nothing is left behind"), "{ran}");
}

#[test]
fn a_detached_run_is_the_same_however_often_it_is_asked_for() {
    let provider = Provider::start();
    let project = shop(&provider);
    let mut args = start(REFUND, &order("order-1"), RUN);
    args.extend(["--detach", "--json"].map(str::to_owned));
    let first = project.twice(&args);
    assert_eq!(first.code, Some(0), "{first}");
    let again = project.twice(&args);
    assert_eq!((again.code, again.json()), (first.code, first.json()), "{again}");
    project.ok(&["worker", "--until-idle"]);
    let done = project.twice(&args);
    assert_eq!((done.code, &done.json()["state"]), (Some(0), &json!("completed")), "{done}");
    assert_eq!(provider.counters().effects, 1);
}

#[test]
fn a_new_project_is_made_whole_or_not_at_all() {
    let project = Project::empty(TWICE);
    project.write("input.json", "{ \"mine\": true }\n");
    project.write(".gitignore", "*.log\ntarget/");
    let refused = project.twice(&["init", "--name", "shop"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("nothing was written: input.json"), "{refused}");
    let mut left: Vec<_> =
        fs::read_dir(project.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".gitignore", "input.json"]);

    fs::remove_file(project.root().join("input.json")).unwrap();
    let made = project.ok(&["init", "--name", "shop"]);
    assert!(made.contains("added to the .gitignore that was there: twice.db*"), "{made}");
    let ignored = fs::read_to_string(project.root().join(".gitignore")).unwrap();
    assert_eq!(ignored, "*.log\ntarget/\ntwice.db*\nprovider.db*\n.twice/\n");
    project.ok(&["check"]);
}

#[test]
fn the_simulated_provider_says_how_it_misbehaves() {
    let help = Project::empty(TWICE).ok(&["provider-sim", "--help"]);
    for fault in Fault::ALL {
        assert!(help.contains(fault.as_str()), "`{fault}` is missing: {help}");
    }
}

/// A worker that lacks a setting starts nothing, decides nothing, and is no reason to call for a person.
#[test]
fn a_missing_setting_loses_nothing() {
    let provider = Provider::start();
    let project = shop(&provider);
    let without = [("PAYMENTS_API_KEY", "")];
    let ran = project.spawn(&start(REFUND, &order("order-1"), "run-1"), &without).finish();
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("nothing was started"), "{ran}");
    assert!(ran.stderr.contains("PAYMENTS_API_KEY"), "{ran}");
    assert_eq!(project.json(&["runs", "list"]), json!([]));

    project.ok(&start_with(REFUND, &order("order-1"), "run-1", &["--detach"]));
    let ran = project.spawn(&["runs", "resume", "run-1", "--wait", "0"], &without).finish();
    assert_eq!(ran.code, Some(4), "{ran}");
    let shown = project.run("run-1");
    assert_eq!(shown["run"]["state"], "waiting", "{shown:#}");
    assert!(shown["run"]["reason"].as_str().unwrap().contains("PAYMENTS_API_KEY"), "{shown:#}");
    assert_eq!(project.effects("run-1")[0]["state"], "AUTHORIZED");
    assert_eq!(provider.requests("refund"), 0);

    project.ok(&["runs", "resume", "run-1"]);
    check_settled(&project, "run-1");
    assert_eq!(provider.requests("refund"), 1);
}
