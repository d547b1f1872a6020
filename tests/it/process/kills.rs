//! A hundred runs, each killed at some moment, some twice: each pays once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use twice_provider_sim::{Fault, Switch};
use twice_tests::project::{Project, Provider, for_each};

use super::shop::{REFUND, check_settled, history, order, shop, start};

const RUNS: usize = 100;
const AT_A_TIME: usize = 4;

/// Where a run was when its worker was killed.
#[derive(Default)]
struct Met {
    /// It was not even started.
    before: AtomicU32,
    /// It was under way.
    within: AtomicU32,
    /// It was over.
    after: AtomicU32,
    /// A second worker was killed as well.
    twice: AtomicU32,
}

/// Numbers from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Up to `longest`.
    fn delay(&mut self, longest: Duration) -> Duration {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        longest.mul_f64(share)
    }
}

/// Two moments of death: of the first worker, and, for some runs, of the second.
struct Deaths {
    first: Duration,
    second: Option<Duration>,
}

#[test]
fn a_run_killed_at_any_moment_pays_once() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(781);
    println!("seed={seed}");
    let mut draws = Draws(seed);
    let provider = Provider::start();
    // Killed while the provider has paid and not yet answered is what this is about; it should happen often.
    provider.switch([Switch::new(Fault::DelayAfterCommitMs).value(40)]);
    let project = shop(&provider);
    let duration = duration_of_a_run(&project);
    let jobs = (0..RUNS)
        .map(|number| {
            let first = draws.delay(duration);
            let second = (number % 3 == 0).then(|| draws.delay(duration));
            (format!("run-{number}"), (number, Deaths { first, second }))
        })
        .collect();
    let met = Met::default();
    for_each(jobs, AT_A_TIME, |(number, deaths)| {
        disturb(&project, &provider, number, &deaths, &met)
    });

    let [before, within, after, again] =
        [&met.before, &met.within, &met.after, &met.twice].map(|n| n.load(Ordering::Relaxed));
    println!(
        "killed before the start {before}, under way {within}, after the end {after}; again {again}"
    );
    assert!(within >= 10, "too few runs were met under way to prove anything: {within}");
    let counted = provider.counters();
    let refunds = &counted.operations["refund"];
    // One more was made to learn how long a run takes.
    assert_eq!((refunds.effects, refunds.duplicates), (RUNS as u64 + 1, 0));
    assert_eq!(refunds.effects_per_object.len(), RUNS + 1);
    let unsettled = project.json(&["effects", "list", "--waiting", "--limit", "1000"]);
    assert_eq!(unsettled, serde_json::json!([]));
}

/// What one run takes while as many others run as will.
fn duration_of_a_run(project: &Project) -> Duration {
    let started = Instant::now();
    project.ok(&start(REFUND, &order("order-alone"), "run-alone"));
    started.elapsed().mul_f64(1.5)
}

fn disturb(project: &Project, provider: &Provider, number: usize, deaths: &Deaths, met: &Met) {
    let run = format!("run-{number}");
    let args = start(REFUND, &order(&format!("order-{number}")), &run);
    let worker = project.spawn(&args, &[]);
    std::thread::sleep(deaths.first);
    let alive = worker.kill();
    let shown = project.twice(&["runs", "show", &run, "--json"]);
    let counter = match (shown.code, alive) {
        (Some(0), true) if shown.json()["run"]["state"] != "completed" => &met.within,
        (Some(0), _) => &met.after,
        _ => &met.before,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    if let Some(delay) = deaths.second {
        let worker = project.spawn(&args, &[]);
        std::thread::sleep(delay);
        met.twice.fetch_add(u32::from(worker.kill()), Ordering::Relaxed);
    }
    // Starting a run is idempotent: this resumes it, or starts it if the first worker never came so far.
    project.ok(&args);
    check_settled(project, &run);
    let before = history(&project.run(&run)).len();
    let requests = requests_about(provider, number);
    project.ok(&["runs", "resume", &run]);
    assert_eq!(history(&project.run(&run)).len(), before, "{run}: the second resume wrote");
    assert_eq!(requests_about(provider, number), requests, "{run}: the second resume sent");
}

/// How many refunds of this run's order were made; the others' numbers change meanwhile.
fn requests_about(provider: &Provider, number: usize) -> u64 {
    let refunds = &provider.counters().operations["refund"];
    let made = refunds.effects_per_object[&format!("order-{number}")];
    assert_eq!(made, 1, "order-{number}");
    made
}
