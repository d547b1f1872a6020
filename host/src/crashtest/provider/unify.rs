//! Reads a received request back through the template it was made from: which values stand where the template has
//! references.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use twice_core::json::canonical;
use twice_workflow::model::{HttpRequest, Part, Template, Text};

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Received {
    pub(super) method: String,
    /// Path segments after the tool's base, decoded.
    pub(super) segments: Vec<String>,
    pub(super) query: BTreeMap<String, String>,
    /// Names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<Value>,
}

/// What stands at each pointer that a template refers to.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Bindings(BTreeMap<String, Value>);

impl Bindings {
    /// The text at a pointer.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.0.get(pointer).and_then(Value::as_str)
    }

    /// Each arg that the request shows, by its pointer into the args.
    pub(super) fn args(&self) -> BTreeMap<String, Value> {
        let args = self.0.iter().filter_map(|(pointer, value)| {
            Some((pointer.strip_prefix("/args")?.to_owned(), value.clone()))
        });
        args.collect()
    }

    /// What the request says apart from our key and reference, as one text.
    pub(super) fn content(&self) -> String {
        let args: Map<String, Value> = self.args().into_iter().collect();
        canonical(&Value::Object(args))
    }
}

/// The values with which `template` becomes `received`; `None` when it cannot.
pub(super) fn unify(
    template: &HttpRequest,
    args_schema: &Value,
    received: &Received,
) -> Option<Bindings> {
    if template.method != received.method || template.path.len() != received.segments.len() {
        return None;
    }
    let mut texts = BTreeMap::new();
    for (text, segment) in template.path.iter().zip(&received.segments) {
        unify_text(text, segment, &mut texts)?;
    }
    for (name, text) in &template.query {
        unify_text(text, received.query.get(name)?, &mut texts)?;
    }
    for (name, text) in &template.headers {
        unify_text(text, received.headers.get(&name.to_lowercase())?, &mut texts)?;
    }
    let mut bound = Bindings::default();
    if let Some(body) = &template.body {
        unify_value(body, Some(received.body.as_ref()?), &mut texts, &mut bound)?;
    }
    for (pointer, text) in texts {
        // What the body shows as a value is not read from a text once more.
        let typed = typed(args_schema, &pointer, text);
        bound.0.entry(pointer).or_insert(typed);
    }
    Some(bound)
}

fn unify_value(
    template: &Template,
    value: Option<&Value>,
    texts: &mut BTreeMap<String, String>,
    bound: &mut Bindings,
) -> Option<()> {
    match (template, value) {
        (Template::Reference { pointer, .. }, Some(value)) => {
            bound.0.insert(pointer.clone(), value.clone());
            Some(())
        }
        (Template::Reference { optional, .. }, None) => optional.then_some(()),
        (Template::Literal(literal), Some(value)) => (literal == value).then_some(()),
        (Template::Text(text), Some(Value::String(value))) => unify_text(text, value, texts),
        (Template::Object(members), Some(Value::Object(values))) => members
            .iter()
            .try_for_each(|(name, member)| unify_value(member, values.get(name), texts, bound)),
        (Template::Array(items), Some(Value::Array(values))) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| unify_value(item, values.get(index), texts, bound)),
        (
            Template::Literal(_) | Template::Text(_) | Template::Object(_) | Template::Array(_),
            _,
        ) => None,
    }
}

fn unify_text(text: &Text, value: &str, texts: &mut BTreeMap<String, String>) -> Option<()> {
    let mut found = Vec::new();
    split(&text.0, value, &mut found).then(|| texts.extend(found))
}

/// Splits a text at the literal parts, each placeholder as short as can be.
fn split(parts: &[Part], text: &str, found: &mut Vec<(String, String)>) -> bool {
    let Some((first, rest)) = parts.split_first() else { return text.is_empty() };
    match first {
        Part::Literal(literal) => {
            text.strip_prefix(literal.as_str()).is_some_and(|after| split(rest, after, found))
        }
        Part::Reference(_) | Part::Secret(_) => {
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            for end in ends {
                let known = found.len();
                if let Part::Reference(pointer) = first {
                    found.push((pointer.clone(), text[..end].to_owned()));
                }
                if split(rest, &text[end..], found) {
                    return true;
                }
                found.truncate(known);
            }
            false
        }
    }
}

/// A value that travelled as text, in the type that the args schema gives it.
fn typed(args_schema: &Value, pointer: &str, text: String) -> Value {
    let mut schema = args_schema;
    for token in pointer.strip_prefix("/args/").unwrap_or_default().split('/') {
        schema = &schema["properties"][token];
    }
    match schema["type"].as_str() {
        Some("integer") => text.parse::<i64>().map_or(Value::String(text), Value::from),
        Some("boolean") => text.parse::<bool>().map_or(Value::String(text), Value::from),
        Some(_) | None => Value::String(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn literal(text: &str) -> Part {
        Part::Literal(text.to_owned())
    }

    fn reference(pointer: &str) -> Part {
        Part::Reference(pointer.to_owned())
    }

    #[track_caller]
    fn check(parts: &[Part], text: &str, expected: Option<&[(&str, &str)]>) {
        let mut found = BTreeMap::new();
        let fits = unify_text(&Text(parts.to_vec()), text, &mut found).is_some();
        let expected = expected.map(|pairs| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect::<BTreeMap<_, _>>()
        });
        assert_eq!(fits.then_some(found), expected, "{text}");
    }

    #[test]
    fn texts_are_split_at_their_literals() {
        check(&[literal("v1")], "v1", Some(&[]));
        check(&[literal("v1")], "v2", None);
        check(&[reference("/key")], "abc", Some(&[("/key", "abc")]));
        let marked =
            [reference("/args/body"), literal(" ["), reference("/effect_id"), literal("]")];
        check(&marked, "a [b] [eff_1]", Some(&[("/args/body", "a"), ("/effect_id", "b] [eff_1")]));
        check(&marked, "no mark", None);
        let bearer = [literal("Bearer "), Part::Secret(twice_core::ids::Name::parse("k").unwrap())];
        check(&bearer, "Bearer xyz", Some(&[]));
    }

    #[test]
    fn a_request_gives_back_what_it_was_made_of() {
        let template = HttpRequest {
            method: "POST".to_owned(),
            path: vec![Text(vec![literal("orders")]), Text(vec![reference("/args/order")])],
            query: BTreeMap::from([("n".to_owned(), Text(vec![reference("/args/count")]))]),
            headers: BTreeMap::new(),
            body: Some(Template::Object(BTreeMap::from([
                (
                    "ref".to_owned(),
                    Template::Reference { pointer: "/effect_id".to_owned(), optional: false },
                ),
                (
                    "why".to_owned(),
                    Template::Reference { pointer: "/args/why".to_owned(), optional: true },
                ),
            ]))),
        };
        let schema = json!({ "properties": { "count": { "type": "integer" } } });
        let received = Received {
            method: "POST".to_owned(),
            segments: vec!["orders".to_owned(), "o 1".to_owned()],
            query: BTreeMap::from([("n".to_owned(), "3".to_owned())]),
            headers: BTreeMap::new(),
            body: Some(json!({ "ref": "eff_1" })),
        };
        let bound = unify(&template, &schema, &received).unwrap();
        assert_eq!(bound.text("/effect_id"), Some("eff_1"));
        assert_eq!(bound.content(), r#"{"/count":3,"/order":"o 1"}"#);
        let other = Received { method: "PUT".to_owned(), ..received };
        assert_eq!(unify(&template, &schema, &other), None);
    }
}
