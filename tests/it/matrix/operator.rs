//! What a person decides, and what comes of it.

use serde_json::{Value, json};
use twice::engine::RunEnd;
use twice::engine::operator::{Decision, DecisionError, Finding};
use twice::engine::retry::Evidence;
use twice_core::effect::{Effect, State};
use twice_core::event::{ConflictRule, RunEvent, Source};
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, Pace};

use super::run;
use super::tools::{Class, WINDOWS, ask, later, one_refund, one_refund_in, order, until_attempt};

fn decision() -> Decision {
    Decision { who: "ada".to_owned(), why: "seen in the provider's console".to_owned() }
}

fn confirmed() -> Finding {
    Finding::Confirmed { result: json!({ "id": "re_1" }), external_id: Some("re_1".to_owned()) }
}

/// A run whose only request is lost at a tool with neither key nor lookup.
async fn in_doubt() -> (Host, Effect) {
    let lost = Switch::new(Fault::CommitThenDrop).times(1);
    let host = Host::start(one_refund(Class::Neither, WINDOWS).switches([lost])).await;
    let input = order("order-1", vec![ask("refund", "order-1", 1_000)]);
    let end = host.run_and_finish("run-1", input, Pace::Jump).await;
    let RunEnd::Halted { why } = end else { panic!("{end:?}") };
    assert!(why.contains("effects resolve") && why.contains("--evidence"), "{why}");
    let effect = host.effect("run-1").await;
    assert_eq!(effect.state, State::Unknown);
    (host, effect)
}

