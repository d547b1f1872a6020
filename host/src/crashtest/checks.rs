//! The five checks of a case: the ledger held against the provider's own books, and against the undisturbed run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use twice_core::chain::{self, Entry};
use twice_core::contract::ToolClass;
use twice_core::effect::State;
use twice_core::event::{EffectEvent, EffectEventKind, RunEvent};
use twice_core::ids::{EffectId, RunId};
use twice_core::run::RunState;
use twice_ledger::RunRecord;
use twice_workflow::model::Workflow;

use super::case::{Outcome, output};
use super::provider::Books;
use super::snapshot::{Descendant, Listed, Snapshot};
use super::worker::RUN;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// It holds.
    Held,
    /// It does not, and why.
    Violated(Vec<String>),
    /// It could not be made.
    Skipped,
}

impl Check {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Violated(_) => "violated",
            Self::Skipped => "skipped",
        }
    }

    /// Why it does not hold.
    #[must_use]
    pub fn reasons(&self) -> &[String] {
        match self {
            Self::Violated(reasons) => reasons,
            Self::Held | Self::Skipped => &[],
        }
    }

    fn of(mut reasons: Vec<String>) -> Self {
        reasons.dedup();
        if reasons.is_empty() { Self::Held } else { Self::Violated(reasons) }
    }
}

/// The five checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks {
    /// The provider did no effect more than once, and heard of an effect without key and lookup only once.
    pub at_most_once: Check,
    /// Before any worker ran again, the listing told of every effect whether it is CONFIRMED, FAILED or UNKNOWN, and told
    /// it truly.
    pub determinable: Check,
    /// Nothing is UNKNOWN in the end unless a person is asked, and what is known is true.
    pub reconciled: Check,
    /// Each CONFIRMED effect has its receipt, in a chain that holds.
    pub receipts: Check,
    /// Nothing was asked for that the undisturbed run did not ask for, and the second resume did nothing.
    pub no_new_action: Check,
}

impl Checks {
    /// All of them, with their names in reports.
    #[must_use]
    pub const fn all(&self) -> [(&'static str, &Check); 5] {
        [
            ("at_most_once", &self.at_most_once),
            ("determinable", &self.determinable),
            ("reconciled", &self.reconciled),
            ("receipts", &self.receipts),
            ("no_new_action", &self.no_new_action),
        ]
    }

    /// Whether none is violated.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.all().iter().all(|(_, check)| check.reasons().is_empty())
    }

    /// The checks of a case that did not come about.
    pub(super) const SKIPPED: Self = Self {
        at_most_once: Check::Skipped,
        determinable: Check::Skipped,
        reconciled: Check::Skipped,
        receipts: Check::Skipped,
        no_new_action: Check::Skipped,
    };
}

/// What the undisturbed run led to.
#[derive(Debug)]
pub(super) struct Baseline {
    /// The hash and the args of each effect.
    pub(super) effects: BTreeMap<String, (String, Value)>,
    /// Effects whose args depend on the time at which the run is made.
    pub(super) timely: BTreeSet<String>,
    pub(super) state: Option<RunState>,
    /// The output; none when it depends on the time.
    pub(super) output: Option<Value>,
    /// Whether the workflow grants its nodes any effect.
    pub(super) grants: bool,
}

impl Baseline {
    /// From two undisturbed runs of `workflow` at different times.
    pub(super) fn of(workflow: &Workflow, first: &Outcome, other: &Outcome) -> Self {
        let hashes = |outcome: &Outcome| -> BTreeMap<String, (String, Value)> {
            let effects = outcome.after.0.effects.iter();
            effects
                .map(|Listed { effect, .. }| {
                    let proposal = &effect.proposal;
                    let hash = proposal.request_hash.to_string();
                    (effect.id.to_string(), (hash, proposal.args.clone()))
                })
                .collect()
        };
        let (effects, others) = (hashes(first), hashes(other));
        let timely = effects
            .iter()
            .filter(|(id, (hash, _))| others.get(*id).is_none_or(|(other, _)| other != hash))
            .map(|(id, _)| id.clone())
            .collect();
        let same = output(&first.after.0) == output(&other.after.0);
        Self {
            effects,
            timely,
            state: first.after.0.run.as_ref().map(|run| run.state),
            output: output(&first.after.0).filter(|_| same).cloned(),
            grants: workflow.nodes.iter().any(|node| !node.slots.is_empty()),
        }
    }
}

