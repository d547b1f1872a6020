//! Identity: what a node says anew after a restart never makes another effect, and never passes for the same request
//! when it is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use twice::engine::{Performer, RunEnd};
use twice::tool::{AnyRequest, Call, Driver, Gate, PrepareError, Prepared};
use twice_core::effect::{Hold, State};
use twice_core::event::{EffectEvent, ProbeResult};
use twice_core::ids::RunId;
use twice_core::outcome::Exchange;
use twice_ledger::Ledger;
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, Pace, Setup, run_id};
use twice_workflow::model::Tool;

use super::run;
use super::tools::{
    Class, WINDOWS, Windows, ask, later, one_refund, order, payments, refund_slot, until_attempt,
    workflow,
};

fn request(slot: &str, args: Value) -> Value {
    json!({ "do": "request", "slot": slot, "args": args })
}

/// A node asks, is started again, and asks in other words: a conflict, or the same request.
#[track_caller]
fn check(name: &'static str, first: Value, second: Value, conflict: bool) {
    run(async move {
        let host = Host::start(one_refund(Class::KeyLookup, WINDOWS)).await;
        let todo = vec![
            until_attempt(2, request("refund", first)),
            until_attempt(2, later()),
            request("refund", second),
        ];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        let effect = host.effect("run-1").await;
        assert_eq!(host.counted("refund").await.requests, 1, "{name}");
        assert_eq!(effect.state, State::Confirmed, "{name}");
        assert_eq!(host.listed("run-1").await[0].held, conflict, "{name}");
        if !conflict {
            let RunEnd::Completed(output) = end else { panic!("{name}: {end:?}") };
            assert_eq!(output["notes"][0]["effect_id"], effect.id.as_str(), "{name}");
            return;
        }
        let RunEnd::Halted { why } = end else { panic!("{name}: {end:?}") };
        assert!(why.contains(effect.id.as_str()) && why.contains("--keep"), "{name}: {why}");
        let Some(Hold::Conflict(held)) = effect.hold else { panic!("{name}: {:?}", effect.hold) };
        assert_eq!(held.recorded_hash, effect.proposal.request_hash, "{name}");
        assert_ne!(held.requested_hash, held.recorded_hash, "{name}");
    });
}

#[test]
fn a_request_in_other_words_is_the_same_and_one_for_something_else_a_conflict() {
    let first = || json!({ "order_id": "order-1", "amount_cents": 1_200, "reason": "damaged" });
    let reworded = json!({ "reason": "The goods were damaged.", "amount_cents": 1_200, "order_id": "order-1" });
    check("the reason in other words", first(), reworded, false);
    check(
        "no reason any more",
        first(),
        json!({ "amount_cents": 1_200, "order_id": "order-1" }),
        false,
    );
    check(
        "an amount of the same value",
        first(),
        json!({ "amount_cents": 1_200.0, "order_id": "order-1" }),
        false,
    );
    check("another amount", first(), json!({ "order_id": "order-1", "amount_cents": 1_300 }), true);
    check(
        "another recipient",
        first(),
        json!({ "order_id": "order-2", "amount_cents": 1_200 }),
        true,
    );
}

fn two_slots() -> Setup {
    let slots = [refund_slot("goods", ""), refund_slot("postage", "")];
    let text = workflow("refunds", "", &[&slots[0], &slots[1]]);
    Setup::new(&[&text]).tool(payments(Class::KeyLookup, WINDOWS))
}

#[test]
fn two_effects_asked_for_in_another_order_keep_their_receipts() {
    run(async {
        let host = Host::start(two_slots()).await;
        let todo = vec![
            until_attempt(2, ask("goods", "order-1", 1_000)),
            until_attempt(2, ask("postage", "order-1", 500)),
            until_attempt(2, later()),
            ask("postage", "order-1", 500),
            ask("goods", "order-1", 1_000),
        ];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        let amounts = [0, 1].map(|at| output["notes"][at]["body"]["amount_cents"].clone());
        assert_eq!(amounts, [json!(500), json!(1_000)]);
        assert_eq!(host.counted("refund").await.requests, 2);
    });
}

#[test]
fn two_effects_that_swap_their_args_are_held_not_crossed() {
    run(async {
        let host = Host::start(two_slots()).await;
        let todo = vec![
            until_attempt(2, ask("goods", "order-1", 1_000)),
            until_attempt(2, ask("postage", "order-1", 500)),
            until_attempt(2, later()),
            ask("goods", "order-1", 500),
            ask("postage", "order-1", 1_000),
        ];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        assert_eq!(host.counted("refund").await.requests, 2);
        assert!(host.effects("run-1").await.iter().any(|effect| effect.hold.is_some()));
    });
}

