use proptest::prelude::*;
use serde_json::{Value, json};
use twice_core::contract::{Contract, Replay};
use twice_core::effect::{Effect, Hold, State};
use twice_core::event::{EffectEvent, ProbeResult, Source, UnknownReason};
use twice_core::outcome::{Outcome, RuleId, Verdict, settle, settle_probe};
use twice_core::time::Timestamp;

use crate::fixtures::{
    HOUR, SECOND, START, apply, contract, key, lookup, read, requested, start, unknown,
};

fn outcome(verdict: Verdict) -> Outcome {
    Outcome {
        verdict,
        rule: RuleId::new("rule"),
        message: "what happened".to_owned(),
        code: "http_402".to_owned(),
        external_id: Some("re_1".to_owned()),
        retry_after_ms: None,
        answered: false,
        quarantined: false,
        replayed: false,
        contract_breach: false,
        discrepancy: None,
        result: json!({ "id": "re_1" }),
        result_hash: Some("sha256:ab".to_owned()),
        truncated: true,
        exposed: json!({ "id": "re_1" }),
    }
}

/// An effect whose second attempt is under way while the first is in doubt.
fn resent(contract: Contract) -> Effect {
    let mut effect = requested(contract);
    let reason =
        UnknownReason { answered: true, external_id: Some("re_0".to_owned()), ..unknown() };
    apply(&mut effect, &EffectEvent::Unknown(reason), at(10));
    apply(&mut effect, &start(2), at(20));
    effect
}

fn at(seconds: u64) -> Timestamp {
    START.plus_ms(seconds * SECOND)
}

fn wait_ms(event: &EffectEvent, now: Timestamp) -> u64 {
    let not_before = match event {
        EffectEvent::Deferred(deferral) => deferral.not_before,
        EffectEvent::Unknown(reason) => reason.not_before,
        EffectEvent::Probed(probe) => probe.not_before,
        other => panic!("{other:?} waits for nothing"),
    };
    not_before.expect("an instant").ms_since(now)
}

#[track_caller]
fn check(effect: &Effect, outcome: Outcome, state: State) -> EffectEvent {
    let event = settle(effect, outcome, at(30));
    let mut after = effect.clone();
    apply(&mut after, &event, at(30));
    assert_eq!(after.state, state, "{event:?}");
    event
}

#[test]
fn a_success_becomes_a_whole_receipt() {
    let effect = resent(contract(Some(key()), None));
    let event = check(&effect, outcome(Verdict::Succeeded), State::Confirmed);
    let EffectEvent::Confirmed(receipt) = event else { panic!("{event:?}") };
    let proposal = &effect.proposal;
    assert_eq!(receipt.schema, 1);
    assert_eq!(receipt.request_hash, proposal.request_hash);
    assert_eq!(receipt.idempotency_key, "refund/run-781/order-42/full-damaged-item");
    assert_eq!(receipt.external_id.as_deref(), Some("re_1"));
    assert_eq!(
        (receipt.result, receipt.exposed),
        (json!({ "id": "re_1" }), json!({ "id": "re_1" }))
    );
    assert_eq!((receipt.result_hash.as_deref(), receipt.truncated), (Some("sha256:ab"), true));
    assert_eq!(receipt.source, Source::Reply { attempt: 2 });
    assert_eq!((receipt.rule.0.as_str(), receipt.verdict), ("rule", Some(Verdict::Succeeded)));
    assert_eq!(
        (receipt.tool, receipt.operation),
        (proposal.tool.clone(), proposal.operation.clone())
    );
    assert_eq!((receipt.tool_version.as_str(), receipt.policy.as_str()), ("1", "granted"));
    assert_eq!((receipt.attempts, receipt.requested_at, receipt.confirmed_at), (2, START, at(30)));
}

#[test]
fn a_success_that_differs_holds_its_dependants() {
    let mut effect = requested(contract(Some(key()), None));
    let mut differing = outcome(Verdict::Succeeded);
    differing.discrepancy = Some("`/amount` is 1 where 8200 was asked for".to_owned());
    let event = settle(&effect, differing, at(1));
    apply(&mut effect, &event, at(1));
    assert_eq!(effect.state, State::Confirmed);
    assert!(matches!(&effect.hold, Some(Hold::Discrepancy(words)) if words.contains("8200")));
}

#[test]
fn a_refusal_fails_the_effect_unless_an_earlier_attempt_is_in_doubt() {
    let event =
        check(&requested(contract(Some(key()), None)), outcome(Verdict::Rejected), State::Failed);
    let EffectEvent::Failed(failure) = event else { panic!("{event:?}") };
    assert_eq!((failure.code.as_str(), failure.denied), ("http_402", false));
    assert_eq!(failure.source, Some(Source::Reply { attempt: 1 }));
    assert_eq!(failure.verdict, Some(Verdict::Rejected));
    assert_eq!(failure.detail, json!({ "id": "re_1" }));

    let resent = resent(contract(Some(key()), None));
    let event = check(&resent, outcome(Verdict::Rejected), State::Unknown);
    let EffectEvent::Unknown(reason) = event else { panic!("{event:?}") };
    assert_eq!(reason.verdict, Verdict::Rejected);
    assert_eq!(reason.message, "what happened; an earlier attempt is still in doubt");
    assert!(reason.answered);

    // The replay of the first answer is about the first attempt too.
    let replay = Outcome { replayed: true, ..outcome(Verdict::Rejected) };
    check(&resent, replay, State::Failed);
}

