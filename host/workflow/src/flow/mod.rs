//! Workflow files: the graph of nodes, and what each node may ask for.

mod allow;
mod approve;
mod children;
mod compensate;
mod conditions;
mod elements;
mod loops;
mod named;
mod node;
mod order;
mod paths;
mod relations;
mod saga;
mod slots;
mod trust;

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value;
use twice_core::ids::Name;

pub(crate) use self::children::{Start, Workflows, check_starts, survey};
pub use self::paths::PARALLEL;
use self::relations::Relations;
use self::slots::Target;
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
    place: Place,
    name: At<Name>,
    component: Option<Name>,
    after: Vec<At<Name>>,
    paths: paths::Draft,
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
    /// Whether it is a child workflow.
    child: bool,
    import: Option<String>,
    object: Option<At<String>>,
    intent: Option<At<String>>,
    shared: bool,
    uses: At<Uses>,
    allow: allow::Stated,
    approve: Option<approve::Draft>,
    on_conflict: OnConflict,
    compensate: Option<compensate::Draft>,
    pivot: Option<Place>,
    lock: Option<saga::LockDraft>,
}

/// What a workflow's slots are checked against.
struct Surroundings<'a> {
    sink: Sink<'a>,
    input: Option<&'a Value>,
    /// How long a run may take. Milliseconds.
    timeout_ms: Option<u64>,
    nodes: &'a [NodeDraft],
    /// Whether these are all the nodes of the file.
    complete: bool,
    /// Places of nodes in the file; each stands behind what it comes after.
    order: Vec<usize>,
    relations: Relations,
    workflows: &'a Workflows,
    tools: &'a Tools,
    /// Whether the file of some tool could not even be read for its name.
    tools_hidden: bool,
}

/// What the workflow files of a project are read with.
pub(crate) struct Known<'a> {
    pub(crate) schemas: &'a Schemas<'a>,
    pub(crate) tools: &'a Tools,
    /// Whether the file of some tool could not even be read for its name.
    pub(crate) tools_hidden: bool,
    pub(crate) workflows: Workflows,
    /// Where workflows start each other, as far as they were read.
    pub(crate) starts: RefCell<Vec<Start>>,
}

/// Reads a workflow file. The workflow is `None` when something in it is wrong.
pub(crate) fn read(
    sink: Sink<'_>,
    root: &Item,
    known: &Known<'_>,
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
    let input_schema = if states_input { known.schemas.required(&table, "input") } else { None };
    let timeout_ms = table.duration("timeout", 1..=DURATION_MAX_MS).map(|at| at.value);
    let undo = saga::read(&table);
    let (drafts, complete) = nodes(&table);
    table.close();
    let order = order::order(sink, &drafts, complete);
    let around = Surroundings {
        sink,
        input: input_schema.as_ref(),
        timeout_ms,
        nodes: &drafts,
        complete,
        relations: Relations::of(&drafts, &order),
        order,
        workflows: &known.workflows,
        tools: known.tools,
        tools_hidden: known.tools_hidden,
    };
    let targets: Vec<Vec<Target<'_>>> = drafts
        .iter()
        .map(|node| node.slots.iter().map(|slot| Target::of(&around, slot)).collect())
        .collect();
    let check = |(node, targets): (&NodeDraft, &Vec<Target<'_>>)| {
        let slots = node.slots.iter().zip(targets);
        slots.map(|(slot, target)| slots::check(&around, node, slot, target)).collect()
    };
    let slots: Vec<Option<Vec<Slot>>> = drafts.iter().zip(&targets).map(check).collect();
    slots::check_alike(&around);
    drafts.iter().for_each(|node| elements::check(&around, node));
    conditions::check(&around);
    loops::check(&around);
    saga::check(&around, &targets);
    if let Some(name) = &name {
        known.starts.borrow_mut().extend(starts(sink, &name.value, &drafts));
    }
    let nodes = drafts.iter().zip(slots).map(|(draft, slots)| draft.with(slots?));
    let nodes: Option<Vec<Node>> = nodes.collect();
    let workflow = || {
        let nodes = nodes.filter(|_| complete)?;
        Some(Workflow {
            name: name.clone()?.value,
            version: version?,
            input_schema: input_schema.clone(),
            timeout_ms,
            undo,
            nodes: around.order.iter().map(|index| nodes[*index].clone()).collect(),
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
            join: self.paths.join.as_ref().map(|at| at.value).unwrap_or_default(),
            when: self.paths.when.as_ref().map(|when| when.text.value.clone()),
            routes: self.paths.routes.iter().map(|at| at.value.clone()).collect(),
            for_each: self.paths.for_each.as_ref().and_then(paths::FanOutDraft::checked),
            closes: self.paths.closes.as_ref().and_then(paths::LoopDraft::checked),
            timeout_ms: self.paths.timeout_ms,
            ends: self.paths.ends.is_some(),
            limits: self.limits.clone(),
            retry: self.retry.clone(),
            slots,
        })
    }
}

/// Where a workflow starts others.
fn starts(sink: Sink<'_>, parent: &Name, nodes: &[NodeDraft]) -> Vec<Start> {
    let slots = nodes.iter().flat_map(|node| &node.slots).filter(|slot| slot.child);
    let targets = slots.filter_map(|slot| slot.target.as_ref());
    let start = |target: &At<(Name, Name)>| Start {
        file: sink.file.to_owned(),
        place: target.place,
        parent: parent.clone(),
        child: target.value.1.clone(),
    };
    targets.map(start).collect()
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
        .filter_map(|item| node::read(&item.as_table(sink, "a node (`[[node]]`)")?))
        .collect();
    let complete = drafts.len() == items.len();
    (drafts, complete)
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
