//! Each check, on a sound case and on cases that are spoilt in one way.

use serde_json::json;
use twice_core::chain::{self, Content, Head, NewEntry};
use twice_core::contract::{Contract, KeyContract, Replay, RetentionBasis, Retry};
use twice_core::effect::Effect;
use twice_core::event::{
    AttemptStart, Authorization, Conflict, Observation, Proposal, Receipt, Source, UnknownReason,
};
use twice_core::identity::{IDENTITY_ALG, Identity, KeyFormat, RequestHash, Scope, Selector};
use twice_core::ids::{Fence, Name};
use twice_core::outcome::{RuleId, Verdict};
use twice_core::progress::Progress;
use twice_core::run::Priority;
use twice_core::time::Timestamp;
use twice_ledger::RunRecord;

use super::super::provider::{Commit, Seen};
use super::super::spec::{Action, CaseSpec, Place};
use super::*;

const AT: Timestamp = Timestamp(1_750_000_000_000);
const FENCE: Fence = Fence(1);
const OPERATION: &str = "payments.refund";

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn run() -> RunId {
    RunId::parse(RUN).unwrap()
}

pub(in super::super) fn proposal(key: bool, amount: i64) -> Proposal {
    let (node, tool, operation) = (name("refund"), name("payments"), name("refund"));
    let scope = Scope::Run {
        run: run(),
        node: node.clone(),
        visit: 1,
        element: None,
        slot: name("refund"),
    };
    let identity = Identity {
        alg: IDENTITY_ALG,
        scope,
        object: Some("order-42".to_owned()),
        intent: "full".to_owned(),
        selector: Selector::Once,
        generation: 1,
    };
    let key = key.then_some(KeyContract {
        retention_ms: 86_400_000,
        basis: RetentionBasis::FirstSend,
        replay: Replay::FirstAnswer,
    });
    let args = json!({ "amount_cents": amount });
    Proposal {
        node,
        visit: 1,
        element: None,
        slot: name("refund"),
        request_hash: RequestHash::of(&tool, "1", &operation, &args, &[]),
        tool,
        tool_version: "1".to_owned(),
        operation,
        args,
        idempotency_key: identity.key(),
        provider_key: identity.provider_key(KeyFormat::Uuid),
        contract: Contract {
            read: false,
            key,
            lookup: None,
            settle_ms: 2_000,
            timeout_ms: 10_000,
            retry: Retry { attempts: 3, initial_ms: 100, max_ms: 1_000 },
            horizon_ms: 86_400_000,
            settled_here: false,
        },
        identity,
        compensation: None,
        undoes: None,
        approval: None,
        approves: None,
    }
}

fn receipt(proposal: &Proposal) -> Receipt {
    Receipt {
        schema: 1,
        request_hash: proposal.request_hash.clone(),
        idempotency_key: proposal.idempotency_key.clone(),
        external_id: Some("re-1".to_owned()),
        result: json!({ "id": "re-1" }),
        result_hash: None,
        truncated: false,
        exposed: json!({}),
        source: Source::Reply { attempt: 1 },
        rule: RuleId::new("http.200"),
        verdict: Some(Verdict::Succeeded),
        discrepancy: None,
        tool: proposal.tool.clone(),
        tool_version: "1".to_owned(),
        operation: proposal.operation.clone(),
        policy: "granted".to_owned(),
        approval: None,
        attempts: 1,
        requested_at: AT,
        confirmed_at: AT,
    }
}

/// The life of an effect that is done at once.
pub(in super::super) fn life(proposal: &Proposal) -> Vec<EffectEvent> {
    vec![
        EffectEvent::Proposed(proposal.clone()),
        EffectEvent::Authorized(Authorization {
            policy: "granted".to_owned(),
            request_hash: proposal.request_hash.clone(),
            approval: None,
        }),
        EffectEvent::Requested(AttemptStart {
            attempt: 1,
            request: json!({}),
            body_hash: "sha256:00".to_owned(),
        }),
        EffectEvent::Confirmed(Box::new(receipt(proposal))),
    ]
}

/// That the outcome is not known, by that rule.
pub(in super::super) fn unknown(rule: &str) -> EffectEvent {
    EffectEvent::Unknown(UnknownReason {
        verdict: Verdict::Indeterminate,
        rule: RuleId::new(rule),
        message: "no answer".to_owned(),
        external_id: None,
        answered: false,
        quarantined: false,
        breach: false,
        not_before: None,
        detail: json!(null),
    })
}

