//! TOML with places: each value knows its line and column, each table which of its keys were read, so that whatever is
//! wrong can be shown where it stands.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde_json::Value;
use toml::de::{DeTable, DeValue};
use twice_core::ids::Name;
use twice_core::wit::InterfaceName;

use crate::diagnostic::{Code, Diagnostic, listed, nearest};
use crate::shape::is_pointer;
use crate::units::{self, DURATION_FORM, SIZE_FORM};

/// Largest integer that every JSON reader keeps exact.
const EXACT_INTEGER_MAX: i64 = (1 << 53) - 1;

/// A line and a column in characters, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    line: u32,
    column: u32,
}

impl Place {
    /// Where a file begins; for what is missing from a whole file.
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    pub(crate) fn new(line: u32, column: u32) -> Self {
        Self { line: line.max(1), column: column.max(1) }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

impl<T> At<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At { value: change(self.value), place: self.place }
    }
}

/// Takes what is found wrong with one file.
#[derive(Clone, Copy)]
pub(crate) struct Sink<'a> {
    pub(crate) file: &'a str,
    pub(crate) found: &'a RefCell<Vec<Diagnostic>>,
}

impl Sink<'_> {
    pub(crate) fn report(
        &self,
        place: Place,
        code: Code,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.found.borrow_mut().push(Diagnostic {
            file: self.file.to_owned(),
            line: place.line,
            column: place.column,
            code,
            what: what.into(),
            why: why.into(),
            fix: fix.into(),
        });
    }
}

/// A TOML value with places.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

/// The kinds of TOML values.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    Date,
    Array(Vec<Item>),
    Table(Members),
}

/// The members of a table, by key.
pub(crate) type Members = BTreeMap<String, Member>;

/// A member of a table.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) key: Place,
    pub(crate) item: Item,
}

/// Reads a file. `None` when it is not TOML; what is wrong is reported then, all of it.
pub(crate) fn parse(sink: Sink<'_>, text: &str) -> Option<Item> {
    let lines = Lines::of(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let place = error.span().map_or(Place::START, |span| lines.place(span.start));
        sink.report(
            place,
            Code::Syntax,
            format!("this is not TOML: {}", error.message()),
            "nothing in a file can be trusted while a part of it cannot be read",
            "correct it as the TOML specification says",
        );
    }
    let kind = Kind::Table(members(&lines, table.get_ref())?);
    errors.is_empty().then_some(Item { place: Place::START, kind })
}

fn members(lines: &Lines<'_>, table: &DeTable<'_>) -> Option<Members> {
    let mut members = Members::new();
    for (key, value) in table.iter() {
        let item = item(lines, value.span().start, value.get_ref())?;
        let member = Member { key: lines.place(key.span().start), item };
        members.insert(key.get_ref().to_string(), member);
    }
    Some(members)
}

fn item(lines: &Lines<'_>, start: usize, value: &DeValue<'_>) -> Option<Item> {
    let kind = match value {
        DeValue::String(text) => Kind::Text(text.to_string()),
        DeValue::Integer(number) => {
            let exact = i64::from_str_radix(number.as_str(), number.radix());
            // What does not even fit 64 bits is out of every range that is checked later.
            Kind::Integer(exact.unwrap_or(i64::MAX))
        }
        DeValue::Float(number) => Kind::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Kind::Flag(*flag),
        DeValue::Datetime(_) => Kind::Date,
        DeValue::Array(items) => Kind::Array(
            items
                .iter()
                .map(|value| item(lines, value.span().start, value.get_ref()))
                .collect::<Option<_>>()?,
        ),
        DeValue::Table(table) => Kind::Table(members(lines, table)?),
    };
    Some(Item { place: lines.place(start), kind })
}

