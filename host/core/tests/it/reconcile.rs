//! What may be done next about an effect: by class of tool, state, key, settle window, misses, quarantine, dead lease and
//! horizon. Times are seconds after the first attempt; see `fixtures::contract` for the windows.

use proptest::prelude::*;
use serde_json::json;
use twice_core::contract::{
    Consistency, Contract, KeyContract, LookupBy, LookupContract, Replay, Retry, ToolClass,
};
use twice_core::effect::{Effect, State};
use twice_core::event::{Conflict, ConflictRule, EffectEvent, Failure, ProbeResult, UnknownReason};
use twice_core::ids::Fence;
use twice_core::outcome::{RuleId, Verdict};
use twice_core::reconcile::{
    Next, RULE_ABANDONED, RULE_LEASE_DIED, ask_again_ms, backoff_ms, decides_alone, next,
    reconcile_backoff_ms,
};
use twice_core::time::Timestamp;

use crate::fixtures::{
    DAY, FENCE, HOUR, SECOND, START, apply, authorized, contract, deferred, failed, key, lookup,
    probed, proposed, read, receipt, requested, start, unknown,
};

fn at(seconds: u64) -> Timestamp {
    START.plus_ms(seconds * SECOND)
}

const HOURS: u64 = HOUR / SECOND;
const DAYS: u64 = DAY / SECOND;

fn both() -> Contract {
    contract(Some(key()), Some(lookup()))
}
fn key_only() -> Contract {
    contract(Some(key()), None)
}
fn lookup_only() -> Contract {
    contract(None, Some(lookup()))
}
fn neither() -> Contract {
    contract(None, None)
}

/// With a provider that repeats its first answer under a key, errors included.
fn repeats_errors(mut contract: Contract) -> Contract {
    if let Some(key) = &mut contract.key {
        key.replay = Replay::FirstAnswer;
    }
    contract
}

fn lagging(mut contract: Contract) -> Contract {
    contract.lookup = Some(LookupContract {
        by: LookupBy::Reference,
        consistency: Consistency::Lagging(30 * SECOND),
    });
    contract
}

fn by_key(mut contract: Contract) -> Contract {
    contract.lookup = Some(LookupContract { by: LookupBy::Key, consistency: Consistency::Strong });
    contract
}

/// An effect whose first attempt became unknown after ten seconds, for `reason`.
fn doubtful_for(contract: Contract, reason: UnknownReason) -> Effect {
    let mut effect = requested(contract);
    apply(&mut effect, &EffectEvent::Unknown(reason), at(10));
    effect
}

fn doubtful(contract: Contract) -> Effect {
    doubtful_for(contract, unknown())
}

fn answered() -> UnknownReason {
    UnknownReason { answered: true, ..unknown() }
}

fn lease_died() -> UnknownReason {
    UnknownReason { rule: RuleId::new(RULE_LEASE_DIED), ..unknown() }
}

fn probe(mut effect: Effect, result: ProbeResult, seconds: u64) -> Effect {
    apply(&mut effect, &probed(result), at(seconds));
    effect
}

fn misses(effect: Effect, seconds: &[u64]) -> Effect {
    seconds.iter().fold(effect, |effect, &at| probe(effect, ProbeResult::Miss, at))
}

fn error() -> ProbeResult {
    ProbeResult::Error { message: "no answer in time".to_owned() }
}

/// A move in a few words.
fn words(next: &Next) -> String {
    match next {
        Next::Authorize => "authorize".to_owned(),
        Next::Send { attempt } => format!("send {attempt}"),
        Next::MarkUnknown(reason) => format!("unknown: {}", reason.rule),
        Next::Lookup => "lookup".to_owned(),
        Next::AskLedger => "ask the ledger".to_owned(),
        Next::GiveUp(failure) => format!("give up: {}", failure.code),
        Next::Wait { until, .. } => format!("wait until {}", until.ms_since(START) / SECOND),
        Next::Person { why } => {
            let about = [
                ("quarantined", "key is in use"),
                ("neither", "neither an idempotency key nor a lookup"),
                ("horizon", "horizon"),
                ("forgotten", "forgotten its key"),
                ("conflict", "with other args"),
                ("differs", "not as asked"),
            ];
            let found = about.into_iter().find(|(_, words)| why.contains(words));
            format!("person: {}", found.map_or(why.as_str(), |(word, _)| word))
        }
        Next::Answered => "answered".to_owned(),
    }
}

