//! Answers that come when nobody may apply them any more: they are kept, they change nothing, and nothing is sent because
//! of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use twice::engine::RunEnd;
use twice::engine::boundary::{Boundaries, Boundary};
use twice::engine::operator::{Decision, Finding};
use twice_core::effect::{Effect, State};
use twice_core::event::{Observation, Source};
use twice_core::evidence::{self, Evidence};
use twice_core::outcome::Verdict;
use twice_core::reconcile::RULE_ABANDONED;
use twice_core::time::Clock as _;
use twice_provider_sim::{Fault, Switch, WaitFor};
use twice_tests::host::{Host, Pace, Setup, Store, run_id};

use super::run;
use super::tools::{
    Class, WINDOWS, ask, one_refund, one_refund_in, order, payments, refund_slot, workflow,
};

const IMPATIENT_NODE: &str = "limits = { time = \"2s\" }";

fn hangs() -> Switch {
    Switch::new(Fault::PauseBeforeReplyUntil).times(1)
}

/// A run whose node's time is up while the provider, which has done it, still keeps its answer to itself.
async fn cut_off(setup: Setup) -> Host {
    let host = Host::start(setup.switches([hangs()])).await;
    let end = host.run("run-1", order("order-1", vec![ask("refund", "order-1", 1_000)])).await;
    assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
    let effect = host.effect("run-1").await;
    let unknown = effect.unknown.as_ref().map(|unknown| unknown.rule.0.as_str());
    assert_eq!((effect.state, unknown), (State::Unknown, Some(RULE_ABANDONED)));
    assert!(effect.observed.is_empty(), "{:?}", effect.observed);
    host.committed("refund", 1).await;
    assert!(host.engine.is_busy(), "the request is still under way");
    host
}

/// Lets the answer come, and hands back the effect with the one thing that was observed.
async fn answered(host: &Host) -> (Effect, Observation) {
    host.sim.go_on();
    host.engine.settle_late().await;
    assert!(!host.engine.is_busy());
    host.history("run-1").await;
    let effect = host.effect("run-1").await;
    let [(_, seen)] = effect.observed.as_slice() else { panic!("{:?}", effect.observed) };
    let seen = seen.clone();
    (effect, seen)
}

#[track_caller]
fn check_success(seen: &Observation, what: &str) {
    assert_eq!(seen.what, what);
    assert_eq!((seen.verdict, seen.breach), (Some(Verdict::Succeeded), false));
    assert!(seen.external_id.is_some() && seen.rule.is_some(), "{seen:?}");
    assert_eq!(seen.detail["amount_cents"], 1_000);
}

#[track_caller]
fn check_reconciled(class: Class, store: Store, requests: u64, source: fn(&Source) -> bool) {
    run(async move {
        let host = cut_off(one_refund_in(class, WINDOWS, IMPATIENT_NODE, "").store(store)).await;
        let (effect, seen) = answered(&host).await;
        check_success(&seen, "late answer");
        assert_eq!((seen.attempt, seen.status), (Some(1), Some(201)));
        assert_eq!(effect.state, State::Unknown, "{class:?}: it was applied");

        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{class:?}: {end:?}");
        let effect = host.effect("run-1").await;
        let receipt = effect.receipt.unwrap();
        assert_eq!(receipt.external_id, seen.external_id, "{class:?}");
        assert!(source(&receipt.source), "{class:?}: {:?}", receipt.source);
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (requests, 1), "{class:?}");
    });
}

#[test]
fn the_answer_to_a_request_that_its_node_did_not_wait_for_is_kept_and_the_provider_is_asked() {
    let lookup = |source: &Source| *source == Source::Lookup;
    check_reconciled(Class::KeyLookup, Store::Sqlite, 1, lookup);
    check_reconciled(Class::Lookup, Store::Memory, 1, lookup);
    let resent = |source: &Source| *source == Source::Reply { attempt: 2 };
    check_reconciled(Class::Key, Store::Sqlite, 2, resent);
}

#[test]
fn where_nobody_can_be_asked_a_late_answer_is_evidence_for_a_person() {
    run(async {
        let host = cut_off(one_refund_in(Class::Neither, WINDOWS, IMPATIENT_NODE, "")).await;
        let (_, seen) = answered(&host).await;
        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        let effect = host.effect("run-1").await;
        assert_eq!((effect.state, effect.observed.len()), (State::Unknown, 1));
        assert_eq!(evidence::of(&effect), Some(Evidence::Happened(&seen)));

        let decision = Decision { who: "ada".to_owned(), why: "the late answer".to_owned() };
        let finding = Finding::Confirmed { result: seen.detail, external_id: seen.external_id };
        host.engine.resolve(&effect.id, finding, &decision).await.unwrap();
        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (1, 1));
    });
}

#[test]
fn an_answer_that_comes_after_its_effect_was_settled_changes_nothing() {
    run(async {
        let host = cut_off(one_refund_in(Class::KeyLookup, WINDOWS, IMPATIENT_NODE, "")).await;
        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        let before = host.effect("run-1").await;
        let (after, seen) = answered(&host).await;
        check_success(&seen, "late answer");
        let unseen = Effect { observed: Vec::new(), updated_at: before.updated_at, ..after };
        assert_eq!(unseen, before);
        assert_eq!(host.engine.standing(&run_id("run-1")).await.unwrap(), end);
    });
}