/// Finds lines and columns.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let before = self.text.get(self.starts[line - 1]..offset).unwrap_or_default();
        Place { line: count(line), column: count(before.chars().count() + 1) }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Item {
    /// What it is, in words.
    pub(crate) const fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Text(_) => "a string",
            Kind::Integer(_) => "an integer",
            Kind::Float(_) => "a float",
            Kind::Flag(_) => "a truth value",
            Kind::Date => "a date",
            Kind::Array(_) => "an array",
            Kind::Table(_) => "a table",
        }
    }

    pub(crate) fn as_text(&self, sink: Sink<'_>, what: &str) -> Option<At<String>> {
        match &self.kind {
            Kind::Text(text) => Some(At { value: text.clone(), place: self.place }),
            _ => self.wrong(sink, what, "a string"),
        }
    }

    pub(crate) fn as_name(&self, sink: Sink<'_>, what: &str) -> Option<At<Name>> {
        let text = self.as_text(sink, what)?;
        match Name::parse(text.value) {
            Ok(value) => Some(At { value, place: self.place }),
            Err(error) => {
                sink.report(
                    self.place,
                    Code::BadValue,
                    format!("`{}` cannot be the name of {what}", error.text),
                    "names become part of keys, pointers and file names, so they are kept plain",
                    format!("use {}", error.rule),
                );
                None
            }
        }
    }

    pub(crate) fn as_pointer(&self, sink: Sink<'_>, what: &str) -> Option<At<String>> {
        let text = self.as_text(sink, what)?;
        check_pointer(sink, &text).then_some(text)
    }

    pub(crate) fn as_array(&self, sink: Sink<'_>, what: &str) -> Option<&[Self]> {
        match &self.kind {
            Kind::Array(items) => Some(items),
            _ => self.wrong(sink, what, "an array"),
        }
    }

    pub(crate) fn as_table<'a>(&'a self, sink: Sink<'a>, what: &str) -> Option<Table<'a>> {
        match &self.kind {
            Kind::Table(members) => Some(Table {
                sink,
                members,
                place: self.place,
                what: what.to_owned(),
                read: RefCell::new(BTreeSet::new()),
            }),
            _ => self.wrong(sink, what, "a table"),
        }
    }

    /// The value as JSON.
    pub(crate) fn as_json(&self, sink: Sink<'_>) -> Option<Value> {
        let refuse = |what: &str| {
            sink.report(
                self.place,
                Code::BadValue,
                format!("{what} cannot be written as JSON"),
                "requests and schemas are JSON, and what is hashed must mean the same everywhere",
                "write it as a string, or as a number of at most 2^53-1",
            );
            None
        };
        match &self.kind {
            Kind::Text(text) => Some(Value::String(text.clone())),
            Kind::Integer(number) if number.unsigned_abs() > EXACT_INTEGER_MAX.unsigned_abs() => {
                refuse("this integer")
            }
            Kind::Integer(number) => Some(Value::from(*number)),
            Kind::Float(number) if !number.is_finite() => refuse("this float"),
            Kind::Float(number) => Some(Value::from(*number)),
            Kind::Flag(flag) => Some(Value::Bool(*flag)),
            Kind::Date => refuse("a date"),
            Kind::Array(items) => {
                items.iter().map(|item| item.as_json(sink)).collect::<Option<_>>().map(Value::Array)
            }
            Kind::Table(members) => members
                .iter()
                .map(|(key, member)| Some((key.clone(), member.item.as_json(sink)?)))
                .collect::<Option<serde_json::Map<_, _>>>()
                .map(Value::Object),
        }
    }

    /// Reports that it is of the wrong type.
    pub(crate) fn wrong<T>(&self, sink: Sink<'_>, what: &str, wanted: &str) -> Option<T> {
        sink.report(
            self.place,
            Code::WrongType,
            format!("{what} is {}, not {wanted}", self.kind_name()),
            "a value is never converted silently: what was meant could be something else",
            format!("write {wanted}"),
        );
        None
    }
}

/// Reports a text that is not a JSON Pointer.
pub(crate) fn check_pointer(sink: Sink<'_>, text: &At<String>) -> bool {
    let good = is_pointer(&text.value);
    if !good {
        sink.report(
            text.place,
            Code::Pointer,
            format!("`{}` is not a JSON Pointer", text.value),
            "places in JSON are named by JSON Pointers (RFC 6901)",
            "start with `/` and separate names by `/`; write `~1` for `/` and `~0` for `~` within a name",
        );
    }
    good
}

