//! Every boundary, passed for the first and for the second time, under every workflow here: a worker that is killed
//! there, and one that is frozen there, outlives its lease while another takes the run over, and wakes up again.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use twice::engine::boundary::Boundary;
use twice_provider_sim::{Fault, Switch};
use twice_tests::families;
use twice_tests::project::{Halted, Project, Provider, Ran, for_each};

use super::shop::{
    BUNDLE, GRAPH, REFUND, REFUND_AND_TELL, SCRIPTED, check_ended_well, check_resumed_again,
    check_settled, graph_input, order, refund_step, script, shop, start,
};

const RUN: &str = "run-1";
const ORDER: &str = "order-1";
const AT_A_TIME: usize = 3;

/// What happens to the worker.
#[derive(Debug, Clone, Copy)]
enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP until another worker has done the run, then SIGCONT.
    Freeze,
}

/// A workflow, and what it meets.
struct Scene {
    name: &'static str,
    workflow: &'static str,
    input: Value,
    switches: Vec<Switch>,
    /// Where a worker died before the one that this is about.
    orphaned: Option<&'static str>,
    /// How many effects of which operation must exist in the end; none: one message at most.
    effects: &'static [(&'static str, u64)],
}

fn scenes() -> Vec<Scene> {
    let lookup_fails_once = || Switch::new(Fault::LookupError).times(1);
    let plain = Scene {
        name: "refund",
        workflow: REFUND,
        input: order(ORDER),
        switches: Vec::new(),
        orphaned: None,
        effects: &[("refund", 1)],
    };
    let mail = json!({
        "do": "request", "slot": "mail",
        "args": { "to": "ada@example.com", "subject": "Refund", "text": "It is on its way." },
    });
    let retryable = json!({ "do": "retryable", "message": "not yet", "until_attempt": 2 });
    vec![
        Scene {
            name: "unknown",
            switches: vec![Switch::new(Fault::CommitThenDrop).times(1), lookup_fails_once()],
            input: order(ORDER),
            ..plain
        },
        Scene {
            name: "orphaned",
            orphaned: Some("after-requested-commit:1"),
            switches: vec![lookup_fails_once()],
            input: order(ORDER),
            ..plain
        },
        Scene {
            name: "retryable",
            workflow: SCRIPTED,
            input: script(ORDER, &json!([refund_step(ORDER, 1200), retryable])),
            switches: Vec::new(),
            ..plain
        },
        Scene {
            name: "two nodes",
            workflow: REFUND_AND_TELL,
            input: order(ORDER),
            switches: Vec::new(),
            effects: &[("refund", 1), ("message", 1)],
            ..plain
        },
        Scene {
            name: "a graph",
            workflow: GRAPH,
            input: graph_input(2),
            switches: Vec::new(),
            effects: &[("refund", 4)],
            ..plain
        },
        Scene {
            name: "a child",
            workflow: BUNDLE,
            input: families::bundle(ORDER, &families::parcel(ORDER)),
            switches: Vec::new(),
            effects: &[("refund", 1)],
            ..plain
        },
        Scene {
            name: "neither key nor lookup",
            workflow: SCRIPTED,
            input: script(ORDER, &json!([mail])),
            switches: Vec::new(),
            effects: &[],
            ..plain
        },
        plain,
    ]
}

#[test]
fn each_boundary_of_each_workflow_under_each_blow() {
    let provider = Provider::start();
    let template = shop(&provider);
    let scenes = scenes();
    let mut jobs = Vec::new();
    for scene in &scenes {
        for boundary in Boundary::ALL {
            for time in [1, 2] {
                // A process that is stopped while another of its steps writes holds the SQLite file itself; frozen workers of
                // graphs are a matter of the worlds.
                let blows: &[Blow] = if scene.workflow == GRAPH {
                    &[Blow::Kill]
                } else {
                    &[Blow::Kill, Blow::Freeze]
                };
                for blow in blows.iter().copied() {
                    let name = format!("{}, {}:{time}, {blow:?}", scene.name, boundary.as_str());
                    jobs.push((name, (scene, boundary, time, blow)));
                }
            }
        }
    }
    let all = jobs.len();
    let reached = Mutex::new(Vec::new());
    let held = AtomicUsize::new(0);
    for_each(jobs, AT_A_TIME, |(scene, boundary, time, blow)| {
        let at = format!("{}:{time}", boundary.as_str());
        if strike(&template, scene, &at, blow, &held) {
            reached.lock().unwrap().push((boundary, time));
        }
    });
    let reached = reached.into_inner().unwrap();
    let held = held.into_inner();
    println!(
        "{all} combinations, {} of them reached their boundary, {held} held the file",
        reached.len()
    );
    assert!(
        held * 4 < reached.len(),
        "a run is hardly ever taken over: {held} of {}",
        reached.len()
    );
    let first: BTreeSet<Boundary> = reached.iter().map(|(boundary, _)| *boundary).collect();
    let never: Vec<_> = Boundary::ALL.into_iter().filter(|b| !first.contains(b)).collect();
    assert!(never.is_empty(), "no workflow here reaches {never:?}");
    let second = reached.iter().filter(|(_, time)| *time == 2).count();
    assert!(second > 0, "no boundary is ever passed twice");
}

