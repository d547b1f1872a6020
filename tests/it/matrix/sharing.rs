//! Effects that belong to a business object: whatever run asks, one refund.

use std::sync::Arc;

use serde_json::json;
use twice::engine::RunEnd;
use twice::engine::operator::{Decision, Finding};
use twice::engine::retry::Evidence;
use twice_core::approval::Answer;
use twice_core::effect::State;
use twice_core::event::RunEvent;
use twice_core::ids::EffectId;
use twice_ledger::EffectFilter;
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, Pace, Setup, run_id};

use super::run;
use super::tools::{Class, WINDOWS, ask, order, payments, refund_slot, workflow};

/// Two workflows that name their slots differently and mean the same refund.
fn shared(class: Class) -> Setup {
    let slot = |name: &str| {
        refund_slot(name, "scope = \"object\"")
            .replace(&format!("intent = \"{name}\""), "intent = \"full\"")
    };
    let first = workflow("returns", "", &[&slot("refund")]);
    let second = workflow("complaints", "", &[&slot("money-back")]);
    Setup::new(&[&first, &second]).tool(payments(class, WINDOWS))
}

fn adopted(events: &[RunEvent]) -> Vec<EffectId> {
    let mut adopted = Vec::new();
    for event in events {
        if let RunEvent::Adopted { effect } = event {
            adopted.push(effect.clone());
        }
    }
    adopted
}

