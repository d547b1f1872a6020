//! The files of a project, and the expressions in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;
use twice_tests::nodes::repository;
use twice_workflow::policy::Policy;
use twice_workflow::{Project, condition};

use crate::driver::{Target, files};

const TOML: &[&str] = &[
    "[[node]]\n",
    "[[node.effect]]\n",
    "name = ",
    "component = ",
    "after = [",
    "when = ",
    "for_each = ",
    "loop = {",
    "to = ",
    "while = ",
    "max = ",
    "parallel = ",
    "object = \"/input/",
    "intent = ",
    "allow = \"",
    "slot = ",
    "tool = ",
    "workflow = ",
    "compensate = {",
    "pivot = true\n",
    "limits = {",
    "timeout = \"1s\"\n",
    "retry = {",
    "ends = true\n",
    "{/args/",
    "{secret:",
    "?}",
    "[operation.x.request]\n",
    "[operation.x.lookup]\n",
    "schema = \"schemas/",
    "= 9223372036854775808",
    "\"\"\"",
    "'''",
    "\"\\u0000\"",
    "0x",
    "1979-05-27T07:32:00Z",
    "inf",
    "nan",
    "../",
    "~1",
    "~2",
    "/",
    "{}",
    "[]",
    "\u{0}",
];

fn base() -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let root = repository().join("nodes/example-project");
    for folder in ["", "workflows", "tools", "schemas"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
            if path.is_file() && (name.ends_with(".toml") || name.starts_with("schemas/")) {
                all.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    all
}

/// One file of a project is replaced: `file` takes the place of it.
fn target(name: &'static str, file: &'static str, corpus: Vec<Vec<u8>>) -> Target {
    let base = base();
    let run = move |input: &[u8]| {
        let text = String::from_utf8_lossy(input).into_owned();
        let mut files = base.clone();
        files.insert(file.to_owned(), text);
        check(&files)
    };
    Target { name, corpus, dictionary: TOML, run: Box::new(run) }
}

/// It loads, or each thing that is wrong with it is said with file, line, reason and remedy.
fn check(files: &BTreeMap<String, String>) -> String {
    let found = match Project::load(files) {
        Ok(project) => {
            let flows: Vec<usize> = project.workflows.values().map(|w| w.nodes.len()).collect();
            let warnings: Vec<&str> = project.warnings.iter().map(|w| w.code.as_str()).collect();
            return format!("loads {} {warnings:?}", flows.len());
        }
        Err(found) => found,
    };
    assert!(!found.is_empty(), "it does not load, and nothing is wrong");
    let mut codes = Vec::new();
    for diagnostic in &found {
        let shown = diagnostic.to_string();
        assert!(!diagnostic.what.is_empty() && !diagnostic.fix.is_empty(), "{shown}");
        assert!(diagnostic.line >= 1 && diagnostic.column >= 1, "{shown}");
        if let Some(text) = files.get(&diagnostic.file) {
            let lines = text.split('\n').count();
            assert!(diagnostic.line as usize <= lines, "{lines} lines: {shown}");
        }
        codes.push(diagnostic.code.as_str());
    }
    codes.dedup();
    // By its code, letters and all, as digits are not heard.
    codes.iter().map(|code| code.replace(|c: char| c.is_ascii_digit(), "") + &word(code)).collect()
}

fn word(code: &str) -> String {
    code.bytes().filter(u8::is_ascii_digit).map(|digit| char::from(digit + b'a' - b'0')).collect()
}

fn all(part: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    collect(&repository().join("nodes"), part, &mut found);
    found
}

fn collect(folder: &Path, part: &str, found: &mut Vec<Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.ends_with(part) {
            found.extend(files(&path, ".toml"));
        } else if path.is_dir() && !path.ends_with("target") {
            collect(&path, part, found);
        }
    }
}

