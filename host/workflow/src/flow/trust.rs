//! Whether a source of identity can be trusted (I2): it must not be anything that a guest or a model made up.

use serde_json::Value;
use twice_core::ids::Name;

use super::relations::Knows;
use super::{NodeDraft, Surroundings, named};
use crate::diagnostic::{Code, listed, suggest};
use crate::model::Uses;
use crate::read::{At, check_pointer};
use crate::shape;
use crate::source::{self, Source};

/// What a pointer must lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A business object: a string or an integer.
    Object,
    /// A list of them.
    Array,
}

/// A schema and the document that its references are relative to.
pub(super) type Schema<'a> = (&'a Value, &'a Value);

const FORMS: &str =
    "`/input/…`, or `/receipts/<node>/<slot>/…` of an earlier node whose tool is not a model";

/// Checks a pointer into trusted state. For an array: the schema of its elements, when it is known.
pub(super) fn check<'a>(
    around: &Surroundings<'a>,
    node: &NodeDraft,
    pointer: &At<String>,
    wanted: Wanted,
) -> Option<Schema<'a>> {
    match source::parse(&pointer.value) {
        Err(_) => {
            refuse(around, pointer);
            None
        }
        Ok(Source::Input { rest }) => {
            check_shape(around, pointer, around.input?, rest, wanted, "input")
        }
        Ok(Source::Element { rest }) => {
            let fan_out = node.paths.for_each.as_ref();
            if fan_out.is_none_or(|fan_out| fan_out.array.value == pointer.value) {
                around.sink.report(
                    pointer.place,
                    Code::Untrusted,
                    format!("`{}` leads nowhere: there is no element", pointer.value),
                    "only a step of a node with `for_each` is about an element",
                    format!("use {FORMS}"),
                );
                return None;
            }
            let (root, array) = schema(around, &fan_out?.array.value)?;
            let place = shape::descend(root, shape::items(root, array)?, rest);
            let schema = check_place(around, pointer, place, wanted, "element")?;
            (wanted == Wanted::Array)
                .then(|| shape::items(root, schema).map(|items| (root, items)))?
        }
        Ok(Source::Receipt { node: from, slot, rest }) => {
            let schema = receipt(around, node, pointer, &from, &slot, rest)?;
            let rest = rest.strip_prefix("/result")?;
            check_shape(around, pointer, schema, rest, wanted, "response")
        }
    }
}

/// The schema of what a pointer leads to, with its document, when it is known. Nothing is reported.
pub(super) fn schema<'a>(around: &Surroundings<'a>, pointer: &str) -> Option<Schema<'a>> {
    let (root, rest) = match source::parse(pointer).ok()? {
        Source::Input { rest } => (around.input?, rest),
        Source::Element { .. } => return None,
        Source::Receipt { node, slot, rest } => {
            let node = around.nodes.iter().find(|other| other.name.value == node)?;
            let slot = node.slots.iter().find(|other| other.name.value == slot)?;
            let (tool, operation) = &slot.target.as_ref()?.value;
            let operation = around.tools.get(tool)?.as_ref()?.operations.get(operation)?;
            (operation.response_schema.as_ref()?, rest.strip_prefix("/result")?)
        }
    };
    match shape::find(root, rest) {
        shape::Place::Described { schema, .. } => Some((root, schema)),
        shape::Place::Absent { .. } | shape::Place::Unlisted { .. } | shape::Place::Open => None,
    }
}

fn refuse(around: &Surroundings<'_>, pointer: &At<String>) {
    if !check_pointer(around.sink, pointer) {
        return;
    }
    let text = &pointer.value;
    let (what, why, fix) = if text == "/nodes" || text.starts_with("/nodes/") {
        (
            format!("`{text}` is a node's output, which is no trusted source"),
            "a node's output is guest output: a guest that returns another value after a restart would make a second effect",
            format!("use {FORMS}"),
        )
    } else if text.starts_with("/args") {
        (
            format!("`{text}` is what the guest sends, which is no trusted source"),
            "an identity that followed the args would change with them, and the effect would happen again",
            format!("use {FORMS}"),
        )
    } else if text == "/receipts" || text.starts_with("/receipts/") {
        (
            format!("`{text}` does not name a receipt"),
            "a receipt is found by the node and the slot that got it",
            "write `/receipts/<node>/<slot>/external_id` or `/receipts/<node>/<slot>/result/…`"
                .to_owned(),
        )
    } else {
        (
            format!("`{text}` is no trusted source"),
            "an identity derives from trusted durable state alone",
            format!("use {FORMS}"),
        )
    };
    around.sink.report(pointer.place, Code::Untrusted, what, why, fix);
}

