//! Answers made from declarations: the smallest value that a JSON Schema describes, and an answer that a matcher
//! recognises.

use serde_json::{Map, Value, json};
use twice_core::outcome::Matcher;

/// Deepest nesting that is followed; a schema that refers to itself ends here.
const DEPTH_MAX: usize = 24;

/// Values that must not stand at a pointer, because they would mean something else.
pub(super) type Avoid = Vec<(String, Vec<Value>)>;

/// The smallest value that a schema describes: required members only, as few items as may be. `avoid` keeps enumerated
/// states away from values that mean "pending" or "failed".
pub(super) fn smallest(schema: &Value, avoid: &Avoid) -> Value {
    Maker { root: schema, avoid }.value(schema, "", 0)
}

struct Maker<'a> {
    root: &'a Value,
    avoid: &'a Avoid,
}

impl Maker<'_> {
    fn value(&self, schema: &Value, at: &str, depth: usize) -> Value {
        if depth > DEPTH_MAX {
            return Value::Null;
        }
        if let Some(target) = schema["$ref"].as_str().and_then(|text| text.strip_prefix('#')) {
            let found = self.root.pointer(target).unwrap_or(&Value::Null);
            return self.value(found, at, depth + 1);
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(values) = schema["enum"].as_array() {
            let good = values.iter().find(|value| !self.avoided(at, value));
            return good.or(values.first()).cloned().unwrap_or_default();
        }
        if let Some(value) = schema["examples"].as_array().and_then(|list| list.first()) {
            return value.clone();
        }
        let mut value = self.plain(schema, at, depth);
        for part in schema["allOf"].as_array().into_iter().flatten() {
            merge(&mut value, self.value(part, at, depth + 1));
        }
        for word in ["oneOf", "anyOf"] {
            if let Some(part) = schema[word].as_array().and_then(|list| list.first()) {
                merge(&mut value, self.value(part, at, depth + 1));
            }
        }
        value
    }

    fn plain(&self, schema: &Value, at: &str, depth: usize) -> Value {
        let kind = match &schema["type"] {
            Value::String(kind) => kind.as_str(),
            Value::Array(kinds) => {
                let kinds = || kinds.iter().filter_map(Value::as_str);
                kinds().find(|kind| *kind != "null").or(kinds().next()).unwrap_or("null")
            }
            _ if schema["properties"].is_object() || schema["required"].is_array() => "object",
            _ => "",
        };
        match kind {
            "object" => self.object(schema, at, depth),
            "array" => {
                let count = schema["minItems"].as_u64().unwrap_or(0).min(100);
                (0..count)
                    .map(|index| self.value(&schema["items"], &format!("{at}/{index}"), depth + 1))
                    .collect()
            }
            "string" => text(schema),
            "integer" | "number" => number(schema),
            "boolean" => Value::Bool(false),
            _ => Value::Null,
        }
    }

    fn object(&self, schema: &Value, at: &str, depth: usize) -> Value {
        let mut members = Map::new();
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let member = &schema["properties"][name];
            members.insert(name.to_owned(), self.value(member, &format!("{at}/{name}"), depth + 1));
        }
        Value::Object(members)
    }

    fn avoided(&self, at: &str, value: &Value) -> bool {
        self.avoid.iter().any(|(pointer, values)| pointer == at && values.contains(value))
    }
}

fn text(schema: &Value) -> Value {
    let fixed = match schema["format"].as_str() {
        Some("date-time") => "2026-01-05T09:00:00Z",
        Some("date") => "2026-01-05",
        Some("time") => "09:00:00Z",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        Some("email") => "someone@example.com",
        Some("uri") => "https://example.com/",
        Some("hostname") => "example.com",
        Some("ipv4") => "192.0.2.1",
        Some(_) | None => {
            let length = schema["minLength"].as_u64().unwrap_or(0).clamp(2, 10_000);
            let most = schema["maxLength"].as_u64().unwrap_or(length);
            return Value::String("ok".chars().cycle().take(length.min(most) as usize).collect());
        }
    };
    json!(fixed)
}

