//! The conformance table: what a node can do, it can do in every language. One list of behaviours for all of them; the nodes
//! are described in `nodes/languages/README.md`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use serde_json::{Value, json};
use twice_sandbox::{CallLimits, Component, Ended, LogLevel};
use twice_toolchain::Language;

use crate::support::{
    FakeHost, Reply, call, check_trap, language_node, limits, plan, returned, sandbox,
};

/// A behaviour, and how a node shows it.
type Behaviour = (&'static str, fn(&Guest));

const BEHAVIOURS: [Behaviour; 26] = [
    ("a receipt", receipt),
    ("a confirmed failure", failure),
    ("a refusal by policy", denial),
    ("a failure ends a node that does not handle it", unhandled_failure),
    ("a refusal ends a node that does not handle it", unhandled_denial),
    ("many requests at once, in order", request_all),
    ("no request at once", request_none),
    ("an element of a slot's array", item),
    ("started again, it asks for the same and gets the recorded answers", restart),
    ("a request that is not answered yet ends the instance", suspension),
    ("retryable", retryable),
    ("fatal", fatal),
    ("an uncaught error is a trap that says why", uncaught),
    ("a trap", trap),
    ("every character", unicode),
    ("an input and an output of a megabyte", megabyte),
    ("a request of a megabyte", big_request),
    ("deep JSON", deep),
    ("large and small numbers", numbers),
    ("durable time", time),
    ("durable randomness", randomness),
    ("the language's own time and randomness, durable as well", native),
    ("logs of every level", logs),
    ("what is printed is logged", print),
    ("where it stands", context),
    ("the outputs of other nodes, attempts and visits", state),
];

/// A conformance node of one language.
struct Guest {
    component: Component,
    language: Language,
}

impl Guest {
    fn act(&self, steps: &Value, host: FakeHost) -> (Ended, FakeHost) {
        self.run(&plan(steps), host)
    }

    fn run(&self, input: &str, host: FakeHost) -> (Ended, FakeHost) {
        let limits = CallLimits { payload_bytes: 1 << 20, ..limits() };
        call(&self.component, input, limits, host)
    }

    /// The one note of one step.
    #[track_caller]
    fn note(&self, step: &Value, reply: Reply) -> Value {
        let (ended, _) = self.act(&json!([step]), FakeHost::new(reply));
        let output = returned(&ended);
        let notes = output["notes"].as_array().expect("there are notes");
        assert_eq!(notes.len(), 1, "{output}");
        notes[0].clone()
    }
}

#[track_caller]
fn conforms(language: Language, folder: PathBuf) {
    let Some(bytes) = language_node(language, &folder) else { return };
    let component = sandbox().load(&bytes).unwrap_or_else(|error| panic!("{error}"));
    let guest = Guest { component, language };
    let mut lacking = Vec::new();
    for (name, behaviour) in BEHAVIOURS {
        // What is wrong with one behaviour is not the end of the table; its own message stands above.
        let shown = catch_unwind(AssertUnwindSafe(|| behaviour(&guest))).is_ok();
        println!("{:15} {} {name}", language.word(), if shown { "yes" } else { "NO " });
        if !shown {
            lacking.push(name);
        }
    }
    assert!(lacking.is_empty(), "the node in {} lacks: {}", language.word(), lacking.join(", "));
}

macro_rules! languages {
    ($($test:ident: $language:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                let language = Language::$language;
                conforms(language, PathBuf::from("languages").join(language.word()).join("conformance"));
            }
        )*
    };
}

languages! {
    python: Python,
    javascript: JavaScript,
    typescript: TypeScript,
    go: Go,
    c: C,
    cpp: Cpp,
    zig: Zig,
    assemblyscript: AssemblyScript,
}

#[test]
fn rust() {
    conforms(Language::Rust, PathBuf::from("conformance"));
}

fn receipt(guest: &Guest) {
    let args = json!({ "order_id": "order-42", "amount_cents": 4_200 });
    let step = json!({ "do": "request", "slot": "a", "args": args });
    assert_eq!(guest.note(&step, Reply::Echo), json!({ "effect_id": "eff_a", "body": args }));
    let step = json!({ "do": "request", "slot": "a" });
    assert_eq!(guest.note(&step, Reply::Echo)["body"], Value::Null);
}

