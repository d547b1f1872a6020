//! Compensations: how an effect is undone, and whether its args can be made.

use serde_json::Value;
use twice_core::ids::Name;

use super::allow::{self, Stated};
use super::slots::Target;
use super::{NodeDraft, SlotDraft, Surroundings, approve, node, slots};
use crate::diagnostic::{Code, listed, suggest};
use crate::model::{Compensation, OnUnknown, Part, StepRetry, Template, Text};
use crate::read::{At, Item, Kind, Place, Sink, Table};
use crate::shape;
use crate::template::{self, Piece};

/// What the args of a compensation may be made of.
const ROOTS: &str = "`/receipt/external_id`, `/receipt/result/…`, `/args/…`, `/input/…`, or `/element/…` in a fan-out";

/// A compensation as read.
pub(super) struct Draft {
    pub(super) place: Place,
    target: Option<At<(Name, Name)>>,
    args: Option<Made>,
    allow: Stated,
    approve: Option<approve::Draft>,
    on_unknown: OnUnknown,
    retry: StepRetry,
}

/// A template with the places of its parts.
struct Made {
    place: Place,
    kind: MadeKind,
}

enum MadeKind {
    Literal(Value),
    Reference { pointer: String, optional: bool },
    Text(Vec<Part>),
    Object(Vec<(String, Made)>),
    Array(Vec<Made>),
}

/// Reads `compensate`.
pub(super) fn read(table: &Table<'_>) -> Option<Draft> {
    let inner = table.table("compensate")?.called("`compensate`");
    let target = slots::target(&inner);
    let args = inner
        .required("args", "{ payment_id = \"/receipt/external_id\" }")
        .and_then(|item| made(inner.sink, item));
    let allow = allow::read(&inner);
    let words = [("hold", OnUnknown::Hold), ("undo", OnUnknown::Undo)];
    let on_unknown = inner.word("on_unknown", &words).unwrap_or_default();
    let retry = node::retry(&inner);
    let approve = approve::read(&inner);
    let place = inner.place;
    inner.close();
    Some(Draft { place, target, args, allow, approve, on_unknown, retry })
}

/// The template that a TOML value stands for. A text that starts with `/` is a pointer; one with braces is put together.
fn made(sink: Sink<'_>, item: &Item) -> Option<Made> {
    let kind = match &item.kind {
        Kind::Text(text) if text.starts_with('/') => {
            let (pointer, optional) = match text.strip_suffix('?') {
                Some(pointer) => (pointer.to_owned(), true),
                None => (text.clone(), false),
            };
            MadeKind::Reference { pointer, optional }
        }
        Kind::Text(text) => {
            let raw = At { value: text.clone(), place: item.place };
            let mut parts = Vec::new();
            for piece in template::split(sink, &raw)? {
                parts.push(match piece {
                    Piece::Literal(text) => Part::Literal(text),
                    Piece::Reference { pointer, .. } => Part::Reference(pointer),
                    Piece::Secret(name) => {
                        sink.report(
                            item.place,
                            Code::Template,
                            format!("`{{secret:{name}}}` in the args of a compensation"),
                            "args are written down; a secret is filled in by the tool alone",
                            "remove it; the tool's own request carries its secrets",
                        );
                        return None;
                    }
                });
            }
            match parts.as_slice() {
                [] => MadeKind::Literal(Value::from("")),
                [Part::Literal(text)] => MadeKind::Literal(Value::from(text.as_str())),
                [Part::Reference(pointer)] => {
                    MadeKind::Reference { pointer: pointer.clone(), optional: false }
                }
                _ => MadeKind::Text(parts),
            }
        }
        Kind::Array(items) => {
            MadeKind::Array(items.iter().map(|item| made(sink, item)).collect::<Option<_>>()?)
        }
        Kind::Table(members) => {
            let members = members.iter();
            let members =
                members.map(|(key, member)| Some((key.clone(), made(sink, &member.item)?)));
            MadeKind::Object(members.collect::<Option<_>>()?)
        }
        Kind::Integer(_) | Kind::Float(_) | Kind::Flag(_) | Kind::Date => {
            MadeKind::Literal(item.as_json(sink)?)
        }
    };
    Some(Made { place: item.place, kind })
}

