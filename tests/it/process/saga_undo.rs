//! The example sagas when something is refused, cancelled or cut off: what happened is undone, once, and the books of the
//! services say so.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use twice::engine::boundary::Boundary;
use twice_provider_sim::{Fault, Switch};
use twice_tests::project::{Ran, for_each};
use twice_tests::saga::{Fate, ORDER, TRIP, books};

use super::saga::{AT_A_TIME, CAPTURE, OF_ORDER, OF_TRIP, RUN, Stage, address_unknown, fates};
use super::shop::TWICE;

/// What is asked for of an order that is not shipped.
const UNSHIPPED: [&str; 3] = [OF_ORDER[0], OF_ORDER[1], OF_ORDER[2]];
/// The fates of these.
const ALL_UNDONE: [Fate; 3] = [Fate::Undone, Fate::Undone, Fate::Failed];
/// Boundaries are passed for the first times while the order goes forward (reserve, authorize, and for the third time ship,
/// which is refused), and for these last ones while it is undone.
const PASSINGS: [u32; 4] = [1, 2, 4, 5];
const VOID: &str = "/v1/authorizations/{id}/void";
const RELEASE: &str = "/v1/reservations/{id}/release";

/// A person calls the run off.
fn cancel(stage: &Stage) -> Ran {
    stage.project.twice(&["runs", "cancel", RUN, "--reason", "the customer changed her mind"])
}

/// A person called the run off while it is not known whether an effect happened: nothing is undone.
#[track_caller]
fn check_nothing_is_undone(stage: &Stage) {
    for undo in ["cancel_shipment", "void", "release"] {
        assert_eq!(stage.services.requests(undo), 0, "undone while nobody knows: {undo}");
    }
}

#[test]
fn the_projects_pass_the_check() {
    for saga in [ORDER, TRIP] {
        let said = saga.project(TWICE).twice(&["check"]);
        assert_eq!(said.code, Some(0), "{said}");
        assert!(!said.stdout.contains("warning") && !said.stderr.contains("warning"), "{said}");
    }
}

#[test]
fn an_order_that_cannot_be_shipped_is_undone_whenever_its_worker_dies() {
    let template = ORDER.project(TWICE);
    let mut jobs = Vec::new();
    for boundary in Boundary::ALL {
        for time in PASSINGS {
            for second in [None, Some("after-requested-commit:1"), Some("after-reply:1")] {
                let name = format!("{}:{time}, then {second:?}", boundary.as_str());
                jobs.push((name, (boundary, time, second)));
            }
        }
    }
    let killed = AtomicUsize::new(0);
    for_each(jobs, AT_A_TIME, |(boundary, time, second)| {
        let stage = Stage::of(ORDER, &template);
        stage.services.switch("shipments", &[address_unknown()]);
        killed.fetch_add(usize::from(stage.run_and_kill(boundary, time)), Ordering::Relaxed);
        if let Some(second) = second {
            // Where the first worker came far enough, there is nothing left for this one to die of.
            let resumed = ["runs", "resume", RUN];
            let _ = stage.project.spawn(&resumed, &[("TWICE_TEST_KILL", second)]).finish();
        }
        let ran = stage.resume();
        assert_eq!(ran.code, Some(3), "{ran}");
        stage.check("failed", &fates(UNSHIPPED, ALL_UNDONE));
        stage.check_order(&["reservation", "authorization", "shipment", "void", "release"]);
        stage.check_resumed_again();
    });
    let killed = killed.into_inner();
    println!("{killed} workers were killed");
    assert!(killed >= 30, "only {killed} workers came to where they were to die");
}

#[test]
fn a_capture_that_is_declined_undoes_the_shipment_as_well() {
    let stage = Stage::of(ORDER, &ORDER.project(TWICE));
    stage.services.switch("payments", &[Switch::new(Fault::Decline402).path(CAPTURE)]);
    let ran = stage.run();
    assert_eq!(ran.code, Some(3), "{ran}");
    stage.check(
        "failed",
        &fates(OF_ORDER, [Fate::Undone, Fate::Undone, Fate::Undone, Fate::Failed]),
    );
    stage.check_order(&["capture", "cancel_shipment", "void", "release"]);
    stage.check_resumed_again();
}

