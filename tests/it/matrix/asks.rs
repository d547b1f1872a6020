//! How a node may ask: many elements, a number of times, and not at all.

use std::sync::Arc;

use serde_json::{Value, json};
use twice::engine::RunEnd;
use twice::engine::boundary::Boundary;
use twice_core::effect::State;
use twice_core::event::RunEvent;
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, Pace, Setup, Store, steps};

use super::run;
use super::tools::{
    Class, WINDOWS, ask, for_each, later, many_orders, one_refund_in, order, payments, refund_slot,
    until_attempt, workflow,
};

const ORDERS: usize = 40;

#[test]
fn forty_orders_are_forty_effects_however_the_worker_vanishes() {
    run(async {
        for (boundary, nth) in [
            (Boundary::AfterRequestedCommit, 1),
            (Boundary::AfterReply, 20),
            (Boundary::BeforeCheckpoint, 1),
        ] {
            let context = format!("{} {nth}", boundary.as_str());
            let host = Arc::new(Host::start(for_each(Class::KeyLookup, "")).await);
            assert!(host.crash_run("run-1", many_orders(ORDERS), boundary, nth).await, "{context}");
            host.outlive_lease().await;
            let end = host.finish("run-1", Pace::Jump).await;
            let RunEnd::Completed(output) = end else { panic!("{context}: {end:?}") };
            let notes = output["notes"][0].as_array().unwrap();
            assert_eq!(notes.len(), ORDERS, "{context}");
            assert!(notes.iter().all(|note| note["body"]["amount_cents"] == 100), "{context}");
            let counted = host.counted("refund").await;
            assert_eq!((counted.effects, counted.duplicates), (ORDERS as u64, 0), "{context}");
            let effects = host.effects("run-1").await;
            assert_eq!(effects.len(), ORDERS, "{context}");
            assert!(effects.iter().all(|effect| effect.state == State::Confirmed), "{context}");
            host.history("run-1").await;
        }
    });
}

#[test]
fn one_of_many_that_is_in_doubt_holds_its_step_and_is_not_sent_again() {
    run(async {
        let lost = Switch::new(Fault::CommitThenDrop).path("/v1/orders/order-7/refunds");
        let host = Host::start(for_each(Class::Neither, "").switches([lost])).await;
        let end = host.run_and_finish("run-1", many_orders(ORDERS), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        let unknown: Vec<String> = host
            .listed("run-1")
            .await
            .into_iter()
            .filter(|row| row.state != State::Confirmed)
            .map(|row| format!("{} {}", row.state, row.idempotency_key))
            .collect();
        assert_eq!(unknown, ["UNKNOWN refund/run-1/order-7/full/node=pay/item=7"]);
        assert_eq!(host.counted("refund").await.requests, ORDERS as u64);
    });
}

#[test]
fn the_calls_of_a_loop_are_told_apart_by_their_number() {
    run(async {
        let host = Host::start(one_refund_in(Class::Key, WINDOWS, "", "repeat = 3")).await;
        let amounts = [100, 200, 300, 400].map(|cents| ask("refund", "order-1", cents));
        let mut todo = amounts.to_vec();
        todo.push(until_attempt(2, later()));
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        let told = [0, 1, 2].map(|at| output["notes"][at]["body"]["amount_cents"].clone());
        assert_eq!(told, [json!(100), json!(200), json!(300)]);
        assert_eq!(output["notes"][3]["denied"], "repeat");
        assert_eq!(host.counted("refund").await.requests, 3);
        assert_eq!(host.effects("run-1").await.len(), 3);
    });
}

/// A request that is refused before it becomes an effect: the node is told, the ledger keeps it, nothing is sent.
#[track_caller]
fn check_refused(name: &'static str, setup: Setup, request: Value, policy: &'static str) {
    run(async move {
        let host = Host::start(setup).await;
        let orders = json!({ "orders": [{ "order_id": "order-1" }], "order_id": "order-1" });
        let end = host.run_and_finish("run-1", steps(orders, vec![request]), Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{name}: {end:?}") };
        assert_eq!(output["notes"][0]["denied"], policy, "{name}: {output}");
        assert!(host.listed("run-1").await.is_empty(), "{name}");
        let events = host.run_events("run-1").await;
        let kept = events.iter().any(
            |event| matches!(event, RunEvent::RequestRefused { policy: kept, .. } if kept == policy),
        );
        assert!(kept, "{name}: {events:?}");
        assert!(host.sim.requests(0).await.unwrap().is_empty(), "{name}");
    });
}

#[test]
fn a_request_that_breaks_the_rules_of_its_slot_is_refused_and_recorded() {
    let plain = || one_refund_in(Class::Key, WINDOWS, "", "");
    let each = || for_each(Class::Key, "");
    let args = json!({ "order_id": "order-1", "amount_cents": 100 });
    let of = |slot: &str, item: Value, args: &Value| json!({ "do": "request", "slot": slot, "item": item, "args": args });
    check_refused("a slot not granted", plain(), of("payout", Value::Null, &args), "grant");
    check_refused("no slot's name", plain(), of("../refund", Value::Null, &args), "grant");
    let text = json!({ "order_id": "order-1", "amount_cents": "100" });
    check_refused("args that break the schema", plain(), of("refund", Value::Null, &text), "args");
    let more = json!({ "order_id": "order-1", "amount_cents": 100, "to": "me" });
    check_refused("args with a member too many", plain(), of("refund", Value::Null, &more), "args");
    check_refused("an item of no array", plain(), of("refund", json!(0), &args), "item");
    check_refused("no item of an array", each(), of("refund", Value::Null, &args), "item");
    check_refused("an item out of range", each(), of("refund", json!(1), &args), "object");
}

#[test]
fn a_request_that_the_policy_denies_is_a_failed_effect() {
    run(async {
        for allow in ["args.amount_cents <= 500", "args.amount_cents <= state.input.paid_cents"] {
            let slot = refund_slot("refund", &format!("allow = \"{allow}\""));
            let text = workflow("refunds", "", &[&slot]);
            let host = Host::start(Setup::new(&[&text]).tool(payments(Class::Key, WINDOWS))).await;
            let input = order("order-1", vec![ask("refund", "order-1", 1_000)]);
            let end = host.run_and_finish("run-1", input, Pace::Jump).await;
            let RunEnd::Completed(output) = end else { panic!("{allow}: {end:?}") };
            assert_eq!(output["notes"][0]["denied"], allow, "{output}");
            let effect = host.effect("run-1").await;
            assert_eq!(effect.state, State::Failed, "{allow}");
            let failure = effect.failure.unwrap();
            assert_eq!((failure.code.as_str(), failure.denied), ("denied", true), "{allow}");
            assert!(host.sim.requests(0).await.unwrap().is_empty(), "{allow}");
        }
    });
}

#[test]
fn more_requests_than_are_under_way_at_a_time_are_all_made() {
    run(async {
        let setup = for_each(Class::Neither, "").store(Store::Memory);
        let host = Host::start(setup).await;
        let end = host.run_and_finish("run-1", many_orders(90), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects, counted.duplicates), (90, 90, 0));
    });
}
