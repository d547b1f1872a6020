//! What the author of a workflow should know and do, in words.

use std::borrow::Cow;

use serde_json::Value;
use twice_core::contract::{Consistency, LookupBy, ToolClass};
use twice_core::effect::{Effect, Hold, State};
use twice_core::event::{EffectEvent, RunEvent};
use twice_core::json::canonical;
use twice_ledger::RunRecord;
use twice_workflow::units::duration_text;

use super::case::{Outcome, output};
use super::checks::{Baseline, hash_of};
use super::snapshot::{Listed, Snapshot};
use super::undisturbed::{self, Broken};

/// Most differences that are shown of two values.
const DIFFERENCES_MAX: usize = 12;
/// Longest text of a value in a difference. Characters.
const VALUE_CHARS_MAX: usize = 80;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something does not hold.
    Violation,
    /// Everything holds, and a person would be needed.
    Person,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Violation => "violation",
            Self::Person => "person",
            Self::Note => "note",
        }
    }
}

/// Something the author should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable word for what it is.
    pub kind: &'static str,
    /// What it is about: `tool.operation`, a node, or the workflow.
    pub about: String,
    /// What was found.
    pub message: String,
    /// What to do.
    pub fix: String,
    /// The case that shows it first.
    pub seen_in: String,
}

/// What one look at a case says.
struct Said {
    severity: Severity,
    kind: &'static str,
    about: String,
    message: String,
    fix: Cow<'static, str>,
}

/// Adds what a case shows to what is known; the same thing is said once. Known is what came of the run when nothing happened to
/// it, and whether its steps run beside each other.
pub(super) fn collect(
    found: &mut Vec<Finding>,
    outcome: &Outcome,
    (baseline, concurrent): (&Baseline, bool),
    pause_ms: u64,
) {
    let end = &outcome.again.0;
    let mut said = not_repeatable(outcome, concurrent);
    said.extend(conflicts(end));
    said.extend(divergences(end));
    said.extend(other_requests(end, baseline));
    said.extend(other_output(end, baseline));
    said.extend(people_needed(end, pause_ms));
    if outcome.spec.first.is_none() {
        said.extend(undisturbed(outcome, baseline));
    }
    for Said { severity, kind, about, message, fix } in said {
        if found.iter().any(|known| known.kind == kind && known.about == about) {
            continue;
        }
        let (fix, seen_in) = (fix.into_owned(), outcome.spec.to_string());
        found.push(Finding { severity, kind, about, message, fix, seen_in });
    }
}

fn not_repeatable(outcome: &Outcome, concurrent: bool) -> Vec<Said> {
    let Some(place) = outcome.spec.place().filter(|_| !outcome.reached) else { return Vec::new() };
    let (severity, fix) = if concurrent {
        (
            Severity::Note,
            "nothing: steps that run beside each other come to it in any order, and lookups for them may not be needed",
        )
    } else {
        (
            Severity::Violation,
            "let the node ask for the same effects in the same order whenever it starts with the same input",
        )
    };
    vec![Said {
        severity,
        kind: "not_repeatable",
        about: place.as_str().to_owned(),
        message: format!(
            "the run did not come to `{}` as often as it did before, so that it could not be interrupted there",
            outcome.spec
        ),
        fix: fix.into(),
    }]
}

fn conflicts(end: &Snapshot) -> Vec<Said> {
    let conflict = |(id, event): (String, EffectEvent)| {
        let EffectEvent::Conflicted(conflict) = event else { return None };
        let listed = end.find(&id)?;
        let proposal = &listed.effect.proposal;
        let (was, is) = ("was requested", "is asked for now");
        Some(Said {
            severity: Severity::Violation,
            kind: "conflict",
            about: listed.operation.clone(),
            message: format!(
                "node `{}` asks for something else after a restart: slot `{}`, {}, key {}\n{}",
                proposal.node,
                proposal.slot,
                listed.operation,
                proposal.idempotency_key,
                differences(&proposal.args, &conflict.args, was, is)
            ),
            fix: "let the args follow from the node's input, its receipts and the durable clock alone, so that a restart asks for the same; a wording that may differ belongs into the operation's `incidental`; if the recorded request may simply stand, declare `on_conflict = \"keep\"` for the slot".into(),
        })
    };
    end.effect_events().filter_map(conflict).collect()
}

