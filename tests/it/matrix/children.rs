//! Runs that start others: each is started once, whoever vanishes when; its end answers its effect, which is never unknown.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use twice::engine::NEEDS_PERSON;
use twice::engine::boundary::{Boundaries, Boundary};
use twice::engine::operator::{Decision, DecisionError, Finding};
use twice::engine::retry::Evidence;
use twice::engine::{RunEnd, StartRun, StartedRun};
use twice::worker::{self, Options};
use twice_core::effect::{Effect, State};
use twice_core::event::{Parent, RunEvent, Source};
use twice_core::run::{Priority, RunState};
use twice_ledger::{EffectFilter, LedgerError};
use twice_provider_sim::{Fault, Switch};
use twice_tests::families::{bundle, child_of, fan_out, one_parcel, parcel, parcels, setup, start};
use twice_tests::graphs::{each, named, refund, refund_of};
use twice_tests::host::{Host, Setup, Store, run_id};
use twice_tests::undoing::{happened_after_all, payments_and_back, undone_refund};

use super::run;
use super::tools::{Class, WINDOWS, payments};

const ORDER: &str = "order-1";

fn decision() -> Decision {
    Decision { who: "ada".to_owned(), why: "seen in the provider's console".to_owned() }
}

#[track_caller]
fn completed(end: RunEnd) -> Value {
    match end {
        RunEnd::Completed(output) => output,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn waits(end: RunEnd) -> String {
    match end {
        RunEnd::Waiting { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

/// No effect that this ledger settles is ever listed as unknown.
async fn check_listed(host: &Host) {
    let unknown = EffectFilter { state: Some(State::Unknown), ..EffectFilter::default() };
    let listed = host.ledger.effects(&unknown).await.unwrap();
    let ours = listed.iter().filter(|row| row.operation.starts_with("workflow."));
    assert_eq!(ours.count(), 0, "{listed:?}");
}

/// I3: no child was started that its parent has not asked for on record, wherever whoever vanished.
async fn check_requested(host: &Host, at: &str) {
    for child in host.children("run-1").await {
        let asked = child.parent.unwrap().effect;
        let effects = host.effects("run-1").await;
        let requested = effects.iter().find(|effect| effect.id == asked);
        assert!(requested.is_some_and(|effect| !effect.attempts.is_empty()), "{at}: {effects:?}");
    }
}

/// The only child of a run that sent one parcel is over, and did what it was asked for, once.
async fn check_one_parcel(host: &Host, at: &str) {
    let children = host.children("run-1").await;
    assert_eq!(children.len(), 1, "{at}: {children:?}");
    let child = &children[0];
    assert_eq!(child.state, RunState::Completed, "{at}");
    let effect = host.effect("run-1").await;
    assert_eq!(effect.state, State::Confirmed, "{at}");
    let receipt = effect.receipt.unwrap();
    assert_eq!(receipt.external_id.as_deref(), Some(child.id.as_str()), "{at}");
    assert_eq!(Some(&receipt.result), child.output.as_ref(), "{at}");
    assert_eq!(receipt.source, Source::Ledger { run: child.id.clone() }, "{at}");
    assert_eq!((receipt.attempts, effect.attempts.len()), (1, 1), "{at}");
    let counted = host.counted("refund").await;
    assert_eq!((counted.effects, counted.duplicates), (1, 0), "{at}: {counted:?}");
    host.history("run-1").await;
    host.history(child.id.as_str()).await;
    check_listed(host).await;
}

#[test]
fn a_child_is_started_once_and_its_output_is_the_receipt() {
    run(async {
        for store in [Store::Sqlite, Store::Memory] {
            let host = Host::start(one_parcel(Class::KeyLookup, WINDOWS).store(store)).await;
            let why = waits(host.run("run-1", bundle(ORDER, &parcel(ORDER))).await);
            let children = host.children("run-1").await;
            assert_eq!(children.len(), 1, "{store:?}");
            let child = &children[0];
            assert_eq!(why, format!("child run {} is not over; it is ready", child.id));
            assert!(child.id.as_str().starts_with("run-1.child."), "{}", child.id);
            let effect = host.effect("run-1").await;
            let parent = Parent { run: run_id("run-1"), effect: effect.id.clone() };
            assert_eq!(child.parent.as_ref(), Some(&parent), "{store:?}");
            let begun = host.run_events(child.id.as_str()).await;
            let said =
                matches!(&begun[0], RunEvent::Started { parent: Some(own), .. } if *own == parent);
            assert!(said, "{:?}", begun[0]);

            // Nobody holds the parent, and it is not unknown what became of what it asked for.
            host.outlive_lease().await;
            assert_eq!(host.listed("run-1").await[0].state, State::Requested, "{store:?}");
            check_listed(&host).await;
            let found = host.engine.resolve(&effect.id, Finding::Failed, &decision()).await;
            assert!(matches!(found, Err(DecisionError::NotNow { .. })), "{found:?}");
            // Looking again starts nothing.
            waits(host.resume("run-1").await);
            assert_eq!(host.children("run-1").await.len(), 1, "{store:?}");

            let output = completed(host.finish_family("run-1").await);
            let told = &output["notes"][0];
            assert_eq!(told["body"]["notes"][0]["body"]["amount_cents"], 100, "{output}");
            check_one_parcel(&host, "calm").await;
            let before = host.history("run-1").await.len();
            completed(host.resume("run-1").await);
            assert_eq!(host.history("run-1").await.len(), before, "{store:?}");
        }
    });
}

#[test]
fn the_parent_is_due_as_soon_as_its_child_is_over() {
    run(async {
        let host = Host::start(one_parcel(Class::KeyLookup, WINDOWS)).await;
        waits(host.run("run-1", bundle(ORDER, &parcel(ORDER))).await);
        // The longer it waits, the less often it looks.
        for _ in 0..3 {
            host.advance(200_000).await;
            waits(host.resume("run-1").await);
        }
        let waiting = host.ledger.run(&run_id("run-1")).await.unwrap().unwrap();
        let until = waiting.due_at.unwrap();
        assert!(until.ms_since(waiting.updated_at) > 50_000, "{waiting:?}");
        let taken = host.engine.resume_descendants(&run_id("run-1"), false).await.unwrap();
        assert_eq!(taken.taken, 1);
        completed(host.engine.resume(&run_id("run-1"), false).await.unwrap());
    });
}

#[test]
fn a_child_that_fails_is_an_effect_that_failed() {
    run(async {
        let host = Host::start(one_parcel(Class::KeyLookup, WINDOWS)).await;
        let mut fails = each(&[("pay", vec![json!({ "do": "fatal", "message": "no use" })])]);
        fails["order"] = json!(ORDER);
        let mut input = bundle(ORDER, &fails);
        input["nodes"]["send"][0]["must"] = json!(false);
        waits(host.run("run-1", input).await);
        let output = completed(host.finish_family("run-1").await);
        assert_eq!(output["notes"][0]["failed"], "child_failed", "{output}");
        let effect = host.effect("run-1").await;
        assert_eq!(effect.state, State::Failed);
        let failure = effect.failure.unwrap();
        assert!(failure.message.contains("node `pay` gave up: no use"), "{}", failure.message);
        let child = host.children("run-1").await.remove(0);
        assert_eq!(failure.source, Some(Source::Ledger { run: child.id }));
        check_listed(&host).await;
    });
}

#[test]
fn what_does_not_fit_the_child_starts_nothing() {
    run(async {
        let head = "input = { inline = { type = \"object\", required = [\"order\"] } }\n";
        let child = named("parcel", head, &[("pay", &refund_of("/input/order"))]);
        let slot = child_of("parcel", "/input/order");
        let files = [named("bundle", "", &[("send", &slot)]), child];
        let setup = Setup::new(&[&files[0], &files[1]]).tool(payments(Class::Key, WINDOWS));
        let host = Host::start(setup).await;
        let mut input = bundle(ORDER, &json!({ "orders": [] }));
        input["nodes"]["send"][0]["must"] = json!(false);
        let output = completed(host.run("run-1", input).await);
        assert_eq!(output["notes"][0]["denied"], "args", "{output}");
        assert!(host.children("run-1").await.is_empty() && host.effects("run-1").await.is_empty());
    });
}

#[test]
fn a_parent_says_which_child_needs_a_person() {
    run(async {
        // The grandchild is the one that nobody can settle but a person.
        let slot = |workflow: &str| child_of(workflow, "/input/order");
        let files = [
            named("bundle", "", &[("send", &slot("parcel"))]),
            named("parcel", "", &[("send", &slot("stamp"))]),
            named("stamp", "", &[("pay", &refund_of("/input/order"))]),
        ];
        let setup = Setup::new(&files.each_ref().map(String::as_str))
            .tool(payments(Class::Neither, WINDOWS))
            .switches([Switch::new(Fault::CommitThenDrop).times(1)]);
        let host = Host::start(setup).await;
        waits(host.run("run-1", bundle(ORDER, &bundle(ORDER, &parcel(ORDER)))).await);
        let why = waits(host.finish_family("run-1").await);
        let middle = host.children("run-1").await.remove(0);
        let stamp = host.children(middle.id.as_str()).await.remove(0);
        assert_eq!((middle.state, stamp.state), (RunState::Waiting, RunState::Halted));
        assert!(why.starts_with(NEEDS_PERSON), "{why}");
        assert!(why.contains(&format!("run {} of `stamp` is halted", stamp.id)), "{why}");

        let effect = host.effect(stamp.id.as_str()).await;
        let finding = Finding::Confirmed {
            result: json!({ "id": "re_1" }),
            external_id: Some("re_1".to_owned()),
        };
        host.engine.resolve(&effect.id, finding, &decision()).await.unwrap();
        completed(host.finish_family("run-1").await);
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

#[test]
fn a_fan_out_starts_a_child_for_each_element() {
    run(async {
        let (name, keys) = fan_out(4);
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, &[(name, &keys)])).await;
        waits(host.run("run-1", parcels(12)).await);
        assert_eq!(host.children("run-1").await.len(), 4, "as many at once as `parallel` says");
        let output = completed(host.finish_family("run-1").await);
        let told: Vec<&Value> =
            output.as_array().unwrap().iter().map(|o| &o["notes"][0]["element"]).collect();
        let orders: Vec<Value> = (0..12).map(|number| json!(format!("order-{number}"))).collect();
        assert_eq!(told, orders.iter().collect::<Vec<_>>());
        let children = host.children("run-1").await;
        assert_eq!(children.len(), 12);
        assert!(children.iter().all(|child| child.state == RunState::Completed));
        let counted = host.counted("refund").await;
        assert_eq!((counted.effects, counted.duplicates), (12, 0));
    });
}

/// `fail` gives up while the child of `send` has not even begun.
#[test]
fn a_run_that_fails_cancels_its_child_and_waits_until_that_is_over() {
    run(async {
        let slot = child_of("parcel", "/input/order");
        let nodes = [("send", slot.as_str()), ("fail", "after = []")];
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, &nodes)).await;
        let mut input = each(&[
            ("send", vec![start(&parcel(ORDER))]),
            ("fail", vec![json!({ "do": "fatal", "message": "no use" })]),
        ]);
        input["order"] = json!(ORDER);
        let why = waits(host.run("run-1", input).await);
        assert!(why.contains("is not over"), "{why}");
        let end = host.finish_family("run-1").await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("node `fail` gave up: no use"), "{why}");
        // It had not begun, so that nothing of it happens any more.
        let child = host.children("run-1").await.remove(0);
        assert_eq!(child.state, RunState::Cancelled, "{:?}", child.reason);
        assert_eq!(host.counted("refund").await.effects, 0);
        let effect = host.effect("run-1").await;
        let failure = effect.failure.as_ref().map(|failure| failure.code.as_str());
        assert_eq!((effect.state, failure), (State::Failed, Some("child_cancelled")));
    });
}

/// What was undone is nothing to go on from: the child of a run that is tried again stays failed.
#[test]
fn a_child_that_was_undone_is_not_gone_on_with() {
    run(async {
        let slot = child_of("parcel", "/input/order");
        let pay = undone_refund("/input/order", "", "");
        let child = named("parcel", "", &[("pay", &pay), ("last", "after = [\"pay\"]")]);
        let files = [named("bundle", "", &[("send", &slot)]), child];
        let tool = payments_and_back(Class::KeyLookup);
        let host = Host::start(Setup::new(&[&files[0], &files[1]]).tool(tool)).await;
        let fatal = json!({ "do": "fatal", "message": "no use" });
        let mut input = each(&[("pay", vec![refund(ORDER)]), ("last", vec![fatal])]);
        input["order"] = json!(ORDER);
        waits(host.run("run-1", bundle(ORDER, &input)).await);
        for retried in [false, true] {
            if retried {
                assert_eq!(
                    host.engine
                        .retry(&run_id("run-1"), Evidence::Heeded, &decision())
                        .await
                        .unwrap(),
                    1
                );
            }
            let end = host.finish_family("run-1").await;
            assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
            let child = host.children("run-1").await.remove(0);
            assert_eq!(child.state, RunState::Failed, "{:?}", child.reason);
            let (made, undone) =
                (host.counted("refund").await, host.counted("reverse_refund").await);
            assert_eq!((made.effects, undone.effects), (1, 1), "{made:?} {undone:?}");
        }
    });
}

/// What failed in a child, and happened after all by what came since: the order to try its parent again is no word about that.
#[test]
fn a_child_of_which_something_happened_after_all_is_not_tried_again() {
    run(async {
        let slot = child_of("parcel", "/input/order");
        let child = named("parcel", "", &[("pay", &refund_of("/input/order"))]);
        let files = [named("bundle", "", &[("send", &slot)]), child];
        let setup = Setup::new(&[&files[0], &files[1]]).tool(payments(Class::KeyLookup, WINDOWS));
        let host = Host::start(setup).await;
        host.sim.set_switches([Switch::new(Fault::Decline402)]).await.unwrap();
        let mut input = each(&[("pay", vec![refund(ORDER)])]);
        input["order"] = json!(ORDER);
        waits(host.run("run-1", bundle(ORDER, &input)).await);
        let end = host.finish_family("run-1").await;
        assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
        host.sim.set_switches(Vec::new()).await.unwrap();
        let requests = host.counted("refund").await.requests;

        let child = host.children("run-1").await.remove(0).id;
        let refused = host.effect(child.as_str()).await;
        let seen = happened_after_all();
        let ledger = host.engine.ledger();
        ledger.observe(&child, &refused.id, seen, refused.updated_at).await.unwrap();
        host.engine.retry(&run_id("run-1"), Evidence::Heeded, &decision()).await.unwrap();
        let end = host.finish_family("run-1").await;
        assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
        assert_eq!(host.counted("refund").await.requests, requests);
    });
}

/// What a child had confirmed before it failed does not happen again when its parent is ordered to be tried again.
#[test]
fn a_child_is_tried_again_with_its_parent() {
    run(async {
        let slot = child_of("parcel", "/input/order");
        let two = refund_of("/input/other").replace("\"refund\"", "\"other\"");
        let child = named(
            "parcel",
            "",
            &[("pay", &refund_of("/input/order")), ("other", &format!("after = [\"pay\"]\n{two}"))],
        );
        let files = [named("bundle", "", &[("send", &slot)]), child];
        let setup = Setup::new(&[&files[0], &files[1]]).tool(payments(Class::KeyLookup, WINDOWS));
        let host = Host::start(setup).await;
        let mut again = refund("order-2");
        again["slot"] = json!("other");
        let mut input = each(&[("pay", vec![refund(ORDER)]), ("other", vec![again])]);
        (input["order"], input["other"]) = (json!(ORDER), json!("order-2"));
        waits(host.run("run-1", bundle(ORDER, &input)).await);
        let child = host.children("run-1").await.remove(0).id;
        // The first refund is made, the second is declined for good.
        let declined = Switch::new(Fault::Decline402).path("/v1/orders/order-2/refunds");
        host.sim.set_switches([declined]).await.unwrap();
        let end = host.finish_family("run-1").await;
        assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
        host.sim.set_switches(Vec::new()).await.unwrap();

        let alone = host.engine.retry(&child, Evidence::Heeded, &decision()).await;
        let refused = matches!(&alone, Err(DecisionError::Engine(error)) if error.to_string().contains("the run that started it"));
        assert!(refused, "{alone:?}");
        assert_eq!(
            host.engine.retry(&run_id("run-1"), Evidence::Heeded, &decision()).await.unwrap(),
            1
        );
        completed(host.finish_family("run-1").await);
        let children = host.children("run-1").await;
        assert_eq!((children.len(), children[0].state), (1, RunState::Completed));
        let counted = host.counted("refund").await;
        assert_eq!((counted.effects, counted.duplicates), (2, 0), "{counted:?}");
        let retried = host.run_events(child.as_str()).await;
        let by = retried.iter().find_map(|event| match event {
            RunEvent::Retried { who, .. } => Some(who.as_str()),
            _ => None,
        });
        assert_eq!(by, Some("run run-1"));
        let states: Vec<State> =
            host.effects("run-1").await.iter().map(|e: &Effect| e.state).collect();
        assert_eq!(states, [State::Failed, State::Confirmed]);
    });
}

#[test]
fn a_run_that_only_has_the_id_of_a_child_is_none() {
    run(async {
        let host = Host::start(one_parcel(Class::KeyLookup, WINDOWS)).await;
        waits(host.run("run-1", bundle(ORDER, &parcel(ORDER))).await);
        let id = host.children("run-1").await.remove(0).id;

        let host = Host::start(one_parcel(Class::KeyLookup, WINDOWS)).await;
        let imposter = StartRun {
            id,
            caller_key: None,
            input: parcel(ORDER),
            priority: Priority::default(),
            claim: false,
        };
        let started = host.engine.start(host.definition("parcel"), imposter).await.unwrap();
        assert!(matches!(started, StartedRun::Created(None)));
        let end = host.run("run-1", bundle(ORDER, &parcel(ORDER))).await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("not_started") || why.contains("another parent"), "{why}");
        assert_eq!(host.effect("run-1").await.failure.unwrap().code, "not_started");
    });
}

/// Whose worker vanishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// The parent's, at its start.
    Parent,
    /// The child's, at its start.
    Child,
    /// The child's, when the outcome of its refund is not known.
    ChildAgain,
    /// The parent's, when its child is over.
    ParentAgain,
}

/// A worker vanishes at a boundary that it passes for the nth time; then everything is finished, twice. Whether it came there.
async fn check(boundary: Boundary, nth: u32, who: Who) -> bool {
    let at = format!("{who:?}, {}:{nth}", boundary.as_str());
    let input = bundle(ORDER, &parcel(ORDER));
    let lost = Switch::new(Fault::CommitThenDrop).times(1);
    let lost = (who != Who::ParentAgain).then_some(lost);
    let setup = one_parcel(Class::Lookup, WINDOWS).switches(lost).store(Store::Memory);
    let host = Arc::new(Host::start(setup).await);
    let reached = if who == Who::Parent {
        host.crash_run("run-1", input, boundary, nth).await
    } else {
        waits(host.run("run-1", input).await);
        let child = host.children("run-1").await.remove(0).id;
        if who != Who::Child {
            host.engine.resume(&child, true).await.unwrap();
        }
        if who == Who::ChildAgain {
            host.advance(60_000).await;
        }
        let whose = if who == Who::ParentAgain { "run-1" } else { child.as_str() };
        host.crash_resume(whose, boundary, nth).await
    };
    check_requested(&host, &at).await;
    check_listed(&host).await;
    host.outlive_lease().await;
    check_listed(&host).await;
    for _ in 0..2 {
        completed(host.finish_family("run-1").await);
        check_one_parcel(&host, &at).await;
    }
    reached
}

#[test]
fn whoever_vanishes_where_the_child_is_run_once() {
    run(async {
        let mut never = Vec::new();
        for boundary in Boundary::ALL {
            let mut reached = false;
            for who in [Who::Parent, Who::Child, Who::ChildAgain, Who::ParentAgain] {
                for nth in 1..=2 {
                    reached |= check(boundary, nth, who).await;
                }
            }
            if !reached {
                never.push(boundary);
            }
        }
        // No slot here has a lock, and only who finds a request that a vanished worker sent to a provider comes by the other.
        assert_eq!(never, [Boundary::AfterLock, Boundary::BeforeUnknown]);
    });
}

#[test]
fn a_child_is_kept_while_its_parent_may_ask_for_it() {
    run(async {
        for store in [Store::Sqlite, Store::Memory] {
            let host = Host::start(one_parcel(Class::KeyLookup, WINDOWS).store(store)).await;
            waits(host.run("run-1", bundle(ORDER, &parcel(ORDER))).await);
            let child = host.children("run-1").await.remove(0).id;
            completed(host.engine.resume(&child, false).await.unwrap());
            let prune = || async {
                host.ledger
                    .prune(twice_ledger::Prune {
                        run: child.clone(),
                        expected_head: host.ledger.head(&child).await.unwrap(),
                        by: "ada".to_owned(),
                        export: "/exports".to_owned(),
                        export_digest: "sha256:0".to_owned(),
                    })
                    .await
            };
            let kept = prune().await;
            assert!(matches!(&kept, Err(LedgerError::State { .. })), "{store:?}: {kept:?}");
            completed(host.finish_family("run-1").await);
            prune().await.unwrap();
            completed(host.resume("run-1").await);
        }
    });
}

/// One that looks for it once a minute is no work left to do.
#[test]
fn a_worker_is_idle_while_a_child_waits_for_a_person() {
    run(async {
        let setup = one_parcel(Class::Neither, WINDOWS)
            .switches([Switch::new(Fault::CommitThenDrop).times(1)]);
        let host = Host::start(setup).await;
        waits(host.run("run-1", bundle(ORDER, &parcel(ORDER))).await);
        let engine = Arc::new(host.another(Boundaries::none()));
        let options = Options {
            concurrency: NonZeroUsize::new(2).unwrap(),
            per_workflow: BTreeMap::new(),
            until_idle: true,
        };
        let (_stop, told_to_stop) = watch::channel(false);
        worker::work(&engine, &options, told_to_stop, &|_| {}).await.unwrap();
        let record = host.ledger.run(&run_id("run-1")).await.unwrap().unwrap();
        assert_eq!(record.state, RunState::Waiting);
        assert!(record.reason.unwrap().starts_with(NEEDS_PERSON));
        assert!(record.due_at.is_some(), "it goes on looking");
        let child = host.children("run-1").await.remove(0);
        let effect = host.effect(child.id.as_str()).await;
        host.engine.resolve(&effect.id, Finding::Failed, &decision()).await.unwrap();
        let (_stop, told_to_stop) = watch::channel(false);
        worker::work(&engine, &options, told_to_stop, &|_| {}).await.unwrap();
        let record = host.ledger.run(&run_id("run-1")).await.unwrap().unwrap();
        assert!(record.state.is_final(), "{record:?}");
    });
}