#[track_caller]
fn check(effect: &Effect, seconds: u64, expected: &str) {
    assert_eq!(words(&next(effect, FENCE, at(seconds))), expected);
}

#[test]
fn before_anything_is_sent_every_class_is_alike() {
    for contract in [both(), key_only(), lookup_only(), neither(), read()] {
        let mut effect = proposed(contract);
        check(&effect, 0, "authorize");
        apply(&mut effect, &authorized(), at(1));
        check(&effect, 1, "send 1");
        apply(&mut effect, &EffectEvent::Failed(Failure { denied: true, ..failure() }), at(2));
        check(&effect, 2, "answered");
    }
}

fn failure() -> Failure {
    let EffectEvent::Failed(failure) = failed() else { unreachable!("it is a failure") };
    failure
}

/// Its outcome can be asked of this ledger at any time, whoever asked for it and however long ago.
#[test]
fn what_this_ledger_settles_is_asked_of_it_and_never_unknown() {
    let mut effect = proposed(Contract::SETTLED_HERE);
    apply(&mut effect, &authorized(), START);
    check(&effect, 0, "send 1");
    apply(&mut effect, &start(1), START);
    for fence in [FENCE, Fence(FENCE.0 + 1)] {
        for seconds in [0, 1, 400 * DAYS] {
            assert_eq!(words(&next(&effect, fence, at(seconds))), "ask the ledger");
        }
    }
    let waits: Vec<u64> =
        [0, 1, 2, 10, 100, 120, 400 * DAYS].map(|s| ask_again_ms(&effect, at(s)) / SECOND).to_vec();
    assert_eq!(waits, [1, 1, 1, 5, 50, 60, 60]);
}

#[test]
fn what_is_answered_is_answered_for_every_class() {
    for contract in [both(), key_only(), lookup_only(), neither(), read()] {
        for event in [EffectEvent::Confirmed(Box::new(receipt())), failed()] {
            let mut effect = requested(contract.clone());
            apply(&mut effect, &event, at(1));
            check(&effect, 1, "answered");
            check(&effect, 400 * DAYS, "answered");
        }
    }
}

#[test]
fn a_request_is_in_flight_only_for_its_own_lease_and_time() {
    for contract in [both(), key_only(), lookup_only(), neither(), read()] {
        let effect = requested(contract);
        check(&effect, 0, "wait until 10");
        check(&effect, 9, "wait until 10");
        check(&effect, 10, "unknown: attempt.unanswered");
        let later = next(&effect, Fence(FENCE.0 + 1), at(0));
        assert_eq!(words(&later), "unknown: lease.died");
    }
}

#[test]
fn what_did_nothing_is_sent_again_after_its_backoff_until_attempts_are_used_up() {
    for contract in [both(), key_only(), lookup_only(), neither(), read()] {
        let mut effect = requested(contract);
        let EffectEvent::Deferred(mut deferral) = deferred() else { unreachable!("it is") };
        deferral.not_before = Some(at(20));
        apply(&mut effect, &EffectEvent::Deferred(deferral), at(5));
        check(&effect, 19, "wait until 20");
        check(&effect, 20, "send 2");
        for attempt in [2, 3] {
            apply(&mut effect, &start(attempt), at(30));
            apply(&mut effect, &deferred(), at(31));
        }
        check(&effect, 32, "give up: exhausted");
    }
}

#[test]
fn an_operation_without_retries_is_sent_once_all_the_same() {
    for attempts in [0, 1] {
        let retry = Retry { attempts, initial_ms: 0, max_ms: 0 };
        let mut effect = proposed(Contract { retry, ..neither() });
        apply(&mut effect, &authorized(), at(0));
        check(&effect, 0, "send 1");
        apply(&mut effect, &start(1), at(0));
        apply(&mut effect, &deferred(), at(1));
        check(&effect, 1, "give up: exhausted");
    }
}