fn divergences(end: &Snapshot) -> Vec<Said> {
    let mut said = Vec::new();
    for event in end.run_events() {
        let RunEvent::StepCompleted { node, diverged, .. } = event else { continue };
        said.extend(diverged.iter().filter_map(|id| end.find(id.as_str())).map(|listed| Said {
            severity: Severity::Violation,
            kind: "divergence",
            about: listed.operation.clone(),
            message: format!(
                "node `{node}` does not ask for slot `{}` any more after a restart, though {} was confirmed before (key {})",
                listed.effect.proposal.slot,
                listed.operation,
                listed.effect.proposal.idempotency_key
            ),
            fix: "let the node ask for the same effects in every attempt; what was answered before returns its receipt at once and costs nothing".into(),
        }));
    }
    said
}

fn other_requests(end: &Snapshot, baseline: &Baseline) -> Vec<Said> {
    let other = |listed: &Listed| {
        let id = listed.effect.id.to_string();
        let (hash, args) = baseline.effects.get(&id)?;
        if *hash == hash_of(listed) || baseline.timely.contains(&id) {
            return None;
        }
        let proposal = &listed.effect.proposal;
        Some(Said {
            severity: Severity::Violation,
            kind: "request_differs",
            about: listed.operation.clone(),
            message: format!(
                "node `{}` asks for something else when it was interrupted: slot `{}`, {}\n{}",
                proposal.node,
                proposal.slot,
                listed.operation,
                differences(args, &proposal.args, "in the undisturbed run", "here")
            ),
            fix: "let the args follow from the node's input and its receipts alone".into(),
        })
    };
    end.effects.iter().filter_map(other).collect()
}

fn other_output(end: &Snapshot, baseline: &Baseline) -> Option<Said> {
    if end.run.as_ref().map(|run| run.state) != baseline.state {
        return None;
    }
    let (expected, got) = (baseline.output.as_ref()?, output(end)?);
    (expected != got).then(|| Said {
        severity: Severity::Violation,
        kind: "output_differs",
        about: "the workflow".to_owned(),
        message: format!(
            "the run's output is another one when it was interrupted\n{}",
            differences(expected, got, "in the undisturbed run", "here")
        ),
        fix: "let the output follow from the input and the receipts alone".into(),
    })
}

fn people_needed(end: &Snapshot, pause_ms: u64) -> Vec<Said> {
    let Some(run) = end.needs_person() else { return Vec::new() };
    let needed = end.effects.iter().filter(|listed| waits_for_a_person(&listed.effect));
    let said = |listed: &Listed| {
        let (kind, message, fix) = person(listed, run, pause_ms)?;
        let about = listed.operation.clone();
        Some(Said { severity: Severity::Person, kind, about, message, fix })
    };
    needed.filter_map(said).collect()
}

fn waits_for_a_person(effect: &Effect) -> bool {
    effect.hold.is_some() || effect.state == State::Unknown
}

type Words = (&'static str, String, Cow<'static, str>);

/// Why a person is needed about an effect; a conflict is a finding of its own.
fn person(listed: &Listed, run: &RunRecord, pause_ms: u64) -> Option<Words> {
    let operation = &listed.operation;
    match &listed.effect.hold {
        Some(Hold::Conflict(_)) => return None,
        Some(Hold::Discrepancy(difference)) => {
            return Some((
                "discrepancy",
                format!("{operation} happened, but not as asked: {difference}"),
                "find out why the provider's result differs from the args, or take the pair out of `echo`".into(),
            ));
        }
        None => {}
    }
    Some(match listed.effect.contract().class() {
        ToolClass::Neither => (
            "no_key_no_lookup",
            format!(
                "{operation} has neither an idempotency key nor a lookup: a crash between its request and the answer ends at a person, who has to find out whether it happened"
            ),
            "let the provider honour an idempotency key, or plant `{/effect_id}` in the request and declare a `lookup`; where the provider offers neither, put the effect last and decide who looks after it".into(),
        ),
        ToolClass::KeyAndLookup
        | ToolClass::KeyOnly
        | ToolClass::LookupOnly
        | ToolClass::Read
        | ToolClass::Ledger => {
            blind_lookup(listed)
                .or_else(|| key_forgotten(listed, pause_ms))
                .or_else(|| horizon_reached(listed, run, pause_ms))
                .unwrap_or_else(|| {
                    let reason = run.reason.as_deref().unwrap_or_default();
                    (
                        "person",
                        format!("{operation}: {reason}"),
                        "see what the operation declares about its key and its lookup: `twice check` says what it promises".into(),
                    )
                })
        }
    })
}