#[test]
fn an_unknown_authorization_is_explained_before_anything_is_undone() {
    let stage = Stage::of(ORDER, &ORDER.project(TWICE));
    stage.run_until_nobody_knows("payments", "/v1/authorizations");
    cancel(&stage);
    stage.resume_and_wait();
    check_nothing_is_undone(&stage);

    stage.services.switch("payments", &[]);
    stage.resume();
    stage.check("cancelled", &fates([OF_ORDER[0], OF_ORDER[1]], [Fate::Undone, Fate::Undone]));
    stage.check_order(&["authorization_lookup", "void", "release"]);
    stage.check_resumed_again();
}

#[test]
fn an_undo_whose_answer_is_lost_is_looked_up_and_not_repeated() {
    for path in [VOID, RELEASE] {
        let stage = Stage::of(ORDER, &ORDER.project(TWICE));
        let tool = if path == VOID { "payments" } else { "inventory" };
        stage.services.switch("shipments", &[address_unknown()]);
        let dropped = Switch::new(Fault::CommitThenDrop).path(path).times(1);
        stage.services.switch(tool, &[dropped, Switch::new(Fault::LookupError).times(1)]);
        let ran = stage.run();
        assert_eq!(ran.code, Some(3), "{ran}");
        stage.check("failed", &fates(UNSHIPPED, ALL_UNDONE));
        stage.check_resumed_again();
    }
}

#[test]
fn an_undo_that_is_refused_for_good_leaves_the_run_stuck() {
    let stage = Stage::of(ORDER, &ORDER.project(TWICE));
    stage.services.switch("shipments", &[address_unknown()]);
    let refused = Switch::new(Fault::Refuse).path(RELEASE).value("already_packed");
    stage.services.switch("inventory", &[refused]);
    let ran = stage.run();
    assert_eq!(ran.code, Some(4), "{ran}");
    stage.check("stuck", &fates(UNSHIPPED, [Fate::NotUndone, Fate::Undone, Fate::Failed]));
    let reason = stage.project.run(RUN)["run"]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("inventory.release"), "it does not say what is stuck: {reason}");
    assert!(reason.contains("already_packed"), "it does not say why: {reason}");
    stage.check_resumed_again();

    let key = "reserve/run-1/order-42/order";
    check_drawn(&stage, &["! reserve  stuck", &format!("stuck at {key}"), "↺ authorize  undone"]);
    check_drawn(&stage, &["✗ ship  failed", "○ capture  not reached"]);
    let drawn = stage.project.json(&["graph", "order", "--run", RUN]);
    let undoing = |at: usize| drawn["nodes"][at]["progress"]["undoing"].clone();
    assert_eq!(
        undoing(0),
        json!({ "effects": 1, "undone": 0, "settled": 0, "open": 0, "stuck": [key] })
    );
    assert_eq!(
        undoing(1),
        json!({ "effects": 1, "undone": 1, "settled": 0, "open": 0, "stuck": [] })
    );
    assert_eq!(undoing(2), Value::Null);
    let listed = stage.project.json(&["effects", "list", "--run", RUN]);
    let listed = listed.as_array().unwrap().iter();
    let undoing: Vec<Value> = listed.map(|effect| effect["undoing"].clone()).collect();
    let (asked, undos) = undoing.split_at(3);
    assert_eq!(asked, [json!("stuck"), json!("undone"), Value::Null]);
    assert!(undos.iter().all(Value::is_null), "an undo is not undone: {undos:?}");
    let listed = stage.project.ok(&["effects", "list", "--run", RUN]);
    assert!(listed.contains("could not be undone"), "{listed}");
    let steps = stage.project.run(RUN)["run"]["steps"].clone();
    let steps = steps.as_array().unwrap().iter().map(|step| step["node"].as_str().unwrap());
    assert_eq!(steps.collect::<Vec<_>>(), ["reserve", "authorize", "ship"]);

    let project = &stage.project;
    let asked = project.effects(RUN);
    let about = |operation: &str| {
        let found = asked.iter().find(|effect| effect["type"] == operation);
        found.unwrap()["effect_id"].as_str().unwrap().to_owned()
    };
    let (stuck_at, other) = (about("inventory.reserve"), about("payments.authorize"));
    let wrong =
        project.twice(&["runs", "resolve", RUN, "--effect", &other, "--reason", "by mistake"]);
    assert_eq!(wrong.code, Some(1), "{wrong}");
    assert!(wrong.stderr.contains(&stuck_at), "it does not say what it is stuck at: {wrong}");
    let beginning = &stuck_at[..16];
    project.ok(&[
        "runs",
        "resolve",
        RUN,
        "--effect",
        beginning,
        "--by",
        "ada",
        "--reason",
        "unpacked by hand",
    ]);
    let ended = project.twice(&["runs", "resume", RUN]);
    assert!(ended.stdout.contains("1 effect(s) undone, 1 settled by a person"), "{ended}");
    let listed = project.json(&["effects", "list", "--run", RUN]);
    let word = |id: &str| {
        let listed = listed.as_array().unwrap().iter();
        listed.clone().find(|effect| effect["effect_id"] == id).unwrap()["undoing"].clone()
    };
    assert_eq!((word(&stuck_at), word(&other)), (json!("settled"), json!("undone")));
    check_drawn(&stage, &["0 of 1 effect undone, 1 settled by a person"]);
    let settled = &project.json(&["effects", "show", &stuck_at])["decisions"];
    assert_eq!(
        (&settled[0]["who"], &settled[0]["why"]),
        (&json!("ada"), &json!("unpacked by hand"))
    );
    let shown = project.ok(&["effects", "show", &stuck_at]);
    assert!(shown.contains("unpacked by hand"), "{shown}");
}

