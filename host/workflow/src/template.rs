//! Request templates: the text between quotes in a tool file, read into typed parts once and for all.

use std::collections::BTreeMap;

use serde_json::Value;
use twice_core::ids::Name;

use crate::diagnostic::{Code, listed, suggest};
use crate::model::{HttpRequest, Part, Template, Text};
use crate::read::{At, Item, Kind, Place, Sink, Table};
use crate::shape::{self, is_pointer};

const METHODS: [(&str, &str); 5] =
    [("GET", "GET"), ("POST", "POST"), ("PUT", "PUT"), ("PATCH", "PATCH"), ("DELETE", "DELETE")];
/// What the host itself decides; a template that set them could break the framing of a request, or its destination.
const HEADERS_OF_HOST: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "te",
    "upgrade",
    "trailer",
    "expect",
];
/// What a template may refer to.
const ROOTS: &str = "`/args/…`, `/key`, `/effect_id`, `/run`";

/// What the templates of an operation may refer to.
pub(crate) struct Roots<'a> {
    /// The schema of the args, when it could be read.
    pub(crate) args: Option<&'a Value>,
    /// The tool's secrets.
    pub(crate) secrets: &'a [Name],
    /// Whether the operation declares a key.
    pub(crate) key: bool,
}

/// A piece of template text as written.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Literal(String),
    Reference { pointer: String, optional: bool },
    Secret(String),
}

/// Splits template text. `{{` and `}}` stand for braces.
fn pieces(raw: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = raw;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
            continue;
        }
        if brace == "}" {
            return Err("a `}` that closes nothing; write `}}` for the character".to_owned());
        }
        let Some((inside, after)) = rest.split_once('}') else {
            return Err("a `{` that is never closed; write `{{` for the character".to_owned());
        };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(placeholder(inside)?);
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

fn placeholder(inside: &str) -> Result<Piece, String> {
    if let Some(name) = inside.strip_prefix("secret:") {
        return Ok(Piece::Secret(name.to_owned()));
    }
    let (pointer, optional) = match inside.strip_suffix('?') {
        Some(pointer) => (pointer, true),
        None => (inside, false),
    };
    if pointer.starts_with('/') && is_pointer(pointer) {
        Ok(Piece::Reference { pointer: pointer.to_owned(), optional })
    } else {
        Err(format!("`{{{inside}}}`, which is neither `{{/pointer}}` nor `{{secret:name}}`"))
    }
}

/// Splits template text; what is wrong with it is reported.
pub(crate) fn split(sink: Sink<'_>, raw: &At<String>) -> Option<Vec<Piece>> {
    match pieces(&raw.value) {
        Ok(pieces) => Some(pieces),
        Err(problem) => {
            sink.report(
                raw.place,
                Code::Template,
                format!("this text has {problem}"),
                "braces mark what is filled in when the request is made",
                "write `{/args/name}`, `{/args/name?}` or `{secret:name}`; double a brace that is meant as such",
            );
            None
        }
    }
}

