//! Fan-outs: whether their elements can be told apart, as far as schemas say.

use serde_json::Value;

use super::trust::{self, Wanted};
use super::{NodeDraft, Surroundings};
use crate::diagnostic::{Code, listed, suggest};
use crate::shape;

/// Checks the fan-out of a node, if it is one.
pub(super) fn check(around: &Surroundings<'_>, node: &NodeDraft) {
    let Some(fan_out) = &node.paths.for_each else { return };
    let known = trust::check(around, node, &fan_out.array, Wanted::Array);
    let (Some((root, items)), Some(element)) = (known, &fan_out.element) else { return };
    let report = |code, what: String, why: &str, fix: String| {
        around.sink.report(element.place, code, what, why, fix);
    };
    let why = "the identity of an element is a part of the identity of its effects; without it the run fails";
    match shape::descend(root, items, &element.value) {
        shape::Place::Absent { known, missing } => report(
            Code::ElementIdentity,
            format!("the element schema has no `{missing}`"),
            why,
            suggest("property", &missing, known),
        ),
        shape::Place::Described { schema, always } => {
            let types = shape::types(schema).unwrap_or_default();
            let unfit: Vec<&str> =
                types.into_iter().filter(|name| !matches!(*name, "string" | "integer")).collect();
            if !unfit.is_empty() {
                report(
                    Code::ElementIdentity,
                    format!("`{}` may be {} by the element schema", element.value, listed(unfit)),
                    "an identity is text: fractions have several forms, and other values none",
                    "use a string or an integer, or narrow the schema".to_owned(),
                );
            } else if !always {
                report(
                    Code::ElementIdentity,
                    format!("the element schema does not require `{}`", element.value),
                    why,
                    "add it to `required` in the schema".to_owned(),
                );
            } else if element.value.is_empty() && !is_unique(around, node) {
                report(
                    Code::ElementsRepeat,
                    "the array may hold an element twice".to_owned(),
                    "two elements with one identity could not be told apart, so they stop the run",
                    "add `\"uniqueItems\": true` to the schema of the array".to_owned(),
                );
            }
        }
        shape::Place::Open | shape::Place::Unlisted { .. } => {}
    }
}

/// The schema of the elements, when it is known.
pub(super) fn schema<'a>(around: &Surroundings<'a>, node: &NodeDraft) -> Option<&'a Value> {
    let fan_out = node.paths.for_each.as_ref()?;
    let (root, array) = trust::schema(around, &fan_out.array.value)?;
    let items = shape::items(root, array)?;
    // References within it are relative to its document; a part that has some is not looked into.
    let refers = root.get("$defs").is_some();
    (!refers).then_some(items)
}

fn is_unique(around: &Surroundings<'_>, node: &NodeDraft) -> bool {
    let array = node.paths.for_each.as_ref().map(|fan_out| fan_out.array.value.as_str());
    let schema = array.and_then(|array| trust::schema(around, array));
    schema.is_none_or(|(_, schema)| schema.get("uniqueItems") == Some(&Value::Bool(true)))
}