/// Plays one combination to its end. Tells whether the worker came to the boundary at all.
fn strike(template: &Project, scene: &Scene, at: &str, blow: Blow, held: &AtomicUsize) -> bool {
    let provider = Provider::start();
    provider.switch(scene.switches.clone());
    let project = template.copy().at(&provider);
    let mut args = start(scene.workflow, &scene.input, RUN);
    if let Some(place) = scene.orphaned {
        let orphaned = project.spawn(&args, &[("TWICE_TEST_KILL", place)]).finish();
        assert_eq!(orphaned.code, None, "{orphaned}");
        args = ["runs", "resume", RUN].map(str::to_owned).to_vec();
    }
    let reached = match blow {
        Blow::Kill => {
            let worker = project.spawn(&args, &[("TWICE_TEST_KILL", at)]).finish();
            worker.code.is_none()
        }
        Blow::Freeze => {
            let mut worker = project.spawn(&args, &[("TWICE_TEST_STOP", at)]);
            let stopped = worker.wait_for_stop() == Halted::Stopped;
            if stopped {
                // One that is frozen while it happens to write holds the file until it wakes; then nobody can go on before.
                let ran = project.twice(&["runs", "resume", RUN, "--json"]);
                if is_held(&ran) {
                    held.fetch_add(1, Ordering::Relaxed);
                } else {
                    go_on(&project, &provider, &ran);
                }
                worker.go_on();
            }
            let zombie = worker.finish();
            assert!(matches!(zombie.code, Some(0 | 4)), "{zombie}");
            stopped
        }
    };
    complete(&project, &provider);
    check_books(&project, &provider, scene);
    check_resumed_again(&project, &provider, RUN);
    reached
}

/// The ledger and the provider's own books tell the same.
fn check_books(project: &Project, provider: &Provider, scene: &Scene) {
    let counted = provider.counters();
    let mail = counted.operations.get("message").cloned().unwrap_or_default();
    if scene.effects.is_empty() {
        // Without key and lookup nobody can tell but a person, who found here what the mail service did.
        check_ended_well(project, RUN);
        let effects = project.effects(RUN);
        let state = if mail.effects == 1 { "CONFIRMED" } else { "FAILED" };
        assert_eq!((effects.len(), &effects[0]["state"]), (1, &json!(state)), "{effects:#?}");
        assert!(mail.requests <= 1 && mail.effects <= 1, "{mail:?}");
        return;
    }
    check_settled(project, RUN);
    for (operation, effects) in scene.effects {
        let operation = &counted.operations[*operation];
        assert_eq!((operation.effects, operation.duplicates), (*effects, 0), "{operation:?}");
        assert_eq!(operation.requests_without_key, 0, "{operation:?}");
    }
}

/// Resumes until the run is done, deciding what only a person can by what the provider's own books say.
fn complete(project: &Project, provider: &Provider) {
    let ran = project.twice(&["runs", "resume", RUN, "--json"]);
    go_on(project, provider, &ran);
}

/// Whether another process held the ledger's file all the time.
fn is_held(ran: &Ran) -> bool {
    ran.code == Some(1) && ran.stderr.contains("database is locked")
}

fn go_on(project: &Project, provider: &Provider, ran: &Ran) {
    match ran.code {
        Some(0) => {}
        Some(4) if ran.json()["state"] == "halted" => {
            decide(project, provider);
            project.ok(&["runs", "resume", RUN]);
        }
        _ => panic!("{ran}"),
    }
}

fn decide(project: &Project, provider: &Provider) {
    let unknown = project.json(&["effects", "list", "--unknown"]);
    let id = unknown[0]["effect_id"].as_str().unwrap();
    let sent = provider.counters().operations.get("message").is_some_and(|mail| mail.effects > 0);
    let evidence = ["--evidence", "the mail service's own log"];
    let finding: &[&str] = if sent {
        &["--confirmed", "--receipt", r#"{"id":"msg_1"}"#, "--external-id", "msg_1"]
    } else {
        &["--failed"]
    };
    let decided: Ran = project.twice(&[&["effects", "resolve", id], finding, &evidence].concat());
    assert_eq!(decided.code, Some(0), "{decided}");
}
