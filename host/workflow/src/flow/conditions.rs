//! Conditions of nodes and loops: whether they can be decided, whether what they name is there, and which routes they take.

use std::collections::BTreeSet;

use super::named::Named;
use super::{NodeDraft, SlotDraft, Surroundings};
use crate::condition;
use crate::diagnostic::{Code, listed, suggest};
use crate::expression::Expression;
use crate::model::Uses;
use crate::read::{At, Table};

/// A condition as read.
pub(super) struct Condition {
    pub(super) text: At<String>,
    pub(super) expression: Expression,
}

/// Reads a condition.
pub(super) fn read(table: &Table<'_>, key: &'static str) -> Option<Condition> {
    let text = table.text(key)?;
    match condition::compile(&text.value) {
        Ok(expression) => {
            if let Some(got) = expression.other_type() {
                table.sink.report(
                    text.place,
                    Code::Expression,
                    format!("`{key}` gives a value of type {got}, not true or false"),
                    "a condition that is neither true nor false fails the run",
                    "compare it: `state.input.count > 1`, `routes.review == 'accept'`",
                );
                return None;
            }
            Some(Condition { text, expression })
        }
        Err(error) => {
            table.sink.report(
                text.place,
                Code::Expression,
                format!("`{key}`: {error}"),
                "a condition that cannot be decided fails the run",
                "write a CEL expression over `state`, `receipts` and `routes`, for example `routes.review == 'accept'`",
            );
            None
        }
    }
}

/// Checks the conditions of a workflow.
pub(super) fn check(around: &Surroundings<'_>) {
    for node in around.nodes {
        if let Some(when) = &node.paths.when {
            if when.expression.constant() == Some(true) && when.text.value.trim() != "true" {
                report_constant(around, when, "holds", "`true`, or remove it");
            }
            check_names(around, node, when, false);
        }
        if let Some(when) = node.paths.closes.as_ref().and_then(|closes| closes.when.as_ref()) {
            match when.expression.constant() {
                Some(true) => report_constant(around, when, "holds", "what it depends on"),
                Some(false) => report_constant(around, when, "never holds", "what it depends on"),
                None => {}
            }
            check_names(around, node, when, true);
        }
    }
    if around.complete {
        check_reach(around);
        check_routes(around);
    }
}

fn report_constant(around: &Surroundings<'_>, when: &Condition, does: &str, fix: &str) {
    around.sink.report(
        when.text.place,
        Code::ConstantPolicy,
        format!("`when` {does}, whatever happened before"),
        "it looks like a condition and is none",
        format!("write {fix}"),
    );
}

/// `own`: whether the condition is evaluated when the node itself is done.
fn check_names(around: &Surroundings<'_>, node: &NodeDraft, when: &Condition, own: bool) {
    let expression = &when.expression;
    let named = Named { key: "when", text: &when.text, cost: "fails the run" };
    let find = |from: &str| named.check_node(around, node, from, own, expression);
    for path in expression.members() {
        match (path[0].as_str(), path.get(1), path.get(2)) {
            ("state", Some(member), from) if member == "nodes" => {
                from.map(|from| find(from));
            }
            ("state", _, _) => named.check_state(around, node, path),
            ("receipts", Some(from), slot) => {
                if let (Some(other), Some(slot)) = (find(from), slot) {
                    check_receipt(around, named, other, slot, path);
                }
            }
            ("routes", Some(from), more) => {
                let Some(other) = find(from) else { continue };
                if other.paths.routes.is_empty() || more.is_some() {
                    around.sink.report(
                        when.text.place,
                        Code::UnknownRoute,
                        if more.is_some() {
                            format!("`when`: `{}` names something within a word", path.join("."))
                        } else {
                            format!("`when`: the node `{from}` has no `routes`")
                        },
                        "a route is one of the words that a node declares; without them it has none",
                        format!("add `routes = [\"…\"]` to `{from}`, and compare: `routes.{from} == \"…\"`"),
                    );
                }
            }
            _ => {}
        }
    }
    for compared in expression.compared() {
        let [root, from] = compared.path.as_slice() else { continue };
        let other = around.nodes.iter().find(|other| other.name.value.as_str() == from);
        let (true, Some(other)) = (root == "routes", other) else { continue };
        let mut words = other.paths.routes.iter().map(|word| word.value.as_str());
        if !other.paths.routes.is_empty() && !words.any(|word| word == compared.word) {
            let words = other.paths.routes.iter().map(|word| word.value.as_str());
            around.sink.report(
                when.text.place,
                Code::UnknownRoute,
                format!("`when`: `{from}` has no route `{}`", compared.word),
                "the comparison would come out the same whatever the node says",
                suggest("route", &compared.word, words),
            );
        }
    }
}

