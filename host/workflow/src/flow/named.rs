//! What expressions name: whether it can be there when they are evaluated.

use serde_json::Value;

use super::relations::Knows;
use super::{NodeDraft, Surroundings};
use crate::diagnostic::{Code, suggest};
use crate::expression::Expression;
use crate::read::At;
use crate::shape;

/// An expression, and what becomes of it when it cannot be decided.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    /// The key under which it stands.
    pub(super) key: &'static str,
    /// Its text.
    pub(super) text: &'a At<String>,
    /// What happens when it cannot be decided.
    pub(super) cost: &'static str,
}

impl Named<'_> {
    fn report(self, around: &Surroundings<'_>, code: Code, what: String, why: String, fix: String) {
        around.sink.report(self.text.place, code, what, why, fix);
    }

    /// Checks `state.input.…`, and `state` with a member that it does not have.
    pub(super) fn check_state(self, around: &Surroundings<'_>, node: &NodeDraft, path: &[String]) {
        let element = node.paths.for_each.is_some() && matches!(self.key, "allow" | "approve.when");
        match path.get(1).map(String::as_str) {
            Some("input") => self.check_member(around, path, 2, "input", around.input),
            None | Some("nodes") => {}
            Some("element") if element => {
                let schema = super::elements::schema(around, node);
                self.check_member(around, path, 2, "element", schema);
            }
            Some(other) => {
                let members = ["input", "nodes", "element"];
                let known = if element { &members[..] } else { &members[..2] };
                self.report(
                    around,
                    Code::NoSuchValue,
                    format!(
                        "`{}` names `{}`, and `state` has no `{other}`",
                        self.key,
                        path.join(".")
                    ),
                    format!("the expression could never be decided, which {}", self.cost),
                    suggest("member", other, known.iter().copied()),
                );
            }
        }
    }

    /// Checks that a schema has what stands behind the first `skip` parts of a path.
    pub(super) fn check_member(
        self,
        around: &Surroundings<'_>,
        path: &[String],
        skip: usize,
        which: &str,
        schema: Option<&Value>,
    ) {
        let Some(schema) = schema else { return };
        let escaped = path[skip..].iter().map(|token| token.replace('~', "~0").replace('/', "~1"));
        let pointer: String = escaped.map(|token| format!("/{token}")).collect();
        let named = path.join(".");
        let Self { key, cost, .. } = self;
        match shape::find(schema, &pointer) {
            shape::Place::Absent { known, missing } => self.report(
                around,
                Code::NoSuchValue,
                format!("`{key}` names `{named}`, and the {which} schema has no `{missing}`"),
                format!("the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which {cost}"),
                suggest("property", &missing, known),
            ),
            shape::Place::Unlisted { known, missing } => self.report(
                around,
                Code::UnlistedValue,
                format!("`{key}` names `{named}`, and the {which} schema does not mention `{missing}`"),
                format!("the schema is open, so it may be there; where it is not, the expression cannot be decided, which {cost}"),
                format!(
                    "add `{missing}` to `properties` if it is meant; else: {}",
                    suggest("property", &missing, known)
                ),
            ),
            shape::Place::Described { .. } | shape::Place::Open => {}
        }
    }

    /// Checks that a node whose output, receipt or route is named is over when the expression is evaluated; the node, if
    /// there is one. `own`: whether the expression is evaluated when `node` itself is done.
    pub(super) fn check_node<'a>(
        self,
        around: &Surroundings<'a>,
        node: &NodeDraft,
        from: &str,
        own: bool,
        expression: &Expression,
    ) -> Option<&'a NodeDraft> {
        let Self { key, cost, .. } = self;
        let why = format!(
            "a node's output is there once it is done; until then the expression cannot be decided, which {cost}"
        );
        let Some(other) = around.nodes.iter().find(|other| other.name.value.as_str() == from)
        else {
            if around.complete {
                let names = around.nodes.iter().map(|other| other.name.value.as_str());
                let what = format!("`{key}`: there is no node `{from}`");
                self.report(around, Code::Dangling, what, why, suggest("node", from, names));
            }
            return None;
        };
        let name = &node.name.value;
        if own && name.as_str() == from {
            return Some(other);
        }
        let guarded = is_guarded(expression, from);
        match around.relations.knows(name, &other.name.value) {
            Knows::Done | Knows::Unclear => {}
            Knows::Settled | Knows::Unsettled | Knows::EarlierRound if guarded => {}
            Knows::Settled => self.report(
                around,
                Code::MaybeSkipped,
                format!("`{key}` names `{from}`, which may have been skipped"),
                format!("a node that is skipped has no output, receipt or route; the expression cannot be decided then, which {cost}"),
                format!("ask first: `has(state.nodes.{from}) && …`, or `!has(state.nodes.{from}) || …`"),
            ),
            Knows::Unsettled => self.report(
                around,
                Code::MaybeSkipped,
                format!("`{key}` names `{from}`, which may still be at work"),
                format!("`join = \"any\"` waits for one of the paths before alone; the expression cannot be decided before `{from}` is done, which {cost}"),
                format!("ask first: `has(state.nodes.{from}) && …`, or wait for all"),
            ),
            Knows::EarlierRound => self.report(
                around,
                Code::MaybeSkipped,
                format!("`{key}` names `{from}`, which has not been visited in the first round of the loop"),
                format!("the expression cannot be decided then, which {cost}"),
                format!("ask first: `!has(state.nodes.{from}) || …`"),
            ),
            Knows::Nothing => self.report(
                around,
                Code::Dangling,
                format!("`{key}`: `{from}` is not done before `{name}` starts"),
                why,
                if name.as_str() == from {
                    "name a node that is done before, or the input".to_owned()
                } else {
                    before(from, around.relations.is_behind(&other.name.value, name))
                },
            ),
        }
        Some(other)
    }
}

/// How a node gets to know of another that is not done before it. `behind`: the other comes after it, and would wait for it in
/// turn.
pub(super) fn before(other: &str, behind: bool) -> String {
    if behind {
        format!(
            "name the input or a node before: `{other}` comes after this one, so that neither could start if it waited for `{other}`"
        )
    } else {
        format!("add `{other}` to `after`")
    }
}

/// Whether an expression asks for what it names of a node before it takes it, or asks for the route that led here: then it
/// is decided without what is not there.
pub(super) fn is_guarded(expression: &Expression, node: &str) -> bool {
    let of_node = |path: &Vec<String>| match path.first().map(String::as_str) {
        Some("state") => path.get(2).is_some_and(|name| name == node),
        Some("receipts" | "routes") => path.get(1).is_some_and(|name| name == node),
        _ => false,
    };
    let route =
        |path: &[String]| path.first().is_some_and(|root| root == "routes") && path[1] != node;
    expression.asked().iter().any(of_node)
        || expression.compared().iter().any(|compared| route(&compared.path))
}