#[test]
fn unknown_waits_for_its_backoff_where_something_can_be_asked() {
    let reason = || UnknownReason { not_before: Some(at(40)), ..unknown() };
    for contract in [both(), key_only(), lookup_only(), read()] {
        check(&doubtful_for(contract, reason()), 39, "wait until 40");
    }
    check(&doubtful_for(neither(), reason()), 39, "person: neither");
}

#[test]
fn unknown_without_key_and_lookup_waits_for_a_person() {
    for seconds in [10, 1_000, 400 * DAYS] {
        check(&doubtful(neither()), seconds, "person: neither");
    }
    check(&doubtful_for(neither(), lease_died()), 10, "person: neither");
}

#[test]
fn unknown_with_a_key_is_sent_again_while_the_key_lives() {
    check(&doubtful(key_only()), 11, "send 2");
    check(&doubtful_for(key_only(), lease_died()), 11, "send 2");
    // A day of retention, less a tenth of it.
    let live = 24 * HOURS - 24 * HOURS / 10;
    check(&doubtful(key_only()), live - 1, "send 2");
    check(&doubtful(key_only()), live, "person: forgotten");
    check(&doubtful(key_only()), live + 10 * DAYS, "person: forgotten");
}

#[test]
fn a_key_lives_from_the_first_request_that_may_have_left() {
    let mut effect = requested(key_only());
    apply(&mut effect, &deferred(), at(1));
    apply(&mut effect, &start(2), at(20 * HOURS));
    apply(&mut effect, &EffectEvent::Unknown(unknown()), at(20 * HOURS + 10));
    // The first attempt did not leave: it gave the provider no key to remember.
    check(&effect, 40 * HOURS, "send 3");
    check(&effect, 42 * HOURS, "person: forgotten");
}

#[test]
fn short_retention_keeps_a_usable_half() {
    let short = |retention_ms| {
        let key = KeyContract { retention_ms, ..key() };
        doubtful(contract(Some(key), None))
    };
    check(&short(1_800 * SECOND), 899, "send 2");
    check(&short(1_800 * SECOND), 900, "person: forgotten");
    check(&short(3 * HOUR), 2 * HOURS - 1, "send 2");
    check(&short(3 * HOUR), 2 * HOURS, "person: forgotten");
    check(&short(0), 11, "person: forgotten");
}

#[test]
fn unknown_with_key_and_lookup_is_looked_up_and_then_sent_again() {
    check(&doubtful(both()), 11, "lookup");
    check(&misses(doubtful(both()), &[12]), 13, "send 2");
    check(&probe(doubtful(both()), error(), 12), 13, "send 2");
    check(&probe(doubtful(both()), ProbeResult::Pending, 12), 13, "lookup");
    check(&misses(doubtful(lagging(both())), &[12]), 13, "send 2");
    // Each attempt is looked up anew.
    let mut effect = misses(doubtful(both()), &[12]);
    apply(&mut effect, &start(2), at(12));
    apply(&mut effect, &EffectEvent::Unknown(unknown()), at(12));
    check(&effect, 13, "lookup");
    check(&misses(effect, &[12]), 13, "send 3");
}

#[test]
fn an_error_that_the_key_repeats_is_not_asked_for_again() {
    let effect = || doubtful_for(repeats_errors(both()), answered());
    check(&misses(effect(), &[12]), 13, "lookup");
    // The lookup proves that nothing came of it; the key would repeat the error for ever.
    check(&misses(effect(), &[100, 161]), 162, "give up: absent");
    // Without an answer there is no error to repeat.
    check(&misses(doubtful(repeats_errors(both())), &[12]), 13, "send 2");
    // A provider that does failed work again is asked again.
    check(&misses(doubtful_for(both(), answered()), &[12]), 13, "send 2");
}

