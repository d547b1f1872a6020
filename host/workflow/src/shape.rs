//! What a JSON Schema says about a place in the values it describes. Only certain knowledge counts: where a schema is
//! open or combined with others, the answer is that anything may be there.

use std::collections::BTreeSet;

use serde_json::Value;

/// How many local references are followed in one place, so that circles end.
const REFERENCES_MAX: usize = 16;

/// What a schema says about a pointer.
pub(crate) enum Place<'a> {
    /// There is a schema for it.
    Described {
        /// That schema, local references resolved.
        schema: &'a Value,
        /// Whether each valid value has it.
        always: bool,
    },
    /// No valid value has it.
    Absent {
        /// The names that are possible where the pointer first leads nowhere.
        known: Vec<&'a str>,
        /// The name that is not.
        missing: String,
    },
    /// Anything may be there, and the schema does not name it, though it names what stands beside it: a slip, most
    /// likely.
    Unlisted {
        /// The names beside it.
        known: Vec<&'a str>,
        /// The name that is not among them.
        missing: String,
    },
    /// Anything may be there.
    Open,
}

/// Whether a text is a JSON Pointer (RFC 6901).
pub(crate) fn is_pointer(text: &str) -> bool {
    (text.is_empty() || text.starts_with('/'))
        && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

/// The names a JSON Pointer goes through.
pub(crate) fn tokens(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~"))
}

/// What `root` says about `pointer`.
pub(crate) fn find<'a>(root: &'a Value, pointer: &str) -> Place<'a> {
    descend(root, root, pointer)
}

/// What `from`, a part of `root`, says about `pointer`.
pub(crate) fn descend<'a>(root: &'a Value, from: &'a Value, pointer: &str) -> Place<'a> {
    let Some(mut schema) = resolved(root, from) else { return Place::Open };
    let mut always = true;
    for token in tokens(pointer) {
        let Value::Object(keywords) = schema else { return Place::Open };
        let next = if let Some(next) = keywords.get("properties").and_then(|p| p.get(&token)) {
            let required = keywords.get("required").and_then(Value::as_array);
            always &= required.is_some_and(|names| names.iter().any(|name| name == token.as_str()));
            next
        } else if let (Some(items), Ok(_)) = (keywords.get("items"), token.parse::<u32>()) {
            always = false;
            items
        } else {
            let known = keywords.get("properties").and_then(Value::as_object);
            let known = known.map(|map| map.keys().map(String::as_str).collect());
            return match known {
                known if is_closed(schema) => {
                    Place::Absent { known: known.unwrap_or_default(), missing: token }
                }
                Some(known) if names_all_it_means(schema) => {
                    Place::Unlisted { known, missing: token }
                }
                Some(_) | None => Place::Open,
            };
        };
        match resolved(root, next) {
            Some(next) => schema = next,
            None => return Place::Open,
        }
    }
    Place::Described { schema, always }
}

/// The schema of an array's elements.
pub(crate) fn items<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    resolved(root, schema.get("items")?)
}

/// The JSON types that a schema allows, if it says so: by `type`, `const` or `enum`.
pub(crate) fn types(schema: &Value) -> Option<BTreeSet<&str>> {
    if let Some(stated) = schema.get("type") {
        return match stated {
            Value::String(name) => Some(BTreeSet::from([name.as_str()])),
            Value::Array(names) => Some(names.iter().filter_map(Value::as_str).collect()),
            _ => None,
        };
    }
    if let Some(value) = schema.get("const") {
        return Some(BTreeSet::from([type_of(value)]));
    }
    schema.get("enum")?.as_array().map(|values| values.iter().map(type_of).collect())
}

/// The JSON type of a value.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> Option<&'a Value> {
    for _ in 0..REFERENCES_MAX {
        let Some(reference) = schema.get("$ref") else { return Some(schema) };
        schema = root.pointer(reference.as_str()?.strip_prefix('#')?)?;
    }
    None
}

/// Whether only the names in `properties` are possible.
fn is_closed(schema: &Value) -> bool {
    let open = ["patternProperties", "$dynamicRef"];
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && open.iter().all(|keyword| schema.get(keyword).is_none())
}

/// Whether nothing in a schema speaks of names besides those in `properties`. One that states `additionalProperties` means
/// to be open.
fn names_all_it_means(schema: &Value) -> bool {
    let others = [
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "propertyNames",
        "dependentSchemas",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "then",
        "else",
        "$dynamicRef",
    ];
    others.iter().all(|keyword| schema.get(keyword).is_none())
}
