//! Expressions of slots over `args`, `object` and `state`: whether they say anything, and whether what they name can be there.

use serde_json::Value;

use super::named::Named;
use super::{NodeDraft, SlotDraft, Surroundings};
use crate::diagnostic::Code;
use crate::model::Uses;
use crate::policy::{Constant, Policy};
use crate::read::{At, Table};

/// How such an expression is spoken of.
pub(super) struct Expression {
    /// The key under which it stands.
    pub(super) key: &'static str,
    /// What happens when it cannot be decided.
    pub(super) cost: &'static str,
    /// Why one that is not CEL is refused.
    pub(super) broken: &'static str,
    /// A good one.
    pub(super) example: &'static str,
    /// What one does that is always true.
    pub(super) always: &'static str,
    /// What one does that is always false.
    pub(super) never: &'static str,
}

/// `allow`.
const ALLOW: Expression = Expression {
    key: "allow",
    cost: "denies the request",
    broken: "an expression that cannot be evaluated would deny every request",
    example: "args.amount_cents <= state.input.paid_cents",
    always: "permits every request",
    never: "denies every request",
};

/// What a slot states.
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
    read_as(table, "allow", &ALLOW)
}

/// Reads an expression.
pub(super) fn read_as(table: &Table<'_>, key: &'static str, spoken: &Expression) -> Stated {
    if table.item(key).is_none() {
        return Stated::Nothing;
    }
    let Some(text) = table.text(key) else { return Stated::Broken };
    match Policy::compile(&text.value) {
        Ok(policy) => {
            if let Some(got) = policy.expression().other_type() {
                table.sink.report(
                    text.place,
                    Code::Expression,
                    format!("`{}` gives a value of type {got}, not true or false", spoken.key),
                    spoken.broken,
                    format!("compare it: `{}`", spoken.example),
                );
                return Stated::Broken;
            }
            Stated::Policy(text, Box::new(policy))
        }
        Err(error) => {
            table.sink.report(
                text.place,
                Code::Expression,
                format!("`{}`: {error}", spoken.key),
                spoken.broken,
                format!(
                    "write a CEL expression over `args`, `object` and `state`, for example `{}`",
                    spoken.example
                ),
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
    args: Option<&Value>,
) {
    match (&slot.allow, &slot.uses.value) {
        (Stated::Nothing, _) => report_none(around, slot),
        (Stated::Policy(text, policy), Uses::ForEach(_))
            if policy.constant().is_none() && !names_object(policy) =>
        {
            report_unchecked(around, text);
        }
        (Stated::Policy(..) | Stated::Broken, _) => {}
    }
    check_stated(around, node, &slot.allow, args);
}

/// Checks what is stated against everything around it. `args` is their schema.
pub(super) fn check_stated(
    around: &Surroundings<'_>,
    node: &NodeDraft,
    stated: &Stated,
    args: Option<&Value>,
) {
    check_as(around, node, stated, args, &ALLOW);
}

/// Checks an expression against everything around it. `args` is their schema.
pub(super) fn check_as(
    around: &Surroundings<'_>,
    node: &NodeDraft,
    stated: &Stated,
    args: Option<&Value>,
    spoken: &Expression,
) {
    let (text, policy) = match stated {
        Stated::Policy(text, policy) => (text, policy),
        Stated::Nothing | Stated::Broken => return,
    };
    match policy.constant() {
        Some(constant) if !matches!(text.value.trim(), "true" | "false") => {
            report_constant(around, text, constant, spoken);
        }
        Some(_) | None => {}
    }
    let named = Named { key: spoken.key, text, cost: spoken.cost };
    for path in policy.expression().members() {
        match (path[0].as_str(), path.get(1).map(String::as_str)) {
            ("args", _) => named.check_member(around, path, 1, "args", args),
            ("state", Some("nodes")) => {
                if let Some(from) = path.get(2) {
                    named.check_node(around, node, from, false, policy.expression());
                }
            }
            ("state", _) => named.check_state(around, node, path),
            _ => {}
        }
    }
}

fn names_object(policy: &Policy) -> bool {
    policy.expression().loose().iter().any(|path| path[0] == "object")
}

fn report_unchecked(around: &Surroundings<'_>, text: &At<String>) {
    around.sink.report(
        text.place,
        Code::ElementUnchecked,
        "the slot is for each element of an array, and `allow` does not look at `object`",
        "a node may send the args of one element as those of another, and do the same thing twice under two identities",
        "compare them, for example `args.order_id == object && …`",
    );
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

fn report_constant(
    around: &Surroundings<'_>,
    text: &At<String>,
    constant: Constant,
    spoken: &Expression,
) {
    let (does, word) = match constant {
        Constant::Permits => (spoken.always, "true"),
        Constant::Denies => (spoken.never, "false"),
    };
    let key = spoken.key;
    around.sink.report(
        text.place,
        Code::ConstantPolicy,
        format!("`{key}` {does}, whatever its args are"),
        "it looks like a condition and is none",
        format!("name what it depends on, or write `{key} = \"{word}\"` if that is meant"),
    );
}
