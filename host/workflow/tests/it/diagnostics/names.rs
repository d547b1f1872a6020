//! The graph and the names in it.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{W, check};

#[must_use]
pub(super) fn the_graph_and_its_names() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(W, r#"after = ["refund"]"#, r#"after = ["refunds"]"#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:22:10: error[TW2101]: there is no node `refunds`
              why: the node would wait for ever
              fix: did you mean `refund`?"#]],
        ),
        check(
            &[(W, r#"after = ["refund"]"#, r#"after = ["refund", "refund"]"#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:22:20: error[TW2008]: `refund` is named twice in `after`
              why: one of them may have been meant to be another node
              fix: remove one"#]],
        ),
        check(
            &[(W, r#"after = ["refund"]"#, r#"after = ["notify"]"#)],
            expect![[r#"
                workflows/damaged-item-refund.toml:20:8: error[TW2102]: nodes wait for each other: `notify` after `notify`
                  why: none of them could ever start
                  fix: remove one of these `after`; if the run is to go round, state it on the last node of the round: `loop = { to = "first", when = "…", max_visits = 5 }`"#]],
        ),
        check(
            &[
                (W, r#"component = "refund""#, "component = \"refund\"\nafter = [\"notify\"]"),
                (
                    W,
                    "",
                    "\n[[node]]\nname = \"last\"\ncomponent = \"last\"\nafter = [\"notify\"]\n",
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:6:8: error[TW2102]: nodes wait for each other: `refund` after `notify` after `refund`
                  why: none of them could ever start
                  fix: remove one of these `after`; if the run is to go round, state it on the last node of the round: `loop = { to = "first", when = "…", max_visits = 5 }`
                workflows/damaged-item-refund.toml:34:8: error[TW2103]: the node `last` can never start
                  why: it waits for a node that waits for itself
                  fix: resolve the cycle"#]],
        ),
        check(
            &[(W, r#"name = "notify""#, r#"name = "refund""#)],
            expect![[r#"
                workflows/damaged-item-refund.toml:20:8: error[TW2008]: there is another node `refund`
                  why: outputs and receipts are found by the node's name
                  fix: rename one of them"#]],
        ),
        check(
            &[(
                W,
                r#"allow = "args.to == state.input.customer_email""#,
                "[[node.effect]]\nslot = \"notify\"\ntool = \"mail.send\"\nobject = \"/input/order_id\"\nintent = \"again\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:25:1: warning[TW2113]: the slot `notify` has no `allow`
                  why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
                  fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`
                workflows/damaged-item-refund.toml:30:1: warning[TW2113]: the slot `notify` has no `allow`
                  why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
                  fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`
                workflows/damaged-item-refund.toml:31:8: error[TW2008]: there is another slot `notify`
                  why: the slot is a part of the identity of its effects
                  fix: rename one of them"#]],
        ),
        check(
            &[(W, r#"tool = "mail.send""#, r#"tool = "mial.send""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:27:8: error[TW2101]: there is no tool `mial`
              why: a slot grants an operation of a tool in `tools/`
              fix: did you mean `mail`?"#]],
        ),
        check(
            &[(W, r#"tool = "mail.send""#, r#"tool = "mail.sent""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:27:8: error[TW2101]: the tool `mail` has no operation `sent`
              why: a slot grants an operation of a tool in `tools/`
              fix: did you mean `send`?"#]],
        ),
        check(
            &[(W, r#"tool = "mail.send""#, r#"tool = "mail""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:27:8: error[TW2005]: `tool` is `mail`, which names no operation
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write the tool and its operation: `payments.refund`"#]],
        ),
        check(
            &[(W, r#"time = "60s", effects = 10"#, r#"time = "5s""#)],
            expect![[r#"
            workflows/damaged-item-refund.toml:12:1: warning[TW2111]: the node has 5s in all, and one attempt of this operation may take 10s
              why: when the node's time is up amid a request, the outcome is unknown and must be reconciled
              fix: raise the node's `limits.time`, or shorten the operation's `timeout`"#]],
        ),
        check(
            &[
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"full-damaged-item\"",
                    "scope = \"object\"\nobject = \"/input/order_id\"\nintent = \"x\"",
                ),
                (
                    W,
                    "tool = \"mail.send\"\nobject = \"/input/order_id\"\nintent = \"refund-notice\"\nallow = \"args.to == state.input.customer_email\"",
                    "scope = \"object\"\ntool = \"payments.refund\"\nobject = \"/input/order_id\"\nintent = \"x\"",
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:26:1: warning[TW2113]: the slot `notify` has no `allow`
                  why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
                  fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`
                workflows/damaged-item-refund.toml:27:8: warning[TW2110]: this is the same effect as slot `refund` of node `refund`
                  why: with `scope = "object"`, tool, operation, object and intent are the whole identity: the second request adopts the receipt of the first
                  fix: give them different intents if both are meant to happen"#]],
        ),
        check(
            &[(
                W,
                "tool = \"mail.send\"\nobject = \"/input/order_id\"\nintent = \"refund-notice\"\nallow = \"args.to == state.input.customer_email\"",
                "tool = \"payments.refund\"\nobject = \"/input/order_id\"\nintent = \"full-damaged-item\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:25:1: warning[TW2113]: the slot `notify` has no `allow`
                  why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
                  fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`
                workflows/damaged-item-refund.toml:26:8: warning[TW2112]: slot `refund` of node `refund` asks for the same on the same object with the same intent
                  why: they are two effects nevertheless, and both happen: node and slot are a part of the identity
                  fix: give them different intents if both are meant to happen, or `scope = "object"` if only one is"#]],
        ),
    ]
}