fn failure(guest: &Guest) {
    let step = json!({ "do": "request", "slot": "a" });
    let failed = json!({ "failed": "card_declined", "message": "the card was declined" });
    assert_eq!(guest.note(&step, Reply::Failed), failed);
}

fn denial(guest: &Guest) {
    let step = json!({ "do": "request", "slot": "a" });
    let denied = json!({ "denied": "args.amount_cents <= 100", "message": "too much" });
    assert_eq!(guest.note(&step, Reply::Denied), denied);
}

fn unhandled_failure(guest: &Guest) {
    let steps = json!([{ "do": "request", "slot": "a", "must": true }, { "do": "now" }]);
    let (ended, host) = guest.act(&steps, FakeHost::new(Reply::Failed));
    let why = "`a` failed with card_declined: the card was declined";
    assert_eq!(ended, Ended::Fatal(why.to_owned()));
    assert_eq!(host.requests.len(), 1);
}

fn unhandled_denial(guest: &Guest) {
    let steps = json!([{ "do": "request", "slot": "a", "must": true }]);
    let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Denied));
    let why = "`a` is denied by args.amount_cents <= 100: too much";
    assert_eq!(ended, Ended::Fatal(why.to_owned()));
}

fn request_all(guest: &Guest) {
    let steps = json!([{ "do": "request_all", "requests": [
        { "slot": "a", "item": 1, "args": { "n": 1 } }, { "slot": "b", "args": [2] }, { "slot": "c" },
    ] }]);
    let (ended, host) = guest.act(&steps, FakeHost::new(Reply::Echo));
    assert_eq!(host.batches, [3]);
    assert_eq!(host.requests[0].item, Some(1));
    assert_eq!(host.requests[1].item, None);
    assert_eq!(
        returned(&ended)["notes"],
        json!([[{ "effect_id": "eff_a", "body": { "n": 1 } }, { "effect_id": "eff_b", "body": [2] },
                { "effect_id": "eff_c", "body": null }]])
    );
    let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Denied));
    let denied = json!({ "denied": "args.amount_cents <= 100", "message": "too much" });
    assert_eq!(returned(&ended)["notes"], json!([[denied, denied, denied]]));
}

fn request_none(guest: &Guest) {
    let note = guest.note(&json!({ "do": "request_all", "requests": [] }), Reply::Echo);
    assert_eq!(note, json!([]));
}

fn item(guest: &Guest) {
    let steps = json!([{ "do": "request", "slot": "a", "item": 0 },
                       { "do": "request", "slot": "a", "item": 2_000_000_000 }]);
    let (_, host) = guest.act(&steps, FakeHost::new(Reply::Echo));
    let items: Vec<Option<u32>> = host.requests.iter().map(|request| request.item).collect();
    assert_eq!(items, [Some(0), Some(2_000_000_000)]);
}

fn restart(guest: &Guest) {
    let steps = json!([{ "do": "request_volatile", "slot": "a" }, { "do": "random", "count": 9 },
                       { "do": "request", "slot": "b", "args": { "né": "日本" } }, { "do": "now" },
                       { "do": "request_volatile", "slot": "c" }]);
    let (ended, first) = guest.act(&steps, FakeHost::new(Reply::EchoThenSuspend(2)));
    assert_eq!(ended, Ended::Suspended);
    assert_eq!(first.requests.len(), 3);
    let (ended, second) = guest.act(&steps, FakeHost::new(Reply::Echo));
    assert_eq!(second.requests, first.requests);
    let (again, third) = guest.act(&steps, FakeHost::new(Reply::Echo));
    assert_eq!((&again, &third.requests), (&ended, &second.requests));
    returned(&ended);
}

fn suspension(guest: &Guest) {
    let steps = json!([{ "do": "request", "slot": "a" }, { "do": "fatal", "message": "went on" }]);
    let (ended, host) = guest.act(&steps, FakeHost::new(Reply::Suspend));
    assert_eq!(ended, Ended::Suspended);
    assert_eq!(host.requests.len(), 1);
}

fn retryable(guest: &Guest) {
    let steps = json!([{ "do": "retryable", "message": "später, 🦀" }]);
    let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Echo));
    assert_eq!(ended, Ended::Retryable("später, 🦀".to_owned()));
}