/// What `twice graph` draws of the run has these in it.
#[track_caller]
fn check_drawn(stage: &Stage, wanted: &[&str]) {
    let drawn = stage.project.ok(&["graph", stage.saga.workflow, "--run", RUN]);
    for wanted in wanted {
        assert!(drawn.contains(wanted), "no `{wanted}`: {drawn}");
    }
}

#[test]
fn a_run_that_is_undone_shows_it() {
    let stage = Stage::of(ORDER, &ORDER.project(TWICE));
    // Booked, and killed before the node could return: then the run is called off.
    assert!(stage.run_and_kill(Boundary::BeforeCheckpoint, 2), "nobody died");
    cancel(&stage);
    stage.resume();
    stage.check("cancelled", &fates([OF_ORDER[0], OF_ORDER[1]], [Fate::Undone, Fate::Undone]));
    check_drawn(&stage, &["↺ reserve  undone", "↺ authorize  undone", "○ ship  not reached"]);
}

#[test]
fn behind_the_pivot_nothing_is_undone() {
    let template = ORDER.project(TWICE);
    let all = fates(OF_ORDER, [Fate::Stands; 4]);
    // The fourth answer is that of the capture, and the fourth checkpoint the one behind it.
    for boundary in [Boundary::AfterReply, Boundary::BeforeCheckpoint] {
        let stage = Stage::of(ORDER, &template);
        assert!(stage.run_and_kill(boundary, 4), "{}", boundary.as_str());
        // Refused or not, it comes too late.
        cancel(&stage);
        let ran = stage.resume();
        assert_eq!(ran.code, Some(0), "{}: {ran}", boundary.as_str());
        stage.check("completed", &all);
    }
}

#[test]
fn a_pivot_of_which_nobody_knows_is_explained_before_anything_is_undone() {
    let template = ORDER.project(TWICE);
    let stage = Stage::of(ORDER, &template);
    stage.run_until_nobody_knows("payments", CAPTURE);
    cancel(&stage);
    stage.resume_and_wait();
    check_nothing_is_undone(&stage);
    stage.services.switch("payments", &[]);
    let ran = stage.resume();
    assert_eq!(ran.code, Some(0), "{ran}");
    stage.check("completed", &fates(OF_ORDER, [Fate::Stands; 4]));
    stage.check_resumed_again();

    // One that never arrived may be sent again under its key, or be proven absent: the run goes on, or back, as a whole.
    let stage = Stage::of(ORDER, &template);
    let deaf = Switch::new(Fault::DropBeforeCommit).path(CAPTURE);
    stage.services.switch("payments", &[deaf, Switch::new(Fault::LookupError)]);
    stage.run_and_wait();
    cancel(&stage);
    stage.resume_and_wait();
    check_nothing_is_undone(&stage);
    stage.services.switch("payments", &[]);
    if stage.resume().code == Some(0) {
        stage.check("completed", &fates(OF_ORDER, [Fate::Stands; 4]));
    } else {
        let undone = [Fate::Undone, Fate::Undone, Fate::Undone, Fate::Failed];
        stage.check("cancelled", &fates(OF_ORDER, undone));
    }
    stage.check_resumed_again();
}

