//! Whether the values of a type are those of a schema: structure, not ranges or patterns, which each value is held against
//! when it comes.

use serde_json::Value;
use twice_core::wit::{WitType, json_name};

use super::schema::{At, OPEN, is_closed, items, prefix, properties, required};

/// Which side makes the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// The node: all that the type holds must be what the schema takes.
    ByNode,
    /// The tool: all that the schema takes must be what the type holds.
    ByTool,
}

/// Compares types with a schema whose references are written out.
pub(super) struct Fit {
    made: Made,
    problems: Vec<String>,
}

impl Fit {
    pub(super) const fn new(made: Made) -> Self {
        Self { made, problems: Vec::new() }
    }

    /// What does not fit.
    pub(super) fn problems(self) -> Vec<String> {
        self.problems
    }

    fn report(&mut self, at: &str, problem: String) {
        let at = if at.is_empty() { "the whole".to_owned() } else { format!("`{at}`") };
        self.problems.push(format!("{at}: {problem}"));
    }

    /// Compares a type with the schema at the place `at`. Returns the type as values are mapped by: with JSON text where the
    /// schema means something else than a string.
    pub(super) fn value(&mut self, ty: &WitType, schema: &Value, at: &str) -> WitType {
        if let WitType::Option(inner) = ty {
            if self.made == Made::ByNode
                && !At::of(schema).nullable
                && At::of(schema).kinds.is_some()
            {
                self.report(at, format!("the type is `{ty}`, whose none is null here, which the schema does not take"));
            }
            return WitType::Option(Box::new(self.present(inner, schema, at)));
        }
        let place = At::of(schema);
        // JSON text can say null.
        let takes_null = matches!(ty, WitType::String) && !place.is_only("string");
        if self.made == Made::ByTool && place.nullable && !takes_null {
            self.report(at, format!("the schema says that it may be null; make it `option<{ty}>`"));
        }
        self.present(ty, schema, at)
    }

    /// As [`Self::value`], for what is not null.
    fn present(&mut self, ty: &WitType, schema: &Value, at: &str) -> WitType {
        let place = At::of(schema);
        if let WitType::String = ty {
            return self.text(&place, at);
        }
        if self.made == Made::ByTool && place.kinds.is_none() && place.cases().is_none() {
            let why = "the schema does not say what is there; say it in the tool's schema, or make it `string`, which then holds JSON";
            self.report(at, format!("the type is `{ty}`, and {why}"));
            return ty.clone();
        }
        match ty {
            WitType::Bool => self.kind(ty, &place, "boolean", at),
            WitType::Char => self.kind(ty, &place, "string", at),
            WitType::S8 | WitType::U8 | WitType::S16 | WitType::U16 => {
                self.kind(ty, &place, "integer", at);
            }
            WitType::S32 | WitType::U32 | WitType::S64 | WitType::U64 => {
                self.kind(ty, &place, "integer", at);
            }
            WitType::F32 | WitType::F64 => self.kind(ty, &place, "number", at),
            WitType::String | WitType::Json | WitType::Option(_) => {}
            WitType::List(element) => {
                self.kind(ty, &place, "array", at);
                if prefix(schema).is_some() {
                    self.report(at, format!("the type is `{ty}`, and the schema gives each element its own; make it a tuple"));
                }
                let element = self.value(element, items(place.schema), &format!("{at}/*"));
                return WitType::List(Box::new(element));
            }
            WitType::Tuple(types) => {
                self.kind(ty, &place, "array", at);
                return WitType::Tuple(self.tuple(types, &place, at));
            }
            WitType::Record(fields) => {
                self.kind(ty, &place, "object", at);
                return WitType::Record(self.record(fields, place.schema, at));
            }
            WitType::Enum(cases) => {
                self.kind(ty, &place, "string", at);
                self.names(cases, &place, at);
            }
            WitType::Flags(names) => {
                self.kind(ty, &place, "array", at);
                self.names(names, &At::of(items(place.schema)), &format!("{at}/*"));
            }
            WitType::Variant(cases) => {
                let cases: Vec<_> =
                    cases.iter().map(|(name, ty)| (name.as_str(), ty.as_ref())).collect();
                let cases = self.cases(&cases, &place, at);
                return WitType::Variant(cases);
            }
            WitType::Result(ok, err) => {
                let cases = [("ok", ok.as_deref()), ("err", err.as_deref())];
                let mut cases =
                    self.cases(&cases, &place, at).into_iter().map(|(_, ty)| ty.map(Box::new));
                return WitType::Result(cases.next().flatten(), cases.next().flatten());
            }
        }
        ty.clone()
    }

    /// A string is text where the schema takes text alone, and JSON otherwise.
    fn text(&mut self, place: &At<'_>, at: &str) -> WitType {
        if place.is_only("string") {
            return WitType::String;
        }
        let scalars = ["boolean", "integer", "number"];
        let is_scalar = place.kinds.as_ref().is_some_and(|kinds| {
            !kinds.is_empty() && kinds.iter().all(|kind| scalars.contains(kind))
        });
        if is_scalar {
            self.report(at, format!("the type is `string`, and the schema says {}", place.words()));
        }
        WitType::Json
    }

    fn kind(&mut self, ty: &WitType, place: &At<'_>, kind: &str, at: &str) {
        let fits = match self.made {
            Made::ByNode => place.may_be(kind),
            Made::ByTool => place.is_only(kind) || place.kinds.is_none(),
        };
        if !fits {
            self.report(at, format!("the type is `{ty}`, and the schema says {}", place.words()));
        }
    }

