//! What a provider posts: how it is signed, and what it means.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{P, check};

const WEBHOOK: &str =
    "[webhook]\nscheme = \"standard\"\nsecrets = [\"env:KEY\"]\n\n[operation.refund]";
const MEANING: &str = "[operation.refund.webhook]\nreference = \"/data/reference\"\nsucceeded = { \"/type\" = [\"refund.done\"] }\n\n[operation.refund.response]";

/// The payments with both sections, and an edit in them.
fn with(from: &str, to: &str) -> Vec<(&'static str, String, String)> {
    let edit = |text: &str| text.replace(from, to);
    vec![
        (P, "[operation.refund]".to_owned(), edit(WEBHOOK)),
        (P, "[operation.refund.response]".to_owned(), edit(MEANING)),
    ]
}

#[track_caller]
fn edited(from: &str, to: &str, expect: expect_test::Expect) -> BTreeSet<Code> {
    let edits = with(from, to);
    let edits: Vec<(&str, &str, &str)> =
        edits.iter().map(|(path, from, to)| (*path, from.as_str(), to.as_str())).collect();
    check(&edits, expect)
}

#[test]
fn sound_webhooks_are_accepted() {
    let own = |scheme: &str| format!("scheme = {{ {scheme} }}");
    let slack = own(
        "signature = \"X-Slack-Signature\", prefix = \"v0=\", encoding = \"hex\", signed = \"v0:{timestamp}:{body}\", timestamp = \"X-Slack-Request-Timestamp\"",
    );
    let pairs = own(
        "signature = \"x-sign\", separator = \";\", prefix = \"s=\", encoding = \"base64\", signed = \"{id}.{timestamp}.{body}\", id = \"x-id\", timestamp = { part = \"t=\" }, key = \"base64\"",
    );
    for (from, to) in [
        ("standard", "standard"),
        ("standard", "svix"),
        ("standard", "stripe"),
        ("standard", "github"),
        ("standard", "shopify"),
        ("scheme = \"standard\"", &slack),
        ("scheme = \"standard\"", &pairs),
        ("[\"env:KEY\"]", "[\"env:KEY\", \"file:secrets/old-key\"]"),
        (
            "succeeded =",
            "object = \"/data\"\nfailed = { \"/type\" = [\"refund.lost\"], \"/data/status\" = [1, \"lost\"] }\nsucceeded =",
        ),
    ] {
        edited(from, to, expect![[""]]);
    }
}