impl Made {
    fn template(&self) -> Template {
        match &self.kind {
            MadeKind::Literal(value) => Template::Literal(value.clone()),
            MadeKind::Reference { pointer, optional } => {
                Template::Reference { pointer: pointer.clone(), optional: *optional }
            }
            MadeKind::Text(parts) => Template::Text(Text(parts.clone())),
            MadeKind::Array(items) => Template::Array(items.iter().map(Self::template).collect()),
            MadeKind::Object(members) => Template::Object(
                members.iter().map(|(key, made)| (key.clone(), made.template())).collect(),
            ),
        }
    }
}

/// What the args of a slot's compensation are checked against.
struct Check<'a, 'b> {
    around: &'b Surroundings<'a>,
    node: &'b NodeDraft,
    target: &'b Target<'a>,
    on_unknown: OnUnknown,
    /// The schema of the compensation's args.
    args: &'a Value,
}

/// Checks the compensation of a slot. `None` when it has none, or one that is wrong, which is reported.
pub(super) fn check(
    around: &Surroundings<'_>,
    node: &NodeDraft,
    slot: &SlotDraft,
    target: &Target<'_>,
) -> Option<Compensation> {
    let draft = slot.compensate.as_ref()?;
    let refuse = |what: String, why: &str, fix: &str| {
        around.sink.report(draft.place, Code::Compensation, what, why, fix);
    };
    let name = &slot.name.value;
    if target.read == Some(true) {
        refuse(
            format!("the slot `{name}` is a read, and has `compensate`"),
            "a read changes nothing, so there is nothing to undo",
            "remove it",
        );
    }
    if slot.shared {
        refuse(
            format!("the slot `{name}` has `scope = \"object\"` and `compensate`"),
            "the effect belongs to every run that asked for it; another run may rest on it",
            "remove one of them",
        );
    }
    let undo = draft.target.as_ref()?;
    let operation = slots::operation(around, undo)?;
    if operation.contract.read {
        refuse(
            format!("`{}.{}` is a read, and undoes nothing", undo.value.0, undo.value.1),
            "a compensation is an effect that makes up for another",
            "name the operation that undoes the effect",
        );
    }
    if draft.on_unknown == OnUnknown::Undo && operation.contract.key.is_none() {
        refuse(
            format!(
                "`on_unknown = \"undo\"`, and `{}.{}` honours no key",
                undo.value.0, undo.value.1
            ),
            "undoing what may not have happened must be safe to repeat",
            "declare the key of the operation, or leave `on_unknown` at `hold`",
        );
    }
    let args = draft.args.as_ref()?;
    let check =
        Check { around, node, target, on_unknown: draft.on_unknown, args: &operation.args_schema };
    check.fits(args, check.args);
    allow::check_stated(around, node, &draft.allow, Some(&operation.args_schema));
    let schema = Some(&operation.args_schema);
    let approve = approve::check(around, node, draft.approve.as_ref(), schema, false);
    let (tool, operation) = undo.value.clone();
    Some(Compensation {
        tool,
        operation,
        args: args.template(),
        allow: draft.allow.text(),
        approve,
        on_unknown: draft.on_unknown,
        retry: draft.retry.clone(),
    })
}