fn check_receipt(
    around: &Surroundings<'_>,
    named: Named<'_>,
    other: &NodeDraft,
    slot: &str,
    path: &[String],
) {
    let report = |code, what: String, why: &str, fix: String| {
        around.sink.report(named.text.place, code, what, why, fix);
    };
    let from = &other.name.value;
    let Some(draft) = other.slots.iter().find(|draft| draft.name.value.as_str() == slot) else {
        let names = other.slots.iter().map(|slot| slot.name.value.as_str());
        let what = format!("`when`: the node `{from}` has no slot `{slot}`");
        let why = "a receipt is found by the node and the slot that got it";
        report(Code::Dangling, what, why, suggest("slot", slot, names));
        return;
    };
    if draft.uses.value != Uses::Once || other.paths.for_each.is_some() {
        report(
            Code::Dangling,
            format!("`when`: slot `{slot}` of `{from}` may have many receipts"),
            "nothing says which of them is meant",
            "name a slot that is used once, of a node without `for_each`".to_owned(),
        );
        return;
    }
    match path.get(3).map(String::as_str) {
        None | Some("external_id") => {}
        Some("result") => {
            named.check_member(around, path, 4, "response", response(around, draft));
        }
        Some(member) => report(
            Code::NoSuchValue,
            format!("`when`: a receipt has no `{member}`"),
            "here, a receipt is seen as `{ external_id, result }`",
            suggest("member", member, ["external_id", "result"]),
        ),
    }
}

fn response<'a>(around: &Surroundings<'a>, slot: &SlotDraft) -> Option<&'a serde_json::Value> {
    let (tool, operation) = &slot.target.as_ref()?.value;
    around.tools.get(tool)?.as_ref()?.operations.get(operation)?.response_schema.as_ref()
}

/// Reports nodes that can never start: their own condition is constant, or all before them can never start.
fn check_reach(around: &Surroundings<'_>) {
    let mut dead: BTreeSet<usize> = BTreeSet::new();
    for at in around.order.iter().copied() {
        let node = &around.nodes[at];
        let name = &node.name.value;
        let before = &around.relations.links.before[at];
        if let Some(when) =
            node.paths.when.as_ref().filter(|w| w.expression.constant() == Some(false))
        {
            dead.insert(at);
            around.sink.report(
                when.text.place,
                Code::Unreachable,
                format!("the node `{name}` can never start: its `when` never holds"),
                "what never runs is no part of the workflow, and looks like one",
                "name what it depends on, or remove the node",
            );
        } else if !before.is_empty() && before.iter().all(|source| dead.contains(source)) {
            dead.insert(at);
            let names = before.iter().map(|source| around.nodes[*source].name.value.as_str());
            around.sink.report(
                node.name.place,
                Code::Unreachable,
                format!(
                    "the node `{name}` can never start: it comes after {} alone",
                    listed(names)
                ),
                "a node is skipped when all before it are",
                "let it come after a node that can run, or remove it",
            );
        }
    }
}

/// Warns of routes that lead nowhere: each node behind has a condition on the route, and none takes it. What a condition does
/// with a route other than to compare it is not understood; then nothing is said.
fn check_routes(around: &Surroundings<'_>) {
    let conditions = || {
        around.nodes.iter().flat_map(|node| {
            let closes = node.paths.closes.as_ref().and_then(|closes| closes.when.as_ref());
            node.paths.when.iter().chain(closes)
        })
    };
    let choosing =
        around.nodes.iter().enumerate().filter(|(_, node)| !node.paths.routes.is_empty());
    for (at, node) in choosing {
        let name = node.name.value.as_str();
        let of_node =
            |path: &[String]| path[0] == "routes" && path.get(1).is_none_or(|n| n == name);
        let all = || conditions().map(|condition| &condition.expression);
        let unclear = all().any(|expression| {
            expression.loose().iter().any(|path| of_node(path))
                || expression.compared().iter().any(|c| of_node(&c.path) && !c.equal)
        });
        let behind = &around.relations.links.behind[at];
        let chosen = behind.iter().all(|other| {
            let when = around.nodes[*other].paths.when.as_ref();
            when.is_some_and(|when| when.expression.compared().iter().any(|c| of_node(&c.path)))
        });
        if unclear || behind.is_empty() || !chosen {
            continue;
        }
        let taken: BTreeSet<&str> = all()
            .flat_map(Expression::compared)
            .filter(|compared| of_node(&compared.path))
            .map(|compared| compared.word.as_str())
            .collect();
        for word in node.paths.routes.iter().filter(|word| !taken.contains(word.value.as_str())) {
            around.sink.report(
                word.place,
                Code::UnusedRoute,
                format!("no `when` takes the route `{}` of `{name}`", word.value),
                "each node behind has a condition on the route, so a run that takes this one ends there",
                format!("add a node with `when = \"routes.{name} == '{}'\"`, or remove the word if nothing depends on it", word.value),
            );
        }
    }
}