/// Makes the five checks.
pub(super) fn check(outcome: &Outcome, baseline: &Baseline) -> Checks {
    if !outcome.reached {
        return Checks::SKIPPED;
    }
    let (end, books) = (&outcome.again.0, &outcome.again.1);
    Checks {
        at_most_once: Check::of(at_most_once(end, books)),
        determinable: match &outcome.before {
            Some((before, books)) => Check::of(determinable(before, books)),
            None => Check::Skipped,
        },
        reconciled: Check::of(reconciled(end, books)),
        receipts: Check::of(receipts(end)),
        no_new_action: Check::of(no_new_action(outcome, baseline)),
    }
}

fn class(listed: &Listed) -> ToolClass {
    listed.effect.contract().class()
}

fn name(listed: &Listed) -> String {
    format!("{} ({})", listed.operation, listed.effect.proposal.idempotency_key)
}

fn at_most_once(end: &Snapshot, books: &Books) -> Vec<String> {
    let mut reasons = Vec::new();
    for listed in end.effects.iter().filter(|listed| class(listed) != ToolClass::Read) {
        let commits = books.commits_of(&listed.mark());
        if commits > 1 {
            reasons.push(format!("the provider did {} {commits} times", name(listed)));
        }
        let requests = books.requests_of(&listed.mark());
        if class(listed) == ToolClass::Neither && requests > 1 {
            reasons.push(format!(
                "{} was requested {requests} times, and its tool has neither key nor lookup",
                name(listed)
            ));
        }
    }
    for commit in &books.commits {
        if !end.effects.iter().any(|listed| commit.is_of(&listed.mark())) {
            reasons.push(format!(
                "the provider did {} for no effect that the ledger knows",
                commit.operation
            ));
        }
    }
    reasons
}

/// What a listing may say about an effect that the provider did so many times.
fn untrue(listed: &Listed, books: &Books) -> Option<String> {
    if class(listed) == ToolClass::Read {
        return None;
    }
    // What became of it is in the ledger alone, and is known there whoever vanished.
    if class(listed) == ToolClass::Ledger {
        let unknown = listed.shown == State::Unknown;
        return unknown.then(|| format!("{} is listed as UNKNOWN", name(listed)));
    }
    let done = books.commits_of(&listed.mark()) > 0;
    let told = match listed.shown {
        State::Unknown => return None,
        State::Requested => return Some(format!("{} is listed as REQUESTED", name(listed))),
        State::Confirmed => true,
        State::Failed | State::Proposed | State::Authorized => false,
    };
    let truth = if done { "did it" } else { "did not do it" };
    (told != done).then(|| {
        format!("{} is listed as {}, and the provider {truth}", name(listed), listed.shown)
    })
}

fn determinable(before: &Snapshot, books: &Books) -> Vec<String> {
    let mut reasons: Vec<String> =
        before.effects.iter().filter_map(|listed| untrue(listed, books)).collect();
    for commit in &books.commits {
        if !before.effects.iter().any(|listed| commit.is_of(&listed.mark())) {
            reasons.push(format!(
                "the provider did {} and the ledger has no entry of it",
                commit.operation
            ));
        }
    }
    reasons
}

fn reconciled(end: &Snapshot, books: &Books) -> Vec<String> {
    let Some(run) = &end.run else { return vec!["the run is not in the ledger".to_owned()] };
    let mut reasons = Vec::new();
    match run.state {
        RunState::Completed
        | RunState::Failed
        | RunState::Cancelled
        | RunState::Halted
        | RunState::Stuck => {}
        RunState::Waiting if end.needs_person().is_some() => {}
        RunState::Ready | RunState::Running | RunState::Waiting | RunState::Quarantined => {
            let why = run.reason.as_deref().unwrap_or("no reason recorded");
            reasons.push(format!("the run is still {}: {why}", run.state));
        }
    }
    let by_person = end.needs_person().is_some();
    for listed in &end.effects {
        if let Some(reason) = untrue(listed, books) {
            reasons.push(reason);
        }
        if !listed.shown.is_final() && !by_person {
            reasons.push(format!("{} is {} in the end", name(listed), listed.shown));
        }
    }
    reasons
}

/// Whether all that a run has more of is what a worker was told that woke up too late: it may say so, and no more. A run that
/// waits for another, which a person has to look after, looks for it when it is taken, and says that it did.
fn only_observed(known: i64, again: &[Entry], looks: bool) -> bool {
    let more: Vec<&Entry> = again.iter().filter(|entry| entry.seq > known).collect();
    let observed = EffectEventKind::Observed.as_str();
    let is_look = |kind: &str| looks && matches!(kind, "run_claimed" | "run_parked");
    let fits = |entry: &&Entry| entry.kind == observed || is_look(&entry.kind);
    !more.is_empty() && more.iter().all(fits)
}

