//! What one node can know of another: whether it is surely over, surely done, or at work at the same time.

use std::collections::{BTreeMap, BTreeSet};

use twice_core::ids::Name;

use super::NodeDraft;
use crate::graph::{Links, Places};
use crate::model::Join;

/// How the nodes of a workflow stand to each other. Nodes that can never start are in it, and know of nobody.
pub(super) struct Relations {
    index: BTreeMap<Name, usize>,
    pub(super) links: Links,
    ordered: Vec<bool>,
    ancestors: Vec<Places>,
    /// By node, those that are done or skipped before it starts.
    settled: Vec<Places>,
    /// By node, those that are done before it starts.
    done: Vec<Places>,
    /// The loops: the node that closes each, and its body.
    pub(super) bodies: BTreeMap<usize, BTreeSet<usize>>,
}

/// What a node can know of another when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Knows {
    /// It is done.
    Done,
    /// It is done or skipped.
    Settled,
    /// It may not be over: another of the nodes before was waited for.
    Unsettled,
    /// It comes later in a loop that both are in: from the second round on, its visit of the round before is known.
    EarlierRound,
    /// Nothing.
    Nothing,
    /// That cannot be told, as one of them can never start.
    Unclear,
}

impl Relations {
    pub(super) fn of(nodes: &[NodeDraft], order: &[usize]) -> Self {
        let index: BTreeMap<Name, usize> =
            nodes.iter().enumerate().map(|(i, node)| (node.name.value.clone(), i)).collect();
        let before = |node: &NodeDraft| {
            let named: BTreeSet<usize> =
                node.after.iter().filter_map(|at| index.get(&at.value).copied()).collect();
            named.into_iter().collect::<Vec<_>>()
        };
        let links = Links::of(nodes.iter().map(before).collect());
        let count = nodes.len();
        let mut ordered = vec![false; count];
        let mut always = vec![false; count];
        let mut ancestors = vec![Places::default(); count];
        let mut settled = vec![Places::default(); count];
        let mut done = vec![Places::default(); count];
        for at in order.iter().copied() {
            ordered[at] = true;
            let before = &links.before[at];
            let paths = &nodes[at].paths;
            always[at] = paths.when.is_none()
                && (before.is_empty() || before.iter().any(|source| always[*source]));
            let of_ancestors = united(before, &ancestors);
            let of_settled = match paths.join.as_ref().map(|at| at.value).unwrap_or_default() {
                Join::All => united(before, &settled),
                Join::Any => common(before, &settled),
            };
            let mut of_done = common(before, &done);
            let sure = (0..count).filter(|node| always[*node] && of_settled.contains(*node));
            sure.for_each(|node| of_done.insert(node));
            (ancestors[at], settled[at], done[at]) = (of_ancestors, of_settled, of_done);
        }
        let bodies =
            nodes.iter().enumerate().filter(|(at, _)| ordered[*at]).filter_map(|(at, node)| {
                let to = index.get(&node.paths.closes.as_ref()?.to.as_ref()?.value)?;
                Some((at, links.body(*to, at)?))
            });
        let bodies = bodies.collect();
        Self { index, links, ordered, ancestors, settled, done, bodies }
    }

    /// Where a node stands in the file.
    pub(super) fn place(&self, name: &Name) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// What `node` knows of `other` when it starts.
    pub(super) fn knows(&self, node: &Name, other: &Name) -> Knows {
        let (Some(node), Some(other)) = (self.place(node), self.place(other)) else {
            return Knows::Nothing;
        };
        if !self.ordered[node] {
            Knows::Unclear
        } else if self.done[node].contains(other) {
            Knows::Done
        } else if self.settled[node].contains(other) {
            Knows::Settled
        } else if self.ancestors[node].contains(other) {
            Knows::Unsettled
        } else if (node == other || self.ancestors[other].contains(node))
            && self.bodies.values().any(|body| body.contains(&node) && body.contains(&other))
        {
            Knows::EarlierRound
        } else if self.ordered[other] {
            Knows::Nothing
        } else {
            Knows::Unclear
        }
    }

    /// Whether `node` comes after `other`, directly or not: `other` cannot come after it as well.
    pub(super) fn is_behind(&self, node: &Name, other: &Name) -> bool {
        let places = self.place(node).zip(self.place(other));
        places.is_some_and(|(node, other)| self.ancestors[node].contains(other))
    }

    /// Whether `other` can only run before `node` does.
    pub(super) fn is_before(&self, other: usize, node: usize) -> bool {
        self.ancestors[node].contains(other)
            && self.settled[node].contains(other)
            && !self.bodies.values().any(|body| body.contains(&node) && body.contains(&other))
    }
}

/// The sources, and all that is known of any of them.
fn united(sources: &[usize], known: &[Places]) -> Places {
    let mut all = Places::default();
    for source in sources {
        all.add(&known[*source]);
        all.insert(*source);
    }
    all
}

/// What holds of each of the sources.
fn common(sources: &[usize], known: &[Places]) -> Places {
    let of = |source: usize| {
        let mut set = known[source].clone();
        set.insert(source);
        set
    };
    let Some((first, others)) = sources.split_first() else { return Places::default() };
    let mut all = of(*first);
    for source in others {
        all.keep(&of(*source));
    }
    all
}
