//! Fan-outs.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{flow, refund};

#[must_use]
pub(super) fn fan_outs() -> Vec<BTreeSet<Code>> {
    vec![
        flow(
            &[("a", "for_each = '/input/orders'\nelement = '/id'\nroutes = ['x', 'y']")],
            expect![[r#"
                workflows/flow.toml:20:10: error[TW2209]: both `routes` and `for_each` are given
                  why: a fan-out returns an array, in which each element could name another route
                  fix: let a node behind it look at the outputs and choose the route"#]],
        ),
        flow(
            &[
                (
                    "a",
                    &format!(
                        "for_each = '/input/orders'\nelement = '/id'\nparallel = 4\n{}",
                        refund("pay", "").replace("/input/id", "/element/id")
                    ),
                ),
                ("b", "after = ['a']\nfor_each = '/input/codes'\nelement = ''"),
            ],
            expect![[""]],
        ),
        flow(
            &[
                ("a", "for_each = '/input/orders'"),
                ("b", "element = '/id'\nparallel = 3"),
                ("c", "for_each = '/input/orders'\nelement = 'id'\nparallel = 257"),
            ],
            expect![[r#"
                workflows/flow.toml:14:1: error[TW2003]: a node (`[[node]]`) does not state `element`
                  why: an effect of one element is told from those of the others by a value within the element, wherever it stands in its array
                  fix: add it, for example `element = "/id"`
                workflows/flow.toml:23:11: error[TW2209]: `element` is given without `for_each`
                  why: the node runs once, not once for each element of an array
                  fix: name the array with `for_each`, or remove it
                workflows/flow.toml:24:12: error[TW2209]: `parallel` is given without `for_each`
                  why: the node runs once, not once for each element of an array
                  fix: name the array with `for_each`, or remove it
                workflows/flow.toml:30:11: error[TW2010]: `id` is not a JSON Pointer
                  why: places in JSON are named by JSON Pointers (RFC 6901)
                  fix: start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name
                workflows/flow.toml:31:12: error[TW2005]: `parallel` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 1 to 256"#]],
        ),
        flow(
            &[("a", "for_each = '/input/orders'\nelement = '/nmae'")],
            expect![[r#"
            workflows/flow.toml:19:11: error[TW2121]: the element schema has no `nmae`
              why: the identity of an element is a part of the identity of its effects; without it the run fails
              fix: use one of: `id`, `note`, `price`"#]],
        ),
        flow(
            &[("a", "for_each = '/input/orders'\nelement = '/note'")],
            expect![[r#"
            workflows/flow.toml:19:11: error[TW2121]: the element schema does not require `/note`
              why: the identity of an element is a part of the identity of its effects; without it the run fails
              fix: add it to `required` in the schema"#]],
        ),
        flow(
            &[("a", "for_each = '/input/orders'\nelement = '/price'")],
            expect![[r#"
            workflows/flow.toml:19:11: error[TW2121]: `/price` may be `number` by the element schema
              why: an identity is text: fractions have several forms, and other values none
              fix: use a string or an integer, or narrow the schema"#]],
        ),
        flow(
            &[("a", "for_each = '/input/names'\nelement = ''")],
            expect![[r#"
            workflows/flow.toml:19:11: warning[TW2122]: the array may hold an element twice
              why: two elements with one identity could not be told apart, so they stop the run
              fix: add `"uniqueItems": true` to the schema of the array"#]],
        ),
        flow(
            &[
                ("a", "for_each = '/input/id'\nelement = '/id'"),
                ("b", "for_each = '/nodes/a'\nelement = '/id'"),
                ("c", "for_each = '/element/x'\nelement = '/id'"),
            ],
            expect![[r#"
                workflows/flow.toml:18:12: error[TW2107]: `/input/id` may be `string` by the input schema
                  why: `for_each` binds the slot to the elements of an array
                  fix: use an array, or narrow the schema
                workflows/flow.toml:24:12: error[TW2104]: `/nodes/a` is a node's output, which is no trusted source
                  why: a node's output is guest output: a guest that returns another value after a restart would make a second effect
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model
                workflows/flow.toml:30:12: error[TW2104]: `/element/x` leads nowhere: there is no element
                  why: only a step of a node with `for_each` is about an element
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model"#]],
        ),
        flow(
            &[
                ("a", &refund("pay", "").replace("/input/id", "/element/id")),
                (
                    "b",
                    &format!(
                        "for_each = '/input/orders'\nelement = '/id'\n{}",
                        refund("pay", "").replace("/input/id", "/element/di")
                    ),
                ),
            ],
            expect![[r#"
                workflows/flow.toml:21:10: error[TW2104]: `/element/id` leads nowhere: there is no element
                  why: only a step of a node with `for_each` is about an element
                  fix: use `/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model
                workflows/flow.toml:35:10: error[TW2106]: the element schema has no `di`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: did you mean `id`?"#]],
        ),
        flow(
            &[
                (
                    "a",
                    &format!("for_each = '/input/orders'\nelement = '/id'\n{}", refund("pay", "")),
                ),
                (
                    "b",
                    &format!(
                        "after = ['a']\nwhen = 'has(receipts.a.pay)'\n{}",
                        refund("more", "").replace("/input/id", "/receipts/a/pay/external_id")
                    ),
                ),
            ],
            expect![[r#"
                workflows/flow.toml:33:8: error[TW2101]: `when`: slot `pay` of `a` may have many receipts
                  why: nothing says which of them is meant
                  fix: name a slot that is used once, of a node without `for_each`
                workflows/flow.toml:37:10: error[TW2104]: slot `pay` of `a` may have many receipts
                  why: which of them is meant would depend on what the guest asked for first
                  fix: take the object from a slot that is used once, or from the input"#]],
        ),
        flow(
            &[
                (
                    "a",
                    &format!(
                        "for_each = '/input/orders'\nelement = '/id'\n{}",
                        refund("pay", "").replace("'true'", "'args.order_id == state.element.idd'")
                    ),
                ),
                ("b", &refund("pay", "").replace("'true'", "'args.order_id == state.element.id'")),
            ],
            expect![[r#"
                workflows/flow.toml:25:9: error[TW2106]: `allow` names `state.element.idd`, and the element schema has no `idd`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which denies the request
                  fix: did you mean `id`?
                workflows/flow.toml:33:8: warning[TW2112]: slot `pay` of node `a` asks for the same on the same object with the same intent
                  why: they are two effects nevertheless, and both happen: node and slot are a part of the identity
                  fix: give them different intents if both are meant to happen, or `scope = "object"` if only one is
                workflows/flow.toml:37:9: error[TW2106]: `allow` names `state.element.id`, and `state` has no `element`
                  why: the expression could never be decided, which denies the request
                  fix: use one of: `input`, `nodes`"#]],
        ),
    ]
}
