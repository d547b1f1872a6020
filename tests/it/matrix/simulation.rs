//! Random schedules. Most of them play in one thread under a clock of their own, thousands of them; some run against the
//! provider over HTTP. What the provider counted and what the ledger says are held against the invariants. `SEED=n` plays
//! the schedule of that seed alone, `SCHEDULES=n` so many.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use twice::engine::boundary::Boundary;
use twice_provider_sim::{Fault, Switch};
use twice_tests::dice::Dice;
use twice_tests::host::{Host, Pace, Setup, Store, run_id};
use twice_tests::invariants::{Books, Tally, check};
use twice_tests::world::schedule::{class_of, input, play_all, play_shapes, simulate, title};
use twice_tests::world::{Theatre, alone, crashes, run_ids, saga_schedules};

use super::run;
use super::tools::{Class, WINDOWS, Windows, for_each_within};

/// Schedules over HTTP.
const FIXED: u64 = 20;
const RUNS: u64 = 4;
/// Fewer than put a run into quarantine.
const CRASHES_MAX: u32 = 4;
/// Draws of one schedule; what is not done then is finished in order.
const DRAWS: u64 = 40;

#[expect(clippy::disallowed_methods, reason = "a seed that no earlier test has run")]
fn fresh() -> u64 {
    u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos())
}

fn told(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|number| number.parse().unwrap())
}

#[test]
fn thousands_of_schedules_keep_the_invariants() {
    match alone(play_all(told("SEED"), told("SCHEDULES"), fresh())) {
        Ok(summary) => println!("{summary}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn schedules_of_branches_loops_and_fan_outs_keep_the_invariants() {
    match alone(play_shapes(told("SEED"), told("SCHEDULES"), fresh())) {
        Ok(summary) => println!("{summary}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn schedules_of_runs_that_are_undone_keep_the_invariants() {
    match alone(saga_schedules::play_all(told("SEED"), told("SCHEDULES"), fresh())) {
        Ok(summary) => println!("{summary}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn each_crash_on_the_way_back_leaves_each_effect_undone_once() {
    match alone(crashes::sweep()) {
        Ok(size) => println!("{size}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn a_seed_tells_the_whole_story() {
    for seed in 0..10 {
        let play = || {
            let ended = alone(simulate(&Theatre::new(class_of(seed)), seed)).unwrap();
            // Every instant, every attempt, every lookup and every answer.
            format!("{ended:#?}")
        };
        assert_eq!(play(), play(), "{}", title(seed));
    }
}

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
            let probability = *dice.one_of(&[0.1, 0.3, 0.6]);
            chosen.push(switch.probability(probability, dice.number()));
        }
    }
    chosen
}

fn setup(dice: &mut Dice, class: Class) -> Setup {
    let store = if dice.one_in(4) { Store::Memory } else { Store::Sqlite };
    let windows = Windows { horizon: "4h", ..WINDOWS };
    for_each_within(class, windows, "").store(store).switches(switches(dice, class))
}

/// Whether a worker may vanish with this run once more.
async fn may_crash(host: &Host, id: &str) -> bool {
    let record = host.ledger.run(&run_id(id)).await.unwrap().unwrap();
    record.crashes < CRASHES_MAX
}

async fn schedule(dice: &mut Dice, host: &Arc<Host>, class: Class) {
    // Requests under way while a worker vanishes take real time too, which a proof of absence would jump over.
    let at_once = matches!(class, Class::Key | Class::Lagging | Class::Neither);
    for run in 0..RUNS {
        let (id, input) = (format!("run-{run}"), input(dice, run, at_once));
        if dice.one_in(3) {
            host.crash_run(&id, input, *dice.one_of(&Boundary::ALL), 1).await;
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
                host.crash_resume(&id, *dice.one_of(&Boundary::ALL), 1).await;
            }
            _ => drop(host.resume(&id).await),
        }
    }
    for run in 0..RUNS {
        host.outlive_lease().await;
        host.finish(&format!("run-{run}"), Pace::Jump).await;
    }
}

async fn over_http(seed: u64, tally: &mut Tally) {
    let (class, at) = (class_of(seed), title(seed));
    println!("{at}");
    let mut dice = Dice::new(seed);
    let host = Arc::new(Host::start(setup(&mut dice, class)).await);
    schedule(&mut dice, &host, class).await;
    let books = Books::from(host.counted("refund").await);
    match check(&at, &*host.ledger, &books, &run_ids(RUNS)).await {
        Ok(all) => all.iter().for_each(|ended| tally.count(ended)),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn schedules_over_http_keep_the_invariants() {
    let seeds =
        told("SEED").map_or_else(|| (0..FIXED).chain([fresh()]).collect(), |seed| vec![seed]);
    let mut tally = Tally::default();
    for seed in &seeds {
        run(over_http(*seed, &mut tally));
    }
    println!("{tally:?}");
    assert!(seeds.len() == 1 || tally.all_seen(), "{tally:?}");
}
