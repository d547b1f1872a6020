//! How a run comes to a node and goes on from it: joins, conditions, routes, fan-outs, loops, time.

use super::conditions::{self, Condition};
use crate::diagnostic::Code;
use crate::model::{Exhausted, FanOut, Join, Loop};
use crate::read::{At, Place, Table};
use crate::units::DURATION_MAX_MS;
use twice_core::ids::Name;

/// Most steps of a fan-out at once, unless the file states otherwise.
pub const PARALLEL: u32 = 8;
/// Most steps of a fan-out at once that a file may state.
const PARALLEL_MAX: u32 = 256;
/// Most rounds of a loop.
const VISITS_MAX: u32 = 10_000;
/// Most routes of a node.
const ROUTES_MAX: usize = 64;

/// What a node states about its paths.
pub(super) struct Draft {
    pub(super) join: Option<At<Join>>,
    pub(super) when: Option<Condition>,
    pub(super) routes: Vec<At<String>>,
    pub(super) for_each: Option<FanOutDraft>,
    pub(super) closes: Option<LoopDraft>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) ends: Option<Place>,
}

/// A fan-out as read.
pub(super) struct FanOutDraft {
    pub(super) array: At<String>,
    pub(super) element: Option<At<String>>,
    pub(super) parallel: u32,
}

/// A loop as read.
pub(super) struct LoopDraft {
    pub(super) place: Place,
    pub(super) to: Option<At<Name>>,
    pub(super) when: Option<Condition>,
    max_visits: Option<u32>,
    exhausted: Exhausted,
}

/// Reads the keys of a node that say how a run comes to it and goes on from it.
pub(super) fn read(table: &Table<'_>) -> Draft {
    let join = table.item("join").and_then(|item| {
        let word = table.word_of("join", item, &[("all", Join::All), ("any", Join::Any)]);
        word.map(|value| At { value, place: item.place })
    });
    if let (Some(item), Some(_)) = (table.item("routes"), table.item("for_each")) {
        table.sink.report(
            item.place,
            Code::Contradiction,
            "both `routes` and `for_each` are given",
            "a fan-out returns an array, in which each element could name another route",
            "let a node behind it look at the outputs and choose the route",
        );
    }
    let ends =
        table.flag("ends").then(|| table.item("ends").map_or(table.place, |item| item.place));
    Draft {
        join,
        when: conditions::read(table, "when"),
        routes: routes(table),
        for_each: fan_out(table),
        closes: table.item("loop").and_then(|item| {
            let inner = item.as_table(table.sink, "`loop`")?;
            let read = closes(&inner);
            inner.close();
            Some(read)
        }),
        timeout_ms: table.duration("timeout", 1..=DURATION_MAX_MS).map(|at| at.value),
        ends,
    }
}

fn routes(table: &Table<'_>) -> Vec<At<String>> {
    let words = table.list("routes", |item| item.as_text(table.sink, "a word in `routes`"));
    let why = "a node says by one of these words where the run goes on";
    for (index, word) in words.iter().enumerate() {
        if words[..index].iter().any(|other| other.value == word.value) {
            let what = format!("`{}` is named twice in `routes`", word.value);
            table.sink.report(word.place, Code::Duplicate, what, why, "remove one");
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !(1..=63).contains(&word.value.len()) || !word.value.chars().all(plain) {
            let what = format!("`{}`, which is no plain word", word.value);
            table.bad_value("routes", word.place, &what, "words of letters, digits, `-` and `_`");
        }
    }
    if let Some(item) = table.item("routes").filter(|_| words.len() > ROUTES_MAX) {
        let form = format!("at most {ROUTES_MAX} words");
        table.bad_value("routes", item.place, "a list of too many words", &form);
    }
    words
}

fn fan_out(table: &Table<'_>) -> Option<FanOutDraft> {
    let array = table.text("for_each");
    let element = table.pointer("element");
    let parallel = table.integer("parallel", 1..=PARALLEL_MAX);
    let states = table.item("for_each").is_some();
    for key in ["element", "parallel"] {
        if let (Some(item), false) = (table.item(key), states) {
            table.sink.report(
                item.place,
                Code::Contradiction,
                format!("`{key}` is given without `for_each`"),
                "the node runs once, not once for each element of an array",
                "name the array with `for_each`, or remove it",
            );
        }
    }
    if states {
        table.required_because(
            "element",
            "\"/id\"",
            "an effect of one element is told from those of the others by a value within the element, wherever it stands in its array",
        );
    }
    Some(FanOutDraft { array: array?, element, parallel: parallel.unwrap_or(PARALLEL) })
}

fn closes(table: &Table<'_>) -> LoopDraft {
    let to = table.required("to", "\"draft\"").and_then(|item| item.as_name(table.sink, "a node"));
    table.required_because(
        "when",
        "\"routes.review == 'again'\"",
        "a loop without a condition would always go on",
    );
    let when = conditions::read(table, "when");
    if table.item("max_visits").is_none() {
        table.sink.report(
            table.place,
            Code::UnboundedLoop,
            "the loop does not state `max_visits`",
            "its condition rests on what components return, so nothing else makes sure that it ends",
            "add it, for example `max_visits = 5`",
        );
    }
    let max_visits = table.integer("max_visits", 1..=VISITS_MAX);
    let words = [("fail", Exhausted::Fail), ("go_on", Exhausted::GoOn)];
    let exhausted = table.word("exhausted", &words).unwrap_or_default();
    LoopDraft { place: table.place, to, when, max_visits, exhausted }
}

impl FanOutDraft {
    pub(super) fn checked(&self) -> Option<FanOut> {
        Some(FanOut {
            array: self.array.value.clone(),
            element: self.element.as_ref()?.value.clone(),
            parallel: self.parallel,
        })
    }
}

impl LoopDraft {
    pub(super) fn checked(&self) -> Option<Loop> {
        Some(Loop {
            to: self.to.as_ref()?.value.clone(),
            when: self.when.as_ref()?.text.value.clone(),
            max_visits: self.max_visits?,
            exhausted: self.exhausted,
        })
    }
}
