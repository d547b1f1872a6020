//! Fills the templates of a pinned tool: value by value, never by pasting text into JSON or a URL.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use twice_core::ids::Name;
use twice_workflow::model::{HttpRequest, Part, Template, Text};

use super::super::{Call, PrepareError};

/// What templates refer to, and the secrets of the call.
pub(super) struct Filler<'a> {
    context: Value,
    operation: String,
    secrets: &'a BTreeMap<Name, String>,
}

/// Whether secrets are filled in, or shown by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// As sent.
    Sent,
    /// As kept: `{secret:name}`.
    Shown,
}

/// A filled part of a text, and the secret it came from, if it did.
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) secret: Option<Name>,
}

/// The name of a secret as it is shown in its place.
pub(super) fn placeholder(name: &Name) -> String {
    format!("{{secret:{name}}}")
}

/// The text as it is sent.
pub(super) fn joined(pieces: &[Piece]) -> String {
    pieces.iter().map(|piece| piece.text.as_str()).collect()
}

impl<'a> Filler<'a> {
    pub(super) fn new(call: &Call<'_>, secrets: &'a BTreeMap<Name, String>) -> Self {
        Self {
            context: json!({
                "args": call.args,
                "key": call.key,
                "effect_id": call.effect.as_str(),
                "run": call.run.as_str(),
            }),
            operation: operation_name(call),
            secrets,
        }
    }

    /// The value that a pointer means, if there is one.
    pub(super) fn resolve(&self, pointer: &str) -> Option<&Value> {
        self.context.pointer(pointer)
    }

    /// A text, part by part. `place` is for the error.
    pub(super) fn text(&self, text: &Text, place: &str) -> Result<Vec<Piece>, PrepareError> {
        text.0.iter().map(|part| self.part(part, place)).collect()
    }

    /// A tree. `None` when it is an optional reference to nothing.
    pub(super) fn value(
        &self,
        template: &Template,
        place: &str,
        fill: Fill,
    ) -> Result<Option<Value>, PrepareError> {
        match template {
            Template::Literal(value) => Ok(Some(value.clone())),
            Template::Reference { pointer, optional } => match self.resolve(pointer) {
                Some(value) => Ok(Some(value.clone())),
                None if *optional => Ok(None),
                None => Err(self.broken(place, pointer, "is not there")),
            },
            Template::Text(text) => {
                let pieces = self.text(text, place)?;
                Ok(Some(Value::String(match fill {
                    Fill::Sent => joined(&pieces),
                    Fill::Shown => pieces.into_iter().map(shown).collect(),
                })))
            }
            Template::Object(members) => {
                let mut object = Map::new();
                for (name, member) in members {
                    if let Some(value) = self.value(member, &format!("{place}.{name}"), fill)? {
                        object.insert(name.clone(), value);
                    }
                }
                Ok(Some(Value::Object(object)))
            }
            Template::Array(items) => {
                let mut array = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    array.extend(self.value(item, &format!("{place}[{index}]"), fill)?);
                }
                Ok(Some(Value::Array(array)))
            }
        }
    }

    /// An error about the request itself.
    pub(super) fn invalid(
        &self,
        place: impl Into<String>,
        problem: impl Into<String>,
    ) -> PrepareError {
        PrepareError::Request {
            place: place.into(),
            operation: self.operation.clone(),
            problem: problem.into(),
        }
    }

    fn part(&self, part: &Part, place: &str) -> Result<Piece, PrepareError> {
        match part {
            Part::Literal(text) => Ok(Piece { text: text.clone(), secret: None }),
            Part::Reference(pointer) => {
                let text = self.scalar(pointer, place)?;
                Ok(Piece { text, secret: None })
            }
            Part::Secret(name) => {
                let text = self.secrets.get(name).ok_or_else(|| {
                    self.invalid(place, format!("the tool declares no secret `{name}`"))
                })?;
                Ok(Piece { text: text.clone(), secret: Some(name.clone()) })
            }
        }
    }

    fn scalar(&self, pointer: &str, place: &str) -> Result<String, PrepareError> {
        match self.resolve(pointer) {
            None => Err(self.broken(place, pointer, "is not there")),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Bool(flag)) => Ok(flag.to_string()),
            Some(Value::Number(number)) if number.is_i64() || number.is_u64() => {
                Ok(number.to_string())
            }
            Some(Value::Number(_)) => {
                Err(self.broken(place, pointer, "is not an integer; give fractions as strings"))
            }
            Some(Value::Null | Value::Array(_) | Value::Object(_)) => {
                Err(self.broken(place, pointer, "is neither a string, an integer nor a boolean"))
            }
        }
    }

    fn broken(&self, place: &str, pointer: &str, problem: &str) -> PrepareError {
        PrepareError::Template {
            place: place.to_owned(),
            operation: self.operation.clone(),
            pointer: pointer.to_owned(),
            problem: problem.to_owned(),
        }
    }
}

/// `tool.operation`, as errors name it. The operation is found by identity, as a call does not carry its name.
fn operation_name(call: &Call<'_>) -> String {
    let name = call
        .tool
        .operations
        .iter()
        .find(|(_, operation)| {
            std::ptr::eq(*operation, call.operation) || *operation == call.operation
        })
        .map_or("?", |(name, _)| name.as_str());
    format!("{}.{name}", call.tool.name)
}

fn shown(piece: Piece) -> String {
    match piece.secret {
        Some(name) => placeholder(&name),
        None => piece.text,
    }
}

/// The secrets that a request refers to.
pub(super) fn secrets_of(request: &HttpRequest) -> BTreeSet<&Name> {
    let mut found = BTreeSet::new();
    let texts = request.path.iter().chain(request.query.values()).chain(request.headers.values());
    texts.for_each(|text| secrets_of_text(text, &mut found));
    if let Some(body) = &request.body {
        secrets_of_template(body, &mut found);
    }
    found
}

fn secrets_of_text<'a>(text: &'a Text, found: &mut BTreeSet<&'a Name>) {
    for part in &text.0 {
        match part {
            Part::Secret(name) => {
                found.insert(name);
            }
            Part::Literal(_) | Part::Reference(_) => {}
        }
    }
}

fn secrets_of_template<'a>(template: &'a Template, found: &mut BTreeSet<&'a Name>) {
    match template {
        Template::Literal(_) | Template::Reference { .. } => {}
        Template::Text(text) => secrets_of_text(text, found),
        Template::Object(members) => {
            members.values().for_each(|member| secrets_of_template(member, found));
        }
        Template::Array(items) => items.iter().for_each(|item| secrets_of_template(item, found)),
    }
}
