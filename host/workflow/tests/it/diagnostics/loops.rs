//! Loops.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{flow, refund};

#[must_use]
pub(super) fn loops() -> Vec<BTreeSet<Code>> {
    vec![
        flow(
            &[
                ("a", &refund("pay", "").replace("/input/id", "/receipts/b/again/external_id")),
                (
                    "b",
                    &format!(
                        "after = ['a']\nloop = {{ to = 'a', when = 'state.nodes.b.again', max_visits = 3 }}\n{}{}",
                        refund("again", ""),
                        refund("own", "").replace("/input/id", "/receipts/b/again/external_id")
                    ),
                ),
            ],
            expect![[r#"
                workflows/flow.toml:21:10: warning[TW2123]: `b` may not have run when `a` starts
                  why: without it there is no receipt, and the request fails; another branch, or the first round of a loop, comes without it
                  fix: take the value from a node that always runs before, or let `when` ask for the receipt
                workflows/flow.toml:42:10: error[TW2104]: `b` takes its own receipt for a source
                  why: in the midst of the step the receipt of the round before gives way to that of this one
                  fix: take the value from a node before it, or let a node behind it make the effect"#]],
        ),
        flow(
            &[
                ("a", ""),
                (
                    "b",
                    "after = ['a']\nloop = { to = 'a', when = 'state.nodes.b.again', max_visits = 3, exhausted = 'go_on' }",
                ),
                ("c", "after = ['b']"),
            ],
            expect![[""]],
        ),
        flow(
            &[("a", ""), ("b", "after = ['a']\nloop = { to = 'a', when = 'state.nodes.b.again' }")],
            expect![[r#"
                workflows/flow.toml:24:8: error[TW2120]: the loop does not state `max_visits`
                  why: its condition rests on what components return, so nothing else makes sure that it ends
                  fix: add it, for example `max_visits = 5`"#]],
        ),
        flow(
            &[
                ("a", ""),
                ("b", "after = ['a']\nloop = { to = 'a', max_visits = 0, exhausted = 'panic' }"),
            ],
            expect![[r#"
                workflows/flow.toml:24:8: error[TW2003]: `loop` does not state `when`
                  why: a loop without a condition would always go on
                  fix: add it, for example `when = "routes.review == 'again'"`
                workflows/flow.toml:24:33: error[TW2005]: `max_visits` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 1 to 10000
                workflows/flow.toml:24:48: error[TW2005]: `exhausted` is `panic`, which means nothing
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one of: `fail`, `go_on`"#]],
        ),
        flow(
            &[
                ("a", ""),
                (
                    "b",
                    "after = ['a']\nloop = { to = 'x', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
            ],
            expect![[r#"
                workflows/flow.toml:24:15: error[TW2101]: there is no node `x`
                  why: a round of the loop would begin nowhere
                  fix: did you mean `a`?"#]],
        ),
        flow(
            &[
                ("a", ""),
                (
                    "b",
                    "after = ['a']\nloop = { to = 'c', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
                ("c", ""),
            ],
            expect![[r#"
                workflows/flow.toml:24:15: error[TW2119]: the loop of `b` begins at `c`, from which no path leads to `b`
                  why: a round begins at `to` and ends at the node that closes it
                  fix: name `b` itself or a node that comes before it"#]],
        ),
        flow(
            &[
                ("a", ""),
                ("o", ""),
                ("m", "after = ['a', 'o']"),
                (
                    "b",
                    "after = ['m']\nloop = { to = 'a', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
            ],
            expect![[r#"
                workflows/flow.toml:34:15: error[TW2119]: the loop from `a` to `b` is entered at `m` too, which comes after `o`
                  why: a second round would visit it without what came from there, or with what is left of it
                  fix: let `a` come after `o`, whose outputs `m` sees all the same"#]],
        ),
        flow(
            &[
                ("a", ""),
                ("m", "after = ['a']"),
                (
                    "b",
                    "after = ['m']\nloop = { to = 'a', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
                ("x", "after = ['m']"),
            ],
            expect![[r#"
                workflows/flow.toml:29:15: error[TW2119]: the loop from `a` to `b` is left at `m` too, by `x`
                  why: it would go on from a round that is not the last
                  fix: let `x` come after `b`, or before it"#]],
        ),
        flow(
            &[
                ("a", ""),
                (
                    "b",
                    "after = ['a']\nloop = { to = 'a', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
                (
                    "c",
                    "after = ['b']\nloop = { to = 'b', when = 'state.nodes.b.again', max_visits = 2 }",
                ),
            ],
            expect![[r#"
                workflows/flow.toml:30:8: error[TW2119]: the loops that `b` and `c` close overlap, and neither is within the other
                  why: a round of one would begin in the midst of a round of the other
                  fix: move where one of them begins or ends"#]],
        ),
        flow(
            &[
                ("a", ""),
                (
                    "b",
                    "after = ['a']\nloop = { to = 'a', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
                ("c", "after = ['b']\nloop = { to = 'a', when = 'true', max_visits = 2 }"),
            ],
            expect![[r#"
                workflows/flow.toml:30:27: warning[TW2114]: `when` holds, whatever happened before
                  why: it looks like a condition and is none
                  fix: write what it depends on"#]],
        ),
        flow(
            &[
                ("a", ""),
                (
                    "b",
                    "after = ['a']\nends = true\nloop = { to = 'a', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
            ],
            expect![[r#"
                workflows/flow.toml:25:8: error[TW2209]: `b` ends the run and closes a loop
                  why: when it is done the run is over, and there is no other round
                  fix: let a node behind it end the run"#]],
        ),
        flow(
            &[
                ("a", "when = 'state.nodes.b.again'"),
                (
                    "b",
                    "after = ['a']\nloop = { to = 'a', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
            ],
            expect![[r#"
                workflows/flow.toml:18:8: warning[TW2123]: `when` names `b`, which has not been visited in the first round of the loop
                  why: the expression cannot be decided then, which fails the run
                  fix: ask first: `!has(state.nodes.b) || …`"#]],
        ),
        flow(
            &[
                ("a", "when = '!has(state.nodes.b) || state.nodes.b.again'"),
                (
                    "b",
                    "after = ['a']\nloop = { to = 'a', when = 'state.nodes.b.again', max_visits = 3 }",
                ),
            ],
            expect![[""]],
        ),
        flow(
            &[("b", "loop = { to = 'b', when = 'false', max_visits = 2 }\nmax_visits = 3")],
            expect![[r#"
                workflows/flow.toml:18:27: warning[TW2114]: `when` never holds, whatever happened before
                  why: it looks like a condition and is none
                  fix: write what it depends on
                workflows/flow.toml:19:1: error[TW2002]: a node (`[[node]]`) has no key `max_visits`
                  why: a key that nothing reads would look like a promise and be none
                  fix: remove it; a node (`[[node]]`) knows: `after`, `component`, `effect`, `element`, `ends`, `for_each`, `join`, `limits`, `loop`, `name`, `parallel`, `retry`, `routes`, `timeout`, `when`"#]],
        ),
    ]
}
