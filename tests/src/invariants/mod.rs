//! What holds when all is over, by the provider's own books and by what the ledger says.

pub mod undone;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;
use twice_core::chain::{self, Content, Entry};
use twice_core::contract::ToolClass;
use twice_core::effect::{Effect, State};
use twice_core::event::RunEvent;
use twice_core::identity::child_run;
use twice_core::ids::RunId;
use twice_core::run::RunState;
use twice_core::saga::{self, Asked};
use twice_ledger::{EffectFilter, Ledger, RunRecord};
use twice_provider_sim::OperationCounters;

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Which: `I1` to `I11`.
    pub invariant: &'static str,
    /// Where: the seed or the boundary, and what it is about.
    pub at: String,
    /// How it shows.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.at, self.what, self.invariant)
    }
}

/// `invariant` is broken unless `so`.
///
/// # Errors
/// [`Broken`], with what `what` tells.
pub fn holds(
    so: bool,
    invariant: &'static str,
    at: &str,
    what: impl FnOnce() -> String,
) -> Result<(), Broken> {
    if so { Ok(()) } else { Err(Broken { invariant, at: at.to_owned(), what: what() }) }
}

/// What the provider did, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Books {
    /// Effects by business object.
    pub done: BTreeMap<String, u64>,
    /// Requests for an effect that arrived.
    pub requests: u64,
    /// Of these, requests by their key.
    pub by_key: BTreeMap<String, u64>,
    /// How often each effect happened, reversals included. Only a provider within a world tells this.
    pub by_effect: BTreeMap<String, u64>,
    /// How often what each effect did was reversed. Only a provider within a world tells this.
    pub reversed: BTreeMap<String, u64>,
}

impl From<OperationCounters> for Books {
    fn from(counted: OperationCounters) -> Self {
        Self {
            done: counted.effects_per_object,
            requests: counted.requests,
            by_key: counted.deliveries_per_key,
            by_effect: BTreeMap::new(),
            reversed: BTreeMap::new(),
        }
    }
}

/// A run when all is over.
#[derive(Debug)]
pub struct Ended {
    /// Its record.
    pub record: RunRecord,
    /// Its effects.
    pub effects: Vec<Effect>,
    /// What happened to the run itself.
    pub events: Vec<RunEvent>,
    /// Everything that happened, in order.
    pub history: Vec<Entry>,
}

/// Holds the runs that the provider was used by against its books.
///
/// # Errors
/// [`Broken`], for the first invariant that does not hold.
///
/// # Panics
/// When the ledger cannot be read.
pub async fn check(
    at: &str,
    ledger: &dyn Ledger,
    books: &Books,
    runs: &[RunId],
) -> Result<Vec<Ended>, Broken> {
    let mut all = Vec::new();
    let (mut attempts, mut keys) = (0, BTreeSet::new());
    for id in runs {
        let at = format!("{at}, {id}");
        let ended = read(&at, ledger, id).await?;
        for effect in &ended.effects {
            let key = &effect.proposal.provider_key;
            holds(keys.insert(key.clone()), "I2", &at, || {
                format!("{} has the key {key} of another effect", effect.id)
            })?;
        }
        check_run(&at, &ended)?;
        for effect in &ended.effects {
            if effect.contract().settled_here {
                check_child(&at, ledger, effect).await?;
                continue;
            }
            attempts += effect.attempts.len() as u64;
            check_effect(&at, effect, books, ended.record.state)?;
        }
        all.push(ended);
    }
    holds(books.requests <= attempts, "I3", at, || {
        format!("{} requests, {attempts} recorded attempts", books.requests)
    })?;
    for key in books.by_key.keys() {
        holds(keys.contains(key), "I2", at, || format!("sent under {key}, which no effect has"))?;
    }
    Ok(all)
}

/// The entries of a run.
///
/// # Panics
/// When the ledger cannot be read.
pub async fn entries(ledger: &dyn Ledger, id: &RunId) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map_or(0, |entry| entry.seq);
        let page = ledger.history(id, after, 0).await.expect("the ledger can be read");
        if page.is_empty() {
            return entries;
        }
        entries.extend(page);
    }
}