/// What a ledger with these events shows; `live` while a worker holds the run.
pub(in super::super) fn snapshot(events: &[EffectEvent], state: RunState, live: bool) -> Snapshot {
    let Some(EffectEvent::Proposed(proposal)) = events.first() else { panic!("no proposal") };
    let id = proposal.identity.effect_id();
    let mut effect: Option<Effect> = None;
    let mut head = Head::empty(&run());
    let mut entries = Vec::new();
    for event in events {
        match &mut effect {
            Some(effect) => effect.apply(event, FENCE, AT).unwrap(),
            None => effect = Some(Effect::begin(id.clone(), run(), event, AT).unwrap()),
        }
        let content = Content::Effect { effect: id.clone(), event: event.clone() };
        let entry = chain::seal(&run(), head, FENCE, &NewEntry { content, at: AT });
        head = entry.head();
        entries.push(entry);
    }
    let effect = effect.unwrap();
    let shown = effect.shown_state(live);
    let record = RunRecord {
        id: run(),
        workflow: name("w"),
        definition: String::new(),
        input: json!({}),
        priority: Priority::default(),
        cancel: None,
        state,
        progress: Progress::default(),
        progress_seq: 1,
        output: Some(json!({ "refund_id": "re-1" })),
        reason: None,
        due_at: None,
        worker: None,
        fence: FENCE,
        lease_live: live,
        lease_until: None,
        crashes: 0,
        created_at: AT,
        updated_at: AT,
        parent: None,
    };
    let listed = Listed { shown, operation: OPERATION.to_owned(), effect };
    Snapshot {
        run: Some(record),
        effects: vec![listed],
        entries,
        head: Some(head),
        descendants: Vec::new(),
    }
}

fn books(proposal: &Proposal, commits: usize, requests: usize) -> Books {
    let mut books = Books::new(AT, None);
    let reference = Some(proposal.identity.effect_id().to_string());
    let args = BTreeMap::new();
    let commit = Commit {
        operation: OPERATION.to_owned(),
        reference: reference.clone(),
        key: None,
        args: args.clone(),
        at: AT,
        object: json!({}),
    };
    let seen = Seen { operation: OPERATION.to_owned(), reference, key: None, args, effect: true };
    books.commits = vec![commit; commits];
    books.seen = vec![seen; requests];
    books
}

/// A refund that was interrupted after its request and confirmed by the resume.
fn sound(key: bool) -> (Outcome, Baseline) {
    let proposal = proposal(key, 2_500);
    let events = life(&proposal);
    let end = snapshot(&events, RunState::Completed, false);
    let before = snapshot(&events[..3], RunState::Running, false);
    let effects = BTreeMap::from([(
        proposal.identity.effect_id().to_string(),
        (proposal.request_hash.to_string(), proposal.args.clone()),
    )]);
    let spec = CaseSpec::one(Place::AfterProviderCommit, 1, Action::Kill);
    let outcome = Outcome {
        spec,
        reached: true,
        before: Some((before, books(&proposal, 1, 1))),
        after: (end.clone(), books(&proposal, 1, 1)),
        again: (end, books(&proposal, 1, 1)),
        passed: Vec::new(),
        passed_resuming: Vec::new(),
        recovery_ms: 0,
        waited_ms: 0,
    };
    let baseline = Baseline {
        effects,
        timely: BTreeSet::new(),
        state: Some(RunState::Completed),
        output: Some(json!({ "refund_id": "re-1" })),
        grants: true,
    };
    (outcome, baseline)
}

/// The checks that are violated once the case is spoilt.
#[track_caller]
fn violated(key: bool, spoil: impl FnOnce(&mut Outcome), expected: &[&str]) {
    let (mut outcome, baseline) = sound(key);
    spoil(&mut outcome);
    let checks = check(&outcome, &baseline);
    let violated: Vec<&str> = checks
        .all()
        .into_iter()
        .filter(|(_, check)| !check.reasons().is_empty())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(violated, expected, "{checks:#?}");
}

#[test]
fn a_sound_case_holds() {
    violated(true, |_| {}, &[]);
    violated(false, |_| {}, &[]);
}

#[test]
fn doing_it_twice_is_not_at_most_once() {
    let p = proposal(true, 2_500);
    violated(true, |case| case.again.1 = books(&p, 2, 1), &["at_most_once"]);
    // Under a key, a second request is how an outcome is found out.
    let twice = |case: &mut Outcome| {
        case.after.1 = books(&p, 1, 2);
        case.again.1 = books(&p, 1, 2);
    };
    violated(true, twice, &[]);
    violated(false, twice, &["at_most_once"]);
    // What the provider did for nobody.
    let stray = |case: &mut Outcome| {
        let mut other = case.again.1.commits[0].clone();
        other.reference = Some("eff_other".to_owned());
        case.again.1.commits.push(other);
    };
    violated(true, stray, &["at_most_once"]);
}

