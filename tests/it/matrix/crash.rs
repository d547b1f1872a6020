//! Workers that vanish: whatever they held in memory is gone, and their lease runs out.

use std::sync::Arc;

use twice::engine::RunEnd;
use twice::engine::boundary::Boundary;
use twice_core::effect::State;
use twice_core::event::RunEvent;
use twice_core::run::RunState;
use twice_ledger::EffectFilter;
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, Pace, Store, run_id};

use super::run;
use super::tools::{Class, WINDOWS, Windows, ask, one_refund, one_refund_in, order};

#[test]
fn a_request_of_a_vanished_worker_is_listed_as_unknown_before_anyone_looks_after_it() {
    run(async {
        for store in [Store::Sqlite, Store::Memory] {
            let host =
                Arc::new(Host::start(one_refund(Class::KeyLookup, WINDOWS).store(store)).await);
            let input = order("order-1", vec![ask("refund", "order-1", 1_000)]);
            assert!(host.crash_run("run-1", input, Boundary::AfterRequestedCommit, 1).await);

            assert_eq!(host.listed("run-1").await[0].state, State::Requested, "{store:?}");
            host.outlive_lease().await;
            let unknown = EffectFilter { state: Some(State::Unknown), ..EffectFilter::default() };
            let listed = host.ledger.effects(&unknown).await.unwrap();
            assert_eq!(listed.len(), 1, "{store:?}");
            let record = host.ledger.run(&run_id("run-1")).await.unwrap().unwrap();
            assert_eq!((record.state, record.lease_live), (RunState::Running, false), "{store:?}");

            let end = host.finish("run-1", Pace::Jump).await;
            assert!(matches!(end, RunEnd::Completed(_)), "{store:?}: {end:?}");
            assert_eq!(host.counted("refund").await.effects, 1, "{store:?}");
            let events = host.run_events("run-1").await;
            let took_over =
                |event: &RunEvent| matches!(event, RunEvent::Claimed { takeover: true, .. });
            assert!(events.iter().any(took_over), "{store:?}: {events:?}");
        }
    });
}

/// The worker vanishes at a boundary of a run whose first answer is lost; then its run is resumed twice.
async fn check(class: Class, boundary: Boundary) {
    let context = format!("{class:?} at {}", boundary.as_str());
    let lost = Switch::new(Fault::CommitThenDrop).times(1);
    // Two lookups a settle window apart, then another request that is lost: that takes longer than the others.
    let windows = Windows { horizon: "24h", ..WINDOWS };
    let lock = "lock = { name = \"order\" }";
    let setup = one_refund_in(class, windows, "limits = { time = \"2m\" }", lock);
    let host = Arc::new(Host::start(setup.switches([lost])).await);
    let input = order("order-1", vec![ask("refund", "order-1", 1_000)]);
    // Nothing becomes unknown in that way but what a vanished worker left behind.
    let first = match boundary == Boundary::BeforeUnknown {
        true => Boundary::AfterRequestedCommit,
        false => boundary,
    };
    let crashed = host.crash_run("run-1", input, first, 1).await;
    let mut felt = crashed && first == boundary;
    for _ in 0..3 {
        host.outlive_lease().await;
        felt = felt || host.crash_resume("run-1", boundary, 1).await;
    }
    host.outlive_lease().await;
    let end = host.finish("run-1", Pace::Jump).await;
    let again = host.finish("run-1", Pace::Jump).await;
    assert_eq!(end, again, "{context}");

    let counted = host.counted("refund").await;
    let effect = host.effect("run-1").await;
    if class == Class::Neither {
        // Nobody can tell whether the request of a vanished worker left, so a person is asked.
        assert!(matches!(end, RunEnd::Halted { .. }), "{context}: {end:?}");
        assert_eq!(effect.state, State::Unknown, "{context}");
        assert!(counted.requests <= 1 && counted.effects <= 1, "{context}: {counted:?}");
    } else {
        assert!(matches!(end, RunEnd::Completed(_)), "{context}: {end:?}");
        assert_eq!(effect.state, State::Confirmed, "{context}");
        assert_eq!(counted.effects, 1, "{context}: {counted:?}");
    }
    assert!(counted.requests <= effect.attempts.len() as u64, "{context}: {counted:?}");
    host.history("run-1").await;
    let never_passed = match class {
        Class::Key => vec![Boundary::BeforeLookup, Boundary::AfterLookup],
        Class::Neither => vec![
            Boundary::BeforeLookup,
            Boundary::AfterLookup,
            Boundary::BeforeCheckpoint,
            Boundary::AfterCheckpoint,
        ],
        Class::KeyLookup | Class::Lookup | Class::Lagging | Class::Read => Vec::new(),
    };
    assert_ne!(felt, never_passed.contains(&boundary), "{context}: the worker vanished: {felt}");
}

#[track_caller]
fn check_all(class: Class) {
    run(async move {
        for boundary in Boundary::ALL {
            check(class, boundary).await;
        }
    });
}

#[test]
fn a_worker_that_vanishes_anywhere_leaves_one_effect_with_key_and_lookup() {
    check_all(Class::KeyLookup);
}

#[test]
fn a_worker_that_vanishes_anywhere_leaves_one_effect_with_a_key() {
    check_all(Class::Key);
}

#[test]
fn a_worker_that_vanishes_anywhere_leaves_one_effect_with_a_lookup() {
    check_all(Class::Lookup);
}

#[test]
fn a_worker_that_vanishes_anywhere_sends_once_with_neither() {
    check_all(Class::Neither);
}
