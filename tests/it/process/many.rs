//! A thousand runs by three worker processes on one server, while workers are killed and frozen, the server is stopped, and
//! connections are cut around commits. What is drawn comes from a seed; when it happens, from how many runs are over.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use twice_core::effect::State;
use twice_core::run::RunState;
use twice_ledger::{LedgerOptions, SqlLedger};
use twice_test_postgres::{Cluster, Cut, Database, PASSWORD, Proxy, ROLE};
use twice_tests::crew::{CrewMember, Feeder, Outages, ProviderProcess, Takeovers, Work};
use twice_tests::dice::Dice;
use twice_tests::invariants::{Books, Tally, check};
use twice_tests::project::Project;

use super::shop::{REFUND, TWICE, order, shop_in};

const RUNS: usize = 1_000;
const PLACES: [usize; 3] = [0, 1, 2];
/// Fewer than one worker may have at a time: whoever is left alive has a place free for what is to be taken over.
const OPEN_MAX: usize = 24;
const CONCURRENCY: &str = "32";
/// Longer than the server lets a frozen transaction hold its rows (5 s) takes beyond a lease's last renewal.
const LEASE_MS: i64 = 5_000;
/// Time in which a worker that met no server looks again.
const AFTER_OUTAGE_MS: i64 = 4_000;
/// Longest time without progress. It ends a test that hangs, and decides nothing else.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    Freeze,
    StopServer,
    Cut(Cut),
}

/// How often each happens.
const FAULTS: [(Fault, usize); 5] = [
    (Fault::Kill, 12),
    (Fault::Freeze, 6),
    (Fault::StopServer, 3),
    (Fault::Cut(Cut::BeforeCommit), 8),
    (Fault::Cut(Cut::AfterCommit), 8),
];

/// Faults in the order of a seed.
fn schedule(dice: &mut Dice) -> Vec<Fault> {
    let mut faults: Vec<Fault> =
        FAULTS.iter().flat_map(|(fault, times)| vec![*fault; *times]).collect();
    for last in (1..faults.len()).rev() {
        let other = usize::try_from(dice.below(last as u64 + 1)).unwrap();
        faults.swap(last, other);
    }
    faults
}

#[expect(clippy::disallowed_methods, reason = "a seed that no earlier test has run")]
fn fresh() -> u64 {
    u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos())
}

/// Nothing at the provider hides a request that is sent twice: it honours no key, and can only be asked.
fn without_key(project: &Project) {
    let path = "tools/payments.toml";
    let text = std::fs::read_to_string(project.root().join(path)).unwrap();
    let (before, key) = text.split_once("[operation.refund.key]").unwrap();
    let (_, after) = key.split_once("[operation.refund.lookup]").unwrap();
    let before = before.replace("incidental =", "key = \"none\"\nincidental =");
    project.write(path, format!("{before}[operation.refund.lookup]{after}"));
}

/// What happens while the crew works.
struct Stage<'s> {
    project: &'s Project,
    cluster: &'s Cluster,
    database: &'s Database<'s>,
    takeovers: &'s Takeovers<'s>,
    feeder: &'s Feeder,
    lines: Vec<Proxy>,
    crew: Vec<CrewMember>,
    outages: Outages,
    started: usize,
}

