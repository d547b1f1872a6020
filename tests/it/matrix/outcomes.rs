//! The table: one row for each way in which a provider fails, one cell for each class of tool.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use twice::engine::RunEnd;
use twice_core::effect::{Effect, Hold, State};
use twice_core::event::EffectEvent;
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{API_KEY, Host, Pace};

use super::run;
use super::tools::{Class, IMPATIENT, REAL, WINDOWS, Windows, ask, one_refund, order};

/// How many cells are tried at a time.
const CONCURRENT: usize = 6;

/// How an effect and its run end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// CONFIRMED, and the run completed.
    Confirmed,
    /// CONFIRMED, and the run waits for a person, because the result is not what was asked for.
    Held,
    /// FAILED with this code, and the run completed (the node notes the failure).
    Failed(&'static str),
    /// UNKNOWN, and the run waits for a person.
    Unknown,
}

/// What is expected of one class.
#[derive(Debug, Clone, PartialEq)]
struct Cell {
    end: End,
    /// Requests that reached the provider.
    sends: RangeInclusive<u64>,
    /// Questions that reached it.
    lookups: RangeInclusive<u64>,
    /// What it did.
    effects: u64,
}

/// So many sends, lookups, effects; of lookups and sends a minimum is given where backoff decides about the rest.
fn cell(end: End, sends: u64, lookups: u64, effects: u64) -> Cell {
    Cell { end, sends: sends..=sends, lookups: lookups..=lookups, effects }
}

fn ranged(
    end: End,
    sends: RangeInclusive<u64>,
    lookups: RangeInclusive<u64>,
    effects: u64,
) -> Cell {
    Cell { end, sends, lookups, effects }
}

struct Row {
    name: &'static str,
    switches: Vec<Switch>,
    windows: Windows,
    pace: Pace,
    /// How long nobody looks after the run once the request was made. Milliseconds.
    down_ms: u64,
    /// In the order of [`Class::ALL`].
    cells: [Cell; 6],
}

impl Row {
    fn new(name: &'static str, switches: Vec<Switch>, cells: [Cell; 6]) -> Self {
        Self { name, switches, windows: WINDOWS, pace: Pace::Jump, down_ms: 0, cells }
    }

    fn within(self, windows: Windows) -> Self {
        Self { windows, ..self }
    }

    fn in_real_time(self) -> Self {
        Self { windows: REAL, pace: Pace::Real, ..self }
    }

    fn left_alone(self, down_ms: u64) -> Self {
        Self { down_ms, ..self }
    }
}

const HOUR: u64 = 3_600_000;
/// More moves than any of these windows leaves room for.
const MANY: u64 = 40;

fn once(fault: Fault) -> Switch {
    Switch::new(fault).times(1)
}

/// Done, and the answer is lost: whoever can ask learns it from the provider.
fn done_unseen(reads: u64) -> [Cell; 6] {
    [
        cell(End::Confirmed, 1, 1, 1),
        cell(End::Confirmed, 2, 0, 1),
        cell(End::Confirmed, 1, 1, 1),
        cell(End::Confirmed, 1, 1, 1),
        cell(End::Unknown, 1, 0, 1),
        cell(End::Confirmed, reads, 0, reads),
    ]
}

/// Not done, and no answer tells: asked for again only under the key, or on proof of absence.
fn not_done_unseen() -> [Cell; 6] {
    [
        cell(End::Confirmed, 2, 1, 1),
        cell(End::Confirmed, 2, 0, 1),
        ranged(End::Confirmed, 2..=2, 3..=9, 1),
        ranged(End::Unknown, 1..=1, 4..=MANY, 0),
        cell(End::Unknown, 1, 0, 0),
        cell(End::Confirmed, 2, 0, 1),
    ]
}

fn all(end: End, sends: u64, effects: u64) -> [Cell; 6] {
    std::array::from_fn(|_| cell(end, sends, 0, effects))
}

/// The cells, with that of one class replaced.
fn but(mut cells: [Cell; 6], class: Class, other: Cell) -> [Cell; 6] {
    let at = Class::ALL.iter().position(|known| *known == class).unwrap();
    cells[at] = other;
    cells
}

