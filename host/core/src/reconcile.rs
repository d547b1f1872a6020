//! What may be done next about an effect: one pure function over its recorded history. The executor and the reconciler
//! do what it says and nothing else, so that a first request, a retry, a resume and a reconciliation are one path.

use crate::contract::{Consistency, LookupBy, Replay, Retry, ToolClass};
use crate::effect::{Attempt, Effect, Hold};
use crate::event::{ConflictRule, Failure, ProbeResult, UnknownReason};
use crate::evidence::{self, Evidence};
use crate::identity::tagged_sha256;
use crate::ids::{EffectId, Fence};
use crate::mutation;
use crate::outcome::{RuleId, Verdict};
use crate::time::Timestamp;

/// The rule under which a request whose worker vanished becomes UNKNOWN.
pub const RULE_LEASE_DIED: &str = "lease.died";
/// The rule under which a request that its own worker has no answer to becomes UNKNOWN once its time is up.
pub const RULE_UNANSWERED: &str = "attempt.unanswered";
/// The rule under which a request that the node's time limit cut off becomes UNKNOWN.
pub const RULE_ABANDONED: &str = "node.time_limit";
/// Longest wait between two reconciliation moves. Milliseconds; six hours.
const RECONCILE_MAX_MS: u64 = 6 * 3_600_000;

/// What to do next about an effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Ask the policy (and the approver).
    Authorize,
    /// Send, as attempt number so and so.
    Send {
        /// 1 for the first.
        attempt: u32,
    },
    /// Record that the outcome of the last attempt is not known, then ask again.
    MarkUnknown(UnknownReason),
    /// Ask the provider what happened.
    Lookup,
    /// Ask this ledger what became of it, beginning it if nobody did.
    AskLedger,
    /// Record that it will never be sent (again), which is proven to have done nothing.
    GiveUp(Failure),
    /// Nothing before this instant.
    Wait {
        /// When to ask again.
        until: Timestamp,
        /// For people.
        why: String,
    },
    /// Only a person can decide.
    Person {
        /// Why, and what they can do.
        why: String,
    },
    /// The answer is known: the receipt, or the failure.
    Answered,
}

/// What to do next about `effect` at `now`, as the holder of `fence`.
#[must_use]
pub fn next(effect: &Effect, fence: Fence, now: Timestamp) -> Next {
    use crate::effect::State;
    match &effect.hold {
        Some(Hold::Conflict(_)) => {
            return Next::Person {
                why: format!(
                    "effect {id} was requested again with other args; `twice effects show {id}` shows both requests. Decide with one \
                     of: `twice effects conflict {id} --keep --reason 'WHY'` (the node gets the recorded receipt), \
                     `twice effects conflict {id} --fail --reason 'WHY'` (the node gets an error), \
                     `twice effects conflict {id} --renew --reason 'WHY'` (the other request becomes a new action)",
                    id = effect.id
                ),
            };
        }
        Some(Hold::Discrepancy(difference)) => {
            return Next::Person {
                why: format!(
                    "effect {id} happened, but not as asked ({difference}); decide with one of: \
                     `twice effects conflict {id} --keep --reason 'WHY'` (the node gets the receipt as it is), \
                     `twice effects conflict {id} --fail --reason 'WHY'` (the node gets an error)",
                    id = effect.id
                ),
            };
        }
        None => {}
    }
    match effect.state {
        State::Confirmed | State::Failed => Next::Answered,
        State::Proposed => Next::Authorize,
        State::Authorized => send_or_give_up(effect, now),
        // I5: what became of it is known here at any time, whoever asked for it.
        State::Requested | State::Unknown if effect.contract().settled_here => Next::AskLedger,
        State::Requested => in_flight(effect, fence, now),
        State::Unknown => reconcile(effect, now),
    }
}

fn in_flight(effect: &Effect, fence: Fence, now: Timestamp) -> Next {
    let Some(attempt) = effect.attempts.last() else {
        return Next::MarkUnknown(vanished(effect));
    };
    // I5: whoever finds a request that an earlier lease made does not know what became of it.
    if attempt.fence != fence {
        return Next::MarkUnknown(vanished(effect));
    }
    let until = attempt.requested_at.plus_ms(effect.contract().timeout_ms);
    if now < until {
        return Next::Wait {
            until,
            why: format!("the request of effect {} is in flight", effect.id),
        };
    }
    Next::MarkUnknown(without_answer(
        effect,
        RULE_UNANSWERED,
        "the time for an answer is over and none was recorded",
    ))
}

const VANISHED: &str =
    "the worker vanished after the request was recorded and before an answer was";