/// The lookup found nothing, and may not be believed when it does.
fn blind_lookup(listed: &Listed) -> Option<Words> {
    let (operation, contract) = (&listed.operation, listed.effect.contract());
    let lag = match contract.lookup.as_ref()?.consistency {
        Consistency::Lagging(lag) => lag,
        Consistency::Strong => return None,
    };
    let key = contract.key.as_ref().map_or_else(
        || "has no idempotency key".to_owned(),
        |key| {
            let kept = duration_text(key.retention_ms);
            format!("has a key that the provider forgets after {kept}")
        },
    );
    Some((
        "lookup_cannot_refute",
        format!(
            "{operation} {key}, and its lookup lags by up to {}: it can find what was done, but never prove that nothing was, so that a request lost in a crash ends at a person",
            duration_text(lag)
        ),
        "find a lookup that sees its own writes and declare it as `consistency = \"strong\"`, or let the provider honour a key for longer than a run may be left alone".into(),
    ))
}

/// The provider forgot the key meanwhile, and cannot be asked by anything else.
fn key_forgotten(listed: &Listed, pause_ms: u64) -> Option<Words> {
    let (operation, contract) = (&listed.operation, listed.effect.contract());
    let lookup = match &contract.lookup {
        None => "there is no lookup",
        Some(lookup) if lookup.by == LookupBy::Key => "its lookup asks by that key",
        Some(_) => return None,
    };
    let key = contract.key.as_ref()?;
    let usable_ms = key.retention_ms.saturating_sub(key.margin_ms());
    (pause_ms >= usable_ms).then(|| {
        (
            "key_forgotten",
            format!(
                "{operation}: the provider forgets a key after {} (relied upon for {}), the run was paused for {}, and {lookup}: a crash between its request and the answer ends at a person",
                duration_text(key.retention_ms),
                duration_text(usable_ms),
                duration_text(pause_ms)
            ),
            "declare a `lookup` by reference for the operation, use a provider that keeps keys for longer, or make sure that no run is left alone for so long".into(),
        )
    })
}

/// The time for finding it out was over before it was found out.
fn horizon_reached(listed: &Listed, run: &RunRecord, pause_ms: u64) -> Option<Words> {
    let operation = &listed.operation;
    let horizon_ms = listed.effect.contract().horizon_ms;
    let passed_ms = run.updated_at.ms_since(listed.effect.first_sent_at()?);
    (passed_ms > horizon_ms).then(|| {
        let (horizon, pause) = (duration_text(horizon_ms), duration_text(pause_ms));
        // Whole minutes: what counts is on the scale of pauses.
        let passed = duration_text(passed_ms.next_multiple_of(60_000));
        (
            "horizon_reached",
            format!(
                "{operation}: its `horizon` is {horizon}, and about {passed} after its request the outcome was still unknown (each crash pauses the run for {pause}): what is older than the horizon is not asked about any further and ends at a person"
            ),
            format!(
                "raise `horizon` of {operation} in its tool file above the longest time for which a run may be left alone, here {passed}; or decide that a person looks after what is older than {horizon}, and test with a shorter `--pause` (a case with two crashes pauses twice)"
            )
            .into(),
        )
    })
}

/// What the undisturbed run shows by itself.
fn undisturbed(outcome: &Outcome, baseline: &Baseline) -> Option<Said> {
    let about = || "the workflow".to_owned();
    if let Some(Broken { kind, message, fix }) = undisturbed::broken(outcome, baseline) {
        let severity = Severity::Violation;
        return Some(Said { severity, kind, about: about(), message, fix: fix.into() });
    }
    let end = &outcome.again.0;
    end.run.as_ref()?;
    let note = |kind, message, fix: &'static str| {
        Some(Said { severity: Severity::Note, kind, about: about(), message, fix: fix.into() })
    };
    // Said about that effect already.
    let about_an_effect = end.effects.iter().any(|listed| waits_for_a_person(&listed.effect));
    if let Some(run) = end.needs_person()
        && !about_an_effect
    {
        let why = run.reason.as_deref().unwrap_or("no reason recorded");
        return note(
            "run_does_not_end",
            format!("even without a crash, the run needs a person: {why}"),
            "what it waits for is what is tested then; what comes after is not",
        );
    }
    if end.effects.is_empty() {
        return note(
            "no_effects",
            "the workflow grants no effect".to_owned(),
            "grant its nodes effects with `[[node.effect]]`: without one there is little to test",
        );
    }
    None
}