/// A table being read.
pub(crate) struct Table<'a> {
    pub(crate) sink: Sink<'a>,
    pub(crate) members: &'a Members,
    pub(crate) place: Place,
    what: String,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Table<'a> {
    /// The member of that key.
    pub(crate) fn item(&self, key: &'static str) -> Option<&'a Item> {
        self.read.borrow_mut().insert(key);
        self.members.get(key).map(|member| &member.item)
    }

    /// The same table under another name.
    pub(crate) fn called(mut self, what: &str) -> Self {
        what.clone_into(&mut self.what);
        self
    }

    /// The member of that key; reported when it is missing, with an example to write.
    pub(crate) fn required(&self, key: &'static str, example: &str) -> Option<&'a Item> {
        self.required_because(key, example, "there is no default that would be right for everyone")
    }

    /// As [`Table::required`], with the reason.
    pub(crate) fn required_because(
        &self,
        key: &'static str,
        example: &str,
        why: &str,
    ) -> Option<&'a Item> {
        let item = self.item(key);
        if item.is_none() {
            self.sink.report(
                self.place,
                Code::MissingKey,
                format!("{} does not state `{key}`", self.what),
                why,
                format!("add it, for example `{key} = {example}`"),
            );
        }
        item
    }

    pub(crate) fn text(&self, key: &'static str) -> Option<At<String>> {
        self.item(key)?.as_text(self.sink, &quoted(key))
    }

    pub(crate) fn pointer(&self, key: &'static str) -> Option<At<String>> {
        self.item(key)?.as_pointer(self.sink, &quoted(key))
    }

    /// The name of a WIT interface.
    pub(crate) fn interface(&self, key: &'static str) -> Option<At<String>> {
        let text = self.text(key)?;
        if InterfaceName::parse(&text.value).is_some() {
            return Some(text);
        }
        let what = format!("`{}`, which is not the name of an interface of a tool", text.value);
        self.bad_value(key, text.place, &what, InterfaceName::FORM);
        None
    }

    /// A truth value; `false` when there is none.
    pub(crate) fn flag(&self, key: &'static str) -> bool {
        let Some(item) = self.item(key) else { return false };
        match item.kind {
            Kind::Flag(flag) => flag,
            _ => item.wrong(self.sink, &quoted(key), "`true` or `false`").unwrap_or(false),
        }
    }

    pub(crate) fn integer(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let item = self.item(key)?;
        let Kind::Integer(number) = item.kind else {
            return item.wrong(self.sink, &quoted(key), "an integer");
        };
        let good = u32::try_from(number).ok().filter(|number| range.contains(number));
        if good.is_none() {
            let form = format!("a number from {} to {}", range.start(), range.end());
            self.bad_value(key, item.place, "out of range", &form);
        }
        good
    }

    /// Milliseconds.
    pub(crate) fn duration(
        &self,
        key: &'static str,
        range_ms: RangeInclusive<u64>,
    ) -> Option<At<u64>> {
        let text = self.text(key)?;
        let Some(value) = units::duration_ms(&text.value) else {
            let what = format!("`{}`, which is not a duration", text.value);
            self.bad_value(key, text.place, &what, DURATION_FORM);
            return None;
        };
        self.within(key, At { value, place: text.place }, range_ms, units::duration_text)
    }

    /// Bytes.
    pub(crate) fn size(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<At<u64>> {
        let text = self.text(key)?;
        let Some(value) = units::size_bytes(&text.value) else {
            let what = format!("`{}`, which is not a size", text.value);
            self.bad_value(key, text.place, &what, SIZE_FORM);
            return None;
        };
        self.within(key, At { value, place: text.place }, range, units::size_text)
    }

    fn within(
        &self,
        key: &str,
        at: At<u64>,
        range: RangeInclusive<u64>,
        shown: fn(u64) -> String,
    ) -> Option<At<u64>> {
        if range.contains(&at.value) {
            return Some(at);
        }
        let form = format!("{} to {}", shown(*range.start()), shown(*range.end()));
        self.bad_value(key, at.place, &format!("{}: out of range", shown(at.value)), &form);
        None
    }

    /// Reports a value that is not one of those possible.
    pub(crate) fn bad_value(&self, key: &str, place: Place, what: &str, form: &str) {
        self.sink.report(
            place,
            Code::BadValue,
            format!("`{key}` is {what}"),
            "every limit and choice is explicit, so that a slip cannot pass for a decision",
            format!("write {form}"),
        );
    }

    /// One of some words.
    pub(crate) fn word<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        self.word_of(key, self.item(key)?, words)
    }

    pub(crate) fn word_of<T: Copy>(
        &self,
        key: &'static str,
        item: &Item,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = item.as_text(self.sink, &quoted(key))?;
        let found = words.iter().find(|(word, _)| *word == text.value);
        if found.is_none() {
            let form = format!("one of: {}", listed(words.iter().map(|(word, _)| *word)));
            self.bad_value(
                key,
                text.place,
                &format!("`{}`, which means nothing", text.value),
                &form,
            );
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// An array of things that `read` takes from its items; empty when there is none.
    pub(crate) fn list<T>(
        &self,
        key: &'static str,
        mut read: impl FnMut(&'a Item) -> Option<T>,
    ) -> Vec<T> {
        let array = self.item(key).and_then(|item| item.as_array(self.sink, &quoted(key)));
        array.unwrap_or_default().iter().filter_map(&mut read).collect()
    }

    pub(crate) fn pointers(&self, key: &'static str) -> Vec<At<String>> {
        self.list(key, |item| item.as_pointer(self.sink, &format!("an element of `{key}`")))
    }

    pub(crate) fn table(&self, key: &'static str) -> Option<Table<'a>> {
        self.item(key)?.as_table(self.sink, &quoted(key))
    }

    /// Refuses a key that has a meaning, but not in this version.
    pub(crate) fn not_yet(&self, key: &'static str, what: &str, fix: &str) {
        self.read.borrow_mut().insert(key);
        if let Some(member) = self.members.get(key) {
            self.sink.report(
                member.key,
                Code::NotYet,
                format!("`{key}` ({what}) is not supported yet"),
                "leaving it unread would run the workflow without what it asks for",
                fix,
            );
        }
    }

    /// Ends the reading: reports every key that nothing read.
    pub(crate) fn close(self) {
        self.report_unknown();
    }

    /// As [`Table::close`], for a table that is borrowed.
    pub(crate) fn report_unknown(&self) {
        let read = self.read.borrow();
        for (key, member) in self.members {
            if read.contains(key.as_str()) {
                continue;
            }
            let fix = nearest(key, read.iter().copied()).map_or_else(
                || format!("remove it; {} knows: {}", self.what, listed(read.iter().copied())),
                |near| format!("did you mean `{near}`?"),
            );
            self.sink.report(
                member.key,
                Code::UnknownKey,
                format!("{} has no key `{key}`", self.what),
                "a key that nothing reads would look like a promise and be none",
                fix,
            );
        }
    }
}

fn quoted(key: &str) -> String {
    format!("`{key}`")
}
