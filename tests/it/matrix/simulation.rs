//! Random schedules: providers that fail as they like, nodes that trap and ask otherwise after a restart, workers that
//! vanish, people who resume too early. What the provider counted and what the ledger says are held against the
//! invariants. `SEED=n` runs the schedule of that seed alone.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use twice::engine::RunEnd;
use twice::engine::boundary::Boundary;
use twice_core::effect::{Effect, State};
use twice_core::event::RunEvent;
use twice_core::run::RunState;
use twice_provider_sim::{Fault, OperationCounters, Switch};
use twice_tests::host::{Host, Pace, Setup, Store, run_id, steps};

use super::run;
use super::tools::{Class, WINDOWS, Windows, for_each_within, later, until_attempt};

const FIXED: u64 = 20;
const RUNS: u64 = 4;
/// Fewer than put a run into quarantine.
const CRASHES_MAX: u32 = 4;
/// Draws of one schedule; what is not done then is finished in order.
const DRAWS: u64 = 40;

/// `SplitMix64`.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// 0 to `n` − 1.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const CLASSES: [Class; 5] =
    [Class::KeyLookup, Class::Key, Class::Lookup, Class::Lagging, Class::Neither];

/// What the provider does wrong; nothing that the tool's declarations would make a lie of.
fn switches(dice: &mut Dice, class: Class) -> Vec<Switch> {
    let mut all = vec![
        Switch::new(Fault::CommitThenDrop),
        Switch::new(Fault::DropBeforeCommit),
        Switch::new(Fault::CommitThen500).value("saved"),
        Switch::new(Fault::CommitThen500).value("unsaved"),
        Switch::new(Fault::Fail500).value("saved"),
        Switch::new(Fault::Fail500).value("unsaved"),
        Switch::new(Fault::Storm429),
        Switch::new(Fault::Decline402),
        Switch::new(Fault::Status).value(503),
        Switch::new(Fault::HugeBody),
        Switch::new(Fault::InvalidJson),
        Switch::new(Fault::WrongAmount),
        Switch::new(Fault::LookupError),
        Switch::new(Fault::LookupLagMs).value(20_000),
    ];
    match class {
        // A commit in real time falls into a settle window that the clock jumps over; only a key bears that.
        Class::Key => all.push(Switch::new(Fault::HoldThenCommitLateMs).value(20)),
        // Only a lookup that is never taken for a proof may find nothing at will.
        Class::Lagging => all.push(Switch::new(Fault::LookupFlapping)),
        Class::KeyLookup | Class::Lookup | Class::Neither | Class::Read => {}
    }
    let mut chosen = Vec::new();
    for switch in all {
        if dice.one_in(3) {
            let probability = [0.1, 0.3, 0.6][usize::try_from(dice.below(3)).unwrap()];
            chosen.push(switch.probability(probability, dice.next()));
        }
    }
    chosen
}

/// A node with up to three effects that fails in between, and perhaps asks for another amount after a restart.
fn input(dice: &mut Dice, class: Class, run: u64) -> Value {
    let count = 1 + dice.below(3);
    let orders: Vec<Value> =
        (0..count).map(|item| json!({ "order_id": format!("order-{run}-{item}") })).collect();
    let request = |item: u64, cents: u64| {
        let order = format!("order-{run}-{item}");
        json!({ "slot": "refund", "item": item, "args": { "order_id": order, "amount_cents": cents } })
    };
    let single = |item: u64, cents: u64| {
        let mut step = request(item, cents);
        step["do"] = json!("request");
        step
    };
    // Requests under way while a worker vanishes take real time too, which a proof of absence would jump over.
    let at_once = matches!(class, Class::Key | Class::Lagging | Class::Neither) && dice.one_in(3);
    let mut todo = Vec::new();
    if at_once {
        let requests: Vec<Value> = (0..count).map(|item| request(item, 1_000)).collect();
        todo.push(json!({ "do": "request_all", "requests": requests }));
    }
    for item in 0..count {
        let attempt = u32::try_from(2 + dice.below(2)).unwrap();
        if dice.one_in(6) {
            todo.push(until_attempt(attempt, single(item, 1_000)));
            todo.push(until_attempt(attempt, later()));
            todo.push(single(item, 2_000));
        } else {
            todo.push(single(item, 1_000));
        }
        if dice.one_in(4) {
            todo.push(until_attempt(attempt, later()));
        }
        if dice.one_in(6) {
            todo.push(until_attempt(attempt, json!({ "do": "trap" })));
        }
    }
    if dice.one_in(8) {
        todo.push(json!({ "do": "fatal", "message": "no use" }));
    }
    steps(json!({ "orders": orders }), todo)
}