/// What is asked for of a trip that is not booked as a whole.
const UNCONFIRMED: [&str; 3] = [OF_TRIP[0], OF_TRIP[1], OF_TRIP[2]];

#[test]
fn a_trip_without_a_car_is_cancelled_whenever_its_worker_dies() {
    let template = TRIP.project(TWICE);
    let places =
        Boundary::ALL.into_iter().flat_map(|boundary| PASSINGS.map(|time| (boundary, time)));
    let jobs = places.map(|(at, time)| (format!("{}:{time}", at.as_str()), (at, time))).collect();
    for_each(jobs, AT_A_TIME, |(boundary, time)| {
        let stage = Stage::of(TRIP, &template);
        stage.services.switch("cars", &[Switch::new(Fault::Refuse).value("no_car_left")]);
        stage.run_and_kill(boundary, time);
        let ran = stage.resume();
        assert_eq!(ran.code, Some(3), "{ran}");
        // Where the refusal was written down before the others were asked for, or sent, they never are: nothing to undo.
        let mut found = books(&stage.project, &stage.services, RUN).unwrap();
        for other in [OF_TRIP[0], OF_TRIP[1]] {
            let fate = found.entry(other.to_owned()).or_insert(Fate::Undone);
            if *fate == Fate::Failed {
                *fate = Fate::Undone;
            }
        }
        assert_eq!(found, fates(UNCONFIRMED, ALL_UNDONE));
        assert_eq!(stage.project.run(RUN)["run"]["state"], "failed");
        assert_eq!(stage.services.requests("message"), 0);
        stage.check_resumed_again();
    });
}

#[test]
fn a_flight_of_which_nobody_knows_is_looked_up_before_it_is_cancelled() {
    let stage = Stage::of(TRIP, &TRIP.project(TWICE));
    stage.services.switch("cars", &[Switch::new(Fault::Refuse).value("no_car_left")]);
    let dropped =
        Switch::new(Fault::CommitThenDrop).path("/v1/trips/{trip}/bookings/flight").times(1);
    stage.services.switch("flights", &[dropped, Switch::new(Fault::LookupError).times(2)]);
    let ran = stage.run();
    assert_eq!(ran.code, Some(3), "{ran}");
    stage.check("failed", &fates(UNCONFIRMED, ALL_UNDONE));
    let log = stage.services.log();
    let of_flights = log.iter().filter(|asked| asked.service == "flights");
    let asked: Vec<&str> = of_flights.map(|asked| asked.request.operation.as_str()).collect();
    assert_eq!(asked.first(), Some(&"booking"), "{asked:?}");
    assert_eq!(asked.last(), Some(&"cancellation"), "{asked:?}");
    assert!(asked.contains(&"booking_lookup"), "{asked:?}");
}

#[test]
fn a_trip_that_is_called_off_while_it_waits_is_undone() {
    let stage = Stage::of(TRIP, &TRIP.project(TWICE));
    stage.services.switch("mail", &[Switch::new(Fault::Storm429).value(60).path("/v1/messages")]);
    stage.run_and_wait();
    cancel(&stage);
    stage.resume();
    let mut wanted = fates(UNCONFIRMED, [Fate::Undone; 3]);
    wanted.insert(OF_TRIP[3].to_owned(), Fate::Failed);
    stage.check("cancelled", &wanted);
    let effects = stage.project.json(&["effects", "list", "--run", RUN]);
    let undoes = |effect: &&Value| !effect["undoes"].is_null();
    assert_eq!(effects.as_array().unwrap().iter().filter(undoes).count(), 3, "{effects:#}");
}