fn number(schema: &Value) -> Value {
    let at_least = schema["minimum"].as_i64();
    let above = schema["exclusiveMinimum"].as_i64().map(|least| least + 1);
    let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
    let step = schema["multipleOf"].as_i64().filter(|step| *step > 0).unwrap_or(1);
    let least = at_least.or(above).unwrap_or(0);
    json!(((least + step - 1).div_euclid(step) * step).min(most))
}

/// Puts the members of one object over another; any other value stands for the whole unless it says nothing.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => into.extend(from),
        (_, Value::Null) => {}
        (into, from) => *into = from,
    }
}

/// Puts a value at a JSON Pointer, making objects on the way. A pointer through something else is left alone.
pub(super) fn put(into: &mut Value, pointer: &str, value: Value) {
    let Some(path) = pointer.strip_prefix('/') else {
        *into = value;
        return;
    };
    let mut at = into;
    for token in path.split('/') {
        if at.is_null() {
            *at = json!({});
        }
        let token = token.replace("~1", "/").replace("~0", "~");
        at = match at {
            Value::Object(members) => members.entry(token).or_insert(Value::Null),
            Value::Array(items) => {
                match token.parse::<usize>().ok().and_then(|i| items.get_mut(i)) {
                    Some(item) => item,
                    None => return,
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        };
    }
    *at = value;
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<Value>,
}

/// Makes an answer one that the matcher recognises.
pub(super) fn mark(reply: &mut Reply, matcher: &Matcher) {
    if let Some(status) = matcher.status {
        reply.status = status;
    }
    let value = || matcher.equals.clone().unwrap_or_else(|| json!("yes"));
    if let Some(header) = &matcher.header {
        let text = match (&matcher.pointer, value()) {
            (None, Value::String(text)) => text,
            (Some(_) | None, _) => "yes".to_owned(),
        };
        reply.headers.push((header.clone(), text));
    }
    if let Some(pointer) = &matcher.pointer {
        put(reply.body.get_or_insert_with(|| json!({})), pointer, value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twice_workflow::schema::Schema;

    #[track_caller]
    fn check(schema: Value, avoid: &Avoid, expected: Value) {
        let made = smallest(&schema, avoid);
        assert_eq!(made, expected, "{schema}");
        assert_eq!(Schema::compile(&schema).unwrap().check(&made), Ok(()), "{schema}");
    }

    #[test]
    fn the_smallest_value_fits_its_schema() {
        let none = Avoid::new();
        check(json!({ "type": "string", "minLength": 5 }), &none, json!("okoko"));
        check(json!({ "type": "string", "maxLength": 1 }), &none, json!("o"));
        check(
            json!({ "type": ["null", "integer"], "minimum": 3, "multipleOf": 2 }),
            &none,
            json!(4),
        );
        check(json!({ "type": "string", "format": "date" }), &none, json!("2026-01-05"));
        check(
            json!({ "type": "array", "minItems": 2, "items": { "type": "boolean" } }),
            &none,
            json!([false, false]),
        );
        check(
            json!({
                "$defs": { "id": { "type": "string" } },
                "required": ["id"],
                "properties": { "id": { "$ref": "#/$defs/id" }, "more": { "type": "object" } },
                "allOf": [{ "required": ["n"], "properties": { "n": { "const": 7 } } }],
            }),
            &none,
            json!({ "id": "ok", "n": 7 }),
        );
        let avoid = vec![("/status".to_owned(), vec![json!("pending"), json!("failed")])];
        check(
            json!({
                "type": "object",
                "required": ["status"],
                "properties": { "status": { "enum": ["pending", "failed", "done"] } },
            }),
            &avoid,
            json!({ "status": "done" }),
        );
    }

    #[test]
    fn an_answer_is_marked_for_its_matcher() {
        let mut reply = Reply { status: 200, headers: Vec::new(), body: None };
        let matcher = Matcher {
            status: Some(409),
            pointer: Some("/error/code".to_owned()),
            equals: Some(json!("in_use")),
            header: None,
        };
        mark(&mut reply, &matcher);
        assert_eq!(reply.status, 409);
        assert_eq!(reply.body, Some(json!({ "error": { "code": "in_use" } })));
    }
}
