//! Where business objects come from.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{P, W, check};

#[must_use]
pub(super) fn sources_of_identity() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/nodes/refund/order_id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/nodes/refund/order_id` is a node's output, which is no trusted source
                  why: a node's output is guest output: a guest that returns another value after a restart would make a second effect
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/args/order_id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/args/order_id` is what the guest sends, which is no trusted source
                  why: an identity that followed the args would change with them, and the effect would happen again
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/run\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/run` is no trusted source
                  why: an identity derives from trusted durable state alone
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"input.order_id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2010]: `input.order_id` is not a JSON Pointer
                  why: places in JSON are named by JSON Pointers (RFC 6901)
                  fix: start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/input/order-id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2106]: the input schema has no `order-id`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: did you mean `order_id`?"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/input/reason\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: warning[TW2108]: the input schema does not require `/input/reason`
                  why: a run without it starts, and fails at this effect
                  fix: add it to `required` in the schema"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "object = \"/input\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2107]: `/input` may be `object` by the input schema
                  why: an identity is text: fractions have several forms, and other values none
                  fix: use a string or an integer, or narrow the schema"#]],
        ),
        check(
            &[(W, "object = \"/input/order_id\"\nintent = \"full", r#"intent = "full"#)],
            expect![[r#"
                workflows/damaged-item-refund.toml:12:1: error[TW2105]: the slot `refund` has no `object`
                  why: only the object tells this effect from the same one on something else; reads alone need none
                  fix: add it, for example `object = "/input/order_id"`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "scope = \"object\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:12:1: error[TW2105]: the slot `refund` has no `object`
                  why: with `scope = "object"` the object is what runs share
                  fix: add it, for example `object = "/input/order_id"`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"full",
                "scope = \"global\"\nobject = \"/input/order_id\"\nintent = \"full",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:9: error[TW2005]: `scope` is `global`, which means nothing
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one of: `run`, `object`"#]],
        ),
        check(
            &[(W, "intent = \"full-damaged-item\"\n", "")],
            expect![[r#"
            workflows/damaged-item-refund.toml:12:1: error[TW2003]: the slot `refund` does not state `intent`
              why: two effects on one object are told apart by what they are for; it is a part of the identity
              fix: add it, for example `intent = "full-damaged-item"`"#]],
        ),
        check(
            &[(W, r#"intent = "full-damaged-item""#, r#"intent = "{/args/reason}""#)],
            expect![[r#"
                workflows/damaged-item-refund.toml:16:10: error[TW2005]: `intent` is not plain text
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write 1 to 128 characters of plain text; an intent is literal, so `{…}` in it would not be filled in"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refund/refund\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2106]: `/receipts/refund/refund` is a whole receipt
                  why: as a source, a receipt is seen as `{ external_id, result }`
                  fix: go on with `/external_id` or `/result/…`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refund\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2104]: `/receipts/refund` does not name a receipt
                  why: a receipt is found by the node and the slot that got it
                  fix: write `/receipts/<node>/<slot>/external_id` or `/receipts/<node>/<slot>/result/…`"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refunds/refund/external_id\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2101]: there is no node `refunds`
                  why: a receipt exists only once the node that gets it is done
                  fix: did you mean `refund`?"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refund/refunds/external_id\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2101]: the node `refund` has no slot `refunds`
                  why: a receipt exists only once the node that gets it is done
                  fix: did you mean `refund`?"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/notify/notify/external_id\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2101]: `notify` takes its own receipt for a source
                  why: what an effect is about is settled before it is asked for, and there is no receipt of the node until then
                  fix: take the value from the input or a node before it, or let a node behind it make the effect"#]],
        ),
        check(
            &[(
                W,
                "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                "object = \"/receipts/refund/refund/result/reason\"\nintent = \"x\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2107]: `/receipts/refund/refund/result/reason` may be `null` by the response schema
                  why: an identity is text: fractions have several forms, and other values none
                  fix: use a string or an integer, or narrow the schema"#]],
        ),
        check(
            &[
                (P, r#"kind = "http""#, "kind = \"http\"\nmodel = true"),
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                    "object = \"/receipts/refund/refund/external_id\"\nintent = \"x\"",
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:28:10: error[TW2104]: the tool `payments` is a model, whose answers are no trusted source
                  why: a model may answer otherwise the next time, and what it read may have told it what to say
                  fix: let a trusted tool confirm the value first, and use that tool's receipt"#]],
        ),
        check(
            &[
                (W, r#"intent = "full-damaged-item""#, "intent = \"x\"\nrepeat = 3"),
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"refund-notice\"",
                    "object = \"/receipts/refund/refund/external_id\"\nintent = \"x\"",
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:29:10: error[TW2104]: slot `refund` of `refund` may have many receipts
                  why: which of them is meant would depend on what the guest asked for first
                  fix: take the object from a slot that is used once, or from the input"#]],
        ),
        check(
            &[(W, r#"intent = "full-damaged-item""#, "intent = \"x\"\nrepeat = 0")],
            expect![[r#"
                workflows/damaged-item-refund.toml:17:10: error[TW2005]: `repeat` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 1 to 10000"#]],
        ),
        check(
            &[(
                W,
                r#"intent = "full-damaged-item""#,
                "intent = \"x\"\nfor_each = \"/input/order_id\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/input/order_id` is not relative to the element
                  why: with `for_each`, each element of the trusted array has its own business object
                  fix: write the pointer within the element, for example `/order_id`; `""` is the element itself
                workflows/damaged-item-refund.toml:17:12: error[TW2107]: `/input/order_id` may be `string` by the input schema
                  why: `for_each` binds the slot to the elements of an array
                  fix: use an array, or narrow the schema
                workflows/damaged-item-refund.toml:18:9: warning[TW2129]: the slot is for each element of an array, and `allow` does not look at `object`
                  why: a node may send the args of one element as those of another, and do the same thing twice under two identities
                  fix: compare them, for example `args.order_id == object && …`"#]],
        ),
        check(
            &[(
                W,
                r#"intent = "full-damaged-item""#,
                "intent = \"x\"\nfor_each = \"/nodes/refund/orders\"",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2104]: `/input/order_id` is not relative to the element
                  why: with `for_each`, each element of the trusted array has its own business object
                  fix: write the pointer within the element, for example `/order_id`; `""` is the element itself
                workflows/damaged-item-refund.toml:17:12: error[TW2104]: `/nodes/refund/orders` is a node's output, which is no trusted source
                  why: a node's output is guest output: a guest that returns another value after a restart would make a second effect
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model
                workflows/damaged-item-refund.toml:18:9: warning[TW2129]: the slot is for each element of an array, and `allow` does not look at `object`
                  why: a node may send the args of one element as those of another, and do the same thing twice under two identities
                  fix: compare them, for example `args.order_id == object && …`"#]],
        ),
        check(
            &[
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"full-damaged-item\"",
                    "object = \"/ordr_id\"\nintent = \"x\"\nfor_each = \"/input/orders\"\nrepeat = 2",
                ),
                (
                    "schemas/refund-request.json",
                    r#""properties": {"#,
                    r#""properties": { "orders": { "type": "array", "items": { "additionalProperties": false, "properties": { "order_id": { "type": "number" } } } },"#,
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2106]: the element schema has no `ordr_id`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: did you mean `order_id`?
                workflows/damaged-item-refund.toml:17:12: warning[TW2108]: the input schema does not require `/input/orders`
                  why: a run without it starts, and fails at this effect
                  fix: add it to `required` in the schema
                workflows/damaged-item-refund.toml:18:10: error[TW2209]: both `for_each` and `repeat` are given
                  why: a request is told from its siblings either by an element or by a count
                  fix: keep one of them
                workflows/damaged-item-refund.toml:19:9: warning[TW2129]: the slot is for each element of an array, and `allow` does not look at `object`
                  why: a node may send the args of one element as those of another, and do the same thing twice under two identities
                  fix: compare them, for example `args.order_id == object && …`"#]],
        ),
        check(
            &[
                (
                    W,
                    "object = \"/input/order_id\"\nintent = \"full-damaged-item\"",
                    "object = \"/order_id\"\nintent = \"x\"\nfor_each = \"/input/orders\"",
                ),
                (
                    "schemas/refund-request.json",
                    r#""properties": {"#,
                    r#""properties": { "orders": { "type": "array", "items": { "additionalProperties": false, "properties": { "order_id": { "type": "number" } } } },"#,
                ),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:15:10: error[TW2107]: `/order_id` may be `number` by the element schema
                  why: an identity is text: fractions have several forms, and other values none
                  fix: use a string or an integer, or narrow the schema
                workflows/damaged-item-refund.toml:17:12: warning[TW2108]: the input schema does not require `/input/orders`
                  why: a run without it starts, and fails at this effect
                  fix: add it to `required` in the schema
                workflows/damaged-item-refund.toml:18:9: warning[TW2129]: the slot is for each element of an array, and `allow` does not look at `object`
                  why: a node may send the args of one element as those of another, and do the same thing twice under two identities
                  fix: compare them, for example `args.order_id == object && …`"#]],
        ),
    ]
}
