use serde_json::json;
use twice_core::contract::{Contract, KeyContract, ToolClass};
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, Observation};
use twice_core::ids::Fence;
use twice_core::outcome::{RuleId, Verdict};
use twice_core::run::RunState;

use crate::fixtures::{
    DAY, FENCE, HOUR, SECOND, START, apply, authorized, contract, deferred, effect_id, failed, key,
    lookup, proposal, proposed, read, receipt, request_hash, requested, run, start, unknown,
};

#[test]
fn an_effect_begins_with_its_proposal_only() {
    let error = Effect::begin(effect_id(), run(), &authorized(), START).expect_err("illegal");
    assert_eq!(error.to_string(), "an effect that is not proposed cannot take `authorized`");
}

#[test]
fn an_illegal_move_leaves_it_as_it_was() {
    let mut effect = requested(contract(None, None));
    let before = effect.clone();
    effect.apply(&start(2), FENCE, START.plus_ms(1)).expect_err("it is in flight");
    assert_eq!(effect, before);
}

#[test]
fn other_args_before_sending_void_the_authorization() {
    let mut effect = proposed(contract(None, None));
    apply(&mut effect, &authorized(), START);
    let mut other = proposal(contract(None, None));
    other.args = json!({ "amount_cents": 1 });
    apply(&mut effect, &EffectEvent::Proposed(other), START);
    assert_eq!((effect.state, &effect.authorization), (State::Proposed, &None));
    assert_eq!(effect.proposal.args, json!({ "amount_cents": 1 }));
}

#[test]
fn attempts_keep_their_own_verdicts() {
    let mut effect = requested(contract(Some(key()), None));
    let at = |seconds: u64| START.plus_ms(seconds * SECOND);
    apply(&mut effect, &deferred(), at(1));
    effect.apply(&start(2), Fence(9), at(2)).expect("a legal move");
    assert!(!effect.earlier_attempt_in_doubt(), "the first did nothing");
    assert_eq!(effect.first_sent_at(), Some(at(2)));
    apply(&mut effect, &EffectEvent::Unknown(unknown()), at(3));
    effect.apply(&start(3), Fence(9), at(4)).expect("a legal move");
    assert!(effect.earlier_attempt_in_doubt());
    let seen: Vec<_> = effect
        .attempts
        .iter()
        .map(|a| (a.number, a.fence, a.requested_at, a.verdict, a.settled_at))
        .collect();
    assert_eq!(
        seen,
        [
            (1, FENCE, START, Some(Verdict::NotSent), Some(at(1))),
            (2, Fence(9), at(2), Some(Verdict::Indeterminate), Some(at(3))),
            (3, Fence(9), at(4), None, None),
        ]
    );
    let in_doubt: Vec<u32> = effect.indeterminate_attempts().map(|a| a.number).collect();
    assert_eq!(in_doubt, [2, 3]);
}

#[test]
fn the_last_error_is_what_people_need_to_know() {
    let mut effect = requested(contract(None, Some(lookup())));
    apply(&mut effect, &EffectEvent::Unknown(unknown()), START);
    assert_eq!(effect.last_error.as_deref(), Some("no answer in time"));
    let mut done = effect.clone();
    apply(&mut done, &EffectEvent::Confirmed(Box::new(receipt())), START);
    assert_eq!((done.last_error, done.unknown), (None, None));
    apply(&mut effect, &failed(), START);
    assert_eq!(effect.last_error.as_deref(), Some("declined"));
}

#[test]
fn a_late_answer_is_remembered_and_changes_nothing() {
    let late = Observation {
        what: "late answer".to_owned(),
        attempt: Some(1),
        verdict: Some(Verdict::Succeeded),
        rule: Some(RuleId::new("http.201")),
        message: Some("it happened".to_owned()),
        status: Some(201),
        external_id: Some("re_1".to_owned()),
        breach: false,
        detail: json!({ "id": "re_1" }),
    };
    let mut effect = requested(contract(None, None));
    apply(&mut effect, &EffectEvent::Unknown(unknown()), START);
    let before = effect.clone();
    let at = START.plus_ms(9);
    apply(&mut effect, &EffectEvent::Observed(late.clone()), at);
    assert_eq!(effect, Effect { updated_at: at, observed: vec![(at, late)], ..before });
}

#[test]
fn an_observation_of_an_older_version_is_read() {
    let old = json!({ "what": "late answer", "attempt": 1, "verdict": "SUCCEEDED", "detail": {} });
    let seen: Observation = serde_json::from_value(old).unwrap();
    assert_eq!((seen.rule, seen.message, seen.status, seen.breach), (None, None, None, false));
}

/// I5: requested under a dead lease *is* unknown, before any worker has looked.
#[test]
fn requested_under_a_dead_lease_is_shown_as_unknown() {
    let here = requested(Contract::SETTLED_HERE);
    let requested = requested(contract(None, None));
    assert_eq!(requested.shown_state(true), State::Requested);
    assert_eq!(requested.shown_state(false), State::Unknown);
    assert_eq!(here.shown_state(false), State::Requested, "this ledger tells what became of it");
    let proposed = proposed(contract(None, None));
    assert_eq!(proposed.shown_state(false), State::Proposed);
    assert_eq!(proposed.proposal.request_hash, request_hash());
}

#[test]
fn the_class_follows_from_what_is_declared() {
    let classes = [
        (contract(Some(key()), Some(lookup())), ToolClass::KeyAndLookup, "key+lookup"),
        (contract(Some(key()), None), ToolClass::KeyOnly, "key only"),
        (contract(None, Some(lookup())), ToolClass::LookupOnly, "lookup only"),
        (contract(None, None), ToolClass::Neither, "neither"),
        (read(), ToolClass::Read, "read"),
        (Contract::SETTLED_HERE, ToolClass::Ledger, "ledger"),
        (Contract { read: true, ..contract(Some(key()), None) }, ToolClass::Read, "read"),
    ];
    for (contract, class, word) in classes {
        assert_eq!((contract.class(), class.as_str()), (class, word));
        assert!(!class.promise().contains("exactly once"), "no class promises that");
    }
}

#[test]
fn the_margin_of_a_key_is_an_hour_or_a_tenth_but_at_most_half() {
    for (retention_ms, margin_ms) in [
        (0, 0),
        (10 * SECOND, 5 * SECOND),
        (2 * HOUR, HOUR),
        (6 * HOUR, HOUR),
        (DAY, DAY / 10),
        (30 * DAY, 3 * DAY),
        (u64::MAX, u64::MAX / 10),
    ] {
        assert_eq!(KeyContract { retention_ms, ..key() }.margin_ms(), margin_ms);
    }
}

#[test]
fn words_of_run_states_read_back() {
    for state in RunState::ALL {
        assert_eq!(RunState::parse(state.as_str()), Some(state));
        assert_eq!(serde_json::to_value(state).expect("plain"), state.as_str());
    }
    assert_eq!(RunState::parse("READY"), None);
}