/// Why the outcome is not known of a request whose worker vanished.
#[must_use]
pub fn vanished(effect: &Effect) -> UnknownReason {
    without_answer(effect, RULE_LEASE_DIED, VANISHED)
}

/// Why the outcome is not known of a request that `rule` ended before an answer came.
#[must_use]
pub fn without_answer(effect: &Effect, rule: &str, message: &str) -> UnknownReason {
    UnknownReason {
        verdict: Verdict::Indeterminate,
        rule: RuleId::new(rule),
        message: message.to_owned(),
        // An earlier attempt may have been told it.
        external_id: effect.unknown.as_ref().and_then(|before| before.external_id.clone()),
        answered: false,
        quarantined: false,
        breach: false,
        not_before: None,
        detail: serde_json::Value::Null,
    }
}

/// The rule under which an effect becomes UNKNOWN of which something says that it happened, though each attempt was taken for one
/// that did nothing.
pub const RULE_CONTRADICTED: &str = "evidence.happened";

/// Why the outcome is not known of an effect of which something says that it happened.
#[must_use]
pub fn contradicted(effect: &Effect) -> UnknownReason {
    let message =
        "something says that it happened, though no attempt was taken for one that did anything";
    without_answer(effect, RULE_CONTRADICTED, message)
}

fn send_or_give_up(effect: &Effect, now: Timestamp) -> Next {
    // I1: an attempt that may have done it is explained before another one is made.
    if let Some(Evidence::Happened(_)) = evidence::of(effect)
        && !effect.attempts.is_empty()
    {
        return Next::MarkUnknown(contradicted(effect));
    }
    if let Some(wait) = wait(effect, now) {
        return wait;
    }
    let made = effect.attempts.len() as u32;
    if made < attempts_max(effect) {
        return Next::Send { attempt: made + 1 };
    }
    Next::GiveUp(failure(
        "exhausted",
        format!(
            "gave up after {made} attempts, each proven not to have been processed; last: {}",
            effect.last_error.as_deref().unwrap_or("no reason recorded")
        ),
    ))
}

/// The declared number of attempts; asking for an effect means at least one.
fn attempts_max(effect: &Effect) -> u32 {
    effect.contract().retry.attempts.max(1)
}

fn wait(effect: &Effect, now: Timestamp) -> Option<Next> {
    let until = effect.not_before.filter(|until| *until > now)?;
    Some(Next::Wait {
        until,
        why: format!(
            "effect {} waits before its next move: {}",
            effect.id,
            effect.last_error.as_deref().unwrap_or("backoff")
        ),
    })
}

fn reconcile(effect: &Effect, now: Timestamp) -> Next {
    let contract = effect.contract();
    let class = contract.class();
    if class == ToolClass::Read {
        return wait(effect, now).unwrap_or_else(|| reconcile_read(effect));
    }
    let (Some(unknown), Some(last)) = (&effect.unknown, effect.attempts.last()) else {
        return person(effect, "its ledger entries do not show an attempt and why it is unknown");
    };
    if mutation::is("requested-is-unsent") && unknown.rule.0 == RULE_LEASE_DIED {
        return Next::Send { attempt: last.number + 1 };
    }
    if unknown.quarantined {
        return person(effect, &unknown.message);
    }
    if class == ToolClass::Neither {
        return person(effect, "its tool has neither an idempotency key nor a lookup");
    }
    if let Some(wait) = wait(effect, now) {
        return wait;
    }
    let first_sent = effect.first_sent_at().unwrap_or(last.requested_at);
    if horizon_passed(effect, first_sent, now) && !is_nearly_proven(effect, last, now) {
        return person(effect, "reconciliation reached its `horizon` without an answer");
    }
    let key_live = key_is_live(effect, first_sent, now);
    match (&contract.lookup, &contract.key) {
        (Some(lookup), _) => {
            let probes = probes_since(effect, last);
            let Some((_, latest)) = probes.last() else { return Next::Lookup };
            // The object is there and being worked on: asking for another would be pointless at best.
            if **latest == ProbeResult::Pending {
                return Next::Lookup;
            }
            // The provider itself closes the race with a first request that is still under way, as the key is the same.
            if key_live && !replay_repeats_error(effect, unknown) {
                return Next::Send { attempt: last.number + 1 };
            }
            // A lookup by key finds nothing once the provider has forgotten the key.
            let can_refute = lookup.consistency == Consistency::Strong
                && (lookup.by == LookupBy::Reference || key_live);
            if can_refute && absence_is_proven(effect, last, &probes) {
                return after_absence(effect, key_live, last);
            }
            Next::Lookup
        }
        (None, Some(_)) if key_live => Next::Send { attempt: last.number + 1 },
        (None, Some(_) | None) => person(
            effect,
            "the provider may have forgotten its key by now, and there is no lookup to ask instead",
        ),
    }
}

