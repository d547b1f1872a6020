use proptest::prelude::*;
use serde_json::{Value, json};
use twice_core::json::{JsonProblem, Place, canonical, check, parse, remove};

const MAX: usize = 1 << 20;

#[track_caller]
fn reads(text: &str, canonical_text: &str) {
    let value = parse(text, MAX).expect("strict JSON");
    assert_eq!(canonical(&value), canonical_text);
    check(&value).expect("what `parse` lets pass, `check` lets pass");
}

#[track_caller]
fn refused(text: &str, message: &str) {
    let error = parse(text, MAX).expect_err("not to be taken");
    assert_eq!(error.to_string(), message);
}

#[test]
fn writes_numbers_as_rfc_8785_appendix_b() {
    // (IEEE 754 bits, text); the rows whose value is within the range that `check` lets pass, and beyond.
    let table: [(u64, &str); 24] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, text) in table {
        assert_eq!(canonical(&Value::from(f64::from_bits(bits))), text, "bits {bits:016x}");
    }
}

#[test]
fn reads_and_writes_the_example_of_rfc_8785() {
    reads(
        r#"{
          "numbers": [333333333.33333329, 1E3, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }"#,
        "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1000,4.5,0.002,1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
    );
}

#[test]
fn orders_members_by_utf_16_code_units() {
    // The example of RFC 8785 §3.2.3: U+1F600 sorts before U+FB33, whose code point is lower.
    reads(
        r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
            "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
    );
}

