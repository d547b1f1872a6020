//! The example sagas going forward, against three services that are processes with books of their own: what the ledger says
//! and what the books say is compared after each run.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use twice::engine::boundary::Boundary;
use twice_provider_sim::{Fault, Object, Switch};
use twice_tests::project::{Project, Ran, for_each};
use twice_tests::saga::{Asked, Books, Fate, Kept, ORDER, Saga, Services, TRIP, books, compare};
use twice_workflow::files::DiskFiles;

use super::shop::TWICE;

pub(super) const RUN: &str = "run-1";
pub(super) const AT_A_TIME: usize = 3;

/// The effects of an order, in the order in which they are asked for.
pub(super) const OF_ORDER: [&str; 4] =
    ["inventory.reserve", "payments.authorize", "shipments.create", "payments.capture"];
/// The effects of a trip, of which the first three are asked for at once.
pub(super) const OF_TRIP: [&str; 4] = ["flights.book", "hotels.book", "cars.book", "mail.send"];

/// The path of a capture.
pub(super) const CAPTURE: &str = "/v1/authorizations/{id}/capture";

/// These effects with these fates.
pub(super) fn fates<const N: usize>(effects: [&str; N], fates: [Fate; N]) -> Books {
    effects.map(str::to_owned).into_iter().zip(fates).collect()
}

/// The carrier refuses every shipment for good.
pub(super) fn address_unknown() -> Switch {
    let refusal = json!({ "code": "address_unknown", "message": "there is no such street" });
    Switch::new(Fault::Refuse).path("/v1/shipments").value(refusal)
}

/// One run of a saga, in a project and with services of its own.
pub(super) struct Stage {
    pub(super) saga: Saga,
    pub(super) services: Services,
    pub(super) project: Project,
}

impl Stage {
    pub(super) fn of(saga: Saga, template: &Project) -> Self {
        let services = Services::start(TWICE, &saga);
        let project = services.serve(template.copy());
        Self { saga, services, project }
    }

    /// Starts the run and stays with it.
    pub(super) fn run(&self) -> Ran {
        self.project.twice(&self.saga.start(RUN))
    }

    /// Starts the run in a worker that dies when it passes a boundary for the so-manieth time. Tells whether it did.
    pub(super) fn run_and_kill(&self, boundary: Boundary, time: u32) -> bool {
        let at = format!("{}:{time}", boundary.as_str());
        let started = self.project.spawn(&self.saga.start(RUN), &[("TWICE_TEST_KILL", &at)]);
        started.finish().code.is_none()
    }

    /// Goes on with the run.
    pub(super) fn resume(&self) -> Ran {
        self.project.twice(&["runs", "resume", RUN, "--json"])
    }

    /// Starts the run, and leaves it when it has to wait.
    #[track_caller]
    pub(super) fn run_and_wait(&self) {
        let args = [self.saga.start(RUN), ["--wait", "1"].map(str::to_owned).to_vec()].concat();
        let ran = self.project.twice(&args);
        assert_eq!(ran.code, Some(4), "{ran}");
    }

    /// Goes on with the run, and leaves it when it has to wait.
    #[track_caller]
    pub(super) fn resume_and_wait(&self) {
        let ran = self.project.twice(&["runs", "resume", RUN, "--wait", "1"]);
        assert_eq!(ran.code, Some(4), "{ran}");
    }

    /// The run goes as far as a request for this path of a service, which does what is asked; the answer is lost, and with it
    /// the worker. The next one cannot find out what became of it, and waits, until the switches of the service are changed.
    #[track_caller]
    pub(super) fn run_until_nobody_knows(&self, tool: &str, path: &str) {
        let dropped = Switch::new(Fault::CommitThenDrop).path(path).times(1);
        self.services.switch(tool, &[dropped]);
        assert!(self.run_and_kill(Boundary::BeforeLookup, 1), "nothing is unknown");
        let deaf = Switch::new(Fault::Status).value(503).path(path);
        self.services.switch(tool, &[Switch::new(Fault::LookupError), deaf]);
        self.resume_and_wait();
    }

