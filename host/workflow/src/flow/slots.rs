//! Slots: the effects that a node may request.

use std::collections::BTreeMap;

use serde_json::Value;
use twice_core::ids::Name;

use super::trust::{self, Wanted};
use super::{INTENT_CHARS_MAX, NodeDraft, READ_INTENT, REPEAT_MAX, SlotDraft, Surroundings};
use super::{allow, approve, children, compensate, saga};
use crate::diagnostic::{Code, suggest};
use crate::model::{OnConflict, Operation, Slot, Uses};
use crate::read::{At, Table};
use crate::units::duration_text;

/// Reads a slot.
pub(super) fn read(table: &Table<'_>) -> Option<SlotDraft> {
    let sink = table.sink;
    let name = table.required("slot", "\"refund\"").and_then(|item| item.as_name(sink, "a slot"));
    let child = table.item("workflow").is_some();
    let target = if child { children::read(table) } else { target(table) };
    let object = table.text("object");
    let intent = table.text("intent");
    let import = import(table, child);
    if let Some(intent) = &intent {
        check_intent(table, intent);
    };
    let shared = table.word("scope", &[("run", false), ("object", true)]).unwrap_or(false);
    let uses = uses(table);
    let allow = allow::read(table);
    let rules = [("halt", OnConflict::Halt), ("keep", OnConflict::Keep)];
    let on_conflict = table.word("on_conflict", &rules).unwrap_or(OnConflict::Halt);
    let approve = approve::read(table);
    table.not_yet("when", "a branch", "branch inside the node, or by `when` of the node");
    let pivot = table.flag("pivot");
    let pivot = pivot.then(|| table.item("pivot").map_or(table.place, |item| item.place));
    let compensate = compensate::read(table);
    let lock = saga::read_lock(table);
    Some(SlotDraft {
        place: table.place,
        name: name?,
        target,
        child,
        import,
        object,
        intent,
        shared,
        uses,
        allow,
        approve,
        on_conflict,
        compensate,
        pivot,
        lock,
    })
}

/// Reads `import`: the interface by which a typed component asks for the slot.
fn import(table: &Table<'_>, child: bool) -> Option<String> {
    let import = table.interface("import")?;
    if child {
        table.sink.report(
            import.place,
            Code::Contradiction,
            "`import` stands beside `workflow`",
            "the functions of an interface are a tool's operations; a child workflow is asked for by `twice:node/effects`",
            "remove it",
        );
    }
    Some(import.value)
}

/// Reads `tool`: the tool and its operation.
pub(super) fn target(table: &Table<'_>) -> Option<At<(Name, Name)>> {
    let item = table.required("tool", "\"payments.refund\"")?;
    let text = item.as_text(table.sink, "`tool`")?;
    let names = text.value.split_once('.').and_then(|(tool, operation)| {
        Some((Name::parse(tool).ok()?, Name::parse(operation).ok()?))
    });
    if names.is_none() {
        let what = format!("`{}`, which names no operation", text.value);
        table.bad_value("tool", text.place, &what, "the tool and its operation: `payments.refund`");
    }
    names.map(|value| At { value, place: text.place })
}

fn check_intent(table: &Table<'_>, intent: &At<String>) {
    let text = &intent.value;
    let fits = !text.trim().is_empty()
        && text.chars().count() <= INTENT_CHARS_MAX
        && !text.contains(['{', '}'])
        && !text.chars().any(char::is_control);
    if !fits {
        let form = format!(
            "1 to {INTENT_CHARS_MAX} characters of plain text; an intent is literal, so `{{…}}` in it would not be filled in"
        );
        table.bad_value("intent", intent.place, "not plain text", &form);
    }
}

