//! An effect as people read it.

use serde_json::Value;
use twice_core::effect::{Effect, State};
use twice_core::event::Observation;
use twice_core::evidence::{self, Evidence};
use twice_core::ids::EffectId;
use twice_core::time::Timestamp;

use super::out::Out;
use crate::view::EffectDetail;

/// Prints everything that is known of an effect. `person`: its run waits for one.
pub(super) fn print(out: &Out, effect: &EffectDetail, folded: &Effect, person: bool) {
    let mut lines = vec![
        ("effect_id", effect.effect_id.clone()),
        ("run_id", effect.run_id.clone()),
        ("type", effect.kind.clone()),
        ("request_hash", effect.request_hash.clone()),
        ("idempotency_key", effect.idempotency_key.clone()),
        ("provider_key", effect.provider_key.clone()),
        ("state", effect.state.clone()),
        ("attempts", effect.attempts.to_string()),
        ("args", readable(&effect.args)),
        ("tool class", effect.tool_class.clone()),
    ];
    let optional = [
        ("policy", effect.policy.clone()),
        ("approval", effect.approval.as_ref().map(recorded)),
        ("approves", effect.approves.clone()),
        ("undoes", effect.undoes.clone()),
        ("compensation", effect.compensation.as_ref().map(recorded)),
        ("external_receipt", effect.external_receipt.as_ref().map(recorded)),
        ("failure", effect.failure.as_ref().map(recorded)),
        ("waits until", effect.not_before.clone()),
        ("held", effect.held.as_ref().map(recorded)),
        ("last_error", effect.last_error.clone()),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    lines.extend(effect.attempt_log.iter().map(|attempt| ("attempt", recorded(attempt))));
    lines.extend(requests(effect).map(|request| ("request", request)));
    lines.extend(effect.lookups.iter().map(|lookup| ("lookup", recorded(lookup))));
    lines.extend(folded.observed.iter().map(|(at, seen)| ("observed", observed(*at, seen))));
    let in_doubt = effect.state == State::Unknown.as_str() && person;
    let evidence = evidence::of(folded).filter(|_| in_doubt);
    lines.extend(evidence.map(|found| ("evidence", how_to_resolve(&folded.id, found))));
    lines.extend(effect.decisions.iter().map(|decision| ("decision", recorded(decision))));
    out.fields(&lines);
}

/// Each request that was sent, once for all attempts in a row that sent it.
fn requests(effect: &EffectDetail) -> impl Iterator<Item = String> {
    let sent: Vec<&Value> = effect
        .history
        .iter()
        .filter(|entry| entry.kind == "requested")
        .map(|entry| &entry.body["data"])
        .collect();
    let same: Vec<String> = sent
        .chunk_by(|one, next| one["request"] == next["request"])
        .filter_map(|same| {
            let (first, last) = (same.first()?, same.last()?);
            let attempts = match same.len() {
                1 => format!("of attempt {}", first["attempt"]),
                _ => format!("of attempts {}–{}", first["attempt"], last["attempt"]),
            };
            Some(format!("{attempts}\n{}", readable(&first["request"])))
        })
        .collect();
    same.into_iter()
}

/// Longest JSON text that is shown on one line. Characters.
const ONE_LINE: usize = 60;

/// JSON for people: on one line when it is short, else indented.
fn readable(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > ONE_LINE { format!("{value:#}") } else { text }
}

/// Something of ours that was recorded, for people.
fn recorded(value: &Value) -> String {
    let mut value = value.clone();
    tell_time(&mut value);
    readable(&value)
}

/// Instants, recorded in milliseconds, in the form in which all others are shown. What came from a guest or a provider stays
/// as it came.
fn tell_time(value: &mut Value) {
    const OTHERS: [&str; 6] = ["result", "exposed", "detail", "args", "recorded", "requested"];
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if OTHERS.contains(&name.as_str()) {
                    continue;
                }
                match member.as_i64() {
                    Some(ms) if name == "at" || name == "until" || name.ends_with("_at") => {
                        *member = Value::from(Timestamp(ms).to_string());
                    }
                    Some(_) | None => tell_time(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tell_time),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// One thing that arrived and was not applied, in words.
fn observed(at: Timestamp, seen: &Observation) -> String {
    let mut text = format!("{at} {}", seen.what);
    if let Some(attempt) = seen.attempt {
        text.push_str(&format!(", of attempt {attempt}"));
    }
    if let Some(message) = &seen.message {
        text.push_str(&format!(": {message}"));
    }
    let facts = [
        seen.verdict.map(|verdict| format!("verdict {}", verdict.as_str())),
        seen.rule.as_ref().map(|rule| format!("rule {rule}")),
        seen.external_id.as_ref().map(|id| format!("external id {id}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if !facts.is_empty() {
        text.push_str(&format!(" ({})", facts.join(", ")));
    }
    text + "; not applied: it changed nothing"
}

/// What a person may make of what arrived too late.
fn how_to_resolve(effect: &EffectId, evidence: Evidence<'_>) -> String {
    let (says, command) = match evidence {
        Evidence::Happened(seen) => {
            let id = seen.external_id.as_ref();
            let id = id.map_or_else(String::new, |id| format!(" --external-id {id}"));
            ("that it happened", format!("--confirmed --receipt '{{}}'{id}"))
        }
        Evidence::DidNotHappen(_) => ("that it did not happen", "--failed".to_owned()),
    };
    format!(
        "what was observed says {says}. If the provider shows the same: `twice effects resolve {effect} {command} --evidence 'HOW YOU KNOW'`"
    )
}