/// Whether the second resume wrote anything that it must not.
fn wrote(after: &Snapshot, again: &Snapshot) -> bool {
    let looks = |run: Option<&RunRecord>| {
        run.is_some_and(|run| run.state == RunState::Waiting) && again.needs_person().is_some()
    };
    let seq = after.head.map_or(0, |head| head.seq);
    let own =
        after.head != again.head && !only_observed(seq, &again.entries, looks(again.run.as_ref()));
    let others = again.descendants.iter().any(|now| {
        let before = after.descendants.iter().find(|before| before.run.id == now.run.id);
        before.is_none_or(|before| {
            before.head != now.head
                && !only_observed(before.head.seq, &now.entries, looks(Some(&now.run)))
        })
    });
    own || others
}

fn receipts(end: &Snapshot) -> Vec<String> {
    let run = RunId::parse(RUN).expect("the run's id is well formed");
    let mut reasons = Vec::new();
    match chain::verify(&run, &end.entries) {
        Ok(head) if end.head == Some(head) => {}
        Ok(_) => reasons.push("the last entries of the run's chain are missing".to_owned()),
        Err(broken) => reasons.push(broken.to_string()),
    }
    for Descendant { run, entries, head } in &end.descendants {
        match chain::verify(&run.id, entries) {
            Ok(found) if found == *head => {}
            Ok(_) => {
                reasons.push(format!("the last entries of the chain of {} are missing", run.id))
            }
            Err(broken) => reasons.push(broken.to_string()),
        }
    }
    for listed in end.effects.iter().filter(|listed| listed.shown == State::Confirmed) {
        let requested = &listed.effect.proposal.request_hash;
        match &listed.effect.receipt {
            Some(receipt) if receipt.request_hash == *requested => {}
            Some(_) => {
                reasons.push(format!("the receipt of {} is of another request", name(listed)))
            }
            None => reasons.push(format!("{} is CONFIRMED without a receipt", name(listed))),
        }
    }
    reasons
}

fn no_new_action(outcome: &Outcome, baseline: &Baseline) -> Vec<String> {
    let end = &outcome.again.0;
    let mut reasons = Vec::new();
    for listed in &end.effects {
        let id = listed.effect.id.to_string();
        match baseline.effects.get(&id) {
            None => reasons
                .push(format!("{} was asked for, and not in the undisturbed run", name(listed))),
            Some((hash, _)) if baseline.timely.contains(&id) || *hash == hash_of(listed) => {}
            Some(_) => reasons.push(format!(
                "{} was asked for with other args than in the undisturbed run",
                name(listed)
            )),
        }
    }
    let state = end.run.as_ref().map(|run| run.state);
    if state == baseline.state {
        for id in baseline.effects.keys().filter(|id| end.find(id).is_none()) {
            reasons.push(format!("effect {id} of the undisturbed run was never asked for"));
        }
        let differs = baseline.output.is_some() && output(end) != baseline.output.as_ref();
        if differs {
            reasons.push("the run's output is not that of the undisturbed run".to_owned());
        }
    }
    let named = |id: &str| end.find(id).map_or_else(|| format!("effect {id}"), name);
    for (id, event) in end.effect_events() {
        if matches!(event, EffectEvent::Conflicted(_)) {
            reasons.push(format!("{} was asked for again with other args", named(&id)));
        }
    }
    for event in end.run_events() {
        if let RunEvent::StepCompleted { diverged, .. } = event {
            let not_again = |id: &EffectId| {
                format!("{} was confirmed and not asked for again", named(id.as_str()))
            };
            reasons.extend(diverged.iter().map(not_again));
        }
    }
    let (after, again) = (&outcome.after, &outcome.again);
    if wrote(&after.0, &again.0) {
        reasons.push("the second resume added entries to the ledger".to_owned());
    }
    if after.1.seen.len() != again.1.seen.len() {
        reasons.push("the second resume sent requests".to_owned());
    }
    reasons
}

pub(super) fn hash_of(listed: &Listed) -> String {
    listed.effect.proposal.request_hash.to_string()
}

#[cfg(test)]
#[path = "checks_tests.rs"]
pub(super) mod tests;
