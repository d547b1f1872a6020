//! The elements of a fan-out: which there are, and how each is told from the others.

use std::collections::BTreeMap;

use serde_json::Value;
use twice_core::ids::ElementId;
use twice_core::limits::ELEMENTS_MAX;

use crate::model::FanOut;
use crate::source::{self, SourceError, Trusted};

/// Why a fan-out cannot begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElementsError {
    /// There is no array.
    #[error("there is no array to fan out over")]
    Source(#[source] SourceError),
    /// The value is no array.
    #[error("there is no array at `{pointer}`")]
    NotAnArray {
        /// Where it was looked for.
        pointer: String,
    },
    /// There are too many.
    #[error("there are {count} elements at `{pointer}`; at most {ELEMENTS_MAX} are possible")]
    TooMany {
        /// Where they are.
        pointer: String,
        /// How many.
        count: usize,
    },
    /// An element has no identity.
    #[error("element {index} of `{pointer}` has no identity at `{element}`: {problem}")]
    NoIdentity {
        /// Where the array is.
        pointer: String,
        /// Where the element stands, from 0.
        index: usize,
        /// Where its identity should be.
        element: String,
        /// What is there instead.
        problem: String,
    },
    /// Two elements have one identity.
    #[error(
        "elements {first} and {second} of `{pointer}` have one identity, `{id}`: their effects could not be told apart"
    )]
    Duplicate {
        /// Where the array is.
        pointer: String,
        /// Where the first stands, from 0.
        first: usize,
        /// Where the second stands.
        second: usize,
        /// The identity.
        id: ElementId,
    },
}

/// The array of a fan-out and the identities of its elements, in its order.
///
/// # Errors
/// [`ElementsError`] when there is no such array, or its elements cannot be told apart.
pub fn of(
    fan_out: &FanOut,
    trusted: Trusted<'_>,
) -> Result<(Vec<Value>, Vec<ElementId>), ElementsError> {
    let pointer = || fan_out.array.clone();
    let array = source::resolve(&fan_out.array, trusted).map_err(ElementsError::Source)?;
    let Value::Array(items) = array.into_owned() else {
        return Err(ElementsError::NotAnArray { pointer: pointer() });
    };
    if items.len() > ELEMENTS_MAX {
        return Err(ElementsError::TooMany { pointer: pointer(), count: items.len() });
    }
    let mut ids = Vec::with_capacity(items.len());
    let mut seen: BTreeMap<ElementId, usize> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let id = id_of(item, &fan_out.element).map_err(|problem| ElementsError::NoIdentity {
            pointer: pointer(),
            index,
            element: fan_out.element.clone(),
            problem,
        })?;
        if let Some(first) = seen.insert(id.clone(), index) {
            return Err(ElementsError::Duplicate { pointer: pointer(), first, second: index, id });
        }
        ids.push(id);
    }
    Ok((items, ids))
}

fn id_of(item: &Value, pointer: &str) -> Result<ElementId, String> {
    let value = item.pointer(pointer).ok_or("there is nothing")?;
    let text = source::object_text(value).map_err(|error| error.to_string())?;
    ElementId::parse(text).map_err(|error| format!("it is not {}", error.rule))
}