#[test]
fn a_second_workflow_adopts_the_receipt_of_the_first() {
    run(async {
        let host = Host::start(shared(Class::KeyLookup)).await;
        let first = order("order-1", vec![ask("refund", "order-1", 1_000)]);
        let first = host.run_of("returns", "run-1", first).await;
        let second = order("order-1", vec![ask("money-back", "order-1", 1_000)]);
        let second = host.run_of("complaints", "run-2", second).await;
        let (RunEnd::Completed(first), RunEnd::Completed(second)) = (&first, &second) else {
            panic!("{first:?}, {second:?}")
        };
        assert_eq!(first["notes"], second["notes"]);
        let effect = host.effect("run-1").await;
        assert_eq!(adopted(&host.run_events("run-2").await), [effect.id]);
        assert!(host.listed("run-2").await.is_empty());
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

/// What was called off, or refused, before anything of it was sent says nothing about another run.
#[test]
fn a_second_run_asks_anew_for_what_the_first_never_sent() {
    run(async {
        let approve = "scope = \"object\"\napprove = { by = \"finance\", expires = \"24h\" }";
        let slot = refund_slot("refund", approve);
        let text = workflow("returns", "", &[&slot]);
        let host =
            Host::start(Setup::new(&[&text]).tool(payments(Class::KeyLookup, WINDOWS))).await;
        let input = || order("order-1", vec![ask("refund", "order-1", 1_000)]);
        let ada = || Decision { who: "ada".to_owned(), why: "changed her mind".to_owned() };
        let asked = |id: &'static str| {
            let host = &host;
            async move {
                let end = host.run_of("returns", id, input()).await;
                assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
                let filter =
                    EffectFilter { approvals: true, waiting: true, ..EffectFilter::default() };
                host.ledger.effects(&filter).await.unwrap().remove(0).id
            }
        };
        asked("run-1").await;
        host.engine.cancel(&run_id("run-1"), &ada()).await.unwrap();
        assert!(matches!(host.finish_due("run-1").await, RunEnd::Cancelled { .. }));
        let second = asked("run-2").await;
        host.engine.answer(&second, Answer::Refuse, &ada()).await.unwrap();
        host.finish_due("run-2").await;
        let third = asked("run-3").await;
        host.engine.answer(&third, Answer::Grant, &ada()).await.unwrap();
        assert!(matches!(host.finish_due("run-3").await, RunEnd::Completed(_)));
        let last = host.run_of("returns", "run-4", input()).await;
        assert!(matches!(last, RunEnd::Completed(_)), "{last:?}");
        assert_eq!(adopted(&host.run_events("run-4").await).len(), 1);
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

#[test]
fn what_was_tried_again_by_order_is_what_other_runs_adopt() {
    run(async {
        let declined = Switch::new(Fault::Decline402).times(1);
        let host = Host::start(shared(Class::KeyLookup).switches([declined])).await;
        let must = || {
            let mut step = ask("refund", "order-1", 1_000);
            step["must"] = json!(true);
            order("order-1", vec![step])
        };
        let first = host.run_of("returns", "run-1", must()).await;
        assert!(matches!(first, RunEnd::Failed { .. }), "{first:?}");
        let decision = Decision { who: "ada".to_owned(), why: "the card is good now".to_owned() };
        host.engine.retry(&run_id("run-1"), Evidence::Heeded, &decision).await.unwrap();
        assert!(matches!(host.finish_due("run-1").await, RunEnd::Completed(_)));
        let second = host.run_of("returns", "run-2", must()).await;
        assert!(matches!(second, RunEnd::Completed(_)), "{second:?}");
        assert_eq!(host.counted("refund").await.effects, 1);
        assert_eq!(host.counted("refund").await.requests, 2);
    });
}

#[test]
fn a_second_run_that_means_something_else_is_halted() {
    run(async {
        let host = Host::start(shared(Class::KeyLookup)).await;
        let first = order("order-1", vec![ask("refund", "order-1", 1_000)]);
        host.run_of("returns", "run-1", first).await;
        let second = order("order-1", vec![ask("refund", "order-1", 900)]);
        let end = host.run_of("returns", "run-2", second).await;
        let RunEnd::Halted { why } = end else { panic!("{end:?}") };
        assert!(why.contains("run-1") && why.contains("1000") && why.contains("900"), "{why}");
        assert_eq!(host.counted("refund").await.requests, 1);
        host.history("run-2").await;
    });
}

#[test]
fn a_second_run_waits_while_the_first_is_in_doubt() {
    run(async {
        let lost = Switch::new(Fault::CommitThenDrop).times(1);
        let host = Host::start(shared(Class::Neither).switches([lost])).await;
        let input = || order("order-1", vec![ask("refund", "order-1", 1_000)]);
        let first = host.run_of("returns", "run-1", input()).await;
        assert!(matches!(first, RunEnd::Halted { .. }), "{first:?}");
        let second = host.run_of("returns", "run-2", input()).await;
        let RunEnd::Waiting { why, .. } = second else { panic!("{second:?}") };
        assert!(why.contains("run-1"), "{why}");

        let effect = host.effect("run-1").await;
        let decision = Decision { who: "ada".to_owned(), why: "it is in the console".to_owned() };
        let finding = Finding::Confirmed {
            result: json!({ "id": "re_1" }),
            external_id: Some("re_1".to_owned()),
        };
        host.engine.resolve(&effect.id, finding, &decision).await.unwrap();
        for run in ["run-2", "run-1"] {
            let end = host.finish(run, Pace::Jump).await;
            let RunEnd::Completed(output) = end else { panic!("{run}: {end:?}") };
            assert_eq!(output["notes"][0]["body"]["id"], "re_1", "{run}");
        }
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

#[test]
fn runs_that_ask_at_the_same_time_share_one_effect() {
    run(async {
        let slow = Switch::new(Fault::DelayMs).value(100);
        let host = Arc::new(Host::start(shared(Class::KeyLookup).switches([slow])).await);
        let mut runs = tokio::task::JoinSet::new();
        for number in 0..8 {
            let host = Arc::clone(&host);
            runs.spawn(async move {
                let input = order("order-1", vec![ask("refund", "order-1", 1_000)]);
                let engine = host.another(twice::engine::boundary::Boundaries::none());
                host.try_run_of(&engine, "returns", &format!("run-{number}"), input).await
            });
        }
        for end in runs.join_all().await {
            assert!(matches!(end, Ok(RunEnd::Completed(_) | RunEnd::Waiting { .. })), "{end:?}");
        }
        let mut owned = 0;
        for number in 0..8 {
            let id = format!("run-{number}");
            let end = host.finish(&id, Pace::Jump).await;
            assert!(matches!(end, RunEnd::Completed(_)), "{id}: {end:?}");
            let listed = host.listed(&id).await;
            owned += listed.len();
            assert!(listed.iter().all(|row| row.state == State::Confirmed), "{listed:?}");
            host.history(&id).await;
        }
        assert_eq!(owned, 1);
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (1, 1));
    });
}
