//! Joins, conditions and routes.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{flow, flow_with, refund};

#[must_use]
pub(super) fn joins_conditions_and_routes() -> Vec<BTreeSet<Code>> {
    vec![
        flow(
            &[
                ("a", "routes = ['yes', 'no']"),
                ("y", "after = ['a']\nwhen = \"routes.a == 'yes'\""),
                ("end", "after = ['a', 'y']"),
            ],
            expect![[""]],
        ),
        flow(
            &[
                ("a", "routes = ['yes', 'no']"),
                ("y", "after = ['a']\nwhen = \"routes.a == 'yes'\""),
                ("n", "after = ['a']\nwhen = \"routes.a in ['no']\""),
                ("end", "after = ['y', 'n']\nwhen = 'has(state.nodes.y) || true'"),
            ],
            expect![[r#"
                workflows/flow.toml:36:8: warning[TW2114]: `when` holds, whatever happened before
                  why: it looks like a condition and is none
                  fix: write `true`, or remove it"#]],
        ),
        flow(
            &[
                ("a", "routes = ['yes', 'no']"),
                ("y", "after = ['a']\nwhen = \"routes.a == 'yse'\""),
            ],
            expect![[r#"
                workflows/flow.toml:18:11: warning[TW2117]: no `when` takes the route `yes` of `a`
                  why: each node behind has a condition on the route, so a run that takes this one ends there
                  fix: add a node with `when = "routes.a == 'yes'"`, or remove the word if nothing depends on it
                workflows/flow.toml:18:18: warning[TW2117]: no `when` takes the route `no` of `a`
                  why: each node behind has a condition on the route, so a run that takes this one ends there
                  fix: add a node with `when = "routes.a == 'no'"`, or remove the word if nothing depends on it
                workflows/flow.toml:24:8: error[TW2116]: `when`: `a` has no route `yse`
                  why: the comparison would come out the same whatever the node says
                  fix: did you mean `yes`?"#]],
        ),
        flow(
            &[("a", ""), ("y", "after = ['a']\nwhen = \"routes.a == 'yes'\"")],
            expect![[r#"
            workflows/flow.toml:24:8: error[TW2116]: `when`: the node `a` has no `routes`
              why: a route is one of the words that a node declares; without them it has none
              fix: add `routes = ["…"]` to `a`, and compare: `routes.a == "…"`"#]],
        ),
        flow(
            &[
                ("a", "routes = ['yes', 'yes', 'n o']"),
                ("y", "after = ['a']\nwhen = \"routes.a != 'yes'\""),
            ],
            expect![[r#"
                workflows/flow.toml:18:18: error[TW2008]: `yes` is named twice in `routes`
                  why: a node says by one of these words where the run goes on
                  fix: remove one
                workflows/flow.toml:18:25: error[TW2005]: `routes` is `n o`, which is no plain word
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write words of letters, digits, `-` and `_`"#]],
        ),
        flow(
            &[
                ("a", ""),
                ("b", "when = 'now() > 3'"),
                ("c", "when = 'false'"),
                ("d", "after = ['c']"),
                ("e", "when = '1 == 1'"),
                ("f", "when = 'args.x == 1'"),
            ],
            expect![[r#"
                workflows/flow.toml:23:8: error[TW2109]: `when`: the expression calls `now`, which does not exist
                  why: a condition that cannot be decided fails the run
                  fix: write a CEL expression over `state`, `receipts` and `routes`, for example `routes.review == 'accept'`
                workflows/flow.toml:28:8: error[TW2103]: the node `c` can never start: its `when` never holds
                  why: what never runs is no part of the workflow, and looks like one
                  fix: name what it depends on, or remove the node
                workflows/flow.toml:30:8: error[TW2103]: the node `d` can never start: it comes after `c` alone
                  why: a node is skipped when all before it are
                  fix: let it come after a node that can run, or remove it
                workflows/flow.toml:38:8: warning[TW2114]: `when` holds, whatever happened before
                  why: it looks like a condition and is none
                  fix: write `true`, or remove it
                workflows/flow.toml:43:8: error[TW2109]: `when`: the expression names `args`, which does not exist; there are `state`, `receipts`, `routes`
                  why: a condition that cannot be decided fails the run
                  fix: write a CEL expression over `state`, `receipts` and `routes`, for example `routes.review == 'accept'`"#]],
        ),
        flow(
            &[
                ("a", ""),
                (
                    "b",
                    "after = ['a']\nwhen = 'state.nodes.a.ok && state.nodes.b.ok && state.nodes.c.ok && state.nodes.x.ok && state.other && state.input.idd'",
                ),
                ("c", ""),
            ],
            expect![[r#"
                workflows/flow.toml:24:8: error[TW2101]: `when`: `b` is not done before `b` starts
                  why: a node's output is there once it is done; until then the expression cannot be decided, which fails the run
                  fix: name a node that is done before, or the input
                workflows/flow.toml:24:8: error[TW2101]: `when`: `c` is not done before `b` starts
                  why: a node's output is there once it is done; until then the expression cannot be decided, which fails the run
                  fix: add `c` to `after`
                workflows/flow.toml:24:8: error[TW2101]: `when`: there is no node `x`
                  why: a node's output is there once it is done; until then the expression cannot be decided, which fails the run
                  fix: did you mean `a`?
                workflows/flow.toml:24:8: error[TW2106]: `when` names `state.input.idd`, and the input schema has no `idd`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which fails the run
                  fix: did you mean `id`?
                workflows/flow.toml:24:8: error[TW2106]: `when` names `state.other`, and `state` has no `other`
                  why: the expression could never be decided, which fails the run
                  fix: use one of: `input`, `nodes`"#]],
        ),
        flow(
            &[
                ("a", "when = '1 + 1'"),
                ("b", "when = '\"yes\"'"),
                ("c", "after = ['a']\nwhen = 'state.nodes.d.ok'"),
                ("d", "after = ['c']"),
            ],
            expect![[r#"
                workflows/flow.toml:18:8: error[TW2109]: `when` gives a value of type int, not true or false
                  why: a condition that is neither true nor false fails the run
                  fix: compare it: `state.input.count > 1`, `routes.review == 'accept'`
                workflows/flow.toml:23:8: error[TW2109]: `when` gives a value of type string, not true or false
                  why: a condition that is neither true nor false fails the run
                  fix: compare it: `state.input.count > 1`, `routes.review == 'accept'`
                workflows/flow.toml:29:8: error[TW2101]: `when`: `d` is not done before `c` starts
                  why: a node's output is there once it is done; until then the expression cannot be decided, which fails the run
                  fix: name the input or a node before: `d` comes after this one, so that neither could start if it waited for `d`"#]],
        ),
        flow(
            &[
                ("a", &refund("pay", "").replace("/input/id", "/receipts/a/pay/external_id")),
                (
                    "b",
                    &format!(
                        "after = ['a']\n{}",
                        refund("pay", "").replace("/input/id", "/receipts/c/pay/external_id")
                    ),
                ),
                ("c", &format!("after = ['b']\n{}", refund("pay", ""))),
                ("d", &refund("pay", "").replace("/input/id", "/receipts/c/pay/external_id")),
            ],
            expect![[r#"
                workflows/flow.toml:21:10: error[TW2101]: `a` takes its own receipt for a source
                  why: what an effect is about is settled before it is asked for, and there is no receipt of the node until then
                  fix: take the value from the input or a node before it, or let a node behind it make the effect
                workflows/flow.toml:34:10: error[TW2101]: `c` is not done before `b` starts
                  why: a receipt exists only once the node that gets it is done
                  fix: name the input or a node before: `c` comes after this one, so that neither could start if it waited for `c`
                workflows/flow.toml:57:8: warning[TW2112]: slot `pay` of node `b` asks for the same on the same object with the same intent
                  why: they are two effects nevertheless, and both happen: node and slot are a part of the identity
                  fix: give them different intents if both are meant to happen, or `scope = "object"` if only one is
                workflows/flow.toml:59:10: error[TW2101]: `c` is not done before `d` starts
                  why: a receipt exists only once the node that gets it is done
                  fix: add `c` to `after`"#]],
        ),
        flow(
            &[
                ("a", "when = 'state.nodes.z == 1'"),
                ("b", "after = ['a']"),
                ("c", "after = ['b']\nwhen = 'state.nodes.a.ok'"),
                ("d", "after = ['b']\nwhen = 'has(state.nodes.a) && state.nodes.a.ok'"),
            ],
            expect![[r#"
                workflows/flow.toml:18:8: error[TW2101]: `when`: there is no node `z`
                  why: a node's output is there once it is done; until then the expression cannot be decided, which fails the run
                  fix: did you mean `a`?"#]],
        ),
        flow(
            &[
                ("x", "when = 'state.input.id != \"\"'"),
                ("y", "when = 'state.input.id == \"\"'"),
                ("b", "after = ['x', 'y']\nwhen = 'state.nodes.x.ok'"),
                ("c", "after = ['x', 'y']\njoin = 'any'\nwhen = 'state.nodes.x.ok'"),
            ],
            expect![[r#"
                workflows/flow.toml:29:8: warning[TW2123]: `when` names `x`, which may have been skipped
                  why: a node that is skipped has no output, receipt or route; the expression cannot be decided then, which fails the run
                  fix: ask first: `has(state.nodes.x) && …`, or `!has(state.nodes.x) || …`
                workflows/flow.toml:36:8: warning[TW2123]: `when` names `x`, which may still be at work
                  why: `join = "any"` waits for one of the paths before alone; the expression cannot be decided before `x` is done, which fails the run
                  fix: ask first: `has(state.nodes.x) && …`, or wait for all"#]],
        ),
        flow(
            &[("a", ""), ("b", "after = ['a']\njoin = 'any'"), ("c", "join = 'some'")],
            expect![[r#"
                workflows/flow.toml:24:8: warning[TW2118]: `join` of a node that comes after 1 node(s)
                  why: there is nothing to join: the number of paths that lead here is less than two
                  fix: name the other nodes in `after`, or remove it
                workflows/flow.toml:29:8: error[TW2005]: `join` is `some`, which means nothing
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one of: `all`, `any`"#]],
        ),
        flow(
            &[
                ("a", &refund("pay", "")),
                ("m", &refund("many", "repeat = 2")),
                (
                    "b",
                    "after = ['a', 'm']\nwhen = 'receipts.a.pay.result.status == \"ok\" && receipts.a.pay.status == 1 && receipts.a.pya.result.x == 1 && receipts.m.many.external_id == \"\" && receipts.a.pay.result.stauts == 1'",
                ),
            ],
            expect![[r#"
                workflows/flow.toml:43:8: error[TW2101]: `when`: slot `many` of `m` may have many receipts
                  why: nothing says which of them is meant
                  fix: name a slot that is used once, of a node without `for_each`
                workflows/flow.toml:43:8: error[TW2101]: `when`: the node `a` has no slot `pya`
                  why: a receipt is found by the node and the slot that got it
                  fix: did you mean `pay`?
                workflows/flow.toml:43:8: error[TW2106]: `when`: a receipt has no `status`
                  why: here, a receipt is seen as `{ external_id, result }`
                  fix: use one of: `external_id`, `result`
                workflows/flow.toml:43:8: warning[TW2115]: `when` names `receipts.a.pay.result.stauts`, and the response schema does not mention `stauts`
                  why: the schema is open, so it may be there; where it is not, the expression cannot be decided, which fails the run
                  fix: add `stauts` to `properties` if it is meant; else: did you mean `status`?"#]],
        ),
        flow(
            &[
                ("a", &format!("when = 'state.input.id == \"x\"'\n{}", refund("pay", ""))),
                (
                    "b",
                    &format!(
                        "after = ['a']\n{}",
                        refund("again", "").replace("/input/id", "/receipts/a/pay/external_id")
                    ),
                ),
            ],
            expect![[""]],
        ),
        flow(
            &[
                ("a", ""),
                ("x", &refund("pay", "")),
                (
                    "b",
                    &format!(
                        "after = ['a', 'x']\njoin = 'any'\n{}",
                        refund("again", "").replace("/input/id", "/receipts/x/pay/external_id")
                    ),
                ),
            ],
            expect![[r#"
                workflows/flow.toml:40:10: error[TW2104]: `x` may still be at work when `b` starts
                  why: with `join = "any"` the receipt may come, or change, in the midst of the step
                  fix: wait for all, or take the value from a node before the join"#]],
        ),
        flow(
            &[
                ("x", &format!("when = 'state.input.id == \"\"'\n{}", refund("pay", ""))),
                ("y", ""),
                (
                    "b",
                    &format!(
                        "after = ['x', 'y']\n{}",
                        refund("again", "").replace("/input/id", "/receipts/x/pay/external_id")
                    ),
                ),
                (
                    "c",
                    &format!(
                        "after = ['x', 'y']\nwhen = 'has(receipts.x.pay)'\n{}",
                        refund("anew", "").replace("/input/id", "/receipts/x/pay/external_id")
                    ),
                ),
            ],
            expect![[r#"
                workflows/flow.toml:40:10: warning[TW2123]: `x` may not have run when `b` starts
                  why: without it there is no receipt, and the request fails; another branch, or the first round of a loop, comes without it
                  fix: take the value from a node that always runs before, or let `when` ask for the receipt"#]],
        ),
        flow_with(
            "timeout = 'never'\nsaga = { undo = 'backwards' }\n",
            &[("a", "ends = 1\ntimeout = '0s'")],
            expect![[r#"
                workflows/flow.toml:3:11: error[TW2005]: `timeout` is `never`, which is not a duration
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a whole number and a unit: `500ms`, `10s`, `5m`, `24h`, `30d`
                workflows/flow.toml:4:17: error[TW2005]: `undo` is `backwards`, which means nothing
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one of: `sequential`, `branches`
                workflows/flow.toml:20:8: error[TW2004]: `ends` is an integer, not `true` or `false`
                  why: a value is never converted silently: what was meant could be something else
                  fix: write `true` or `false`
                workflows/flow.toml:21:11: error[TW2005]: `timeout` is 0ms: out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write 1ms to 3650d"#]],
        ),
    ]
}
