//! What the run shows by itself, when nothing befalls it. A run that does not do its work then has nothing that a crash
//! could spoil: every check would hold, and say nothing.

use twice_core::effect::State;
use twice_core::event::{RunEvent, StepFailure};
use twice_core::run::RunState;

use super::case::Outcome;
use super::checks::Baseline;
use super::snapshot::{Listed, Snapshot};

/// Why there is nothing to test.
#[derive(Debug)]
pub(super) struct Broken {
    /// A stable word for what it is.
    pub(super) kind: &'static str,
    /// What is wrong, with the run's own reason.
    pub(super) message: String,
    /// What to do.
    pub(super) fix: String,
}

/// Why an undisturbed run does not do its work, if it does not. A run that waits for a person is no such case.
pub(super) fn broken(outcome: &Outcome, baseline: &Baseline) -> Option<Broken> {
    if outcome.spec.first.is_some() {
        return None;
    }
    let end = &outcome.again.0;
    let run = end.run.as_ref()?;
    let why = run.reason.as_deref().unwrap_or("no reason recorded");
    match run.state {
        RunState::Halted | RunState::Stuck => None,
        RunState::Waiting if end.needs_person().is_some() => None,
        RunState::Completed => no_effects(end, baseline.grants),
        // A way back is worth a test as well.
        RunState::Failed | RunState::Cancelled if end.is_undone() => None,
        RunState::Failed | RunState::Cancelled => {
            let message = format!("even without a crash, the run fails: {why}{}", refusals(end));
            Some(Broken { kind: "run_fails", message, fix: fix_of_failure(end) })
        }
        RunState::Ready | RunState::Running | RunState::Waiting | RunState::Quarantined => {
            Some(Broken {
                kind: "run_does_not_end",
                message: format!(
                    "even without a crash, the run does not end; it is {}: {why}",
                    run.state
                ),
                fix: "remove what it waits for, or give another input".to_owned(),
            })
        }
    }
}

fn no_effects(end: &Snapshot, grants: bool) -> Option<Broken> {
    let performed = end.effects.iter().any(|listed| listed.shown == State::Confirmed);
    if performed || !grants && refused(end).is_empty() {
        return None;
    }
    let (what, fix) = match end.effects.iter().find_map(failure) {
        Some((listed, why)) => {
            let what = format!("no effect of it is performed: {}: {why}", listed.operation);
            (what, fix_of_effect(end).unwrap_or_else(|| ANSWER.to_owned()))
        }
        None => (
            "asks for none of the effects that the workflow grants".to_owned(),
            fix_of_refusal(end).unwrap_or_else(|| {
                "give an input with which its nodes ask for effects, or let them ask: `twice runs show` after a `twice run` says what they did".to_owned()
            }),
        ),
    };
    let message = format!("even without a crash, the run ends and {what}{}", refusals(end));
    Some(Broken { kind: "no_effects", message, fix })
}

/// What to do when the simulated provider's answer may be what is wrong.
const ANSWER: &str = "an answer of the simulated provider may not be what the node expects: put an answer of the real one into examples/<tool>.<operation>.json, or give another input";

fn failure(listed: &Listed) -> Option<(&Listed, &str)> {
    listed.effect.failure.as_ref().map(|failure| (listed, failure.message.as_str()))
}

/// The requests that were refused before they became effects: slot, rule and reason.
fn refused(end: &Snapshot) -> Vec<(String, String, String)> {
    let mut refused = Vec::new();
    for event in end.run_events() {
        let RunEvent::RequestRefused { slot, policy, message, .. } = event else { continue };
        let said = (slot, policy, message);
        if !refused.contains(&said) {
            refused.push(said);
        }
    }
    refused
}

/// What was refused, a line each.
fn refusals(end: &Snapshot) -> String {
    let line = |(_, _, message): (String, String, String)| format!("\n  refused: {message}");
    refused(end).into_iter().map(line).collect()
}

fn fix_of_failure(end: &Snapshot) -> String {
    fix_of_refusal(end)
        .or_else(|| fix_of_effect(end))
        .or_else(|| fix_of_step(end))
        .unwrap_or_else(|| ANSWER.to_owned())
}

fn fix_of_refusal(end: &Snapshot) -> Option<String> {
    let (slot, policy, _) = refused(end).into_iter().next()?;
    Some(match policy.as_str() {
        "grant" => format!(
            "grant it in the workflow file, with a `[[node.effect]]` of `slot = \"{slot}\"`, or let the node ask for a slot that it has"
        ),
        "args" => format!(
            "let the node send args for slot `{slot}` that fit the operation's `args` schema, or correct the schema in the tool file"
        ),
        "repeat" | "item" => format!(
            "let the node use slot `{slot}` as the workflow binds it, or change its `repeat` or `for_each`"
        ),
        "object" => format!(
            "let the `object` of slot `{slot}` point at what the input or the receipt really has, or give an input that has it"
        ),
        _ => format!("correct what the node asks for through slot `{slot}`"),
    })
}

/// The fix for the first effect that failed.
fn fix_of_effect(end: &Snapshot) -> Option<String> {
    let (listed, failure) =
        end.effects.iter().find_map(|listed| Some((listed, listed.effect.failure.as_ref()?)))?;
    if !failure.denied {
        return Some(ANSWER.to_owned());
    }
    let slot = &listed.effect.proposal.slot;
    Some(format!(
        "the slot's `allow` does not permit it: correct the expression of slot `{slot}` in the workflow file, what the node asks for, or the input"
    ))
}

/// The fix for the last failure of a step.
fn fix_of_step(end: &Snapshot) -> Option<String> {
    let failed = end.run_events().filter_map(|event| match event {
        RunEvent::StepFailed { node, cause, .. } => Some((node, cause)),
        _ => None,
    });
    let (node, cause) = failed.last()?;
    Some(match cause {
        StepFailure::Trap { .. } => format!(
            "the code of node `{node}` panics or traps: correct it and build it again (`twice node build`), or give an input that it can take"
        ),
        StepFailure::Limit { limit, .. } => {
            format!("raise `{limit}` in the `limits` of node `{node}`, or let the node use less")
        }
        StepFailure::BadOutput { .. } => {
            format!("let node `{node}` return one strict JSON value of at most 1 MiB")
        }
        StepFailure::Deadlock { .. } => format!(
            "let every workflow that locks several objects lock them in one order, as node `{node}` and the others in the circle do not"
        ),
        StepFailure::BadRequest { .. } => {
            format!("let node `{node}` ask for its effects as its slots are declared")
        }
        StepFailure::Retryable { .. } | StepFailure::Fatal { .. } => format!(
            "node `{node}` gives this reason itself: give an input that it takes, or correct it; if an answer is what it does not like, put one of the real provider into examples/<tool>.<operation>.json"
        ),
    })
}