#[must_use]
pub(super) fn webhooks() -> Vec<BTreeSet<Code>> {
    let own = |scheme: &str| format!("scheme = {{ {scheme} }}");
    vec![
        edited(
            "scheme = \"standard\"",
            &own(
                "signature = \"x-sign\", encoding = \"hex\", signed = \"{body}\", id = \"x-id\", timestamp = \"x-time\"",
            ),
            expect![[r#"
                tools/payments.toml:10:61: error[TW2209]: `id` is stated, and `signed` does not have it
                  why: anybody could have written it
                  fix: put `{id}` into `signed` if the provider signs it, or remove `id`
                tools/payments.toml:10:61: error[TW2209]: `timestamp` is stated, and `signed` does not have it
                  why: anybody could have written it
                  fix: put `{timestamp}` into `signed` if the provider signs it, or remove `timestamp`"#]],
        ),
        edited(
            "scheme = \"standard\"",
            &own(
                "signature = \"x-sign\", separator = \",\", prefix = \"t=\", encoding = \"hex\", signed = \"{timestamp}.{body}\", timestamp = { part = \"t=\" }",
            ),
            expect![[r#"
                tools/payments.toml:10:93: error[TW2209]: the parts with the time and those with signatures begin alike
                  why: one could not be told from the other
                  fix: state how each begins: `prefix = "v1="`, `timestamp = { part = "t=" }`"#]],
        ),
        edited(
            "\"/data/reference\"",
            "\"\"",
            expect![[r#"
            tools/payments.toml:57:13: error[TW2005]: `reference` is the whole event
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write a pointer into the event, e.g. `/data/metadata/effect_id`"#]],
        ),
        edited(
            "succeeded =",
            "failed = { \"/type\" = [\"refund.lost\", \"refund.done\"] }\nsucceeded =",
            expect![[r#"
                tools/payments.toml:56:1: error[TW2209]: an event can be both what `succeeded` and what `failed` asks for
                  why: such an event would be refused
                  fix: ask for values that exclude each other"#]],
        ),
        edited(
            "scheme = \"standard\"\n",
            "",
            expect![[r#"
            tools/payments.toml:9:1: error[TW2003]: `webhook` does not state `scheme`
              why: each provider signs in its own way, and what is not verified is anybody's word
              fix: add it, for example `scheme = "standard"`"#]],
        ),
        edited(
            "\"standard\"",
            "\"strip\"",
            expect![[r#"
            tools/payments.toml:10:10: error[TW2005]: `scheme` is `strip`, which means nothing
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write one of: `standard`, `svix`, `stripe`, `github`, `shopify`"#]],
        ),
        edited(
            "[\"env:KEY\"]",
            "[]",
            expect![[r#"
            tools/payments.toml:11:11: error[TW2005]: `secrets` is empty, so that nothing could be verified
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write the key, or the old and the new one while they are exchanged"#]],
        ),
        edited(
            "[\"env:KEY\"]",
            "[\"whsec_canary\"]",
            expect![[r#"
            tools/payments.toml:11:12: error[TW2201]: a secret of `webhook` is not a reference
              why: a secret in a file ends up in version control, in pinned definitions and in exports
              fix: write `env:NAME` or `file:PATH`; if this was a real secret, replace it at the provider"#]],
        ),
        edited(
            "\nsecrets = [\"env:KEY\"]",
            "",
            expect![[r#"
            tools/payments.toml:9:1: error[TW2003]: `webhook` does not state `secrets`
              why: there is no default that would be right for everyone
              fix: add it, for example `secrets = ["env:PAYMENTS_WEBHOOK_SECRET"]`"#]],
        ),
        edited(
            "scheme = \"standard\"",
            &own(
                "signature = \"x sign\", separator = \", \", encoding = \"hex\", signed = \"{id}{body}\", id = \"\", timestamp = { part = \"t=\" }, key = \"raw\"",
            ),
            expect![[r#"
                tools/payments.toml:10:24: error[TW2005]: `signature` is not the name of a header
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write the name of a header, e.g. `x-signature`
                tools/payments.toml:10:46: error[TW2005]: `separator` is not one character
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one, e.g. `,`
                tools/payments.toml:10:79: error[TW2005]: `signed` is not what could be signed
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write text with `{body}` at its end, and before it `{id}` and `{timestamp}` if they are signed, each once and apart from the next by a character like `.`
                tools/payments.toml:10:98: error[TW2005]: `id` is not the name of a header
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write the name of a header, e.g. `x-signature`
                tools/payments.toml:10:137: error[TW2005]: `key` is `raw`, which means nothing
                  why: every limit and choice is explicit, so that a slip cannot pass for a decision
                  fix: write one of: `text`, `base64`"#]],
        ),
        edited(
            "scheme = \"standard\"",
            &own(
                "signature = \"x-sign\", encoding = \"hex\", signed = \"{id}.{timestamp}.{body}\"",
            ),
            expect![[r#"
                tools/payments.toml:10:61: error[TW2003]: `signed` has `{id}`, and nothing says where that stands
                  why: what was signed could not be put together
                  fix: add `id`, the header with it
                tools/payments.toml:10:61: error[TW2003]: `signed` has `{timestamp}`, and nothing says where that stands
                  why: what was signed could not be put together
                  fix: add `timestamp`, the header with it"#]],
        ),
        edited(
            "scheme = \"standard\"",
            &own("signature = \"x-sign\""),
            expect![[r#"
            tools/payments.toml:10:10: error[TW2003]: `scheme` does not state `encoding`
              why: there is no default that would be right for everyone
              fix: add it, for example `encoding = "hex"`
            tools/payments.toml:10:10: error[TW2003]: `scheme` does not state `signed`
              why: there is no default that would be right for everyone
              fix: add it, for example `signed = "{timestamp}.{body}"`"#]],
        ),
        edited(
            "reference = \"/data/reference\"\n",
            "",
            expect![[r#"
            tools/payments.toml:56:1: error[TW2003]: `webhook` does not state `reference`
              why: an event that does not name the effect could be about anything
              fix: add it, for example `reference = "/data/object/metadata/effect_id"`"#]],
        ),
        edited(
            "succeeded = { \"/type\" = [\"refund.done\"] }",
            "succeeded = {}",
            expect![[r#"
            tools/payments.toml:58:13: error[TW2005]: `succeeded` is empty
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write at least one pointer and its values"#]],
        ),
        edited(
            "succeeded = { \"/type\" = [\"refund.done\"] }",
            "",
            expect![[r#"
            tools/payments.toml:56:1: error[TW2003]: `webhook` does not state `succeeded`
              why: there is no default that would be right for everyone
              fix: add it, for example `succeeded = { "/type" = ["refund.succeeded"] }`"#]],
        ),
        edited(
            "[\"refund.done\"]",
            "\"refund.done\"",
            expect![[r#"
            tools/payments.toml:58:25: error[TW2004]: the values of `succeeded` is a string, not an array
              why: a value is never converted silently: what was meant could be something else
              fix: write an array"#]],
        ),
        edited(
            "[\"refund.done\"]",
            "[]",
            expect![[r#"
            tools/payments.toml:58:25: error[TW2005]: `succeeded` is without a value
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write the values of which one must be there"#]],
        ),
        edited(
            "\"/type\"",
            "\"type\"",
            expect![[r#"
            tools/payments.toml:58:15: error[TW2010]: `type` is not a JSON Pointer
              why: places in JSON are named by JSON Pointers (RFC 6901)
              fix: start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name"#]],
        ),
        check(
            &[(P, "[operation.refund]", WEBHOOK)],
            expect![[r#"
            tools/payments.toml:9:1: error[TW2003]: the tool states how events are signed, and no operation says what they mean
              why: they would all be refused
              fix: add `[operation.NAME.webhook]` with `reference` and `succeeded` to an operation, or remove `[webhook]`"#]],
        ),
        check(
            &[(P, "[operation.refund.response]", MEANING)],
            expect![[r#"
            tools/payments.toml:52:1: error[TW2003]: the operation says what events mean, and the tool does not state how they are signed
              why: what is not verified is anybody's word
              fix: add `[webhook]` with `scheme` and `secrets` to the tool's file"#]],
        ),
        check(
            &[
                (P, "[operation.refund]", WEBHOOK),
                (P, "[operation.refund.response]", MEANING),
                (P, "reference = \"{/effect_id}\", ", ""),
            ],
            expect![[r#"
                tools/payments.toml:41:1: error[TW2208]: the lookup is by reference, and the request leaves no reference with the provider
                  why: a lookup that finds nothing, or something else, would be taken for the truth
                  fix: put `{/effect_id}` into the request, in a field that the provider keeps
                tools/payments.toml:56:1: error[TW2208]: events are found by our reference, and the request leaves no reference with the provider
                  why: no event would ever name the effect
                  fix: put `{/effect_id}` into the request, in a field that the provider keeps and puts into its events"#]],
        ),
    ]
}
