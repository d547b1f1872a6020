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

/// How far the undoing of each visit has come, by node and visit.
#[derive(Default)]
struct Levels {
    /// The last group with an effect of the visit; groups count from 1.
    last: usize,
    /// The same of each element.
    elements: BTreeMap<Option<ElementId>, usize>,
}

fn branches(graph: &Graph, effects: &[Undoable], newest_first: &[usize]) -> Vec<Vec<usize>> {
    let mut visits: BTreeMap<(usize, u32), Levels> = BTreeMap::new();
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
        for ((other, visit), levels) in &visits {
            let relation =
                *related.entry((node, *other)).or_insert_with(|| Relation::of(graph, node, *other));
            let same_visit = *visit == step.visit;
            after = after.max(match relation {
                Relation::Same if same_visit => {
                    let of = |element: &Option<ElementId>| levels.elements.get(element).copied();
                    of(&step.element).unwrap_or(0)
                }
                Relation::Same | Relation::Ordered => levels.last,
                Relation::RoundByRound if !same_visit => levels.last,
                Relation::RoundByRound | Relation::Apart => 0,
            });
        }
        let levels = visits.entry((node, step.visit)).or_default();
        levels.last = levels.last.max(after + 1);
        levels.elements.insert(step.element.clone(), after + 1);
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