#[test]
fn what_did_nothing_is_deferred_unless_an_earlier_attempt_is_in_doubt() {
    for verdict in [Verdict::NotSent, Verdict::NotProcessed] {
        let effect = requested(contract(Some(key()), None));
        let event = check(&effect, outcome(verdict), State::Authorized);
        let EffectEvent::Deferred(deferral) = &event else { panic!("{event:?}") };
        assert_eq!(deferral.verdict, verdict);

        let mut clean = outcome(verdict);
        clean.external_id = None;
        let event = check(&resent(contract(Some(key()), None)), clean, State::Unknown);
        let EffectEvent::Unknown(reason) = event else { panic!("{event:?}") };
        assert_eq!(reason.verdict, verdict);
        // What the answer before told still counts.
        assert_eq!((reason.answered, reason.external_id.as_deref()), (true, Some("re_0")));
    }
}

#[test]
fn a_clean_failure_after_a_clean_failure_is_deferred() {
    let mut effect = requested(contract(Some(key()), None));
    let event = settle(&effect, outcome(Verdict::NotProcessed), at(1));
    apply(&mut effect, &event, at(1));
    apply(&mut effect, &start(2), at(5));
    check(&effect, outcome(Verdict::NotSent), State::Authorized);
}

#[test]
fn what_is_not_known_is_unknown() {
    for verdict in [Verdict::Indeterminate, Verdict::AcceptedPending] {
        let quarantine = Outcome { quarantined: true, answered: true, ..outcome(verdict) };
        let event = check(&requested(contract(None, None)), quarantine, State::Unknown);
        let EffectEvent::Unknown(reason) = event else { panic!("{event:?}") };
        assert_eq!(reason.verdict, verdict);
        assert_eq!(reason.message, "what happened");
        assert!(reason.quarantined && reason.answered);
        assert_eq!(reason.external_id.as_deref(), Some("re_1"));
        assert_eq!(reason.detail, json!({ "id": "re_1" }));
    }
}

#[test]
fn a_read_is_never_held_by_an_earlier_attempt() {
    check(&resent(read()), outcome(Verdict::Rejected), State::Failed);
    check(&resent(read()), outcome(Verdict::NotSent), State::Authorized);
    check(&resent(read()), outcome(Verdict::Succeeded), State::Confirmed);
    let event = check(&resent(read()), outcome(Verdict::Indeterminate), State::Unknown);
    assert!(wait_ms(&event, at(30)) <= 2 * SECOND, "asked again soon: {event:?}");
}

#[test]
fn retry_after_is_honoured_but_clamped() {
    let effect = requested(contract(Some(key()), None));
    let wait = |retry_after_ms| {
        let outcome = Outcome { retry_after_ms, ..outcome(Verdict::NotProcessed) };
        wait_ms(&settle(&effect, outcome, at(1)), at(1))
    };
    let own = wait(None);
    assert!((SECOND / 2..=SECOND).contains(&own), "{own}");
    assert_eq!(wait(Some(0)), own);
    assert_eq!(wait(Some(30 * SECOND)), 30 * SECOND);
    assert_eq!(wait(Some(u64::MAX)), 60 * SECOND);
}

#[test]
fn reconciliation_waits_longer_each_time_and_never_for_ever() {
    let mut effect = requested(contract(None, Some(lookup())));
    let mut now = at(10);
    let event = settle(&effect, outcome(Verdict::Indeterminate), now);
    let mut waits = vec![wait_ms(&event, now)];
    apply(&mut effect, &event, now);
    for _ in 0..12 {
        now = effect.not_before.expect("a probe follows");
        let events = settle_probe(&effect, ProbeResult::Miss, Value::Null, &[], now);
        let [event] = events.as_slice() else { panic!("{events:?}") };
        waits.push(wait_ms(event, now));
        apply(&mut effect, event, now);
    }
    assert!(waits[0] >= 7 * SECOND, "a quarter of the settle window, less jitter: {waits:?}");
    assert!(waits.windows(2).take(5).all(|w| w[0] < w[1]), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 6 * HOUR), "{waits:?}");
}

fn in_doubt() -> Effect {
    let mut effect = requested(contract(None, Some(lookup())));
    apply(&mut effect, &EffectEvent::Unknown(unknown()), at(10));
    effect
}

