//! The WIT of a tool: one interface with a function for each operation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;
use twice_core::ids::Name;
use twice_core::wit::{FunctionType, InterfaceName, WitType, wit_name, wit_name_of};

use super::receipt;
use super::schema::{At, is_closed, items, prefix, properties, required, without_references};
use crate::model::{Operation, Tool};

/// Widest line of documentation. Characters.
const DOC_WIDTH: usize = 100;
/// Most flags of a set that every language can hold.
const FLAGS_MAX: usize = 32;

/// The WIT of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The package.
    pub text: String,
    /// The functions as the host reads them from a component that is built against it.
    pub functions: BTreeMap<String, FunctionType>,
    /// Operations that have no function, and why.
    pub left_out: Vec<(Name, String)>,
}

/// Writes the WIT of a tool, as the interface `name`. The operations in `each` get the parameter `item`, which a slot with
/// `for_each` needs.
#[must_use]
pub fn write(tool: &Tool, name: &InterfaceName, each: &BTreeSet<Name>) -> Written {
    let mut writer = Writer::default();
    let mut functions = BTreeMap::new();
    let mut left_out = Vec::new();
    let mut lines = String::new();
    for (operation_name, operation) in &tool.operations {
        let function = match wit_name_of(operation_name.as_str()) {
            Some(function) if functions.contains_key(&function) => {
                left_out.push((
                    operation_name.clone(),
                    format!("`{function}` is the function of another operation"),
                ));
                continue;
            }
            Some(function) => function,
            None => {
                let why = "its name is not one of WIT: words of letters and digits, each with a letter first, joined by `-` or `_`";
                left_out.push((operation_name.clone(), why.to_owned()));
                continue;
            }
        };
        let ty = writer.function(&mut lines, operation, &function, each.contains(operation_name));
        functions.insert(function, ty);
    }
    let mut text = format!("package {};\n\n", name.package_id());
    doc(
        &mut text,
        "",
        &format!(
            "The operations of the tool `{}`, version {}, as functions.",
            tool.name, tool.version
        ),
    );
    doc(
        &mut text,
        "",
        "Each call is a request for an effect: it returns the receipt, the recorded one if it was asked before, or why there is none.",
    );
    let _ = writeln!(text, "interface {} {{", escaped(&name.interface));
    let _ = writeln!(text, "    use twice:node/effects@0.1.0.{{effect-error}};");
    if writer.json {
        text.push('\n');
        doc(&mut text, "    ", "JSON text (RFC 8259): what stands here has no type in WIT.");
        text.push_str("    type json = string;\n");
    }
    for declared in &writer.declared {
        text.push('\n');
        text.push_str(declared);
    }
    text.push_str(&lines);
    for (operation, why) in &left_out {
        let _ = write!(text, "\n    // The operation `{operation}` has no function: {why}.\n");
    }
    text.push_str("}\n");
    Written { text, functions, left_out }
}

#[derive(Default)]
struct Writer {
    declared: Vec<String>,
    names: BTreeSet<String>,
    json: bool,
}

/// A type as it is written, and what it is.
struct Typed {
    text: String,
    ty: WitType,
}

impl Typed {
    fn plain(ty: WitType) -> Self {
        Self { text: ty.to_string(), ty }
    }
}

impl Writer {
    fn function(
        &mut self,
        out: &mut String,
        operation: &Operation,
        function: &str,
        item: bool,
    ) -> FunctionType {
        // Names of functions and types are of one space.
        self.names.insert(function.to_owned());
        let schema = without_references(&operation.args_schema, &operation.args_schema);
        let mut params = Vec::new();
        if item {
            params.push(("item".to_owned(), Typed::plain(WitType::U32)));
        }
        let no_args =
            properties(&schema).is_none_or(serde_json::Map::is_empty) && is_closed(&schema);
        if !no_args {
            params.push(("args".to_owned(), self.ty(&schema, &format!("{function}-args"))));
        }
        let body = receipt::schema(operation);
        let ok = body.map(|schema| self.ty(&schema, &format!("{function}-receipt")));
        out.push('\n');
        let described = text_of(&schema, "description").or_else(|| text_of(&schema, "title"));
        doc(
            out,
            "    ",
            &format!(
                "Class {}: {}.",
                operation.contract.class().as_str(),
                operation.contract.class().promise()
            ),
        );
        if let Some(described) = described {
            doc(out, "    ", &format!("Args: {described}"));
        }
        if item {
            doc(
                out,
                "    ",
                "`item` picks the element of the array that the workflow bound to the slot, from 0.",
            );
        }
        let written: Vec<String> =
            params.iter().map(|(name, typed)| format!("{name}: {}", typed.text)).collect();
        let ok_text = ok.as_ref().map_or("_", |typed| &typed.text);
        let _ = writeln!(
            out,
            "    {}: func({}) -> result<{ok_text}, effect-error>;",
            escaped(function),
            written.join(", ")
        );
        FunctionType {
            params: params.into_iter().map(|(name, typed)| (name, typed.ty)).collect(),
            result: Some(WitType::Result(
                ok.map(|typed| Box::new(typed.ty)),
                Some(Box::new(WitType::effect_error())),
            )),
        }
    }