impl Roots<'_> {
    /// Text for a URL or a header: each reference must be there, and be something that has one text.
    fn text(&self, sink: Sink<'_>, raw: &At<String>) -> Option<Text> {
        let pieces = split(sink, raw)?;
        let parts = pieces.into_iter().map(|piece| self.part(sink, raw.place, piece));
        parts.collect::<Option<_>>().map(Text)
    }

    fn part(&self, sink: Sink<'_>, place: Place, piece: Piece) -> Option<Part> {
        match piece {
            Piece::Literal(text) => Some(Part::Literal(text)),
            Piece::Secret(name) => self.secret(sink, place, &name).map(Part::Secret),
            Piece::Reference { pointer, optional: true } => {
                sink.report(
                    place,
                    Code::Template,
                    format!("`{{{pointer}?}}` is optional within text"),
                    "a text with a hole in it would be a different request; only a whole member of a body can be left out",
                    "drop the `?`, or make the value required in the args schema",
                );
                None
            }
            Piece::Reference { pointer, optional: false } => {
                let good = self.reference(sink, place, &pointer, false);
                (self.has_one_text(sink, place, &pointer) && good)
                    .then_some(Part::Reference(pointer))
            }
        }
    }

    fn secret(&self, sink: Sink<'_>, place: Place, name: &str) -> Option<Name> {
        let found = self.secrets.iter().find(|secret| secret.as_str() == name);
        if found.is_none() {
            sink.report(
                place,
                Code::Dangling,
                format!("there is no secret `{name}`"),
                "secrets are named under `[secrets]`, each with where its value is read from",
                suggest("secret", name, self.secrets.iter().map(Name::as_str)),
            );
        }
        found.cloned()
    }

    /// Checks a pointer into `{ args, key, effect_id, run }`.
    pub(crate) fn reference(
        &self,
        sink: Sink<'_>,
        place: Place,
        pointer: &str,
        optional: bool,
    ) -> bool {
        let in_args = pointer == "/args" || pointer.starts_with("/args/");
        if !in_args && !matches!(pointer, "/key" | "/effect_id" | "/run") {
            sink.report(
                place,
                Code::Template,
                format!("`{pointer}` leads nowhere"),
                "a request is made from its args and its identity alone, so that every attempt is the same",
                format!("use {ROOTS}"),
            );
            return false;
        }
        if pointer == "/key" && !self.key {
            sink.report(
                place,
                Code::KeyPlacement,
                "`{/key}` is used, and the operation declares no key",
                "without a declared key there is no key format, and nothing may rely on the provider honouring it",
                "use `{/effect_id}` for a reference of ours, or declare the key",
            );
            return false;
        }
        let (true, Some(schema)) = (in_args, self.args) else { return true };
        let inner = &pointer["/args".len()..];
        match shape::find(schema, inner) {
            shape::Place::Absent { known, missing } => {
                absent(sink, place, &missing, &known);
                false
            }
            shape::Place::Described { always: false, .. } if !optional => {
                sink.report(
                    place,
                    Code::ReferenceOptional,
                    format!("the args schema does not require `{inner}`"),
                    "a request of a node that leaves it out will be refused before anything is sent",
                    format!("write `{{{pointer}?}}` as a whole member of the body, or add it to `required`"),
                );
                true
            }
            shape::Place::Described { .. } | shape::Place::Open | shape::Place::Unlisted { .. } => {
                true
            }
        }
    }

    fn has_one_text(&self, sink: Sink<'_>, place: Place, pointer: &str) -> bool {
        let (Some(schema), Some(inner)) = (self.args, pointer.strip_prefix("/args")) else {
            return true;
        };
        let shape::Place::Described { schema, .. } = shape::find(schema, inner) else {
            return true;
        };
        let Some(types) = shape::types(schema) else { return true };
        let unfit: Vec<&str> = types
            .into_iter()
            .filter(|name| !matches!(*name, "string" | "integer" | "boolean"))
            .collect();
        if unfit.is_empty() {
            return true;
        }
        sink.report(
            place,
            Code::Template,
            format!("`{pointer}` may be {} and stands within text", listed(unfit)),
            "only a string, an integer or a truth value has exactly one text",
            "put it into the body as a whole member, or narrow its type in the args schema",
        );
        false
    }

    /// The template that a TOML value stands for.
    pub(crate) fn template(&self, sink: Sink<'_>, item: &Item) -> Option<Template> {
        match &item.kind {
            Kind::Text(text) => {
                let raw = At { value: text.clone(), place: item.place };
                let mut pieces = split(sink, &raw)?;
                match (pieces.pop(), pieces.is_empty()) {
                    (None, _) => Some(Template::Literal(Value::from(""))),
                    (Some(Piece::Literal(text)), true) => Some(Template::Literal(text.into())),
                    (Some(Piece::Reference { pointer, optional }), true) => self
                        .reference(sink, item.place, &pointer, optional)
                        .then_some(Template::Reference { pointer, optional }),
                    (Some(_), _) => self.text(sink, &raw).map(Template::Text),
                }
            }
            Kind::Array(items) => items
                .iter()
                .map(|item| self.template(sink, item))
                .collect::<Option<_>>()
                .map(Template::Array),
            Kind::Table(members) => members
                .iter()
                .map(|(key, member)| Some((key.clone(), self.template(sink, &member.item)?)))
                .collect::<Option<_>>()
                .map(Template::Object),
            Kind::Integer(_) | Kind::Float(_) | Kind::Flag(_) | Kind::Date => {
                item.as_json(sink).map(Template::Literal)
            }
        }
    }

    /// The request that a table describes: `method`, `path`, `query`, `headers`, `body`.
    pub(crate) fn request(&self, table: &Table<'_>) -> Option<HttpRequest> {
        let method = table.required("method", "\"POST\"").and_then(|item| {
            table.word_of("method", item, &METHODS).map(|word| (word, item.place))
        });
        let path = table
            .required("path", "\"/v1/orders/{/args/order_id}/refunds\"")
            .and_then(|item| item.as_text(table.sink, "`path`"))
            .and_then(|raw| self.path(table.sink, &raw));
        let query = self.texts(table, "query", |_, _| true);
        let headers = self.texts(table, "headers", check_header);
        let headers = headers.filter(|headers| check_header_values(table, headers));
        let body = table.item("body").map(|item| self.template(table.sink, item));
        let (method, place) = method?;
        if method == "GET" && body.is_some() {
            table.sink.report(
                place,
                Code::Contradiction,
                "a GET with a body",
                "servers and proxies on the way may drop the body of a GET",
                "put the values into `query`, or use POST",
            );
        }
        let body = match body {
            Some(body) => Some(body?),
            None => None,
        };
        Some(HttpRequest {
            method: method.to_owned(),
            path: path?,
            query: query?,
            headers: headers?,
            body,
        })
    }

    fn texts(
        &self,
        table: &Table<'_>,
        key: &'static str,
        check: fn(Sink<'_>, (&str, Place)) -> bool,
    ) -> Option<BTreeMap<String, Text>> {
        let Some(item) = table.item(key) else { return Some(BTreeMap::new()) };
        let inner = item.as_table(table.sink, &format!("`{key}`"))?;
        let mut texts = BTreeMap::new();
        let mut good = true;
        for (name, member) in inner.members {
            let text = member.item.as_text(table.sink, &format!("`{name}` in `{key}`"));
            let text = text.and_then(|raw| self.text(table.sink, &raw));
            match text.filter(|_| check(table.sink, (name, member.key))) {
                Some(text) => drop(texts.insert(name.clone(), text)),
                None => good = false,
            }
        }
        good.then_some(texts)
    }

    /// Splits a path at the slashes of its literal text; a slash that a value brings in is encoded, not a separator.
    fn path(&self, sink: Sink<'_>, raw: &At<String>) -> Option<Vec<Text>> {
        let text = self.text(sink, raw)?;
        let refuse = |what: &str, fix: &str| {
            let why = "segments are percent-encoded one by one, so that no value can change where a request goes";
            sink.report(raw.place, Code::Template, what, why, fix);
            None
        };
        let mut segments: Vec<Vec<Part>> = Vec::new();
        for (index, part) in text.0.into_iter().enumerate() {
            let Part::Literal(literal) = part else {
                match segments.last_mut() {
                    Some(segment) => segment.push(part),
                    None => return refuse("the path does not start with `/`", "start it with `/`"),
                }
                continue;
            };
            if literal.contains(['?', '#', '%', '\\']) || literal.chars().any(char::is_control) {
                return refuse(
                    "the path has a `?`, `#`, `%`, `\\` or control character in it",
                    "write plain text, which is encoded for you, and put parameters into `query`",
                );
            }
            for (number, piece) in literal.split('/').enumerate() {
                if number > 0 {
                    segments.push(Vec::new());
                } else if index == 0 && !piece.is_empty() {
                    return refuse("the path does not start with `/`", "start it with `/`");
                }
                if let (false, Some(segment)) = (piece.is_empty(), segments.last_mut()) {
                    segment.push(Part::Literal(piece.to_owned()));
                }
            }
        }
        let dots =
            |segment: &[Part]| matches!(segment, [Part::Literal(s)] if s == "." || s == "..");
        if segments.is_empty() || segments.iter().any(|s| s.is_empty() || dots(s)) {
            return refuse(
                "the path has an empty segment, or one that is `.` or `..`",
                "name each segment; leave out a `/` at the end",
            );
        }
        Some(segments.into_iter().map(Text).collect())
    }
}

