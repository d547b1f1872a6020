//! JSON as Twice takes it in and hashes it: strict to read (DESIGN §4), RFC 8785 to write.
//!
//! Architecture invariant: reading and writing of hashed JSON is done here and not by `serde_json`, so that no feature
//! that some other crate switches on in it (number precision, member order) can change a hash.

mod parse;
mod write;

use std::fmt;

use serde_json::Value;

use crate::limits::{JSON_DEPTH_MAX, JSON_INTEGER_MAX};

pub use write::canonical;

/// Why a text or value is not JSON as Twice takes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at {place}")]
pub struct JsonError {
    /// What is wrong, and the fix where there is one.
    pub problem: JsonProblem,
    /// Where.
    pub place: Place,
}

/// Where in a text or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a text.
    Text {
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
    },
    /// In a value: JSON Pointer (RFC 6901).
    Pointer(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { line, column } => write!(f, "line {line}, column {column}"),
            Self::Pointer(pointer) => write!(f, "`{pointer}`"),
        }
    }
}

/// What is wrong with JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonProblem {
    /// The text is longer than may be taken.
    #[error("JSON of {bytes} bytes is over the limit of {max} bytes")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The text is not JSON.
    #[error("not JSON: expected {expected}, found {found}")]
    Syntax {
        /// What could stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A member occurs twice in one object: readers differ in which they take.
    #[error("duplicate member `{key}`")]
    DuplicateKey {
        /// Its name.
        key: String,
    },
    /// An integer that other readers would round.
    #[error("integer `{number}` is beyond ±(2^53−1); pass it as a string")]
    IntegerRange {
        /// As written.
        number: String,
    },
    /// A number too large for any reader.
    #[error("number `{number}` is not finite")]
    NotFinite {
        /// As written.
        number: String,
    },
    /// Nested too deep.
    #[error("nested deeper than {max} levels")]
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// Half of a UTF-16 pair, which no text can hold.
    #[error("lone surrogate `\\u{unit:04x}` in a string")]
    LoneSurrogate {
        /// The code unit.
        unit: u16,
    },
}

/// Reads JSON strictly: one value, no duplicate member, no integer beyond ±(2^53−1) (in whatever spelling), no number
/// that is not finite, no lone surrogate, at most [`JSON_DEPTH_MAX`] levels. Numbers that are whole become integers, so
/// that `1.0`, `1e0` and `1` are one value, as they are one canonical text.
///
/// # Errors
/// [`JsonError`] with line and column of the first offence; `max_bytes` is checked before anything is read.
pub fn parse(text: &str, max_bytes: usize) -> Result<Value, JsonError> {
    parse::value(text, max_bytes, JSON_DEPTH_MAX)
}

/// As [`parse`], for texts that wrap JSON of full depth, such as the body of a ledger entry.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_deeper(
    text: &str,
    max_bytes: usize,
    max_depth: usize,
) -> Result<Value, JsonError> {
    parse::value(text, max_bytes, max_depth)
}

/// Checks a value that did not come from [`parse`] by the same rules, as far as a value can break them.
///
/// # Errors
/// [`JsonError`] with the JSON Pointer of the first offence.
pub fn check(value: &Value) -> Result<(), JsonError> {
    check_at(value, 1, &mut Vec::new())
}

fn check_at(value: &Value, depth: usize, path: &mut Vec<String>) -> Result<(), JsonError> {
    let refuse = |problem, path: &[String]| {
        let pointer = path.iter().fold(String::new(), |all, token| all + "/" + token);
        Err(JsonError { problem, place: Place::Pointer(pointer) })
    };
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) => match check_number(number) {
            Some(problem) => refuse(problem, path),
            None => Ok(()),
        },
        Value::Array(_) | Value::Object(_) if depth > JSON_DEPTH_MAX => {
            refuse(JsonProblem::TooDeep { max: JSON_DEPTH_MAX }, path)
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                check_at(item, depth + 1, path)?;
                path.pop();
            }
            Ok(())
        }
        Value::Object(members) => {
            for (key, member) in members {
                path.push(key.replace('~', "~0").replace('/', "~1"));
                check_at(member, depth + 1, path)?;
                path.pop();
            }
            Ok(())
        }
    }
}

fn check_number(number: &serde_json::Number) -> Option<JsonProblem> {
    if let Some(integer) = number.as_i64() {
        let small = integer.unsigned_abs() <= JSON_INTEGER_MAX.unsigned_abs();
        return (!small).then(|| JsonProblem::IntegerRange { number: number.to_string() });
    }
    match number.as_f64() {
        Some(float) if !float.is_finite() => {
            Some(JsonProblem::NotFinite { number: number.to_string() })
        }
        // Every double of that size is whole.
        Some(float) if float.abs() > JSON_INTEGER_MAX as f64 => {
            Some(JsonProblem::IntegerRange { number: number.to_string() })
        }
        Some(_) => None,
        None => Some(JsonProblem::NotFinite { number: number.to_string() }),
    }
}

/// Takes out what a JSON Pointer (RFC 6901) points at, if it is there. A member is removed; an element of an array
/// becomes `null`, so that its neighbours keep their places (and several pointers into one array mean what they say).
pub fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    match value.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.remove(&last.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(_)) => {
            if let Some(element) = value.pointer_mut(pointer) {
                *element = Value::Null;
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
    }
}
