//! Webhooks: how what the provider posts by itself is signed, and what it says.

use std::collections::BTreeMap;

use serde_json::Value;
use twice_core::ids::Name;
use twice_core::webhook::{Encoding, KeyForm, Meaning, Part, Scheme, Stamp};

use super::promises::read_promise;
use super::secret_reference;
use crate::diagnostic::Code;
use crate::model::{HttpRequest, Operation, Webhook};
use crate::read::{At, Item, Kind, Place, Sink, Table, check_pointer};
use crate::template::refers_to;

/// Reads the section `webhook` of a tool.
pub(super) fn scheme(table: &Table<'_>) -> Option<Webhook> {
    let inner = table.table("webhook")?.called("`webhook`");
    let scheme = inner.required_because(
        "scheme",
        "\"standard\"",
        "each provider signs in its own way, and what is not verified is anybody's word",
    );
    let scheme = scheme.and_then(|item| match &item.kind {
        Kind::Table(_) => item.as_table(inner.sink, "`scheme`").and_then(own_scheme),
        Kind::Text(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Flag(_)
        | Kind::Date
        | Kind::Array(_) => named(&inner, item),
    });
    let keys = inner.required("secrets", "[\"env:PAYMENTS_WEBHOOK_SECRET\"]");
    let secrets =
        inner.list("secrets", |item| secret_reference(inner.sink, item, "a secret of `webhook`"));
    if let Some(Item { place, kind: Kind::Array(items) }) = keys
        && items.is_empty()
    {
        let form = "the key, or the old and the new one while they are exchanged";
        inner.bad_value("secrets", *place, "empty, so that nothing could be verified", form);
    }
    inner.close();
    Some(Webhook { scheme: scheme?, secrets })
}

fn named(table: &Table<'_>, item: &Item) -> Option<Scheme> {
    let words: Vec<(&str, &str)> = Scheme::NAMES.iter().map(|name| (*name, *name)).collect();
    Scheme::named(table.word_of("scheme", item, &words)?)
}

/// A scheme that has no name.
fn own_scheme(table: Table<'_>) -> Option<Scheme> {
    table.required("signature", "\"x-signature\"");
    let signature = header(&table, "signature");
    let separator = table.text("separator").and_then(|text| {
        let mut chars = text.value.chars();
        let (first, rest) = (chars.next(), chars.next());
        if first.is_none() || rest.is_some() {
            table.bad_value("separator", text.place, "not one character", "one, e.g. `,`");
        }
        first
    });
    let prefix = table.text("prefix").map(|text| text.value).unwrap_or_default();
    let encodings = [("hex", Encoding::Hex), ("base64", Encoding::Base64)];
    let encoding = table
        .required("encoding", "\"hex\"")
        .and_then(|item| table.word_of("encoding", item, &encodings));
    let signed = signed(&table);
    let id = header(&table, "id");
    let timestamp = timestamp(&table, separator.is_some());
    let keys = [("text", KeyForm::Text), ("base64", KeyForm::Base64)];
    let key = table.word("key", &keys).unwrap_or(KeyForm::Text);
    if let Some(signed) = &signed {
        for (part, key, what, there) in [
            (Part::Id, "id", "{id}", id.is_some()),
            (Part::Timestamp, "timestamp", "{timestamp}", timestamp.is_some()),
        ] {
            match (signed.value.contains(&part), there) {
                (true, false) => table.sink.report(
                    signed.place,
                    Code::MissingKey,
                    format!("`signed` has `{what}`, and nothing says where that stands"),
                    "what was signed could not be put together",
                    format!("add `{key}`, the header with it"),
                ),
                (false, true) => table.sink.report(
                    signed.place,
                    Code::Contradiction,
                    format!("`{key}` is stated, and `signed` does not have it"),
                    "anybody could have written it",
                    format!(
                        "put `{what}` into `signed` if the provider signs it, or remove `{key}`"
                    ),
                ),
                (true, true) | (false, false) => {}
            }
        }
    }
    if let (Some(Stamp::Part(part)), Some(signed)) = (&timestamp, &signed)
        && *part == prefix
    {
        table.sink.report(
            signed.place,
            Code::Contradiction,
            "the parts with the time and those with signatures begin alike",
            "one could not be told from the other",
            "state how each begins: `prefix = \"v1=\"`, `timestamp = { part = \"t=\" }`",
        );
    }
    table.close();
    Some(Scheme {
        signature: signature?,
        separator,
        prefix,
        encoding: encoding?,
        signed: signed?.value,
        id,
        timestamp,
        key,
    })
}

fn header(table: &Table<'_>, key: &'static str) -> Option<String> {
    let text = table.text(key)?;
    let good = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if text.value.is_empty() || !text.value.chars().all(good) {
        let form = "the name of a header, e.g. `x-signature`";
        table.bad_value(key, text.place, "not the name of a header", form);
        return None;
    }
    Some(text.value.to_ascii_lowercase())
}

fn signed(table: &Table<'_>) -> Option<At<Vec<Part>>> {
    let item = table.required("signed", "\"{timestamp}.{body}\"")?;
    let text = item.as_text(table.sink, "`signed`")?;
    let parts = Scheme::signed_parts(&text.value);
    if parts.is_none() {
        let form = "text with `{body}` at its end, and before it `{id}` and `{timestamp}` if they are signed, each once and apart from the next by a character like `.`";
        table.bad_value("signed", text.place, "not what could be signed", form);
    }
    Some(At { value: parts?, place: text.place })
}

/// Where the time stands: in a header, or behind a prefix in the header of the signature.
fn timestamp(table: &Table<'_>, separated: bool) -> Option<Stamp> {
    let inner = match &table.item("timestamp")?.kind {
        Kind::Table(_) => table.table("timestamp")?,
        Kind::Text(_)
        | Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Flag(_)
        | Kind::Date
        | Kind::Array(_) => return header(table, "timestamp").map(Stamp::Header),
    };
    inner.required("part", "\"t=\"");
    let part = inner.text("part");
    if let Some(part) = &part
        && (part.value.is_empty() || !separated)
    {
        let form =
            "how the part begins, e.g. `t=`; and state `separator`, so that the header has parts";
        inner.bad_value("part", part.place, "not to be found in the header", form);
    }
    inner.close();
    part.map(|part| Stamp::Part(part.value))
}

/// What an operation states about its events.
pub(super) enum Stated {
    /// What they mean.
    Meaning(Box<Meaning>, Place),
    /// Nothing.
    None,
    /// What is stated is wrong, which is reported.
    Broken,
}

/// Reads the section `webhook` of an operation.
pub(super) fn meaning(table: &Table<'_>, is_read: bool, posts: bool) -> Stated {
    let Some(item) = table.item("webhook") else { return Stated::None };
    if is_read {
        read_promise(table, "webhook");
        return Stated::None;
    }
    if !posts {
        table.sink.report(
            item.place,
            Code::MissingKey,
            "the operation says what events mean, and the tool does not state how they are signed",
            "what is not verified is anybody's word",
            "add `[webhook]` with `scheme` and `secrets` to the tool's file",
        );
    }
    let read = || {
        let inner = item.as_table(table.sink, "`webhook`")?;
        inner.required_because(
            "reference",
            "\"/data/object/metadata/effect_id\"",
            "an event that does not name the effect could be about anything",
        );
        let reference = inner.pointer("reference").filter(|at| {
            let somewhere = !at.value.is_empty();
            if !somewhere {
                let form = "a pointer into the event, e.g. `/data/metadata/effect_id`";
                inner.bad_value("reference", at.place, "the whole event", form);
            }
            somewhere
        });
        let object = inner.pointer("object");
        inner.required("succeeded", "{ \"/type\" = [\"refund.succeeded\"] }");
        let succeeded = conditions(&inner, "succeeded");
        let failed = conditions(&inner, "failed");
        if let (Some(yes), Some(no)) = (&succeeded, &failed) {
            check_apart(&inner, yes, no);
        }
        inner.close();
        Some(Meaning {
            reference: reference?.value,
            object: object.map(|at| at.value).unwrap_or_default(),
            succeeded: succeeded?,
            failed: failed.unwrap_or_default(),
        })
    };
    match read() {
        Some(meaning) => Stated::Meaning(Box::new(meaning), item.place),
        None => Stated::Broken,
    }
}

/// What must stand where.
type Conditions = Vec<(String, Vec<Value>)>;

/// Reports conditions for yes and no that the same event fulfils.
fn check_apart(table: &Table<'_>, yes: &Conditions, no: &Conditions) {
    let alike = |(pointer, values): &(String, Vec<Value>)| {
        no.iter().any(|(other, others)| {
            pointer == other && values.iter().any(|value| others.contains(value))
        })
    };
    if yes.len() == no.len() && yes.iter().all(alike) {
        table.sink.report(
            table.place,
            Code::Contradiction,
            "an event can be both what `succeeded` and what `failed` asks for",
            "such an event would be refused",
            "ask for values that exclude each other",
        );
    }
}

fn conditions(table: &Table<'_>, key: &'static str) -> Option<Conditions> {
    let inner = table.table(key)?;
    if inner.members.is_empty() {
        table.bad_value(key, inner.place, "empty", "at least one pointer and its values");
        return None;
    }
    let condition = |(pointer, member): (&String, &crate::read::Member)| {
        let at = At { value: pointer.clone(), place: member.key };
        let good = check_pointer(inner.sink, &at);
        let items = member.item.as_array(inner.sink, &format!("the values of `{key}`"))?;
        if items.is_empty() {
            let form = "the values of which one must be there";
            table.bad_value(key, member.item.place, "without a value", form);
        }
        let values = items.iter().map(|item| item.as_json(inner.sink)).collect::<Option<_>>()?;
        good.then_some((at.value, values))
    };
    inner.members.iter().map(condition).collect()
}

/// Reports events that could never name the effect.
pub(super) fn check_sight(sink: Sink<'_>, stated: &Stated, request: &HttpRequest) {
    if let Stated::Meaning(_, place) = stated
        && !refers_to(request, "/effect_id")
    {
        sink.report(
            *place,
            Code::BlindLookup,
            "events are found by our reference, and the request leaves no reference with the provider",
            "no event would ever name the effect",
            "put `{/effect_id}` into the request, in a field that the provider keeps and puts into its events",
        );
    }
}

/// Reports events that nobody says the meaning of.
pub(super) fn check_use(sink: Sink<'_>, place: Place, operations: &BTreeMap<Name, Operation>) {
    if operations.values().all(|operation| operation.webhook.is_none()) {
        sink.report(
            place,
            Code::MissingKey,
            "the tool states how events are signed, and no operation says what they mean",
            "they would all be refused",
            "add `[operation.NAME.webhook]` with `reference` and `succeeded` to an operation, or remove `[webhook]`",
        );
    }
}
