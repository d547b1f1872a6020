//! What is kept of answers that may not be applied, and what they amount to for a person.

use serde_json::{Value, json};
use twice_core::effect::Effect;
use twice_core::event::{EffectEvent, Observation, ProbeResult};
use twice_core::evidence::{self, Evidence};
use twice_core::outcome::{
    Answer, Body, Declarations, Exchange, Fault, FaultKind, RuleId, Sent, Verdict, classify,
    observe, observe_lookup,
};

use crate::fixtures::{START, apply, contract, key, requested, seen as seen_of, start, unknown};

fn answered(status: u16, body: Value) -> Exchange {
    let answer = Answer {
        status,
        headers: Vec::new(),
        body: Body::Json(body),
        body_hash: None,
        schema_error: None,
    };
    Exchange { sent: Sent::Maybe, result: Ok(answer) }
}

fn broken(sent: Sent, kind: FaultKind, status: Option<u16>) -> Exchange {
    let message = "it broke".to_owned();
    Exchange { sent, result: Err(Fault { kind, status, message }) }
}

fn seen(exchange: &Exchange) -> Option<Observation> {
    let declared = Declarations { external_id: Some("/id".to_owned()), ..Declarations::default() };
    let outcome = classify(exchange, &declared, &json!({}), true);
    observe("late answer", 2, exchange, &outcome)
}

#[test]
fn an_answer_is_kept_with_what_it_said() {
    let kept = seen(&answered(201, json!({ "id": "re_1" }))).unwrap();
    assert_eq!(
        (kept.what.as_str(), kept.attempt, kept.status),
        ("late answer", Some(2), Some(201))
    );
    assert_eq!(
        (kept.verdict, kept.rule.unwrap().0.as_str()),
        (Some(Verdict::Succeeded), "http.201")
    );
    assert_eq!((kept.external_id.as_deref(), kept.breach), (Some("re_1"), false));
    assert_eq!(kept.detail, json!({ "id": "re_1" }));

    let drifted = seen(&answered(201, json!({ "refund": "re_1" }))).unwrap();
    assert_eq!((drifted.verdict, drifted.breach), (Some(Verdict::Indeterminate), true));
    let error = seen(&answered(500, json!({}))).unwrap();
    assert_eq!((error.verdict, error.status), (Some(Verdict::Indeterminate), Some(500)));
}

#[test]
fn what_tells_nothing_is_not_kept() {
    assert_eq!(seen(&broken(Sent::Maybe, FaultKind::Timeout, None)), None);
    assert_eq!(seen(&broken(Sent::Maybe, FaultKind::Abandoned, None)), None);
    let head = seen(&broken(Sent::Maybe, FaultKind::BodyTruncated, Some(201))).unwrap();
    assert_eq!((head.verdict, head.status), (Some(Verdict::Indeterminate), Some(201)));
    let unsent = seen(&broken(Sent::Nothing, FaultKind::Abandoned, None)).unwrap();
    assert_eq!((unsent.verdict, unsent.status), (Some(Verdict::NotSent), None));
}

#[track_caller]
fn check_lookup(result: &ProbeResult, rule: &str, verdict: Option<Verdict>, id: Option<&str>) {
    let kept = observe_lookup("lookup", result).expect("it told something");
    assert_eq!((kept.rule, kept.verdict), (Some(RuleId::new(rule)), verdict));
    assert_eq!((kept.external_id.as_deref(), kept.attempt), (id, None));
}

#[test]
fn what_a_lookup_told_is_kept_unless_it_failed() {
    let id = || Some("re_1".to_owned());
    let result = json!({ "id": "re_1" });
    let happened = Some(Verdict::Succeeded);
    let found = ProbeResult::Match { external_id: id(), result: result.clone() };
    check_lookup(&found, "lookup.match", happened, Some("re_1"));
    let other = ProbeResult::Mismatch {
        external_id: id(),
        result: result.clone(),
        difference: "another amount".to_owned(),
    };
    check_lookup(&other, "lookup.mismatch", happened, Some("re_1"));
    let external_ids = vec!["re_1".to_owned(), "re_2".to_owned()];
    let many = ProbeResult::Many { count: 2, external_ids, oldest: result.clone() };
    check_lookup(&many, "lookup.many", happened, Some("re_1"));
    let refused = ProbeResult::Refused { external_id: id(), result, message: "void".to_owned() };
    check_lookup(&refused, "lookup.refused", Some(Verdict::Rejected), Some("re_1"));
    check_lookup(&ProbeResult::Pending, "lookup.pending", Some(Verdict::AcceptedPending), None);
    check_lookup(&ProbeResult::Miss, "lookup.miss", None, None);
    let failed = ProbeResult::Error { message: "no answer".to_owned() };
    assert_eq!(observe_lookup("lookup", &failed), None);
}

/// An effect with so many attempts, all in doubt, and what arrived about them.
fn doubtful(attempts: u32, observed: &[(Option<u32>, Verdict)]) -> Effect {
    let mut effect = requested(contract(Some(key()), None));
    for attempt in 2..=attempts {
        apply(&mut effect, &EffectEvent::Unknown(unknown()), START);
        apply(&mut effect, &start(attempt), START);
    }
    apply(&mut effect, &EffectEvent::Unknown(unknown()), START);
    for (attempt, verdict) in observed {
        let seen = Observation { attempt: *attempt, ..seen_of(*verdict) };
        apply(&mut effect, &EffectEvent::Observed(seen), START);
    }
    effect
}

#[track_caller]
fn check_evidence(attempts: u32, observed: &[(Option<u32>, Verdict)], happened: Option<bool>) {
    let effect = doubtful(attempts, observed);
    let found = evidence::of(&effect).map(|found| matches!(found, Evidence::Happened(_)));
    assert_eq!(found, happened, "{attempts} attempts, {observed:?}");
}

#[test]
fn a_success_is_evidence_and_a_refusal_only_of_every_attempt() {
    use Verdict::{Indeterminate, NotSent, Rejected, Succeeded};
    check_evidence(1, &[], None);
    check_evidence(1, &[(Some(1), Indeterminate)], None);
    check_evidence(1, &[(Some(1), Succeeded)], Some(true));
    check_evidence(2, &[(Some(1), Succeeded), (Some(2), Rejected)], Some(true));
    check_evidence(1, &[(Some(1), Rejected)], Some(false));
    check_evidence(1, &[(Some(1), NotSent)], Some(false));
    check_evidence(2, &[(Some(1), Rejected)], None);
    check_evidence(2, &[(Some(1), Rejected), (Some(2), NotSent)], Some(false));
    check_evidence(2, &[(None, Rejected)], Some(false));
}

#[test]
fn a_verdict_is_spelled_in_one_way() {
    for verdict in [
        Verdict::NotSent,
        Verdict::NotProcessed,
        Verdict::Rejected,
        Verdict::AcceptedPending,
        Verdict::Succeeded,
        Verdict::Indeterminate,
    ] {
        assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
    }
}
