//! How effects are undone: the whole table of what follows from an effect, the requests to undo it, and what people say.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use twice_core::contract::{Contract, Retry};
use twice_core::effect::{Effect, Hold, State};
use twice_core::event::{
    Compensation, Conflict, ConflictDecision, ConflictRule, EffectEvent, Failure, OnUnknown,
    Proposal,
};
use twice_core::identity::{KeyFormat, RequestHash};
use twice_core::ids::EffectId;
use twice_core::outcome::Verdict;
use twice_core::saga::{Next, Settled, WayBack, next, stuck_at, undos, way_back};
use twice_core::time::Timestamp;

use crate::fixtures::{
    SECOND, START, apply, authorized, contract, failed, identity, key, name, proposal, receipt,
    request_hash, run, seen, start, unknown,
};

const RETRY: Retry = Retry { attempts: 3, initial_ms: 10 * SECOND, max_ms: 15 * SECOND };
/// Long after everything.
const LATE: Timestamp = Timestamp(START.0 + 1_000_000_000);

fn compensation(on_unknown: OnUnknown, retry: Retry) -> Compensation {
    let (tool, operation) = (name("payments"), name("reverse"));
    Compensation {
        idempotency_key: identity().compensation(&tool, &operation, 1).key(),
        tool,
        tool_version: "1".to_owned(),
        operation,
        args: json!({}),
        on_unknown,
        retry,
    }
}

/// An effect in that state, whose undoing is declared so, if it is.
fn effect(state: State, compensation: Option<Compensation>) -> Effect {
    let proposal = Proposal {
        compensation: compensation.map(Box::new),
        ..proposal(contract(Some(key()), None))
    };
    in_state(proposal, state, failed())
}

fn in_state(proposal: Proposal, state: State, failure: EffectEvent) -> Effect {
    let hash = proposal.request_hash.clone();
    let id = proposal.identity.effect_id();
    let begin = EffectEvent::Proposed(proposal);
    let mut effect = Effect::begin(id, run(), &begin, START).expect("a proposal comes first");
    let last = match state {
        State::Proposed => return effect,
        State::Authorized | State::Requested => None,
        State::Confirmed => {
            let receipt = twice_core::event::Receipt { request_hash: hash, ..receipt() };
            Some(EffectEvent::Confirmed(Box::new(receipt)))
        }
        State::Failed => Some(failure),
        State::Unknown => Some(EffectEvent::Unknown(unknown())),
    };
    apply(&mut effect, &authorized(), START);
    if state != State::Authorized {
        apply(&mut effect, &start(1), START);
    }
    if let Some(last) = last {
        apply(&mut effect, &last, START);
    }
    effect
}

/// Whether a person ordered that a refused undo is asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ordered {
    No,
    Yes,
}

/// The undo of that number, from 1, in that state.
fn undo(number: u32, state: State, ordered: Ordered, denied: bool) -> Effect {
    let (tool, operation) = (name("payments"), name("reverse"));
    let of = identity();
    let identity = of.compensation(&tool, &operation, number);
    let args = json!({ "refund_id": "re_1" });
    let proposal = Proposal {
        request_hash: RequestHash::of(&tool, "1", &operation, &args, &[]),
        idempotency_key: identity.key(),
        provider_key: identity.provider_key(KeyFormat::Uuid),
        undoes: Some(of.effect_id()),
        identity,
        tool,
        operation,
        args,
        ..proposal(contract(Some(key()), None))
    };
    let failure = match failed() {
        EffectEvent::Failed(failure) => EffectEvent::Failed(Failure { denied, ..failure }),
        other => other,
    };
    let requested_hash = proposal.request_hash.clone();
    let mut undo = in_state(proposal, state, failure);
    if ordered == Ordered::Yes && state == State::Failed {
        let decision = ConflictDecision {
            decision: ConflictRule::Renew,
            who: "ada".to_owned(),
            why: "mended".to_owned(),
            requested_hash,
        };
        apply(&mut undo, &EffectEvent::ConflictDecided(decision), START);
    }
    undo
}

/// `next` in a word.
fn word(effect: &Effect, undos: &[&Effect], resolved: bool, now: Timestamp) -> String {
    match next(effect, undos, resolved, now) {
        Next::Settled(Settled::NotHappened) => "not happened".to_owned(),
        Next::Settled(Settled::Undone) => "undone".to_owned(),
        Next::Settled(Settled::ByPerson) => "by person".to_owned(),
        Next::Settled(Settled::Stays) => "stays".to_owned(),
        Next::Propose { attempt } => format!("propose {attempt}"),
        Next::Drive => "drive".to_owned(),
        Next::Wait { until, .. } => format!("wait {}", until.ms_since(START)),
        Next::Held => "held".to_owned(),
        Next::Stuck { .. } => "stuck".to_owned(),
    }
}