/// Whether it was tried for long enough. An effect that nobody looked after (the host was down, say) is asked about once
/// before a person is.
fn horizon_passed(effect: &Effect, first_sent: Timestamp, now: Timestamp) -> bool {
    let tried = effect.attempts.len() > 1 || !effect.probes.is_empty();
    tried && now.ms_since(first_sent) > effect.contract().horizon_ms
}

/// Whether all that is missing is the second miss, and it is to be expected soon. A run that was left alone until after its
/// horizon gets the first that late.
fn is_nearly_proven(effect: &Effect, last: &Attempt, now: Timestamp) -> bool {
    let contract = effect.contract();
    let strong =
        contract.lookup.as_ref().is_some_and(|lookup| lookup.consistency == Consistency::Strong);
    let quiet_from = quiet_from(effect, last).plus_ms(contract.settle_ms);
    let probes = probes_since(effect, last);
    let first_miss =
        probes.iter().find(|(at, result)| **result == ProbeResult::Miss && *at >= quiet_from);
    // The lookup that comes a settle window after the first miss is among the next three (see `reconcile_backoff_ms`).
    let soon = contract.settle_ms.saturating_add(first_wait_ms(effect).saturating_mul(8));
    strong && first_miss.is_some_and(|(at, _)| now < at.plus_ms(soon))
}

fn reconcile_read(effect: &Effect) -> Next {
    let made = effect.attempts.len() as u32;
    if made < attempts_max(effect) {
        Next::Send { attempt: made + 1 }
    } else {
        Next::GiveUp(failure(
            "exhausted",
            format!(
                "no answer after {made} attempts; last: {}",
                effect.last_error.as_deref().unwrap_or("no reason recorded")
            ),
        ))
    }
}

/// Whether the provider still knows our key, less the margin; counted from the first send, the earliest it can count from.
fn key_is_live(effect: &Effect, first_sent: Timestamp, now: Timestamp) -> bool {
    effect.contract().key.as_ref().is_some_and(|key| {
        now < first_sent.plus_ms(key.retention_ms.saturating_sub(key.margin_ms()))
            || mutation::is("key-lives-for-ever")
    })
}

/// Whether asking again under the key would only repeat an error that settles nothing.
fn replay_repeats_error(effect: &Effect, unknown: &UnknownReason) -> bool {
    let replays = effect.contract().key.as_ref().is_some_and(|key| match key.replay {
        Replay::FirstAnswer => true,
        Replay::SuccessOnly
        | Replay::CurrentState
        | Replay::ConflictWithId
        | Replay::RedrivesFailed => false,
    });
    replays && unknown.answered
}

/// The lookups made since the last attempt.
fn probes_since<'a>(effect: &'a Effect, last: &Attempt) -> Vec<(Timestamp, &'a ProbeResult)> {
    effect.probes.iter().skip(last.probes_before).map(|(at, probe)| (*at, &probe.result)).collect()
}

/// A miss is not a no. Absence needs a consistent lookup by our own reference, the settle window since the last byte
/// could have moved, and two misses at least one window apart with nothing but misses between them. That no other sender
/// is alive follows from the fence, plus the time a fenced-off sender's socket may live.
fn absence_is_proven(
    effect: &Effect,
    last: &Attempt,
    probes: &[(Timestamp, &ProbeResult)],
) -> bool {
    let contract = effect.contract();
    let quiet_from = quiet_from(effect, last).plus_ms(contract.settle_ms);
    let mut first_miss = None;
    for (at, result) in probes {
        match result {
            ProbeResult::Miss if mutation::is("believe-first-miss") => return true,
            ProbeResult::Miss if *at >= quiet_from => {
                let first = *first_miss.get_or_insert(*at);
                if first < *at && at.ms_since(first) >= contract.settle_ms {
                    return true;
                }
            }
            // A lookup that failed told nothing.
            ProbeResult::Miss | ProbeResult::Error { .. } => {}
            ProbeResult::Match { .. }
            | ProbeResult::Mismatch { .. }
            | ProbeResult::Refused { .. }
            | ProbeResult::Many { .. }
            | ProbeResult::Pending => first_miss = None,
        }
    }
    false
}

/// The instant after which no byte of any attempt can have moved. An attempt that ended without an answer in sight, as its
/// lease died or its node's time was up, may still be under way for as long as one attempt may take. Why an attempt before
/// the last is in doubt is not kept, so that the same is assumed of each of those.
fn quiet_from(effect: &Effect, last: &Attempt) -> Timestamp {
    let lives_on = [RULE_LEASE_DIED, RULE_ABANDONED];
    let lives_on = effect.unknown.as_ref().is_some_and(|u| lives_on.contains(&u.rule.0.as_str()));
    let quiet = |attempt: &Attempt| {
        let settled = attempt.settled_at.unwrap_or(attempt.requested_at);
        if attempt.number == last.number && !lives_on {
            settled
        } else {
            settled.plus_ms(effect.contract().timeout_ms)
        }
    };
    let in_doubt = effect.indeterminate_attempts().chain([last]).map(quiet);
    in_doubt.max().unwrap_or(last.requested_at)
}