#[track_caller]
fn check_resolved(finding: Finding, state: State, note: (&'static str, Value)) {
    run(async move {
        let (host, effect) = in_doubt().await;
        let resolved = host.engine.resolve(&effect.id, finding.clone(), &decision()).await.unwrap();
        assert_eq!(resolved.state, state);
        let end = host.finish("run-1", Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        assert_eq!(output["notes"][0][note.0], note.1, "{output}");
        assert_eq!(host.counted("refund").await.requests, 1);

        let effect = host.effect("run-1").await;
        let source = match state {
            State::Confirmed => effect.receipt.clone().unwrap().source,
            _ => effect.failure.clone().unwrap().source.unwrap(),
        };
        let who = Source::Operator { who: decision().who, evidence: decision().why };
        assert_eq!(source, who);
        let again = host.engine.resolve(&effect.id, finding, &decision()).await;
        assert!(matches!(again, Err(DecisionError::NotNow { .. })), "{again:?}");
        host.history("run-1").await;
    });
}

#[test]
fn a_person_s_finding_settles_what_nobody_else_can() {
    check_resolved(confirmed(), State::Confirmed, ("body", json!({ "id": "re_1" })));
    check_resolved(Finding::Failed, State::Failed, ("failed", json!("resolved")));
}

#[test]
fn a_run_in_doubt_stays_with_its_person_however_often_it_is_resumed() {
    run(async {
        let (host, effect) = in_doubt().await;
        for _ in 0..3 {
            host.advance(3_600_000).await;
            assert!(matches!(host.resume("run-1").await, RunEnd::Halted { .. }));
        }
        // A release decides nothing about the effect.
        let id = twice_tests::host::run_id("run-1");
        host.engine.release(&id, Evidence::Heeded, &decision()).await.unwrap();
        assert!(matches!(host.finish("run-1", Pace::Jump).await, RunEnd::Halted { .. }));
        assert_eq!(host.counted("refund").await.requests, 1);
        assert_eq!(host.effect("run-1").await.id, effect.id);
    });
}

/// A run that waits for a person, as its node asked for 1000 first and for 2000 after a restart.
async fn in_conflict(slot: &str) -> (Host, RunEnd) {
    let host = Host::start(one_refund_in(Class::KeyLookup, WINDOWS, "", slot)).await;
    let todo = vec![
        until_attempt(2, ask("refund", "order-1", 1_000)),
        until_attempt(2, later()),
        ask("refund", "order-1", 2_000),
    ];
    let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
    (host, end)
}

#[track_caller]
fn check_conflict(rule: ConflictRule, effects: u64, told: impl Fn(&Value) + Send + 'static) {
    run(async move {
        let (host, end) = in_conflict("").await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        let first = host.effect("run-1").await;
        assert_eq!(host.counted("refund").await.requests, 1);
        host.engine.decide_conflict(&first.id, rule, &decision()).await.unwrap();
        let again = host.engine.decide_conflict(&first.id, rule, &decision()).await;
        assert!(matches!(again, Err(DecisionError::NotNow { .. })), "{again:?}");

        let end = host.finish("run-1", Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        told(&output["notes"][0]);
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (effects, effects));
        let keys = counted.deliveries_per_key.len() as u64;
        assert_eq!(keys, effects, "each logical action has its own key");
        let released =
            |event: &RunEvent| matches!(event, RunEvent::Released { who, .. } if who == "ada");
        assert!(host.run_events("run-1").await.iter().any(released));
        let effects = host.effects("run-1").await;
        assert_eq!(effects[0].receipt, first.receipt, "the first receipt is as it was");
        if let Some(second) = effects.get(1) {
            assert_eq!(second.proposal.identity.generation, 2);
            assert!(second.proposal.idempotency_key.ends_with("/generation=2"));
        }
    });
}

#[test]
fn a_conflict_is_decided_by_a_person() {
    check_conflict(ConflictRule::Keep, 1, |note| {
        assert_eq!(note["body"]["amount_cents"], 1_000, "{note}");
    });
    check_conflict(ConflictRule::Fail, 1, |note| assert_eq!(note["failed"], "conflict", "{note}"));
    check_conflict(ConflictRule::Renew, 2, |note| {
        assert_eq!(note["body"]["amount_cents"], 2_000, "{note}");
    });
}

/// The node asks for three amounts under one identity, one after the other.
async fn three_amounts() -> Host {
    let host = Host::start(one_refund(Class::KeyLookup, WINDOWS)).await;
    let asks = [1_000, 2_000, 3_000].map(|cents| ask("refund", "order-1", cents));
    let end = host.run("run-1", order("order-1", asks.to_vec())).await;
    assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
    host
}

async fn decide(host: &Host, rule: ConflictRule) -> RunEnd {
    let effects = host.effects("run-1").await;
    let held = effects.iter().find(|effect| effect.hold.is_some()).unwrap();
    host.engine.decide_conflict(&held.id, rule, &decision()).await.unwrap();
    host.finish("run-1", Pace::Jump).await
}

#[test]
fn a_decision_is_about_the_request_that_was_in_conflict_and_about_no_other() {
    run(async {
        let host = three_amounts().await;
        let end = decide(&host, ConflictRule::Renew).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "nobody decided about the third: {end:?}");
        let RunEnd::Completed(output) = decide(&host, ConflictRule::Renew).await else { panic!() };
        let told = [0, 1, 2].map(|n| output["notes"][n]["body"]["amount_cents"].clone());
        assert_eq!(told, [1_000, 2_000, 3_000].map(Value::from));
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (3, 3), "each amount once");

        let host = three_amounts().await;
        let end = decide(&host, ConflictRule::Fail).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        let RunEnd::Completed(output) = decide(&host, ConflictRule::Keep).await else { panic!() };
        assert_eq!(output["notes"][0]["body"]["amount_cents"], 1_000, "{output}");
        assert_eq!(output["notes"][1]["failed"], "conflict", "{output}");
        assert_eq!(output["notes"][2]["body"]["amount_cents"], 1_000, "{output}");
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

#[test]
fn a_slot_that_keeps_needs_no_person() {
    run(async {
        let (host, end) = in_conflict("on_conflict = \"keep\"").await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        assert_eq!(output["notes"][0]["body"]["amount_cents"], 1_000);
        let effect = host.effect("run-1").await;
        assert_eq!(effect.decisions.len(), 1);
        assert_eq!((effect.decisions[0].who.as_str(), effect.hold), ("slot", None));
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

#[track_caller]
fn check_discrepancy(rule: ConflictRule, note: (&'static str, Value)) {
    run(async move {
        let wrong = Switch::new(Fault::WrongAmount).value(500).times(1);
        let host = Host::start(one_refund(Class::KeyLookup, WINDOWS).switches([wrong])).await;
        let input = order("order-1", vec![ask("refund", "order-1", 1_000)]);
        let end = host.run_and_finish("run-1", input, Pace::Jump).await;
        let RunEnd::Halted { why } = end else { panic!("{end:?}") };
        assert!(why.contains("1500") && why.contains("1000"), "{why}");
        let effect = host.effect("run-1").await;
        host.engine.decide_conflict(&effect.id, rule, &decision()).await.unwrap();
        let end = host.finish("run-1", Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        let told = output["notes"][0].pointer(note.0);
        assert_eq!(told, Some(&note.1), "{output}");
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

#[test]
fn a_result_that_is_not_what_was_asked_for_is_decided_by_a_person() {
    check_discrepancy(ConflictRule::Keep, ("/body/amount_cents", json!(1_500)));
    check_discrepancy(ConflictRule::Fail, ("/failed", json!("conflict")));
}

/// The first request is still in doubt when its node asks for something else.
#[track_caller]
fn check_conflict_in_doubt(rule: ConflictRule, effects: u64, note: (&'static str, Value)) {
    run(async move {
        let slow = Switch::new(Fault::DelayAfterCommitMs).value(30_000).times(1);
        let node = "limits = { time = \"1s\" }";
        let setup = one_refund_in(Class::KeyLookup, WINDOWS, node, "").switches([slow]);
        let host = Host::start(setup).await;
        let todo = vec![
            until_attempt(2, ask("refund", "order-1", 1_000)),
            ask("refund", "order-1", 2_000),
        ];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        let effect = host.effect("run-1").await;
        assert_eq!(effect.state, State::Unknown);
        assert_eq!(host.counted("refund").await.requests, 1);

        host.engine.decide_conflict(&effect.id, rule, &decision()).await.unwrap();
        let end = host.finish("run-1", Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        assert_eq!(output["notes"][0].pointer(note.0), Some(&note.1), "{output}");
        let all = host.effects("run-1").await;
        assert!(all.iter().all(|effect| effect.state == State::Confirmed), "{all:?}");
        assert_eq!(all[0].receipt.as_ref().unwrap().source, Source::Lookup);
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (effects, effects));
        host.history("run-1").await;
    });
}

#[test]
fn whatever_is_decided_about_a_conflict_the_first_request_is_reconciled() {
    check_conflict_in_doubt(ConflictRule::Keep, 1, ("/body/amount_cents", json!(1_000)));
    check_conflict_in_doubt(ConflictRule::Fail, 1, ("/failed", json!("conflict")));
    check_conflict_in_doubt(ConflictRule::Renew, 2, ("/body/amount_cents", json!(2_000)));
}

/// A refund that is declined once, and without which the node gives up.
async fn declined() -> Host {
    let decline = Switch::new(Fault::Decline402).times(1);
    let host = Host::start(one_refund(Class::KeyLookup, WINDOWS).switches([decline])).await;
    let mut refund = ask("refund", "order-1", 1_000);
    refund["must"] = json!(true);
    let end = host.run_and_finish("run-1", order("order-1", vec![refund]), Pace::Jump).await;
    assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
    host
}

#[test]
fn a_failed_run_is_tried_again_only_by_a_person_and_as_the_next_generation() {
    run(async {
        let host = declined().await;
        let id = twice_tests::host::run_id("run-1");
        // However often it is resumed, a failed run stays failed and nothing is sent.
        assert!(matches!(host.resume("run-1").await, RunEnd::Failed { .. }));
        assert_eq!(host.counted("refund").await.requests, 1);

        assert_eq!(host.engine.retry(&id, Evidence::Heeded, &decision()).await.unwrap(), 1);
        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        let mut keys: Vec<(String, State)> = host
            .effects("run-1")
            .await
            .into_iter()
            .map(|effect| (effect.proposal.idempotency_key, effect.state))
            .collect();
        keys.sort();
        assert_eq!(keys.len(), 2, "{keys:?}");
        assert_eq!(keys[0].1, State::Failed);
        assert_eq!(keys[1], (format!("{}/generation=2", keys[0].0), State::Confirmed));
        assert_eq!(host.counted("refund").await.effects, 1);

        let again = host.engine.retry(&id, Evidence::Heeded, &decision()).await;
        assert!(again.is_err(), "a completed run has nothing to try again");
        assert!(matches!(host.resume("run-1").await, RunEnd::Completed(_)));
        assert_eq!(host.counted("refund").await.requests, 2);
        let retried = |event: &RunEvent| matches!(event, RunEvent::Retried { .. });
        assert_eq!(host.run_events("run-1").await.iter().filter(|event| retried(event)).count(), 1);
    });
}

#[test]
fn what_was_confirmed_before_a_run_failed_keeps_its_receipt_when_it_is_tried_again() {
    run(async {
        let host = Host::start(one_refund(Class::KeyLookup, WINDOWS)).await;
        let refund = ask("refund", "order-1", 1_000);
        let fatal = json!({ "do": "fatal", "message": "no" });
        let todo = vec![refund, fatal];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
        let receipt = host.effect("run-1").await.receipt;
        let id = twice_tests::host::run_id("run-1");
        assert_eq!(host.engine.retry(&id, Evidence::Heeded, &decision()).await.unwrap(), 0);
        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
        assert_eq!(host.effect("run-1").await.receipt, receipt);
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}
