//! JSON Schemas as types see them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::shape;

/// Most references that are followed into each other, and most parts a schema has when all are written out. What lies beyond
/// is open.
const DEPTH_MAX: usize = 12;
const PARTS_MAX: usize = 10_000;

/// `schema` with its local references written out.
pub(super) fn without_references(root: &Value, schema: &Value) -> Value {
    let mut parts = PARTS_MAX;
    written_out(root, schema, DEPTH_MAX, &mut parts)
}

fn written_out(root: &Value, schema: &Value, depth: usize, parts: &mut usize) -> Value {
    let open = || Value::Bool(true);
    *parts = match parts.checked_sub(1) {
        Some(left) => left,
        None => return open(),
    };
    match schema {
        Value::Array(items) => {
            let items = items.iter().map(|item| written_out(root, item, depth, parts));
            Value::Array(items.collect())
        }
        Value::Object(keywords) => {
            let Some(reference) = keywords.get("$ref") else {
                let members = keywords
                    .iter()
                    .filter(|(key, _)| !matches!(key.as_str(), "$defs" | "definitions"));
                let members = members
                    .map(|(key, value)| (key.clone(), written_out(root, value, depth, parts)));
                return Value::Object(members.collect());
            };
            let target = reference.as_str().and_then(|text| text.strip_prefix('#'));
            match (depth.checked_sub(1), target.and_then(|pointer| root.pointer(pointer))) {
                (Some(depth), Some(target)) => written_out(root, target, depth, parts),
                (None, _) | (_, None) => open(),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

/// What may be at a place.
pub(super) struct At<'a> {
    /// The schema of what is not null.
    pub(super) schema: &'a Value,
    /// The JSON types but null; `None`: any.
    pub(super) kinds: Option<BTreeSet<&'a str>>,
    /// Whether null may be there, as far as the schema says.
    pub(super) nullable: bool,
}

impl<'a> At<'a> {
    pub(super) fn of(schema: &'a Value) -> Self {
        if let Some(inner) = of_null_and(schema) {
            return Self { nullable: true, ..Self::of(inner) };
        }
        let mut kinds = shape::types(schema).or_else(|| {
            // All branches say what they are.
            let branches = branches(schema)?;
            let kinds = branches.iter().map(shape::types).collect::<Option<Vec<_>>>()?;
            Some(kinds.into_iter().flatten().collect())
        });
        let nullable = kinds.as_mut().is_some_and(|kinds| kinds.remove("null"));
        Self { schema, kinds, nullable }
    }

    /// Whether only `kind` may be there; `number` takes integers in.
    pub(super) fn is_only(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_some_and(|kinds| {
            !kinds.is_empty()
                && kinds.iter().all(|it| *it == kind || kind == "number" && *it == "integer")
        })
    }

    /// Whether `kind` may be there, as far as the schema says.
    pub(super) fn may_be(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| {
            kinds.contains(kind) || kind == "integer" && kinds.contains("number")
        })
    }

    /// What may be there, in the schema's words.
    pub(super) fn words(&self) -> String {
        match &self.kinds {
            None => "anything".to_owned(),
            Some(kinds) if kinds.is_empty() => "nothing but null".to_owned(),
            Some(kinds) => kinds.iter().copied().collect::<Vec<_>>().join(" or "),
        }
    }

    /// The texts that may be there, when they are listed.
    pub(super) fn texts(&self) -> Option<Vec<&'a str>> {
        let listed = match (self.schema.get("enum"), self.schema.get("const")) {
            (Some(Value::Array(values)), _) => values.iter().collect(),
            (_, Some(value)) => vec![value],
            _ => return None,
        };
        listed.into_iter().filter(|value| !value.is_null()).map(Value::as_str).collect()
    }

    /// The cases that may be there, when it is one of several that are told apart by a name: that name alone, or an object
    /// with that one member.
    pub(super) fn cases(&self) -> Option<Vec<(&'a str, Option<&'a Value>)>> {
        if let Some(texts) = self.texts() {
            return Some(texts.into_iter().map(|text| (text, None)).collect());
        }
        let mut cases = Vec::new();
        for branch in branches(self.schema)? {
            if let Some(texts) = At::of(branch).texts() {
                cases.extend(texts.into_iter().map(|text| (text, None)));
                continue;
            }
            let (members, required) = (properties(branch)?, required(branch));
            match members.iter().next() {
                Some((name, payload))
                    if members.len() == 1
                        && required.contains(name.as_str())
                        && branch.get("additionalProperties") == Some(&Value::Bool(false)) =>
                {
                    cases.push((name.as_str(), Some(payload)));
                }
                _ => return None,
            }
        }
        Some(cases)
    }
}

fn branches(schema: &Value) -> Option<&Vec<Value>> {
    schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()
}

/// The other branch, where one of two is null.
fn of_null_and(schema: &Value) -> Option<&Value> {
    let is_null =
        |branch: &Value| shape::types(branch).is_some_and(|kinds| kinds.iter().eq(["null"].iter()));
    match branches(schema)?.as_slice() {
        [one, null] if is_null(null) => Some(one),
        [null, one] if is_null(null) => Some(one),
        _ => None,
    }
}

pub(super) fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties")?.as_object()
}

pub(super) fn required(schema: &Value) -> BTreeSet<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether members that are not named are ruled out.
pub(super) fn is_closed(schema: &Value) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && schema.get("patternProperties").is_none()
}

/// The schemas of an array's first elements, one by one.
pub(super) fn prefix(schema: &Value) -> Option<&Vec<Value>> {
    schema.get("prefixItems")?.as_array()
}

pub(super) const OPEN: &Value = &Value::Bool(true);

/// The schema of an array's elements.
pub(super) fn items(schema: &Value) -> &Value {
    schema.get("items").unwrap_or(OPEN)
}