/// The instant from which on nothing can come of a request any more that is in doubt: the provider's settle window after its last
/// byte can have moved. `None` when none is in doubt.
pub(crate) fn quiet_at(effect: &Effect) -> Option<Timestamp> {
    effect.indeterminate_attempts().next()?;
    let last = effect.attempts.last()?;
    Some(quiet_from(effect, last).plus_ms(effect.contract().settle_ms))
}

fn after_absence(effect: &Effect, key_live: bool, last: &Attempt) -> Next {
    let made = effect.attempts.len() as u32;
    // A live key that replays an error would do so for ever; absence makes that error the truth.
    if key_live || made >= attempts_max(effect) {
        return Next::GiveUp(failure(
            "absent",
            format!(
                "the provider's lookup proves that nothing happened, and {}; last: {}",
                match key_live {
                    true => "under its key the provider would only repeat its answer",
                    false => "there are no attempts left",
                },
                effect.last_error.as_deref().unwrap_or("no reason recorded")
            ),
        ));
    }
    Next::Send { attempt: last.number + 1 }
}

fn person(effect: &Effect, why: &str) -> Next {
    Next::Person {
        why: format!(
            "effect {id} is UNKNOWN and cannot be settled automatically: {why}; find out what happened at the provider, then {}",
            resolve_commands(&effect.id),
            id = effect.id
        ),
    }
}

/// The commands by which a person says what became of an effect, complete but for what only they know.
#[must_use]
pub fn resolve_commands(effect: &EffectId) -> String {
    format!(
        "`twice effects resolve {effect} --confirmed --receipt '{{}}' --external-id 'ITS ID' --evidence 'HOW YOU \
         KNOW'` (the receipt: what the provider shows of it, as JSON; the id: the provider's) or `twice effects resolve {effect} --failed --evidence 'HOW YOU KNOW'`"
    )
}

fn failure(code: &str, message: String) -> Failure {
    Failure {
        code: code.to_owned(),
        message,
        denied: false,
        source: None,
        rule: None,
        verdict: None,
        detail: serde_json::Value::Null,
    }
}

/// The wait before move number `made + 1`: doubling from `initial_ms`, at most `max_ms`, and spread over its upper half
/// by the effect's own id, so that a crowd of effects does not knock at the same instant and a replay waits the same.
#[must_use]
pub fn backoff_ms(effect: &Effect, made: u32, initial_ms: u64, max_ms: u64) -> u64 {
    let full = initial_ms.saturating_mul(1_u64 << made.saturating_sub(1).min(32)).min(max_ms);
    let digest = tagged_sha256("twice/jitter/v1", format!("{}/{made}", effect.id).as_bytes());
    let spread = u64::from(u16::from_be_bytes([digest[0], digest[1]]));
    full / 2 + (full / 2).saturating_mul(spread) / u64::from(u16::MAX)
}

/// The wait before the next reconciliation move, after `made` of them.
#[must_use]
pub fn reconcile_backoff_ms(effect: &Effect, made: u32) -> u64 {
    let initial = first_wait_ms(effect);
    let longest = effect.contract().settle_ms.max(initial).saturating_mul(16);
    backoff_ms(effect, made, initial, RECONCILE_MAX_MS.min(longest))
}

/// The first wait of a reconciliation. Milliseconds.
fn first_wait_ms(effect: &Effect) -> u64 {
    let contract = effect.contract();
    contract.retry.initial_ms.max(contract.settle_ms / 4).max(1)
}

/// How long to wait before this ledger is asked again what became of an effect. Milliseconds; it grows with the time since
/// the effect was requested, without anything being counted.
#[must_use]
pub fn ask_again_ms(effect: &Effect, now: Timestamp) -> u64 {
    let Retry { initial_ms, max_ms, .. } = effect.contract().retry;
    let since = effect.first_sent_at().map_or(0, |at| now.ms_since(at));
    (since / 2).clamp(initial_ms, max_ms.max(initial_ms))
}

/// The rule that decides a conflict without a person, if the slot declares one.
#[must_use]
pub const fn decides_alone(rule: ConflictRule) -> bool {
    match rule {
        ConflictRule::Keep => true,
        ConflictRule::Fail | ConflictRule::Renew => false,
    }
}