#[test]
fn every_attempt_sends_the_same_bytes_under_the_same_key() {
    run(async {
        let failing = Switch::new(Fault::CommitThen500).value("unsaved").times(1);
        let lost = Switch::new(Fault::DropBeforeCommit).times(1);
        let setup = one_refund(Class::Key, WINDOWS).switches([failing, lost]);
        let host = Host::start(setup).await;
        let todo = vec![ask("refund", "order-1", 1_000)];
        let end = host.run("run-1", order("order-1", todo)).await;
        assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
        // An impatient person's resume changes nothing: the effect is not to be asked about yet.
        let early = host.resume("run-1").await;
        assert!(matches!(early, RunEnd::Waiting { .. }), "{early:?}");
        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");

        let requests = host.sim.requests(0).await.unwrap();
        assert_eq!(requests.len(), 3);
        let key = host.effect("run-1").await.proposal.provider_key;
        for request in &requests {
            assert_eq!(request.idempotency_key.as_ref(), Some(&key));
            assert_eq!(request.body_hash, requests[0].body_hash);
        }
        assert_eq!(host.counted("refund").await.effects, 1);
    });
}

/// The provider did nothing, and is asked again only long after it has forgotten the key.
#[track_caller]
fn check_forgotten(class: Class, state: State, sends: u64, effects: u64) {
    run(async move {
        let switches = [
            Switch::new(Fault::DropBeforeCommit).times(1),
            Switch::new(Fault::ForgetKeysAfterMs).value(24 * 3_600_000),
        ];
        let windows = Windows { horizon: "48h", ..WINDOWS };
        let host = Host::start(one_refund(class, windows).switches(switches)).await;
        let todo = vec![ask("refund", "order-1", 1_000)];
        host.run("run-1", order("order-1", todo)).await;
        host.advance(25 * 3_600_000).await;
        host.finish("run-1", Pace::Jump).await;
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (sends, effects), "{class:?}");
        assert_eq!(host.effect("run-1").await.state, state, "{class:?}");
    });
}

#[test]
fn a_forgotten_key_is_no_reason_to_send_again_but_proof_of_absence_is() {
    check_forgotten(Class::Key, State::Unknown, 1, 0);
    check_forgotten(Class::KeyLookup, State::Confirmed, 2, 1);
}

/// Looks into the ledger whenever something is sent: no request leaves before its REQUESTED entry is there (I3).
struct Probe {
    inner: Arc<Performer>,
    ledger: Arc<dyn Ledger>,
    run: RunId,
    sends: Arc<AtomicUsize>,
}

#[async_trait]
impl Driver for Probe {
    type Request = AnyRequest;

    fn prepare(&self, call: &Call<'_>) -> Result<Prepared<AnyRequest>, PrepareError> {
        self.inner.prepare(call)
    }

    fn learn_secrets(&self, tool: &Tool) {
        self.inner.learn_secrets(tool);
    }

    fn holds_secret(&self, value: &Value) -> bool {
        self.inner.holds_secret(value)
    }

    async fn send(&self, request: AnyRequest, gate: Gate) -> Exchange {
        let sends = self.sends.fetch_add(1, Ordering::SeqCst) + 1;
        let entries = self.ledger.history(&self.run, 0, 0).await.unwrap();
        let requested = entries.iter().filter(|entry| entry.kind == "requested").count();
        assert!(requested >= sends, "send {sends}, but {requested} REQUESTED entries");
        self.inner.send(request, gate).await
    }

    async fn lookup(&self, call: &Call<'_>) -> (Value, ProbeResult) {
        self.inner.lookup(call).await
    }
}

#[test]
fn nothing_is_sent_without_its_entry() {
    run(async {
        let sends = Arc::new(AtomicUsize::new(0));
        let watched = Arc::clone(&sends);
        let setup = two_slots().switches([Switch::new(Fault::Storm429).times(1)]).wrap(
            move |inner, ledger| {
                let sends = Arc::clone(&watched);
                Arc::new(Probe { inner, ledger, run: run_id("run-1"), sends })
            },
        );
        let host = Host::start(setup).await;
        let requests = json!([
            { "slot": "goods", "args": { "order_id": "order-1", "amount_cents": 1_000 } },
            { "slot": "postage", "args": { "order_id": "order-1", "amount_cents": 500 } },
        ]);
        let todo = vec![json!({ "do": "request_all", "requests": requests })];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        assert_eq!(sends.load(Ordering::SeqCst), 3);
        let events = host.effect_events("run-1").await;
        let deferred = events.iter().filter(|(_, e)| matches!(e, EffectEvent::Deferred(_))).count();
        assert_eq!(deferred, 1);
    });
}
