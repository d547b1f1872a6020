//! Trusted sources: where the business object of an effect may come from (I2), and how it is taken from there.

use std::borrow::Cow;

use serde_json::Value;
use twice_core::ids::Name;

use crate::model::{Slot, Uses};
use crate::shape::is_pointer;

/// Why there is no business object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The pointer does not lead into trusted durable state.
    #[error(
        "`{pointer}` is not a trusted source: use `/input/…`, `/receipts/<node>/<slot>/…`, or `/element/…` in a fan-out"
    )]
    Untrusted {
        /// The pointer.
        pointer: String,
    },
    /// The step is not one of a fan-out.
    #[error("there is no element for `{pointer}`: the node has no `for_each`")]
    NoElement {
        /// The pointer.
        pointer: String,
    },
    /// There is no receipt under that node and slot.
    #[error("there is no receipt of slot `{slot}` of node `{node}` for `{pointer}`")]
    NoReceipt {
        /// The pointer.
        pointer: String,
        /// The node.
        node: Name,
        /// The slot.
        slot: Name,
    },
    /// Nothing is there.
    #[error("there is nothing at `{pointer}`")]
    Nothing {
        /// The pointer.
        pointer: String,
    },
    /// The value is neither a string nor an integer, or is empty.
    #[error("a business object must be a string that is not empty, or an integer; this is {got}")]
    NotAnObject {
        /// What it is.
        got: &'static str,
    },
    /// The slot is bound to an array, and what is there is none.
    #[error("there is no array at `{pointer}`")]
    NotAnArray {
        /// The pointer.
        pointer: String,
    },
    /// The slot is bound to an array, and the request selects no element of it.
    #[error("`item` must be 0 to {last}: the slot is bound to the array at `{pointer}`", last = .length.saturating_sub(1))]
    NoSuchItem {
        /// The pointer to the array.
        pointer: String,
        /// How many elements it has.
        length: usize,
    },
    /// The slot is not bound to an array, and the request selects an element.
    #[error("`item` is set, and slot `{slot}` is not bound to an array (`for_each`)")]
    UnexpectedItem {
        /// The slot.
        slot: Name,
    },
}

/// A trusted source, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source<'a> {
    /// The validated run input.
    Input {
        /// JSON Pointer into it.
        rest: &'a str,
    },
    /// The element of a fan-out that the step is about.
    Element {
        /// JSON Pointer into it.
        rest: &'a str,
    },
    /// A receipt that an earlier node got. It is seen as `{ "external_id": …, "result": … }`.
    Receipt {
        /// The node.
        node: Name,
        /// The slot.
        slot: Name,
        /// JSON Pointer into it.
        rest: &'a str,
    },
}

/// Takes a pointer apart.
///
/// # Errors
/// [`SourceError::Untrusted`] when it leads anywhere but to the run input, the element or a receipt.
pub fn parse(pointer: &str) -> Result<Source<'_>, SourceError> {
    let untrusted = || SourceError::Untrusted { pointer: pointer.to_owned() };
    if !is_pointer(pointer) {
        return Err(untrusted());
    }
    if let Some(rest) = pointer.strip_prefix("/input")
        && (rest.is_empty() || rest.starts_with('/'))
    {
        return Ok(Source::Input { rest });
    }
    if let Some(rest) = pointer.strip_prefix("/element")
        && (rest.is_empty() || rest.starts_with('/'))
    {
        return Ok(Source::Element { rest });
    }
    let path = pointer.strip_prefix("/receipts/").ok_or_else(untrusted)?;
    let (node, path) = path.split_once('/').ok_or_else(untrusted)?;
    let (slot, rest) = match path.find('/') {
        Some(end) => path.split_at(end),
        None => (path, ""),
    };
    let node = Name::parse(node).map_err(|_| untrusted())?;
    let slot = Name::parse(slot).map_err(|_| untrusted())?;
    Ok(Source::Receipt { node, slot, rest })
}

/// Trusted durable state, as a step may take identities from it.
#[derive(Clone, Copy)]
pub struct Trusted<'a> {
    /// The validated run input.
    pub input: &'a Value,
    /// The element that the step is about, in a fan-out.
    pub element: Option<&'a Value>,
    /// Gives the receipt of a node's slot as `{ "external_id": …, "result": … }`, when it is confirmed.
    pub receipts: &'a dyn Fn(&Name, &Name) -> Option<Value>,
}

/// The value at a trusted pointer.
///
/// # Errors
/// [`SourceError`] when the pointer is not trusted or nothing is there.
pub fn resolve<'v>(pointer: &str, trusted: Trusted<'v>) -> Result<Cow<'v, Value>, SourceError> {
    let nothing = || SourceError::Nothing { pointer: pointer.to_owned() };
    match parse(pointer)? {
        Source::Input { rest } => {
            trusted.input.pointer(rest).map(Cow::Borrowed).ok_or_else(nothing)
        }
        Source::Element { rest } => {
            let none = || SourceError::NoElement { pointer: pointer.to_owned() };
            trusted.element.ok_or_else(none)?.pointer(rest).map(Cow::Borrowed).ok_or_else(nothing)
        }
        Source::Receipt { node, slot, rest } => match (trusted.receipts)(&node, &slot) {
            Some(receipt) => receipt.pointer(rest).cloned().map(Cow::Owned).ok_or_else(nothing),
            None => Err(SourceError::NoReceipt { pointer: pointer.to_owned(), node, slot }),
        },
    }
}

/// The business object of a request through `slot`; `None` only for reads, which need none.
///
/// # Errors
/// [`SourceError`] when there is none, or when `item` does not fit the slot.
pub fn object_of(
    slot: &Slot,
    item: Option<u32>,
    trusted: Trusted<'_>,
) -> Result<Option<String>, SourceError> {
    match (&slot.uses, item) {
        (Uses::Once | Uses::Repeat(_), Some(_)) => {
            Err(SourceError::UnexpectedItem { slot: slot.name.clone() })
        }
        (Uses::Once | Uses::Repeat(_), None) => {
            let Some(pointer) = &slot.object else { return Ok(None) };
            object_text(resolve(pointer, trusted)?.as_ref()).map(Some)
        }
        (Uses::ForEach(array), item) => {
            let array_value = resolve(array, trusted)?;
            let Value::Array(items) = &*array_value else {
                return Err(SourceError::NotAnArray { pointer: array.clone() });
            };
            let index = item.and_then(|item| usize::try_from(item).ok());
            let Some(element) = index.and_then(|index| items.get(index)) else {
                let (pointer, length) = (array.clone(), items.len());
                return Err(SourceError::NoSuchItem { pointer, length });
            };
            let Some(pointer) = &slot.object else { return Ok(None) };
            let value = element
                .pointer(pointer)
                .ok_or_else(|| SourceError::Nothing { pointer: format!("{array}/…{pointer}") })?;
            object_text(value).map(Some)
        }
    }
}

/// A value as the name of a business object: a string, or an integer as decimal text.
///
/// # Errors
/// [`SourceError::NotAnObject`] for anything else; a fraction has no one text, and an empty name names nothing.
pub fn object_text(value: &Value) -> Result<String, SourceError> {
    let got = match value {
        Value::String(text) if text.is_empty() => "an empty string",
        Value::String(text) => return Ok(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => {
            return Ok(number.to_string());
        }
        Value::Number(_) => "a fraction",
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Err(SourceError::NotAnObject { got })
}
