use expect_test::expect;
use serde_json::{Value, json};
use twice_core::approval;
use twice_core::chain::{Broken, Content, Entry, Head, NewEntry, Unreadable, seal, verify};
use twice_core::contract::Contract;
use twice_core::effect::Effect;
use twice_core::event::{Authorization, EffectEvent, Proposal, Required, RunEvent};
use twice_core::identity::RequestHash;
use twice_core::ids::{EffectId, Fence, RunId};
use twice_core::run::Priority;
use twice_core::time::Timestamp;

use crate::fixtures::{
    FENCE, START, apply, authorized, contract, deferred, effect_id, key, lookup, name, probed,
    proposal, read, receipt, run, start, unknown,
};

fn on_effect(event: EffectEvent) -> Content {
    Content::Effect { effect: effect_id(), event }
}

fn contents() -> Vec<Content> {
    vec![
        Content::Run(RunEvent::Started {
            workflow: name("damaged-item-refund"),
            version: 3,
            definition: "sha256:11".to_owned(),
            input: json!({ "order_id": "order-42", "weight": 0.5 }),
            priority: Priority::default(),
            identity_alg: 1,
            parent: None,
        }),
        on_effect(EffectEvent::Proposed(proposal(contract(Some(key()), None)))),
        on_effect(authorized()),
        on_effect(start(1)),
        on_effect(EffectEvent::Unknown(unknown())),
        on_effect(probed(twice_core::event::ProbeResult::Miss)),
        on_effect(start(2)),
        on_effect(EffectEvent::Confirmed(Box::new(receipt()))),
        Content::Run(RunEvent::Completed { output: json!({ "refunded": true }) }),
    ]
}

fn chain(contents: Vec<Content>) -> Vec<Entry> {
    let mut head = Head::empty(&run());
    let seal_next = |content| {
        let entry = seal(&run(), head, FENCE, &NewEntry { content, at: START });
        head = entry.head();
        entry
    };
    contents.into_iter().map(seal_next).collect()
}

#[test]
fn a_chain_holds_and_ends_in_its_head() {
    let entries = chain(contents());
    let last = entries.last().expect("nine entries");
    assert_eq!(verify(&run(), &entries), Ok(Head { seq: 9, hash: last.hash }));
    assert_eq!(verify(&run(), []), Ok(Head::empty(&run())));
    assert_ne!(Head::empty(&run()), Head::empty(&RunId::parse("run-782").expect("a run id")));
}

#[test]
fn contents_read_back_as_they_were_sealed() {
    for (content, entry) in contents().into_iter().zip(chain(contents())) {
        assert_eq!(entry.content(), Ok(content));
    }
}

#[test]
fn a_result_of_full_depth_still_reads_back() {
    let deep = (0..64).fold(Value::Null, |inner, _| json!([inner]));
    twice_core::json::check(&deep).expect("just within the limit");
    let mut receipt = receipt();
    receipt.result = deep;
    let content = on_effect(EffectEvent::Confirmed(Box::new(receipt)));
    let entry =
        seal(&run(), Head::empty(&run()), FENCE, &NewEntry { content: content.clone(), at: START });
    assert_eq!(entry.content(), Ok(content));
}

