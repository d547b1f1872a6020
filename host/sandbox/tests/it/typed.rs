//! Typed tools: the mapping of values, and functions with slots behind them.

use proptest::prelude::*;
use serde_json::json;
use twice_core::wit::{
    ArgsShape, ErrorShape, FunctionType, Signature, TypedGrant, TypedImport, WitType,
};
use twice_sandbox::{Component, Ended, SandboxError, Val, from_json, to_json, typed_imports};

use crate::support::{
    FakeHost, Reply, built, call, check_limit, check_trap, limits, plan_of, returned, sandbox,
};

fn words(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A type and a value of it, of each kind that crosses. Names are distinct, and integers are safe.
fn typed() -> impl Strategy<Value = (WitType, Val)> {
    let safe = -((1_i64 << 53) - 1)..(1 << 53);
    let finite =
        any::<f64>().prop_filter("JSON has finite numbers, with safe integers among them", |n| {
            n.is_finite()
                && (n.fract() != 0.0 || n.abs() < 9e15)
                && !(*n == 0.0 && n.is_sign_negative())
        });
    let small = any::<f32>().prop_filter("as above", |n| {
        n.is_finite()
            && (n.fract() != 0.0 || n.abs() < 9e15)
            && !(*n == 0.0 && n.is_sign_negative())
    });
    let leaf = prop_oneof![
        any::<bool>().prop_map(|v| (WitType::Bool, Val::Bool(v))),
        any::<i8>().prop_map(|v| (WitType::S8, Val::S8(v))),
        any::<u8>().prop_map(|v| (WitType::U8, Val::U8(v))),
        any::<i16>().prop_map(|v| (WitType::S16, Val::S16(v))),
        any::<u16>().prop_map(|v| (WitType::U16, Val::U16(v))),
        any::<i32>().prop_map(|v| (WitType::S32, Val::S32(v))),
        any::<u32>().prop_map(|v| (WitType::U32, Val::U32(v))),
        safe.prop_map(|v| (WitType::S64, Val::S64(v))),
        (0..1_u64 << 53).prop_map(|v| (WitType::U64, Val::U64(v))),
        finite.prop_map(|v| (WitType::F64, Val::Float64(v))),
        small.prop_map(|v| (WitType::F32, Val::Float32(v))),
        any::<char>().prop_map(|v| (WitType::Char, Val::Char(v))),
        any::<String>().prop_map(|v| (WitType::String, Val::String(v))),
        Just((WitType::Json, Val::String(r#"{"a":[1,null]}"#.to_owned()))),
        (0_usize..2).prop_map(|at| {
            let names = words(&["on-hold", "done"]);
            (WitType::Enum(names.clone()), Val::Enum(names[at].clone()))
        }),
        proptest::sample::subsequence(words(&["a", "b-c", "d"]), 0..=3)
            .prop_map(|set| (WitType::Flags(words(&["a", "b-c", "d"])), Val::Flags(set))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let is_option = |ty: &WitType| matches!(ty, WitType::Option(_));
        prop_oneof![
            (inner.clone(), 0_usize..3)
                .prop_map(|((ty, v), n)| (WitType::List(Box::new(ty)), Val::List(vec![v; n]))),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(|parts| {
                let (types, values) = parts.into_iter().unzip();
                (WitType::Tuple(types), Val::Tuple(values))
            }),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(|parts| {
                let name =
                    |at: usize| format!("field-{}", char::from(b'a' + u8::try_from(at).unwrap()));
                let named = parts.into_iter().enumerate();
                let (types, values) =
                    named.map(|(at, (ty, value))| ((name(at), ty), (name(at), value))).unzip();
                (WitType::Record(types), Val::Record(values))
            }),
            (inner.clone(), any::<bool>())
                .prop_filter("one null", move |((ty, _), _)| !is_option(ty))
                .prop_map(|((ty, v), some)| {
                    (WitType::Option(Box::new(ty)), Val::Option(some.then(|| Box::new(v))))
                }),
            (inner.clone(), any::<bool>()).prop_map(|((ty, v), with)| {
                let ty = WitType::Variant(vec![
                    ("bare".to_owned(), None),
                    ("with-it".to_owned(), Some(ty)),
                ]);
                let v = if with {
                    Val::Variant("with-it".to_owned(), Some(Box::new(v)))
                } else {
                    Val::Variant("bare".to_owned(), None)
                };
                (ty, v)
            }),
            (inner, any::<bool>()).prop_map(|((ty, v), ok)| {
                let ty = WitType::Result(Some(Box::new(ty)), None);
                (ty, Val::Result(if ok { Ok(Some(Box::new(v))) } else { Err(None) }))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn what_crosses_comes_back_as_it_was((ty, value) in typed()) {
        let json = to_json(&value, &ty).map_err(|error| TestCaseError::fail(error.to_string()))?;
        // As it lies in the ledger: canonical text, read strictly.
        let text = twice_core::json::canonical(&json);
        let read = twice_core::json::parse(&text, text.len()).map_err(|e| TestCaseError::fail(format!("{e}: {text}")))?;
        let back = from_json(&read, &ty).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(back, value);
    }

    #[test]
    fn no_json_and_no_type_make_it_panic((ty, _) in typed(), (other, value) in typed()) {
        drop(to_json(&value, &ty));
        if let Ok(json) = to_json(&value, &other) {
            drop(from_json(&json, &ty));
        }
    }
}

#[test]
fn each_kind_has_its_form() {
    let record = WitType::Record(vec![
        ("order-id".to_owned(), WitType::String),
        ("reason".to_owned(), WitType::Option(Box::new(WitType::String))),
    ]);
    let value = Val::Record(vec![
        ("order-id".to_owned(), Val::String("o-1".to_owned())),
        ("reason".to_owned(), Val::Option(None)),
    ]);
    assert_eq!(to_json(&value, &record).unwrap(), json!({ "order_id": "o-1" }));
    for json in
        [json!({ "order_id": "o-1" }), json!({ "order_id": "o-1", "reason": null, "more": 1 })]
    {
        assert_eq!(from_json(&json, &record).unwrap(), value);
    }
    for (ty, value, expected) in [
        (WitType::Char, Val::Char('ß'), json!("ß")),
        (WitType::F32, Val::Float32(0.1), json!(0.1)),
        (WitType::F64, Val::Float64(2.0), json!(2)),
        (WitType::Json, Val::String(r#"{"b": 1.0}"#.to_owned()), json!({ "b": 1 })),
        (WitType::Enum(words(&["on-hold"])), Val::Enum("on-hold".to_owned()), json!("on_hold")),
        (
            WitType::Flags(words(&["a", "b-c"])),
            Val::Flags(words(&["b-c", "a"])),
            json!(["a", "b_c"]),
        ),
        (
            WitType::Variant(vec![
                ("by-card".to_owned(), Some(WitType::U8)),
                ("cash".to_owned(), None),
            ]),
            Val::Variant("by-card".to_owned(), Some(Box::new(Val::U8(1)))),
            json!({ "by_card": 1 }),
        ),
        (
            WitType::Variant(vec![("cash".to_owned(), None)]),
            Val::Variant("cash".to_owned(), None),
            json!("cash"),
        ),
        (
            WitType::Result(None, Some(Box::new(WitType::String))),
            Val::Result(Err(Some(Box::new(Val::String("no".to_owned()))))),
            json!({ "err": "no" }),
        ),
        (WitType::Result(None, None), Val::Result(Ok(None)), json!("ok")),
        (
            WitType::Tuple(vec![WitType::U8, WitType::Option(Box::new(WitType::U8))]),
            Val::Tuple(vec![Val::U8(1), Val::Option(None)]),
            json!([1, null]),
        ),
    ] {
        assert_eq!(to_json(&value, &ty).unwrap(), expected, "{ty}");
    }
}

#[test]
fn what_the_other_side_cannot_express_is_refused_with_its_place() {
    let list = |ty| WitType::List(Box::new(ty));
    for (ty, value, words) in [
        (WitType::F64, Val::Float64(f64::NAN), "NaN is not finite"),
        (WitType::F32, Val::Float32(f32::INFINITY), "inf is not finite"),
        (WitType::U64, Val::U64(1 << 53), "9007199254740992 is beyond ±(2^53−1)"),
        (WitType::S64, Val::S64(i64::MIN), "is beyond ±(2^53−1)"),
        (WitType::F64, Val::Float64(1e300), "is beyond ±(2^53−1)"),
        (WitType::Json, Val::String("{".to_owned()), "is to be JSON"),
        (list(WitType::F64), Val::List(vec![Val::Float64(0.5), Val::Float64(f64::NAN)]), "at `/1`"),
    ] {
        let error = to_json(&value, &ty).unwrap_err().to_string();
        assert!(error.contains(words), "`{words}` is not in: {error}");
    }
    for (ty, json, words) in [
        (WitType::U8, json!(256), "`256` is no `u8`"),
        (WitType::U32, json!(-1), "`-1` is no `u32`"),
        (WitType::S32, json!(0.5), "`0.5` is no `s32`"),
        (WitType::Char, json!("ab"), "is no `char`"),
        (WitType::F32, json!(1e300), "is no `f32`"),
        (
            WitType::Record(vec![("order-id".to_owned(), WitType::String)]),
            json!({}),
            "nothing is there, at `/order_id`",
        ),
        (WitType::Enum(words(&["a"])), json!("b"), "`\"b\"` is no `enum { a }`"),
        (WitType::Flags(words(&["a"])), json!(["a", "b"]), "at `/1`"),
        (WitType::Tuple(vec![WitType::U8]), json!([1, 2]), "an array of 2"),
    ] {
        let error = from_json(&json, &ty).unwrap_err().to_string();
        assert!(error.contains(words), "`{words}` is not in: {error}");
    }
}

/// The typed refund node of this repository, as loaded.
fn refund() -> Component {
    sandbox().load(&built("typed/rust")).unwrap()
}

fn refund_grant(error: ErrorShape) -> TypedGrant {
    let import: TypedImport = refund().inspection().typed.remove(0);
    let FunctionType { params, result: Some(WitType::Result(Some(ok), _)) } = import.ty else {
        panic!("it has a result")
    };
    TypedGrant {
        interface: import.interface,
        function: import.function,
        slot: "refund".to_owned(),
        signature: Signature {
            item: false,
            args: ArgsShape::Whole(params[0].1.clone()),
            ok: Some(*ok),
            error,
        },
    }
}

fn granted() -> Component {
    sandbox().grant(&refund(), &[refund_grant(ErrorShape::EffectError)]).unwrap()
}

fn order() -> String {
    plan_of(&json!({ "order_id": "order-1", "amount_cents": 1_500 }))
}

#[test]
fn a_call_is_a_request_for_its_slot() {
    let body = json!({ "id": "re_1", "status": "done", "amount_cents": 1_500, "more": true });
    let (ended, host) =
        call(&granted(), &order(), limits(), FakeHost::new(Reply::Body(body.to_string())));
    assert_eq!(
        returned(&ended),
        json!({ "refund_id": "re_1", "status": "done", "amount_cents": 1_500 })
    );
    assert_eq!(host.requests.len(), 1);
    assert_eq!(host.requests[0].slot, "refund");
    assert_eq!(host.requests[0].item, None);
    assert_eq!(host.requests[0].args, r#"{"amount_cents":1500,"order_id":"order-1"}"#);
}

#[test]
fn a_refusal_is_a_value_and_what_has_no_answer_yet_does_not_return() {
    for (reply, words) in [
        (Reply::Failed, "card_declined: the card was declined"),
        (Reply::Denied, "args.amount_cents <= 100: too much"),
    ] {
        let (ended, _) = call(&granted(), &order(), limits(), FakeHost::new(reply));
        assert_eq!(ended, Ended::Fatal(words.to_owned()));
    }
    let (ended, _) = call(&granted(), &order(), limits(), FakeHost::new(Reply::Suspend));
    assert_eq!(ended, Ended::Suspended);
}

#[test]
fn what_cannot_be_written_as_json_is_refused_and_the_host_is_told() {
    let mut grant = refund_grant(ErrorShape::EffectError);
    let ArgsShape::Whole(WitType::Record(fields)) = &mut grant.signature.args else {
        panic!("it takes a record")
    };
    let order = fields.iter_mut().find(|(name, _)| name == "order-id").unwrap();
    // As where the schema says that JSON stands there: `order-1` is none.
    order.1 = WitType::Json;
    let node = sandbox().grant(&refund(), &[grant]).unwrap();
    let (ended, host) = call(&node, &self::order(), limits(), FakeHost::new(Reply::Echo));
    let Ended::Fatal(message) = &ended else { panic!("{ended:?}") };
    assert!(message.starts_with("args: ") && message.contains("is to be JSON"), "{message}");
    assert!(host.requests.is_empty());
    let [(_, told)] = host.log.as_slice() else { panic!("{:?}", host.log) };
    assert!(told.starts_with("refused refund by args: ") && told.contains("/order_id"), "{told}");
}

#[test]
fn each_arg_may_be_a_parameter_with_the_element_in_front_and_a_refusal_one_text() {
    let node = sandbox().load(&built("typed/lines")).unwrap();
    let import: TypedImport = node.inspection().typed[0].clone();
    let FunctionType { mut params, result: Some(WitType::Result(Some(ok), _)) } = import.ty else {
        panic!("it has a result")
    };
    assert_eq!(params.remove(0), ("item".to_owned(), WitType::U32));
    let grant = TypedGrant {
        interface: import.interface,
        function: import.function,
        slot: "line".to_owned(),
        signature: Signature {
            item: true,
            args: ArgsShape::Members(params),
            ok: Some(*ok),
            error: ErrorShape::Text,
        },
    };
    let node = sandbox().grant(&node, &[grant]).unwrap();
    let lines = plan_of(&json!({ "lines": [
        { "order_id": "a", "amount_cents": 1 }, { "order_id": "b", "amount_cents": 2 }
    ] }));
    let body = json!({ "id": "re_1", "status": "done", "amount_cents": 7 }).to_string();
    let (ended, host) = call(&node, &lines, limits(), FakeHost::new(Reply::Body(body)));
    let line = json!({ "refund_id": "re_1", "amount_cents": 7 });
    assert_eq!(returned(&ended), json!([line, line]));
    let asked: Vec<_> =
        host.requests.iter().map(|request| (request.item, request.args.as_str())).collect();
    assert_eq!(
        asked,
        [
            (Some(0), r#"{"amount_cents":1,"order_id":"a"}"#),
            (Some(1), r#"{"amount_cents":2,"order_id":"b"}"#)
        ]
    );
    for (reply, words) in [
        (Reply::Failed, "`line` failed with card_declined: the card was declined"),
        (Reply::Denied, "`line` is denied by args.amount_cents <= 100: too much"),
    ] {
        let (ended, _) = call(&node, &lines, limits(), FakeHost::new(reply));
        assert_eq!(ended, Ended::Fatal(words.to_owned()));
    }
}

#[test]
fn a_typed_request_counts_and_is_measured_like_any_other() {
    let none = twice_sandbox::CallLimits { effects: 0, ..limits() };
    let (ended, _) = call(&granted(), &order(), none, FakeHost::new(Reply::Echo));
    check_limit(&ended, "effects", "requested 1 effects");
    let long = "x".repeat(4_000);
    let input = plan_of(&json!({ "order_id": long, "amount_cents": 1 }));
    let tight = twice_sandbox::CallLimits { payload_bytes: 4_020, ..limits() };
    let (ended, _) = call(&granted(), &input, tight, FakeHost::new(Reply::Echo));
    check_limit(&ended, "payload", "4020");
}

#[test]
fn a_receipt_that_does_not_fit_is_told_as_that() {
    let body = json!({ "id": "re_1", "status": 7, "amount_cents": 1 });
    let (ended, _) =
        call(&granted(), &order(), limits(), FakeHost::new(Reply::Body(body.to_string())));
    check_trap(&ended, "`7` is no `string`, at `/status`. The effect happened");
}

#[test]
fn what_nothing_grants_is_refused_by_name_and_never_runs() {
    let node = refund();
    let Err(error) = sandbox().grant(&node, &[]) else { panic!("it was granted") };
    assert!(matches!(error, SandboxError::Ungranted { .. }));
    let text = error.to_string();
    for words in ["`tools:payments/payments#refund`", "[[node.effect]]"] {
        assert!(text.contains(words), "{text}");
    }
    let (ended, host) = call(&node, &order(), limits(), FakeHost::new(Reply::Echo));
    check_trap(&ended, "`tools:payments/payments#refund` is not granted");
    assert!(host.requests.is_empty());
}

#[test]
fn what_cannot_be_a_typed_tools_is_refused_with_the_reason() {
    for (member, words) in [
        (r#"(export "order" (type (sub resource)))"#, "it has the resource `order`"),
        (
            r#"(export "f" (func (param "a" (option (option u8)))))"#,
            "`a:b/c@1.0.0#f`: it has an option within an option",
        ),
        (r#"(export "m" (core module))"#, "neither a function nor a type"),
    ] {
        let text = format!(r#"(component (import "a:b/c@1.0.0" (instance {member})))"#);
        let error =
            sandbox().load(&wat::parse_str(&text).unwrap()).map(|c| c.inspection()).unwrap_err();
        assert!(error.to_string().contains(words), "`{words}` is not in: {error}");
    }
}

#[test]
fn a_type_that_is_huge_when_written_out_is_refused() {
    let mut types = r#"(type $t0 (tuple u8 u8))"#.to_owned();
    for level in 1..14 {
        let inner = level - 1;
        types.push_str(&format!("(type $t{level} (tuple $t{inner} $t{inner}))"));
    }
    let text = format!(
        r#"(component {types} (import "a:b/c" (instance
        (alias outer 1 $t13 (type $t)) (export "f" (func (param "a" $t))))))"#
    );
    let error =
        sandbox().load(&wat::parse_str(&text).unwrap()).map(|c| c.inspection()).unwrap_err();
    assert!(error.to_string().contains("its types are too large"), "{error}");
}

#[test]
fn typed_imports_are_read_without_compiling() {
    let imports = typed_imports(&built("typed/rust")).unwrap();
    assert_eq!(imports, refund().inspection().typed);
    assert_eq!(imports.len(), 1);
    assert!(
        imports[0].to_string().starts_with("tools:payments/payments#refund: func(args: record {"),
        "{}",
        imports[0]
    );
    assert_eq!(typed_imports(&built("refund")).unwrap(), []);
}
