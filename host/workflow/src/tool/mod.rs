//! Tool files: what a tool can do, what it promises, and how it is asked.

mod answers;
mod lookup;
mod promises;
mod webhook;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;
use twice_core::approval;
use twice_core::contract::Contract;
use twice_core::ids::Name;
use twice_core::limits::RESPONSE_BYTES_MAX;
use twice_core::outcome::Declarations;

use crate::diagnostic::Code;
use crate::model::{CHILD_TOOL, HttpTool, Operation, Tool, ToolKind};
use crate::read::{At, Item, Place, Sink, Table};
use crate::schemas::Schemas;
use crate::shape;
use crate::template::{Roots, absent};
use crate::units::DURATION_MAX_MS;

/// Time for establishing a connection, unless the file states another. Milliseconds.
pub const CONNECT_TIMEOUT_MS: u64 = 3_000;

/// Any duration but none.
const SOME_TIME: std::ops::RangeInclusive<u64> = 1..=DURATION_MAX_MS;
/// Kinds that the design names and this version does not perform.
const LATER_KINDS: [&str; 4] = ["outbox", "timer", "callback", "mcp"];
/// What the host does itself, and how it is asked for at a slot.
const OWN_KINDS: [(&str, &str); 2] = [
    (approval::TOOL, "`approve = { by = \"finance\", expires = \"24h\" }`"),
    (CHILD_TOOL, "`workflow = \"ship-order\"`"),
];

/// Reads a tool file. The tool is `None` when something in it is wrong, so that whoever names it is not told that it does
/// not exist.
pub(crate) fn read(
    sink: Sink<'_>,
    root: &Item,
    schemas: &Schemas<'_>,
) -> Option<(At<Name>, Option<Tool>)> {
    let table = root.as_table(sink, "the tool file")?;
    let name = table.required("tool", "\"payments\"").and_then(|i| i.as_name(sink, "a tool"));
    let own =
        [(CHILD_TOOL, "it starts child workflows"), (approval::TOOL, "it asks for approvals")];
    for (own, does) in own {
        if let Some(name) = name.as_ref().filter(|name| name.value.as_str() == own) {
            let what = format!("`{own}`, which is the host's own tool: {does}");
            table.bad_value("tool", name.place, &what, "another name");
        }
    }
    let version = table.required("version", "\"1\"").and_then(|i| i.as_text(sink, "`version`"));
    let kind = kind(&table);
    let model = table.flag("model");
    let secrets = secrets(&table);
    let base_url = base_url(&table, !secrets.is_empty());
    let posts = table.item("webhook").map(|item| item.place);
    let webhook = webhook::scheme(&table);
    let ca_file = table.text("ca_file").map(|at| at.value);
    let rate = rate(&table);
    let concurrency = table.integer("concurrency", 1..=10_000);
    let names: Vec<Name> = secrets.keys().cloned().collect();
    let wit = table.interface("wit");
    let operations = operations(&table, schemas, &names, posts.is_some());
    if let (Some(place), Some(operations)) = (posts, &operations) {
        webhook::check_use(sink, place, operations);
    }
    table.close();
    let tool = || {
        if posts.is_some() && webhook.is_none() {
            return None;
        }
        Some(Tool {
            name: name.clone()?.value,
            version: version?.value,
            model,
            kind: ToolKind::Http(HttpTool {
                base_url: kind.and(base_url)?,
                secrets: secrets.into_iter().map(|(k, v)| Some((k, v?))).collect::<Option<_>>()?,
                ca_file,
                rate_per_second: rate,
                concurrency,
            }),
            wit: wit.map(|at| at.value),
            webhook,
            operations: operations?,
        })
    };
    let tool = tool();
    name.map(|name| (name, tool))
}

fn kind(table: &Table<'_>) -> Option<()> {
    let item = table.required("kind", "\"http\"")?;
    let text = item.as_text(table.sink, "`kind`")?;
    if LATER_KINDS.contains(&text.value.as_str()) {
        table.sink.report(
            text.place,
            Code::NotYet,
            format!("tools of kind `{}` are not supported yet", text.value),
            "nothing here could perform their operations",
            "use `kind = \"http\"`",
        );
        return None;
    }
    if let Some((_, slot)) = OWN_KINDS.iter().find(|(own, _)| *own == text.value) {
        table.sink.report(
            text.place,
            Code::BadValue,
            format!("`kind` is `{}`, which no tool file has", text.value),
            "it is the host itself that does this",
            format!("write {slot} at the slot that wants it"),
        );
        return None;
    }
    table.word_of("kind", item, &[("http", ())])
}

