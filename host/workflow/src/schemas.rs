//! The JSON Schemas that workflow and tool files name: `schema = "schemas/x.json"` or `inline = { … }`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use twice_core::json;

use crate::diagnostic::{Code, Diagnostic};
use crate::files::{FileError, Files, is_inside};
use crate::read::{At, Kind, Place, Sink, Table};
use crate::schema::Schema;

/// Reads each schema file once, however often it is named.
pub(crate) struct Schemas<'a> {
    pub(crate) files: &'a dyn Files,
    pub(crate) found: &'a RefCell<Vec<Diagnostic>>,
    read: RefCell<BTreeMap<String, Result<Option<Value>, FileError>>>,
}

impl<'a> Schemas<'a> {
    pub(crate) fn new(files: &'a dyn Files, found: &'a RefCell<Vec<Diagnostic>>) -> Self {
        Self { files, found, read: RefCell::new(BTreeMap::new()) }
    }

    /// The schema that the member `key` names, as a path or as `{ inline = … }`. `None` when there is no such member, or
    /// none that can be used (which is reported).
    pub(crate) fn optional(&self, table: &Table<'_>, key: &'static str) -> Option<Value> {
        let item = table.item(key)?;
        match &item.kind {
            Kind::Text(_) => self.file(table.sink, &item.as_text(table.sink, key)?),
            Kind::Table(_) => self.required(table, key),
            Kind::Integer(_) | Kind::Float(_) | Kind::Flag(_) | Kind::Date | Kind::Array(_) => {
                let form = "a path, or `{ inline = … }`";
                item.wrong(table.sink, &format!("`{key}`"), form)
            }
        }
    }

    fn of(&self, table: &Table<'_>) -> Option<Value> {
        let path = table.text("schema");
        let inline = table.item("inline");
        match (path, inline) {
            (Some(path), None) => self.file(table.sink, &path),
            (None, Some(item)) => {
                let schema = item.as_table(table.sink, "`inline`").and(item.as_json(table.sink))?;
                self.compile(table.sink, item.place, schema)
            }
            (Some(_), Some(item)) => {
                table.sink.report(
                    item.place,
                    Code::Contradiction,
                    "both `schema` and `inline` are given",
                    "two schemas for one value could disagree",
                    "keep one of them",
                );
                None
            }
            (None, None) => None,
        }
    }

    /// The schema that the member `key` names; reported when it is missing.
    pub(crate) fn required(&self, table: &Table<'_>, key: &'static str) -> Option<Value> {
        let example = format!("{{ schema = \"schemas/{key}.json\" }}");
        let inner = table.required(key, &example)?.as_table(table.sink, &format!("`{key}`"))?;
        if !inner.members.contains_key("schema") && !inner.members.contains_key("inline") {
            inner.required("schema", "\"schemas/x.json\"");
        }
        let schema = self.of(&inner);
        inner.close();
        schema
    }

    fn file(&self, sink: Sink<'_>, path: &At<String>) -> Option<Value> {
        if !is_inside(&path.value) {
            sink.report(
                path.place,
                Code::BadValue,
                format!("`{}` is not a path within the project", path.value),
                "a project must mean the same wherever it is copied to",
                "write a path relative to the project's folder, with `/` and without `..`",
            );
            return None;
        }
        let known = self.read.borrow().get(&path.value).cloned();
        let schema = known.unwrap_or_else(|| {
            let read = self.files.read(&path.value).map(|text| self.parse(&path.value, &text));
            self.read.borrow_mut().insert(path.value.clone(), read.clone());
            read
        });
        match schema {
            Ok(schema) => schema,
            Err(error) => {
                sink.report(
                    path.place,
                    Code::Unreadable,
                    error.to_string(),
                    "without its schema nothing can be said about the values",
                    "create the file, or correct the path",
                );
                None
            }
        }
    }

    fn parse(&self, path: &str, text: &str) -> Option<Value> {
        let sink = Sink { file: path, found: self.found };
        match json::parse(text, text.len()) {
            Ok(schema) => self.compile(sink, Place::START, schema),
            Err(error) => {
                let place = match error.place {
                    json::Place::Text { line, column } => {
                        let number = |n| u32::try_from(n).unwrap_or(u32::MAX);
                        Place::new(number(line), number(column))
                    }
                    json::Place::Pointer(_) => Place::START,
                };
                sink.report(
                    place,
                    Code::Schema,
                    "this is not strict JSON",
                    error.problem.to_string(),
                    "correct it; a schema file holds one JSON value",
                );
                None
            }
        }
    }

    fn compile(&self, sink: Sink<'_>, place: Place, schema: Value) -> Option<Value> {
        match Schema::compile(&schema) {
            Ok(_) => Some(schema),
            Err(error) => {
                sink.report(
                    place,
                    Code::Schema,
                    error.to_string(),
                    "values are checked against it; other documents are never fetched",
                    "write a JSON Schema (draft 2020-12) that refers to itself alone (`#/…`)",
                );
                None
            }
        }
    }
}