#[test]
fn a_late_answer_that_breaks_the_schema_stops_new_effects() {
    run(async {
        // What it declares of the answer is not so; what it declares of the lookup is.
        let drifted = payments(Class::KeyLookup, WINDOWS).replace(
            "[operation.refund.response]\nexternal_id = \"/id\"",
            "[operation.refund.response]\nexternal_id = \"/refund_id\"",
        );
        let text = workflow("refunds", IMPATIENT_NODE, &[&refund_slot("refund", "")]);
        let host = cut_off(Setup::new(&[&text]).tool(drifted)).await;
        let (effect, seen) = answered(&host).await;
        assert_eq!((seen.verdict, seen.breach), (Some(Verdict::Indeterminate), true));
        for (id, order_id, passed_ms) in [("run-2", "order-2", 0), ("run-3", "order-3", 10_000)] {
            // Known by heart first, then only by the ledger.
            host.advance(passed_ms).await;
            let end = host.run(id, order(order_id, vec![ask("refund", order_id, 1_000)])).await;
            let RunEnd::Waiting { why, .. } = end else { panic!("{id}: {end:?}") };
            assert!(why.contains(effect.id.as_str()) && why.contains("response schema"), "{why}");
            assert!(host.listed(id).await.is_empty(), "{id}: nothing is proposed either");
        }
        for id in ["run-1", "run-2", "run-3"] {
            let end = host.finish(id, Pace::Jump).await;
            assert!(matches!(end, RunEnd::Completed(_)), "{id}: {end:?}");
        }
        assert_eq!(host.counted("refund").await.effects, 3);
    });
}

/// A worker is held up by a slow provider while its lease runs out, and another one takes its run and goes on with it.
#[track_caller]
fn check_zombie(class: Class, store: Store, state: State) {
    run(async move {
        let host = Host::start(one_refund(class, WINDOWS).store(store).switches([hangs()])).await;
        let host = Arc::new(host);
        let slow = Arc::clone(&host);
        let slow = tokio::spawn(async move {
            slow.run("run-1", order("order-1", vec![ask("refund", "order-1", 1_000)])).await
        });
        let paused = host.sim.wait(WaitFor::Paused, 1, None, Duration::from_secs(30)).await;
        assert!(paused.unwrap(), "{class:?}");
        host.outlive_lease().await;
        let taken = host.another(Boundaries::none()).resume(&run_id("run-1"), false).await.unwrap();
        let ended = host.finish("run-1", Pace::Jump).await;
        assert_eq!(host.effect("run-1").await.state, state, "{class:?}: {taken:?}, {ended:?}");
        let before = host.effect("run-1").await;
        let entries = host.history("run-1").await;

        // The answer that the first worker was waiting for comes, and is not its to write any more (I7).
        host.sim.go_on();
        assert_eq!(slow.await.unwrap(), RunEnd::Elsewhere, "{class:?}");
        let (after, seen) = answered(&host).await;
        check_success(&seen, "answer that its worker could not write");
        let unseen = Effect { observed: Vec::new(), updated_at: before.updated_at, ..after };
        assert_eq!(unseen, before, "{class:?}");
        let now = host.history("run-1").await;
        assert_eq!((&now[..entries.len()], now.len()), (&entries[..], entries.len() + 1));
        assert_eq!(now[entries.len()].kind, "observed", "{class:?}");
        assert_eq!(host.engine.standing(&run_id("run-1")).await.unwrap(), ended, "{class:?}");
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (1, 1), "{class:?}");
    });
}

#[test]
fn a_worker_that_lost_its_lease_writes_nothing_of_what_it_learns_but_that_it_was_told() {
    check_zombie(Class::KeyLookup, Store::Sqlite, State::Confirmed);
    check_zombie(Class::Lookup, Store::Memory, State::Confirmed);
    check_zombie(Class::Neither, Store::Sqlite, State::Unknown);
}

#[test]
fn what_a_lookup_told_a_worker_that_lost_its_lease_is_kept_as_well() {
    run(async {
        let lost = Switch::new(Fault::CommitThenDrop).times(1);
        let host = Host::start(one_refund(Class::Lookup, WINDOWS).switches([lost])).await;
        let host = Arc::new(host);
        let end = host.run("run-1", order("order-1", vec![ask("refund", "order-1", 1_000)])).await;
        let RunEnd::Waiting { until, .. } = end else { panic!("{end:?}") };
        host.advance(until.ms_since(host.clock.now())).await;

        let (asleep, wake) = (mpsc::channel(), mpsc::channel());
        let (told, waking) = (asleep.0, std::sync::Mutex::new(wake.1));
        let first = AtomicBool::new(true);
        let slow = host.another(Boundaries::inject(move |boundary| {
            if boundary == Boundary::AfterLookup && first.swap(false, Ordering::SeqCst) {
                told.send(()).unwrap();
                waking.lock().unwrap().recv().unwrap();
            }
        }));
        let sleeper = tokio::spawn(async move {
            let end = slow.resume(&run_id("run-1"), true).await;
            slow.settle_late().await;
            end
        });
        tokio::task::spawn_blocking(move || asleep.1.recv().unwrap()).await.unwrap();
        host.outlive_lease().await;
        let ended = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(ended, RunEnd::Completed(_)), "{ended:?}");
        wake.0.send(()).unwrap();
        assert_eq!(sleeper.await.unwrap().unwrap(), RunEnd::Elsewhere);

        let effect = host.effect("run-1").await;
        let [(_, seen)] = effect.observed.as_slice() else { panic!("{:?}", effect.observed) };
        check_success(seen, "lookup that its worker could not write");
        assert_eq!((effect.state, seen.attempt), (State::Confirmed, None));
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (1, 1));
        host.history("run-1").await;
    });
}
