//! A node starts again from its first line: what was answered is answered from the ledger, to the byte.

use serde_json::{Value, json};
use twice::engine::RunEnd;
use twice_core::effect::Effect;
use twice_core::event::{EffectEvent, RunEvent};
use twice_core::ids::EffectId;
use twice_core::json::canonical;
use twice_tests::host::{Host, Pace, Setup};

use super::run;
use super::tools::{
    Class, WINDOWS, ask, later, order, payments, refund_slot, until_attempt, workflow,
};

/// Two refunds and two questions to a model.
fn two_and_two() -> Setup {
    let question =
        |name: &str| format!("\n[[node.effect]]\nslot = \"{name}\"\ntool = \"mind.refund\"\n");
    let slots = [
        refund_slot("goods", ""),
        refund_slot("postage", ""),
        question("first"),
        question("second"),
    ];
    let text = workflow("refunds", "", &[&slots[0], &slots[1], &slots[2], &slots[3]]);
    let mind = payments(Class::Read, WINDOWS).replacen("\"payments\"", "\"mind\"", 1);
    Setup::new(&[&text]).tool(payments(Class::KeyLookup, WINDOWS)).tool(mind)
}

/// An effect as it stands, whole.
fn text(effects: &[Effect]) -> String {
    format!("{effects:?}")
}

#[test]
fn what_was_answered_before_a_restart_is_answered_with_the_same_bytes_after_it() {
    run(async {
        let host = Host::start(two_and_two()).await;
        let volatile = |slot: &str| json!({ "do": "request_volatile", "slot": slot });
        let todo = vec![
            volatile("first"),
            ask("goods", "order-1", 1_000),
            volatile("second"),
            until_attempt(2, later()),
            ask("postage", "order-1", 500),
        ];
        let end = host.run("run-1", order("order-1", todo)).await;
        assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
        let before = host.effects("run-1").await;
        assert_eq!(before.len(), 3);
        let entries = host.history("run-1").await;

        let end = host.finish("run-1", Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        // Durable time and randomness went into the questions: had they changed, there would be a conflict now.
        let after = host.effects("run-1").await;
        let kept: Vec<Effect> =
            after.iter().filter(|e| before.iter().any(|b| b.id == e.id)).cloned().collect();
        assert_eq!(text(&kept), text(&before));
        assert_eq!(host.history("run-1").await[..entries.len()], entries[..]);
        let goods = after.iter().find(|effect| effect.proposal.slot.as_str() == "goods").unwrap();
        let receipt = goods.receipt.as_ref().unwrap();
        assert_eq!(canonical(&output["notes"][1]["body"]), canonical(&receipt.exposed));
        assert_eq!(host.counted("refund").await.requests, 2);
        assert_eq!(host.counted("model").await.requests, 2);
    });
}

#[test]
fn durable_time_and_randomness_go_on_after_a_restart_as_they_would_have() {
    run(async {
        let host = Host::start(two_and_two()).await;
        let look = || vec![json!({ "do": "random", "count": 40 }), json!({ "do": "now" })];
        let mut todo = look();
        todo.push(ask("goods", "order-1", 1_000));
        todo.extend(look());
        let plain = host.run_and_finish("run-1", order("order-1", todo.clone()), Pace::Jump).await;
        let RunEnd::Completed(plain) = plain else { panic!("{plain:?}") };
        // The stream moves on within a step, and time to when the answer came.
        let note = |at: usize| plain["notes"][at].clone();
        assert_ne!(note(0), note(3));
        assert!(note(4).as_u64().unwrap() >= note(1).as_u64().unwrap());

        // The run's id is a part of the seed, so the same run is lost and done again in another host.
        let host = std::sync::Arc::new(Host::start(two_and_two()).await);
        let at = twice::engine::boundary::Boundary::BeforeCheckpoint;
        assert!(host.crash_run("run-1", order("order-1", todo), at, 1).await);
        host.outlive_lease().await;
        let again = host.finish("run-1", Pace::Jump).await;
        let RunEnd::Completed(again) = again else { panic!("{again:?}") };
        assert_eq!(plain["notes"][0], again["notes"][0]);
        assert_eq!(plain["notes"][3], again["notes"][3]);
    });
}

/// Which effects the last step that completed did not ask for again.
fn diverged(events: &[RunEvent]) -> &[EffectId] {
    let completed = |event: &&RunEvent| matches!(event, RunEvent::StepCompleted { .. });
    match events.iter().rfind(completed) {
        Some(RunEvent::StepCompleted { diverged, .. }) => diverged,
        other => panic!("no step completed: {other:?}"),
    }
}

#[test]
fn an_effect_that_a_restarted_node_no_longer_asks_for_is_reported() {
    run(async {
        let host = Host::start(two_and_two()).await;
        let todo = vec![
            until_attempt(2, ask("goods", "order-1", 1_000)),
            until_attempt(2, later()),
            ask("postage", "order-1", 500),
        ];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        let effects = host.effects("run-1").await;
        assert_eq!(diverged(&host.run_events("run-1").await), [effects[0].id.clone()]);
        let confirmed =
            |(_, event): &(EffectId, EffectEvent)| matches!(event, EffectEvent::Confirmed(_));
        assert_eq!(host.effect_events("run-1").await.iter().filter(|e| confirmed(e)).count(), 2);
    });
}

#[test]
fn a_node_that_always_traps_gives_up_with_its_receipt_on_record() {
    run(async {
        for last in ["trap", "bad_output"] {
            let host = Host::start(two_and_two()).await;
            let todo: Vec<Value> = vec![ask("goods", "order-1", 1_000), json!({ "do": last })];
            let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
            assert!(matches!(end, RunEnd::Failed { .. }), "{last}: {end:?}");
            assert_eq!(host.counted("refund").await.requests, 1, "{last}");
            let failed = host.run_events("run-1").await;
            let failed = failed.iter().filter(|e| matches!(e, RunEvent::StepFailed { .. })).count();
            assert_eq!(failed, 5, "{last}");
        }
    });
}