#[test]
fn what_was_never_asked_to_be_undone() {
    use State::{Authorized, Confirmed, Failed, Proposed, Requested, Unknown};
    for (state, none, hold, undo) in [
        (Proposed, "held", "held", "propose 1"),
        (Authorized, "held", "held", "propose 1"),
        (Requested, "held", "held", "propose 1"),
        (Unknown, "held", "held", "propose 1"),
        (Confirmed, "stays", "propose 1", "propose 1"),
        (Failed, "not happened", "not happened", "not happened"),
    ] {
        let declared = |on_unknown| effect(state, Some(compensation(on_unknown, RETRY)));
        assert_eq!(word(&effect(state, None), &[], false, LATE), none, "{state}, not declared");
        assert_eq!(word(&declared(OnUnknown::Hold), &[], false, LATE), hold, "{state}, hold");
        assert_eq!(word(&declared(OnUnknown::Undo), &[], false, LATE), undo, "{state}, undo");
    }
}

#[test]
fn what_may_still_happen_is_not_undone_before_it_cannot_any_more() {
    let declared = compensation(OnUnknown::Undo, RETRY);
    let unknown = effect(State::Unknown, Some(declared.clone()));
    // The contract's settle window is a minute.
    for (after, expected) in [(0, "wait 60000"), (59_999, "wait 60000"), (60_000, "propose 1")] {
        assert_eq!(word(&unknown, &[], false, START.plus_ms(after)), expected, "{after} ms");
    }
    // Nothing of these has left.
    for state in [State::Proposed, State::Authorized] {
        assert_eq!(word(&effect(state, Some(declared.clone())), &[], false, START), "propose 1");
    }
    // Where its worker vanished the request itself may live as long as its timeout.
    let mut died = effect(State::Requested, Some(declared));
    let vanished = twice_core::reconcile::vanished(&died);
    apply(&mut died, &EffectEvent::Unknown(vanished), START.plus_ms(5_000));
    assert_eq!(word(&died, &[], false, START.plus_ms(74_999)), "wait 75000");
    assert_eq!(word(&died, &[], false, START.plus_ms(75_000)), "propose 1");
}

/// The undo of a number, for every state that it may be left in.
fn every_undo(number: u32) -> Vec<(Effect, Ordered, bool)> {
    let flags =
        [(Ordered::No, false), (Ordered::No, true), (Ordered::Yes, false), (Ordered::Yes, true)];
    let all = State::ALL.into_iter().flat_map(|state| flags.map(|flags| (state, flags)));
    all.map(|(state, (ordered, denied))| (undo(number, state, ordered, denied), ordered, denied))
        .collect()
}

/// Every effect × every history of undos that can be, of at most four × both words about what is unknown × how often it may
/// be asked for × what a person says. What comes of the undos is worked out here another way: by the count since a person last
/// ordered one.
#[test]
fn what_was_asked_to_be_undone() {
    let refused = |n: u32| {
        [Ordered::No, Ordered::Yes].map(|ordered| undo(n + 1, State::Failed, ordered, false))
    };
    let refused: Vec<[Effect; 2]> = (0..3).map(refused).collect();
    let latest: Vec<_> = (1..5).map(every_undo).collect();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (state, on_unknown, attempts) in declarations() {
        let retry = Retry { attempts, ..RETRY };
        let effect = effect(state, Some(compensation(on_unknown, retry)));
        for earlier in 0..4_usize {
            // Each bit: whether a person ordered another after that refusal.
            for orders in 0..1_usize << earlier {
                let ordered_after = |n: usize| orders >> n & 1;
                let since = (0..earlier).rev().take_while(|n| ordered_after(*n) == 0).count();
                let count = 1 + u32::try_from(since).expect("they are few");
                for (latest, ordered, denied) in &latest[earlier] {
                    let before = (0..earlier).map(|n| &refused[n][ordered_after(n)]);
                    let undos: Vec<&Effect> = before.chain([latest]).collect();
                    let again = format!("propose {}", earlier + 2);
                    let expected = match latest.state {
                        State::Confirmed => "undone",
                        State::Failed if *ordered == Ordered::Yes => again.as_str(),
                        State::Failed if *denied || count >= attempts.max(1) => "stuck",
                        State::Failed => again.as_str(),
                        _ => "drive",
                    };
                    let case = || {
                        format!(
                            "{state}, {on_unknown:?}, {attempts} attempts, {orders:b} of {earlier}, {latest:?}"
                        )
                    };
                    let told = word(&effect, &undos, false, LATE);
                    assert_eq!(told, expected, "{}", case());
                    assert_eq!(word(&effect, &undos, true, LATE), "by person", "{}", case());
                    *seen.entry(told).or_default() += 1;
                }
            }
        }
    }
    let words: Vec<&str> = seen.keys().map(String::as_str).collect();
    let all = ["drive", "propose 2", "propose 3", "propose 4", "propose 5", "stuck", "undone"];
    assert_eq!(words, all, "{seen:?}");
}