fn setup(dice: &mut Dice, class: Class) -> Setup {
    let windows = Windows { horizon: "4h", ..WINDOWS };
    let store = if dice.one_in(4) { Store::Memory } else { Store::Sqlite };
    for_each_within(class, windows, "").store(store).switches(switches(dice, class))
}

/// Whether a worker may vanish with this run once more.
async fn may_crash(host: &Host, id: &str) -> bool {
    let record = host.ledger.run(&run_id(id)).await.unwrap().unwrap();
    record.crashes < CRASHES_MAX
}

async fn schedule(dice: &mut Dice, host: &Arc<Host>, class: Class) {
    let boundary = |dice: &mut Dice| {
        Boundary::ALL[usize::try_from(dice.below(Boundary::ALL.len() as u64)).unwrap()]
    };
    for run in 0..RUNS {
        let (id, input) = (format!("run-{run}"), input(dice, class, run));
        if dice.one_in(3) {
            host.crash_run(&id, input, boundary(dice), 1).await;
        } else {
            host.run(&id, input).await;
        }
    }
    for _ in 0..DRAWS {
        let id = format!("run-{}", dice.below(RUNS));
        match dice.below(8) {
            0 | 1 => host.advance(dice.below(90_000)).await,
            2 if may_crash(host, &id).await => {
                host.outlive_lease().await;
                let at = boundary(dice);
                host.crash_resume(&id, at, 1).await;
            }
            _ => drop(host.resume(&id).await),
        }
    }
    for run in 0..RUNS {
        host.outlive_lease().await;
        host.finish(&format!("run-{run}"), Pace::Jump).await;
    }
}

/// What holds of one effect, by the provider's own count.
fn check_effect(
    context: &str,
    class: Class,
    effect: &Effect,
    counted: &OperationCounters,
    end: &RunEnd,
) {
    let object = effect.proposal.args["order_id"].as_str().unwrap();
    let done = counted.effects_per_object.get(object).copied().unwrap_or(0);
    let context = format!("{context}, {object}: {} ({:?})", effect.state, effect.last_error);
    assert!(done <= 1, "{context}: done {done} times (I1)");
    match effect.state {
        State::Confirmed => {
            assert_eq!(done, 1, "{context} (I5)");
            let receipt = effect.receipt.as_ref().unwrap();
            assert_eq!(receipt.request_hash, effect.proposal.request_hash, "{context} (I6)");
        }
        State::Failed => assert_eq!(done, 0, "{context} (I5)"),
        State::Unknown => assert!(matches!(end, RunEnd::Halted { .. }), "{context}: {end:?} (I11)"),
        State::Proposed | State::Authorized => {
            assert!(matches!(end, RunEnd::Halted { .. }), "{context}: {end:?} (I11)");
            assert_eq!(done, 0, "{context} (I5)");
        }
        State::Requested => panic!("{context}: nobody holds its run (I5)"),
    }
    if effect.hold.is_some() {
        assert!(!matches!(end, RunEnd::Completed(_)), "{context}: {end:?} (I6)");
    }
    let attempts = effect.attempts.len() as u64;
    if matches!(class, Class::KeyLookup | Class::Key) {
        let sent = counted.deliveries_per_key.get(&effect.proposal.provider_key).copied();
        assert!(
            sent.unwrap_or(0) <= attempts,
            "{context}: {sent:?} sends, {attempts} attempts (I3)"
        );
    }
    if class == Class::Neither {
        let in_doubt = effect.attempts.iter().rev().skip(1).any(|attempt| attempt.in_doubt());
        assert!(!in_doubt, "{context}: sent again in doubt (I1)");
    }
}

