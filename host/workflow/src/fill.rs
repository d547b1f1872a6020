//! Fills the args of a compensation: everything but the receipt when its effect is proposed, the receipt when it is undone.

use serde_json::{Map, Value};

use crate::model::{Part, Template, Text};

/// The root of what only a receipt tells.
const RECEIPT: &str = "/receipt";

/// A reference that leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pointer}` {problem}")]
pub struct Unfilled {
    /// The pointer.
    pub pointer: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// The template with everything filled in that does not come from the receipt. `known` is
/// `{ "args": …, "input": …, "element": … }`.
///
/// # Errors
/// [`Unfilled`] when something that is not optional is missing.
pub fn freeze(template: &Template, known: &Value) -> Result<Template, Unfilled> {
    let stays = |pointer: &str| pointer == RECEIPT || pointer.starts_with("/receipt/");
    Ok(walk(template, known, &stays)?.unwrap_or(Template::Literal(Value::Null)))
}

/// The value of a frozen template. `receipt` is `{ "external_id": …, "result": … }`; `Null` where there is none.
///
/// # Errors
/// [`Unfilled`] when something that is not optional is missing.
pub fn fill(template: &Template, receipt: &Value) -> Result<Value, Unfilled> {
    let known = serde_json::json!({ "receipt": receipt });
    let whole = walk(template, &known, &|_| false)?;
    Ok(whole.map_or(Value::Null, literal))
}

fn walk(
    template: &Template,
    known: &Value,
    stays: &dyn Fn(&str) -> bool,
) -> Result<Option<Template>, Unfilled> {
    Ok(Some(match template {
        Template::Literal(value) => Template::Literal(value.clone()),
        Template::Reference { pointer, .. } if stays(pointer) => template.clone(),
        Template::Reference { pointer, optional } => match known.pointer(pointer) {
            Some(value) => Template::Literal(value.clone()),
            None if *optional => return Ok(None),
            None => return Err(missing(pointer)),
        },
        Template::Text(Text(parts)) => {
            let parts = parts.iter().map(|part| text_part(part, known, stays));
            joined(parts.collect::<Result<_, _>>()?)
        }
        Template::Object(members) => {
            let mut filled = std::collections::BTreeMap::new();
            for (name, member) in members {
                if let Some(member) = walk(member, known, stays)? {
                    filled.insert(name.clone(), member);
                }
            }
            Template::Object(filled)
        }
        Template::Array(items) => {
            let mut filled = Vec::with_capacity(items.len());
            for item in items {
                filled.extend(walk(item, known, stays)?);
            }
            Template::Array(filled)
        }
    }))
}

fn text_part(part: &Part, known: &Value, stays: &dyn Fn(&str) -> bool) -> Result<Part, Unfilled> {
    let Part::Reference(pointer) = part else { return Ok(part.clone()) };
    if stays(pointer) {
        return Ok(part.clone());
    }
    match known.pointer(pointer) {
        None => Err(missing(pointer)),
        Some(Value::String(text)) => Ok(Part::Literal(text.clone())),
        Some(Value::Bool(flag)) => Ok(Part::Literal(flag.to_string())),
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => {
            Ok(Part::Literal(number.to_string()))
        }
        Some(Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_)) => {
            Err(Unfilled {
                pointer: pointer.clone(),
                problem: "is neither a string, an integer nor a boolean, and stands within a text",
            })
        }
    }
}

fn missing(pointer: &str) -> Unfilled {
    Unfilled { pointer: pointer.to_owned(), problem: "is not there" }
}

/// A text without references is a literal.
fn joined(parts: Vec<Part>) -> Template {
    let literal = |part: &Part| match part {
        Part::Literal(text) => Some(text.clone()),
        Part::Reference(_) | Part::Secret(_) => None,
    };
    match parts.iter().map(literal).collect::<Option<String>>() {
        Some(text) => Template::Literal(Value::String(text)),
        None => Template::Text(Text(parts)),
    }
}

/// What a template without references stands for.
fn literal(template: Template) -> Value {
    match template {
        Template::Literal(value) => value,
        Template::Object(members) => {
            let members = members.into_iter().map(|(name, member)| (name, literal(member)));
            Value::Object(members.collect::<Map<String, Value>>())
        }
        Template::Array(items) => items.into_iter().map(literal).collect(),
        // A compensation has no secrets, and every reference is filled by now.
        Template::Reference { .. } | Template::Text(_) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reference(pointer: &str, optional: bool) -> Template {
        Template::Reference { pointer: pointer.to_owned(), optional }
    }

    fn object(members: &[(&str, Template)]) -> Template {
        let members = members.iter().map(|(name, member)| ((*name).to_owned(), member.clone()));
        Template::Object(members.collect())
    }

    #[test]
    fn what_the_receipt_tells_is_filled_in_last() {
        let note = vec![
            Part::Literal("of ".to_owned()),
            Part::Reference("/input/order".to_owned()),
            Part::Literal(", ".to_owned()),
            Part::Reference("/receipt/external_id".to_owned()),
        ];
        let template = object(&[
            ("id", reference("/receipt/external_id", false)),
            ("amount", reference("/args/amount", false)),
            ("why", reference("/args/why", true)),
            ("note", Template::Text(Text(note))),
            (
                "list",
                Template::Array(vec![reference("/element/n", true), reference("/args/why", true)]),
            ),
        ]);
        let known =
            json!({ "args": { "amount": 7 }, "input": { "order": "o-1" }, "element": { "n": 3 } });
        let frozen = freeze(&template, &known).unwrap();
        // Later changes of what it was made from change nothing.
        let value = fill(&frozen, &json!({ "external_id": "re_1", "result": {} })).unwrap();
        assert_eq!(
            value,
            json!({ "id": "re_1", "amount": 7, "note": "of o-1, re_1", "list": [3] })
        );
        let again: Template =
            serde_json::from_value(serde_json::to_value(&frozen).unwrap()).unwrap();
        assert_eq!(again, frozen);
    }

    #[test]
    fn what_is_missing_is_named() {
        let gone = freeze(&reference("/args/gone", false), &json!({ "args": {} })).unwrap_err();
        assert_eq!(gone.to_string(), "`/args/gone` is not there");
        let frozen = freeze(&reference("/receipt/result/id", false), &json!({})).unwrap();
        let gone = fill(&frozen, &json!({ "result": {} })).unwrap_err();
        assert_eq!(gone.pointer, "/receipt/result/id");
        let half = vec![Part::Literal("x".to_owned()), Part::Reference("/args/n".to_owned())];
        let wrong = freeze(&Template::Text(Text(half)), &json!({ "args": { "n": 1.5 } }));
        assert!(wrong.is_err());
    }
}