    /// The type of the values of a schema; a declaration that it needs is called `name`.
    fn ty(&mut self, schema: &Value, name: &str) -> Typed {
        let place = At::of(schema);
        let inner = self.present(&place, name);
        if !place.nullable || inner.ty == WitType::String && inner.text == "json" {
            return inner;
        }
        Typed { text: format!("option<{}>", inner.text), ty: WitType::Option(Box::new(inner.ty)) }
    }

    fn present(&mut self, place: &At<'_>, name: &str) -> Typed {
        if let Some(cases) = place.cases() {
            return self.cases(place, &cases, name);
        }
        let only = |kind| place.is_only(kind);
        if only("string") {
            Typed::plain(WitType::String)
        } else if only("boolean") {
            Typed::plain(WitType::Bool)
        } else if only("integer") {
            Typed::plain(integer(place.schema))
        } else if only("number") {
            Typed::plain(WitType::F64)
        } else if only("array") {
            self.array(place, name)
        } else if only("object") {
            self.record(place.schema, name)
        } else {
            self.json()
        }
    }

    fn json(&mut self) -> Typed {
        self.json = true;
        Typed { text: "json".to_owned(), ty: WitType::String }
    }

    fn array(&mut self, place: &At<'_>, name: &str) -> Typed {
        if let Some(first) = prefix(place.schema) {
            if first.is_empty() {
                return self.json();
            }
            let parts = first.iter().enumerate();
            let parts: Vec<Typed> =
                parts.map(|(at, schema)| self.ty(schema, &format!("{name}-element{at}"))).collect();
            let written: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
            let text = format!("tuple<{}>", written.join(", "));
            return Typed {
                text,
                ty: WitType::Tuple(parts.into_iter().map(|part| part.ty).collect()),
            };
        }
        let element = items(place.schema);
        let of = At::of(element);
        let is_set = place.schema.get("uniqueItems") == Some(&Value::Bool(true)) && !of.nullable;
        let names =
            of.texts().filter(|_| is_set).and_then(|texts| wit_names(texts.iter().copied()));
        if let Some(names) = names.filter(|names| names.len() <= FLAGS_MAX) {
            let lines = names.iter().map(|name| format!("        {},\n", escaped(name))).collect();
            let text = self.declare("flags", name, place.schema, lines);
            return Typed { text, ty: WitType::Flags(names) };
        }
        let inner = self.ty(element, &format!("{name}-element"));
        Typed { text: format!("list<{}>", inner.text), ty: WitType::List(Box::new(inner.ty)) }
    }

    fn record(&mut self, schema: &Value, name: &str) -> Typed {
        let Some(known) = properties(schema).filter(|known| !known.is_empty()) else {
            return self.json();
        };
        // What has members besides those it names would lose them in a record.
        let open =
            schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false))
                || schema.get("patternProperties").is_some();
        let required = required(schema);
        let unnamed = required.iter().any(|name| !known.contains_key(*name));
        let Some(names) = wit_names(known.keys().map(String::as_str)).filter(|_| !open && !unnamed)
        else {
            return self.json();
        };
        let (mut lines, mut fields) = (String::new(), Vec::new());
        for (field, (member, schema)) in names.into_iter().zip(known) {
            let typed = self.ty(schema, &format!("{name}-{field}"));
            let typed = match typed {
                typed
                    if required.contains(member.as_str())
                        || matches!(typed.ty, WitType::Option(_)) =>
                {
                    typed
                }
                typed => Typed {
                    text: format!("option<{}>", typed.text),
                    ty: WitType::Option(Box::new(typed.ty)),
                },
            };
            if let Some(text) = text_of(schema, "description").or_else(|| text_of(schema, "title"))
            {
                doc(&mut lines, "        ", text);
            }
            if let Some(texts) = At::of(schema).texts().filter(|_| typed.text.contains("string")) {
                doc(&mut lines, "        ", &format!("One of: {}", texts.join(", ")));
            }
            let _ = writeln!(lines, "        {}: {},", escaped(&field), typed.text);
            fields.push((field, typed.ty));
        }
        let text = self.declare("record", name, schema, lines);
        Typed { text, ty: WitType::Record(fields) }
    }

    fn cases(&mut self, place: &At<'_>, cases: &[(&str, Option<&Value>)], name: &str) -> Typed {
        let bare = cases.iter().all(|(_, payload)| payload.is_none());
        let Some(names) = wit_names(cases.iter().map(|(case, _)| *case)) else {
            return if bare { Typed::plain(WitType::String) } else { self.json() };
        };
        if bare {
            let lines = names.iter().map(|name| format!("        {},\n", escaped(name))).collect();
            let text = self.declare("enum", name, place.schema, lines);
            return Typed { text, ty: WitType::Enum(names) };
        }
        let (mut lines, mut typed) = (String::new(), Vec::new());
        for (case, (_, payload)) in names.into_iter().zip(cases) {
            let payload = payload.map(|schema| self.ty(schema, &format!("{name}-{case}")));
            let of =
                payload.as_ref().map(|payload| format!("({})", payload.text)).unwrap_or_default();
            let _ = writeln!(lines, "        {}{of},", escaped(&case));
            typed.push((case, payload.map(|payload| payload.ty)));
        }
        let text = self.declare("variant", name, place.schema, lines);
        Typed { text, ty: WitType::Variant(typed) }
    }

    /// Declares a type under a name that is free; returns how it is referred to.
    fn declare(&mut self, what: &str, name: &str, schema: &Value, lines: String) -> String {
        let mut free = name.to_owned();
        let mut more = 2;
        while free == "json" || free == "effect-error" || !self.names.insert(free.clone()) {
            free = format!("{name}-v{more}");
            more += 1;
        }
        let mut text = String::new();
        if let Some(described) = text_of(schema, "description").or_else(|| text_of(schema, "title"))
        {
            doc(&mut text, "    ", described);
        }
        let reference = escaped(&free);
        let _ = write!(text, "    {what} {reference} {{\n{lines}    }}\n");
        self.declared.push(text);
        reference
    }
}