#[test]
fn absence_needs_the_settle_window_and_two_misses_a_window_apart() {
    let effect = || doubtful(lookup_only());
    check(&effect(), 11, "lookup");
    check(&misses(effect(), &[12]), 13, "lookup");
    check(&misses(effect(), &[12, 80]), 81, "lookup");
    check(&misses(effect(), &[69, 129]), 130, "lookup");
    check(&misses(effect(), &[70, 129]), 130, "lookup");
    check(&misses(effect(), &[70, 70]), 130, "lookup");
    check(&misses(effect(), &[70, 130]), 131, "send 2");
    check(&misses(effect(), &[12, 70, 100, 130]), 131, "send 2");
    // A lookup that failed between two misses tells nothing; an object in the making does.
    let with = |result| probe(misses(effect(), &[70]), result, 100);
    check(&misses(with(error()), &[130]), 131, "send 2");
    check(&misses(with(ProbeResult::Pending), &[130]), 131, "lookup");
    check(&misses(with(ProbeResult::Pending), &[130, 190]), 191, "send 2");
}

#[test]
fn a_sender_that_was_given_up_may_live_for_one_more_attempt() {
    for rule in [RULE_LEASE_DIED, RULE_ABANDONED] {
        let given_up = UnknownReason { rule: RuleId::new(rule), ..unknown() };
        let effect = || doubtful_for(lookup_only(), given_up.clone());
        check(&misses(effect(), &[70, 130]), 131, "lookup");
        check(&misses(effect(), &[80, 140]), 141, "send 2");
    }
}

#[test]
fn the_sender_before_the_last_may_live_as_well() {
    let mut effect = doubtful_for(lookup_only(), lease_died());
    apply(&mut effect, &start(2), at(11));
    apply(&mut effect, &deferred_unknown(), at(12));
    // Of the second attempt nothing left, but the first may be under way until 20.
    check(&misses(effect.clone(), &[72, 132]), 133, "lookup");
    check(&misses(effect, &[80, 140]), 141, "send 3");
}

fn deferred_unknown() -> EffectEvent {
    EffectEvent::Unknown(UnknownReason {
        verdict: Verdict::NotSent,
        rule: RuleId::new("transport.dns"),
        ..unknown()
    })
}

#[test]
fn a_lookup_that_lags_or_goes_by_a_forgotten_key_never_refutes() {
    let many: Vec<u64> = (1..100).map(|n| n * 61).collect();
    let last = 100 * 61;
    check(&misses(doubtful(lagging(lookup_only())), &many), last, "lookup");
    let expired = 30 * HOURS;
    let late: Vec<u64> = (1..100).map(|n| expired + n * 61).collect();
    check(&misses(doubtful(by_key(both())), &late), expired + last, "lookup");
    // By our own reference it does, whatever the provider thinks of the key.
    check(&misses(doubtful(both()), &late), expired + last, "send 2");
    // While the key lives a lookup by it is as good.
    let effect = doubtful_for(repeats_errors(by_key(both())), answered());
    check(&misses(effect, &many), last, "give up: absent");
}

#[test]
fn an_expired_key_is_sent_again_only_on_proof_of_absence() {
    let expired = 24 * HOURS;
    let effect = || doubtful(both());
    check(&effect(), expired, "lookup");
    check(&misses(effect(), &[expired]), expired + 1, "lookup");
    check(&misses(effect(), &[expired, expired + 59]), expired + 60, "lookup");
    check(&misses(effect(), &[expired, expired + 60]), expired + 61, "send 2");
}

#[test]
fn proven_absence_gives_up_when_attempts_are_used_up() {
    let retry = Retry { attempts: 1, initial_ms: SECOND, max_ms: SECOND };
    let effect = doubtful(Contract { retry, ..lookup_only() });
    check(&misses(effect, &[70, 130]), 131, "give up: absent");
}

#[test]
fn reconciliation_ends_at_its_horizon() {
    let horizon = 3 * DAYS;
    for contract in [both(), lookup_only(), lagging(lookup_only())] {
        let effect = probe(doubtful(contract), error(), 100);
        check(&effect, horizon, "lookup");
        check(&effect, horizon + 1, "person: horizon");
    }
    let long = KeyContract { retention_ms: 30 * DAY, ..key() };
    let mut effect = doubtful(contract(Some(long), None));
    // Nobody looked after it until now: it is asked about once.
    check(&effect, horizon + 1, "send 2");
    apply(&mut effect, &start(2), at(horizon + 1));
    apply(&mut effect, &EffectEvent::Unknown(unknown()), at(horizon + 2));
    check(&effect, horizon + 3, "person: horizon");
    check(&doubtful(lookup_only()), horizon + 1, "lookup");
    check(&doubtful(both()), horizon + 1, "lookup");
}

