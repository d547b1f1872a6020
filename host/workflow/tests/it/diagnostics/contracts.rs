//! Keys, lookups and times.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{KEY_ONLY, P, check};

#[must_use]
pub(super) fn keys_lookups_and_times() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(P, "header = \"Idempotency-Key\"\n", "")],
            expect![[r#"
            tools/payments.toml:27:1: error[TW2203]: the key has no `header`, and the request does not place `{/key}`
              why: a key that the provider never sees protects nothing
              fix: state `header = "Idempotency-Key"`, or put `{/key}` where the provider wants it"#]],
        ),
        check(
            &[(P, r#"header = "Idempotency-Key""#, r#"header = "authorization""#)],
            expect![[r#"
                tools/payments.toml:28:10: error[TW2209]: the header `authorization` is set by the key and by the request
                  why: the provider would see one key or the other
                  fix: remove it from the request's `headers`"#]],
        ),
        check(
            &[(P, r#"format = "uuid""#, r#"format = "guid""#)],
            expect![[r#"
            tools/payments.toml:29:10: error[TW2005]: `format` is `guid`, which means nothing
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write one of: `uuid`, `uuid_v4`, `readable`, `hash`"#]],
        ),
        check(
            &[(P, "format = \"uuid\"\n", "")],
            expect![[r#"
                tools/payments.toml:27:1: error[TW2003]: `key` does not state `format`
                  why: providers differ in what they accept as a key
                  fix: add it, for example `format = "uuid"`"#]],
        ),
        check(
            &[(
                P,
                "mismatch = [{ status = 422, pointer = \"/error/code\", equals = \"idempotency_key_reused\" }]\n",
                "",
            )],
            expect![[r#"
                tools/payments.toml:27:1: error[TW2003]: `key` does not state `mismatch`
                  why: an answer that is not recognised would be taken for a refusal, or for nothing at all
                  fix: add it, for example `mismatch = [{ status = 422 }]`, or `mismatch = []`"#]],
        ),
        check(
            &[(P, r#"retention = "24h""#, r#"retention = "15s""#)],
            expect![[r#"
                tools/payments.toml:30:13: error[TW2204]: the retention of 15s leaves nothing for sending again after a timeout of 10s
                  why: of 15s only 7s500ms are trusted: one hour, a tenth or a half is kept as a margin
                  fix: shorten `timeout`; if the provider really forgets so soon, state `key = "none"` and a lookup"#]],
        ),
        check(
            &[(P, r#"retention = "24h""#, r#"retention = "20s""#)],
            expect![[r#"
            tools/payments.toml:30:13: error[TW2204]: the retention of 20s leaves nothing for sending again after a timeout of 10s
              why: of 20s only 10s are trusted: one hour, a tenth or a half is kept as a margin
              fix: shorten `timeout`; if the provider really forgets so soon, state `key = "none"` and a lookup"#]],
        ),
        check(
            &[
                KEY_ONLY,
                (P, "incidental =", "lookup = \"none\"\nincidental ="),
                (P, "retention = \"24h\"", "retention = \"25h\""),
            ],
            expect![[r#"
                tools/payments.toml:19:11: warning[TW2205]: the horizon of 24h outlives the key
                  why: the class is "key only": from 22h30m after the first send an unknown outcome can neither be sent again nor looked up, and waits for a person
                  fix: state a horizon of at most 22h30m, or a lookup"#]],
        ),
        check(
            &[
                KEY_ONLY,
                (P, "incidental =", "lookup = \"none\"\nincidental ="),
                (P, "attempts = 5", "attempts = 1000"),
                (P, "horizon = \"24h\"", "horizon = \"1h\""),
                (P, "retention = \"24h\"", "retention = \"3h\""),
            ],
            expect![[r#"
                tools/payments.toml:20:9: warning[TW2205]: the attempts may take 11h3m41s500ms and outlive the key
                  why: the class is "key only": from 2h after the first send an unknown outcome can neither be sent again nor looked up, and waits for a person
                  fix: make them fit into 2h, or state a lookup"#]],
        ),
        check(
            &[(P, r#"replay = "first_answer""#, r#"replay = "conflict_with_id""#)],
            expect![[r#"
                tools/payments.toml:32:10: error[TW2207]: a repeated key gets a conflict, and nothing says how to recognise it or where its id is
                  why: the conflict would be taken for a refusal, although the effect happened
                  fix: state `duplicate` and `duplicate_id` in the operation's `response`"#]],
        ),
        check(
            &[
                (P, r#"replay = "first_answer""#, r#"replay = "conflict_with_id""#),
                (
                    P,
                    "refused = [{ status = 402 }]",
                    "refused = [{ status = 402 }]\nduplicate = [{ status = 409 }]\nduplicate_id = \"/id\"",
                ),
            ],
            expect![[""]],
        ),
        check(
            &[(P, "consistency = \"strong\"\n", "")],
            expect![[r#"
                tools/payments.toml:37:1: error[TW2003]: `lookup` does not state `consistency`
                  why: a lookup that lags can find what was sent, but never prove that nothing was
                  fix: add it, for example `consistency = "strong"` or `consistency = { lag = "30s" }`"#]],
        ),
        check(
            &[(P, r#"consistency = "strong""#, r#"consistency = "eventual""#)],
            expect![[r#"
            tools/payments.toml:39:15: error[TW2005]: `consistency` is `eventual`, which means nothing
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write one of: `strong`"#]],
        ),
        check(
            &[(P, r#"consistency = "strong""#, r#"consistency = { lag = "soon" }"#)],
            expect![[r#"
                tools/payments.toml:39:23: error[TW2005]: `lag` is `soon`, which is not a duration
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write a whole number and a unit: `500ms`, `10s`, `5m`, `24h`, `30d`"#]],
        ),
        check(
            &[(P, r#"by = "reference""#, r#"by = "key""#)],
            expect![[r#"
            tools/payments.toml:37:1: error[TW2208]: the lookup is by key, and neither its request nor `matches` has `/key`
              why: a lookup that finds nothing, or something else, would be taken for the truth
              fix: put `{/key}` into the lookup's request, or state `by = "reference"`"#]],
        ),
        check(
            &[
                (P, r#"query = { reference = "{/effect_id}" }"#, ""),
                (P, "matches = { \"/reference\" = \"/effect_id\" }\n", ""),
            ],
            expect![[r#"
                tools/payments.toml:37:1: error[TW2208]: the lookup is by reference, and neither its request nor `matches` has `/effect_id`
                  why: a lookup that finds nothing, or something else, would be taken for the truth
                  fix: put `{/effect_id}` into the lookup's request, or compare with it in `matches`"#]],
        ),
        check(
            &[(P, r#"reference = "{/effect_id}", reason"#, "reason")],
            expect![[r#"
            tools/payments.toml:37:1: error[TW2208]: the lookup is by reference, and the request leaves no reference with the provider
              why: a lookup that finds nothing, or something else, would be taken for the truth
              fix: put `{/effect_id}` into the request, in a field that the provider keeps"#]],
        ),
        check(
            &[(P, "absent = []", "absent = [200]")],
            expect![[r#"
            tools/payments.toml:45:11: error[TW2005]: `absent` is not such a status
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write statuses from 400 to 499: others say nothing about absence"#]],
        ),
        check(
            &[(
                P,
                r#"pending = { "/status" = ["pending"] }"#,
                r#"pending = { "/status" = ["pending"], "/state" = [] }"#,
            )],
            expect![[r#"
                tools/payments.toml:48:11: error[TW2005]: `pending` is not a single pair
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one pointer and what is expected there"#]],
        ),
        check(
            &[(
                P,
                r#"matches = { "/reference" = "/effect_id" }"#,
                r#"matches = { "reference" = "/effect" }"#,
            )],
            expect![[r#"
                tools/payments.toml:47:13: error[TW2010]: `reference` is not a JSON Pointer
                  why: places in JSON are named by JSON Pointers (RFC 6901)
                  fix: start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name"#]],
        ),
        check(
            &[(P, "horizon = \"24h\"", "horizon = \"1s\"")],
            expect![[r#"
            tools/payments.toml:18:11: error[TW2211]: the horizon of 1s is shorter than the settle window of 2s
              why: a request may still be processed when nobody asks any more, so that no lookup could ever prove that it was lost
              fix: state a horizon that is longer than `settle`, by far: it is how long an unknown outcome is looked after before a person has to"#]],
        ),
    ]
}