#[test]
fn a_lookup_that_finds_confirms() {
    #[track_caller]
    fn check(result: ProbeResult, rule: &str, discrepancy: Option<&str>) {
        let mut effect = in_doubt();
        let request = json!({ "method": "GET" });
        let events =
            settle_probe(&effect, result.clone(), request.clone(), &["/id".to_owned()], at(20));
        for event in &events {
            apply(&mut effect, event, at(20));
        }
        let [EffectEvent::Probed(probe), EffectEvent::Confirmed(receipt)] = events.as_slice()
        else {
            panic!("{events:?}")
        };
        assert_eq!((&probe.result, &probe.request, probe.not_before), (&result, &request, None));
        assert_eq!((receipt.rule.0.as_str(), &receipt.source), (rule, &Source::Lookup));
        assert_eq!(receipt.discrepancy.as_deref(), discrepancy);
        assert_eq!(receipt.external_id.as_deref(), Some("re_1"));
        assert_eq!(
            (&receipt.result, &receipt.exposed),
            (&json!({ "id": "re_1" }), &json!({ "id": "re_1" }))
        );
        assert_eq!(effect.state, State::Confirmed);
        assert_eq!(effect.hold, discrepancy.map(|words| Hold::Discrepancy(words.to_owned())));
    }
    let external_id = || Some("re_1".to_owned());
    let object = || json!({ "id": "re_1" });
    let found = ProbeResult::Match { external_id: external_id(), result: object() };
    check(found, "lookup.match", None);
    let difference = "`/amount` is 1 where 8200 was asked for";
    let mismatch = ProbeResult::Mismatch {
        external_id: external_id(),
        result: object(),
        difference: difference.to_owned(),
    };
    check(mismatch, "lookup.mismatch", Some(difference));
    let many = ProbeResult::Many {
        count: 2,
        external_ids: vec!["re_1".to_owned(), "re_2".to_owned()],
        oldest: object(),
    };
    check(many, "lookup.many", Some("the provider has 2 objects: re_1, re_2"));
}

#[test]
fn a_lookup_that_finds_it_refused_fails() {
    let mut effect = in_doubt();
    let result = ProbeResult::Refused {
        external_id: Some("re_1".to_owned()),
        result: json!({ "status": "failed" }),
        message: "`/status` is failed".to_owned(),
    };
    let events = settle_probe(&effect, result.clone(), Value::Null, &[], at(20));
    for event in &events {
        apply(&mut effect, event, at(20));
    }
    assert_eq!((effect.state, effect.probes.len()), (State::Failed, 1));
    assert_eq!(effect.probes[0].1.result, result);
    let failure = effect.failure.expect("a reason");
    assert_eq!(
        (failure.source, failure.message.as_str()),
        (Some(Source::Lookup), "`/status` is failed")
    );
    assert_eq!((effect.answered_at, effect.hold), (Some(at(20)), None));
}

#[test]
fn a_lookup_that_does_not_find_leaves_the_effect_unknown() {
    for result in [
        ProbeResult::Miss,
        ProbeResult::Pending,
        ProbeResult::Error { message: "no answer in time".to_owned() },
    ] {
        let mut effect = in_doubt();
        let events = settle_probe(&effect, result.clone(), Value::Null, &[], at(20));
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert!(wait_ms(event, at(20)) > 0);
        apply(&mut effect, event, at(20));
        assert_eq!(effect.state, State::Unknown);
        assert_eq!(effect.probes.len(), 1);
    }
}

proptest! {
    /// Whatever the verdicts in whatever order: the entry is a legal move, and an attempt in doubt is forgotten only
    /// when something says what became of it.
    #[test]
    fn settling_is_always_legal_and_never_forgets_doubt(
        verdicts in prop::collection::vec((0..6_usize, any::<bool>()), 1..8),
        replay in prop_oneof![Just(Replay::FirstAnswer), Just(Replay::CurrentState)],
    ) {
        const ALL: [Verdict; 6] = [
            Verdict::NotSent, Verdict::NotProcessed, Verdict::Rejected, Verdict::AcceptedPending,
            Verdict::Succeeded, Verdict::Indeterminate,
        ];
        let mut key = key();
        key.replay = replay;
        let mut effect = requested(contract(Some(key), None));
        let mut doubt = false;
        for (number, (verdict, replayed)) in verdicts.into_iter().enumerate() {
            let verdict = ALL[verdict];
            let judged = Outcome { replayed, ..outcome(verdict) };
            let event = settle(&effect, judged, at(30));
            effect.apply(&event, crate::fixtures::FENCE, at(30)).expect("a legal move");
            doubt |= matches!(verdict, Verdict::Indeterminate | Verdict::AcceptedPending);
            match effect.state {
                State::Confirmed => prop_assert_eq!(verdict, Verdict::Succeeded),
                State::Failed => {
                    prop_assert_eq!(verdict, Verdict::Rejected);
                    prop_assert!(!doubt || replayed);
                }
                State::Authorized => prop_assert!(!doubt),
                State::Unknown => prop_assert!(doubt),
                State::Proposed | State::Requested => prop_assert!(false, "{}", effect.state),
            }
            if effect.state.is_final() {
                break;
            }
            apply(&mut effect, &start(number as u32 + 2), at(40));
        }
    }
}
