//! What a person has to say before an effect is sent.

use serde_json::json;
use twice_core::approval::{self, Answer, Next, Question, Standing};
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, Proposal, Required, Source};
use twice_core::identity::RequestHash;
use twice_core::time::Timestamp;

use crate::fixtures::{START, apply, authorized, contract, deferred, name, proposal, run, start};

const EXPIRES_MS: u64 = 60_000;

fn required() -> Required {
    let policy = "args.amount_cents > 500".to_owned();
    Required { by: name("finance"), expires_ms: EXPIRES_MS, policy }
}

/// An effect that needs an approval.
fn waiting() -> Effect {
    let approval = Some(Box::new(required()));
    let proposal = Proposal { approval, ..proposal(contract(None, None)) };
    let id = proposal.identity.effect_id();
    Effect::begin(id, run(), &EffectEvent::Proposed(proposal), START)
        .expect("a proposal comes first")
}

/// What is asked about it, as far as those of the events say that were recorded.
fn asked(of: &Effect, events: usize) -> Effect {
    let id = approval::id_of(&of.proposal);
    let recorded = approval::ask(of, &required(), START);
    let mut asked = Effect::begin(id, run(), &recorded[0], START).expect("a proposal comes first");
    recorded[1..events].iter().for_each(|event| apply(&mut asked, event, START));
    asked
}

fn answered(of: &Effect, answer: Answer) -> Effect {
    let mut asked = asked(of, 3);
    let event = approval::answer(&asked, answer, "ann", "seen it", START).expect("it is open");
    apply(&mut asked, &event, START);
    asked
}

#[test]
fn what_needs_none_is_permitted() {
    let plain = Effect::begin(
        waiting().id,
        run(),
        &EffectEvent::Proposed(proposal(contract(None, None))),
        START,
    );
    assert_eq!(approval::next(&plain.unwrap(), None, START), Next::Permitted(None));
}

#[test]
fn somebody_is_asked_once_and_waited_for_until_it_expires() {
    let effect = waiting();
    assert_eq!(approval::next(&effect, None, START), Next::Ask(Box::new(required())));
    let (end, last) = (START.plus_ms(EXPIRES_MS), START.plus_ms(EXPIRES_MS - 1));
    for recorded in 1..=3 {
        let asked = asked(&effect, recorded);
        let Next::Wait { until, why } = approval::next(&effect, Some(&asked), last) else {
            panic!("it waits")
        };
        assert_eq!(until, end);
        assert!(why.contains("`finance`") && why.contains(asked.id.as_str()), "{why}");
        assert_eq!(approval::next(&effect, Some(&asked), end), Next::Expire);
    }
    let mut asked = asked(&effect, 3);
    let expired = EffectEvent::Failed(approval::expired(&asked));
    apply(&mut asked, &expired, end);
    let Next::Refused(failure) = approval::next(&effect, Some(&asked), end) else {
        panic!("it is refused")
    };
    assert_eq!((failure.code.as_str(), failure.denied, failure.verdict), ("expired", true, None));
}

#[test]
fn a_grant_permits_until_it_expires_and_a_refusal_never() {
    let effect = waiting();
    let granted = answered(&effect, Answer::Grant);
    let (end, last) = (START.plus_ms(EXPIRES_MS), START.plus_ms(EXPIRES_MS - 1));
    let permitted = Next::Permitted(Some(granted.id.clone()));
    assert_eq!(approval::next(&effect, Some(&granted), last), permitted);
    assert!(
        matches!(approval::next(&effect, Some(&granted), end), Next::Refused(f) if f.code == "expired")
    );
    let receipt = granted.receipt.as_ref().unwrap();
    let who = Source::Operator { who: "ann".to_owned(), evidence: "seen it".to_owned() };
    assert_eq!((&receipt.source, receipt.policy.as_str()), (&who, "args.amount_cents > 500"));

    let refused = answered(&effect, Answer::Refuse);
    let Next::Refused(failure) = approval::next(&effect, Some(&refused), last) else {
        panic!("it is refused")
    };
    assert_eq!((failure.code.as_str(), failure.source), ("not_approved", Some(who)));
}

#[test]
fn a_grant_lapses_before_it_is_used_and_not_after() {
    let mut effect = waiting();
    let granted = answered(&effect, Answer::Grant);
    let (end, last) = (START.plus_ms(EXPIRES_MS), START.plus_ms(EXPIRES_MS - 1));
    apply(&mut effect, &authorized(), START);
    assert_eq!(approval::lapsed(&effect, &granted, last), None);
    let lapsed = approval::lapsed(&effect, &granted, end).unwrap();
    assert_eq!((lapsed.code.as_str(), lapsed.denied, lapsed.verdict), ("expired", true, None));
    apply(&mut effect, &start(1), START);
    apply(&mut effect, &deferred(), START);
    assert_eq!((effect.state, approval::lapsed(&effect, &granted, end)), (State::Authorized, None));
}

#[test]
fn an_answer_is_for_one_request() {
    let effect = waiting();
    let granted = answered(&effect, Answer::Grant);
    let Question { effect: of, operation, args, request_hash, .. } =
        approval::question(&granted).unwrap();
    assert_eq!((of, operation.as_str()), (effect.id.clone(), "payments.refund"));
    assert_eq!((&args, &request_hash), (&effect.proposal.args, &effect.proposal.request_hash));
    // Another amount is another question; another wording of what does not matter is the same.
    let hash = |args| {
        let (tool, operation) = (name("payments"), name("refund"));
        RequestHash::of(&tool, "1", &operation, &args, &["/reason".to_owned()])
    };
    let ask = |args: serde_json::Value| {
        approval::id_of(&Proposal { request_hash: hash(args), ..effect.proposal.clone() })
    };
    let mut args = effect.proposal.args.clone();
    args["reason"] = json!("said otherwise");
    assert_eq!(ask(args.clone()), granted.id);
    args["amount_cents"] = json!(82_000);
    assert_ne!(ask(args), granted.id);
    // So is the same request as another action.
    let mut renewed = effect.proposal.clone();
    renewed.identity.generation += 1;
    assert_ne!(approval::id_of(&renewed), granted.id);
}

#[test]
fn an_answer_counts_once_in_time_and_to_a_question() {
    let effect = waiting();
    let open = asked(&effect, 3);
    let end = START.plus_ms(EXPIRES_MS);
    fn answer(of: &Effect, at: Timestamp) -> Result<EffectEvent, Option<Standing<'_>>> {
        approval::answer(of, Answer::Grant, "ann", "seen it", at)
    }
    let refused = |of: &Effect, at| answer(of, at).map_err(|how| format!("{how:?}")).unwrap_err();
    assert_eq!(refused(&open, end), "Some(Expired)");
    assert_eq!(refused(&effect, START), "None");
    let said = "{ who: \"ann\", why: \"seen it\" }";
    for (given, word) in [(Answer::Grant, "Granted"), (Answer::Refuse, "Refused")] {
        assert_eq!(refused(&answered(&effect, given), START), format!("Some({word} {said})"));
    }
    let mut void = open;
    apply(&mut void, &EffectEvent::Failed(approval::void("the run was cancelled")), START);
    assert_eq!((void.state, refused(&void, START).as_str()), (State::Failed, "Some(Void)"));
}