#[test]
fn takes_what_is_strict_and_writes_one_form() {
    reads(" [ ] ", "[]");
    reads("{\n}", "{}");
    reads("-0", "0");
    reads("-0.0", "0");
    reads("0e99999", "0");
    reads("[1.0,1e0,10E-1,100e-2,1]", "[1,1,1,1,1]");
    reads("9007199254740991", "9007199254740991");
    reads("-9007199254740991", "-9007199254740991");
    reads("9.007199254740991e15", "9007199254740991");
    reads("1e-7", "1e-7");
    reads("0.0000001", "1e-7");
    reads("0.1", "0.1");
    reads(r#""\u2028\u2029\u007f\u0000\b\f\/""#, "\"\u{2028}\u{2029}\u{7f}\\u0000\\b\\f/\"");
    reads("\"\u{2028}\"", "\"\u{2028}\"");
    reads(r#""\uD83D\uDE00""#, "\"😀\"");
    reads(&("[".repeat(64) + &"]".repeat(64)), &("[".repeat(64) + &"]".repeat(64)));
}

#[test]
fn texts_that_only_look_alike_stay_different() {
    let composed = parse("\"\u{e9}\"", MAX).expect("strict");
    let decomposed = parse("\"e\u{301}\"", MAX).expect("strict");
    assert_ne!(canonical(&composed), canonical(&decomposed));
    reads("{\"\u{e9}\":1,\"e\u{301}\":2}", "{\"e\u{301}\":2,\"\u{e9}\":1}");
}

#[test]
fn refuses_what_readers_disagree_about() {
    refused(r#"{"a":1,"a":2}"#, "duplicate member `a` at line 1, column 8");
    refused("{\"a\":\n {\"b\":1, \"\\u0062\":2}}", "duplicate member `b` at line 2, column 10");
    refused(
        "9007199254740992",
        "integer `9007199254740992` is beyond ±(2^53−1); pass it as a string at line 1, column 1",
    );
    refused(
        "[\"é\",-9007199254740993]",
        "integer `-9007199254740993` is beyond ±(2^53−1); pass it as a string at line 1, column 6",
    );
    refused(
        "99999999999999999999",
        "integer `99999999999999999999` is beyond ±(2^53−1); pass it as a string at line 1, column 1",
    );
    refused(
        "9007199254740992.0",
        "integer `9007199254740992.0` is beyond ±(2^53−1); pass it as a string at line 1, column 1",
    );
    refused(
        "1e300",
        "integer `1e300` is beyond ±(2^53−1); pass it as a string at line 1, column 1",
    );
    refused("1e400", "number `1e400` is not finite at line 1, column 1");
    refused("-1e400", "number `-1e400` is not finite at line 1, column 1");
    refused(r#""\ud800""#, "lone surrogate `\\ud800` in a string at line 1, column 2");
    refused(r#""a\udc00""#, "lone surrogate `\\udc00` in a string at line 1, column 3");
    refused(r#""\ud800\ud800""#, "lone surrogate `\\ud800` in a string at line 1, column 2");
    refused(r#"{"\ud800x":1}"#, "lone surrogate `\\ud800` in a string at line 1, column 3");
    refused(&"[".repeat(65), "nested deeper than 64 levels at line 1, column 65");
    refused(&"{\"a\":".repeat(65), "nested deeper than 64 levels at line 1, column 321");
}

#[test]
fn refuses_what_is_not_json() {
    refused("", "not JSON: expected a value, found the end at line 1, column 1");
    refused("NaN", "not JSON: expected a value, found `N` at line 1, column 1");
    refused("-Infinity", "not JSON: expected a digit, found `I` at line 1, column 2");
    refused("01", "not JSON: expected the end, found `1` at line 1, column 2");
    refused("1.", "not JSON: expected a digit, found the end at line 1, column 3");
    refused("1e", "not JSON: expected a digit, found the end at line 1, column 3");
    refused("+1", "not JSON: expected a value, found `+` at line 1, column 1");
    refused("[1,]", "not JSON: expected a value, found `]` at line 1, column 4");
    refused("[1 2]", "not JSON: expected `,` or `]`, found `2` at line 1, column 4");
    refused("{a:1}", "not JSON: expected a member's name in quotes, found `a` at line 1, column 2");
    refused(
        "{\"a\":1,}",
        "not JSON: expected a member's name in quotes, found `}` at line 1, column 8",
    );
    refused("{\"a\" 1}", "not JSON: expected `:`, found `1` at line 1, column 6");
    refused("tru", "not JSON: expected a value, found `t` at line 1, column 1");
    refused("null null", "not JSON: expected the end, found `n` at line 1, column 6");
    refused("\u{feff}1", "not JSON: expected a value, found `\\u{feff}` at line 1, column 1");
    refused(
        "\"a\nb\"",
        "not JSON: expected control characters to be escaped, found `\\n` at line 1, column 3",
    );
    refused(
        "\"a",
        "not JSON: expected the closing quote of a string, found the end at line 1, column 3",
    );
    refused(
        r#""\x""#,
        "not JSON: expected one of `\"\\/bfnrtu` after a backslash, found `x` at line 1, column 3",
    );
    refused(
        r#""\u12é4""#,
        "not JSON: expected four hexadecimal digits, found `1` at line 1, column 4",
    );
    refused("// no\n1", "not JSON: expected a value, found `/` at line 1, column 1");
}

#[test]
fn length_is_checked_before_anything_is_read() {
    assert_eq!(parse("[1]", 3).expect("fits"), json!([1]));
    let error = parse("[1] ", 3).expect_err("one byte too many");
    assert_eq!(error.problem, JsonProblem::TooLong { bytes: 4, max: 3 });
}

#[test]
fn depth_of_hostile_texts_does_not_reach_the_stack() {
    let error = parse(&"[".repeat(MAX), MAX).expect_err("too deep");
    assert_eq!(error.problem, JsonProblem::TooDeep { max: 64 });
}

#[test]
fn many_members_are_read_in_reasonable_time() {
    let members: Vec<String> = (0..50_000).map(|n| format!("\"key-{n}\":{n}")).collect();
    let value = parse(&format!("{{{}}}", members.join(",")), MAX).expect("strict");
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(50_000));
}

#[test]
fn check_names_the_offence_by_pointer() {
    #[track_caller]
    fn check_refuses(value: &Value, pointer: &str, problem: &JsonProblem) {
        let error = check(value).expect_err("not to be taken");
        assert_eq!((&error.problem, error.place), (problem, Place::Pointer(pointer.to_owned())));
    }
    let beyond = |number: &str| JsonProblem::IntegerRange { number: number.to_owned() };
    check_refuses(&json!({ "a/b": [1, i64::MAX] }), "/a~1b/1", &beyond("9223372036854775807"));
    check_refuses(&json!(i64::MIN), "", &beyond("-9223372036854775808"));
    check_refuses(&json!([u64::MAX]), "/0", &beyond("18446744073709551615"));
    check_refuses(&json!({ "~": 9_007_199_254_740_992_i64 }), "/~0", &beyond("9007199254740992"));
    check_refuses(&json!(1e300), "", &beyond("1e+300"));
    let deep = (0..65).fold(Value::Null, |inner, _| json!([inner]));
    check_refuses(&deep, &"/0".repeat(64), &JsonProblem::TooDeep { max: 64 });
    check(&json!({ "a": [1, -1, 0.5, 9_007_199_254_740_991_i64, null, "x"] })).expect("fine");
}

#[test]
fn remove_takes_out_members_and_blanks_elements() {
    #[track_caller]
    fn check(pointers: &[&str], expected: &Value) {
        let mut value = json!({ "a": { "b/c": 1, "d": 2 }, "list": ["x", "y", { "note": "z" }] });
        for pointer in pointers {
            remove(&mut value, pointer);
        }
        assert_eq!(&value, expected, "{pointers:?}");
    }
    let all = json!({ "a": { "b/c": 1, "d": 2 }, "list": ["x", "y", { "note": "z" }] });
    check(&[], &all);
    check(&["", "a", "/none/x", "/list/7", "/list/-", "/list/01", "/a/d/e"], &all);
    check(&["/a/b~1c"], &json!({ "a": { "d": 2 }, "list": ["x", "y", { "note": "z" }] }));
    check(
        &["/list/0", "/list/1"],
        &json!({ "a": { "b/c": 1, "d": 2 }, "list": [null, null, { "note": "z" }] }),
    );
    check(&["/a", "/list/2/note"], &json!({ "list": ["x", "y", {}] }));
}

/// Values as `parse` gives them: whole numbers are integers.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991..=9_007_199_254_740_991_i64).prop_map(Value::from),
        (-1e15..1e15_f64)
            .prop_filter("whole numbers are integers", |f| f.fract() != 0.0)
            .prop_map(Value::from),
        any::<f64>().prop_filter("in range", |f| f.abs() < 1.0 && *f != 0.0).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\u{e000}-\u{f8ff}\u{10000}-\u{10fff}a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(
                prop_oneof![any::<String>(), "[\u{e000}-\u{f8ff}\u{10000}-\u{10fff}a-c]{0,2}"],
                inner,
                0..6
            )
            .prop_map(|members| members.into_iter().collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn canonical_text_reads_back_as_the_same_value(value in values()) {
        let text = canonical(&value);
        let back = parse(&text, MAX).expect("canonical text is strict");
        prop_assert_eq!(&back, &value);
        prop_assert_eq!(canonical(&back), text);
    }

    #[test]
    fn agrees_with_another_implementation(value in values()) {
        let other = serde_json_canonicalizer::to_string(&value).expect("plain data");
        prop_assert_eq!(canonical(&value), other);
    }

    #[test]
    fn numbers_agree_with_another_implementation(
        // Where halves and quarters are the last digits of a double, two texts can be equally near.
        float in prop_oneof![any::<u64>().prop_map(f64::from_bits), 1e14..9.1e15],
    ) {
        prop_assume!(float.is_finite());
        let value = Value::from(float);
        let other = serde_json_canonicalizer::to_string(&value).expect("plain data");
        prop_assert_eq!(canonical(&value), other);
    }

    #[test]
    fn takes_nothing_that_serde_json_refuses(text in "[\\[\\]{}\",:0-9eE.+\\-a\\\\u \n]{0,24}") {
        if let Ok(value) = parse(&text, MAX) {
            let other: Value = serde_json::from_str(&text).expect("at least as strict");
            prop_assert_eq!(canonical(&value), canonical(&other));
        }
    }

    #[test]
    fn never_panics(text in any::<String>()) {
        let _ = parse(&text, MAX);
    }
}