fn fatal(guest: &Guest) {
    let steps = json!([{ "do": "fatal", "message": "nie, 🦀" }]);
    let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Echo));
    assert_eq!(ended, Ended::Fatal("nie, 🦀".to_owned()));
}

fn uncaught(guest: &Guest) {
    let steps = json!([{ "do": "panic", "message": "the sky fell on order-42" }]);
    let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Echo));
    check_trap(&ended, "the sky fell on order-42");
}

fn trap(guest: &Guest) {
    let (ended, _) = guest.act(&json!([{ "do": "trap" }]), FakeHost::new(Reply::Echo));
    // A language without an instruction for it may use up its stack.
    assert!(
        matches!(ended, Ended::Trapped { .. } | Ended::Limit { limit: "stack", .. }),
        "{ended:?}"
    );
}

fn unicode(guest: &Guest) {
    let text = "\u{0}\u{1}\t\n\r\"\\/ é e\u{301} ß 日本 👩‍👩‍👧 \u{2028}\u{2029} \u{feff}\u{fffd}\u{ffff} \u{10ffff}";
    let value = json!({ "text": text, "ключ": [text, { text: text }] });
    let step = json!({ "do": "request", "slot": "ü-slot", "args": value });
    let answered = json!({ "effect_id": "eff_ü-slot", "body": value });
    assert_eq!(guest.note(&step, Reply::Echo), answered);
    let steps = json!([{ "do": "return", "output": value }]);
    let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Echo));
    assert_eq!(returned(&ended), value);
}

fn megabyte(guest: &Guest) {
    // Long texts, and many small values.
    let texts = vec!["é🦀 x".repeat(1_000); 50];
    let output = json!({ "texts": texts, "numbers": Vec::from_iter(0..100_000) });
    let input = plan(&json!([{ "do": "return", "output": output }]));
    assert!(input.len() > 850_000 && input.len() < 1 << 20, "{}", input.len());
    let (ended, _) = guest.run(&input, FakeHost::new(Reply::Echo));
    assert!(returned(&ended) == output, "it is not what it was");
}

fn big_request(guest: &Guest) {
    let steps = json!([{ "do": "request_big", "slot": "a", "bytes": 500_000 }]);
    let (ended, host) = guest.act(&steps, FakeHost::new(Reply::Echo));
    assert_eq!(host.requests[0].args.len(), 500_002);
    let output = returned(&ended);
    assert_eq!(output["notes"][0]["body"].as_str().map(str::len), Some(500_000));
}

fn deep(guest: &Guest) {
    let steps = json!([{ "do": "request_deep", "slot": "a", "depth": 60 }]);
    let (ended, host) = guest.act(&steps, FakeHost::new(Reply::Echo));
    let text: String = host.requests[0].args.split_whitespace().collect();
    assert_eq!(text, format!("{}null{}", "[".repeat(60), "]".repeat(60)));
    returned(&ended);
}

fn numbers(guest: &Guest) {
    let value = json!([
        9_007_199_254_740_991_i64,
        -9_007_199_254_740_991_i64,
        0,
        -1,
        1.5,
        -0.1,
        1e-7,
        1e21,
        123_456.789
    ]);
    let step = json!({ "do": "request", "slot": "a", "args": value });
    same_numbers(&guest.note(&step, Reply::Echo)["body"], &value);
    let steps = json!([{ "do": "return", "output": value }]);
    let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Echo));
    same_numbers(&returned(&ended), &value);
}

/// Equal by value: 1e21 may be written in many ways, but a whole number stays one.
#[track_caller]
fn same_numbers(left: &Value, right: &Value) {
    let (left, right) = (left.as_array().unwrap(), right.as_array().unwrap());
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        match right.as_i64() {
            Some(whole) => assert_eq!(left.as_i64(), Some(whole), "{left}"),
            None => assert_eq!(left.as_f64(), right.as_f64()),
        }
    }
}

fn time(guest: &Guest) {
    let steps = json!([{ "do": "now" }, { "do": "request", "slot": "a" }, { "do": "now" }]);
    let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Echo));
    let notes = returned(&ended)["notes"].clone();
    assert_eq!(notes[0], json!(1_700_000_000_000_u64));
    assert_eq!(notes[2], json!(1_700_000_000_001_u64));
}