/// Checks that a receipt exists and may be a source; its response schema, when that is known.
fn receipt<'a>(
    around: &Surroundings<'a>,
    node: &NodeDraft,
    pointer: &At<String>,
    from: &Name,
    slot: &Name,
    rest: &str,
) -> Option<&'a Value> {
    let report = |code, what: String, why: &str, fix: String| {
        around.sink.report(pointer.place, code, what, why, fix);
    };
    let why = "a receipt exists only once the node that gets it is done";
    let Some(source) = around.nodes.iter().find(|other| other.name.value == *from) else {
        let names = around.nodes.iter().map(|node| node.name.value.as_str());
        let fix = suggest("node", from.as_str(), names);
        report(Code::Dangling, format!("there is no node `{from}`"), why, fix);
        return None;
    };
    match around.relations.knows(&node.name.value, from) {
        Knows::Done => {}
        Knows::Unclear => return None,
        Knows::EarlierRound if *from == node.name.value => {
            report(
                Code::Untrusted,
                format!("`{from}` takes its own receipt for a source"),
                "in the midst of the step the receipt of the round before gives way to that of this one",
                "take the value from a node before it, or let a node behind it make the effect"
                    .to_owned(),
            );
            return None;
        }
        Knows::Settled | Knows::EarlierRound if is_guarded(node, from) => {}
        Knows::Settled | Knows::EarlierRound => report(
            Code::MaybeSkipped,
            format!("`{from}` may not have run when `{}` starts", node.name.value),
            "without it there is no receipt, and the request fails; another branch, or the first round of a loop, comes without it",
            "take the value from a node that always runs before, or let `when` ask for the receipt"
                .to_owned(),
        ),
        Knows::Unsettled => {
            report(
                Code::Untrusted,
                format!("`{from}` may still be at work when `{}` starts", node.name.value),
                "with `join = \"any\"` the receipt may come, or change, in the midst of the step",
                "wait for all, or take the value from a node before the join".to_owned(),
            );
            return None;
        }
        Knows::Nothing if *from == node.name.value => {
            report(
                Code::Dangling,
                format!("`{from}` takes its own receipt for a source"),
                "what an effect is about is settled before it is asked for, and there is no receipt of the node until then",
                "take the value from the input or a node before it, or let a node behind it make the effect"
                    .to_owned(),
            );
            return None;
        }
        Knows::Nothing => {
            let what = format!("`{from}` is not done before `{}` starts", node.name.value);
            let behind = around.relations.is_behind(from, &node.name.value);
            report(Code::Dangling, what, why, named::before(from.as_str(), behind));
            return None;
        }
    }
    let Some(draft) = source.slots.iter().find(|other| other.name.value == *slot) else {
        let names = source.slots.iter().map(|slot| slot.name.value.as_str());
        let fix = suggest("slot", slot.as_str(), names);
        report(Code::Dangling, format!("the node `{from}` has no slot `{slot}`"), why, fix);
        return None;
    };
    if draft.uses.value != Uses::Once || source.paths.for_each.is_some() {
        report(
            Code::Untrusted,
            format!("slot `{slot}` of `{from}` may have many receipts"),
            "which of them is meant would depend on what the guest asked for first",
            "take the object from a slot that is used once, or from the input".to_owned(),
        );
        return None;
    }
    let first = shape::tokens(rest).next().unwrap_or_default();
    if draft.child && first == "result" {
        report(
            Code::Untrusted,
            "the result of a child workflow is no trusted source".to_owned(),
            "it is what the nodes of the child returned: guest output",
            "take `/external_id`, which is the child's run, or a value from the input".to_owned(),
        );
        return None;
    }
    let (tool, operation) = &draft.target.as_ref()?.value;
    let tool = if draft.child { None } else { Some(around.tools.get(tool)?.as_ref()?) };
    if let Some(tool) = tool.filter(|tool| tool.model) {
        report(
            Code::Untrusted,
            format!("the tool `{}` is a model, whose answers are no trusted source", tool.name),
            "a model may answer otherwise the next time, and what it read may have told it what to say",
            "let a trusted tool confirm the value first, and use that tool's receipt".to_owned(),
        );
        return None;
    }
    if !matches!(first.as_str(), "external_id" | "result") {
        report(
            Code::NoSuchValue,
            if rest.is_empty() {
                format!("`{}` is a whole receipt", pointer.value)
            } else {
                format!("a receipt has no `{first}`")
            },
            "as a source, a receipt is seen as `{ external_id, result }`",
            "go on with `/external_id` or `/result/…`".to_owned(),
        );
        return None;
    }
    tool?.operations.get(operation)?.response_schema.as_ref()
}