#[test]
fn project_file() {
    let corpus = vec![
        fs::read(repository().join("nodes/example-project/twice.toml")).unwrap(),
        b"project = \"p\"\n[database]\nurl = \"env:DATABASE\"\n[worker]\nlease = \"1m\"\n".to_vec(),
    ];
    target("project_file", "twice.toml", corpus).fuzz(1_200);
}

#[test]
fn workflow_file() {
    target("workflow_file", "workflows/damaged-item-refund.toml", all("workflows")).fuzz(2_000);
}

#[test]
fn tool_file() {
    let mut corpus = all("tools");
    corpus.extend(files(&repository().join("nodes/providers"), ".toml"));
    target("tool_file", "tools/payments.toml", corpus).fuzz(1_200);
}

const CEL: &[&str] = &[
    "args",
    "state",
    "receipts",
    "routes",
    "args.amount_cents",
    "state.input.",
    "==",
    "!=",
    "<=",
    "&&",
    "||",
    "!",
    "?",
    ":",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    " in ",
    "has(",
    "size(",
    ".all(x, ",
    ".exists(x, ",
    ".map(x, ",
    ".filter(x, ",
    ".matches(\"",
    "(a+)+$",
    ".startsWith(\"",
    "timestamp(\"",
    "duration(\"",
    "int(",
    "uint(",
    "double(",
    "string(",
    "bytes(",
    "9223372036854775807",
    "-9223372036854775808",
    "1u",
    "0xff",
    "1e308",
    "1/0",
    "%",
    "b\"\\xff\"",
    "r\"\"\"",
    "'",
    "\"",
    "null",
    "type(",
    "dyn(",
    "optional.of(",
    "\u{0}",
    "!!!!!!!!!!!!!!!!",
    "((((((((((((((((",
];

/// An expression compiles or is refused, and what compiles is decided or has no truth value, in bounded time.
#[test]
fn expression() {
    let corpus = [
        "args.order_id == state.input.order_id && args.amount_cents <= state.input.paid_cents",
        "args.to == state.input.customer_email",
        "has(state.input.id) ? args.amount_cents in [1, 2, 3] : size(args.list) > 2",
        "args.list.all(x, x > 0) && args.list.exists(y, y == 3)",
        "args.list.map(x, x * 2).filter(y, y > 2).size() < 5",
        "args.order_id.matches('^[a-z]+-[0-9]+$') || args.order_id.startsWith('order')",
        "timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z') && duration('1h') > duration('1m')",
        "receipts.refund.refund.result.amount > 10.5 && routes.review == 'accept'",
        "int('5') + 3 == 8 && string(5) == '5' && double(2) == 2.0",
        "{'a': 1}['a'] == 1 && [1, 2][0] == 1",
    ]
    .map(|text| text.as_bytes().to_vec());
    let args = json!({ "order_id": "order-42", "amount_cents": 4_200, "to": "a@example.com", "list": [1, 2, 3, 1.5, "x", null] });
    let state =
        json!({ "input": { "order_id": "order-42", "paid_cents": 5_000, "id": "é" }, "nodes": {} });
    let run = move |input: &[u8]| {
        let Ok(text) = std::str::from_utf8(input) else { return "no text".to_owned() };
        let decided = match Policy::compile(text) {
            Ok(policy) => match policy.permits(&args, &state, Some("order-1")) {
                Ok(permits) => {
                    assert_eq!(
                        policy.permits(&args, &state, Some("order-1")),
                        Ok(permits),
                        "decided once so, once so"
                    );
                    format!("{permits} {:?}", policy.constant())
                }
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        let holds = condition::holds(text, &state, &json!({}), &json!({ "review": "accept" }));
        format!(
            "{decided}; {}",
            holds.map_or_else(|error| error.to_string(), |holds| holds.to_string())
        )
    };
    Target { name: "expression", corpus: corpus.to_vec(), dictionary: CEL, run: Box::new(run) }
        .fuzz(6_000);
}
