//! What the things that arrived about an effect and were not applied amount to, for the person who decides about it.

use crate::effect::{Attempt, Effect, State};
use crate::event::Observation;
use crate::outcome::Verdict;

/// What the observations of an effect say about it, taken together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Evidence<'a> {
    /// That it happened.
    Happened(&'a Observation),
    /// That it did not happen: each attempt that is in doubt was refused, or did nothing.
    DidNotHappen(&'a Observation),
}

/// The evidence, if there is any. Nothing is decided by it: an answer that came late may be about a state that is gone.
#[must_use]
pub fn of(effect: &Effect) -> Option<Evidence<'_>> {
    let observed = || effect.observed.iter().map(|(_, observation)| observation);
    let happened = |seen: &&Observation| seen.verdict == Some(Verdict::Succeeded);
    if let Some(seen) = observed().rfind(happened) {
        return Some(Evidence::Happened(seen));
    }
    let latest = observed().rfind(|seen| seen.verdict.is_some_and(is_no))?;
    // What one attempt came to says nothing about another; what a lookup told is about all of them.
    let explained = |attempt: &Attempt| {
        observed()
            .any(|seen| seen.attempt == Some(attempt.number) && seen.verdict.is_some_and(is_no))
    };
    let refused = latest.attempt.is_none() || effect.indeterminate_attempts().all(explained);
    refused.then_some(Evidence::DidNotHappen(latest))
}

/// What says that an effect which is recorded as FAILED happened after all. Whoever has it done again should know.
#[must_use]
pub fn against(effect: &Effect) -> Option<&Observation> {
    match of(effect) {
        Some(Evidence::Happened(seen)) if effect.state == State::Failed => Some(seen),
        Some(Evidence::Happened(_) | Evidence::DidNotHappen(_)) | None => None,
    }
}

const fn is_no(verdict: Verdict) -> bool {
    match verdict {
        Verdict::NotSent | Verdict::NotProcessed | Verdict::Rejected => true,
        Verdict::AcceptedPending | Verdict::Succeeded | Verdict::Indeterminate => false,
    }
}
