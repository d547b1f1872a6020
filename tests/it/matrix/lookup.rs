//! Lookups that are behind: a miss is not a no.

use twice::engine::RunEnd;
use twice_core::effect::State;
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, Pace};

use super::run;
use super::tools::{Class, WINDOWS, ask, one_refund, order};

const MINUTE: u64 = 60_000;

/// Done, the answer is lost, and lookups see it only so much later. The settle window is a minute.
#[track_caller]
fn check(class: Class, lag_ms: u64, state: State, sends: u64, effects: u64) {
    run(async move {
        let context = format!("{class:?}, behind by {lag_ms} ms");
        let switches = [
            Switch::new(Fault::CommitThenDrop).times(1),
            Switch::new(Fault::LookupLagMs).value(lag_ms),
        ];
        let host = Host::start(one_refund(class, WINDOWS).switches(switches)).await;
        let todo = vec![ask("refund", "order-1", 1_000)];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (sends, effects), "{context}: {end:?}");
        let listed = host.listed("run-1").await;
        assert_eq!((listed[0].state, u64::from(listed[0].attempts)), (state, sends), "{context}");
        assert!(host.counted("refund_lookup").await.requests >= 2, "{context}");
        host.history("run-1").await;
    });
}

#[test]
fn not_found_right_after_the_request_is_asked_again() {
    check(Class::Lookup, 30_000, State::Confirmed, 1, 1);
    check(Class::Lagging, 30_000, State::Confirmed, 1, 1);
}

#[test]
fn a_lookup_declared_as_lagging_is_never_proof_of_absence() {
    check(Class::Lagging, 10 * MINUTE, State::Confirmed, 1, 1);
    check(Class::Lagging, 60 * MINUTE, State::Unknown, 1, 1);
}

#[test]
fn two_misses_a_window_apart_bear_a_lag_of_more_than_one_window() {
    check(Class::Lookup, MINUTE + 30_000, State::Confirmed, 1, 1);
}

/// A false declaration: the file calls consistent what is far behind. Its misses are believed, and the effect happens
/// twice; the listing shows two attempts, and the chain what the second one rested on.
#[test]
fn a_lagging_lookup_declared_as_strong_is_believed() {
    check(Class::Lookup, 60 * MINUTE, State::Confirmed, 2, 2);
}

#[test]
fn a_request_that_is_held_and_committed_late_is_found_not_repeated() {
    run(async {
        let held = Switch::new(Fault::HoldThenCommitLateMs).value(700).times(1);
        let host =
            Host::start(one_refund(Class::Lookup, super::tools::REAL).switches([held])).await;
        let todo = vec![ask("refund", "order-1", 1_000)];
        let end = host.run("run-1", order("order-1", todo)).await;
        // Asked before the commit: nothing is there yet, and that is not believed.
        let RunEnd::Waiting { .. } = end else { panic!("{end:?}") };
        let end = host.finish("run-1", Pace::Real).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (1, 1));
    });
}
