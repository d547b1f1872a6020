//! Loops: entered at one node, left at one node, within one another or apart.

use std::collections::BTreeSet;

use super::{NodeDraft, Surroundings};
use crate::diagnostic::{Code, listed, suggest};

/// Checks the loops and joins of a workflow.
pub(super) fn check(around: &Surroundings<'_>) {
    for (at, node) in around.nodes.iter().enumerate() {
        check_join(around, node);
        if node.paths.closes.is_some() {
            check_loop(around, at, node);
        }
    }
    check_nesting(around);
}

fn check_join(around: &Surroundings<'_>, node: &NodeDraft) {
    let Some(join) = &node.paths.join else { return };
    if node.after.len() < 2 {
        around.sink.report(
            join.place,
            Code::PointlessJoin,
            format!("`join` of a node that comes after {} node(s)", node.after.len()),
            "there is nothing to join: the number of paths that lead here is less than two",
            "name the other nodes in `after`, or remove it",
        );
    }
}

fn check_loop(around: &Surroundings<'_>, at: usize, node: &NodeDraft) {
    let name = &node.name.value;
    let Some(closes) = &node.paths.closes else { return };
    let Some(to) = &closes.to else { return };
    let report = |what: String, why: &str, fix: String| {
        around.sink.report(to.place, Code::BadLoop, what, why, fix);
    };
    if node.paths.ends.is_some() {
        around.sink.report(
            closes.place,
            Code::Contradiction,
            format!("`{name}` ends the run and closes a loop"),
            "when it is done the run is over, and there is no other round",
            "let a node behind it end the run",
        );
    }
    if around.relations.place(&to.value).is_none() {
        if around.complete {
            let names = around.nodes.iter().map(|other| other.name.value.as_str());
            around.sink.report(
                to.place,
                Code::Dangling,
                format!("there is no node `{}`", to.value),
                "a round of the loop would begin nowhere",
                suggest("node", to.value.as_str(), names),
            );
        }
        return;
    }
    let Some(body) = around.relations.bodies.get(&at) else {
        if around.order.contains(&at) {
            report(
                format!(
                    "the loop of `{name}` begins at `{}`, from which no path leads to `{name}`",
                    to.value
                ),
                "a round begins at `to` and ends at the node that closes it",
                format!("name `{name}` itself or a node that comes before it"),
            );
        }
        return;
    };
    let begin = around.relations.place(&to.value);
    let shown = |nodes: &BTreeSet<usize>| {
        listed(nodes.iter().map(|node| around.nodes[*node].name.value.as_str()))
    };
    for inner in body.iter().copied() {
        let inner_name = &around.nodes[inner].name.value;
        let links = &around.relations.links;
        if Some(inner) != begin {
            let outside: BTreeSet<usize> =
                links.before[inner].iter().copied().filter(|node| !body.contains(node)).collect();
            if !outside.is_empty() {
                report(
                    format!(
                        "the loop from `{}` to `{name}` is entered at `{inner_name}` too, which comes after {}",
                        to.value,
                        shown(&outside)
                    ),
                    "a second round would visit it without what came from there, or with what is left of it",
                    format!(
                        "let `{}` come after {}, whose outputs `{inner_name}` sees all the same",
                        to.value,
                        shown(&outside)
                    ),
                );
            }
        }
        if inner != at {
            let outside: BTreeSet<usize> =
                links.behind[inner].iter().copied().filter(|node| !body.contains(node)).collect();
            if !outside.is_empty() {
                report(
                    format!(
                        "the loop from `{}` to `{name}` is left at `{inner_name}` too, by {}",
                        to.value,
                        shown(&outside)
                    ),
                    "it would go on from a round that is not the last",
                    format!("let {} come after `{name}`, or before it", shown(&outside)),
                );
            }
        }
    }
}

fn check_nesting(around: &Surroundings<'_>) {
    let bodies = &around.relations.bodies;
    for (at, body) in bodies {
        for (other, other_body) in bodies.range(at + 1..) {
            let apart = body.is_disjoint(other_body);
            if apart || body.is_subset(other_body) || body.is_superset(other_body) {
                continue;
            }
            let [first, second] = [at, other].map(|node| &around.nodes[*node].name.value);
            let place = around.nodes[*other].paths.closes.as_ref().map(|closes| closes.place);
            around.sink.report(
                place.unwrap_or(around.nodes[*other].place),
                Code::BadLoop,
                format!("the loops that `{first}` and `{second}` close overlap, and neither is within the other"),
                "a round of one would begin in the midst of a round of the other",
                "move where one of them begins or ends",
            );
        }
    }
}