    /// The run is in this state, its chain holds, and the books say the same as the ledger.
    #[track_caller]
    pub(super) fn check(&self, state: &str, wanted: &Books) {
        let shown = self.project.run(RUN);
        assert_eq!(shown["run"]["state"], state, "{shown:#}");
        assert_eq!(shown["chain"], "holds", "{shown:#}");
        match books(&self.project, &self.services, RUN) {
            Ok(found) => assert_eq!(&found, wanted, "{shown:#}"),
            Err(difference) => panic!("{difference}\n{shown:#}"),
        }
    }

    /// The services got all requests for each of these operations before any for the next.
    #[track_caller]
    pub(super) fn check_order(&self, operations: &[&str]) {
        let log = self.services.log();
        let is = |operation: &str| {
            let operation = operation.to_owned();
            move |asked: &&Asked| asked.request.operation == operation
        };
        for pair in operations.windows(2) {
            let [before, after] = [pair[0], pair[1]];
            let last = log.iter().rev().find(is(before));
            let last = last.unwrap_or_else(|| panic!("no {before}: {log:#?}"));
            let first = log.iter().find(is(after));
            let first = first.unwrap_or_else(|| panic!("no {after}: {log:#?}"));
            // The numbers are those of one service; between two, there is only the time.
            let in_order = if last.service == first.service {
                last.request.seq < first.request.seq
            } else {
                last.request.at_ms <= first.request.at_ms
            };
            assert!(in_order, "{after} before the last {before}: {log:#?}");
        }
    }

    /// Resumes the run, which is over, and nothing comes of it: no entry, no request.
    #[track_caller]
    pub(super) fn check_resumed_again(&self) {
        let now = || (self.project.run(RUN), self.services.counters());
        let before = now();
        let ran = self.resume();
        assert!(matches!(ran.code, Some(0 | 3 | 4)), "{ran}");
        assert_eq!(now(), before, "{ran}");
    }
}

#[test]
fn the_files_of_both_sagas_are_sound() {
    for saga in [ORDER, TRIP] {
        let root = twice_tests::nodes::repository().join("nodes").join(saga.folder);
        let loaded = twice_workflow::Project::load(&DiskFiles { root });
        let project = loaded.unwrap_or_else(|found| panic!("{}: {found:#?}", saga.folder));
        assert_eq!(project.warnings, [], "{}", saga.folder);
        let nodes = project.workflows.values().flat_map(|workflow| &workflow.nodes);
        let mut named: Vec<&str> = nodes.map(|node| node.component.as_str()).collect();
        named.sort_unstable();
        let mut known = saga.nodes.to_vec();
        known.sort_unstable();
        assert_eq!(named, known, "{}", saga.folder);
    }
}

#[test]
fn an_order_holds_the_money_until_it_is_taken() {
    let stage = Stage::of(ORDER, &ORDER.project_without_undoing(TWICE));
    let ran = stage.run();
    assert_eq!(ran.code, Some(0), "{ran}");
    stage.check("completed", &fates(OF_ORDER, [Fate::Stands; 4]));
    stage.check_order(&["reservation", "authorization", "shipment", "capture"]);
    let objects = stage.services.objects();
    let status = |operation: &str| {
        let kept = objects.iter().find(|kept| kept.object.operation == operation).unwrap();
        kept.object.status.clone().unwrap()
    };
    assert_eq!(
        ["reservation", "authorization", "shipment"].map(status),
        ["reserved", "captured", "shipped"]
    );
}

#[test]
fn a_saga_is_carried_out_whenever_its_worker_dies() {
    for (saga, effects) in [(ORDER, OF_ORDER), (TRIP, OF_TRIP)] {
        let template = saga.project_without_undoing(TWICE);
        let places = Boundary::ALL.into_iter().flat_map(|at| (1..=4).map(move |time| (at, time)));
        let named = |(at, time): (Boundary, u32)| (format!("{}:{time}", at.as_str()), (at, time));
        let killed = AtomicUsize::new(0);
        for_each(places.map(named).collect(), AT_A_TIME, |(boundary, time)| {
            let stage = Stage::of(saga, &template);
            killed.fetch_add(usize::from(stage.run_and_kill(boundary, time)), Ordering::Relaxed);
            let ran = stage.resume();
            assert_eq!(ran.code, Some(0), "{ran}");
            stage.check("completed", &fates(effects, [Fate::Stands; 4]));
            stage.check_resumed_again();
        });
        let killed = killed.into_inner();
        println!("{}: {killed} workers were killed", saga.workflow);
        // Four requests, answers and steps; and the run is claimed, and ends, once.
        assert!(killed >= 4 * 4, "only {killed} workers came to where they were to die");
    }
}

