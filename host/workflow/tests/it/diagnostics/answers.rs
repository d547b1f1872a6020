//! What answers mean.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{M, P, check};

#[must_use]
pub(super) fn what_answers_mean() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(P, r#""/amount_cents" = "/amount_cents" }"#, r#""/amount_cents" = "/amount" }"#)],
            expect![[r#"
                tools/payments.toml:56:55: error[TW2106]: the args schema has no `amount`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: use one of: `amount_cents`, `order_id`, `reason`"#]],
        ),
        check(
            &[
                (
                    P,
                    r#"expose = ["/id", "/status", "/amount_cents"]"#,
                    r#"expose = ["/id", "/state", "/amount_cents"]"#,
                ),
                (
                    "schemas/refund.json",
                    r#""type": "object","#,
                    r#""type": "object", "additionalProperties": false,"#,
                ),
            ],
            expect![[r#"
                tools/payments.toml:57:18: error[TW2106]: the response schema has no `state`
                  why: the schema is closed (`additionalProperties` is false), so it can never be there
                  fix: use one of: `amount_cents`, `id`, `order_id`, `reason`, `reference`, `status`"#]],
        ),
        check(
            &[(P, "schema = \"schemas/refund.json\"", "schema = { inline = 5 }")],
            expect![[r#"
            tools/payments.toml:53:21: error[TW2004]: `inline` is an integer, not a table
              why: a value is never converted silently: what was meant could be something else
              fix: write a table"#]],
        ),
        check(
            &[(P, "schema = \"schemas/refund.json\"", "schema = 5")],
            expect![[r#"
            tools/payments.toml:53:10: error[TW2004]: `schema` is an integer, not a path, or `{ inline = … }`
              why: a value is never converted silently: what was meant could be something else
              fix: write a path, or `{ inline = … }`"#]],
        ),
        check(
            &[(P, "refused = [{ status = 402 }]", "refused = [{ }]")],
            expect![[r#"
            tools/payments.toml:58:12: error[TW2005]: the pattern matches every answer
              why: a pattern decides what an answer means, so it must leave no doubt about itself
              fix: state at least one of `status`, `header`, `pointer`"#]],
        ),
        check(
            &[(
                P,
                "refused = [{ status = 402 }]",
                "refused = [{ status = 4020 }, { status = 402, code = 5 }, 402]",
            )],
            expect![[r#"
                tools/payments.toml:58:23: error[TW2005]: `status` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 100 to 599
                tools/payments.toml:58:47: error[TW2002]: a pattern in `refused` has no key `code`
                  why: a key that nothing reads would look like a promise and be none
                  fix: remove it; a pattern in `refused` knows: `equals`, `header`, `pointer`, `status`
                tools/payments.toml:58:59: error[TW2004]: a pattern in `refused` is an integer, not a table
                  why: a value is never converted silently: what was meant could be something else
                  fix: write a table"#]],
        ),
        check(
            &[(
                P,
                "refused = [{ status = 402 }]",
                r#"refused = [{ status = 402, equals = 1 }, { header = "X-Code", equals = 1 }, { header = "a", pointer = "/b", equals = "c" }]"#,
            )],
            expect![[r#"
                tools/payments.toml:58:37: error[TW2005]: `equals` stands beside neither `header` nor `pointer`
                  why: a pattern decides what an answer means, so it must leave no doubt about itself
                  fix: state what must be equal
                tools/payments.toml:58:53: error[TW2005]: the header's name is not in lower case
                  why: a pattern decides what an answer means, so it must leave no doubt about itself
                  fix: write it in lower case
                tools/payments.toml:58:72: error[TW2005]: a header is compared with something else than a string
                  why: a pattern decides what an answer means, so it must leave no doubt about itself
                  fix: write a string
                tools/payments.toml:58:118: error[TW2005]: `equals` stands beside both `header` and `pointer`
                  why: a pattern decides what an answer means, so it must leave no doubt about itself
                  fix: use one of them; which of the two must be equal is not said"#]],
        ),
        check(
            &[(M, r#"external_id = "/id""#, "external_id = \"/id\"\nno_body = true")],
            expect![[r#"
                tools/mail.toml:27:1: error[TW2209]: `no_body` is set, and the section says what is in the body
                  why: a success without a body would then break the operation's own declarations
                  fix: remove `no_body`, or everything that reads the body"#]],
        ),
    ]
}
