//! The command with its ledger on a Postgres server: the same runs, kills and answers as on a file.

use serde_json::json;
use twice_test_postgres::{Cluster, Database, PASSWORD};
use twice_tests::project::{Project, Provider, Worker, for_each};

use super::shop::{
    REFUND, REFUND_AND_TELL, TWICE, check_resumed_again, check_settled, history, order, shop_in,
    start, start_with,
};

const RUN: &str = "run-1";

fn shop(provider: &Provider, database: &Database<'_>) -> Project {
    let project = Project::init(TWICE).at(provider);
    let project = shop_in(project.with_env("TWICE_DATABASE_URL", &database.url()));
    assert!(!project.root().join("twice.db").exists(), "the ledger is a file all the same");
    project
}

#[test]
fn a_killed_worker_is_followed_by_one_that_pays_nothing_twice() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let provider = Provider::start();
    let database = Cluster::shared().database();
    let project = shop(&provider, &database);
    // The provider has paid, and nobody has written it down.
    let args = start(REFUND_AND_TELL, &order("order-1"), RUN);
    let worker = project.spawn(&args, &[("TWICE_TEST_KILL", "after-reply:1")]).finish();
    assert_eq!(worker.code, None, "it was to be killed: {worker}");
    let shown = project.json(&["effects", "list", "--run", RUN]);
    assert_eq!(shown.as_array().map(Vec::len), Some(1), "{shown:#}");
    assert_eq!(provider.requests("refund"), 1);

    let resumed = project.ok(&["runs", "resume", RUN]);
    assert!(resumed.contains("completed"), "{resumed}");
    check_settled(&project, RUN);
    let operations = provider.counters().operations;
    for operation in ["refund", "message"] {
        let counted = &operations[operation];
        assert_eq!((counted.effects, counted.duplicates), (1, 0), "{operation}: {counted:?}");
    }
    check_resumed_again(&project, &provider, RUN);
    let runs = project.json(&["runs", "list"]);
    assert_eq!(
        (runs[0]["run_id"].as_str(), runs[0]["state"].as_str()),
        (Some(RUN), Some("completed")),
        "{runs:#}"
    );
    assert_eq!(project.json(&["effects", "list", "--waiting"]), json!([]));
}

#[test]
fn many_workers_share_a_server() {
    let provider = Provider::start();
    let database = Cluster::shared().database();
    let project = shop(&provider, &database);
    let jobs = (0..12).map(|number| (format!("run-{number}"), number)).collect();
    for_each(jobs, 4, |number: u32| {
        let run = format!("run-{number}");
        let args = start(REFUND, &order(&format!("order-{number}")), &run);
        // Each is started by two at once.
        let workers: Vec<Worker> = (0..2).map(|_| project.spawn(&args, &[])).collect();
        for worker in workers {
            let ran = worker.finish();
            assert_eq!(ran.code, Some(0), "{ran}");
        }
        check_settled(&project, &run);
    });
    let refunds = &provider.counters().operations["refund"];
    assert_eq!((refunds.effects, refunds.duplicates), (12, 0));
    assert_eq!(refunds.requests, 12);
}

/// A server that is stopped takes nothing with it, and a command says what is wrong.
#[test]
fn a_server_that_is_away_is_said_to_be() {
    let provider = Provider::start();
    let cluster = Cluster::start();
    let database = cluster.database();
    let project = shop(&provider, &database);
    project.ok(&start_with(REFUND, &order("order-1"), RUN, &["--detach"]));
    let before = history(&project.run(RUN)).clone();
    cluster.stop();
    let refused = project.twice(&["runs", "resume", RUN]);
    assert_eq!(refused.code, Some(1), "{refused}");
    for part in ["cannot open the ledger postgres://127.0.0.1", "PostgreSQL server runs there"] {
        assert!(refused.stderr.contains(part), "{refused}");
    }
    assert!(!refused.stderr.contains(PASSWORD), "{refused}");
    cluster.go_on();
    assert_eq!(history(&project.run(RUN)), &before);
    project.ok(&["runs", "resume", RUN]);
    check_settled(&project, RUN);
    assert_eq!(provider.requests("refund"), 1);
}