fn declarations() -> impl Iterator<Item = (State, OnUnknown, u32)> {
    let words = [OnUnknown::Hold, OnUnknown::Undo];
    let of = move |state| words.into_iter().flat_map(move |w| (0..4).map(move |n| (state, w, n)));
    State::ALL.into_iter().flat_map(of)
}

#[test]
fn what_was_refused_waits_longer_each_time_and_anew_after_an_order() {
    let retry = Retry { attempts: 9, ..RETRY };
    let effect = effect(State::Confirmed, Some(compensation(OnUnknown::Hold, retry)));
    let refused = |count: u32, ordered: &[u32]| -> Vec<Effect> {
        let order = |n| if ordered.contains(&n) { Ordered::Yes } else { Ordered::No };
        (1..=count).map(|n| undo(n, State::Failed, order(n), false)).collect()
    };
    for (count, ordered, wait) in [
        (1, &[][..], 10_000),
        (2, &[][..], 15_000),
        (3, &[][..], 15_000),
        (3, &[2][..], 10_000),
        (4, &[2][..], 15_000),
        (4, &[1][..], 15_000),
    ] {
        let undos = refused(count, ordered);
        let undos: Vec<&Effect> = undos.iter().collect();
        let due = START.plus_ms(wait);
        let before = Timestamp(due.0 - 1);
        assert_eq!(word(&effect, &undos, false, before), format!("wait {wait}"), "{ordered:?}");
        assert_eq!(word(&effect, &undos, false, due), format!("propose {}", count + 1));
    }
    // An order does not wait.
    let ordered = refused(2, &[2]);
    let ordered: Vec<&Effect> = ordered.iter().collect();
    assert_eq!(word(&effect, &ordered, false, START), "propose 3");
}

#[test]
fn an_undo_that_is_held_for_a_decision_is_not_done() {
    let effect = effect(State::Confirmed, Some(compensation(OnUnknown::Hold, RETRY)));
    let mut held = undo(1, State::Confirmed, Ordered::No, false);
    let conflict =
        Conflict { recorded_hash: request_hash(), requested_hash: request_hash(), args: json!({}) };
    apply(&mut held, &EffectEvent::Conflicted(conflict), START);
    assert!(matches!(held.hold, Some(Hold::Conflict(_))));
    assert_eq!(word(&effect, &[&held], false, LATE), "drive");
}

/// A person who does not let it stand that something else was done than asked for says that nothing is undone.
#[test]
fn an_undo_that_a_person_rejects_is_none() {
    let effect = effect(State::Confirmed, Some(compensation(OnUnknown::Hold, RETRY)));
    for (rule, expected) in [(ConflictRule::Keep, "undone"), (ConflictRule::Fail, "stuck")] {
        let mut undo = undo(1, State::Confirmed, Ordered::No, false);
        let decision = ConflictDecision {
            decision: rule,
            who: "ada".to_owned(),
            why: "another amount".to_owned(),
            requested_hash: undo.proposal.request_hash.clone(),
        };
        apply(&mut undo, &EffectEvent::ConflictDecided(decision), START);
        assert_eq!(word(&effect, &[&undo], false, LATE), expected, "{rule:?}");
        assert_eq!(word(&effect, &[&undo], true, LATE), "by person");
    }
}

/// What came since says that it happened: neither is what may be there left there, nor is it undone a second time, without a
/// person.
#[test]
fn what_failed_and_happened_after_all_is_a_person_s() {
    let yes = |verdict| EffectEvent::Observed(seen(verdict));
    for (verdict, forward, undone) in
        [(Verdict::Succeeded, "stuck", "stuck"), (Verdict::Rejected, "not happened", "propose 2")]
    {
        let mut failed = effect(State::Failed, Some(compensation(OnUnknown::Hold, RETRY)));
        apply(&mut failed, &yes(verdict), START);
        assert_eq!(word(&failed, &[], false, LATE), forward);
        assert_eq!(word(&failed, &[], true, LATE), "by person");

        let done = effect(State::Confirmed, Some(compensation(OnUnknown::Hold, RETRY)));
        let mut refused = undo(1, State::Failed, Ordered::No, false);
        apply(&mut refused, &yes(verdict), START);
        assert_eq!(word(&done, &[&refused], false, LATE), undone);
    }
    // A person who was told what it is stuck at orders it again.
    let done = effect(State::Confirmed, Some(compensation(OnUnknown::Hold, RETRY)));
    let mut ordered = undo(1, State::Failed, Ordered::Yes, false);
    apply(&mut ordered, &yes(Verdict::Succeeded), START);
    assert_eq!(word(&done, &[&ordered], false, LATE), "propose 2");
}

