//! Compensations, pivots, locks and child workflows.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{M, W, check, flow, flow_text, flow_with, mail, refund};

#[must_use]
pub(super) fn compensations_pivots_and_locks() -> Vec<BTreeSet<Code>> {
    vec![
        flow_with(
            "saga = { undo = 'branches' }\ntimeout = '24h'\n",
            &[
                (
                    "a",
                    &refund(
                        "pay",
                        "compensate = { tool = 'payments.refund', args = { order_id = '/args/order_id', amount_cents = '/args/amount_cents' }, retry = { attempts = 9, max = '1h' } }",
                    ),
                ),
                ("b", &format!("after = ['a']\n{}", refund("last", "pivot = true\nlock = true"))),
            ],
            expect![[r#"
                workflows/flow.toml:40:8: error[TW2127]: the end of `/input/id` does not say what kind of object is locked
                  why: a lock is named by what kind of object it is on, so that two workflows that mean the same one meet
                  fix: state it: `lock = { name = "order" }`"#]],
        ),
        flow(
            &[("a", &refund("pay", "compensate = { tool = 'payments.refnud', args = {} }"))],
            expect![[r#"
                workflows/flow.toml:24:23: error[TW2101]: the tool `payments` has no operation `refnud`
                  why: a slot grants an operation of a tool in `tools/`
                  fix: did you mean `refund`?"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "compensate = { tool = 'payments.refund', approve = { by = 'finance' } }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:14: error[TW2003]: `compensate` does not state `args`
                  why: there is no default that would be right for everyone
                  fix: add it, for example `args = { payment_id = "/receipt/external_id" }`
                workflows/flow.toml:24:52: error[TW2003]: `approve` does not state `expires`
                  why: there is no default that would be right for everyone
                  fix: add it, for example `expires = "24h"`"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "compensate = { tool = 'payments.refund', args = { order_id = '/receipt/external_id', amount_cents = '/receipt/result/status' } }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:101: error[TW2126]: this is `string`, and the operation takes `integer`
                  why: the compensation would be refused when it is needed
                  fix: name another value, or correct the args schema of the operation"#]],
        ),
        check(
            &[
                (M, "schema = \"schemas/mail.json\"\n", ""),
                (
                    "workflows/flow.toml",
                    "",
                    &flow_text(
                        "flow",
                        "",
                        &[(
                            "a",
                            &mail(
                                "tell",
                                "compensate = { tool = 'mail.send', args = { to = '/receipt/result/to', subject = '/receipt/external_id', text = '/receipt/result/text?' } }",
                            ),
                        )],
                    ),
                ),
            ],
            expect![[r#"
                workflows/flow.toml:24:50: warning[TW2210]: nothing says that `/receipt/result/to` will be there: the operation states no schema of its answers
                  why: where it is missing, the compensation cannot be made, and the run stays stuck
                  fix: state one under `response` that requires `/to`, or write `/receipt/result/to?` to leave it out where it is missing"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "compensate = { tool = 'payments.refund', args = { order_id = 'order {/args/order_id}', amount = 3, reason = '/args/reason' } }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:49: error[TW2126]: the args lack `amount_cents`, which the operation requires
                  why: the compensation would be refused when it is needed
                  fix: add `amount_cents`, from `/receipt/external_id`, `/receipt/result/…`, `/args/…`, `/input/…`, or `/element/…` in a fan-out
                workflows/flow.toml:24:97: error[TW2106]: the args schema has no `amount`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: use one of: `amount_cents`, `order_id`, `reason`
                workflows/flow.toml:24:109: warning[TW2210]: the args schema does not require `/reason`
                  why: where it is missing, the compensation cannot be made, and the run stays stuck
                  fix: write `/args/reason?` to leave it out then, or add it to `required`"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "compensate = { tool = 'payments.refund', args = { order_id = '/receipt/external_id', amount_cents = '/input/cents' }, on_unknown = 'undo' }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:62: error[TW2126]: `/receipt/external_id` with `on_unknown = "undo"`
                  why: while the outcome is unknown there is no receipt
                  fix: use `/args/…`, `/input/…` or `/element/…` alone, or leave `on_unknown` at `hold`
                workflows/flow.toml:24:101: warning[TW2210]: the input schema does not require `/cents`
                  why: where it is missing, the compensation cannot be made, and the run stays stuck
                  fix: write `/input/cents?` to leave it out then, or add it to `required`"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "compensate = { tool = 'mail.send', on_unknown = 'undo', args = { to = '/input/idd', subject = '/nodes/a', text = '{secret:x}' } }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:14: error[TW2126]: `on_unknown = "undo"`, and `mail.send` honours no key
                  why: undoing what may not have happened must be safe to repeat
                  fix: declare the key of the operation, or leave `on_unknown` at `hold`
                workflows/flow.toml:24:114: error[TW2202]: `{secret:x}` in the args of a compensation
                  why: args are written down; a secret is filled in by the tool alone
                  fix: remove it; the tool's own request carries its secrets"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "compensate = { tool = 'mail.send', args = { to = '/input/idd', subject = '/nodes/a', text = '/element/id' } }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:24:50: error[TW2106]: the input schema has no `idd`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: did you mean `id`?
                workflows/flow.toml:24:74: error[TW2126]: `/nodes/a` leads nowhere
                  why: a compensation is made from what is recorded of its effect and of the run's input alone, so that every attempt is the same
                  fix: use `/receipt/external_id`, `/receipt/result/…`, `/args/…`, `/input/…`, or `/element/…` in a fan-out
                workflows/flow.toml:24:93: error[TW2126]: `/element/id` leads nowhere
                  why: a compensation is made from what is recorded of its effect and of the run's input alone, so that every attempt is the same
                  fix: use `/receipt/external_id`, `/receipt/result/…`, `/args/…`, `/input/…`, or `/element/…` in a fan-out"#]],
        ),
        flow(
            &[(
                "a",
                &refund(
                    "pay",
                    "scope = 'object'\ncompensate = { tool = 'payments.refund', args = { order_id = '/input/id', amount_cents = '/input/cents?' } }",
                ),
            )],
            expect![[r#"
                workflows/flow.toml:25:14: error[TW2126]: the slot `pay` has `scope = "object"` and `compensate`
                  why: the effect belongs to every run that asked for it; another run may rest on it
                  fix: remove one of them"#]],
        ),
        flow(
            &[
                ("a", &mail("note", "")),
                ("b", &format!("after = ['a']\n{}", refund("pay", "pivot = true"))),
                (
                    "c",
                    &format!(
                        "after = ['b']\n{}",
                        mail("note", "intent = 'late'").replace("intent = 'note'\n", "")
                    ),
                ),
                (
                    "d",
                    &format!(
                        "after = ['a']\n{}{}",
                        refund("again", "pivot = true"),
                        mail("side", "")
                    ),
                ),
            ],
            expect![[r#"
                workflows/flow.toml:18:1: warning[TW2125]: the effect of slot `note` of `a` cannot be undone when a later node fails
                  why: the other effects of the run are undone then, and this one stays
                  fix: add `compensate`, or let the node come after what can fail
                workflows/flow.toml:44:1: error[TW2124]: the slot `note` of `c` may be used after the pivot, and can be neither repeated nor undone
                  why: behind the point of no return a run can only go on; an effect of which nobody knows what became would leave it where it can go neither way
                  fix: let its operation honour a key, give it `compensate`, or let its node come before the pivot
                workflows/flow.toml:62:9: error[TW2124]: there is another pivot, in node `b`
                  why: a run has one point of no return
                  fix: keep one of them
                workflows/flow.toml:63:1: error[TW2124]: the slot `side` of `d` may be used after the pivot, and can be neither repeated nor undone
                  why: behind the point of no return a run can only go on; an effect of which nobody knows what became would leave it where it can go neither way
                  fix: let its operation honour a key, give it `compensate`, or let its node come before the pivot"#]],
        ),
        flow(
            &[(
                "a",
                &format!(
                    "for_each = '/input/orders'\nelement = '/id'\n{}",
                    refund("pay", "pivot = true")
                ),
            )],
            expect![[r#"
                workflows/flow.toml:26:9: error[TW2124]: the slot `pay` is a pivot, and may be used many times
                  why: some of its effects would lie before the point of no return, and some behind it
                  fix: take it out of the fan-out, or remove `pivot`"#]],
        ),
        flow(
            &[(
                "a",
                &format!(
                    "loop = {{ to = 'a', when = 'state.nodes.a.again', max_visits = 2 }}\n{}",
                    refund("pay", &format!("pivot = true\n{UNDO}"))
                ),
            )],
            expect![[r#"
                workflows/flow.toml:25:9: error[TW2124]: the slot `pay` is a pivot within a loop
                  why: another round would pass the point of no return again
                  fix: let its node come after the loop, or remove `pivot`
                workflows/flow.toml:25:9: error[TW2124]: the slot `pay` is a pivot, and has `compensate`
                  why: there is no way back behind a pivot, so nothing would ever undo it
                  fix: keep one of them"#]],
        ),
        flow(
            &[
                ("a", &refund("pay", UNDO)),
                ("b", &format!("after = ['a']\n{}", mail("note", ""))),
                ("c", "after = ['b']"),
            ],
            expect![[r#"
                workflows/flow.toml:31:1: warning[TW2125]: the effect of slot `note` of `b` cannot be undone when a later node fails
                  why: the other effects of the run are undone then, and this one stays
                  fix: add `compensate`, or let the node come after what can fail"#]],
        ),
        flow(
            &[
                ("a", &refund("pay", "lock = { expires = '24h', name = 'Order' }")),
                ("b", &refund("more", "lock = 3")),
                ("c", &refund("mine", "lock = true").replace("/input/id", "/input/ID")),
            ],
            expect![[r#"
                workflows/flow.toml:24:8: error[TW2127]: the end of `/input/id` does not say what kind of object is locked
                  why: a lock is named by what kind of object it is on, so that two workflows that mean the same one meet
                  fix: state it: `lock = { name = "order" }`
                workflows/flow.toml:24:34: error[TW2005]: `Order` cannot be the name of a lock
                  why: names become part of keys, pointers and file names, so they are kept plain
                  fix: use 1 to 63 lower-case letters, digits, `-` or `_`, starting with a letter
                workflows/flow.toml:36:8: error[TW2004]: `lock` is an integer, not `true`, or `{ expires = "24h", name = "order" }`
                  why: a value is never converted silently: what was meant could be something else
                  fix: write `true`, or `{ expires = "24h", name = "order" }`
                workflows/flow.toml:45:10: error[TW2106]: the input schema has no `ID`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: use one of: `cents`, `codes`, `id`, `names`, `orders`
                workflows/flow.toml:48:8: error[TW2127]: the end of `/input/ID` does not say what kind of object is locked
                  why: a lock is named by what kind of object it is on, so that two workflows that mean the same one meet
                  fix: state it: `lock = { name = "order" }`"#]],
        ),
        flow(
            &[("a", &refund("pay", "lock = true").replace("object = '/input/id'\n", ""))],
            expect![[r#"
                workflows/flow.toml:18:1: error[TW2105]: the slot `pay` has no `object`
                  why: only the object tells this effect from the same one on something else; reads alone need none
                  fix: add it, for example `object = "/input/order_id"`
                workflows/flow.toml:23:8: error[TW2127]: the slot `pay` has `lock` and no `object`
                  why: what is locked is the business object
                  fix: add `object`, or remove the lock"#]],
        ),
    ]
}

#[must_use]
pub(super) fn child_workflows() -> Vec<BTreeSet<Code>> {
    vec![
        flow(
            &[("a", &child("damaged-item-refund", "args.order_id == state.input.id"))],
            expect![[""]],
        ),
        flow(
            &[("a", &child("damaged-item-refunds", "true"))],
            expect![[r#"
            workflows/flow.toml:20:12: error[TW2101]: there is no workflow `damaged-item-refunds`
              why: a slot with `workflow` starts a run of a workflow in `workflows/`
              fix: did you mean `damaged-item-refund`?"#]],
        ),
        flow(
            &[("a", &child("damaged-item-refund", "args.order == state.input.id"))],
            expect![[r#"
                workflows/flow.toml:23:9: error[TW2106]: `allow` names `args.order`, and the args schema has no `order`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which denies the request
                  fix: use one of: `amount_cents`, `customer_email`, `order_id`, `paid_cents`, `reason`"#]],
        ),
        flow(
            &[("a", &format!("{}tool = 'mail.send'\n", child("damaged-item-refund", "true")))],
            expect![[r#"
                workflows/flow.toml:24:8: error[TW2209]: both `tool` and `workflow` are given
                  why: a slot is the right to ask for one thing: an operation, or a run of a workflow
                  fix: keep one of them"#]],
        ),
        flow(
            &[
                ("a", &child("damaged-item-refund", "true")),
                (
                    "b",
                    &format!(
                        "after = ['a']\n{}",
                        refund("pay", "").replace("/input/id", "/receipts/a/child/result/id")
                    ),
                ),
            ],
            expect![[r#"
                workflows/flow.toml:33:10: error[TW2104]: the result of a child workflow is no trusted source
                  why: it is what the nodes of the child returned: guest output
                  fix: take `/external_id`, which is the child's run, or a value from the input"#]],
        ),
        flow(
            &[("a", &child("flow", "true"))],
            expect![[r#"
            workflows/flow.toml:20:12: error[TW2128]: workflows start each other: `flow` starts `flow`
              why: a run of one would wait for a run of the other, without end
              fix: remove one of these slots"#]],
        ),
        check(
            &[
                ("workflows/one.toml", "", &flow_text("one", "", &[("a", &child("two", "true"))])),
                ("workflows/two.toml", "", &flow_text("two", "", &[("a", &child("one", "true"))])),
            ],
            expect![[r#"
                workflows/one.toml:20:12: error[TW2128]: workflows start each other: `one` starts `two` starts `one`
                  why: a run of one would wait for a run of the other, without end
                  fix: remove one of these slots"#]],
        ),
        check(
            &[
                ("tools/mail.toml", "tool = \"mail\"", "tool = \"workflow\""),
                (W, "mail.send", "workflow.send"),
            ],
            expect![[r#"
                tools/mail.toml:3:8: error[TW2005]: `tool` is `workflow`, which is the host's own tool: it starts child workflows
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write another name"#]],
        ),
    ]
}

/// A compensation that is sound.
const UNDO: &str = "compensate = { tool = 'payments.refund', args = { order_id = '/input/id', amount_cents = 5 } }";

/// A slot that starts a run of another workflow.
fn child(workflow: &str, allow: &str) -> String {
    format!(
        "[[node.effect]]\nslot = 'child'\nworkflow = '{workflow}'\nobject = '/input/id'\nintent = 'all'\nallow = '{allow}'\n"
    )
}