async fn read(at: &str, ledger: &dyn Ledger, id: &RunId) -> Result<Ended, Broken> {
    let entries = entries(ledger, id).await;
    // Every move legal, every permit and receipt for the request on record, nothing sent again against its class.
    let head = chain::verify(id, &entries);
    holds(head.is_ok(), "I4", at, || format!("{head:?}"))?;
    let known = ledger.head(id).await.expect("the run exists");
    holds(head.is_ok_and(|head| head == known), "I4", at, || {
        format!("the run's head is {}, its chain is {} long", known.seq, entries.len())
    })?;
    for pair in entries.windows(2) {
        holds(pair[0].fence <= pair[1].fence, "I7", at, || {
            let (earlier, later) = (&pair[0].fence, &pair[1].fence);
            format!("entry {} was written under {later:?} after {earlier:?}", pair[1].seq)
        })?;
    }
    let content = |entry: &Entry| entry.content().expect("a verified entry is readable");
    let of_run = |content| match content {
        Content::Run(event) => Some(event),
        Content::Effect { .. } => None,
    };
    let record = ledger.run(id).await.expect("the ledger can be read").expect("the run exists");
    let filter = EffectFilter { run: Some(id.clone()), ..EffectFilter::default() };
    let mut effects = Vec::new();
    for row in ledger.effects(&filter).await.expect("the ledger can be read") {
        let effect = ledger.effect(&row.id).await.expect("the ledger can be read");
        effects.push(effect.expect("a listed effect exists"));
    }
    let events = entries.iter().map(content).filter_map(of_run).collect();
    Ok(Ended { record, effects, events, history: entries })
}

fn check_run(at: &str, ended: &Ended) -> Result<(), Broken> {
    let record = &ended.record;
    let over =
        record.state.is_final() || matches!(record.state, RunState::Halted | RunState::Stuck);
    holds(over, "I11", at, || format!("it is {:?}: {:?}", record.state, record.reason))?;
    if record.state == RunState::Completed {
        return check_answers(at, ended);
    }
    if record.state == RunState::Cancelled {
        check_cancelled(at, ended)?;
    }
    let told = record.reason.as_ref().is_some_and(|why| !why.is_empty());
    holds(told, "I11", at, || format!("it is {:?} and does not say why", record.state))
}

/// A run that was cancelled asked for nothing new once that was on record.
fn check_cancelled(at: &str, ended: &Ended) -> Result<(), Broken> {
    let content = |entry: &Entry| entry.content().expect("a verified entry is readable");
    let asked_for =
        |entry: &&Entry| matches!(content(entry), Content::Run(RunEvent::CancelRequested { .. }));
    let since = ended.history.iter().find(asked_for).map_or(i64::MAX, |entry| entry.seq);
    for entry in ended.history.iter().filter(|entry| entry.seq > since) {
        let Content::Effect { effect: id, event } = content(entry) else { continue };
        let effect = ended.effects.iter().find(|effect| effect.id == id);
        let new = effect.is_some_and(|effect| saga::asks_anew(&event, Asked::of(effect)));
        holds(!new, "I11", at, || {
            format!("entry {} asks for {id}, though entry {since} cancels the run", entry.seq)
        })?;
    }
    Ok(())
}

/// A node that went on got the answers to what it asked, and not to what it asked before (I6).
fn check_answers(at: &str, ended: &Ended) -> Result<(), Broken> {
    let last = ended.events.iter().rev().find_map(|event| match event {
        RunEvent::StepCompleted { attempt, output, .. } => Some((*attempt, output)),
        _ => None,
    });
    let (Some((attempt, output)), Some(steps)) = (last, ended.record.input["steps"].as_array())
    else {
        return Ok(());
    };
    let made = steps.iter().filter(|step| {
        step["until_attempt"].as_u64().is_none_or(|until| u64::from(attempt) < until)
    });
    let notes = output["notes"].as_array().into_iter().flatten();
    let amount_of = |call: &Value| call["args"]["amount_cents"].as_u64();
    for (step, note) in made.zip(notes) {
        let single = (step, note);
        let many = step["requests"].as_array().into_iter().flatten();
        let many = many.zip(note.as_array().into_iter().flatten());
        for (asked, told) in many.chain([single]) {
            let (Some(asked), Some(told)) =
                (amount_of(asked), told["body"]["amount_cents"].as_u64())
            else {
                continue;
            };
            holds(asked == told, "I6", at, || {
                format!("the node asked for {asked} cents and was told of {told}")
            })?;
        }
    }
    Ok(())
}

/// What holds of an effect that started a run: it tells how that run ended, and is never in doubt.
async fn check_child(at: &str, ledger: &dyn Ledger, effect: &Effect) -> Result<(), Broken> {
    let at = format!("{at}, {}: {}", effect.proposal.idempotency_key, effect.state);
    let proposal = &effect.proposal;
    let id = child_run(&proposal.identity, &proposal.request_hash, &effect.run, &proposal.slot);
    let child = ledger.run(&id).await.expect("the ledger can be read");
    let state = child.as_ref().map(|child| child.state);
    let why = || format!("{id} is {state:?}; {:?}", effect.last_error);
    holds(effect.attempts.len() <= 1, "I1", &at, why)?;
    match effect.state {
        State::Confirmed => {
            holds(state == Some(RunState::Completed), "I5", &at, why)?;
            let told = effect.receipt.as_ref().map(|receipt| &receipt.result);
            holds(told == child.and_then(|child| child.output).as_ref(), "I5", &at, || {
                "the receipt is not what the child returned".to_owned()
            })
        }
        State::Failed => holds(state.is_none_or(|s| s == RunState::Failed), "I5", &at, why),
        State::Proposed | State::Authorized | State::Requested | State::Unknown => {
            holds(false, "I5", &at, why)
        }
    }
}

