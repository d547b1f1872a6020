//! What the command says when something is wrong: each text says what, where, and what to do, and is compared whole.

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use twice_tests::project::{Project, Provider, Ran};

use super::shop::{REFUND, SCRIPTED, TWICE, history, refund_step, script, shop, start};

const RUN: &str = "run-1";

/// The text without what differs from one time to the next, or from one compiler to the next.
fn steady(project: &Project, text: &str) -> String {
    let text = text.replace(&project.root().display().to_string(), "<project>");
    let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("  in "));
    let text: String = lines.collect();
    let words = |c: char| !(c.is_ascii_alphanumeric() || "_-:.".contains(c));
    let mut out = String::new();
    for piece in text.split_inclusive(words) {
        let word = piece.trim_end_matches(words);
        let mark = match word {
            _ if word.starts_with("eff_") && word.len() > 12 => "<effect>",
            _ if word.starts_with("lib.rs:") => "lib.rs:<place>",
            _ if word.starts_with("20") && word.ends_with('Z') && word.contains('T') => "<time>",
            _ => word,
        };
        out.push_str(mark);
        out.push_str(&piece[word.len()..]);
    }
    out
}

#[track_caller]
fn check_text(project: &Project, ran: &Ran, code: i32, expect: &Expect) {
    assert_eq!(ran.code, Some(code), "{ran}");
    // Results on standard output, problems on standard error; here they are read together.
    expect.assert_eq(&steady(project, &format!("{}{}", ran.stdout, ran.stderr)));
}

#[track_caller]
fn check(project: &Project, args: &[&str], code: i32, expect: Expect) {
    check_text(project, &project.twice(args), code, &expect);
}

/// Plays these steps and compares what is said of it; hands back the run.
#[track_caller]
fn check_steps(steps: &Value, code: i32, expect: Expect) -> (Project, Provider) {
    let provider = Provider::start();
    let project = shop(&provider);
    let ran = project.twice(&start(SCRIPTED, &script("order-1", steps), RUN));
    check_text(&project, &ran, code, &expect);
    (project, provider)
}

