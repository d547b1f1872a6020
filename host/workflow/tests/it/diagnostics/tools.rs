//! Tools and operations.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{M, P, check};

#[must_use]
pub(super) fn tools_and_operations() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(P, "env:PAYMENTS_API_KEY", "sk_live_canary")],
            expect![[r#"
            tools/payments.toml:7:11: error[TW2201]: the secret `api-key` is not a reference
              why: a secret in a file ends up in version control, in pinned definitions and in exports
              fix: write `env:NAME` or `file:PATH`; if this was a real secret, replace it at the provider"#]],
        ),
        check(
            &[(P, "env:PAYMENTS_URL", "payments.example.com")],
            expect![[r#"
            tools/payments.toml:4:12: error[TW2005]: `base_url` is neither a plain URL nor a reference to one
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write `env:NAME`, or `http://` or `https://` with a host and perhaps a path; no user, query or fragment"#]],
        ),
        check(
            &[(P, "env:PAYMENTS_URL", "https://user:canary@payments.example.com")],
            expect![[r#"
                tools/payments.toml:4:12: error[TW2005]: `base_url` is neither a plain URL nor a reference to one
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write `env:NAME`, or `http://` or `https://` with a host and perhaps a path; no user, query or fragment"#]],
        ),
        check(
            &[(P, r#"kind = "http""#, "kind = \"http\"\nrate = { per_second = 0 }")],
            expect![[r#"
                tools/payments.toml:4:23: error[TW2005]: `per_second` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 1 to 100000"#]],
        ),
        check(
            &[(P, r#"kind = "http""#, "kind = \"http\"\nconcurrency = 0")],
            expect![[r#"
                tools/payments.toml:4:15: error[TW2005]: `concurrency` is out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a number from 1 to 10000"#]],
        ),
        check(
            &[(P, r#"kind = "http""#, "kind = \"http\"\nconcurency = 4")],
            expect![[r#"
                tools/payments.toml:4:1: error[TW2002]: the tool file has no key `concurency`
                  why: a key that nothing reads would look like a promise and be none
                  fix: did you mean `concurrency`?"#]],
        ),
        check(
            &[(P, "settle = \"2s\"\n", "")],
            expect![[r#"
            tools/payments.toml:9:1: error[TW2003]: operation `refund` does not state `settle`
              why: until then a request may still be processed, and a lookup that finds nothing proves nothing
              fix: add it, for example `settle = "60s"`"#]],
        ),
        check(
            &[(P, "horizon = \"24h\"\n", "")],
            expect![[r#"
            tools/payments.toml:9:1: error[TW2003]: operation `refund` does not state `horizon`
              why: after this time an unknown outcome waits for a person
              fix: add it, for example `horizon = "24h"`"#]],
        ),
        check(
            &[(M, "timeout = \"10s\"\n", "")],
            expect![[r#"
            tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `timeout`
              why: after this time the outcome of a request is not known; how long is right depends on the provider
              fix: add it, for example `timeout = "10s"`"#]],
        ),
        check(
            &[(M, "retry = { attempts = 3, initial = \"500ms\", max = \"30s\" }\n", "")],
            expect![[r#"
                tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `retry`
                  why: how often a request that was not processed may be made again is the provider's business
                  fix: add it, for example `retry = { attempts = 5, initial = "500ms", max = "30s" }`"#]],
        ),
        check(
            &[(M, "attempts = 3, ", "")],
            expect![[r#"
            tools/mail.toml:17:9: error[TW2003]: `retry` does not state `attempts`
              why: there is no default that would be right for everyone
              fix: add it, for example `attempts = 5`"#]],
        ),
        check(
            &[(M, r#"max = "30s""#, r#"max = "100ms""#)],
            expect![[r#"
            tools/mail.toml:17:50: error[TW2005]: `max` is shorter than `initial`
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write at least as much as `initial`"#]],
        ),
        check(
            &[(M, "key = \"none\"\n", "")],
            expect![[r#"
            tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `key`
              why: whether the provider honours a key decides whether a request may ever be sent twice; this is never guessed
              fix: add it, for example `key = "none"` or a table `[operation.NAME.key]`"#]],
        ),
        check(
            &[(M, "lookup = \"none\"\n", "")],
            expect![[r#"
            tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `lookup`
              why: whether an unknown outcome can be looked up decides whether it needs a person; this is never guessed
              fix: add it, for example `lookup = "none"` or a table `[operation.NAME.lookup]`"#]],
        ),
        check(
            &[(M, r#"lookup = "none""#, r#"lookup = "nothing""#)],
            expect![[r#"
                tools/mail.toml:19:10: error[TW2004]: `lookup`, if it is not "none", is a string, not a table
                  why: a value is never converted silently: what was meant could be something else
                  fix: write a table"#]],
        ),
        check(
            &[(M, r#"key = "none""#, "key = \"none\"\nread = true")],
            expect![[r#"
            tools/mail.toml:15:10: error[TW2206]: a read states `settle`
              why: a read is repeated freely and never unknown, so nothing would ever use it
              fix: remove `settle`, or remove `read = true` if the operation changes anything
            tools/mail.toml:16:11: error[TW2206]: a read states `horizon`
              why: a read is repeated freely and never unknown, so nothing would ever use it
              fix: remove `horizon`, or remove `read = true` if the operation changes anything
            tools/mail.toml:18:7: error[TW2206]: a read states `key`
              why: a read is repeated freely and never unknown, so nothing would ever use it
              fix: remove `key`, or remove `read = true` if the operation changes anything
            tools/mail.toml:20:10: error[TW2206]: a read states `lookup`
              why: a read is repeated freely and never unknown, so nothing would ever use it
              fix: remove `lookup`, or remove `read = true` if the operation changes anything"#]],
        ),
        check(
            &[(M, "args = { schema = \"schemas/mail-args.json\" }\n", "")],
            expect![[r#"
            tools/mail.toml:12:1: error[TW2003]: operation `send` does not state `args`
              why: there is no default that would be right for everyone
              fix: add it, for example `args = { schema = "schemas/args.json" }`"#]],
        ),
        check(
            &[(P, r#"incidental = ["/reason"]"#, r#"incidental = ["/reasons"]"#)],
            expect![[r#"
            tools/payments.toml:12:15: error[TW2106]: the args schema has no `reasons`
              why: the schema is closed (`additionalProperties` is false), so it can never be there
              fix: did you mean `reason`?"#]],
        ),
        check(
            &[(P, r#"incidental = ["/reason"]"#, r#"incidental = ["reason"]"#)],
            expect![[r#"
            tools/payments.toml:12:15: error[TW2010]: `reason` is not a JSON Pointer
              why: places in JSON are named by JSON Pointers (RFC 6901)
              fix: start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name"#]],
        ),
        check(
            &[(
                P,
                "[operation.refund.request]\nmethod = \"POST\"",
                "max_response = \"2MiB\"\n[operation.refund.request]\nmethod = \"post\"",
            )],
            expect![[r#"
                tools/payments.toml:21:16: error[TW2005]: `max_response` is 2MiB: out of range
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write 1B to 1MiB
                tools/payments.toml:23:10: error[TW2005]: `method` is `post`, which means nothing
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one of: `GET`, `POST`, `PUT`, `PATCH`, `DELETE`"#]],
        ),
        check(
            &[(P, "env:PAYMENTS_URL", "http://payments.example.com/v1")],
            expect![[r#"
            tools/payments.toml:4:12: warning[TW2212]: `base_url` is `http://`, and the tool has secrets
              why: whoever is on the way to that host can read them, and change what is asked and answered
              fix: use `https://`; with a certificate of your own, state `ca_file`"#]],
        ),
    ]
}
