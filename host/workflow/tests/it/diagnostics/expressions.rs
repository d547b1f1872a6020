//! Expressions of slots.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{W, check};

#[must_use]
pub(super) fn expressions() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(W, "args.to == state.input", "args.to = state.input")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2109]: `allow`: the expression is not CEL: 1:9: Syntax error: token recognition error at: '= '
                  why: an expression that cannot be evaluated would deny every request
                  fix: write a CEL expression over `args`, `object` and `state`, for example `args.amount_cents <= state.input.paid_cents`"#]],
        ),
        check(
            &[(W, "args.to == state.input", "arg.to == state.input")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2109]: `allow`: the expression names `arg`, which does not exist; there are `args`, `state`, `object`
                  why: an expression that cannot be evaluated would deny every request
                  fix: write a CEL expression over `args`, `object` and `state`, for example `args.amount_cents <= state.input.paid_cents`"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "size(args.to) > now()")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2109]: `allow`: the expression calls `now`, which does not exist
                  why: an expression that cannot be evaluated would deny every request
                  fix: write a CEL expression over `args`, `object` and `state`, for example `args.amount_cents <= state.input.paid_cents`"#]],
        ),
        check(
            &[(W, "\nallow = \"args.to == state.input.customer_email\"", "")],
            expect![[r#"
            workflows/damaged-item-refund.toml:25:1: warning[TW2113]: the slot `notify` has no `allow`
              why: whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient
              fix: state what is permitted, for example `allow = "args.amount_cents <= state.input.paid_cents"`; if it is everything, say so: `allow = "true"`"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "1 < 2")],
            expect![[r#"
            workflows/damaged-item-refund.toml:30:9: warning[TW2114]: `allow` permits every request, whatever its args are
              why: it looks like a condition and is none
              fix: name what it depends on, or write `allow = "true"` if that is meant"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "args.to == 'x' && false")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: warning[TW2114]: `allow` denies every request, whatever its args are
                  why: it looks like a condition and is none
                  fix: name what it depends on, or write `allow = "false"` if that is meant"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "args.to == state.input.custmer_email")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2106]: `allow` names `state.input.custmer_email`, and the input schema has no `custmer_email`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which denies the request
                  fix: did you mean `customer_email`?"#]],
        ),
        check(
            &[(W, "args.to == state.input.customer_email", "has(args.too) || args['to'] == ''")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2106]: `allow` names `args.too`, and the args schema has no `too`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which denies the request
                  fix: did you mean `to`?"#]],
        ),
        check(
            &[(
                W,
                "args.to == state.input.customer_email",
                "args.to == state.inputs.customer_email",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2106]: `allow` names `state.inputs.customer_email`, and `state` has no `inputs`
                  why: the expression could never be decided, which denies the request
                  fix: did you mean `input`?"#]],
        ),
        check(
            &[
                (
                    W,
                    "args.to == state.input.customer_email",
                    "args.to == state.input.custmer_email",
                ),
                ("schemas/refund-request.json", "\n  \"additionalProperties\": false,", ""),
            ],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: warning[TW2115]: `allow` names `state.input.custmer_email`, and the input schema does not mention `custmer_email`
                  why: the schema is open, so it may be there; where it is not, the expression cannot be decided, which denies the request
                  fix: add `custmer_email` to `properties` if it is meant; else: did you mean `customer_email`?"#]],
        ),
        check(
            &[(
                W,
                "args.to == state.input.customer_email",
                "state.nodes.refnud.ok && state.nodes.notify.ok",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:9: error[TW2101]: `allow`: `notify` is not done before `notify` starts
                  why: a node's output is there once it is done; until then the expression cannot be decided, which denies the request
                  fix: name a node that is done before, or the input
                workflows/damaged-item-refund.toml:30:9: error[TW2101]: `allow`: there is no node `refnud`
                  why: a node's output is there once it is done; until then the expression cannot be decided, which denies the request
                  fix: did you mean `refund`?"#]],
        ),
    ]
}
