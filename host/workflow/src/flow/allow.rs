//! Policies of slots: whether `allow` says anything, and whether what it names can be there.

use super::{NodeDraft, SlotDraft, Surroundings};
use crate::diagnostic::{Code, suggest};
use crate::model::Operation;
use crate::policy::{Constant, Policy};
use crate::read::{At, Table};
use crate::shape;

/// What a slot states as `allow`.
pub(super) enum Stated {
    /// An expression.
    Policy(At<String>, Box<Policy>),
    /// None.
    Nothing,
    /// One that is wrong, which is reported.
    Broken,
}

impl Stated {
    /// The expression.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Policy(text, _) => Some(text.value.clone()),
            Self::Nothing | Self::Broken => None,
        }
    }
}

/// Reads `allow`.
pub(super) fn read(table: &Table<'_>) -> Stated {
    if table.item("allow").is_none() {
        return Stated::Nothing;
    }
    let Some(text) = table.text("allow") else { return Stated::Broken };
    match Policy::compile(&text.value) {
        Ok(policy) => Stated::Policy(text, Box::new(policy)),
        Err(error) => {
            table.sink.report(
                text.place,
                Code::Expression,
                format!("`allow`: {error}"),
                "an expression that cannot be evaluated would deny every request",
                "write a CEL expression over `args` and `state`, for example `args.amount_cents <= state.input.paid_cents`",
            );
            Stated::Broken
        }
    }
}

/// Checks the policy of a slot against everything around it.
pub(super) fn check(
    around: &Surroundings<'_>,
    node: &NodeDraft,
    slot: &SlotDraft,
    operation: Option<&Operation>,
) {
    let (text, policy) = match &slot.allow {
        Stated::Policy(text, policy) => (text, policy),
        Stated::Nothing => return report_none(around, slot),
        Stated::Broken => return,
    };
    match policy.constant() {
        Some(constant) if !matches!(text.value.trim(), "true" | "false") => {
            report_constant(around, text, constant);
        }
        Some(_) | None => {}
    }
    for path in policy.members() {
        match (path[0].as_str(), path.get(1).map(String::as_str)) {
            ("args", _) => {
                let schema = operation.map(|operation| &operation.args_schema);
                check_member(around, text, path, 1, "args", schema);
            }
            ("state", Some("input")) => {
                check_member(around, text, path, 2, "input", around.input);
            }
            ("state", Some("nodes")) => check_node(around, node, text, path),
            ("state", Some(other)) => around.sink.report(
                text.place,
                Code::NoSuchValue,
                format!("`allow` names `{}`, and `state` has no `{other}`", path.join(".")),
                "the expression could never be decided, which denies every request",
                suggest("member", other, ["input", "nodes"]),
            ),
            _ => {}
        }
    }
}

fn report_none(around: &Surroundings<'_>, slot: &SlotDraft) {
    around.sink.report(
        slot.place,
        Code::NoPolicy,
        format!("the slot `{}` has no `allow`", slot.name.value),
        "whatever args its node sends are performed, as long as they fit the operation's schema: an amount, a recipient",
        "state what is permitted, for example `allow = \"args.amount_cents <= state.input.paid_cents\"`; if it is everything, say so: `allow = \"true\"`",
    );
}

fn report_constant(around: &Surroundings<'_>, text: &At<String>, constant: Constant) {
    let (does, word) = match constant {
        Constant::Permits => ("permits every request", "true"),
        Constant::Denies => ("denies every request", "false"),
    };
    around.sink.report(
        text.place,
        Code::ConstantPolicy,
        format!("`allow` {does}, whatever its args are"),
        "it looks like a condition and is none",
        format!("name what it depends on, or write `allow = \"{word}\"` if that is meant"),
    );
}

/// Checks that a schema has what stands behind the first `skip` parts of a path.
fn check_member(
    around: &Surroundings<'_>,
    text: &At<String>,
    path: &[String],
    skip: usize,
    which: &str,
    schema: Option<&serde_json::Value>,
) {
    let Some(schema) = schema else { return };
    let escaped = path[skip..].iter().map(|token| token.replace('~', "~0").replace('/', "~1"));
    let pointer: String = escaped.map(|token| format!("/{token}")).collect();
    let named = path.join(".");
    match shape::find(schema, &pointer) {
        shape::Place::Absent { known, missing } => around.sink.report(
            text.place,
            Code::NoSuchValue,
            format!("`allow` names `{named}`, and the {which} schema has no `{missing}`"),
            "the schema is closed (`additionalProperties` is false), so it can never be there: the expression cannot be decided, which denies the request",
            suggest("property", &missing, known),
        ),
        shape::Place::Unlisted { known, missing } => around.sink.report(
            text.place,
            Code::UnlistedValue,
            format!("`allow` names `{named}`, and the {which} schema does not mention `{missing}`"),
            "the schema is open, so it may be there; where it is not, the expression cannot be decided, which denies the request",
            format!(
                "add `{missing}` to `properties` if it is meant; else: {}",
                suggest("property", &missing, known)
            ),
        ),
        shape::Place::Described { .. } | shape::Place::Open => {}
    }
}

/// Checks that the output of a node that an expression names is there when it is evaluated.
fn check_node(around: &Surroundings<'_>, node: &NodeDraft, text: &At<String>, path: &[String]) {
    let Some(from) = path.get(2) else { return };
    let why = "a node's output is there once it is done; until then the expression cannot be decided, which denies the request";
    let report = |what: String, fix: String| {
        around.sink.report(text.place, Code::Dangling, what, why, fix);
    };
    let names = around.nodes.iter().map(|other| other.name.value.as_str());
    if !names.clone().any(|name| name == from) {
        if around.complete {
            report(format!("`allow`: there is no node `{from}`"), suggest("node", from, names));
        }
        return;
    }
    let before = around.ancestors.get(&node.name.value);
    if before.is_some_and(|before| !before.iter().any(|name| name.as_str() == from)) {
        report(
            format!("`allow`: `{from}` is not done before `{}` starts", node.name.value),
            if node.name.value.as_str() == from {
                "name a node that is done before, or the input".to_owned()
            } else {
                format!("add `{from}` to `after`")
            },
        );
    }
}