#[test]
fn what_is_not_there() {
    let provider = Provider::start();
    let empty = Project::empty(TWICE);
    check(
        &empty,
        &["runs", "list"],
        1,
        expect![[r#"
        error: no twice.toml here or in any folder above
        fix: go to a project, name one with --project DIR, or make one with `twice init`
    "#]],
    );
    let project = Project::init(TWICE).at(&provider);
    check(
        &project,
        &["run", REFUND, "--input", "nothing.json"],
        1,
        expect![[r#"
        error: cannot read the input file nothing.json
          caused by: No such file or directory (os error 2)
        fix: give a file that exists, or the JSON itself, as in --input '{"order_id": "order-42"}'
    "#]],
    );
    check(
        &project,
        &["run", "refunds", "--input", "input.json"],
        1,
        expect![[r#"
        error: there is no workflow `refunds`
        fix: the project has: damaged-item-refund
    "#]],
    );
    check(
        &project,
        &["run", REFUND, "--input", "input.json"],
        1,
        expect![[r#"
        error: node `refund` runs component `refund`, which is not registered
        fix: build and register it with `twice node build nodes/refund`, or register a file with `twice node add refund FILE.wasm`
    "#]],
    );
    check(
        &project,
        &["runs", "show", "run-9"],
        1,
        expect![[r#"
        error: there is no run `run-9` in this ledger
        fix: `twice runs list` shows them
    "#]],
    );
    check(
        &project,
        &["runs", "resume", "run-9"],
        1,
        expect![[r#"
        error: there is no run `run-9` in this ledger
        fix: `twice runs list` shows them
    "#]],
    );
    check(
        &project,
        &["runs", "release", "run-9", "--reason", "x"],
        1,
        expect![[r#"
        error: there is no run `run-9` in this ledger
        fix: `twice runs list` shows them
    "#]],
    );
    check(
        &project,
        &["effects", "show", "eff_aaaaaaaa"],
        1,
        expect![[r#"
        error: there is no effect `eff_aaaaaaaa` in this ledger
        fix: `twice effects list` shows them
    "#]],
    );
    check(
        &project,
        &["node", "add", "refund", "refund.wasm"],
        1,
        expect![[r#"
        error: cannot read refund.wasm
          caused by: No such file or directory (os error 2)
        fix: give a built .wasm file; `twice node build DIR` builds a node and registers it
    "#]],
    );
    check(
        &project,
        &["node", "build", "nodes/refund"],
        1,
        expect![[r#"
        error: nodes/refund is not a folder
        fix: name a node's folder, e.g. nodes/refund; `twice node new NAME` writes one
    "#]],
    );
    check(
        &project,
        &["node", "inspect", "refund"],
        1,
        expect![[r#"
        error: refund is neither a file nor a registered component
        fix: `twice node list` shows what is registered
    "#]],
    );
    check(
        &project,
        &["--project", "elsewhere", "check"],
        1,
        expect![[r#"
        error: elsewhere holds no twice.toml
        fix: name the project's folder, or make a project there with `twice init`
    "#]],
    );
}

#[test]
fn what_is_wrong_in_a_file() {
    let project = Project::init(TWICE);
    let workflow = "workflows/damaged-item-refund.toml";
    project.edit(workflow, "intent = ", "intend = ");
    check(
        &project,
        &["check"],
        1,
        expect![[r#"
        error: the project has 2 problem(s):
       
               workflows/damaged-item-refund.toml:11:1: error[TW2003]: the slot `refund` does not state `intent`
                 why: two effects on one object are told apart by what they are for; it is a part of the identity
                 fix: add it, for example `intent = "full-damaged-item"`
       
               workflows/damaged-item-refund.toml:15:1: error[TW2002]: an effect (`[[node.effect]]`) has no key `intend`
                 why: a key that nothing reads would look like a promise and be none
                 fix: did you mean `intent`?
    "#]],
    );
    project.edit(workflow, "intend = ", "intent = ");
    project.edit(workflow, "\"/input/order_id\"", "\"/nodes/refund/order_id\"");
    check(
        &project,
        &["check"],
        1,
        expect![[r#"
        error: the project has 1 problem(s):
       
               workflows/damaged-item-refund.toml:14:10: error[TW2104]: `/nodes/refund/order_id` is a node's output, which is no trusted source
                 why: a node's output is guest output: a guest that returns another value after a restart would make a second effect
                 fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model
    "#]],
    );
    project.write(workflow, "workflow = \"damaged\nversion = 1\n");
    check(
        &project,
        &["check"],
        1,
        expect![[r#"
        error: the project has 1 problem(s):
       
               workflows/damaged-item-refund.toml:1:20: error[TW2001]: this is not TOML: invalid basic string, expected `"`
                 why: nothing in a file can be trusted while a part of it cannot be read
                 fix: correct it as the TOML specification says
    "#]],
    );
}

#[test]
fn what_is_wrong_with_an_input() {
    let provider = Provider::start();
    let project = shop(&provider);
    let text = r#"{"order_id":"order 42","amount_cents":"12","paid_cents":5000}"#;
    check(
        &project,
        &["run", REFUND, "--input", text],
        1,
        expect![[r#"
        error: the input does not fit workflow `damaged-item-refund`; nothing was started
                 - input: "customer_email" is a required property
                 - input/amount_cents: the value is not of type "integer"
                 - input/order_id: the value does not match "^[A-Za-z0-9_-]+$"
        fix: correct the input, or the schema that `input` of the workflow names
    "#]],
    );
    check(
        &project,
        &["run", REFUND, "--input", r#"{"a":1,"a":2}"#],
        1,
        expect![[r#"
        error: the input in --input is not strict JSON
          caused by: duplicate member `a` at line 1, column 8
    "#]],
    );
    assert_eq!(project.json(&["runs", "list"]), json!([]), "something was started");
}

#[test]
fn a_component_that_imports_what_is_not_offered() {
    let project = Project::init(TWICE);
    let http =
        r#"(component (import "wasi:http/outgoing-handler@0.2.0" (instance (export "x" (func)))))"#;
    project.write("http.wasm", wat::parse_str(http).unwrap());
    check(
        &project,
        &["node", "add", "http", "http.wasm"],
        1,
        expect![[r#"
        error: the component imports what is not offered:
                 - `wasi:http/outgoing-handler@0.2.0`: a node never has a network; request an effect through `twice:node/effects`, which the host performs
    "#]],
    );
    project.write("text.wasm", "no component at all");
    check(
        &project,
        &["node", "add", "text", "text.wasm"],
        1,
        expect![[r#"
        error: not a WebAssembly component: it does not start with the WebAssembly header `\0asm`; give the built .wasm file
    "#]],
    );
    assert_eq!(project.json(&["node", "list"]), json!([]), "something was registered");
}

#[test]
fn a_node_that_traps() {
    check_steps(
        &json!([{ "do": "trap" }]),
        3,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
              node `scripted` trapped: the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)
            waiting: a step is started again after its backoff
              scripted: started, attempt 2
              node `scripted` trapped: the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)
            run run-1 failed: node `scripted` trapped: the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)
        "#]],
    );
    check_steps(
        &json!([{ "do": "panic", "message": "no such order" }]),
        3,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
                scripted error: panicked at conformance/src/lib.rs:<place>
            no such order
              node `scripted` trapped: the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)
            the node's last error message: panicked at conformance/src/lib.rs:<place>
            no such order; started again at <time>
            waiting: a step is started again after its backoff
              scripted: started, attempt 2
                scripted error: panicked at conformance/src/lib.rs:<place>
            no such order
              node `scripted` trapped: the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)
            the node's last error message: panicked at conformance/src/lib.rs:<place>
            no such order
            run run-1 failed: node `scripted` trapped: the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)
            the node's last error message: panicked at conformance/src/lib.rs:<place>
            no such order
        "#]],
    );
}

#[test]
fn a_node_that_gives_up() {
    check_steps(
        &json!([{ "do": "fatal", "message": "no such order" }]),
        3,
        expect![[r#"
        run run-1 of scripted started
          scripted: started
          node `scripted` gave up: no such order
        run run-1 failed: node `scripted` gave up: no such order
    "#]],
    );
    check_steps(
        &json!([{ "do": "retryable", "message": "not yet" }]),
        3,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
              node `scripted` asked for a later start: not yet; started again at <time>
            waiting: a step is started again after its backoff
              scripted: started, attempt 2
              node `scripted` asked for a later start: not yet
            run run-1 failed: node `scripted` asked for a later start: not yet
        "#]],
    );
}

#[test]
fn a_node_that_uses_too_much() {
    check_steps(
        &json!([{ "do": "loop" }]),
        3,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
              node `scripted` reached its time limit: the node did not return within its limit of 4000 ms, waiting for effects included (`limits.time` of the node in the workflow); started again at <time>
            waiting: a step is started again after its backoff
              scripted: started, attempt 2
              node `scripted` reached its time limit: the node did not return within its limit of 4000 ms, waiting for effects included (`limits.time` of the node in the workflow)
            run run-1 failed: node `scripted` reached its time limit: the node did not return within its limit of 4000 ms, waiting for effects included (`limits.time` of the node in the workflow)
        "#]],
    );
    check_steps(
        &json!([{ "do": "grow", "bytes": 64 << 20 }]),
        3,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
              node `scripted` reached its memory limit: the node needs more memory than its limit of 16384 KiB: it asked for 66752 KiB in all, was refused, and stopped (the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)); raise `limits.memory` of the node in the workflow
            waiting: a step is started again after its backoff
              scripted: started, attempt 2
              node `scripted` reached its memory limit: the node needs more memory than its limit of 16384 KiB: it asked for 66752 KiB in all, was refused, and stopped (the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)); raise `limits.memory` of the node in the workflow
            run run-1 failed: node `scripted` reached its memory limit: the node needs more memory than its limit of 16384 KiB: it asked for 66752 KiB in all, was refused, and stopped (the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)); raise `limits.memory` of the node in the workflow
        "#]],
    );
    check_steps(
        &json!([{ "do": "recurse" }]),
        3,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
              node `scripted` reached its stack limit: the node used memory outside of its own, deep in a recursion: the stack that its language keeps in memory is most likely used up; is the recursion without end, or too deep?
            waiting: a step is started again after its backoff
              scripted: started, attempt 2
              node `scripted` reached its stack limit: the node used memory outside of its own, deep in a recursion: the stack that its language keeps in memory is most likely used up; is the recursion without end, or too deep?
            run run-1 failed: node `scripted` reached its stack limit: the node used memory outside of its own, deep in a recursion: the stack that its language keeps in memory is most likely used up; is the recursion without end, or too deep?
        "#]],
    );
}

#[test]
fn a_node_that_returns_no_json() {
    check_steps(
        &json!([{ "do": "bad_output" }]),
        3,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
              node `scripted` returned something that is not strict JSON: not JSON: expected a value, found the end at line 1, column 9; started again at <time>
            waiting: a step is started again after its backoff
              scripted: started, attempt 2
              node `scripted` returned something that is not strict JSON: not JSON: expected a value, found the end at line 1, column 9
            run run-1 failed: node `scripted` returned something that is not strict JSON: not JSON: expected a value, found the end at line 1, column 9
        "#]],
    );
}

#[test]
fn a_slot_that_was_not_granted() {
    let steps = json!([{ "do": "request", "slot": "payout", "args": {} }]);
    let (project, provider) = check_steps(
        &steps,
        0,
        expect![[r#"
        run run-1 of scripted started
          scripted: started
          scripted: done
        run run-1 completed: {"notes":[{"denied":"grant","message":"node `scripted` may not request `payout`: the workflow grants it mail, refund; add a [[node.effect]] with slot = \"payout\" to grant it"}]}
    "#]],
    );
    assert_eq!(provider.counters().effects, 0);
    let shown = project.run(RUN);
    let refused = history(&shown).iter().find(|entry| entry["kind"] == "request_refused");
    assert_eq!(refused.unwrap()["body"]["data"]["policy"], "grant");
    assert!(project.effects(RUN).is_empty());
}

#[test]
fn args_that_do_not_fit() {
    let steps = json!([{ "do": "request", "slot": "refund", "args": { "order_id": "order-1" } }]);
    let (_, provider) = check_steps(
        &steps,
        0,
        expect![[r#"
        run run-1 of scripted started
          scripted: started
          scripted: done
        run run-1 completed: {"notes":[{"denied":"args","message":"the args do not fit `payments.refund`: args: \"amount_cents\" is a required property"}]}
    "#]],
    );
    assert_eq!(provider.counters().effects, 0);
}

/// One slot, other args: the run stops, nothing more is sent, both requests are shown.
#[track_caller]
fn check_conflict(project: &Project, provider: &Provider) {
    assert_eq!(provider.requests("refund"), 1);
    let held = project.json(&["effects", "list", "--conflict"]);
    assert_eq!(held.as_array().unwrap().len(), 1, "{held:#}");
    let id = held[0]["effect_id"].as_str().unwrap();
    let shown = project.json(&["effects", "show", id]);
    let conflict = &shown["held"]["conflict"];
    assert_eq!(conflict["recorded"]["args"]["amount_cents"], 1200);
    assert_eq!(conflict["requested"]["args"]["amount_cents"], 1300);
    assert_ne!(conflict["recorded"]["request_hash"], conflict["requested"]["request_hash"]);
    let text = project.ok(&["effects", "show", id]);
    assert!(text.contains("1200") && text.contains("1300"), "{text}");
    // It stays so, however often it is resumed.
    let before = project.run(RUN);
    let again = project.twice(&["runs", "resume", RUN]);
    assert_eq!(again.code, Some(4), "{again}");
    assert_eq!(project.run(RUN), before);
    assert_eq!(provider.requests("refund"), 1);
    // A person's decision lets it go on.
    project.ok(&["effects", "conflict", id, "--keep", "--reason", "the first amount is right"]);
    project.ok(&["runs", "resume", RUN]);
    let refunds = &provider.counters().operations["refund"];
    assert_eq!((refunds.effects, refunds.duplicates), (1, 0));
}

#[test]
fn one_slot_twice_with_other_args() {
    let steps = json!([refund_step("order-1", 1200), refund_step("order-1", 1300)]);
    let (project, provider) = check_steps(
        &steps,
        4,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
                PROPOSED refund/run-1/order-1/full-damaged-item/node=scripted
                AUTHORIZED refund/run-1/order-1/full-damaged-item/node=scripted
                REQUESTED refund/run-1/order-1/full-damaged-item/node=scripted
                CONFIRMED refund/run-1/order-1/full-damaged-item/node=scripted
                CONFIRMED refund/run-1/order-1/full-damaged-item/node=scripted (conflicted)
            run run-1 needs a person: effect <effect> was requested again with other args; `twice effects show <effect>` shows both requests. Decide with one of: `twice effects conflict <effect> --keep --reason 'WHY'` (the node gets the recorded receipt), `twice effects conflict <effect> --fail --reason 'WHY'` (the node gets an error), `twice effects conflict <effect> --renew --reason 'WHY'` (the other request becomes a new action)
        "#]],
    );
    check_conflict(&project, &provider);
}

#[test]
fn one_slot_twice_at_once_with_other_args() {
    let steps = json!([{ "do": "request_all", "requests": [
        { "slot": "refund", "args": { "order_id": "order-1", "amount_cents": 1200 } },
        { "slot": "refund", "args": { "order_id": "order-1", "amount_cents": 1300 } },
    ] }]);
    let (project, provider) = check_steps(
        &steps,
        4,
        expect![[r#"
            run run-1 of scripted started
              scripted: started
                PROPOSED refund/run-1/order-1/full-damaged-item/node=scripted
                AUTHORIZED refund/run-1/order-1/full-damaged-item/node=scripted
                REQUESTED refund/run-1/order-1/full-damaged-item/node=scripted
                CONFIRMED refund/run-1/order-1/full-damaged-item/node=scripted
                CONFIRMED refund/run-1/order-1/full-damaged-item/node=scripted (conflicted)
            run run-1 needs a person: effect <effect> was requested again with other args; `twice effects show <effect>` shows both requests. Decide with one of: `twice effects conflict <effect> --keep --reason 'WHY'` (the node gets the recorded receipt), `twice effects conflict <effect> --fail --reason 'WHY'` (the node gets an error), `twice effects conflict <effect> --renew --reason 'WHY'` (the other request becomes a new action)
        "#]],
    );
    check_conflict(&project, &provider);
}

#[test]
fn one_slot_twice_with_the_same_args() {
    let provider = Provider::start();
    let project = shop(&provider);
    let same = json!({ "slot": "refund", "args": { "order_id": "order-1", "amount_cents": 1200 } });
    let steps = json!([
        refund_step("order-1", 1200),
        refund_step("order-1", 1200),
        { "do": "request_all", "requests": [same.clone(), same] },
    ]);
    let ran = project.twice(&start(SCRIPTED, &script("order-1", &steps), RUN));
    assert_eq!(ran.code, Some(0), "{ran}");
    let notes = project.run(RUN)["run"]["output"]["notes"].clone();
    assert_eq!(notes[0], notes[1]);
    assert_eq!(notes[2], json!([notes[0], notes[0]]));
    assert_eq!(provider.requests("refund"), 1);
}

#[test]
fn a_policy_that_says_no() {
    let provider = Provider::start();
    let project = shop(&provider);
    let allow = "intent = \"full-damaged-item\"\nallow = \"args.amount_cents <= 1000\"";
    let permitted = "intent = \"full-damaged-item\"\nallow = \"true\"";
    project.edit("workflows/scripted.toml", permitted, allow);
    let steps = json!([refund_step("order-1", 1200)]);
    let ran = project.twice(&start(SCRIPTED, &script("order-1", &steps), RUN));
    check_text(
        &project,
        &ran,
        3,
        &expect![[r#"
            run run-1 of scripted started
              scripted: started
                PROPOSED refund/run-1/order-1/full-damaged-item/node=scripted
                FAILED refund/run-1/order-1/full-damaged-item/node=scripted
              node `scripted` gave up: `refund` is denied by args.amount_cents <= 1000: slot `refund` does not allow these args: `args.amount_cents <= 1000` is false
            run run-1 failed: node `scripted` gave up: `refund` is denied by args.amount_cents <= 1000: slot `refund` does not allow these args: `args.amount_cents <= 1000` is false
        "#]],
    );
    assert_eq!(provider.requests("refund"), 0);
    assert_eq!(project.effects(RUN)[0]["state"], "FAILED");
}