/// Whether the condition of the node asks for what it takes, or for the route that led to it.
fn is_guarded(node: &NodeDraft, from: &Name) -> bool {
    let when = node.paths.when.as_ref();
    when.is_some_and(|when| named::is_guarded(&when.expression, from.as_str()))
}

fn check_shape<'a>(
    around: &Surroundings<'a>,
    pointer: &At<String>,
    root: &'a Value,
    rest: &str,
    wanted: Wanted,
    which: &str,
) -> Option<Schema<'a>> {
    let schema = check_place(around, pointer, shape::find(root, rest), wanted, which)?;
    (wanted == Wanted::Array).then(|| shape::items(root, schema).map(|items| (root, items)))?
}

/// Checks an object that is relative to the element of an array.
pub(super) fn check_relative(
    around: &Surroundings<'_>,
    object: &At<String>,
    element: Option<Schema<'_>>,
) {
    let text = &object.value;
    if !check_pointer(around.sink, object) {
        return;
    }
    if ["/input", "/receipts", "/nodes", "/args", "/element"]
        .iter()
        .any(|root| text == root || text.starts_with(&format!("{root}/")))
    {
        around.sink.report(
            object.place,
            Code::Untrusted,
            format!("`{text}` is not relative to the element"),
            "with `for_each`, each element of the trusted array has its own business object",
            "write the pointer within the element, for example `/order_id`; `\"\"` is the element itself",
        );
    } else if let Some((root, element)) = element {
        let place = shape::descend(root, element, text);
        check_place(around, object, place, Wanted::Object, "element");
    }
}

fn check_place<'a>(
    around: &Surroundings<'_>,
    pointer: &At<String>,
    place: shape::Place<'a>,
    wanted: Wanted,
    which: &str,
) -> Option<&'a Value> {
    let (schema, always) = match place {
        shape::Place::Open | shape::Place::Unlisted { .. } => return None,
        shape::Place::Described { schema, always } => (schema, always),
        shape::Place::Absent { known, missing } => {
            around.sink.report(
                pointer.place,
                Code::NoSuchValue,
                format!("the {which} schema has no `{missing}`"),
                "the schema is closed (`additionalProperties` is false), so it can never be there",
                suggest("property", &missing, known),
            );
            return None;
        }
    };
    let (fitting, form, why): (&[&str], _, _) = match wanted {
        Wanted::Object => (
            &["string", "integer"],
            "a string or an integer",
            "an identity is text: fractions have several forms, and other values none",
        ),
        Wanted::Array => {
            (&["array"], "an array", "`for_each` binds the slot to the elements of an array")
        }
    };
    let types = shape::types(schema).unwrap_or_default();
    let unfit: Vec<&str> = types.into_iter().filter(|name| !fitting.contains(name)).collect();
    if !unfit.is_empty() {
        around.sink.report(
            pointer.place,
            Code::ObjectType,
            format!("`{}` may be {} by the {which} schema", pointer.value, listed(unfit)),
            why,
            format!("use {form}, or narrow the schema"),
        );
    } else if !always {
        around.sink.report(
            pointer.place,
            Code::ObjectOptional,
            format!("the {which} schema does not require `{}`", pointer.value),
            "a run without it starts, and fails at this effect",
            "add it to `required` in the schema",
        );
    }
    Some(schema)
}