#[test]
fn a_listing_must_tell_the_truth_before_a_worker_runs() {
    let p = proposal(true, 2_500);
    let events = life(&p);
    let before = |snapshot: Snapshot, books: Books| {
        move |case: &mut Outcome| case.before = Some((snapshot, books))
    };
    let running = RunState::Running;
    // Still shown as under way although nobody is at it.
    let live = snapshot(&events[..3], running, true);
    violated(true, before(live, books(&p, 1, 1)), &["determinable"]);
    // Done, and shown as never sent.
    let unsent = snapshot(&events[..2], running, false);
    violated(true, before(unsent.clone(), books(&p, 1, 1)), &["determinable"]);
    violated(true, before(unsent, books(&p, 0, 0)), &[]);
    // Shown as confirmed, and never done.
    let confirmed = snapshot(&events, running, false);
    violated(true, before(confirmed, books(&p, 0, 0)), &["determinable"]);
    // Done, and not in the ledger at all.
    let absent = Snapshot {
        run: None,
        effects: Vec::new(),
        entries: Vec::new(),
        head: None,
        descendants: Vec::new(),
    };
    violated(true, before(absent, books(&p, 1, 1)), &["determinable"]);
}

#[test]
fn an_unknown_outcome_may_only_be_left_to_a_person() {
    let p = proposal(true, 2_500);
    let events = life(&p);
    let end = |state| {
        let end = snapshot(&events[..3], state, false);
        move |case: &mut Outcome| {
            case.after.0 = end.clone();
            case.again.0 = end;
        }
    };
    violated(true, end(RunState::Halted), &[]);
    violated(true, end(RunState::Completed), &["reconciled"]);
    violated(true, end(RunState::Waiting), &["reconciled"]);
    // Confirmed, and never done.
    let untrue = |case: &mut Outcome| case.again.1 = books(&p, 0, 1);
    violated(true, untrue, &["reconciled"]);
}

#[test]
fn receipts_and_chain_must_hold() {
    let changed = |case: &mut Outcome| case.again.0.entries[1].body.push(' ');
    violated(true, changed, &["receipts"]);
    let cut_off = |case: &mut Outcome| drop(case.again.0.entries.pop());
    violated(true, cut_off, &["receipts"]);
    let none = |case: &mut Outcome| case.again.0.effects[0].effect.receipt = None;
    violated(true, none, &["receipts"]);
}

#[test]
fn nothing_new_may_be_asked_for() {
    let p = proposal(true, 2_500);
    let other = proposal(true, 2_600);
    let end = |events: &[EffectEvent]| {
        let end = snapshot(events, RunState::Completed, false);
        move |case: &mut Outcome| {
            case.after.0 = end.clone();
            case.again.0 = end;
        }
    };
    violated(true, end(&life(&other)), &["no_new_action"]);
    let mut conflicted = life(&p);
    conflicted.push(EffectEvent::Conflicted(Conflict {
        recorded_hash: p.request_hash.clone(),
        requested_hash: other.request_hash,
        args: other.args,
    }));
    violated(true, end(&conflicted), &["no_new_action"]);
    let output = |case: &mut Outcome| {
        case.again.0.run.as_mut().unwrap().output = Some(json!({ "refund_id": "re-2" }));
    };
    violated(true, output, &["no_new_action"]);
    let entries = |case: &mut Outcome| case.after.0.head = Some(Head::empty(&run()));
    violated(true, entries, &["no_new_action"]);
    let requests = |case: &mut Outcome| case.after.1.seen.clear();
    violated(true, requests, &["no_new_action"]);
}

#[test]
fn a_worker_that_wakes_up_too_late_may_say_what_it_was_told() {
    let p = proposal(true, 2_500);
    let mut more = life(&p);
    more.push(EffectEvent::Observed(Observation {
        what: "answer that its worker could not write".to_owned(),
        attempt: Some(1),
        verdict: Some(Verdict::Succeeded),
        rule: None,
        message: None,
        status: Some(201),
        external_id: None,
        breach: false,
        detail: json!({}),
    }));
    let (mut outcome, baseline) = sound(true);
    outcome.again.0 = snapshot(&more, RunState::Completed, false);
    assert_eq!(check(&outcome, &baseline), check(&sound(true).0, &baseline));
}

#[test]
fn a_case_that_did_not_come_about_proves_nothing() {
    let (mut outcome, baseline) = sound(true);
    outcome.reached = false;
    assert_eq!(check(&outcome, &baseline), Checks::SKIPPED);
}