/// How two values differ, pointer by pointer, a line each.
pub(super) fn differences(before: &Value, now: &Value, was: &str, is: &str) -> String {
    let mut found = Vec::new();
    walk(Some(before), Some(now), String::new(), &mut found);
    let show = |value: Option<&Value>| value.map_or("nothing".to_owned(), excerpt);
    let line = |difference: &Difference<'_>| {
        let Difference { pointer, before, now } = difference;
        let pointer = if pointer.is_empty() { "the whole" } else { pointer };
        format!("  {pointer}: {} {was}, {} {is}", show(*before), show(*now))
    };
    let mut lines: Vec<String> = found.iter().take(DIFFERENCES_MAX).map(line).collect();
    if found.len() > lines.len() {
        lines.push(format!("  and {} more", found.len() - lines.len()));
    }
    lines.join("\n")
}

/// One place where two values differ.
struct Difference<'a> {
    pointer: String,
    before: Option<&'a Value>,
    now: Option<&'a Value>,
}

fn walk<'a>(
    before: Option<&'a Value>,
    now: Option<&'a Value>,
    pointer: String,
    found: &mut Vec<Difference<'a>>,
) {
    let inner = |token: &str| format!("{pointer}/{}", token.replace('~', "~0").replace('/', "~1"));
    match (before, now) {
        (before, now) if before == now => {}
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                walk(a.get(key), b.get(key), inner(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for index in 0..a.len().max(b.len()) {
                walk(a.get(index), b.get(index), inner(&index.to_string()), found);
            }
        }
        (before, now) => found.push(Difference { pointer, before, now }),
    }
}

fn excerpt(value: &Value) -> String {
    let text = canonical(value);
    if text.chars().count() <= VALUE_CHARS_MAX {
        return text;
    }
    format!("{}…", text.chars().take(VALUE_CHARS_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use twice_core::reconcile::RULE_LEASE_DIED;
    use twice_core::run::RunState;

    use super::super::checks::tests::{life, proposal, snapshot, unknown};
    use super::*;

    #[test]
    fn a_horizon_that_stopped_the_reconciliation_is_named() {
        let hour = 3_600_000;
        let proposal = proposal(true, 5);
        let mut events = life(&proposal);
        events.pop();
        events.push(unknown(RULE_LEASE_DIED));
        let mut end = snapshot(&events, RunState::Halted, false);
        let run = end.run.as_mut().unwrap();
        // The key is relied upon for 21h36m; the horizon is 24h.
        let said = |end: &Snapshot, pause_hours| {
            let said = people_needed(end, pause_hours * hour);
            said.into_iter().map(|said| (said.kind, said.message, said.fix)).collect::<Vec<_>>()
        };
        run.updated_at = run.updated_at.plus_ms(24 * hour + 1);
        let [(kind, message, fix)] = said(&end, 12).try_into().unwrap();
        assert_eq!(kind, "horizon_reached");
        assert!(
            message.contains("its `horizon` is 24h, and about 24h1m after its request"),
            "{message}"
        );
        assert!(fix.starts_with("raise `horizon` of payments.refund in its tool file"), "{fix}");
        assert_eq!(said(&end, 48)[0].0, "key_forgotten");
        let run = end.run.as_mut().unwrap();
        run.updated_at = run.created_at.plus_ms(24 * hour);
        assert_eq!(said(&end, 12)[0].0, "person");
    }

    #[track_caller]
    fn check(before: Value, now: Value, expected: &[&str]) {
        let text = differences(&before, &now, "before", "now");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn differences_are_named_by_pointer() {
        check(json!({ "a": 1 }), json!({ "a": 1 }), &[]);
        check(json!({ "a": 1 }), json!({ "a": 2 }), &["/a: 1 before, 2 now"]);
        check(
            json!({ "x/y": [1, { "z": true }], "gone": 0 }),
            json!({ "x/y": [1, { "z": false }, 3], "new": "n" }),
            &[
                "/gone: 0 before, nothing now",
                "/x~1y/1/z: true before, false now",
                "/x~1y/2: nothing before, 3 now",
                "/new: nothing before, \"n\" now",
            ],
        );
        check(json!(1), json!("1"), &["the whole: 1 before, \"1\" now"]);
    }
}