/// The stored format, version 1: a change here breaks every ledger that exists.
#[test]
fn the_hash_of_an_entry_is_pinned() {
    let hex = |hash: [u8; 32]| data_encoding::HEXLOWER.encode(&hash);
    let entries = chain(contents());
    expect!["d56774cfdff1a8b2840b83cef6929072448a88e9981b40a03105e9773e0cf190"]
        .assert_eq(&hex(Head::empty(&run()).hash));
    expect!["68d660c63d86b3223d54ae8a3dcf6dc6a51c807ed4755c29c705a884a7646c07"]
        .assert_eq(&hex(entries[0].hash));
    expect!["4b83c4e71f5dc1bdf717e0c68d7fd66d769906cb61815bf3ca47b53007da19ee"]
        .assert_eq(&hex(entries[2].hash));
    expect![[r#"{"data":{"policy":"granted","request_hash":"sha256:095e81fd22ff277a717223020d4918f0cc140a87de1b57988047d8a7d9bea896"},"event":"authorized"}"#]].assert_eq(&entries[2].body);
}

/// A change to one column.
type Flip<'a> = &'a dyn Fn(&mut Entry);

#[test]
fn a_flipped_column_of_any_entry_is_named() {
    let other_effect = EffectId::parse(format!("eff_{}", "a".repeat(52))).expect("an effect id");
    let columns: [(&str, Flip); 9] = [
        ("run", &|e| e.run = RunId::parse("run-782").expect("a run id")),
        ("seq", &|e| e.seq += 1),
        ("fence", &|e| e.fence = Fence(e.fence.0 + 1)),
        ("at", &|e| e.at = Timestamp(e.at.0 - 1)),
        ("effect", &|e| {
            e.effect = if e.effect.is_some() { None } else { Some(other_effect.clone()) };
        }),
        ("kind", &|e| e.kind.push('x')),
        ("body", &|e| e.body = e.body.replacen("e", "f", 1)),
        ("prev", &|e| e.prev[31] ^= 1),
        ("hash", &|e| e.hash[0] ^= 0x80),
    ];
    let whole = chain(contents());
    for index in 0..whole.len() {
        let seq = whole[index].seq;
        for (column, flip) in columns {
            let mut entries = whole.clone();
            flip(&mut entries[index]);
            let expected = match column {
                "seq" => Broken::Sequence { run: run(), expected: seq, found: seq + 1 },
                "prev" => Broken::Link { run: run(), seq },
                _ => Broken::Content { run: run(), seq },
            };
            assert_eq!(verify(&run(), &entries), Err(expected), "{column} of entry {seq}");
        }
    }
}

#[test]
fn swapped_missing_doubled_and_foreign_entries_are_named() {
    let whole = chain(contents());
    let sequence = |expected, found| Err(Broken::Sequence { run: run(), expected, found });

    let mut swapped = whole.clone();
    swapped.swap(3, 4);
    assert_eq!(verify(&run(), &swapped), sequence(4, 5));

    let mut gap = whole.clone();
    gap.remove(4);
    assert_eq!(verify(&run(), &gap), sequence(5, 6));

    let mut doubled = whole.clone();
    doubled.insert(2, whole[1].clone());
    assert_eq!(verify(&run(), &doubled), sequence(3, 2));

    assert_eq!(verify(&run(), &whole[1..]), sequence(1, 2));

    let other = RunId::parse("run-782").expect("a run id");
    assert_eq!(verify(&other, &whole), Err(Broken::Link { run: other.clone(), seq: 1 }));
}

#[test]
fn renumbered_and_rehashed_entries_break_the_link_that_follows() {
    let mut entries = chain(contents());
    entries[4].at = Timestamp(0);
    entries[4].hash = entries[4].computed_hash();
    assert_eq!(verify(&run(), &entries), Err(Broken::Link { run: run(), seq: 6 }));
}

/// What a chain cannot show; signed roots over the heads of runs do.
#[test]
fn a_missing_tail_shows_in_the_head_only() {
    let whole = chain(contents());
    let head = verify(&run(), &whole[..5]).expect("holds as far as it goes");
    assert_eq!(head, whole[4].head());
    assert_ne!(Ok(head), verify(&run(), &whole));
}

#[track_caller]
fn illegal(contents: Vec<Content>, at: i64, why: &str) {
    match verify(&run(), &chain(contents)) {
        Err(Broken::IllegalMove { seq, message, .. }) => {
            assert_eq!((seq, message), (at, format!("{}{why}", effect_id())));
        }
        other => panic!("expected an illegal move, got {other:?}"),
    }
}

#[test]
fn well_chained_entries_that_no_honest_host_writes_are_illegal() {
    let proposed = || on_effect(EffectEvent::Proposed(proposal(contract(None, None))));
    let confirmed = || on_effect(EffectEvent::Confirmed(Box::new(receipt())));
    illegal(
        vec![on_effect(start(1))],
        1,
        ": an effect that is not proposed cannot take `requested`",
    );
    illegal(
        vec![proposed(), on_effect(start(1))],
        2,
        ": an effect that is PROPOSED cannot take `requested`",
    );
    illegal(
        vec![proposed(), on_effect(authorized()), on_effect(start(1)), confirmed(), confirmed()],
        5,
        ": an effect that is CONFIRMED cannot take `confirmed`",
    );
    let here = on_effect(EffectEvent::Proposed(proposal(Contract::SETTLED_HERE)));
    illegal(
        vec![
            here,
            on_effect(authorized()),
            on_effect(start(1)),
            on_effect(EffectEvent::Unknown(unknown())),
        ],
        4,
        ": unknown, though this ledger tells what became of it",
    );
    illegal(
        vec![proposed(), on_effect(authorized()), on_effect(start(2))],
        3,
        ": attempt 1 is counted as 2",
    );
    let mut other = proposal(contract(None, None));
    other.identity.generation = 2;
    illegal(
        vec![on_effect(EffectEvent::Proposed(other))],
        1,
        " is proposed with an identity that is not its own",
    );
    let mut reworded = proposal(contract(None, None));
    reworded.request_hash = twice_core::identity::RequestHash::of(
        &name("payments"),
        "1",
        &name("refund"),
        &json!({}),
        &[],
    );
    let hash = reworded.request_hash.clone();
    illegal(
        vec![proposed(), on_effect(EffectEvent::Proposed(reworded)), on_effect(authorized())],
        3,
        &format!(
            ": requested as {hash}, but `authorized` is for {}",
            crate::fixtures::request_hash()
        ),
    );
}

#[test]
fn what_needs_an_approval_is_authorized_under_the_one_for_its_request_alone() {
    let required = Required { by: name("finance"), expires_ms: 1_000, policy: String::new() };
    let needs =
        Proposal { approval: Some(Box::new(required.clone())), ..proposal(contract(None, None)) };
    let event = EffectEvent::Proposed(needs.clone());
    let effect = Effect::begin(effect_id(), run(), &event, START).unwrap();
    let id = approval::id_of(&needs);
    let asked = approval::ask(&effect, &required, START);
    let mut approval = Effect::begin(id.clone(), run(), &asked[0], START).unwrap();
    asked[1..].iter().for_each(|event| apply(&mut approval, event, START));
    let granted = approval::answer(&approval, approval::Answer::Grant, "ann", "fine", START);
    let refused = approval::answer(&approval, approval::Answer::Refuse, "ann", "no", START);
    let about = |event: EffectEvent| Content::Effect { effect: id.clone(), event };
    let asks = || asked.iter().cloned().map(about);
    let under = |approval: Option<EffectId>| {
        let EffectEvent::Authorized(given) = authorized() else { panic!("it permits") };
        on_effect(EffectEvent::Authorized(Authorization { approval, ..given }))
    };
    let story = |answer: Option<EffectEvent>, last: Content| {
        let mut all = vec![on_effect(event.clone())];
        all.extend(asks());
        all.extend(answer.map(about));
        all.push(last);
        all
    };
    let whole = story(Some(granted.clone().unwrap()), under(Some(id.clone())));
    assert!(verify(&run(), &chain(whole)).is_ok());
    illegal(
        story(Some(granted.unwrap()), under(None)),
        6,
        ": authorized without the approval that it needs",
    );
    let why = format!(": authorized under {id}, which was not granted");
    illegal(story(None, under(Some(id.clone()))), 5, &why);
    illegal(story(Some(refused.unwrap()), under(Some(id.clone()))), 6, &why);
    illegal(vec![on_effect(event.clone()), under(Some(id.clone()))], 2, &why);
    // Granted, but for other args.
    let mut other = needs;
    other.request_hash = RequestHash::of(&name("payments"), "1", &name("refund"), &json!({}), &[]);
    let EffectEvent::Authorized(given) = authorized() else { panic!("it permits") };
    let request_hash = other.request_hash.clone();
    let given = Authorization { approval: Some(id.clone()), request_hash, ..given };
    let granted = approval::answer(&approval, approval::Answer::Grant, "ann", "fine", START);
    let mut reused = story(Some(granted.unwrap()), on_effect(EffectEvent::Proposed(other)));
    reused.push(on_effect(EffectEvent::Authorized(given)));
    illegal(reused, 7, &format!(": authorized under {id}, which approves something else"));
}

#[test]
fn a_blind_second_request_and_a_forgotten_doubt_are_illegal() {
    let unknown = || on_effect(EffectEvent::Unknown(unknown()));
    let begin = |contract| {
        vec![
            on_effect(EffectEvent::Proposed(proposal(contract))),
            on_effect(authorized()),
            on_effect(start(1)),
            unknown(),
            on_effect(start(2)),
        ]
    };
    let why = ": sent again in doubt, though its tool has neither key nor lookup";
    illegal(begin(contract(None, None)), 5, why);

    let deferring = |contract| {
        let mut contents = begin(contract);
        contents.push(on_effect(deferred()));
        contents
    };
    let why = ": taken for not processed while an earlier attempt is in doubt";
    illegal(deferring(contract(Some(key()), None)), 6, why);
    verify(&run(), &chain(deferring(read()))).expect("a read may be repeated");
    verify(&run(), &chain(begin(contract(None, Some(lookup()))))).expect("absence may be proven");
}

#[test]
fn bodies_that_cannot_be_read_say_why() {
    #[track_caller]
    fn check(kind: &str, effect: Option<EffectId>, body: &str, message: &str) {
        let error: Unreadable =
            Content::from_stored(kind, effect, body).expect_err("not to be read");
        assert_eq!(error.to_string(), message);
    }
    check(
        "run_completed",
        None,
        "{\"event\":\"completed\"",
        "its body is not strict JSON: not JSON: expected `,` or `}`, found the end at line 1, column 21",
    );
    check(
        "run_failed",
        None,
        "{\"data\":{\"output\":1},\"event\":\"completed\"}",
        "it is filed as `run_failed`, but its body says `run_completed`",
    );
    check(
        "run_completed",
        None,
        "{\"data\":{\"output\":1,\"output\":2},\"event\":\"completed\"}",
        "its body is not strict JSON: duplicate member `output` at line 1, column 21",
    );
    check(
        "authorized",
        Some(effect_id()),
        "{\"data\":{\"policy\":\"x\"},\"event\":\"authorized\"}",
        "its body is no event known to this version: missing field `request_hash`",
    );
    check(
        "melted",
        Some(effect_id()),
        "{\"data\":{},\"event\":\"melted\"}",
        "its body is no event known to this version: unknown variant `melted`, expected one of `proposed`, `authorized`, `requested`, `confirmed`, `failed`, `deferred`, `unknown`, `probed`, `observed`, `conflicted`, `conflict_decided`",
    );
}