fn uses(table: &Table<'_>) -> At<Uses> {
    let place = table.place;
    let each = table.text("for_each");
    let repeat = table.item("repeat");
    let count = table.integer("repeat", 1..=REPEAT_MAX);
    if let (Some(_), Some(item)) = (&each, repeat) {
        table.sink.report(
            item.place,
            Code::Contradiction,
            "both `for_each` and `repeat` are given",
            "a request is told from its siblings either by an element or by a count",
            "keep one of them",
        );
    }
    match (each, count) {
        (Some(each), _) => each.map(Uses::ForEach),
        (None, Some(count)) => At { value: Uses::Repeat(count), place },
        (None, None) => At { value: Uses::Once, place },
    }
}

/// What a slot asks for.
pub(super) struct Target<'a> {
    /// The operation; none for a child workflow.
    pub(super) operation: Option<&'a Operation>,
    /// The schema of the args.
    pub(super) args: Option<&'a Value>,
    /// Whether it is a read, when that is known.
    pub(super) read: Option<bool>,
}

impl<'a> Target<'a> {
    /// What a slot asks for; what is wrong with that is reported.
    pub(super) fn of(around: &Surroundings<'a>, slot: &SlotDraft) -> Self {
        let Some(target) = &slot.target else {
            return Self { operation: None, args: None, read: None };
        };
        if slot.child {
            let args = children::check(around, target);
            return Self { operation: None, args, read: Some(false) };
        }
        let operation = operation(around, target);
        Self {
            operation,
            args: operation.map(|operation| &operation.args_schema),
            read: operation.map(|operation| operation.contract.read),
        }
    }

    /// Whether it may be sent again until its outcome is known: it is a read, honours a key, or starts a run, which is
    /// started once however often it is asked for.
    pub(super) fn is_retryable(&self) -> Option<bool> {
        let contract = self.operation.map(|operation| &operation.contract);
        match contract {
            Some(contract) => Some(contract.read || contract.key.is_some()),
            None => self.read.map(|_| true),
        }
    }
}

/// Checks a slot against everything around it. `None` when something is wrong, which is reported.
pub(super) fn check(
    around: &Surroundings<'_>,
    node: &NodeDraft,
    slot: &SlotDraft,
    target: &Target<'_>,
) -> Option<Slot> {
    let (operation, is_read) = (target.operation, target.read);
    let elements = match &slot.uses.value {
        Uses::ForEach(pointer) => {
            let at = At { value: pointer.clone(), place: slot.uses.place };
            Some(trust::check(around, node, &at, Wanted::Array))
        }
        Uses::Once | Uses::Repeat(_) => None,
    };
    match (&slot.object, elements) {
        (Some(object), Some(elements)) => trust::check_relative(around, object, elements),
        (Some(object), None) => drop(trust::check(around, node, object, Wanted::Object)),
        (None, _) => check_no_object(around, slot, is_read),
    }
    if slot.intent.is_none() && is_read == Some(false) {
        around.sink.report(
            slot.place,
            Code::MissingKey,
            format!("the slot `{}` does not state `intent`", slot.name.value),
            "two effects on one object are told apart by what they are for; it is a part of the identity",
            "add it, for example `intent = \"full-damaged-item\"`",
        );
    }
    if let Some(operation) = operation
        && node.limits.time_ms < operation.contract.timeout_ms
    {
        around.sink.report(
            slot.place,
            Code::ShortTime,
            format!(
                "the node has {} in all, and one attempt of this operation may take {}",
                duration_text(node.limits.time_ms),
                duration_text(operation.contract.timeout_ms)
            ),
            "when the node's time is up amid a request, the outcome is unknown and must be reconciled",
            "raise the node's `limits.time`, or shorten the operation's `timeout`",
        );
    }
    allow::check(around, node, slot, target.args);
    let approve = approve::check(around, node, slot.approve.as_ref(), target.args, true);
    let compensate = compensate::check(around, node, slot, target);
    let lock = saga::check_lock(around, slot);
    let (tool, operation) = slot.target.as_ref()?.value.clone();
    Some(Slot {
        name: slot.name.value.clone(),
        tool,
        operation,
        import: slot.import.clone(),
        object: slot.object.as_ref().map(|at| at.value.clone()),
        intent: slot.intent.as_ref().map_or_else(|| READ_INTENT.to_owned(), |at| at.value.clone()),
        shared: slot.shared,
        uses: slot.uses.value.clone(),
        allow: slot.allow.text(),
        approve,
        on_conflict: slot.on_conflict,
        child: slot.child,
        compensate,
        pivot: slot.pivot.is_some(),
        lock,
    })
}