/// Reports a pointer to something that the args schema rules out.
pub(crate) fn absent(sink: Sink<'_>, place: Place, missing: &str, known: &[&str]) {
    sink.report(
        place,
        Code::NoSuchValue,
        format!("the args schema has no `{missing}`"),
        "the schema is closed (`additionalProperties` is false), so it can never be there",
        suggest("property", missing, known.iter().copied()),
    );
}

pub(crate) fn check_header(sink: Sink<'_>, (name, place): (&str, Place)) -> bool {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let (what, fix) = if name.is_empty() || !name.chars().all(token) {
        (format!("`{name}` cannot be the name of a header"), "use letters, digits and `-`")
    } else if HEADERS_OF_HOST.contains(&name.to_ascii_lowercase().as_str()) {
        (format!("the header `{name}` is set by the host"), "remove it")
    } else {
        return true;
    };
    let why = "a request must mean the same to every server on its way";
    sink.report(place, Code::BadValue, what, why, fix);
    false
}

/// A line break in a header would be another header.
fn check_header_values(table: &Table<'_>, headers: &BTreeMap<String, Text>) -> bool {
    let mut good = true;
    for (name, text) in headers {
        let broken = text.0.iter().any(
            |part| matches!(part, Part::Literal(text) if text.chars().any(|c| c.is_control() && c != '\t')),
        );
        if broken {
            let what = "a text with a line break or another control character in it";
            table.bad_value(name, table.place, what, "plain text");
            good = false;
        }
    }
    good
}

/// Whether a request has a reference to `pointer` anywhere.
pub(crate) fn refers_to(request: &HttpRequest, pointer: &str) -> bool {
    let in_text = |text: &Text| text.0.iter().any(|part| *part == Part::Reference(pointer.into()));
    request.path.iter().any(in_text)
        || request.query.values().any(in_text)
        || request.headers.values().any(in_text)
        || request.body.as_ref().is_some_and(|body| template_refers_to(body, pointer))
}

fn template_refers_to(template: &Template, pointer: &str) -> bool {
    match template {
        Template::Literal(_) => false,
        Template::Reference { pointer: there, .. } => there == pointer,
        Template::Text(text) => text.0.contains(&Part::Reference(pointer.to_owned())),
        Template::Object(members) => members.values().any(|m| template_refers_to(m, pointer)),
        Template::Array(items) => items.iter().any(|item| template_refers_to(item, pointer)),
    }
}