fn randomness(guest: &Guest) {
    let steps = json!([{ "do": "random", "count": 300 }, { "do": "random", "count": 0 }]);
    let random = |seed| {
        let (ended, _) = guest.act(&steps, FakeHost::new(Reply::Echo).seeded(seed));
        returned(&ended)["notes"].clone()
    };
    assert_eq!(random(0), random(0));
    assert_ne!(random(0), random(1));
    assert_eq!((random(0)[0].as_array().map(Vec::len), &random(0)[1]), (Some(300), &json!([])));
}

fn native(guest: &Guest) {
    let steps = json!([{ "do": "native" }, { "do": "request", "slot": "a" }, { "do": "native" }]);
    let native = |seed| {
        let host = FakeHost::new(Reply::Echo)
            .seeded(seed)
            .at(1_700_000_000_000 + 60_000 * u64::from(seed));
        returned(&guest.act(&steps, host).0)["notes"].clone()
    };
    let found = native(0);
    println!("{}: {found}", guest.language.word());
    assert_eq!(found, native(0), "started again, it finds others");
    let has_none = found[0] == json!({});
    assert!(has_none || found != native(7), "every run finds the same: {found}");
}

fn logs(guest: &Guest) {
    let levels = ["debug", "info", "warn", "error"];
    let steps =
        levels.map(|level| json!({ "do": "log", "level": level, "message": format!("ü {level}") }));
    let (ended, host) = guest.act(&json!(steps), FakeHost::new(Reply::Echo));
    returned(&ended);
    let expected = [
        (LogLevel::Debug, "ü debug".to_owned()),
        (LogLevel::Info, "ü info".to_owned()),
        (LogLevel::Warn, "ü warn".to_owned()),
        (LogLevel::Error, "ü error".to_owned()),
    ];
    assert_eq!(host.log, expected);
}

fn print(guest: &Guest) {
    let steps = json!([{ "do": "print", "message": "prïnted 🦀" }, { "do": "log", "level": "info", "message": "after" }]);
    let (ended, host) = guest.act(&steps, FakeHost::new(Reply::Echo));
    returned(&ended);
    let printed = (LogLevel::Info, "prïnted 🦀".to_owned());
    assert_eq!(host.log, [printed, (LogLevel::Info, "after".to_owned())]);
}

fn context(guest: &Guest) {
    let note = guest.note(&json!({ "do": "context" }), Reply::Echo);
    assert_eq!(note, json!({ "run": "run_1", "node": "conformance", "visit": 2, "attempt": 1 }));
}

fn state(guest: &Guest) {
    let nodes = json!({ "refund": { "id": "re_1", "ß": [1, null] } });
    let steps = json!([{ "do": "nodes" }, { "do": "now", "until_attempt": 1 }, { "do": "now", "until_visit": 2 },
                       { "do": "now", "from_visit": 3 }, { "do": "nodes", "from_visit": 2, "until_attempt": 2 }]);
    let input = json!({ "input": { "steps": [{ "do": "now" }], "nodes": { "conformance": steps } }, "nodes": nodes });
    let (ended, _) = guest.run(&input.to_string(), FakeHost::new(Reply::Echo));
    assert_eq!(returned(&ended), json!({ "notes": [nodes, nodes] }));
}

/// Builds a node of these files; `None` where the language's tools are missing.
fn built_of(language: Language, files: &[(&str, &str)]) -> Option<Component> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let bytes = language_node(language, dir.path())?;
    Some(sandbox().load(&bytes).unwrap_or_else(|error| panic!("{error}")))
}

const UNSAYABLE: &str = r#"
import { effects, NotJson } from "twice-node";

class Point { x = 1; gone = undefined; twice() { return 2; } }
const kept = { a: [1, { b: undefined, c: new Date(0) }], d: new Point(), "x/y": null };
const bad = {
  "/a/0": { a: [() => 1] },
  "/a/1/b": { a: [0, { b: Symbol("s") }] },
  "/u/1": { u: [null, undefined] },
  "/m": { kept, m: new Map([["k", 1]]) },
  "/s/0/t": { s: [{ t: new Set([1]) }] },
  "/x~1y/n": { "x/y": { n: NaN } },
  "/big": { big: 1n },
};
export default function node({ input }) {
  if (input === "output") return { a: [kept, () => 1] };
  const body = effects.request("a", kept).body;
  const said = {};
  for (const [place, args] of Object.entries(bad)) {
    try {
      effects.request("a", args);
      said[place] = "requested";
    } catch (error) {
      said[place] = error instanceof NotJson ? error.message : String(error);
    }
  }
  return { body, said };
}
"#;

