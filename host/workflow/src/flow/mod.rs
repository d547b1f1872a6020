//! Workflow files: the graph of nodes, and what each node may ask for.

mod allow;
mod graph;
mod slots;
mod trust;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use twice_core::ids::Name;

use crate::diagnostic::Code;
use crate::model::{Node, NodeLimits, OnConflict, Slot, StepRetry, Tool, Uses, Workflow};
use crate::read::{At, Item, Kind, Place, Sink, Table};
use crate::schemas::Schemas;
use crate::units::DURATION_MAX_MS;

/// What a node may use up, unless the file states otherwise: 64 MiB of memory, 30 seconds, 100 effects, 64 KiB of log.
pub const LIMITS: NodeLimits =
    NodeLimits { memory_bytes: 64 << 20, time_ms: 30_000, effects: 100, log_bytes: 64 << 10 };
/// How often a step is started again, unless the file states otherwise: 5 attempts, from one second to one minute apart.
pub const RETRY: StepRetry = StepRetry { attempts: 5, initial_ms: 1_000, max_ms: 60_000 };
/// The intent of a read that states none.
pub const READ_INTENT: &str = "read";
/// Most nodes of a workflow.
const NODES_MAX: usize = 1_000;
/// Longest intent. Characters; it is a part of the readable key.
const INTENT_CHARS_MAX: usize = 128;
/// Most uses of one slot in one step.
const REPEAT_MAX: u32 = 10_000;

/// The tools of a project by name; `None` for one whose file has errors.
pub(crate) type Tools = BTreeMap<Name, Option<Tool>>;

/// A node as read, before it is checked against the rest.
struct NodeDraft {
    name: At<Name>,
    component: Option<Name>,
    after: Vec<At<Name>>,
    limits: NodeLimits,
    retry: StepRetry,
    slots: Vec<SlotDraft>,
}

/// A slot as read.
struct SlotDraft {
    place: Place,
    name: At<Name>,
    /// Tool and operation.
    target: Option<At<(Name, Name)>>,
    object: Option<At<String>>,
    intent: Option<At<String>>,
    shared: bool,
    uses: At<Uses>,
    allow: allow::Stated,
    on_conflict: OnConflict,
}

/// What a workflow's slots are checked against.
struct Surroundings<'a> {
    sink: Sink<'a>,
    input: Option<&'a Value>,
    nodes: &'a [NodeDraft],
    /// Whether these are all the nodes of the file.
    complete: bool,
    ancestors: BTreeMap<Name, BTreeSet<Name>>,
    tools: &'a Tools,
    /// Whether the file of some tool could not even be read for its name.
    tools_hidden: bool,
}

/// Reads a workflow file. The workflow is `None` when something in it is wrong.
pub(crate) fn read(
    sink: Sink<'_>,
    root: &Item,
    schemas: &Schemas<'_>,
    tools: &Tools,
    tools_hidden: bool,
) -> Option<(At<Name>, Option<Workflow>)> {
    let table = root.as_table(sink, "the workflow file")?;
    let name = table
        .required("workflow", "\"damaged-item-refund\"")
        .and_then(|item| item.as_name(sink, "a workflow"));
    table.required_because(
        "version",
        "1",
        "runs are pinned to the version they started under, and people need to tell versions apart",
    );
    let version = table.integer("version", 1..=u32::MAX);
    let states_input = table.item("input").is_some();
    let input_schema = if states_input { schemas.required(&table, "input") } else { None };
    let (drafts, complete) = nodes(&table);
    table.close();
    let graph = graph::order(sink, &drafts, complete);
    let around = Surroundings {
        sink,
        input: input_schema.as_ref(),
        nodes: &drafts,
        complete,
        ancestors: graph.ancestors,
        tools,
        tools_hidden,
    };
    let slots: Vec<Option<Vec<Slot>>> = drafts
        .iter()
        .map(|node| node.slots.iter().map(|slot| slots::check(&around, node, slot)).collect())
        .collect();
    slots::check_alike(&around);
    let nodes = drafts.iter().zip(slots).map(|(draft, slots)| draft.with(slots?));
    let nodes: Option<Vec<Node>> = nodes.collect();
    let workflow = || {
        let nodes = nodes.filter(|_| complete)?;
        Some(Workflow {
            name: name.clone()?.value,
            version: version?,
            input_schema,
            nodes: graph.order.into_iter().map(|index| nodes[index].clone()).collect(),
        })
    };
    let workflow = workflow();
    name.map(|name| (name, workflow))
}

impl NodeDraft {
    /// The node with its checked slots, if everything else was read.
    fn with(&self, slots: Vec<Slot>) -> Option<Node> {
        Some(Node {
            name: self.name.value.clone(),
            component: self.component.clone()?,
            after: self.after.iter().map(|at| at.value.clone()).collect(),
            limits: self.limits.clone(),
            retry: self.retry.clone(),
            slots,
        })
    }
}

/// The nodes that could be read, and whether they are all.
fn nodes(table: &Table<'_>) -> (Vec<NodeDraft>, bool) {
    let sink = table.sink;
    table.required("node", "…`, as a list of tables `[[node]]");
    let Some(Kind::Array(items)) = table.item("node").map(|item| &item.kind) else {
        table.list("node", |_| Some(()));
        return (Vec::new(), false);
    };
    let refuse = |what: String, why: String, fix: &str| {
        sink.report(table.place, Code::BadValue, what, why, fix);
    };
    if items.is_empty() {
        let why = "a run of it would have nothing to do".to_owned();
        refuse("the workflow has no node".to_owned(), why, "add a `[[node]]`");
    }
    if items.len() > NODES_MAX {
        let why = format!(
            "a run's checkpoint holds the output of every node; at most {NODES_MAX} are allowed"
        );
        refuse(format!("the workflow has {} nodes", items.len()), why, "split it");
        return (Vec::new(), false);
    }
    let drafts: Vec<NodeDraft> = items
        .iter()
        .filter_map(|item| node(&item.as_table(sink, "a node (`[[node]]`)")?))
        .collect();
    let complete = drafts.len() == items.len();
    (drafts, complete)
}

fn node(table: &Table<'_>) -> Option<NodeDraft> {
    let sink = table.sink;
    let name = table.required("name", "\"refund\"").and_then(|item| item.as_name(sink, "a node"));
    let component = table
        .required("component", "\"refund\"")
        .and_then(|item| item.as_name(sink, "a component (a registered module)"));
    let after = table.list("after", |item| item.as_name(sink, "a node in `after`"));
    let limits = limits(table);
    let retry = retry(table);
    table.not_yet(
        "when",
        "a branch",
        "branch inside the node, which sees the input and earlier outputs",
    );
    table.not_yet(
        "for_each",
        "a fan-out of nodes",
        "use `for_each` on the node's effect: one step then requests one effect per element",
    );
    table.not_yet(
        "max_visits",
        "a bounded cycle",
        "loop inside the node, with `repeat` on its effect",
    );
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
        name: name?,
        component: component.map(|at| at.value),
        after,
        limits,
        retry,
        slots,
    })
}

fn duplicate(sink: Sink<'_>, name: &At<Name>, kind: &str, why: &str) {
    sink.report(
        name.place,
        Code::Duplicate,
        format!("there is another {kind} `{}`", name.value),
        why,
        "rename one of them",
    );
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

fn retry(table: &Table<'_>) -> StepRetry {
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
