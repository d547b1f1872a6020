use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};
use twice_core::identity::{Identity, KeyFormat, RequestHash, Scope, Selector, child_run};
use twice_core::ids::{EffectId, ElementId, Name, RunId};

use crate::fixtures::{identity, name, run};

#[track_caller]
fn check(change: impl FnOnce(&mut Identity), key: &str) {
    let mut identity = identity();
    change(&mut identity);
    assert_eq!(identity.key(), key);
}

fn at(node: &str, visit: u32, slot: &str) -> Scope {
    Scope::Run { run: run(), node: name(node), visit, element: None, slot: name(slot) }
}

#[test]
fn keys_are_readable() {
    check(|_| {}, "refund/run-781/order-42/full-damaged-item");
    check(
        |i| i.scope = at("pay-back", 1, "refund"),
        "refund/run-781/order-42/full-damaged-item/node=pay-back",
    );
    check(
        |i| i.scope = at("refund", 2, "refund"),
        "refund/run-781/order-42/full-damaged-item/visit=2",
    );
    check(
        |i| {
            i.scope = at("n", 3, "refund");
            i.selector = Selector::Item(0);
            i.generation = 2;
        },
        "refund/run-781/order-42/full-damaged-item/node=n/visit=3/item=0/generation=2",
    );
    check(
        |i| {
            i.scope = Scope::Run {
                run: run(),
                node: name("refund"),
                visit: 2,
                element: Some(ElementId::parse("a/b 1").expect("an element id")),
                slot: name("refund"),
            };
        },
        "refund/run-781/order-42/full-damaged-item/visit=2/element=a%2Fb%201",
    );
    check(
        |i| i.selector = Selector::Ordinal(7),
        "refund/run-781/order-42/full-damaged-item/call=7",
    );
    check(
        |i| i.scope = Scope::Object { tool: name("payments"), operation: name("refund") },
        "payments.refund/order-42/full-damaged-item",
    );
    check(|i| i.object = None, "refund/run-781/-/full-damaged-item");
    check(|i| i.object = Some("-".to_owned()), "refund/run-781/%2D/full-damaged-item");
    check(
        |i| i.object = Some("a/b c=é%".to_owned()),
        "refund/run-781/a%2Fb%20c%3D%C3%A9%25/full-damaged-item",
    );
    check(|i| i.intent = "two words".to_owned(), "refund/run-781/order-42/two%20words");
}

/// These pin algorithm 1. Runs that started under it must find their effects again, for ever.
#[test]
fn algorithm_1_is_pinned() {
    let identity = identity();
    expect!["eff_5xnqmn6ib7njn6vyiqrzmfow5fld5tgwsybypy5y6v7j5xr2t4ca"]
        .assert_eq(identity.effect_id().as_str());
    expect!["59f25020-719a-809f-a97a-8c81af5a3218"]
        .assert_eq(&identity.provider_key(KeyFormat::Uuid));
    expect!["59f25020-719a-409f-a97a-8c81af5a3218"]
        .assert_eq(&identity.provider_key(KeyFormat::UuidV4));
    expect!["59f25020719a809fa97a8c81af5a321823f7751fc78fca7feeb2215ff8741dbf"]
        .assert_eq(&identity.provider_key(KeyFormat::Hash));
    let shared = Identity {
        scope: Scope::Object { tool: name("payments"), operation: name("refund") },
        object: Some("ördér/42".to_owned()),
        selector: Selector::Item(3),
        generation: 2,
        ..identity
    };
    expect!["eff_3phi63anhbqdbllh55qckxfvjdnmh6up46qi7oxehluljyoasr6a"]
        .assert_eq(shared.effect_id().as_str());
    expect!["ebf08f26-f44f-8778-9810-8e00695dd490"]
        .assert_eq(&shared.provider_key(KeyFormat::Uuid));
    let hash = |args| RequestHash::of(&name("payments"), "1", &name("refund"), &args, &[]);
    expect!["sha256:095e81fd22ff277a717223020d4918f0cc140a87de1b57988047d8a7d9bea896"]
        .assert_eq(hash(json!({ "amount_cents": 8200, "order_id": "order-42" })).as_str());
}