#[test]
fn a_refused_shipment_ends_the_order_with_the_carriers_word_for_why() {
    let stage = Stage::of(ORDER, &ORDER.project_without_undoing(TWICE));
    stage.services.switch("shipments", &[address_unknown()]);
    let ran = stage.run();
    assert_eq!(ran.code, Some(3), "{ran}");
    let reason = stage.project.run(RUN)["run"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("the carrier does not take order-42 (address_unknown)"), "{reason}");
    let three = [OF_ORDER[0], OF_ORDER[1], OF_ORDER[2]];
    stage.check("failed", &fates(three, [Fate::Stands, Fate::Stands, Fate::Failed]));
    assert_eq!(stage.services.requests("capture"), 0);
}

#[test]
fn an_order_of_which_something_is_unknown_goes_on_when_it_is_known() {
    let template = ORDER.project_without_undoing(TWICE);
    let all = fates(OF_ORDER, [Fate::Stands; 4]);
    for (path, next) in [("/v1/authorizations", Some("shipment")), (CAPTURE, None)] {
        let stage = Stage::of(ORDER, &template);
        stage.run_until_nobody_knows("payments", path);
        if let Some(operation) = next {
            assert_eq!(stage.services.requests(operation), 0, "{operation} before it is known");
        }
        stage.services.switch("payments", &[]);
        let ran = stage.resume();
        assert_eq!(ran.code, Some(0), "{path}: {ran}");
        stage.check("completed", &all);
        stage.check_order(&["authorization", "shipment", "capture"]);
        stage.check_resumed_again();
    }

    let stage = Stage::of(ORDER, &template);
    let deaf = Switch::new(Fault::DropBeforeCommit).path(CAPTURE);
    stage.services.switch("payments", &[deaf, Switch::new(Fault::LookupError)]);
    stage.run_and_wait();
    stage.services.switch("payments", &[]);
    let ran = stage.resume();
    assert_eq!(ran.code, Some(0), "{ran}");
    stage.check("completed", &all);
}

#[test]
fn a_trip_is_booked_side_by_side_and_confirmed_or_not_at_all() {
    let template = TRIP.project_without_undoing(TWICE);
    let stage = Stage::of(TRIP, &template);
    let ran = stage.run();
    assert_eq!(ran.code, Some(0), "{ran}");
    stage.check("completed", &fates(OF_TRIP, [Fate::Stands; 4]));
    let log = stage.services.log();
    assert_eq!(log.last().unwrap().request.operation, "message", "{log:#?}");

    let refused = Stage::of(TRIP, &template);
    refused.services.switch("cars", &[Switch::new(Fault::Refuse).value("no_car_left")]);
    let ran = refused.run();
    assert_eq!(ran.code, Some(3), "{ran}");
    let reason = refused.project.run(RUN)["run"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("`book` failed with no_car_left"), "{reason}");
    let three = [OF_TRIP[0], OF_TRIP[1], OF_TRIP[2]];
    refused.check("failed", &fates(three, [Fate::Stands, Fate::Stands, Fate::Failed]));
    assert_eq!(refused.services.requests("message"), 0);
}

#[test]
fn books_that_tell_otherwise_than_the_ledger_are_noticed() {
    let template = ORDER.project_without_undoing(TWICE);
    for (tool, path, reference, difference) in [
        ("inventory", "/v1/reservations/res_000001/release", None, "the ledger knows nothing of"),
        ("shipments", "/v1/shipments", Some("shipment"), "something is there twice"),
        (
            "shipments",
            "/v1/shipments/shp_000001/cancel",
            Some("authorization"),
            "payments.authorize is CONFIRMED, and in the books there is",
        ),
    ] {
        let stage = Stage::of(ORDER, &template);
        let ran = stage.run();
        assert_eq!(ran.code, Some(0), "{ran}");
        let objects = stage.services.objects();
        let of = |operation: &str| {
            let kept = objects.iter().find(|kept| kept.object.operation == operation);
            kept.unwrap().object.reference.clone().unwrap()
        };
        let reference = reference.map_or_else(|| "eff_stranger".to_owned(), of);
        let body = json!({ "order_id": "order-42", "reference": reference });
        stage.services.interfere(tool, path, &body);
        let found = books(&stage.project, &stage.services, RUN).unwrap_err();
        assert!(found.contains(difference), "{found}");
    }
}