/// A first miss that comes after the horizon is not the last lookup, if a second one could settle it.
#[test]
fn a_proof_that_began_after_the_horizon_is_brought_to_its_end() {
    let late = 3 * DAYS + 100;
    let begun = misses(doubtful(lookup_only()), &[late]);
    check(&begun, late + 59, "lookup");
    check(&misses(begun.clone(), &[late + 59]), late + 60, "lookup");
    check(&misses(begun.clone(), &[late + 60]), late + 61, "send 2");
    check(&begun, late + 3_600, "person: horizon");
    let lagging = misses(doubtful(lagging(lookup_only())), &[late]);
    check(&lagging, late + 1, "person: horizon");
}

#[test]
fn quarantine_waits_for_a_person_whatever_could_be_asked() {
    let reason = || UnknownReason {
        quarantined: true,
        message: "our key is in use with another request".to_owned(),
        not_before: Some(at(500)),
        ..unknown()
    };
    for contract in [both(), key_only(), lookup_only(), neither()] {
        check(&doubtful_for(contract.clone(), reason()), 11, "person: quarantined");
        check(&misses(doubtful_for(contract, reason()), &[700, 800]), 900, "person: quarantined");
    }
}

#[test]
fn a_read_is_asked_again_until_attempts_are_used_up() {
    let quarantined = || UnknownReason { quarantined: true, ..unknown() };
    for reason in [unknown(), lease_died(), answered(), quarantined()] {
        check(&doubtful_for(read(), reason.clone()), 11, "send 2");
        check(&doubtful_for(read(), reason), 400 * DAYS, "send 2");
    }
    let mut effect = doubtful(read());
    for attempt in [2, 3] {
        apply(&mut effect, &start(attempt), at(20));
        apply(&mut effect, &EffectEvent::Unknown(unknown()), at(30));
    }
    check(&effect, 31, "give up: exhausted");
}

fn conflict() -> Conflict {
    let other = json!({ "amount_cents": 82_000 });
    let payments = crate::fixtures::name("payments");
    let refund = crate::fixtures::name("refund");
    Conflict {
        recorded_hash: crate::fixtures::request_hash(),
        requested_hash: twice_core::identity::RequestHash::of(&payments, "1", &refund, &other, &[]),
        args: other,
    }
}

fn decide(effect: &mut Effect) {
    let decision = twice_core::event::ConflictDecision {
        decision: ConflictRule::Keep,
        who: "ada".to_owned(),
        why: "the first amount is right".to_owned(),
        requested_hash: conflict().requested_hash,
    };
    apply(effect, &EffectEvent::ConflictDecided(decision), at(300));
}

#[test]
fn a_conflict_is_held_for_a_person_until_decided() {
    for contract in [both(), key_only(), lookup_only(), neither()] {
        let mut effect = doubtful(contract);
        let before = words(&next(&effect, FENCE, at(301)));
        apply(&mut effect, &EffectEvent::Conflicted(conflict()), at(11));
        check(&effect, 12, "person: conflict");
        decide(&mut effect);
        check(&effect, 301, &before);
        assert_eq!(effect.last_error.as_deref(), Some("no answer in time"));
    }
}

#[test]
fn a_conflict_outlives_the_outcome_and_a_difference_outlives_the_conflict() {
    let mut effect = requested(both());
    apply(&mut effect, &EffectEvent::Conflicted(conflict()), at(1));
    let mut receipt = receipt();
    receipt.discrepancy = Some("`/amount` is 1".to_owned());
    apply(&mut effect, &EffectEvent::Confirmed(Box::new(receipt)), at(2));
    check(&effect, 3, "person: conflict");
    decide(&mut effect);
    check(&effect, 301, "person: differs");
    decide(&mut effect);
    check(&effect, 301, "answered");
}

#[test]
fn only_keep_decides_a_conflict_without_a_person() {
    assert!(decides_alone(ConflictRule::Keep));
    assert!(!decides_alone(ConflictRule::Fail));
    assert!(!decides_alone(ConflictRule::Renew));
}

