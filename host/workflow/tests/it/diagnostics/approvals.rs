//! What a person has to approve.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{flow, flow_with, refund};

#[must_use]
pub(super) fn approvals() -> Vec<BTreeSet<Code>> {
    let undone = |approve: &str| {
        format!(
            "compensate = {{ tool = 'payments.refund', args = {{ order_id = '/args/order_id', amount_cents = '/args/amount_cents' }}, allow = 'true', approve = {approve} }}"
        )
    };
    let each = |allow: &str| {
        let slot = refund(
            "pay",
            "for_each = '/input/orders'\ncompensate = { tool = 'payments.refund', args = { order_id = '/args/order_id', amount_cents = '/args/amount_cents' }, allow = 'true' }",
        );
        slot.replace("'/input/id'", "'/id'")
            .replace("allow = 'true'\nfor", &format!("allow = '{allow}'\nfor"))
    };
    vec![
        // A condition, and none; of an effect, and of its undoing.
        flow(
            &[
                (
                    "a",
                    &refund(
                        "pay",
                        "approve = { when = 'args.amount_cents > 100', by = 'finance', expires = '24h' }",
                    ),
                ),
                ("b", &refund("last", &undone("{ by = 'finance', expires = '1h' }"))),
            ],
            expect![[r#"
                workflows/flow.toml:18:1: warning[TW2125]: the effect of slot `pay` of `a` cannot be undone when a later node fails
                  why: the other effects of the run are undone then, and this one stays
                  fix: add `compensate`, or let the node come after what can fail"#]],
        ),
        flow(
            &[("a", &refund("pay", "approve = { expires = '24h' }"))],
            expect![[r#"
            workflows/flow.toml:24:11: error[TW2003]: `approve` does not state `by`
              why: there is no default that would be right for everyone
              fix: add it, for example `by = "finance"`"#]],
        ),
        flow(
            &[("a", &refund("pay", "approve = { by = 'finance' }"))],
            expect![[r#"
            workflows/flow.toml:24:11: error[TW2003]: `approve` does not state `expires`
              why: there is no default that would be right for everyone
              fix: add it, for example `expires = "24h"`"#]],
        ),
        flow(
            &[("a", &refund("pay", "approve = 'finance'"))],
            expect![[r#"
            workflows/flow.toml:24:11: error[TW2004]: `approve` is a string, not a table
              why: a value is never converted silently: what was meant could be something else
              fix: write a table"#]],
        ),
        flow(
            &[(
                "a",
                &refund("pay", "approve = { by = 'the boss', expires = 'never', at = 'once' }"),
            )],
            expect![[r#"
                workflows/flow.toml:24:18: error[TW2005]: `the boss` cannot be the name of whoever is asked
                  why: names become part of keys, pointers and file names, so they are kept plain
                  fix: use 1 to 63 lower-case letters, digits, `-` or `_`, starting with a letter
                workflows/flow.toml:24:40: error[TW2005]: `expires` is `never`, which is not a duration
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a whole number and a unit: `500ms`, `10s`, `5m`, `24h`, `30d`
                workflows/flow.toml:24:49: error[TW2002]: `approve` has no key `at`
                  why: a key that nothing reads would look like a promise and be none
                  fix: remove it; `approve` knows: `by`, `expires`, `when`"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "approve = { when = 'amount > 5', by = 'finance', expires = '24h' }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:20: error[TW2109]: `approve.when`: the expression names `amount`, which does not exist; there are `args`, `state`, `object`
                  why: an expression that cannot be evaluated would demand an approval of every request
                  fix: write a CEL expression over `args`, `object` and `state`, for example `args.amount_cents > 10000`"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "approve = { when = 'args.amont > 5 || state.inputs.id == \"\"', by = 'finance', expires = '24h' }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:20: error[TW2106]: `approve.when` names `args.amont`, and the args schema has no `amont`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which demands the approval
                  fix: use one of: `amount_cents`, `order_id`, `reason`
                workflows/flow.toml:24:20: error[TW2106]: `approve.when` names `state.inputs.id`, and `state` has no `inputs`
                  why: the expression could never be decided, which demands the approval
                  fix: did you mean `input`?"#]],
        ),
        flow(
            &[(
                "a",
                &refund("pay", "approve = { when = '1 > 2', by = 'finance', expires = '24h' }"),
            )],
            expect![[r#"
                workflows/flow.toml:24:20: warning[TW2114]: `approve.when` demands no approval of any request, whatever its args are
                  why: it looks like a condition and is none
                  fix: name what it depends on, or write `approve.when = "false"` if that is meant"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    &undone("{ when = 'args.nothing > 2', by = 'finance', expires = '24h' }"),
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:154: error[TW2106]: `approve.when` names `args.nothing`, and the args schema has no `nothing`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which demands the approval
                  fix: use one of: `amount_cents`, `order_id`, `reason`"#]],
        ),
        flow(
            &[(
                "a",
                &refund("pay", "approve = { when = '1 + 1', by = 'finance', expires = '24h' }"),
            )],
            expect![[r#"
                workflows/flow.toml:24:20: error[TW2109]: `approve.when` gives a value of type int, not true or false
                  why: an expression that cannot be evaluated would demand an approval of every request
                  fix: compare it: `args.amount_cents > 10000`"#]],
        ),
        flow_with(
            "timeout = '1h'\n",
            &[("a", &refund("pay", "approve = { by = 'finance', expires = '2h' }"))],
            expect![[r#"
                workflows/flow.toml:25:39: warning[TW2111]: whoever is asked has 2h, and a run of the workflow may take 1h, waiting included
                  why: the run would be over before they have to answer
                  fix: raise the workflow's `timeout`, or shorten `expires`"#]],
        ),
        // Which element it is about, or whatever it is, as the author says.
        flow(
            &[
                ("a", &each("args.amount_cents > 5")),
                ("b", &each("true")),
                ("c", &each("args.order_id == object")),
            ],
            expect![[r#"
                workflows/flow.toml:23:9: warning[TW2129]: the slot is for each element of an array, and `allow` does not look at `object`
                  why: a node may send the args of one element as those of another, and do the same thing twice under two identities
                  fix: compare them, for example `args.order_id == object && …`
                workflows/flow.toml:32:8: warning[TW2112]: slot `pay` of node `a` asks for the same on the same object with the same intent
                  why: they are two effects nevertheless, and both happen: node and slot are a part of the identity
                  fix: give them different intents if both are meant to happen, or `scope = "object"` if only one is
                workflows/flow.toml:45:8: warning[TW2112]: slot `pay` of node `b` asks for the same on the same object with the same intent
                  why: they are two effects nevertheless, and both happen: node and slot are a part of the identity
                  fix: give them different intents if both are meant to happen, or `scope = "object"` if only one is"#]],
        ),
        // The step would be over before they answer; its undoing has no such limit.
        flow(
            &[(
                "a",
                &format!(
                    "timeout = '1h'\n{}",
                    refund(
                        "pay",
                        &format!(
                            "approve = {{ by = 'finance', expires = '2h' }}\n{}",
                            undone("{ by = 'finance', expires = '2h' }")
                        )
                    )
                ),
            )],
            expect![[r#"
                workflows/flow.toml:25:39: warning[TW2111]: whoever is asked has 2h, and a visit of the node may take 1h, waiting included
                  why: the step would fail before they have to answer
                  fix: raise the node's `timeout`, or shorten `expires`"#]],
        ),
    ]
}
