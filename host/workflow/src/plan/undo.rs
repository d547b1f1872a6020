//! In which order the effects of a run that failed are undone.

use std::collections::BTreeMap;

use twice_core::ids::ElementId;
use twice_core::progress::StepId;

use super::{Graph, in_one_body};
use crate::model::{UndoOrder, Workflow};

/// An effect that may have to be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undoable {
    /// The step that asked for it.
    pub step: StepId,
    /// Where it stands in the order in which the run's effects were first requested: the number of a ledger entry, say.
    pub order: u64,
}

/// The effects (by their places in `effects`) in groups that are undone one after another; those of one group may be undone
/// at once. Newest first; with [`UndoOrder::Branches`], an effect has to wait only for newer ones of its own step and visit,
/// and of nodes that come before or behind its own.
#[must_use]
pub fn compensation_order(
    workflow: &Workflow,
    graph: &Graph,
    effects: &[Undoable],
) -> Vec<Vec<usize>> {
    let mut newest_first: Vec<usize> = (0..effects.len()).collect();
    newest_first
        .sort_by(|one, other| effects[*other].order.cmp(&effects[*one].order).then(other.cmp(one)));
    match workflow.undo {
        UndoOrder::Sequential => newest_first.into_iter().map(|effect| vec![effect]).collect(),
        UndoOrder::Branches => branches(graph, effects, &newest_first),
    }
}

/// Whether what an older step did may be needed by what a newer one did, so that it is not undone before that is: they are on one
/// path, of one element in a fan-out, or in different rounds of a loop.
#[must_use]
pub fn rests_on(graph: &Graph, newer: &StepId, older: &StepId) -> bool {
    let places = (graph.places.get(&newer.node), graph.places.get(&older.node));
    let (Some(one), Some(other)) = places else { return true };
    match Relation::of(graph, *one, *other) {
        Relation::Same => newer.visit != older.visit || newer.element == older.element,
        Relation::Ordered => true,
        Relation::RoundByRound => newer.visit != older.visit,
        Relation::Apart => false,
    }
}

/// How far the undoing of the effects of a node has come. Groups count from 1; 0: none of them is to be undone.
#[derive(Default)]
struct Undone {
    /// The last group with an effect, by visit and element.
    steps: BTreeMap<(u32, Option<ElementId>), usize>,
    /// The visit with the last group of all, and that group.
    last: (u32, usize),
    /// The last group of the other visits.
    other: usize,
}

impl Undone {
    fn add(&mut self, step: &StepId, group: usize) {
        self.steps.insert((step.visit, step.element.clone()), group);
        if step.visit == self.last.0 {
            self.last.1 = self.last.1.max(group);
        } else if group > self.last.1 {
            self.other = self.last.1;
            self.last = (step.visit, group);
        } else {
            self.other = self.other.max(group);
        }
    }

    fn of_other_visits(&self, visit: u32) -> usize {
        if visit == self.last.0 { self.other } else { self.last.1 }
    }

    fn of_step(&self, step: &StepId) -> usize {
        self.steps.get(&(step.visit, step.element.clone())).copied().unwrap_or(0)
    }
}

fn branches(graph: &Graph, effects: &[Undoable], newest_first: &[usize]) -> Vec<Vec<usize>> {
    let mut nodes: BTreeMap<usize, Undone> = BTreeMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut related: BTreeMap<(usize, usize), Relation> = BTreeMap::new();
    for effect in newest_first {
        let step = &effects[*effect].step;
        let Some(node) = graph.places.get(&step.node).copied() else {
            // Of a node that is not in the workflow nothing is known: it waits for all that is newer.
            groups.push(vec![*effect]);
            continue;
        };
        let mut after = 0;
        for (other, undone) in &nodes {
            let relation =
                *related.entry((node, *other)).or_insert_with(|| Relation::of(graph, node, *other));
            after = after.max(match relation {
                Relation::Same => undone.of_step(step).max(undone.of_other_visits(step.visit)),
                Relation::Ordered => undone.last.1,
                Relation::RoundByRound => undone.of_other_visits(step.visit),
                Relation::Apart => 0,
            });
        }
        nodes.entry(node).or_default().add(step, after + 1);
        if groups.len() <= after {
            groups.push(Vec::new());
        }
        groups[after].push(*effect);
    }
    groups
}

/// How the effects of two nodes stand to each other.
#[derive(Clone, Copy)]
enum Relation {
    /// It is one node.
    Same,
    /// One node comes before the other.
    Ordered,
    /// Neither comes before the other, but a round of the loop they are in before the next.
    RoundByRound,
    /// Neither.
    Apart,
}

impl Relation {
    fn of(graph: &Graph, one: usize, other: usize) -> Self {
        if one == other {
            Self::Same
        } else if graph.precede(one, other) {
            Self::Ordered
        } else if in_one_body(graph, one, other) {
            Self::RoundByRound
        } else {
            Self::Apart
        }
    }
}
