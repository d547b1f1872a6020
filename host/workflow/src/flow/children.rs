//! Child workflows: slots that start a run of another workflow.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use twice_core::ids::Name;

use super::Surroundings;
use crate::diagnostic::{Code, suggest};
use crate::files::Files;
use crate::model::CHILD_TOOL;
use crate::read::{self, At, Item, Place, Sink, Table};
use crate::schemas::Schemas;

/// What is known of the workflows of a project before any of them is checked.
pub(crate) struct Workflows {
    /// The schema of each one's input, by name.
    pub(crate) inputs: BTreeMap<Name, Option<Value>>,
    /// Whether there are some whose names could not be read.
    pub(crate) hidden: bool,
}

/// A place where a workflow starts another.
pub(crate) struct Start {
    pub(crate) file: String,
    pub(crate) place: Place,
    pub(crate) parent: Name,
    pub(crate) child: Name,
}

/// Looks through the workflow files for what others need to know of them. What is wrong with them is reported when each is
/// read.
pub(crate) fn survey(files: &dyn Files) -> Workflows {
    let mut known = Workflows { inputs: BTreeMap::new(), hidden: false };
    let found = std::cell::RefCell::new(Vec::new());
    let schemas = Schemas::new(files, &found);
    let names = files.list("workflows").unwrap_or_default();
    for name in names.iter().filter(|name| name.ends_with(".toml")) {
        let path = format!("workflows/{name}");
        let sink = Sink { file: &path, found: &found };
        let item = files.read(&path).ok().and_then(|text| read::parse(sink, &text));
        match item.as_ref().and_then(|item| of(sink, item, &schemas)) {
            Some((name, input)) => drop(known.inputs.insert(name, input)),
            None => known.hidden = true,
        }
    }
    known
}

fn of(sink: Sink<'_>, item: &Item, schemas: &Schemas<'_>) -> Option<(Name, Option<Value>)> {
    let table = item.as_table(sink, "the workflow file")?;
    let name = table.item("workflow")?.as_name(sink, "a workflow")?;
    let input = table.item("input").and_then(|_| schemas.required(&table, "input"));
    Some((name.value, input))
}

/// Reads `workflow`: the target that stands in place of a tool's operation.
pub(super) fn read(table: &Table<'_>) -> Option<At<(Name, Name)>> {
    let item = table.item("workflow")?;
    if let Some(tool) = table.item("tool") {
        table.sink.report(
            tool.place,
            Code::Contradiction,
            "both `tool` and `workflow` are given",
            "a slot is the right to ask for one thing: an operation, or a run of a workflow",
            "keep one of them",
        );
    }
    let name = item.as_name(table.sink, "a workflow")?;
    let tool = Name::parse(CHILD_TOOL).ok()?;
    Some(name.map(|name| (tool, name)))
}

/// Checks that there is such a workflow; the schema of its input.
pub(super) fn check<'a>(around: &Surroundings<'a>, target: &At<(Name, Name)>) -> Option<&'a Value> {
    let name = &target.value.1;
    let known = around.workflows.inputs.get(name);
    if known.is_none() && !around.workflows.hidden {
        around.sink.report(
            target.place,
            Code::Dangling,
            format!("there is no workflow `{name}`"),
            "a slot with `workflow` starts a run of a workflow in `workflows/`",
            suggest("workflow", name.as_str(), around.workflows.inputs.keys().map(Name::as_str)),
        );
    }
    known?.as_ref()
}

/// Most workflows of which each starts the next: each is pinned within the one before.
const DEPTH_MAX: usize = 16;

/// Reports workflows that start each other, and chains of them that are too long.
pub(crate) fn check_starts(
    found: &std::cell::RefCell<Vec<crate::diagnostic::Diagnostic>>,
    starts: &[Start],
) {
    if !check_cycles(found, starts) {
        return;
    }
    let mut depths = BTreeMap::new();
    for start in starts {
        // One report is enough: what starts the top of the chain is too deep as well.
        if depth(&start.parent, starts, &mut depths) != DEPTH_MAX + 1 {
            continue;
        }
        Sink { file: &start.file, found }.report(
            start.place,
            Code::ChildCycle,
            format!(
                "more than {DEPTH_MAX} workflows start one another, beginning with `{}`",
                start.parent
            ),
            "the definition of each is pinned within that of its parent",
            "let one of them do what it starts another for",
        );
        return;
    }
}

/// How many workflows there are from this one down, itself included. They start each other in no circle.
fn depth<'a>(name: &'a Name, starts: &'a [Start], known: &mut BTreeMap<&'a Name, usize>) -> usize {
    if let Some(depth) = known.get(name) {
        return *depth;
    }
    let own = starts.iter().filter(|start| start.parent == *name);
    let below = own.map(|start| depth(&start.child, starts, known)).max().unwrap_or(0);
    known.insert(name, below + 1);
    below + 1
}

/// Reports workflows that start each other; whether there are none.
fn check_cycles(
    found: &std::cell::RefCell<Vec<crate::diagnostic::Diagnostic>>,
    starts: &[Start],
) -> bool {
    let behind = |name: &Name| -> Vec<&Start> {
        starts.iter().filter(|start| start.parent == *name).collect()
    };
    let mut told: BTreeSet<&Name> = BTreeSet::new();
    for first in starts {
        if told.contains(&first.parent) {
            continue;
        }
        let Some(path) = way_back(first, &behind) else { continue };
        told.extend(path.iter().map(|start| &start.parent));
        let names = path.iter().map(|start| format!("`{}`", start.parent));
        let names: Vec<String> = names.chain([format!("`{}`", first.parent)]).collect();
        let sink = Sink { file: &first.file, found };
        sink.report(
            first.place,
            Code::ChildCycle,
            format!("workflows start each other: {}", names.join(" starts ")),
            "a run of one would wait for a run of the other, without end",
            "remove one of these slots",
        );
    }
    told.is_empty()
}

/// The way from a start back to the workflow it is in.
fn way_back<'a>(
    first: &'a Start,
    behind: &dyn Fn(&Name) -> Vec<&'a Start>,
) -> Option<Vec<&'a Start>> {
    let mut seen: BTreeSet<&Name> = BTreeSet::new();
    let mut open = vec![vec![first]];
    while let Some(path) = open.pop() {
        let last = path.last()?;
        if last.child == first.parent {
            return Some(path);
        }
        if seen.insert(&last.child) {
            for next in behind(&last.child) {
                open.push(path.iter().copied().chain([next]).collect());
            }
        }
    }
    None
}
