//! The graph of nodes by their places in a list: what comes before what, and which nodes a loop goes through.

use std::collections::BTreeSet;

/// What stands before and behind each node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Links {
    /// By node, the nodes named in its `after`.
    pub(crate) before: Vec<Vec<usize>>,
    /// By node, the nodes that name it in their `after`.
    pub(crate) behind: Vec<Vec<usize>>,
}

impl Links {
    /// The graph in which each node stands behind those.
    pub(crate) fn of(before: Vec<Vec<usize>>) -> Self {
        let mut behind = vec![Vec::new(); before.len()];
        for (node, sources) in before.iter().enumerate() {
            for source in sources {
                behind[*source].push(node);
            }
        }
        Self { before, behind }
    }

    /// All that stands before a node.
    pub(crate) fn ancestors(&self, node: usize) -> BTreeSet<usize> {
        reach(&self.before, node)
    }

    /// All that stands behind a node.
    pub(crate) fn descendants(&self, node: usize) -> BTreeSet<usize> {
        reach(&self.behind, node)
    }

    /// The nodes of a loop from `to` to the node that closes it, both included; `None` where no path leads from one to the
    /// other.
    pub(crate) fn body(&self, to: usize, closing: usize) -> Option<BTreeSet<usize>> {
        if to == closing {
            return Some(BTreeSet::from([to]));
        }
        let ancestors = self.ancestors(closing);
        ancestors.contains(&to).then(|| {
            let between = self.descendants(to);
            between.intersection(&ancestors).copied().chain([to, closing]).collect()
        })
    }
}

/// A set of places, small and quick to unite: graphs have up to a thousand nodes, each of which may know of all others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places(Vec<u64>);

impl Places {
    pub(crate) fn insert(&mut self, place: usize) {
        if self.0.len() <= place / 64 {
            self.0.resize(place / 64 + 1, 0);
        }
        self.0[place / 64] |= 1 << (place % 64);
    }

    pub(crate) fn contains(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word & (1 << (place % 64)) != 0)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    pub(crate) fn keep(&mut self, other: &Self) {
        self.0.truncate(other.0.len());
        self.0.iter_mut().zip(&other.0).for_each(|(word, kept)| *word &= kept);
    }
}

fn reach(edges: &[Vec<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = vec![false; edges.len()];
    let mut open = edges[from].clone();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            open.extend(&edges[node]);
        }
    }
    reached.into_iter().enumerate().filter(|(_, reached)| *reached).map(|(at, _)| at).collect()
}