impl Stage<'_> {
    fn worker(&mut self, place: usize) -> CrewMember {
        self.started += 1;
        let url = self.database.url_of(ROLE, PASSWORD, self.lines[place].port());
        let name = format!("worker-{}", self.started);
        CrewMember::start(self.project, &name, &url, &["--concurrency", CONCURRENCY])
    }

    /// Waits for what comes as long as runs come to their end, or leases to theirs.
    fn wait(&self, what: &str, there: impl Fn() -> bool) {
        let (mut deadline, mut over) = (Instant::now() + PATIENCE, self.feeder.over());
        while !there() {
            let now = self.feeder.over();
            if now != over {
                (deadline, over) = (Instant::now() + PATIENCE, now);
            }
            if Instant::now() > deadline {
                let logs: Vec<String> = self.crew.iter().map(CrewMember::said).collect();
                let open = self.database.sql("SELECT * FROM run WHERE state <> 'completed'");
                panic!("{what}: that never came\n{open:?}\n{}", logs.join("\n---\n"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn cause(&mut self, fault: Fault, place: usize) {
        match fault {
            Fault::Kill => {
                let next = self.worker(place);
                std::mem::replace(&mut self.crew[place], next).kill();
            }
            Fault::Freeze => {
                self.crew[place].freeze();
                let frozen = self.crew[place].id_prefix();
                // The others are still at it when it wakes.
                self.wait("its runs are taken over", || {
                    self.takeovers.from(&frozen) > 0 || self.takeovers.held_by(&frozen) == 0
                });
                self.crew[place].wake();
            }
            Fault::StopServer => {
                let from = self.takeovers.now_ms();
                self.cluster.stop();
                self.cluster.go_on();
                self.outages.add(from, self.takeovers.now_ms() + AFTER_OUTAGE_MS);
            }
            Fault::Cut(cut) => {
                self.lines[place].cut(cut);
                self.wait("a connection is cut", || self.lines[place].has_cut());
            }
        }
    }
}

#[test]
fn a_thousand_runs_outlive_whatever_happens_to_their_workers() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let seed = std::env::var("SEED").map_or_else(|_| fresh(), |seed| seed.parse().unwrap());
    eprintln!("seed={seed}");
    let mut dice = Dice::new(seed);
    let provider = ProviderProcess::start(TWICE, &["delay_ms=100", "delay_after_commit_ms=100"]);
    let cluster = Cluster::start();
    let database = cluster.database();
    let project = Project::init(TWICE)
        .with_env("PAYMENTS_URL", provider.url())
        .with_env("TWICE_LEASE_MS", &LEASE_MS.to_string())
        .with_env("TWICE_DATABASE_URL", &database.url());
    let project = shop_in(project);
    without_key(&project);
    let takeovers = Takeovers::note(&database);
    let feeder = Feeder::start(Work {
        project: project.root().to_owned(),
        url: database.url(),
        workflow: REFUND,
        runs: RUNS,
        open_max: OPEN_MAX,
        input: |number| order(&format!("order-{number}")),
    });
    let mut stage = Stage {
        project: &project,
        cluster: &cluster,
        database: &database,
        takeovers: &takeovers,
        feeder: &feeder,
        lines: PLACES.map(|_| Proxy::before(cluster.port())).into(),
        crew: Vec::new(),
        outages: Outages::default(),
        started: 0,
    };
    for place in PLACES {
        let worker = stage.worker(place);
        stage.crew.push(worker);
    }
    let faults = schedule(&mut dice);
    let every = RUNS / (faults.len() + 1);
    for (number, fault) in faults.iter().enumerate() {
        let at = (number + 1) * every;
        // Work goes on while a fault is under way, and waits for the next one.
        feeder.allow(at + every + OPEN_MAX);
        stage.wait("runs are over", || feeder.over() >= at);
        let place = *dice.one_of(&PLACES);
        stage.cause(*fault, place);
    }
    feeder.allow(RUNS);
    stage.wait("every run is over", || feeder.over() == RUNS);
    for member in std::mem::take(&mut stage.crew) {
        let (status, said) = member.dismiss();
        assert!(status.success(), "seed={seed}: {status}\n{said}");
    }
    check_takeovers(seed, &takeovers, &stage.outages);
    check_books(seed, &provider, &database);
}

/// No run stayed without a worker for as long as a lease, once its lease was over and a worker could have taken it.
fn check_takeovers(seed: u64, takeovers: &Takeovers<'_>, outages: &Outages) {
    let all = takeovers.all();
    let mut counted: Vec<_> = all.iter().filter(|takeover| outages.spare(takeover)).collect();
    counted.sort_by_key(|takeover| takeover.late_ms());
    // Otherwise the faults came to nothing.
    assert!(counted.len() >= PLACES.len(), "seed={seed}: {} takeovers", counted.len());
    let p99 = counted[(counted.len() * 99).div_ceil(100) - 1];
    eprintln!(
        "{} takeovers, {} counted; after the end of the lease: median {} ms, p99 {} ms",
        all.len(),
        counted.len(),
        counted[counted.len() / 2].late_ms(),
        p99.late_ms()
    );
    assert!(p99.late_ms() < LEASE_MS, "seed={seed}: {p99:?}");
    let early = counted.iter().find(|takeover| takeover.late_ms() < 0);
    assert!(early.is_none(), "seed={seed}: a live lease was taken: {early:?} (I7)");
}

/// What the provider did and what the ledger says of it, run by run.
fn check_books(seed: u64, provider: &ProviderProcess, database: &Database<'_>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let counters = provider.counters().await;
        let refunds = counters.operations["refund"].clone();
        assert_eq!((refunds.effects, refunds.duplicates), (RUNS as u64, 0), "seed={seed}");
        let books = Books::from(refunds);
        let ledger = SqlLedger::open(&database.url(), LedgerOptions::default()).await.unwrap();
        let runs: Vec<_> = (0..RUNS).map(Feeder::run_id).collect();
        let at = format!("seed={seed}");
        let ended = check(&at, &ledger, &books, &runs).await;
        let ended = ended.unwrap_or_else(|broken| panic!("{broken}"));
        let mut tally = Tally::default();
        for run in &ended {
            assert_eq!(run.record.state, RunState::Completed, "{at}: {:?}", run.record);
            assert_eq!(run.effects.len(), 1, "{at}: {}", run.record.id);
            assert_eq!(run.effects[0].state, State::Confirmed, "{at}: {}", run.record.id);
            tally.count(run);
        }
        eprintln!("{tally:?}, {} requests for {RUNS} refunds", books.requests);
    });
}