/// What holds of one effect.
fn check_effect(at: &str, effect: &Effect, books: &Books, run: RunState) -> Result<(), Broken> {
    let object = effect.proposal.args["order_id"].as_str().unwrap_or_default();
    // Told by its effect where the provider tells that: of one order there may be another that a person ordered, and of one
    // refund a reversal that was refused.
    let by_object = books.done.get(object).copied().unwrap_or(0);
    let by_effect = books.by_effect.get(effect.id.as_str()).copied().unwrap_or(0);
    let told = effect.proposal.undoes.is_some() || !books.by_effect.is_empty();
    let done = if told { by_effect } else { by_object };
    let side = effect.proposal.undoes.as_ref().map_or("", |_| "undoing ");
    let object =
        effect.proposal.identity.object.as_deref().filter(|_| object.is_empty()).unwrap_or(object);
    let at = format!("{at}, {side}{object}: {}", effect.state);
    let waits = matches!(run, RunState::Halted | RunState::Stuck);
    let why = || format!("done {done} times; {:?}", effect.last_error);
    holds(done.max(by_object) <= 1, "I1", &at, why)?;
    match effect.state {
        State::Confirmed => {
            holds(done == 1, "I5", &at, why)?;
            let receipt = effect.receipt.as_ref().map(|receipt| &receipt.request_hash);
            let recorded = Some(&effect.proposal.request_hash);
            holds(receipt == recorded, "I6", &at, || {
                "the receipt is another request's".to_owned()
            })?;
        }
        State::Failed => holds(done == 0, "I5", &at, why)?,
        State::Unknown => holds(waits, "I11", &at, why)?,
        State::Proposed | State::Authorized => {
            holds(waits, "I11", &at, why)?;
            holds(done == 0, "I5", &at, why)?;
        }
        State::Requested => holds(false, "I5", &at, || "nobody holds its run".to_owned())?,
    }
    let held_back = effect.hold.is_none() || run != RunState::Completed;
    holds(held_back, "I6", &at, || "the run went on without a decision".to_owned())?;
    let attempts = effect.attempts.len() as u64;
    if effect.contract().key.is_some() {
        let sent = books.by_key.get(&effect.proposal.provider_key).copied().unwrap_or(0);
        let what = || format!("{sent} requests, {attempts} recorded attempts");
        holds(sent <= attempts, "I3", &at, what)?;
    }
    if effect.contract().class() == ToolClass::Neither {
        let earlier = effect.attempts.iter().rev().skip(1);
        let again = earlier.filter(|attempt| attempt.in_doubt()).count();
        holds(again == 0, "I1", &at, || "sent again in doubt".to_owned())?;
    }
    Ok(())
}

/// What schedules came to, so that it shows when they come to nothing.
#[derive(Debug, Default, Clone)]
pub struct Tally {
    /// Effects that were confirmed.
    pub confirmed: usize,
    /// Effects that failed.
    pub failed: usize,
    /// Effects that stayed unknown.
    pub unknown: usize,
    /// Effects that wait for a decision.
    pub held: usize,
    /// Effects that were sent more than once.
    pub sent_again: usize,
    /// Runs that were taken over.
    pub takeovers: usize,
}

impl Tally {
    /// Counts a run.
    pub fn count(&mut self, ended: &Ended) {
        for effect in &ended.effects {
            self.confirmed += usize::from(effect.state == State::Confirmed);
            self.failed += usize::from(effect.state == State::Failed);
            self.unknown += usize::from(effect.state == State::Unknown);
            self.held += usize::from(effect.hold.is_some());
            self.sent_again += usize::from(effect.attempts.len() > 1);
        }
        let takeover =
            |event: &&RunEvent| matches!(event, RunEvent::Claimed { takeover: true, .. });
        self.takeovers += ended.events.iter().filter(takeover).count();
    }

    /// Whether there was something of each.
    #[must_use]
    pub const fn all_seen(&self) -> bool {
        let states = self.confirmed > 0 && self.failed > 0 && self.unknown > 0;
        states && self.held > 0 && self.sent_again > 0 && self.takeovers > 0
    }
}