/// The operation that a target names; reported when there is none.
pub(super) fn operation<'a>(
    around: &Surroundings<'a>,
    target: &At<(Name, Name)>,
) -> Option<&'a Operation> {
    let (tool_name, name) = &target.value;
    match around.tools.get(tool_name) {
        None if around.tools_hidden => None,
        None => {
            around.sink.report(
                target.place,
                Code::Dangling,
                format!("there is no tool `{tool_name}`"),
                "a slot grants an operation of a tool in `tools/`",
                suggest("tool", tool_name.as_str(), around.tools.keys().map(Name::as_str)),
            );
            None
        }
        // What is wrong with the tool is reported in its own file.
        Some(None) => None,
        Some(Some(tool)) => {
            let operation = tool.operations.get(name);
            if operation.is_none() {
                around.sink.report(
                    target.place,
                    Code::Dangling,
                    format!("the tool `{tool_name}` has no operation `{name}`"),
                    "a slot grants an operation of a tool in `tools/`",
                    suggest("operation", name.as_str(), tool.operations.keys().map(Name::as_str)),
                );
            }
            operation
        }
    }
}

fn check_no_object(around: &Surroundings<'_>, slot: &SlotDraft, is_read: Option<bool>) {
    let why = match (slot.shared, is_read) {
        (true, _) => "with `scope = \"object\"` the object is what runs share",
        (false, Some(false)) => {
            "only the object tells this effect from the same one on something else; reads alone need none"
        }
        (false, Some(true) | None) => return,
    };
    around.sink.report(
        slot.place,
        Code::NoObject,
        format!("the slot `{}` has no `object`", slot.name.value),
        why,
        "add it, for example `object = \"/input/order_id\"`",
    );
}

/// Warns of slots that ask for the same thing: with `scope = "object"` they are one effect, as the slot is no part of a
/// shared identity; otherwise they are two, and both happen.
pub(super) fn check_alike(around: &Surroundings<'_>) {
    let mut first: BTreeMap<_, (&Name, &SlotDraft)> = BTreeMap::new();
    for node in around.nodes {
        for slot in &node.slots {
            let (Some(target), Some(object), Some(intent)) =
                (&slot.target, &slot.object, &slot.intent)
            else {
                continue;
            };
            let each = match &slot.uses.value {
                Uses::ForEach(pointer) => Some(pointer),
                Uses::Once | Uses::Repeat(_) => None,
            };
            let asked = (&target.value, &object.value, &intent.value, each);
            if let Some((other_node, other)) = first.insert(asked, (&node.name.value, slot)) {
                report_alike(around, slot, other_node, other);
            }
        }
    }
}

fn report_alike(around: &Surroundings<'_>, slot: &SlotDraft, other_node: &Name, other: &SlotDraft) {
    let other_slot = &other.name.value;
    if slot.shared && other.shared {
        around.sink.report(
            slot.name.place,
            Code::OneEffect,
            format!("this is the same effect as slot `{other_slot}` of node `{other_node}`"),
            "with `scope = \"object\"`, tool, operation, object and intent are the whole identity: the second request adopts the receipt of the first",
            "give them different intents if both are meant to happen",
        );
    } else {
        around.sink.report(
            slot.name.place,
            Code::TwoEffects,
            format!("slot `{other_slot}` of node `{other_node}` asks for the same on the same object with the same intent"),
            "they are two effects nevertheless, and both happen: node and slot are a part of the identity",
            "give them different intents if both are meant to happen, or `scope = \"object\"` if only one is",
        );
    }
}
