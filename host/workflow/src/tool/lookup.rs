//! The lookup: how the provider is asked what became of a request.

use serde_json::Value;
use twice_core::contract::{Consistency, LookupBy, LookupContract};

use super::SOME_TIME;
use super::promises::read_promise;
use crate::diagnostic::Code;
use crate::model::{HttpRequest, Lookup};
use crate::read::{At, Item, Kind, Place, Sink, Table, check_pointer};
use crate::template::{Roots, refers_to};

/// A lookup as stated.
pub(super) struct Read {
    pub(super) lookup: Lookup,
    pub(super) contract: LookupContract,
    place: Place,
}

/// What an operation states about its lookup.
pub(super) enum Stated {
    /// There is one.
    Lookup(Box<Read>),
    /// There is none, explicitly or because the operation is a read.
    None,
    /// What is stated is wrong, which is reported.
    Broken,
}

/// Reads `lookup`.
pub(super) fn read(table: &Table<'_>, roots: &Roots<'_>, is_read: bool) -> Stated {
    if is_read {
        read_promise(table, "lookup");
        return Stated::None;
    }
    let why = "whether an unknown outcome can be looked up decides whether it needs a person; this is never guessed";
    let example = "\"none\"` or a table `[operation.NAME.lookup]";
    let Some(item) = table.required_because("lookup", example, why) else { return Stated::Broken };
    if matches!(&item.kind, Kind::Text(text) if text == "none") {
        return Stated::None;
    }
    let stated = item
        .as_table(table.sink, "`lookup`, if it is not \"none\",")
        .and_then(|inner| section(&inner.called("`lookup`"), roots, item.place).map(Box::new));
    stated.map_or(Stated::Broken, Stated::Lookup)
}

fn section(table: &Table<'_>, roots: &Roots<'_>, place: Place) -> Option<Read> {
    let words = [("key", LookupBy::Key), ("reference", LookupBy::Reference)];
    let by =
        table.required("by", "\"reference\"").and_then(|item| table.word_of("by", item, &words));
    let consistency = consistency(table);
    let request = roots.request(table);
    let absent = statuses(table, "absent");
    let items = table.pointer("items");
    let matches = matches(table, roots);
    let pending = values(table, "pending");
    let failed = values(table, "failed");
    let external_id = table.pointer("external_id");
    table.report_unknown();
    Some(Read {
        lookup: Lookup {
            request: request?,
            absent_statuses: absent,
            items: items.map(|at| at.value),
            matches,
            pending,
            failed,
            external_id: external_id.map(|at| at.value),
        },
        contract: LookupContract { by: by?, consistency: consistency? },
        place,
    })
}

fn consistency(table: &Table<'_>) -> Option<Consistency> {
    let item = table.required_because(
        "consistency",
        "\"strong\"` or `consistency = { lag = \"30s\" }",
        "a lookup that lags can find what was sent, but never prove that nothing was",
    )?;
    if let Kind::Table(_) = item.kind {
        let inner = item.as_table(table.sink, "`consistency`")?;
        inner.required("lag", "\"30s\"");
        let lag = inner.duration("lag", SOME_TIME);
        inner.close();
        return lag.map(|at| Consistency::Lagging(at.value));
    }
    table.word_of("consistency", item, &[("strong", Consistency::Strong)])
}

fn statuses(table: &Table<'_>, key: &'static str) -> Vec<u16> {
    table.list(key, |item| match item.kind {
        Kind::Integer(number @ 400..=499) => u16::try_from(number).ok(),
        Kind::Integer(_) => {
            let form = "statuses from 400 to 499: others say nothing about absence";
            table.bad_value(key, item.place, "not such a status", form);
            None
        }
        Kind::Text(_)
        | Kind::Float(_)
        | Kind::Flag(_)
        | Kind::Date
        | Kind::Array(_)
        | Kind::Table(_) => item.wrong(table.sink, &format!("a status in `{key}`"), "an integer"),
    })
}

/// The one pair of a table, its key a JSON Pointer; an empty table is as good as none.
fn pair<'a>(table: &Table<'a>, key: &'static str) -> Option<(String, &'a Item)> {
    let inner = table.table(key)?;
    if inner.members.is_empty() {
        return None;
    }
    let mut members = inner.members.iter();
    let (Some((pointer, member)), None) = (members.next(), members.next()) else {
        table.bad_value(
            key,
            inner.place,
            "not a single pair",
            "one pointer and what is expected there",
        );
        return None;
    };
    let at = At { value: pointer.clone(), place: member.key };
    check_pointer(table.sink, &at).then_some((at.value, &member.item))
}

fn matches(table: &Table<'_>, roots: &Roots<'_>) -> Option<(String, String)> {
    let (pointer, item) = pair(table, "matches")?;
    let ours = item.as_pointer(table.sink, "what `matches` compares with")?;
    roots.reference(table.sink, ours.place, &ours.value, false).then_some((pointer, ours.value))
}

fn values(table: &Table<'_>, key: &'static str) -> Option<(String, Vec<Value>)> {
    let (pointer, item) = pair(table, key)?;
    let items = item.as_array(table.sink, &format!("the values of `{key}`"))?;
    let values = items.iter().map(|item| item.as_json(table.sink)).collect::<Option<_>>()?;
    Some((pointer, values))
}

/// Reports a lookup that could never find what the request leaves behind.
pub(super) fn check_sight(sink: Sink<'_>, stated: &Stated, request: &HttpRequest) {
    let Stated::Lookup(read) = stated else { return };
    let refuse = |what: &str, fix: &str| {
        let why = "a lookup that finds nothing, or something else, would be taken for the truth";
        sink.report(read.place, Code::BlindLookup, what, why, fix);
    };
    let asks = |root: &str| {
        refers_to(&read.lookup.request, root)
            || read.lookup.matches.as_ref().is_some_and(|(_, ours)| ours == root)
    };
    match read.contract.by {
        LookupBy::Key if !asks("/key") => refuse(
            "the lookup is by key, and neither its request nor `matches` has `/key`",
            "put `{/key}` into the lookup's request, or state `by = \"reference\"`",
        ),
        LookupBy::Reference if !asks("/effect_id") && !asks("/key") => refuse(
            "the lookup is by reference, and neither its request nor `matches` has `/effect_id`",
            "put `{/effect_id}` into the lookup's request, or compare with it in `matches`",
        ),
        LookupBy::Reference if !refers_to(request, "/effect_id") && !refers_to(request, "/key") => {
            refuse(
                "the lookup is by reference, and the request leaves no reference with the provider",
                "put `{/effect_id}` into the request, in a field that the provider keeps",
            );
        }
        LookupBy::Key | LookupBy::Reference => {}
    }
}
