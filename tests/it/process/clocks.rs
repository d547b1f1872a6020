//! Whose clock it is that counts: the database's, in everything that workers write down and in everything that they judge by
//! it. No worker looks at its own machine's, so here the database's is off by minutes from all of theirs.

use twice_provider_sim::{Fault, Switch};
use twice_test_postgres::{Cluster, Database};
use twice_tests::project::{Project, Provider, for_each};

use super::shop::{REFUND, TWICE, check_settled, order, shop_in, start_with};

const MINUTES: i64 = 60_000;
const RUNS: usize = 12;
/// How far a worker's idea of the database's clock may be off: half the time that an answer takes, on the busiest machine.
const ERROR_MS: i64 = 2_000;

/// The database's clock can be set by what a table says.
const SETTABLE: &str = "
CREATE TABLE clock_offset (ms BIGINT NOT NULL);
INSERT INTO clock_offset VALUES (0);
GRANT SELECT ON clock_offset TO PUBLIC;
CREATE OR REPLACE VIEW clock AS
SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)
       + (SELECT o.ms FROM clock_offset o) AS now_ms;";

fn shop_on(provider: &Provider, database: &Database<'_>) -> Project {
    let project = Project::init(TWICE).at(provider);
    let project = shop_in(project.with_env("TWICE_DATABASE_URL", &database.url()));
    database.sql(SETTABLE).unwrap();
    project
}

fn set_clock(database: &Database<'_>, off_by_ms: i64) {
    database.sql(&format!("UPDATE clock_offset SET ms = {off_by_ms}")).unwrap();
}

fn number(database: &Database<'_>, question: &str) -> i64 {
    database.sql(question).unwrap().parse().unwrap()
}

fn record(project: &Project) -> Vec<String> {
    let ids: Vec<String> = (0..RUNS).map(|number| format!("run-{number}")).collect();
    let jobs = ids.iter().cloned().map(|run| (run.clone(), run)).collect();
    for_each(jobs, 2, |run: String| {
        project.ok(&start_with(REFUND, &order(&format!("order-of-{run}")), &run, &["--detach"]));
    });
    ids
}

#[track_caller]
fn check_all(project: &Project, provider: &Provider, runs: &[String]) {
    let jobs = runs.iter().map(|run| (run.clone(), run)).collect();
    for_each(jobs, 2, |run| check_settled(project, run));
    let refunds = &provider.counters().operations["refund"];
    assert_eq!((refunds.effects, refunds.duplicates), (RUNS as u64, 0), "{refunds:?}");
}

#[test]
fn instants_and_due_times_rest_on_the_databases_clock() {
    if twice_test_postgres::is_missing() {
        return;
    }
    for off_by_ms in [10 * MINUTES, -10 * MINUTES] {
        let provider = Provider::start();
        let database = Cluster::shared().database();
        // Shorter than the clocks differ, and longer than any machine is busy: no lease is over for another reason.
        let lease_ms = MINUTES.to_string();
        let project = shop_on(&provider, &database).with_env("TWICE_LEASE_MS", &lease_ms);
        set_clock(&database, off_by_ms);
        // Some have to wait before they ask again.
        provider.switch([Switch::new(Fault::Storm429).times(5)]);
        let began = number(&database, "SELECT now_ms FROM clock");
        let runs = record(&project);
        let crew: Vec<_> =
            (0..2).map(|_| project.spawn(&["worker", "--until-idle"], &[])).collect();
        for worker in crew {
            let ran = worker.finish();
            assert_eq!(ran.code, Some(0), "{ran}");
            assert!(!ran.stdout.contains("taken over"), "{ran}");
        }
        check_all(&project, &provider, &runs);
        let ended = number(&database, "SELECT now_ms FROM clock");
        let first = number(&database, "SELECT MIN(made_at) FROM ledger_entry");
        let last = number(&database, "SELECT MAX(made_at) FROM ledger_entry");
        assert!(began - ERROR_MS <= first, "{first} is {} ms before the start", began - first);
        assert!(last <= ended + ERROR_MS, "{last} is {} ms after the end", last - ended);

        let waits = "FROM ledger_entry p JOIN ledger_entry c ON c.run_id = p.run_id AND c.seq = p.seq + 1 \
                     WHERE p.kind = 'run_parked' AND c.kind = 'run_claimed'";
        let until = "CAST(CAST(p.body AS JSON) -> 'data' ->> 'until' AS BIGINT)";
        assert!(number(&database, &format!("SELECT COUNT(*) {waits}")) > 0, "none waited");
        let early = number(&database, &format!("SELECT MIN(c.made_at - {until}) {waits}"));
        assert!(early >= -ERROR_MS, "a run was taken {} ms before it was due", -early);
        let longest = number(&database, &format!("SELECT MAX({until} - p.made_at) {waits}"));
        assert!((0..MINUTES).contains(&longest), "a wait of {longest} ms was recorded");
    }
}

#[test]
fn a_databases_clock_that_jumps_makes_no_effect_happen_twice() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let provider = Provider::start();
    let database = Cluster::shared().database();
    let project = shop_on(&provider, &database);
    // Answers are kept, so that every run is under a lease when all leases are over at once.
    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(3)]);
    let runs = record(&project);
    let first = project.spawn(&["worker", "--until-idle"], &[]);
    provider.wait_until_paused();
    let second = project.spawn(&["worker", "--until-idle"], &[]);
    set_clock(&database, 60 * MINUTES);
    provider.go_on();
    for worker in [first, second] {
        let ran = worker.finish();
        assert_eq!(ran.code, Some(0), "{ran}");
    }
    check_all(&project, &provider, &runs);
}
