//! What a run that fails can go back on: the point of no return, effects that cannot be undone, locks.

use twice_core::ids::Name;

use super::slots::Target;
use super::{NodeDraft, SlotDraft, Surroundings};
use crate::diagnostic::Code;
use crate::model::{Lock, UndoOrder, Uses};
use crate::read::{Kind, Place, Table};
use crate::shape;
use crate::units::DURATION_MAX_MS;

/// A lock as read.
pub(super) struct LockDraft {
    pub(super) place: Place,
    name: Option<Name>,
    expires_ms: Option<u64>,
}

/// Reads `[saga]`.
pub(super) fn read(table: &Table<'_>) -> UndoOrder {
    let Some(inner) = table.table("saga") else { return UndoOrder::Sequential };
    let words = [("sequential", UndoOrder::Sequential), ("branches", UndoOrder::Branches)];
    let undo = inner.word("undo", &words);
    inner.close();
    undo.unwrap_or_default()
}

/// Reads `lock`.
pub(super) fn read_lock(table: &Table<'_>) -> Option<LockDraft> {
    let item = table.item("lock")?;
    match &item.kind {
        Kind::Flag(true) => Some(LockDraft { place: item.place, name: None, expires_ms: None }),
        Kind::Flag(false) => None,
        Kind::Table(_) => {
            let inner = item.as_table(table.sink, "`lock`")?;
            let name = inner.item("name").and_then(|item| item.as_name(table.sink, "a lock"));
            let expires = inner.duration("expires", 1_000..=DURATION_MAX_MS);
            inner.close();
            Some(LockDraft {
                place: item.place,
                name: name.map(|at| at.value),
                expires_ms: expires.map(|at| at.value),
            })
        }
        Kind::Text(_) | Kind::Integer(_) | Kind::Float(_) | Kind::Date | Kind::Array(_) => {
            item.wrong(table.sink, "`lock`", "`true`, or `{ expires = \"24h\", name = \"order\" }`")
        }
    }
}

/// Checks the lock of a slot.
pub(super) fn check_lock(around: &Surroundings<'_>, slot: &SlotDraft) -> Option<Lock> {
    let draft = slot.lock.as_ref()?;
    let Some(object) = &slot.object else {
        around.sink.report(
            draft.place,
            Code::Lock,
            format!("the slot `{}` has `lock` and no `object`", slot.name.value),
            "what is locked is the business object",
            "add `object`, or remove the lock",
        );
        return None;
    };
    let expires_ms = draft.expires_ms;
    if let Some(name) = &draft.name {
        return Some(Lock { name: name.clone(), expires_ms });
    }
    let last = shape::tokens(&object.value).last();
    // What says nothing about the kind of object would be one lock for objects of all kinds.
    let telling = last.filter(|last| !matches!(last.as_str(), "element" | "external_id" | "id"));
    let name = telling.and_then(|last| Name::parse(last).ok());
    if name.is_none() {
        around.sink.report(
            draft.place,
            Code::Lock,
            format!("the end of `{}` does not say what kind of object is locked", object.value),
            "a lock is named by what kind of object it is on, so that two workflows that mean the same one meet",
            "state it: `lock = { name = \"order\" }`",
        );
    }
    Some(Lock { name: name?, expires_ms })
}

/// Checks the pivot and what cannot be undone. `targets` has what each slot of each node asks for.
pub(super) fn check(around: &Surroundings<'_>, targets: &[Vec<Target<'_>>]) {
    let pivot = check_pivot(around, targets);
    let slots = || {
        around.nodes.iter().enumerate().flat_map(|(at, node)| {
            node.slots.iter().zip(&targets[at]).map(move |(slot, target)| (at, node, slot, target))
        })
    };
    if let Some((pivot_at, pivot_slot)) = pivot {
        for (at, node, slot, target) in slots() {
            let is_pivot = at == pivot_at && slot.name.value == *pivot_slot;
            if is_pivot || around.relations.is_before(at, pivot_at) {
                continue;
            }
            if slot.compensate.is_none() && target.is_retryable() == Some(false) {
                around.sink.report(
                    slot.place,
                    Code::Pivot,
                    format!("the slot `{}` of `{}` may be used after the pivot, and can be neither repeated nor undone", slot.name.value, node.name.value),
                    "behind the point of no return a run can only go on; an effect of which nobody knows what became would leave it where it can go neither way",
                    "let its operation honour a key, give it `compensate`, or let its node come before the pivot",
                );
            }
        }
    }
    let uses_saga = pivot.is_some() || slots().any(|(_, _, slot, _)| slot.compensate.is_some());
    for (at, node, slot, target) in slots().filter(|_| uses_saga) {
        let before = match pivot {
            Some((pivot_at, _)) => around.relations.is_before(at, pivot_at),
            None => (0..around.nodes.len())
                .any(|other| other != at && !around.relations.is_before(other, at)),
        };
        if before && slot.compensate.is_none() && target.read == Some(false) {
            around.sink.report(
                slot.place,
                Code::NotUndone,
                format!(
                    "the effect of slot `{}` of `{}` cannot be undone when a later node fails",
                    slot.name.value, node.name.value
                ),
                "the other effects of the run are undone then, and this one stays",
                "add `compensate`, or let the node come after what can fail",
            );
        }
    }
}

fn check_pivot<'a>(
    around: &Surroundings<'a>,
    targets: &[Vec<Target<'_>>],
) -> Option<(usize, &'a Name)> {
    let mut first: Option<(usize, &'a NodeDraft, &'a SlotDraft)> = None;
    for (at, node) in around.nodes.iter().enumerate() {
        for (slot, target) in node.slots.iter().zip(&targets[at]) {
            let Some(place) = slot.pivot else { continue };
            let report = |what: String, why: &str, fix: &str| {
                around.sink.report(place, Code::Pivot, what, why, fix);
            };
            let name = &slot.name.value;
            if let Some((_, other, _)) = first {
                report(
                    format!("there is another pivot, in node `{}`", other.name.value),
                    "a run has one point of no return",
                    "keep one of them",
                );
                continue;
            }
            if node.paths.for_each.is_some() || slot.uses.value != Uses::Once {
                report(
                    format!("the slot `{name}` is a pivot, and may be used many times"),
                    "some of its effects would lie before the point of no return, and some behind it",
                    "take it out of the fan-out, or remove `pivot`",
                );
            }
            if around.relations.bodies.values().any(|body| body.contains(&at)) {
                report(
                    format!("the slot `{name}` is a pivot within a loop"),
                    "another round would pass the point of no return again",
                    "let its node come after the loop, or remove `pivot`",
                );
            }
            if target.read == Some(true) {
                report(
                    format!("the slot `{name}` is a read, and a pivot"),
                    "a read changes nothing: one can always go back on it",
                    "mark the effect after which there is no way back",
                );
            }
            if slot.compensate.is_some() {
                report(
                    format!("the slot `{name}` is a pivot, and has `compensate`"),
                    "there is no way back behind a pivot, so nothing would ever undo it",
                    "keep one of them",
                );
            }
            first = Some((at, node, slot));
        }
    }
    first.map(|(at, _, slot)| (at, &slot.name.value))
}