/// An effect as it is listed: of an order's authorization, or of its void.
fn listed(state: &str, external_id: Option<&str>, undoes: Option<&str>) -> Value {
    let (id, kind, key) = match undoes {
        None => ("eff_1", "payments.authorize", "authorize/run-1/order-42/order"),
        Some(_) => ("eff_2", "payments.void", "authorize/run-1/order-42/order/comp/payments.void"),
    };
    json!({
        "effect_id": id, "type": kind, "idempotency_key": key, "state": state,
        "external_id": external_id, "undoes": undoes,
    })
}

fn kept(operation: &str, id: &str, object: &str, status: &str, changed_by: Option<&str>) -> Kept {
    let reference = if operation == "authorization" { "eff_1" } else { "eff_2" };
    let object = Object {
        seq: 1,
        id: id.to_owned(),
        operation: operation.to_owned(),
        object: object.to_owned(),
        reference: Some(reference.to_owned()),
        idempotency_key: None,
        status: Some(status.to_owned()),
        changed_by: changed_by.map(str::to_owned),
    };
    Kept { service: "payments", object }
}

#[track_caller]
fn told(effects: &[&Value], objects: &[&Kept], wanted: Result<Fate, &str>) {
    let objects = objects.iter().map(|kept| (*kept).clone()).collect();
    match (compare(&json!(effects), objects), wanted) {
        (Ok(found), Ok(fate)) => assert_eq!(found, fates(["payments.authorize"], [fate])),
        (Err(found), Err(difference)) => assert!(found.contains(difference), "{found}"),
        (found, wanted) => panic!("{found:?}, not {wanted:?}"),
    }
}

#[test]
fn what_is_undone_must_be_undone_in_both_accounts() {
    let made = listed("CONFIRMED", Some("auth_1"), None);
    let failed = listed("FAILED", None, None);
    let undo = listed("CONFIRMED", Some("void_1"), Some("eff_1"));
    let refused = listed("FAILED", None, Some("eff_1"));
    let authorized = kept("authorization", "auth_1", "order-42", "authorized", None);
    let voided = kept("authorization", "auth_1", "order-42", "voided", Some("void_1"));
    let voided_by_another = kept("authorization", "auth_1", "order-42", "voided", Some("void_2"));
    let void = kept("void", "void_1", "auth_1", "succeeded", None);

    told(&[&made], &[&authorized], Ok(Fate::Stands));
    told(&[&failed], &[], Ok(Fate::Failed));
    told(&[&made, &undo], &[&voided, &void], Ok(Fate::Undone));
    told(&[&made, &refused], &[&authorized], Ok(Fate::NotUndone));

    told(&[&made], &[], Err("is CONFIRMED, and in the books there is []"));
    told(&[&failed], &[&authorized], Err("is FAILED, and in the books there is"));
    told(&[&made], &[&voided_by_another], Err("stands, and was changed"));
    told(&[&made, &undo], &[&authorized, &void], Err("is undone by"));
    told(&[&made, &undo], &[&voided_by_another, &void], Err("is undone by"));
    told(
        &[&made, &undo],
        &[&voided],
        Err("payments.void is CONFIRMED, and in the books there is []"),
    );
    told(&[&made, &refused], &[&voided, &void], Err("payments.void is FAILED, and in the books"));
    told(&[&made, &undo, &undo], &[&voided, &void], Err("undone more than once"));
    told(&[&failed, &refused], &[], Err("did not happen, and is undone"));
    told(&[&made], &[&voided, &void], Err("the ledger knows nothing of"));
    let mut unknown = made.clone();
    unknown["state"] = json!("UNKNOWN");
    told(&[&unknown], &[&authorized], Err("is UNKNOWN"));
    let mut rekeyed = undo.clone();
    rekeyed["idempotency_key"] = json!("void/run-1/order-42/order");
    told(&[&made, &rekeyed], &[&voided, &void], Err("under void/run-1/order-42/order, not"));
}