fn answers() -> Vec<Row> {
    use Fault::{CommitThen500, CommitThenDrop, DropBeforeCommit, Fail500};
    let stored_500 =
        but(not_done_unseen(), Class::KeyLookup, ranged(End::Failed("absent"), 1..=1, 3..=9, 0));
    vec![
        Row::new("nothing", vec![], all(End::Confirmed, 1, 1)),
        Row::new("commit_then_drop", vec![once(CommitThenDrop)], done_unseen(2)),
        Row::new(
            "commit_then_500 saved",
            vec![once(CommitThen500).value("saved")],
            // The key replays the error for as long as it lives, so without a lookup nobody ever learns more.
            but(done_unseen(2), Class::Key, ranged(End::Unknown, 3..=MANY, 0..=0, 1)),
        ),
        Row::new(
            "commit_then_500 unsaved",
            vec![once(CommitThen500).value("unsaved")],
            done_unseen(2),
        ),
        // Under a key that is declared to repeat the first answer, absence makes the error the truth.
        Row::new("fail_500 unsaved", vec![once(Fail500).value("unsaved")], stored_500.clone()),
        Row::new(
            "fail_500 saved",
            vec![once(Fail500).value("saved")],
            but(stored_500, Class::Key, ranged(End::Unknown, 3..=MANY, 0..=0, 0)),
        ),
        Row::new("503", vec![once(Fault::Status).value(503)], not_done_unseen()),
        Row::new("drop_before_commit", vec![once(DropBeforeCommit)], not_done_unseen()),
        Row::new(
            "storm_429, twice",
            vec![Switch::new(Fault::Storm429).times(2)],
            all(End::Confirmed, 3, 1),
        ),
        Row::new(
            "storm_429",
            vec![Switch::new(Fault::Storm429)],
            all(End::Failed("exhausted"), 3, 0),
        ),
        Row::new("decline_402", vec![once(Fault::Decline402)], all(End::Failed("http_402"), 1, 0)),
        Row::new(
            "wrong_amount",
            vec![once(Fault::WrongAmount)],
            but(all(End::Held, 1, 1), Class::Read, cell(End::Confirmed, 1, 0, 1)),
        ),
    ]
}

fn bodies() -> Vec<Row> {
    let cut_off = |fault| {
        // Nothing that this read declares would have been in the rest: it is taken, cut off.
        Row::new("", vec![once(fault)], done_unseen(1))
    };
    vec![
        Row { name: "huge_body", ..cut_off(Fault::HugeBody) },
        Row { name: "endless_body", ..cut_off(Fault::EndlessBody) },
        Row::new("invalid_json", vec![once(Fault::InvalidJson)], done_unseen(2)),
        Row::new("duplicate_key_json", vec![once(Fault::DuplicateKeyJson)], done_unseen(2)),
    ]
}

fn lookups() -> Vec<Row> {
    let dropped = || once(Fault::CommitThenDrop);
    // A key makes sending again the safe answer to a lookup that finds nothing or fails.
    let resent = |cells| but(cells, Class::KeyLookup, cell(End::Confirmed, 2, 1, 1));
    let asked = |cells, end, lookups: RangeInclusive<u64>| {
        let asked = ranged(end, 1..=1, lookups, 1);
        but(but(cells, Class::Lookup, asked.clone()), Class::Lagging, asked)
    };
    vec![
        Row::new(
            "lookup_lag",
            vec![dropped(), Switch::new(Fault::LookupLagMs).value(40_000)],
            asked(resent(done_unseen(2)), End::Confirmed, 2..=5),
        ),
        Row::new(
            "lookup_flapping",
            vec![dropped(), Switch::new(Fault::LookupFlapping)],
            asked(resent(done_unseen(2)), End::Confirmed, 2..=2),
        ),
        Row::new(
            "lookup_error, twice",
            vec![dropped(), Switch::new(Fault::LookupError).times(2)],
            asked(resent(done_unseen(2)), End::Confirmed, 3..=3),
        ),
        Row::new(
            "lookup_error",
            vec![dropped(), Switch::new(Fault::LookupError)],
            asked(resent(done_unseen(2)), End::Unknown, 4..=MANY),
        ),
    ]
}