#[test]
fn the_way_back_is_closed_by_the_pivot_alone() {
    use State::{Authorized, Confirmed, Failed, Proposed, Requested, Unknown};
    let slot = name("refund");
    for (state, word) in [
        (Proposed, "open"),
        (Authorized, "open"),
        (Requested, "doubtful"),
        (Unknown, "doubtful"),
        (Confirmed, "closed"),
        (Failed, "open"),
    ] {
        let of = |effects: &[Effect]| match way_back(effects, &slot) {
            WayBack::Open => "open",
            WayBack::Doubtful(_) => "doubtful",
            WayBack::Closed(_) => "closed",
        };
        let pivot = effect(state, None);
        assert_eq!(of(std::slice::from_ref(&pivot)), word, "{state}");
        // Neither what undoes something, nor what was asked for through another slot.
        let undoing = undo(1, Confirmed, Ordered::No, false);
        let mut other = effect(Confirmed, None);
        other.proposal.slot = name("notify");
        assert_eq!(of(&[undoing, pivot, other]), word, "{state}");
    }
}

#[test]
fn what_undoes_an_effect_is_told_oldest_first() {
    let effect = effect(State::Confirmed, None);
    let [first, second] = [1, 2].map(|n| undo(n, State::Failed, Ordered::No, false));
    let all = undos([&second, &effect, &first]);
    assert_eq!(all.len(), 1);
    let of: Vec<u32> =
        all[&effect.id].iter().map(|undo| undo.proposal.identity.generation).collect();
    assert_eq!(of, [1, 2]);
}

#[test]
fn whoever_is_stuck_is_told_at_what_and_why() {
    let retry = Retry { attempts: 1, ..RETRY };
    let effect = effect(State::Confirmed, Some(compensation(OnUnknown::Hold, retry)));
    let refused = undo(1, State::Failed, Ordered::No, false);
    let Next::Stuck { why } = next(&effect, &[&refused], false, LATE) else { panic!("not stuck") };
    for part in [effect.id.as_str(), &identity().key(), "payments.reverse", "declined"] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_run_is_stuck_at_what_was_refused_or_at_the_newest_that_could_not_even_be_asked_for() {
    let declared = || Some(Box::new(compensation(OnUnknown::Hold, RETRY)));
    let other = |intent: &str, compensation: Option<Box<Compensation>>| {
        let mut proposal = Proposal { compensation, ..proposal(contract(Some(key()), None)) };
        proposal.identity.intent = intent.to_owned();
        in_state(proposal, State::Confirmed, failed())
    };
    let refused = effect(State::Confirmed, Some(compensation(OnUnknown::Hold, RETRY)));
    let undo = undo(1, State::Failed, Ordered::No, true);
    let (older, newer) = (other("older", declared()), other("newer", declared()));
    let stays = other("stays", None);
    let at = |effects: &[&Effect], resolved: &[&Effect]| {
        let resolved: BTreeSet<EffectId> = resolved.iter().map(|of| of.id.clone()).collect();
        let at = stuck_at(effects, &resolved, LATE);
        at.into_iter().map(|effect| effect.proposal.identity.intent.clone()).collect::<Vec<_>>()
    };
    let intent = identity().intent;
    assert_eq!(at(&[&older, &refused, &newer, &stays, &undo], &[]), [intent]);
    assert_eq!(at(&[&older, &refused, &newer, &stays, &undo], &[&refused]), ["newer"]);
    assert_eq!(at(&[&older, &refused, &undo], &[&refused]), ["older"]);
    assert!(at(&[&refused, &undo, &stays], &[&refused]).is_empty());
}

/// Nothing that is never sent again is promised otherwise: a class without any means is treated the same.
#[test]
fn the_class_of_what_undoes_makes_no_difference_here() {
    let declared = || Some(compensation(OnUnknown::Hold, RETRY));
    let by = |contract: Contract| {
        let proposal = Proposal { compensation: declared().map(Box::new), ..proposal(contract) };
        in_state(proposal, State::Confirmed, failed())
    };
    for of in [by(contract(None, None)), by(contract(Some(key()), None))] {
        assert_eq!(word(&of, &[], false, START), "propose 1");
    }
}
