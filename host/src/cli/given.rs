//! What the arguments of a command are read as. What is not right is a mistake of usage, with code 2, before anything is
//! opened.

use std::num::NonZeroUsize;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::Value;
use twice_core::effect::State;
use twice_core::ids::{EffectId, InvalidId, Name, RunId};
use twice_core::limits::PAYLOAD_BYTES_MAX;
use twice_core::run::{Priority, RunState};
use twice_toolchain::Language;
use twice_workflow::units::{duration_ms, duration_text};

use crate::crashtest::{PAUSE_MIN_MS, spec};

/// Fewest characters by which an effect may be named.
const EFFECT_CHARS_MIN: usize = 8;

/// A language that nodes can be written in.
pub(super) fn language() -> impl TypedValueParser<Value = Language> {
    PossibleValuesParser::new(Language::ALL.map(Language::word)).map(|word| {
        let known = Language::ALL.into_iter().find(|language| language.word() == word);
        known.expect("the parser takes no other word")
    })
}

/// A run.
pub(super) fn run_id(text: &str) -> Result<RunId, InvalidId> {
    RunId::parse(text)
}

/// A name: of a project, workflow, node or component.
pub(super) fn name(text: &str) -> Result<Name, InvalidId> {
    Name::parse(text)
}

/// A whole effect id.
pub(super) fn effect_id(text: &str) -> Result<EffectId, InvalidId> {
    EffectId::parse(text)
}

/// An effect id, or the beginning of one.
pub(super) fn effect(text: &str) -> Result<String, String> {
    if !text.starts_with("eff_") || text.len() < EFFECT_CHARS_MIN {
        return Err(format!(
            "give `eff_…` as `twice effects list` shows it, at least {EFFECT_CHARS_MIN} characters"
        ));
    }
    Ok(text.to_owned())
}

/// How urgent a run is.
pub(super) fn priority(text: &str) -> Result<Priority, String> {
    let number = text.parse::<i64>().map_err(|_| "give a whole number from -9 to 9".to_owned())?;
    Priority::try_from(number).map_err(|problem| problem.to_string())
}

/// How many runs of a workflow: `NAME=N`.
pub(super) fn limit_of_workflow(text: &str) -> Result<(Name, NonZeroUsize), String> {
    let (name, count) =
        text.split_once('=').ok_or_else(|| "write WORKFLOW=N, e.g. refunds=4".to_owned())?;
    let name = Name::parse(name).map_err(|problem| problem.to_string())?;
    let count = count.parse().map_err(|_| format!("`{count}` is no number of runs, 1 or more"))?;
    Ok((name, count))
}

/// A state in which a run is over.
pub(super) fn ended_state(word: &str) -> Result<RunState, String> {
    match RunState::parse(word) {
        Some(state) if state.is_final() => Ok(state),
        Some(_) | None => Err("give completed, failed or cancelled".to_owned()),
    }
}

/// A length of time. Milliseconds.
pub(super) fn duration(text: &str) -> Result<u64, String> {
    duration_ms(text).ok_or_else(|| "give a whole number and a unit, e.g. 30d, 12h, 5m".to_owned())
}

/// A state of runs.
pub(super) fn run_state(word: &str) -> Result<RunState, String> {
    RunState::parse(&word.to_ascii_lowercase()).ok_or_else(|| {
        "one of ready, running, waiting, halted, completed, failed, cancelled, stuck, quarantined".to_owned()
    })
}

/// A state of effects.
pub(super) fn effect_state(word: &str) -> Result<State, String> {
    State::parse(&word.to_ascii_uppercase()).ok_or_else(|| {
        "one of PROPOSED, AUTHORIZED, REQUESTED, CONFIRMED, FAILED, UNKNOWN".to_owned()
    })
}

/// A pause of the crash test. Milliseconds.
pub(super) fn pause_ms(text: &str) -> Result<u64, String> {
    let ms = duration_ms(text)
        .ok_or_else(|| "write a whole number and a unit, e.g. 90s, 48h, 30d".to_owned())?;
    if ms < PAUSE_MIN_MS {
        return Err(format!(
            "that is shorter than a lease, so that nobody could take the run up; give {} or more",
            duration_text(PAUSE_MIN_MS)
        ));
    }
    Ok(ms)
}

/// A boundary of the crash test.
pub(super) fn boundary(name: &str) -> Result<spec::Place, String> {
    spec::Place::parse(name).ok_or_else(|| {
        let known: Vec<&str> = spec::Place::all().map(spec::Place::as_str).collect();
        format!("one of {}", known.join(", "))
    })
}

/// A strict JSON text.
pub(super) fn json(text: &str) -> Result<Value, String> {
    twice_core::json::parse(text, PAYLOAD_BYTES_MAX)
        .map_err(|problem| format!("not strict JSON: {problem}"))
}

/// A name that says something.
pub(super) fn person(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("say who; it is recorded for whoever audits this run".to_owned());
    }
    Ok(text.to_owned())
}

/// A reason that says something.
pub(super) fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("say why; it is recorded for whoever audits this run".to_owned());
    }
    Ok(text.to_owned())
}
