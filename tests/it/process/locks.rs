//! Locks on business objects, as a person sees them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twice_provider_sim::{Fault, Switch};
use twice_tests::project::{Project, Provider};

use super::shop::{REFUND_AND_TELL, check_settled, history, order, shop, start, start_with};

/// Longest wait for the end of a lease.
const PATIENCE: Duration = Duration::from_secs(60);
const RELEASE: [&str; 6] = ["locks", "release", "order", "order-1", "--reason", "it takes days"];

fn entries(project: &Project, run: &str, kind: &str) -> Vec<Value> {
    let shown = project.run(run);
    let of_kind = history(&shown).iter().filter(|entry| entry["kind"] == kind);
    of_kind.map(|entry| entry["body"]["data"].clone()).collect()
}

#[test]
fn who_has_a_lock_who_waits_and_how_a_person_takes_it_away() {
    let provider = Provider::start();
    let project = shop(&provider).with_env("USER", "ada");
    project.edit("tools/payments.toml", "timeout = \"3s\"", "timeout = \"20s\"");
    assert_eq!(project.json(&["locks", "list"]), json!([]));
    assert!(project.ok(&["locks", "list"]).contains("no locks"));

    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(1)]);
    let holder = project.spawn(&start(REFUND_AND_TELL, &order("order-1"), "run-1"), &[]);
    provider.wait_until_paused();
    let waits =
        project.twice(&start_with(REFUND_AND_TELL, &order("order-1"), "run-2", &["--wait", "0"]));
    assert_eq!(waits.code, Some(4), "{waits}");
    let reason = "run run-1 has the lock `order` on order-1 until it is over";
    assert!(waits.stdout.contains(reason), "{waits}");
    assert!(project.ok(&["runs", "show", "run-2"]).contains(reason));

    let listed = project.json(&["locks", "list"]);
    let [lock] = listed.as_array().unwrap().as_slice() else { panic!("{listed:#}") };
    for (key, value) in [
        ("lock", json!("order")),
        ("object", json!("order-1")),
        ("run_id", json!("run-1")),
        ("run_state", json!("running")),
        ("expires_at", Value::Null),
    ] {
        assert_eq!(lock[key], value, "{key}: {lock:#}");
    }
    assert_eq!(lock["waiting"][0]["run_id"], "run-2", "{lock:#}");
    let words = project.ok(&["locks", "list", "--object", "order-1", "--run", "run-1"]);
    assert!(words.contains("never") && words.contains("run-2"), "{words}");
    for other in [["--object", "order-2"], ["--run", "run-2"]] {
        assert_eq!(project.json(&[&["locks", "list"][..], &other].concat()), json!([]));
    }
    assert_eq!(project.json(&["locks", "list", "--after", "order", "order-1"]), json!([]));

    // A worker that may be about to send is not to lose its lock.
    let refused = project.twice(&RELEASE);
    assert_eq!(refused.code, Some(1), "{refused}");
    assert!(refused.stderr.contains("a worker holds it"), "{refused}");
    let none = project.twice(&["locks", "release", "order", "order-2", "--reason", "x"]);
    assert_eq!(none.code, Some(1), "{none}");
    assert!(none.stderr.contains("no run has the lock `order` on order-2"), "{none}");

    holder.kill();
    let started = Instant::now();
    let released = loop {
        let ran = project.twice(&[&RELEASE[..], &["--json"]].concat());
        if ran.code == Some(0) {
            break ran.json();
        }
        assert!(started.elapsed() < PATIENCE, "{ran}");
    };
    let told = json!({ "lock": "order", "object": "order-1", "run_id": "run-1", "released": true });
    assert_eq!(released, told);
    let unlocked = entries(&project, "run-1", "object_unlocked");
    let told =
        json!({ "name": "order", "object": "order-1", "who": "ada", "why": "it takes days" });
    assert_eq!(unlocked, [told]);

    project.ok(&["runs", "resume", "run-2"]);
    provider.go_on();
    project.ok(&["runs", "resume", "run-1"]);
    for run in ["run-1", "run-2"] {
        check_settled(&project, run);
        let locked: Vec<Value> = entries(&project, run, "object_locked")
            .into_iter()
            .map(|entry| entry["name"].clone())
            .collect();
        assert_eq!(locked, ["order", "refund"], "{run}");
    }
    assert_eq!(project.json(&["locks", "list"]), json!([]));
}
