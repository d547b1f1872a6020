//! Runs whose cancellation is asked for while a worker has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use twice::engine::boundary::{Boundaries, Boundary};
use twice::engine::{Engine, RunEnd};
use twice_core::chain::Content;
use twice_core::saga;
use twice_ledger::Cancel;
use twice_tests::graphs::{each, refund_of};
use twice_tests::host::{Host, Store, run_id};
use twice_tests::tools::Class;
use twice_tests::undoing::{setup, undone_refund};

use super::run;
use super::saga::{check_books, input, named, undone};

/// A worker whose run somebody cancels when it passes that boundary for the `nth` time.
fn cancelled_at(host: &Host, at: Boundary, nth: u32) -> Engine {
    let ledger = Arc::clone(&host.ledger);
    let passed = AtomicU32::new(0);
    host.another(Boundaries::inject(move |boundary| {
        if boundary == at && passed.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            let cancel = Cancel { who: "ada".to_owned(), why: "ordered twice".to_owned() };
            let asked = async {
                let now = ledger.now().await.unwrap();
                ledger.request_cancel(&run_id("run-1"), &cancel, now).await.unwrap();
            };
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(asked));
        }
    }))
}

/// How many entries of a run ask for something new behind the request to cancel it.
async fn asked_behind_cancel(host: &Host, id: &str) -> usize {
    let effects = host.effects(id).await;
    let history = host.history(id).await;
    let at = history.iter().position(|entry| entry.kind == "cancel_requested").unwrap();
    let new = history[at..].iter().filter(|entry| match entry.content().unwrap() {
        Content::Effect { effect, event } => {
            let effect = effects.iter().find(|known| known.id == effect).unwrap();
            saga::asks_anew(&event, saga::Asked::of(effect))
        }
        Content::Run(_) => false,
    });
    new.count()
}

#[test]
fn a_run_that_is_cancelled_while_a_worker_has_it_asks_for_nothing_new() {
    run(async {
        // `one` asks twice, `two` once, `three` for nothing: so many refunds were made when it was cancelled.
        let cases = [
            (Boundary::BeforeIntent, 1, 0),
            (Boundary::AfterRequestedCommit, 1, 1),
            (Boundary::AfterReply, 1, 1),
            (Boundary::BeforeIntent, 2, 1),
            (Boundary::BeforeCheckpoint, 1, 2),
            (Boundary::BeforeIntent, 3, 2),
            (Boundary::AfterReply, 3, 3),
            (Boundary::BeforeCheckpoint, 3, 3),
        ];
        let again = undone_refund("/input/two", "", "").replace("\"refund\"", "\"again\"");
        let one = format!("{}\n{again}", undone_refund("/input/one", "", ""));
        let two = format!("after = [\"one\"]\n{}", undone_refund("/input/three", "", ""));
        let nodes = vec![("one", one), ("two", two), ("three", "after = [\"two\"]".to_owned())];
        for store in [Store::Sqlite, Store::Memory] {
            for (at, nth, made) in cases {
                let setup = setup(Class::KeyLookup, "", &named(&nodes)).store(store);
                let host = Host::start(setup).await;
                let request = |slot: &str, order: &str| {
                    let args = json!({ "order_id": order, "amount_cents": 100 });
                    json!({ "do": "request", "slot": slot, "args": args })
                };
                let steps = vec![request("refund", "order-1"), request("again", "order-2")];
                let mut input = each(&[
                    ("one", steps),
                    ("two", vec![request("refund", "order-3")]),
                    ("three", vec![]),
                ]);
                for (key, order) in [("one", "order-1"), ("two", "order-2"), ("three", "order-3")] {
                    input[key] = json!(order);
                }
                let worker = cancelled_at(&host, at, nth);
                let end = host.try_run_of(&worker, "graph", "run-1", input).await.unwrap();
                assert!(matches!(end, RunEnd::Cancelled { .. }), "{at:?} {nth}: {end:?}");
                check_books(&host, made, made).await;
                assert_eq!(asked_behind_cancel(&host, "run-1").await, 0, "{at:?} {nth}");
                assert_eq!(undone(&host, "run-1").await.len() as u64, made, "{at:?} {nth}");
            }
        }
    });
}

#[test]
fn a_run_that_is_cancelled_behind_its_point_of_no_return_goes_on_to_its_end() {
    run(async {
        let pivot = refund_of("/input/two") + "pivot = true\n";
        let nodes = vec![
            ("one", undone_refund("/input/one", "", "")),
            ("two", format!("after = [\"one\"]\n{pivot}")),
            ("three", "after = [\"two\"]".to_owned()),
        ];
        for (at, nth, passed) in
            [(Boundary::BeforeIntent, 2, false), (Boundary::AfterReply, 2, true)]
        {
            let host = Host::start(setup(Class::KeyLookup, "", &named(&nodes))).await;
            let worker = cancelled_at(&host, at, nth);
            let end = host.try_run_of(&worker, "graph", "run-1", input(vec![])).await.unwrap();
            match passed {
                true => assert!(matches!(end, RunEnd::Completed(_)), "{end:?}"),
                false => assert!(matches!(end, RunEnd::Cancelled { .. }), "{end:?}"),
            }
            let (made, reversed) = if passed { (2, 0) } else { (1, 1) };
            check_books(&host, made, reversed).await;
        }
    });
}