/// The secrets by name; `None` for one that is refused, so that its uses are not reported as well.
fn secrets(table: &Table<'_>) -> BTreeMap<Name, Option<String>> {
    let Some(inner) = table.table("secrets") else { return BTreeMap::new() };
    let mut secrets = BTreeMap::new();
    for (key, member) in inner.members {
        let Some(name) = name_of(table.sink, key, member.key, "a secret") else { continue };
        secrets.insert(
            name,
            secret_reference(table.sink, &member.item, &format!("the secret `{key}`")),
        );
    }
    secrets
}

/// A reference to a secret; anything else is refused.
fn secret_reference(sink: Sink<'_>, item: &Item, what: &str) -> Option<String> {
    let text = item.as_text(sink, what)?.value;
    let good = is_env(&text) || text.strip_prefix("file:").is_some_and(|path| !path.is_empty());
    if !good {
        // The text is not repeated: it may well be the secret (I10).
        sink.report(
            item.place,
            Code::SecretLiteral,
            format!("{what} is not a reference"),
            "a secret in a file ends up in version control, in pinned definitions and in exports",
            "write `env:NAME` or `file:PATH`; if this was a real secret, replace it at the provider",
        );
    }
    good.then_some(text)
}

pub(crate) fn is_env(text: &str) -> bool {
    text.strip_prefix("env:").is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn base_url(table: &Table<'_>, secrets: bool) -> Option<String> {
    let item = table.required("base_url", "\"env:PAYMENTS_URL\"")?;
    let text = item.as_text(table.sink, "`base_url`")?;
    let rest = text.value.strip_prefix("https://").or_else(|| text.value.strip_prefix("http://"));
    let host = |rest: &str| {
        let authority = rest.split('/').next().unwrap_or_default();
        !authority.is_empty() && !authority.starts_with(':')
    };
    let plain = |c: char| c.is_ascii_graphic() && !"@?#{}\\\"<>".contains(c);
    if is_env(&text.value) || rest.is_some_and(|rest| host(rest) && rest.chars().all(plain)) {
        if secrets && leaves_the_machine_in_the_clear(&text.value) {
            table.sink.report(
                text.place,
                Code::PlainHttp,
                "`base_url` is `http://`, and the tool has secrets",
                "whoever is on the way to that host can read them, and change what is asked and answered",
                "use `https://`; with a certificate of your own, state `ca_file`",
            );
        }
        return Some(text.value);
    }
    // The text is not repeated: a URL with a user in it may hold a password (I10).
    let form = "`env:NAME`, or `http://` or `https://` with a host and perhaps a path; no user, query or fragment";
    table.bad_value("base_url", text.place, "neither a plain URL nor a reference to one", form);
    None
}

/// Whether a URL is plain HTTP to a host that is not this one.
fn leaves_the_machine_in_the_clear(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(inner) => inner.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    !loopback && !host.eq_ignore_ascii_case("localhost")
}

fn rate(table: &Table<'_>) -> Option<u32> {
    let inner = table.table("rate")?;
    inner.required("per_second", "50");
    let rate = inner.integer("per_second", 1..=100_000);
    inner.close();
    rate
}

fn operations(
    table: &Table<'_>,
    schemas: &Schemas<'_>,
    secrets: &[Name],
    posts: bool,
) -> Option<BTreeMap<Name, Operation>> {
    let item = table.required("operation", "{ … }`, as a table `[operation.NAME]")?;
    let inner = item.as_table(table.sink, "`operation`")?;
    let mut operations = BTreeMap::new();
    let mut good = true;
    for (key, member) in inner.members {
        let name = name_of(table.sink, key, member.key, "an operation");
        let what = format!("operation `{key}`");
        let operation = member
            .item
            .as_table(table.sink, &what)
            .and_then(|table| operation(&table, schemas, secrets, posts));
        match name.zip(operation) {
            Some((name, operation)) => drop(operations.insert(name, operation)),
            None => good = false,
        }
    }
    good.then_some(operations)
}

fn operation(
    table: &Table<'_>,
    schemas: &Schemas<'_>,
    secrets: &[Name],
    posts: bool,
) -> Option<Operation> {
    let args = schemas.required(table, "args");
    let incidental = table.pointers("incidental");
    for pointer in &incidental {
        check_args_pointer(table.sink, args.as_ref(), pointer);
    }
    let read = table.flag("read");
    let times = promises::times(table, read);
    let connect_timeout = table.duration("connect_timeout", SOME_TIME);
    let response_max = table.size("max_response", 1..=RESPONSE_BYTES_MAX);
    let key = promises::key(table, read);
    let roots = Roots { args: args.as_ref(), secrets, key: key.may_be_placed() };
    let request = section(table, "request", |inner| roots.request(inner));
    let lookup = lookup::read(table, &roots, read);
    let webhook = webhook::meaning(table, read, posts);
    let answers = answers::read(table, schemas, args.as_ref());
    table.report_unknown();
    if let Some(request) = &request {
        promises::check_placement(table.sink, &key, request);
        lookup::check_sight(table.sink, &lookup, request);
        webhook::check_sight(table.sink, &webhook, request);
    }
    let key = key.value(table.sink, answers.as_ref());
    let (lookup, by) = match lookup {
        lookup::Stated::Lookup(lookup) => (Some(lookup.lookup), Some(lookup.contract)),
        lookup::Stated::None => (None, None),
        lookup::Stated::Broken => return None,
    };
    let webhook = match webhook {
        webhook::Stated::Meaning(meaning, _) => Some(*meaning),
        webhook::Stated::None => None,
        webhook::Stated::Broken => return None,
    };
    let (carrier, key, signals) = match key {
        promises::Valued::Key { carrier, contract, signals } => {
            (Some(carrier), Some(contract), signals)
        }
        promises::Valued::None => (None, None, promises::Signals::default()),
        promises::Valued::Broken => return None,
    };
    let (times, answers) = (times?, answers?);
    let contract = Contract {
        read,
        key,
        lookup: by,
        settle_ms: times.settle_ms,
        timeout_ms: times.timeout.value,
        retry: times.retry.clone(),
        horizon_ms: times.horizon.as_ref().map_or(0, |at| at.value),
        settled_here: false,
    };
    if !promises::check_windows(table.sink, &contract, &times, signals.retention) {
        return None;
    }
    Some(Operation {
        args_schema: args?,
        incidental: incidental.into_iter().map(|at| at.value).collect(),
        request: request?,
        key_carrier: carrier,
        lookup,
        webhook,
        response_schema: answers.schema,
        declarations: Declarations {
            in_flight: signals.in_flight,
            mismatch: signals.mismatch,
            replayed: signals.replayed,
            ..answers.declarations
        },
        connect_timeout_ms: connect_timeout
            .map_or(CONNECT_TIMEOUT_MS.min(contract.timeout_ms), |at| at.value),
        response_bytes_max: response_max.map_or(RESPONSE_BYTES_MAX, |at| at.value),
        contract,
    })
}

fn section<T>(
    table: &Table<'_>,
    key: &'static str,
    read: impl FnOnce(&Table<'_>) -> Option<T>,
) -> Option<T> {
    let item =
        table.required(key, "{ … }`, or as a table of its own, `[operation.NAME.request]")?;
    let inner = item.as_table(table.sink, &format!("`{key}`"))?;
    let value = read(&inner);
    inner.close();
    value
}

pub(crate) fn name_of(sink: Sink<'_>, key: &str, place: Place, what: &str) -> Option<Name> {
    let item = Item { place, kind: crate::read::Kind::Text(key.to_owned()) };
    item.as_name(sink, what).map(|at| at.value)
}

/// Reports a pointer that no args can have.
fn check_args_pointer(sink: Sink<'_>, args: Option<&Value>, pointer: &At<String>) {
    if let Some(schema) = args
        && let shape::Place::Absent { known, missing } = shape::find(schema, &pointer.value)
    {
        absent(sink, pointer.place, &missing, &known);
    }
}
