//! What the answers of an operation mean.

use serde_json::Value;
use twice_core::outcome::{Declarations, Echo, Matcher};

use super::check_args_pointer;
use crate::diagnostic::{Code, suggest};
use crate::read::{At, Item, Kind, Place, Table, check_pointer};
use crate::schemas::Schemas;
use crate::shape;

/// What a response section says.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    pub(super) schema: Option<Value>,
    /// All but what the key's section says.
    pub(super) declarations: Declarations,
}

/// Reads the section `response`; an operation without it takes any success.
pub(super) fn read(
    table: &Table<'_>,
    schemas: &Schemas<'_>,
    args: Option<&Value>,
) -> Option<Answers> {
    let Some(item) = table.item("response") else { return Some(Answers::default()) };
    let inner = item.as_table(table.sink, "`response`")?;
    let names_schema = inner.members.contains_key("schema");
    let schema = schemas.optional(&inner, "schema");
    let external_id = inner.pointer("external_id");
    let duplicate_id = inner.pointer("duplicate_id");
    let expose = inner.pointers("expose");
    let echo = echo(&inner);
    let in_result = external_id.iter().chain(&expose).chain(echo.iter().map(|(result, _)| result));
    for pointer in in_result {
        check_result_pointer(&inner, schema.as_ref(), pointer);
    }
    for (_, pointer) in &echo {
        check_args_pointer(table.sink, args, pointer);
    }
    let no_body = inner.flag("no_body");
    let wants_body =
        names_schema || external_id.is_some() || !expose.is_empty() || !echo.is_empty();
    if no_body && wants_body {
        inner.sink.report(
            inner.place,
            Code::Contradiction,
            "`no_body` is set, and the section says what is in the body",
            "a success without a body would then break the operation's own declarations",
            "remove `no_body`, or everything that reads the body",
        );
    }
    let declarations = Declarations {
        succeeded: matchers(&inner, "succeeded"),
        pending: matchers(&inner, "pending"),
        refused: matchers(&inner, "refused"),
        not_processed: matchers(&inner, "not_processed"),
        duplicate: matchers(&inner, "duplicate"),
        no_body,
        external_id: external_id.map(|at| at.value),
        duplicate_id: duplicate_id.map(|at| at.value),
        echo: echo
            .into_iter()
            .map(|(result, args)| Echo { result: result.value, args: args.value })
            .collect(),
        expose: expose.into_iter().map(|at| at.value).collect(),
        in_flight: Vec::new(),
        mismatch: Vec::new(),
        replayed: Vec::new(),
    };
    inner.close();
    (!names_schema || schema.is_some()).then_some(Answers { schema, declarations })
}

fn echo(table: &Table<'_>) -> Vec<(At<String>, At<String>)> {
    let Some(inner) = table.table("echo") else { return Vec::new() };
    let pairs = inner.members.iter().filter_map(|(key, member)| {
        let result = At { value: key.clone(), place: member.key };
        let args = member.item.as_pointer(inner.sink, "a pointer into the args in `echo`");
        (check_pointer(inner.sink, &result)).then_some(result).zip(args)
    });
    pairs.collect()
}

fn check_result_pointer(table: &Table<'_>, schema: Option<&Value>, pointer: &At<String>) {
    if let Some(schema) = schema
        && let shape::Place::Absent { known, missing } = shape::find(schema, &pointer.value)
    {
        table.sink.report(
            pointer.place,
            Code::NoSuchValue,
            format!("the response schema has no `{missing}`"),
            "the schema is closed (`additionalProperties` is false), so it can never be there",
            suggest("property", &missing, known),
        );
    }
}

/// Patterns for answers.
pub(super) fn matchers(table: &Table<'_>, key: &'static str) -> Vec<Matcher> {
    table.list(key, |item| matcher(table, key, item))
}

fn matcher(table: &Table<'_>, key: &str, item: &Item) -> Option<Matcher> {
    let inner = item.as_table(table.sink, &format!("a pattern in `{key}`"))?;
    let status = inner.integer("status", 100..=599).and_then(|status| u16::try_from(status).ok());
    let header = inner.text("header");
    let pointer = inner.pointer("pointer");
    let equals = inner.item("equals").map(|item| (item, item.as_json(table.sink)));
    let refuse = |place: Place, what: &str, fix: &str| {
        let why = "a pattern decides what an answer means, so it must leave no doubt about itself";
        table.sink.report(place, Code::BadValue, what, why, fix);
    };
    if let Some(header) = &header
        && (header.value.is_empty() || header.value.chars().any(|c| c.is_ascii_uppercase()))
    {
        refuse(header.place, "the header's name is not in lower case", "write it in lower case");
    }
    let given =
        inner.members.keys().any(|key| matches!(key.as_str(), "status" | "header" | "pointer"));
    if !given {
        refuse(
            inner.place,
            "the pattern matches every answer",
            "state at least one of `status`, `header`, `pointer`",
        );
    }
    if let Some((item, _)) = &equals {
        match (&header, &pointer) {
            (Some(_), Some(_)) => refuse(
                item.place,
                "`equals` stands beside both `header` and `pointer`",
                "use one of them; which of the two must be equal is not said",
            ),
            (None, None) => refuse(
                item.place,
                "`equals` stands beside neither `header` nor `pointer`",
                "state what must be equal",
            ),
            (Some(_), None) if !matches!(item.kind, Kind::Text(_)) => {
                refuse(
                    item.place,
                    "a header is compared with something else than a string",
                    "write a string",
                );
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
    }
    inner.close();
    Some(Matcher {
        status,
        header: header.map(|at| at.value),
        pointer: pointer.map(|at| at.value),
        equals: match equals {
            Some((_, value)) => Some(value?),
            None => None,
        },
    })
}