#[test]
fn jitter_is_the_same_at_each_replay_and_differs_between_effects() {
    let effect = proposed(both());
    let mut other = twice_core::event::Proposal { ..effect.proposal.clone() };
    other.identity.generation = 2;
    let id = other.identity.effect_id();
    let other = Effect::begin(id, effect.run.clone(), &EffectEvent::Proposed(other), START)
        .expect("a proposal comes first");
    let waits = |effect: &Effect| [1, 2, 3, 9].map(|made| backoff_ms(effect, made, 1_000, 60_000));
    assert_eq!(waits(&effect), waits(&effect));
    assert_ne!(waits(&effect), waits(&other));
}

#[derive(Debug, Clone)]
enum Step {
    Answer(Verdict, bool),
    Vanish,
    Probe(ProbeResult),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let verdict = prop_oneof![
        Just(Verdict::NotSent),
        Just(Verdict::NotProcessed),
        Just(Verdict::AcceptedPending),
        Just(Verdict::Indeterminate),
        Just(Verdict::Indeterminate),
    ];
    let result = prop_oneof![
        4 => Just(ProbeResult::Miss),
        1 => Just(ProbeResult::Pending),
        1 => Just(error()),
    ];
    let step = prop_oneof![
        (verdict, any::<bool>()).prop_map(|(verdict, answered)| Step::Answer(verdict, answered)),
        Just(Step::Vanish),
        result.prop_map(Step::Probe),
        prop_oneof![0..200_u64, 0..100_000_u64, Just(4 * DAYS)].prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..40)
}

fn contracts() -> impl Strategy<Value = Contract> {
    let replay = prop_oneof![
        Just(Replay::FirstAnswer),
        Just(Replay::SuccessOnly),
        Just(Replay::CurrentState),
        Just(Replay::ConflictWithId),
        Just(Replay::RedrivesFailed),
    ];
    let retention = prop_oneof![Just(0), Just(600 * SECOND), Just(DAY), Just(u64::MAX)];
    let key = (replay, retention).prop_map(|(replay, retention_ms)| KeyContract {
        replay,
        retention_ms,
        ..key()
    });
    let consistency = prop_oneof![Just(Consistency::Strong), Just(Consistency::Lagging(SECOND))];
    let by = prop_oneof![Just(LookupBy::Key), Just(LookupBy::Reference)];
    let lookup = (by, consistency).prop_map(|(by, consistency)| LookupContract { by, consistency });
    let windows = (
        prop_oneof![Just(0), Just(60 * SECOND), Just(u64::MAX)],
        prop_oneof![Just(3 * DAY), Just(u64::MAX)],
        0..5_u32,
    );
    (prop::option::of(key), prop::option::of(lookup), windows, any::<bool>()).prop_map(
        |(key, lookup, (settle_ms, horizon_ms, attempts), read)| Contract {
            read,
            settle_ms,
            horizon_ms,
            retry: Retry { attempts, initial_ms: SECOND, max_ms: 60 * SECOND },
            ..contract(key, lookup)
        },
    )
}

/// Does what `next` says, with `steps` as the world: what comes of each send, what lookups tell, how time passes. Calls
/// `look` on every decision.
fn play(contract: Contract, steps: Vec<Step>, mut look: impl FnMut(&Effect, &Next, Timestamp)) {
    let mut effect = proposed(contract);
    let (mut now, mut fence) = (START, FENCE);
    let mut steps = steps.into_iter();
    loop {
        let decision = next(&effect, fence, now);
        look(&effect, &decision, now);
        let event = match decision {
            Next::Authorize => authorized(),
            Next::Send { attempt } => start(attempt),
            Next::MarkUnknown(reason) => EffectEvent::Unknown(reason),
            Next::GiveUp(failure) => EffectEvent::Failed(failure),
            Next::Answered => return,
            Next::Lookup | Next::AskLedger | Next::Wait { .. } | Next::Person { .. } => {
                match steps.next() {
                    None => return,
                    Some(Step::Pass(seconds)) => {
                        now = now.plus_ms(seconds * SECOND);
                        continue;
                    }
                    Some(Step::Vanish) => {
                        fence = Fence(fence.0 + 1);
                        continue;
                    }
                    Some(Step::Probe(result)) if effect.state == State::Unknown => probed(result),
                    Some(Step::Answer(verdict, answered)) if effect.state == State::Requested => {
                        let outcome = twice_core::outcome::Outcome { answered, ..judged(verdict) };
                        twice_core::outcome::settle(&effect, outcome, now)
                    }
                    Some(Step::Probe(_) | Step::Answer(..)) => continue,
                }
            }
        };
        effect.apply(&event, fence, now).expect("`next` asks for legal moves only");
    }
}