/// The smallest of the usual types that holds all integers of a schema.
fn integer(schema: &Value) -> WitType {
    let bound = |inclusive: &str, exclusive: &str, step: i64| {
        let stated = schema.get(inclusive).and_then(Value::as_i64);
        let beyond = schema.get(exclusive).and_then(Value::as_i64);
        stated.or_else(|| beyond.and_then(|beyond| beyond.checked_add(step)))
    };
    let low = bound("minimum", "exclusiveMinimum", 1);
    let high = bound("maximum", "exclusiveMaximum", -1);
    match (low, high) {
        (Some(0..), Some(high)) if high <= i64::from(u32::MAX) => WitType::U32,
        (Some(0..), _) => WitType::U64,
        (Some(low), Some(high)) if low >= i64::from(i32::MIN) && high <= i64::from(i32::MAX) => {
            WitType::S32
        }
        _ => WitType::S64,
    }
}

/// The WIT names of all of these, if each has one and no two are the same.
fn wit_names<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    let names: Vec<String> = texts.map(wit_name).collect::<Option<_>>()?;
    let distinct: BTreeSet<&String> = names.iter().collect();
    (distinct.len() == names.len() && !names.is_empty()).then_some(names)
}

fn text_of<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key)?.as_str().filter(|text| !text.trim().is_empty())
}

/// Adds documentation, wrapped.
fn doc(out: &mut String, indent: &str, text: &str) {
    let mut line = String::new();
    let end = |out: &mut String, line: &mut String| {
        if !line.is_empty() {
            let _ = writeln!(out, "{indent}///{line}");
            line.clear();
        }
    };
    for word in text.split_whitespace() {
        // Control and direction characters are not taken by readers of WIT.
        let word: String = word.chars().filter(|c| !c.is_control() && !is_direction(*c)).collect();
        if !line.is_empty() && line.chars().count() + word.chars().count() >= DOC_WIDTH {
            end(out, &mut line);
        }
        line.push(' ');
        line.push_str(&word);
    }
    end(out, &mut line);
}

/// Whether a character changes how text is shown and not what it says.
const fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{149}' | '\u{673}' | '\u{f77}' | '\u{f79}' | '\u{17a3}' | '\u{17a4}' | '\u{17b4}' | '\u{17b5}')
}

const KEYWORDS: [&str; 41] = [
    "as",
    "async",
    "bool",
    "borrow",
    "char",
    "constructor",
    "enum",
    "error-context",
    "export",
    "f32",
    "f64",
    "flags",
    "from",
    "func",
    "future",
    "import",
    "include",
    "interface",
    "list",
    "map",
    "option",
    "own",
    "package",
    "record",
    "resource",
    "result",
    "s16",
    "s32",
    "s64",
    "s8",
    "static",
    "stream",
    "string",
    "tuple",
    "type",
    "u16",
    "u32",
    "u64",
    "u8",
    "use",
    "variant",
];

/// A name as it is written where a keyword would be read otherwise.
fn escaped(name: &str) -> String {
    if KEYWORDS.contains(&name) || matches!(name, "with" | "world") {
        format!("%{name}")
    } else {
        name.to_owned()
    }
}
