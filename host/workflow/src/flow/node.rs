//! Nodes: what each states about itself.

use super::slots;
use super::{LIMITS, NodeDraft, RETRY, SlotDraft, duplicate, paths};
use crate::model::{NodeLimits, StepRetry};
use crate::read::Table;
use crate::units::DURATION_MAX_MS;

/// Reads a node.
pub(super) fn read(table: &Table<'_>) -> Option<NodeDraft> {
    let sink = table.sink;
    let name = table.required("name", "\"refund\"").and_then(|item| item.as_name(sink, "a node"));
    let component = table
        .required("component", "\"refund\"")
        .and_then(|item| item.as_name(sink, "a component (a registered module)"));
    let after = table.list("after", |item| item.as_name(sink, "a node in `after`"));
    let limits = limits(table);
    let retry = retry(table);
    let paths = paths::read(table);
    let slots: Vec<SlotDraft> = table.list("effect", |item| {
        let inner = item.as_table(sink, "an effect (`[[node.effect]]`)")?;
        let draft = slots::read(&inner);
        inner.close();
        draft
    });
    table.report_unknown();
    for (index, slot) in slots.iter().enumerate() {
        if slots[..index].iter().any(|other| other.name.value == slot.name.value) {
            duplicate(
                sink,
                &slot.name,
                "slot",
                "the slot is a part of the identity of its effects",
            );
        }
    }
    Some(NodeDraft {
        place: table.place,
        name: name?,
        component: component.map(|at| at.value),
        after,
        paths,
        limits,
        retry,
        slots,
    })
}

fn limits(table: &Table<'_>) -> NodeLimits {
    let Some(inner) = table.table("limits") else { return LIMITS };
    let memory = inner.size("memory", 64 << 10..=4 << 30);
    let time = inner.duration("time", 1..=86_400_000);
    let effects = inner.integer("effects", 0..=10_000);
    let log = inner.size("log", 0..=16 << 20);
    inner.close();
    NodeLimits {
        memory_bytes: memory.map_or(LIMITS.memory_bytes, |at| at.value),
        time_ms: time.map_or(LIMITS.time_ms, |at| at.value),
        effects: effects.unwrap_or(LIMITS.effects),
        log_bytes: log.map_or(LIMITS.log_bytes, |at| at.value),
    }
}

pub(super) fn retry(table: &Table<'_>) -> StepRetry {
    let Some(inner) = table.table("retry") else { return RETRY };
    let attempts = inner.integer("attempts", 1..=1_000).unwrap_or(RETRY.attempts);
    let initial = inner.duration("initial", 1..=DURATION_MAX_MS);
    let max = inner.duration("max", 1..=DURATION_MAX_MS);
    let initial_ms = initial.as_ref().map_or(RETRY.initial_ms, |at| at.value);
    // A longer first wait alone states a longer longest one.
    let max_ms = max.as_ref().map_or(RETRY.max_ms.max(initial_ms), |at| at.value);
    if let Some(max) = max.filter(|max| max.value < initial_ms) {
        inner.bad_value(
            "max",
            max.place,
            "shorter than `initial`",
            "at least as much as `initial`",
        );
    }
    inner.close();
    StepRetry { attempts, initial_ms, max_ms }
}