fn judged(verdict: Verdict) -> twice_core::outcome::Outcome {
    twice_core::outcome::Outcome {
        verdict,
        rule: RuleId::new("rule"),
        message: "what happened".to_owned(),
        code: "code".to_owned(),
        external_id: None,
        retry_after_ms: None,
        answered: false,
        quarantined: false,
        replayed: false,
        contract_breach: false,
        discrepancy: None,
        result: json!(null),
        result_hash: None,
        truncated: false,
        exposed: json!({}),
    }
}

fn key_live(effect: &Effect, now: Timestamp) -> bool {
    let first = effect.first_sent_at().expect("it was sent");
    let key = effect.contract().key.as_ref();
    key.is_some_and(|key| now < first.plus_ms(key.retention_ms - key.margin_ms()))
}

/// An independent and more lenient reading of DESIGN §6: two misses since the last attempt, a settle window apart, by a
/// lookup that can refute.
fn absence_shown(effect: &Effect) -> bool {
    let contract = effect.contract();
    let strong =
        contract.lookup.as_ref().is_some_and(|lookup| lookup.consistency == Consistency::Strong);
    let last = effect.attempts.last().expect("it was sent");
    let misses: Vec<Timestamp> = effect.probes[last.probes_before..]
        .iter()
        .filter(|(_, probe)| probe.result == ProbeResult::Miss)
        .map(|(at, _)| *at)
        .collect();
    let settled = last.settled_at.expect("unknown means settled").plus_ms(contract.settle_ms);
    let late: Vec<&Timestamp> = misses.iter().filter(|at| **at >= settled).collect();
    match (late.first(), late.last()) {
        (Some(first), Some(last)) => {
            strong && last > first && last.ms_since(**first) >= contract.settle_ms
        }
        (_, _) => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_history_leads_to_a_blind_second_request(contract in contracts(), steps in steps()) {
        let class = contract.class();
        play(contract, steps, |effect, decision, now| {
            let sends = matches!(decision, Next::Send { .. });
            if sends && effect.state == State::Unknown {
                assert_ne!(class, ToolClass::Neither, "sent once only");
                assert!(
                    class == ToolClass::Read || key_live(effect, now) || absence_shown(effect),
                    "sent again under a forgotten key, or without one: {effect:?}"
                );
            }
            if let Next::Send { attempt } = decision {
                assert_eq!(*attempt as usize, effect.attempts.len() + 1);
                let in_doubt = effect.indeterminate_attempts().count() > 0;
                assert!(effect.state == State::Unknown || !in_doubt || class == ToolClass::Read);
            }
            if let Next::GiveUp(failure) = decision
                && effect.state == State::Unknown
                && class != ToolClass::Read
            {
                assert_eq!(failure.code, "absent");
                assert!(absence_shown(effect), "given up what may have happened: {effect:?}");
            }
            if let Next::Wait { until, .. } = decision {
                assert!(*until > now, "a wait that is over");
            }
            if class == ToolClass::Read {
                assert!(!matches!(decision, Next::Person { .. }), "a read waits for nobody");
            }
        });
    }

    #[test]
    fn waits_are_bounded_and_never_wrap(
        contract in contracts(), made in any::<u32>(), initial in any::<u64>(), max in any::<u64>(),
    ) {
        let effect = proposed(contract);
        let wait = backoff_ms(&effect, made, initial, max);
        prop_assert!(wait <= max);
        prop_assert!(reconcile_backoff_ms(&effect, made) <= 6 * HOUR);
    }
}