impl<'a> Check<'a, '_> {
    fn report(&self, place: Place, code: Code, what: String, why: &str, fix: String) {
        self.around.sink.report(place, code, what, why, fix);
    }

    /// Whether what is made can be what the schema asks for.
    fn fits(&self, made: &Made, wanted: &'a Value) {
        match &made.kind {
            MadeKind::Literal(value) => self.types(made.place, &[shape::type_of(value)], wanted),
            MadeKind::Text(parts) => {
                self.types(made.place, &["string"], wanted);
                for part in parts {
                    if let Part::Reference(pointer) = part {
                        self.source(made.place, pointer, false);
                    }
                }
            }
            MadeKind::Reference { pointer, optional } => {
                if let Some(types) = self.source(made.place, pointer, *optional) {
                    self.types(made.place, &types, wanted);
                }
            }
            MadeKind::Array(items) => {
                self.types(made.place, &["array"], wanted);
                for item in items {
                    self.fits_below(item, shape::items(self.args, wanted));
                }
            }
            MadeKind::Object(members) => self.object(made, members, wanted),
        }
    }

    fn object(&self, made: &Made, members: &[(String, Made)], wanted: &'a Value) {
        self.types(made.place, &["object"], wanted);
        for (key, member) in members {
            let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            match shape::descend(self.args, wanted, &pointer) {
                shape::Place::Described { schema, .. } => self.fits(member, schema),
                shape::Place::Absent { known, missing } => {
                    template::absent(self.around.sink, member.place, &missing, &known);
                }
                shape::Place::Open | shape::Place::Unlisted { .. } => self.fits_below(member, None),
            }
        }
        let required = wanted.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !members.iter().any(|(key, _)| key == name) {
                self.report(
                    made.place,
                    Code::Compensation,
                    format!("the args lack `{name}`, which the operation requires"),
                    "the compensation would be refused when it is needed",
                    format!("add `{name}`, from {ROOTS}"),
                );
            }
        }
    }

    /// As [`Check::fits`], where the schema may say nothing.
    fn fits_below(&self, made: &Made, wanted: Option<&'a Value>) {
        const ANYTHING: &Value = &Value::Bool(true);
        self.fits(made, wanted.unwrap_or(ANYTHING));
    }

    fn types(&self, place: Place, given: &[&str], wanted: &Value) {
        let Some(allowed) = shape::types(wanted) else { return };
        let fits = |given: &&str| {
            allowed.contains(*given) || (*given == "integer" && allowed.contains("number"))
        };
        if !given.is_empty() && !given.iter().any(fits) {
            self.report(
                place,
                Code::Compensation,
                format!(
                    "this is {}, and the operation takes {}",
                    listed(given.iter().copied()),
                    listed(allowed)
                ),
                "the compensation would be refused when it is needed",
                "name another value, or correct the args schema of the operation".to_owned(),
            );
        }
    }

    /// Checks where a value comes from; its types, when they are known.
    fn source(&self, place: Place, pointer: &str, optional: bool) -> Option<Vec<&'a str>> {
        let operation = self.target.operation;
        let after = |root: &str| {
            pointer.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if pointer.starts_with("/receipt") && self.on_unknown == OnUnknown::Undo {
            self.report(
                place,
                Code::Compensation,
                format!("`{pointer}` with `on_unknown = \"undo\"`"),
                "while the outcome is unknown there is no receipt",
                "use `/args/…`, `/input/…` or `/element/…` alone, or leave `on_unknown` at `hold`"
                    .to_owned(),
            );
            return None;
        }
        if pointer == "/receipt/external_id" {
            return Some(vec!["string"]);
        }
        let (which, schema, rest) = if let Some(rest) = after("/receipt/result") {
            ("response", operation.and_then(|operation| operation.response_schema.as_ref()), rest)
        } else if let Some(rest) = after("/args") {
            ("args", self.target.args, rest)
        } else if let Some(rest) = after("/input") {
            ("input", self.around.input, rest)
        } else if let (Some(rest), true) = (after("/element"), self.node.paths.for_each.is_some()) {
            ("element", super::elements::schema(self.around, self.node), rest)
        } else {
            self.report(
                place,
                Code::Compensation,
                format!("`{pointer}` leads nowhere"),
                "a compensation is made from what is recorded of its effect and of the run's input alone, so that every attempt is the same",
                format!("use {ROOTS}"),
            );
            return None;
        };
        let Some(schema) = schema else {
            if !optional && which == "response" && !rest.is_empty() && operation.is_some() {
                self.report(
                    place,
                    Code::ReferenceOptional,
                    format!("nothing says that `{pointer}` will be there: the operation states no schema of its answers"),
                    "where it is missing, the compensation cannot be made, and the run stays stuck",
                    format!("state one under `response` that requires `{rest}`, or write `{pointer}?` to leave it out where it is missing"),
                );
            }
            return None;
        };
        match shape::find(schema, rest) {
            shape::Place::Described { schema, always } => {
                if !always && !optional {
                    self.report(
                        place,
                        Code::ReferenceOptional,
                        format!("the {which} schema does not require `{rest}`"),
                        "where it is missing, the compensation cannot be made, and the run stays stuck",
                        format!("write `{pointer}?` to leave it out then, or add it to `required`"),
                    );
                }
                shape::types(schema).map(|types| types.into_iter().collect())
            }
            shape::Place::Absent { known, missing } => {
                self.report(
                    place,
                    Code::NoSuchValue,
                    format!("the {which} schema has no `{missing}`"),
                    "the schema is closed (`additionalProperties` is false), so it can never be there",
                    suggest("property", &missing, known),
                );
                None
            }
            shape::Place::Open | shape::Place::Unlisted { .. } => None,
        }
    }
}