#[test]
fn javascript_says_where_a_value_is_no_json() {
    let Some(node) = built_of(Language::JavaScript, &[("main.js", UNSAYABLE)]) else { return };
    let input = json!({ "input": null, "nodes": {} }).to_string();
    let (ended, host) = call(&node, &input, limits(), FakeHost::new(Reply::Echo));
    let output = returned(&ended);
    let kept =
        json!({ "a": [1, { "c": "1970-01-01T00:00:00.000Z" }], "d": { "x": 1 }, "x/y": null });
    assert_eq!(output["body"], kept);
    assert_eq!(host.requests.len(), 1, "{output:#}");
    for (place, what) in [
        ("/a/0", "a function"),
        ("/a/1/b", "a symbol"),
        ("/u/1", "undefined in an array"),
        ("/m", "a Map"),
        ("/s/0/t", "a Set"),
        ("/x~1y/n", "NaN"),
        ("/big", "a bigint"),
    ] {
        let words = format!("the arguments of `a` are no JSON: {place}: {what} cannot be written");
        assert_eq!(output["said"][place], words);
    }
    let input = json!({ "input": "output", "nodes": {} }).to_string();
    let (ended, _) = call(&node, &input, limits(), FakeHost::new(Reply::Echo));
    let words = "the output is no JSON: /a/1: a function cannot be written";
    assert_eq!(ended, Ended::Fatal(words.to_owned()));
}

/// A Go program of this body, with the SDK where `node new` would write it.
fn go_program(imports: &str, body: &str) -> Option<Result<Component, String>> {
    let dir = tempfile::tempdir().unwrap();
    let node = dir.path().join("nodes/n");
    let manifest = "module example.com/n\n\ngo 1.24\n\nrequire twice.dev/node v0.0.0\n\nreplace twice.dev/node => ../../sdk/go\n";
    std::fs::create_dir_all(&node).unwrap();
    std::fs::write(node.join("go.mod"), manifest).unwrap();
    let source = format!("package main\n\nimport (\n{imports}\n)\n\n{body}\n");
    std::fs::write(node.join("main.go"), source).unwrap();
    match twice_toolchain::build(&node, &mut |line| println!("{line}")) {
        Ok(built) => Some(sandbox().load(&built.component).map_err(|error| error.to_string())),
        Err(twice_toolchain::BuildError::NoTool { .. }) if std::env::var_os("CI").is_none() => None,
        Err(error) => Some(Err(error.to_string())),
    }
}

#[test]
fn go_without_a_node_says_what_is_missing() {
    let Some(node) = go_program(
        "\"twice.dev/node\"",
        "func f(node.State[any]) (any, error) { return 1, nil }\n\nfunc main() { node.Run(f) }",
    ) else {
        return;
    };
    let (ended, _) = call(&node.unwrap(), &plan(&json!([])), limits(), FakeHost::new(Reply::Echo));
    let Ended::Fatal(message) = ended else { panic!("{ended:?}") };
    assert!(message.contains("Call it in an init function"), "{message}");
    let without = go_program("\"fmt\"", "func main() { fmt.Println() }").expect("Go is here");
    let error = without.map(|node| node.inspection()).unwrap_err();
    assert!(error.contains("does its source use the SDK of its language?"), "{error}");
}

/// It links nearly all of the network, and cuts its data into as many segments as its linker ever makes.
#[test]
fn a_large_go_node_is_within_the_limits() {
    let body = "func f(node.State[any]) (any, error) {\n\t_, err := http.Get(\"http://127.0.0.1/\")\n\treturn err.Error(), nil\n}\n\nfunc init() { node.Run(f) }\n\nfunc main() {}";
    let Some(node) = go_program("\"net/http\"\n\"twice.dev/node\"", body) else { return };
    let node = node.unwrap_or_else(|error| panic!("{error}"));
    let limits = CallLimits { memory_bytes: 256 << 20, ..limits() };
    let (ended, _) = call(&node, &plan(&json!([])), limits, FakeHost::new(Reply::Echo));
    let text = returned(&ended);
    assert!(text.as_str().is_some_and(|text| text.contains("127.0.0.1")), "{text}");
}
