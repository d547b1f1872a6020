//! The order of the nodes.

use std::collections::{BTreeMap, BTreeSet};

use twice_core::ids::Name;

use super::{NodeDraft, duplicate};
use crate::diagnostic::{Code, suggest};
use crate::read::Sink;

/// The places of nodes in the file, ordered so that each stands behind what it comes after; those first in the file first
/// where there is a choice. Nodes that can never start are missing. `complete` says whether every node of the
/// file could be read; if not, a name that is not found may well be one that was not.
pub(super) fn order(sink: Sink<'_>, nodes: &[NodeDraft], complete: bool) -> Vec<usize> {
    let mut names: BTreeMap<&Name, usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        if names.insert(&node.name.value, index).is_some() {
            duplicate(
                sink,
                &node.name,
                "node",
                "outputs and receipts are found by the node's name",
            );
        }
    }
    let mut edges: Vec<BTreeSet<usize>> = Vec::new();
    for node in nodes {
        let mut sources = BTreeSet::new();
        for after in &node.after {
            match names.get(&after.value) {
                Some(index) if !sources.insert(*index) => sink.report(
                    after.place,
                    Code::Duplicate,
                    format!("`{}` is named twice in `after`", after.value),
                    "one of them may have been meant to be another node",
                    "remove one",
                ),
                None if complete => sink.report(
                    after.place,
                    Code::Dangling,
                    format!("there is no node `{}`", after.value),
                    "the node would wait for ever",
                    suggest("node", after.value.as_str(), names.keys().map(|name| name.as_str())),
                ),
                Some(_) | None => {}
            }
        }
        edges.push(sources);
    }
    let order = settle(&edges);
    // With two nodes of one name it is not said which of them the others wait for.
    if names.len() == nodes.len() {
        report_stuck(sink, nodes, &edges, &order);
    }
    order
}

fn settle(edges: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut done = BTreeSet::new();
    loop {
        let ready = (0..edges.len()).find(|i| !done.contains(i) && edges[*i].is_subset(&done));
        let Some(index) = ready else { return order };
        order.push(index);
        done.insert(index);
    }
}

/// Reports the cycles among the nodes that could not be ordered, each once, and the nodes behind them.
fn report_stuck(sink: Sink<'_>, nodes: &[NodeDraft], edges: &[BTreeSet<usize>], order: &[usize]) {
    let mut stuck: BTreeSet<usize> = (0..nodes.len()).collect();
    for index in order {
        stuck.remove(index);
    }
    let mut told: BTreeSet<usize> = BTreeSet::new();
    for start in &stuck {
        // Following any wait that cannot end must come to a cycle, as each stuck node has one.
        let mut path: Vec<usize> = Vec::new();
        let mut at = *start;
        while !path.contains(&at) && !told.contains(&at) {
            path.push(at);
            match edges[at].iter().find(|source| stuck.contains(source)) {
                Some(source) => at = *source,
                None => break,
            }
        }
        let Some(begin) = path.iter().position(|index| *index == at) else { continue };
        let cycle = &path[begin..];
        told.extend(cycle);
        let first = cycle.iter().min().copied().unwrap_or(at);
        let turn = cycle.iter().position(|index| *index == first).unwrap_or(0);
        let names = (0..=cycle.len()).map(|step| {
            let node = &nodes[cycle[(turn + step) % cycle.len()]];
            format!("`{}`", node.name.value)
        });
        sink.report(
            nodes[first].name.place,
            Code::Cycle,
            format!("nodes wait for each other: {}", names.collect::<Vec<_>>().join(" after ")),
            "none of them could ever start",
            "remove one of these `after`; if the run is to go round, state it on the last node of the round: `loop = { to = \"first\", when = \"…\", max_visits = 5 }`",
        );
    }
    for index in stuck.difference(&told) {
        sink.report(
            nodes[*index].name.place,
            Code::Unreachable,
            format!("the node `{}` can never start", nodes[*index].name.value),
            "it waits for a node that waits for itself",
            "resolve the cycle",
        );
    }
}
