//! JSON as it is taken in and hashed.

use serde_json::Value;
use twice_core::json::{JsonProblem, Place, canonical, parse};
use twice_core::limits::PAYLOAD_BYTES_MAX;
use twice_tests::nodes::repository;

use crate::driver::{Target, files};

const DICTIONARY: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1.0",
    "1e0",
    "-0.0",
    "1E400",
    "5e-324",
    "0.1",
    "9007199254740991",
    "9007199254740992",
    "-9007199254740993",
    "1e21",
    "123456789012345678",
    "\\u0000",
    "\\ud83d\\ude00",
    "\\udc00",
    "\\/",
    "\"a\":1,",
    "\u{feff}",
    "é",
    "\u{2028}",
    "[[[[[[[[[[[[[[[[",
    "]]]]]]]]]]]]]]]]",
];

/// What is read is one value, with one text, which is that of RFC 8785 as others write it; what is refused is said where.
#[test]
fn json() {
    let mut corpus = files(&repository().join("nodes"), ".json");
    corpus.extend(
        [
            r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
            "{\"\u{20ac}\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\u{fb33}\":\"Hebrew\",\"1\":\"One\",\"\u{1f600}\":\"Emoji\",\"\u{80}\":\"Control\",\"\u{f6}\":\"Latin\"}",
            "[1.0, 1e0, -0, 0.1e1, 1e-7, 9007199254740991]",
        ]
        .map(|text| text.as_bytes().to_vec()),
    );
    Target { name: "json", corpus, dictionary: DICTIONARY, run: Box::new(check) }.fuzz(100_000);
}

fn check(input: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(input) else { return "no text".to_owned() };
    let theirs: Result<Value, _> = serde_json::from_str(text);
    let value = match parse(text, PAYLOAD_BYTES_MAX) {
        Ok(value) => value,
        Err(error) => {
            let Place::Text { line, column } = error.place else { panic!("no place: {error}") };
            let length = text.lines().nth(line - 1).map_or(0, |line| line.chars().count());
            assert!(line >= 1 && column >= 1 && column <= length + 2, "{error}");
            // Stricter than others, but not about what JSON is.
            let syntax = matches!(error.problem, JsonProblem::Syntax { .. });
            assert!(!syntax || theirs.is_err(), "{error}, which others read");
            return error.problem.to_string();
        }
    };
    assert!(theirs.is_ok(), "others do not read it: {theirs:?}");
    let text = canonical(&value);
    assert_eq!(parse(&text, usize::MAX).as_ref(), Ok(&value), "{text}");
    assert_eq!(canonical(&parse(&text, usize::MAX).unwrap()), text);
    assert_eq!(serde_json_canonicalizer::to_string(&value).unwrap(), text);
    format!("{} {}", kind(&value), text.len().ilog2())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null | Value::Bool(_) => "word",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
