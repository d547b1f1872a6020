//! Policies: what they permit, and how they refuse.

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use twice_workflow::policy::Policy;

/// One line per expression: what becomes of it with these args.
#[track_caller]
fn check(rows: &[(&str, Value)], expect: Expect) {
    let state = json!({
        "input": {
            "paid_cents": 4000,
            "orders": [{ "id": "a" }, { "id": "b" }],
            "big": 9_007_199_254_740_991_u64,
        },
        "nodes": {},
    });
    let mut lines = String::new();
    for (expression, args) in rows {
        let answer = match Policy::compile(expression) {
            Err(error) => format!("refused: {error}"),
            Ok(policy) => match policy.permits(args, &state, Some("order-42")) {
                Ok(permitted) => permitted.to_string(),
                Err(error) => format!("denied: {error}"),
            },
        };
        let shown: String = expression.chars().take(60).collect();
        lines.push_str(&format!("{shown}\n  {answer}\n"));
    }
    expect.assert_eq(&lines);
}

#[test]
fn permits_and_denies() {
    let within = "args.amount_cents <= state.input.paid_cents";
    check(
        &[
            (within, json!({ "amount_cents": 4000 })),
            (within, json!({ "amount_cents": 4001 })),
            (within, json!({ "amount_cents": 3999.5 })),
            (within, json!({ "amount_cents": -1 })),
            ("args.n == state.input.big", json!({ "n": 9_007_199_254_740_991_u64 })),
            ("args.n == 18446744073709551615u", json!({ "n": u64::MAX })),
            ("state.input.orders.exists(o, o.id == args.id)", json!({ "id": "b" })),
            ("state.input.orders.all(o, o.id == args.id)", json!({ "id": "b" })),
            ("has(args.reason) && args.reason.startsWith('dam')", json!({})),
            ("args.to in ['x', 'y'] && size(args.to) == 1", json!({ "to": "y" })),
            ("args.to.matches('^[a-z]+$')", json!({ "to": "abc" })),
            ("args.a.b[0].c == null", json!({ "a": { "b": [{ "c": null }] } })),
            ("args.order_id == object", json!({ "order_id": "order-42" })),
            ("args.order_id == object", json!({ "order_id": "order-43" })),
        ],
        expect![[r#"
            args.amount_cents <= state.input.paid_cents
              true
            args.amount_cents <= state.input.paid_cents
              false
            args.amount_cents <= state.input.paid_cents
              true
            args.amount_cents <= state.input.paid_cents
              true
            args.n == state.input.big
              true
            args.n == 18446744073709551615u
              true
            state.input.orders.exists(o, o.id == args.id)
              true
            state.input.orders.all(o, o.id == args.id)
              false
            has(args.reason) && args.reason.startsWith('dam')
              false
            args.to in ['x', 'y'] && size(args.to) == 1
              true
            args.to.matches('^[a-z]+$')
              true
            args.a.b[0].c == null
              true
            args.order_id == object
              true
            args.order_id == object
              false
        "#]],
    );
}

#[test]
fn denies_what_it_cannot_decide() {
    let many: Vec<String> = vec!["x".repeat(1_000); 300];
    check(
        &[
            ("args.amount_cents > 1", json!({})),
            ("args.amount_cents > 1", json!({ "amount_cents": "many" })),
            ("args.amount_cents > 1", json!({ "amount_cents": null })),
            ("args.amount_cents", json!({ "amount_cents": 1 })),
            ("args.n / 0 == 1", json!({ "n": 1 })),
            ("args.n * 4611686018427387904 > 1", json!({ "n": 4 })),
            ("args.n[5] == 1", json!({ "n": [] })),
            ("args.t.matches(args.p)", json!({ "t": "private text", "p": "(" })),
            ("args.n.all(x, x == 'y')", json!({ "n": many })),
        ],
        expect![[r#"
            args.amount_cents > 1
              denied: the expression could not be evaluated: there is no `amount_cents`
            args.amount_cents > 1
              denied: the expression could not be evaluated: found no matching overload for '_>_' applied to '(string, int)'
            args.amount_cents > 1
              denied: the expression could not be evaluated: found no matching overload for '_>_' applied to '(null_type, int)'
            args.amount_cents
              denied: the expression gave a value of type int, not true or false
            args.n / 0 == 1
              denied: the expression could not be evaluated: it divides by zero
            args.n * 4611686018427387904 > 1
              denied: the expression could not be evaluated: the result of `mul` does not fit a 64-bit integer
            args.n[5] == 1
              denied: the expression could not be evaluated: an index is out of bounds
            args.t.matches(args.p)
              denied: the expression could not be evaluated: `matches` failed
            args.n.all(x, x == 'y')
              denied: its data are too large for an expression with a loop (at most 262144 bytes)
        "#]],
    );
}

#[test]
fn refuses_what_could_never_be_decided() {
    let long = format!("{} true", "true && ".repeat(300));
    let deep = format!("{}1{} == 1", "(".repeat(500), ")".repeat(500));
    let sources = [
        "",
        "args.amount_cents <",
        "amount_cents <= 5",
        "args.all(x, x == y)",
        "now() > 5",
        "args.a.lowerAscii() == 'x'",
        "timestamp.now() == 1",
        "args.Foo{a: 1} == 1",
        "args.x.all(a, args.y.all(b, a == b))",
        &long,
        &deep,
    ];
    check(
        &sources.map(|source| (source, json!({}))),
        expect![[r#"

              refused: the expression is not CEL: 1:1: Syntax error: mismatched input '<EOF>'
            args.amount_cents <
              refused: the expression is not CEL: 1:20: Syntax error: mismatched input '<EOF>'
            amount_cents <= 5
              refused: the expression names `amount_cents`, which does not exist; there are `args`, `state`, `object`
            args.all(x, x == y)
              refused: the expression names `y`, which does not exist; there are `args`, `state`, `object`
            now() > 5
              refused: the expression calls `now`, which does not exist
            args.a.lowerAscii() == 'x'
              refused: the expression calls `lowerAscii`, which does not exist
            timestamp.now() == 1
              refused: the expression calls `now`, which does not exist
            args.Foo{a: 1} == 1
              refused: the expression names `args.Foo`, which does not exist; there are `args`, `state`, `object`
            args.x.all(a, args.y.all(b, a == b))
              refused: the expression has a loop within a loop, the cost of which has no useful bound
            true && true && true && true && true && true && true && true
              refused: the expression is too long (at most 2048 characters)
            ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((
              refused: the expression is not CEL: 1:97: it is nested too deeply
        "#]],
    );
}

/// One line per expression: what it comes to whatever the request is, and what it names.
#[test]
fn tells_what_it_depends_on() {
    let sources = [
        "true",
        "!(1 < 2)",
        "1",
        "args.a == 1 || true",
        "args.a == 1 && !true",
        "args.a == 1 || false",
        "!has(args.a)",
        "state.input['order id'][0].x > size(args) && args.f.g.startsWith(state['input'].id)",
        "state.input.orders.exists(args, args.id == 1)",
        "state.input.orders[args.n].id == 1",
    ];
    let lines = sources.map(|source| {
        let policy = Policy::compile(source).unwrap();
        let members: Vec<String> =
            policy.expression().members().iter().map(|path| path.join("/")).collect();
        format!("{source}\n  {:?} {}\n", policy.constant(), members.join(" "))
    });
    expect![[r#"
        true
          Some(Permits) 
        !(1 < 2)
          Some(Denies) 
        1
          Some(Denies) 
        args.a == 1 || true
          Some(Permits) args/a
        args.a == 1 && !true
          Some(Denies) args/a
        args.a == 1 || false
          None args/a
        !has(args.a)
          None args/a
        state.input['order id'][0].x > size(args) && args.f.g.startsWith(state['input'].id)
          None state/input/order id/0/x args/f/g state/input/id
        state.input.orders.exists(args, args.id == 1)
          None state/input/orders
        state.input.orders[args.n].id == 1
          None state/input/orders args/n
    "#]]
    .assert_eq(&lines.concat());
    // What is called constant is so, also where the rest cannot be evaluated.
    for (source, expected) in [("args.a == 1 || true", true), ("args.a == 1 && !true", false)] {
        let policy = Policy::compile(source).unwrap();
        assert_eq!(policy.permits(&json!({}), &json!({}), None), Ok(expected), "{source}");
    }
}

#[test]
fn is_shared_between_threads() {
    let policy = Policy::compile("args.n == 1").unwrap();
    let answers = std::thread::scope(|scope| {
        [1, 2]
            .map(|n| {
                let policy = &policy;
                scope.spawn(move || policy.permits(&json!({ "n": n }), &json!({}), None))
            })
            .map(|thread| thread.join().unwrap())
    });
    assert_eq!(answers, [Ok(true), Ok(false)]);
}
