//! Request templates.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{M, P, check};

#[must_use]
pub(super) fn request_templates() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args/orderid}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2106]: the args schema has no `orderid`
              why: the schema is closed (`additionalProperties` is false), so it can never be there
              fix: did you mean `order_id`?"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/input/order_id}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: `/input/order_id` leads nowhere
              why: a request is made from its args and its identity alone, so that every attempt is the same
              fix: use `/args/…`, `/key`, `/effect_id`, `/run`"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args/order_id?}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: `{/args/order_id?}` is optional within text
              why: a text with a hole in it would be a different request; only a whole member of a body can be left out
              fix: drop the `?`, or make the value required in the args schema"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args/reason}")],
            expect![[r#"
            tools/payments.toml:23:8: warning[TW2210]: the args schema does not require `/reason`
              why: a request of a node that leaves it out will be refused before anything is sent
              fix: write `{/args/reason?}` as a whole member of the body, or add it to `required`"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: `/args` may be `object` and stands within text
              why: only a string, an integer or a truth value has exactly one text
              fix: put it into the body as a whole member, or narrow its type in the args schema"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{order_id}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: this text has `{order_id}`, which is neither `{/pointer}` nor `{secret:name}`
              why: braces mark what is filled in when the request is made
              fix: write `{/args/name}`, `{/args/name?}` or `{secret:name}`; double a brace that is meant as such"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/{/args/order_id")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: this text has a `{` that is never closed; write `{{` for the character
              why: braces mark what is filled in when the request is made
              fix: write `{/args/name}`, `{/args/name?}` or `{secret:name}`; double a brace that is meant as such"#]],
        ),
        check(
            &[(P, "orders/{/args/order_id}", "orders/order_id}")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: this text has a `}` that closes nothing; write `}}` for the character
              why: braces mark what is filled in when the request is made
              fix: write `{/args/name}`, `{/args/name?}` or `{secret:name}`; double a brace that is meant as such"#]],
        ),
        check(
            &[(P, r#""/v1/orders"#, r#""v1/orders"#)],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path does not start with `/`
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: start it with `/`"#]],
        ),
        check(
            &[(P, r#""/v1/orders"#, r#""{/args/order_id}/orders"#)],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path does not start with `/`
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: start it with `/`"#]],
        ),
        check(
            &[(P, "/v1/orders/", "/v1//orders/")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path has an empty segment, or one that is `.` or `..`
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: name each segment; leave out a `/` at the end"#]],
        ),
        check(
            &[(P, "/v1/orders/", "/v1/../orders/")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path has an empty segment, or one that is `.` or `..`
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: name each segment; leave out a `/` at the end"#]],
        ),
        check(
            &[(P, "/refunds\"\nheaders", "/refunds?a=b\"\nheaders")],
            expect![[r#"
            tools/payments.toml:23:8: error[TW2202]: the path has a `?`, `#`, `%`, `\` or control character in it
              why: segments are percent-encoded one by one, so that no value can change where a request goes
              fix: write plain text, which is encoded for you, and put parameters into `query`"#]],
        ),
        check(
            &[(
                P,
                r#"body = { order_id = "{/args/order_id}""#,
                r#"body = { "order_id" = "{secret:apikey}""#,
            )],
            expect![[r#"
                tools/payments.toml:25:23: error[TW2101]: there is no secret `apikey`
                  why: secrets are named under `[secrets]`, each with where its value is read from
                  fix: did you mean `api-key`?"#]],
        ),
        check(
            &[(P, r#"reason = "{/args/reason?}""#, r#"reason = "{/args/reason}""#)],
            expect![[r#"
                tools/payments.toml:25:117: warning[TW2210]: the args schema does not require `/reason`
                  why: a request of a node that leaves it out will be refused before anything is sent
                  fix: write `{/args/reason?}` as a whole member of the body, or add it to `required`"#]],
        ),
        check(
            &[(P, r#"reason = "{/args/reason?}""#, "reason = 1979-05-27")],
            expect![[r#"
            tools/payments.toml:25:117: error[TW2005]: a date cannot be written as JSON
              why: requests and schemas are JSON, and what is hashed must mean the same everywhere
              fix: write it as a string, or as a number of at most 2^53-1"#]],
        ),
        check(
            &[(
                M,
                r#"headers = { Authorization = "Bearer {secret:api-key}" }"#,
                r#"headers = { Host = "example.com", "a b" = "c" }"#,
            )],
            expect![[r#"
                tools/mail.toml:24:13: error[TW2005]: the header `Host` is set by the host
                  why: a request must mean the same to every server on its way
                  fix: remove it
                tools/mail.toml:24:35: error[TW2005]: `a b` cannot be the name of a header
                  why: a request must mean the same to every server on its way
                  fix: use letters, digits and `-`"#]],
        ),
        check(
            &[(M, "Bearer {secret:api-key}", "Bearer\\r\\nX: 1")],
            expect![[r#"
            tools/mail.toml:21:1: error[TW2005]: `Authorization` is a text with a line break or another control character in it
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write plain text"#]],
        ),
        check(
            &[(P, "Idempotency-Key", "Content-Length")],
            expect![[r#"
            tools/payments.toml:28:10: error[TW2005]: the header `Content-Length` is set by the host
              why: a request must mean the same to every server on its way
              fix: remove it
            tools/payments.toml:29:1: error[TW2002]: `key` has no key `format`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:30:1: error[TW2002]: `key` has no key `retention`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:31:1: error[TW2002]: `key` has no key `basis`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:32:1: error[TW2002]: `key` has no key `replay`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:33:1: error[TW2002]: `key` has no key `mismatch`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:34:1: error[TW2002]: `key` has no key `in_flight`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`
            tools/payments.toml:35:1: error[TW2002]: `key` has no key `replayed`
              why: a key that nothing reads would look like a promise and be none
              fix: remove it; `key` knows: `header`"#]],
        ),
        check(
            &[(M, r#"method = "POST""#, r#"method = "GET""#)],
            expect![[r#"
            tools/mail.toml:22:10: error[TW2209]: a GET with a body
              why: servers and proxies on the way may drop the body of a GET
              fix: put the values into `query`, or use POST"#]],
        ),
        check(
            &[(M, r#"reference = "{/effect_id}""#, r#"reference = "{/key}""#)],
            expect![[r#"
                tools/mail.toml:25:93: error[TW2203]: `{/key}` is used, and the operation declares no key
                  why: without a declared key there is no key format, and nothing may rely on the provider honouring it
                  fix: use `{/effect_id}` for a reference of ours, or declare the key"#]],
        ),
    ]
}