async fn check(context: &str, class: Class, host: &Host) {
    let counted = host.counted("refund").await;
    let (mut attempts, mut keys) = (0, Vec::new());
    for run in 0..RUNS {
        let id = format!("run-{run}");
        // Verifies the chain: every move legal, every permit and receipt for the request on record (I4, I6).
        host.history(&id).await;
        let record = host.ledger.run(&run_id(&id)).await.unwrap().unwrap();
        let end = host.engine.standing(&run_id(&id)).await.unwrap();
        let context = format!("{context}, {id}");
        let ended =
            [RunState::Completed, RunState::Failed, RunState::Halted].contains(&record.state);
        assert!(ended, "{context}: {end:?} (I11)");
        if record.state != RunState::Completed {
            assert!(record.reason.is_some_and(|why| !why.is_empty()), "{context} (I11)");
        }
        for effect in host.effects(&id).await {
            attempts += effect.attempts.len() as u64;
            keys.push(effect.proposal.provider_key.clone());
            check_effect(&context, class, &effect, &counted, &end);
        }
    }
    assert!(
        counted.requests <= attempts,
        "{context}: {} sends, {attempts} attempts (I3)",
        counted.requests
    );
    for key in counted.deliveries_per_key.keys() {
        assert!(keys.contains(key), "{context}: sent under {key}, which no effect has (I2)");
    }
}

/// What the schedules came to, so that it shows when they come to nothing.
#[derive(Debug, Default)]
struct Tally {
    confirmed: usize,
    failed: usize,
    unknown: usize,
    held: usize,
    sent_again: usize,
    takeovers: usize,
}

impl Tally {
    async fn count(&mut self, host: &Host) {
        for run in 0..RUNS {
            let id = format!("run-{run}");
            for effect in host.effects(&id).await {
                self.confirmed += usize::from(effect.state == State::Confirmed);
                self.failed += usize::from(effect.state == State::Failed);
                self.unknown += usize::from(effect.state == State::Unknown);
                self.held += usize::from(effect.hold.is_some());
                self.sent_again += usize::from(effect.attempts.len() > 1);
            }
            let events = host.run_events(&id).await;
            let takeover =
                |event: &&RunEvent| matches!(event, RunEvent::Claimed { takeover: true, .. });
            self.takeovers += events.iter().filter(takeover).count();
        }
    }

    const fn all_seen(&self) -> bool {
        let states = self.confirmed > 0 && self.failed > 0 && self.unknown > 0;
        states && self.held > 0 && self.sent_again > 0 && self.takeovers > 0
    }
}

async fn simulate(seed: u64, tally: &mut Tally) {
    let class = CLASSES[usize::try_from(seed % 5).unwrap()];
    let context = format!("seed={seed} ({class:?})");
    println!("{context}");
    let mut dice = Dice(seed);
    let host = Arc::new(Host::start(setup(&mut dice, class)).await);
    schedule(&mut dice, &host, class).await;
    check(&context, class, &host).await;
    tally.count(&host).await;
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the one schedule that no earlier test has run")]
fn random_schedules_keep_the_invariants() {
    let seeds: Vec<u64> = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            (0..FIXED).chain([u64::from(now.subsec_nanos())]).collect()
        }
    };
    let mut tally = Tally::default();
    for seed in &seeds {
        run(simulate(*seed, &mut tally));
    }
    println!("{tally:?}");
    assert!(seeds.len() == 1 || tally.all_seen(), "{tally:?}");
}