fn keys() -> Vec<Row> {
    let dropped = || once(Fault::CommitThenDrop);
    let ignored = || Switch::new(Fault::IgnoreKeys);
    let twice_done = |lookups| cell(End::Confirmed, 2, lookups, 2);
    vec![
        Row::new(
            "key forgotten",
            vec![dropped(), Switch::new(Fault::ForgetKeysAfterMs).value(24 * HOUR)],
            but(done_unseen(2), Class::Key, cell(End::Unknown, 1, 0, 1)),
        )
        .within(Windows { horizon: "48h", ..WINDOWS })
        .left_alone(25 * HOUR),
        // A false declaration: the file says that the provider honours the key. Where that is all there is to rely on,
        // the effect happens twice, and only the number of attempts in the listing shows that it may have.
        Row::new(
            "key ignored",
            vec![dropped(), ignored()],
            but(done_unseen(2), Class::Key, twice_done(0)),
        ),
        // And where the lookup is behind, the key is relied on too.
        Row::new(
            "key ignored, lookup_lag",
            vec![dropped(), ignored(), Switch::new(Fault::LookupLagMs).value(40_000)],
            but(
                but(
                    but(
                        but(done_unseen(2), Class::Key, twice_done(0)),
                        Class::KeyLookup,
                        twice_done(1),
                    ),
                    Class::Lookup,
                    ranged(End::Confirmed, 1..=1, 2..=5, 1),
                ),
                Class::Lagging,
                ranged(End::Confirmed, 1..=1, 2..=5, 1),
            ),
        ),
    ]
}

fn times() -> Vec<Row> {
    let late = [
        ranged(End::Confirmed, 1..=6, 1..=8, 1),
        ranged(End::Confirmed, 2..=8, 0..=0, 1),
        ranged(End::Confirmed, 1..=1, 1..=8, 1),
        ranged(End::Confirmed, 1..=1, 1..=8, 1),
        cell(End::Unknown, 1, 0, 1),
        cell(End::Confirmed, 2, 0, 2),
    ];
    vec![
        Row::new(
            "answered after the timeout",
            vec![once(Fault::DelayAfterCommitMs).value(30_000)],
            done_unseen(2),
        )
        .within(IMPATIENT),
        Row::new(
            "committed after the timeout",
            vec![once(Fault::DelayMs).value(3_000)],
            late.clone(),
        )
        .in_real_time(),
        Row::new("hold_then_commit_late", vec![once(Fault::HoldThenCommitLateMs).value(700)], late)
            .in_real_time(),
    ]
}

/// Tries every row with a tool of this class.
fn check(class: Class) {
    let column = Class::ALL.iter().position(|known| *known == class).unwrap();
    let rows = [answers(), bodies(), lookups(), keys(), times()].into_iter().flatten();
    run(async move {
        let turns = Arc::new(Semaphore::new(CONCURRENT));
        let mut cells = JoinSet::new();
        for row in rows {
            let turns = Arc::clone(&turns);
            cells.spawn(async move {
                let _turn = turns.acquire().await.unwrap();
                let problems = try_cell(class, &row, &row.cells[column]).await;
                problems.into_iter().map(move |problem| format!("{}: {problem}", row.name))
            });
        }
        let problems: Vec<String> = cells.join_all().await.into_iter().flatten().collect();
        assert!(problems.is_empty(), "{class:?}:\n{}", problems.join("\n"));
    });
}

/// What is wrong with a cell, as far as that can be said without stopping.
async fn try_cell(class: Class, row: &Row, cell: &Cell) -> Vec<String> {
    let host = Host::start(one_refund(class, row.windows).switches(row.switches.clone())).await;
    let mut end = host.run("run-1", order("order-1", vec![ask("refund", "order-1", 1_000)])).await;
    if matches!(end, RunEnd::Waiting { .. }) {
        host.advance(row.down_ms).await;
        end = host.finish("run-1", row.pace).await;
    }
    if row.pace == Pace::Real {
        host.committed(class.counted_as(), cell.effects).await;
    }
    let counted = host.counted(class.counted_as()).await;
    let lookups = host.counted("refund_lookup").await.requests;
    let (sends, effects) = (counted.requests, counted.effects);
    let mut problems = Vec::new();
    if !cell.sends.contains(&sends) || !cell.lookups.contains(&lookups) || cell.effects != effects {
        problems.push(format!(
            "{sends} sends, {lookups} lookups, {effects} effects; expected {:?}, {:?}, {}",
            cell.sends, cell.lookups, cell.effects
        ));
    }
    problems.extend(end_problem(&host, &end, cell.end).await);
    problems.extend(ledger_problems(class, &host, sends).await);
    problems
}