#[test]
fn provider_keys_have_the_form_that_providers_check() {
    let identity = identity();
    for (format, version) in [(KeyFormat::Uuid, '8'), (KeyFormat::UuidV4, '4')] {
        let key = identity.provider_key(format);
        let parts: Vec<&str> = key.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(key.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f' | '-')), "{key}");
        assert!(parts[2].starts_with(version), "{key}");
        assert!(parts[3].starts_with(['8', '9', 'a', 'b']), "{key}");
    }
    let hash = identity.provider_key(KeyFormat::Hash);
    assert_eq!(hash.len(), 64);
    assert_eq!(identity.provider_key(KeyFormat::Readable), identity.key());
}

fn hash(args: &Value, incidental: &[&str]) -> RequestHash {
    let incidental: Vec<String> = incidental.iter().map(|&pointer| pointer.to_owned()).collect();
    RequestHash::of(&name("payments"), "1", &name("refund"), args, &incidental)
}

#[test]
fn rewording_what_is_incidental_keeps_the_hash() {
    let args =
        json!({ "amount_cents": 8200, "reason": "broken", "lines": [{ "note": "a", "sku": 1 }] });
    let reworded = json!({ "lines": [{ "sku": 1, "note": "b" }], "reason": "in pieces", "amount_cents": 8200 });
    let without = json!({ "lines": [{ "sku": 1 }], "amount_cents": 8200 });
    let incidental = ["/reason", "/lines/0/note"];
    assert_eq!(hash(&args, &incidental), hash(&reworded, &incidental));
    assert_eq!(hash(&args, &incidental), hash(&without, &incidental));
    assert_ne!(hash(&args, &[]), hash(&reworded, &[]));
    let mut dearer = args.clone();
    dearer["amount_cents"] = json!(82_000);
    assert_ne!(hash(&args, &incidental), hash(&dearer, &incidental));
}

#[test]
fn the_hash_depends_on_everything_else() {
    let args = json!({ "a": 1 });
    let of = |tool, version, operation, args: &Value| {
        RequestHash::of(&name(tool), version, &name(operation), args, &[])
    };
    let base = of("payments", "1", "refund", &args);
    assert_eq!(base, of("payments", "1", "refund", &json!({ "a": 1.0 })));
    assert_ne!(base, of("payment", "1", "refund", &args));
    assert_ne!(base, of("payments", "2", "refund", &args));
    assert_ne!(base, of("payments", "1", "charge", &args));
    assert_ne!(base, of("payments", "1", "refund", &json!({ "a": "1" })));
    assert_ne!(base, of("payments", "1", "refund", &json!({ "a": 1, "b": null })));
    let composed = of("payments", "1", "refund", &json!({ "name": "\u{e9}" }));
    let decomposed = of("payments", "1", "refund", &json!({ "name": "e\u{301}" }));
    assert_ne!(composed, decomposed);
}

#[test]
fn identifiers_are_checked() {
    #[track_caller]
    fn check(text: &str, run: bool, node: bool, effect: bool) {
        assert_eq!(RunId::parse(text).is_ok(), run, "run id {text}");
        assert_eq!(Name::parse(text).is_ok(), node, "name {text}");
        assert_eq!(EffectId::parse(text).is_ok(), effect, "effect id {text}");
    }
    check("run-781", true, true, false);
    check("Run_7.8-1", true, false, false);
    check("", false, false, false);
    check("-a", false, false, false);
    check("a/b", false, false, false);
    check("é", false, false, false);
    check("7a", true, false, false);
    check(&"a".repeat(63), true, true, false);
    check(&"a".repeat(128), true, false, false);
    check(&"a".repeat(129), false, false, false);
    check(&format!("eff_{}", "a".repeat(52)), true, true, true);
    check(&format!("eff_{}", "1".repeat(52)), true, true, false);
    check(&format!("eff_{}", "A".repeat(52)), true, false, false);
    let error = Name::parse("No").expect_err("upper case").to_string();
    assert!(error.starts_with("`No` is not a valid name: 1 to 63 lower-case"), "{error}");
}

/// Few values of each part, so that two identities often differ in one part only, with all that could run together.
fn identities() -> impl Strategy<Value = Identity> {
    let text = prop_oneof![
        Just(String::new()),
        Just("-".to_owned()),
        Just("a".to_owned()),
        Just("a/a".to_owned()),
        Just("%2D".to_owned()),
        Just("node=b".to_owned()),
        Just("a/node=b".to_owned()),
        any::<String>(),
    ];
    let node = prop_oneof![Just("a"), Just("b"), Just("visit"), Just("node-b")];
    let run = prop_oneof![Just("a"), Just("a.b"), Just("A"), Just("1")];
    let scope = prop_oneof![
        (run, node.clone(), 1..3_u32, node.clone()).prop_map(|(run, node, visit, slot)| {
            let run = RunId::parse(run).expect("a run id");
            Scope::Run { run, node: name(node), visit, element: None, slot: name(slot) }
        }),
        (node.clone(), node)
            .prop_map(|(tool, op)| Scope::Object { tool: name(tool), operation: name(op) }),
    ];
    let selector = prop_oneof![
        Just(Selector::Once),
        (0..2_u32).prop_map(Selector::Item),
        (0..2_u32).prop_map(Selector::Ordinal),
    ];
    (scope, prop::option::of(text.clone()), text, selector, 1..3_u32).prop_map(
        |(scope, object, intent, selector, generation)| Identity {
            alg: 1,
            scope,
            object,
            intent,
            selector,
            generation,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn two_identities_share_nothing(a in identities(), b in identities()) {
        let same = a == b;
        prop_assert_eq!(a.key() == b.key(), same, "{}", a.key());
        prop_assert_eq!(a.effect_id() == b.effect_id(), same);
        for format in [KeyFormat::Uuid, KeyFormat::UuidV4, KeyFormat::Readable, KeyFormat::Hash] {
            prop_assert_eq!(a.provider_key(format) == b.provider_key(format), same);
        }
    }

    #[test]
    fn a_difference_in_one_part_is_enough(a in identities(), b in identities()) {
        let one_part = [
            Identity { scope: b.scope, ..a.clone() },
            Identity { object: b.object, ..a.clone() },
            Identity { intent: b.intent, ..a.clone() },
            Identity { selector: b.selector, ..a.clone() },
            Identity { generation: b.generation, ..a.clone() },
        ];
        for other in one_part {
            let same = a == other;
            prop_assert_eq!(a.key() == other.key(), same, "{}", a.key());
            prop_assert_eq!(a.effect_id() == other.effect_id(), same);
        }
    }

    #[test]
    fn one_identity_read_back_is_the_same(a in identities()) {
        let text = serde_json::to_string(&a).expect("plain data");
        let back: Identity = serde_json::from_str(&text).expect("as written");
        prop_assert_eq!(back.effect_id(), a.effect_id());
        prop_assert_eq!(back, a);
    }

    #[test]
    fn an_undoing_follows_from_what_it_undoes_alone(a in identities(), attempt in 1..4_u32) {
        let (tool, operation) = (name("payments"), name("reverse"));
        let undo = a.compensation(&tool, &operation, attempt);
        prop_assert_eq!(&undo, &a.compensation(&tool, &operation, attempt));
        let suffix = match attempt {
            1 => String::new(),
            more => format!("/generation={more}"),
        };
        prop_assert_eq!(undo.key(), format!("{}/comp/payments.reverse{suffix}", a.key()));
        prop_assert_eq!((undo.object, undo.intent), (a.object, a.intent));
    }

    #[test]
    fn keys_are_plain_ascii(a in identities()) {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~%/=".contains(c);
        prop_assert!(a.key().chars().all(plain), "{}", a.key());
    }
}

#[test]
fn the_run_that_an_effect_starts_has_a_readable_id_of_its_own() {
    let hash = |amount: u32| {
        RequestHash::of(&name("workflow"), "1", &name("ship"), &json!({ "amount": amount }), &[])
    };
    let first = identity();
    let child = child_run(&first, &hash(1), &run(), &name("ship"));
    expect!["run-781.ship.p5x5kbpmdh57uvaewyaq"].assert_eq(child.as_str());
    assert_eq!(child_run(&first, &hash(1), &run(), &name("ship")), child);
    let again = Identity { generation: 2, ..first.clone() };
    assert_eq!(child_run(&again, &hash(1), &run(), &name("ship")), child, "it is tried again");
    let other = Identity { object: Some("order-43".to_owned()), ..first.clone() };
    assert_ne!(child_run(&other, &hash(1), &run(), &name("ship")), child);
    assert_ne!(child_run(&first, &hash(2), &run(), &name("ship")), child, "another request");
    let long = RunId::parse("r".repeat(128)).unwrap();
    let id = child_run(&first, &hash(1), &long, &name(&"s".repeat(63)));
    assert!(id.as_str().len() < 128, "{id}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Of two undoings, of which each is of the so-many-th time, and of effects that are undoings themselves, too; with the
    /// approvals of all of them.
    #[test]
    fn undoings_and_approvals_share_nothing_with_each_other_or_anything_else(
        a in identities(),
        b in identities(),
        tools in prop::collection::vec((any::<bool>(), any::<bool>(), 1..4_u32), 2..4),
    ) {
        let of = |first| name(if first { "a" } else { "comp" });
        let mut all = vec![a.clone(), b];
        for (undone, (tool_is, operation_is, attempt)) in (0..2).cycle().zip(&tools) {
            let (tool, operation) = (of(*tool_is), of(*operation_is));
            all.push(all[undone].compensation(&tool, &operation, *attempt));
        }
        // The undoing of an undoing.
        let last = all[all.len() - 1].clone();
        all.push(last.compensation(&name("a"), &name("a"), 1));
        let approvals = all.iter().flat_map(|of| [1, 2].map(|amount| of.approval(&hash(&json!(amount), &[]))));
        all.extend(approvals.collect::<Vec<_>>());
        for one in &all {
            for other in &all {
                let same = one == other;
                prop_assert_eq!(one.key() == other.key(), same, "{}", one.key());
                prop_assert_eq!(one.effect_id() == other.effect_id(), same);
                prop_assert_eq!(
                    one.provider_key(KeyFormat::Uuid) == other.provider_key(KeyFormat::Uuid),
                    same
                );
            }
        }
    }
}