    fn tuple(&mut self, types: &[WitType], place: &At<'_>, at: &str) -> Vec<WitType> {
        let first = prefix(place.schema);
        if first.is_some_and(|first| first.len() != types.len()) {
            let known = first.map_or(0, Vec::len);
            self.report(
                at,
                format!("the tuple has {} elements, and the schema {known}", types.len()),
            );
        }
        let element = |(index, ty): (usize, &WitType)| {
            let schema =
                first.and_then(|first| first.get(index)).unwrap_or_else(|| items(place.schema));
            self.value(ty, schema, &format!("{at}/{index}"))
        };
        types.iter().enumerate().map(element).collect()
    }

    /// Compares fields with the members of an object.
    pub(super) fn record(
        &mut self,
        fields: &[(String, WitType)],
        schema: &Value,
        at: &str,
    ) -> Vec<(String, WitType)> {
        let known = properties(schema);
        let required = required(schema);
        if self.made == Made::ByNode {
            for name in &required {
                let field = fields.iter().find(|(field, _)| json_name(field) == *name);
                let at = format!("{at}/{name}");
                match field {
                    None => self.report(&at, "the schema requires it, and no field is for it".to_owned()),
                    Some((field, WitType::Option(_))) => self.report(
                        &at,
                        format!("the schema requires it, and the field `{field}` is an option, whose none is left out"),
                    ),
                    Some(_) => {}
                }
            }
        }
        let mut resolved = Vec::with_capacity(fields.len());
        for (field, ty) in fields {
            let name = json_name(field);
            let at = format!("{at}/{name}");
            let member = known.and_then(|known| known.get(&name));
            if member.is_none() && is_closed(schema) {
                self.report(
                    &at,
                    format!("the schema has no `{name}`, which the field `{field}` is for"),
                );
            }
            let optional = !required.contains(name.as_str());
            let member = member.unwrap_or(OPEN);
            let ty = match ty {
                // None is a member that is left out, so null need not be possible.
                WitType::Option(inner) => {
                    WitType::Option(Box::new(self.present(inner, member, &at)))
                }
                ty => {
                    if self.made == Made::ByTool && optional {
                        self.report(
                            &at,
                            format!("the schema does not say that it is always there; make the field `{field}` an `option<{ty}>`"),
                        );
                    }
                    self.value(ty, member, &at)
                }
            };
            resolved.push((field.clone(), ty));
        }
        resolved
    }

    /// Compares names with texts that the schema lists.
    fn names(&mut self, names: &[String], place: &At<'_>, at: &str) {
        let Some(texts) = place.texts() else {
            if self.made == Made::ByTool {
                self.report(
                    at,
                    "the schema does not list what may be there; make it `string`".to_owned(),
                );
            }
            return;
        };
        self.listed(names.iter().map(String::as_str), &texts, at);
    }

    fn listed<'a>(&mut self, names: impl Iterator<Item = &'a str>, texts: &[&str], at: &str) {
        let names: Vec<String> = names.map(json_name).collect();
        let too_many: Vec<&str> = match self.made {
            Made::ByNode => {
                names.iter().map(String::as_str).filter(|name| !texts.contains(name)).collect()
            }
            Made::ByTool => {
                texts.iter().copied().filter(|text| names.iter().all(|name| name != text)).collect()
            }
        };
        if !too_many.is_empty() {
            let who = match self.made {
                Made::ByNode => "the schema does not take",
                Made::ByTool => "the type has no case for",
            };
            self.report(at, format!("{who} `{}`", too_many.join("`, `")));
        }
    }

    fn cases(
        &mut self,
        cases: &[(&str, Option<&WitType>)],
        place: &At<'_>,
        at: &str,
    ) -> Vec<(String, Option<WitType>)> {
        let known = place.cases();
        match &known {
            Some(known) => {
                let texts: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                self.listed(cases.iter().map(|(name, _)| *name), &texts, at);
            }
            None if self.made == Made::ByTool => {
                self.report(at, "the schema does not list what may be there; make it `string`, which then holds JSON".to_owned());
            }
            None => {
                for (bare, kind) in [(true, "string"), (false, "object")] {
                    if cases.iter().any(|(_, ty)| ty.is_none() == bare) && !place.may_be(kind) {
                        self.report(
                            at,
                            format!(
                                "a case of the type is {kind} in JSON, and the schema says {}",
                                place.words()
                            ),
                        );
                    }
                }
            }
        }
        let mut resolved = Vec::with_capacity(cases.len());
        for (case, ty) in cases {
            let name = json_name(case);
            let at = format!("{at}/{name}");
            let schema = known.iter().flatten().find(|(known, _)| *known == name);
            let payload = schema.map(|(_, payload)| *payload);
            let ty = match (ty, payload) {
                (Some(ty), Some(Some(schema))) => Some(self.value(ty, schema, &at)),
                (Some(ty), None) => {
                    Some(if known.is_some() { (*ty).clone() } else { self.value(ty, OPEN, &at) })
                }
                (None, Some(None) | None) => None,
                (Some(ty), Some(None)) => {
                    self.report(
                        &at,
                        format!("the case has a `{ty}`, and the schema only its name"),
                    );
                    Some((*ty).clone())
                }
                (None, Some(Some(_))) => {
                    self.report(
                        &at,
                        "the case has nothing with it, and the schema says what is".to_owned(),
                    );
                    None
                }
            };
            resolved.push(((*case).to_owned(), ty));
        }
        resolved
    }
}