async fn end_problem(host: &Host, end: &RunEnd, expected: End) -> Option<String> {
    let effect = host.effect("run-1").await;
    let told = match (expected, end) {
        (End::Confirmed, RunEnd::Completed(output)) => {
            effect.state == State::Confirmed
                && effect.hold.is_none()
                && output["notes"][0]["effect_id"] == effect.id.as_str()
        }
        (End::Held, RunEnd::Halted { why }) => {
            effect.state == State::Confirmed
                && matches!(effect.hold, Some(Hold::Discrepancy(_)))
                && why.contains(effect.id.as_str())
        }
        (End::Failed(code), RunEnd::Completed(output)) => {
            effect.state == State::Failed && output["notes"][0]["failed"] == code
        }
        (End::Unknown, RunEnd::Halted { why }) => {
            effect.state == State::Unknown && why.contains(effect.id.as_str())
        }
        (
            End::Confirmed | End::Held | End::Failed(_) | End::Unknown,
            RunEnd::Completed(_)
            | RunEnd::Failed { .. }
            | RunEnd::Cancelled { .. }
            | RunEnd::Stuck { .. }
            | RunEnd::Waiting { .. }
            | RunEnd::Halted { .. }
            | RunEnd::Quarantined
            | RunEnd::Elsewhere,
        ) => false,
    };
    let said = effect.last_error.as_deref();
    (!told).then(|| format!("{} ({said:?}), {end:?}; expected {expected:?}", effect.state))
}

/// What holds whatever the fault: the chain, the listing and the provider tell the same story.
async fn ledger_problems(class: Class, host: &Host, sends: u64) -> Vec<String> {
    let mut problems = Vec::new();
    let entries = host.history("run-1").await;
    if entries.iter().any(|entry| entry.body.contains(API_KEY)) {
        problems.push("an entry holds the provider's key (I10)".to_owned());
    }
    let events = host.effect_events("run-1").await;
    let requested = events.iter().filter(|(_, e)| matches!(e, EffectEvent::Requested(_))).count();
    let listed = host.listed("run-1").await;
    let [row] = listed.as_slice() else {
        return vec![format!("{} effects are listed", listed.len())];
    };
    if requested as u64 != sends || u64::from(row.attempts) != sends {
        problems.push(format!(
            "{sends} sends, {requested} REQUESTED entries, {} attempts listed (I3)",
            row.attempts
        ));
    }
    let effect = host.effect("run-1").await;
    if (row.state, row.held) != (effect.state, effect.hold.is_some()) {
        problems.push(format!("listed as {}, held {}", row.state, row.held));
    }
    let counted = host.counted(class.counted_as()).await;
    let keys: Vec<&String> = counted.deliveries_per_key.keys().collect();
    let expected = match class {
        Class::KeyLookup | Class::Key => vec![&effect.proposal.provider_key],
        Class::Lookup | Class::Lagging | Class::Neither | Class::Read => Vec::new(),
    };
    if keys != expected {
        problems.push(format!("sent under {keys:?} instead of {expected:?} (I2)"));
    }
    problems.extend(receipt_problem(&effect));
    problems
}

/// A receipt names what the provider made for this very request.
fn receipt_problem(effect: &Effect) -> Option<String> {
    let receipt = effect.receipt.as_ref()?;
    let named = receipt.external_id.as_deref().is_some_and(|id| id.starts_with("re_"));
    if receipt.request_hash == effect.proposal.request_hash && (named || effect.contract().read) {
        return None;
    }
    Some(format!("its receipt is for {}, {:?}", receipt.request_hash, receipt.external_id))
}

#[test]
fn key_and_lookup() {
    check(Class::KeyLookup);
}

#[test]
fn key_only() {
    check(Class::Key);
}

#[test]
fn strong_lookup_only() {
    check(Class::Lookup);
}

#[test]
fn lagging_lookup_only() {
    check(Class::Lagging);
}

#[test]
fn neither_key_nor_lookup() {
    check(Class::Neither);
}

#[test]
fn reads() {
    check(Class::Read);
}
