//! Turns: which of the due runs a worker gets, when the next one will be due, and how all of them stand.

use std::sync::Arc;
use std::time::Duration;

use twice_core::ids::WorkerId;
use twice_core::run::{Priority, RunState};
use twice_ledger::{
    ClaimOutcome, Ledger, NewRun, Overview, Started, Turn, Wanted, WorkerLoad, WorkflowLoad,
};

use crate::support::{Backend, LEASE_MS, all, append, by, change, name, new_run, parked, run_id};

fn urgency(number: i64) -> Priority {
    Priority::try_from(number).unwrap()
}

impl Backend {
    /// Starts a run of a workflow and leaves it to whoever takes it.
    async fn wait_for_turn(&self, id: &str, workflow: &str, priority: i64) {
        let new = NewRun {
            workflow: name(workflow),
            priority: urgency(priority),
            ..new_run(id, self.at())
        };
        let started = self.ledger.start_run(new).await.unwrap();
        assert!(matches!(started, Started::Created(None)), "{}: {started:?}", self.name);
    }

    /// Takes the next run of a turn; its id, if there is one.
    async fn take(&self, turn: &Turn) -> Option<String> {
        let wanted = Wanted::Turn(turn.clone());
        match self.ledger.claim(&by("w1"), &wanted, self.at()).await.unwrap() {
            ClaimOutcome::Claimed(claim) => Some(claim.run.id.to_string()),
            ClaimOutcome::Nothing => None,
            ClaimOutcome::Quarantined(run) => panic!("{}: {run}", self.name),
        }
    }

    /// Takes all that is due, each in the turn after the last; their ids.
    async fn take_all(&self, not: &[&str]) -> Vec<String> {
        let mut turn = Turn { after: None, not: not.iter().map(|text| name(text)).collect() };
        let mut taken = Vec::new();
        while let Some(id) = self.take(&turn).await {
            let run = self.ledger.run(&run_id(&id)).await.unwrap().unwrap();
            turn.after = Some(run.workflow);
            taken.push(id);
        }
        taken
    }
}

#[tokio::test]
async fn a_flood_of_one_workflow_starves_no_other() {
    for backend in all().await {
        for run in 0..40 {
            backend.wait_for_turn(&format!("flood-{run:02}"), "flood", 0).await;
        }
        for run in 0..3 {
            backend.wait_for_turn(&format!("b-{run}"), "b", 0).await;
            backend.wait_for_turn(&format!("z-{run}"), "z", 0).await;
        }
        let taken = backend.take_all(&[]).await;
        let first = ["b-0", "flood-00", "z-0", "b-1", "flood-01", "z-1", "b-2", "flood-02", "z-2"];
        assert_eq!(taken[..9], first, "{}", backend.name);
        assert_eq!(taken[9..12], ["flood-03", "flood-04", "flood-05"], "{}", backend.name);
        assert_eq!(taken.len(), 46, "{}", backend.name);
    }
}

#[tokio::test]
async fn the_urgent_goes_first_and_equals_take_turns() {
    for backend in all().await {
        for (id, workflow, priority) in [
            ("a-idle", "a", -9),
            ("a-plain", "a", 0),
            ("a-late", "a", 0),
            ("b-urgent", "b", 9),
            ("b-plain", "b", 0),
            ("c-urgent", "c", 9),
            ("c-less", "c", 8),
        ] {
            backend.clock.advance(1);
            backend.wait_for_turn(id, workflow, priority).await;
        }
        let taken = backend.take_all(&[]).await;
        let order = ["b-urgent", "c-urgent", "c-less", "a-plain", "b-plain", "a-late", "a-idle"];
        assert_eq!(taken, order, "{}", backend.name);
    }
}

#[tokio::test]
async fn what_is_not_due_yet_is_not_urgent() {
    for backend in all().await {
        let new =
            NewRun { priority: urgency(9), claim: Some(by("w1")), ..new_run("r1", backend.at()) };
        let Started::Created(Some(claim)) = backend.ledger.start_run(new).await.unwrap() else {
            panic!("it is new")
        };
        backend.leave(&claim, RunState::Waiting, Some(backend.at().plus_ms(500))).await;
        backend.wait_for_turn("r2", "refunds", -3).await;
        assert_eq!(backend.take(&Turn::default()).await.as_deref(), Some("r2"));
        assert_eq!(backend.take(&Turn::default()).await, None, "{}", backend.name);
        backend.clock.advance(500);
        assert_eq!(backend.take(&Turn::default()).await.as_deref(), Some("r1"));
    }
}

#[tokio::test]
async fn workflows_at_their_limit_are_left_out() {
    for backend in all().await {
        backend.wait_for_turn("a-0", "a", 9).await;
        backend.wait_for_turn("b-0", "b", 0).await;
        backend.wait_for_turn("c-0", "c", 0).await;
        assert_eq!(backend.take_all(&["a", "b"]).await, ["c-0"], "{}", backend.name);
        assert_eq!(backend.take_all(&["b"]).await, ["a-0"], "{}", backend.name);
        assert_eq!(backend.take_all(&[]).await, ["b-0"], "{}", backend.name);
    }
}

#[tokio::test]
async fn a_priority_is_fixed_when_a_run_starts() {
    for backend in all().await {
        backend.wait_for_turn("r1", "refunds", 5).await;
        let again = NewRun { priority: urgency(-5), ..new_run("r1", backend.at()) };
        let Started::Existing(run) = backend.ledger.start_run(again).await.unwrap() else {
            panic!("{}: it was started before", backend.name)
        };
        assert_eq!(run.priority, urgency(5), "{}", backend.name);
        assert_eq!(backend.chain("r1").await.len(), 1, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_run_that_is_left_by_its_worker_takes_its_turn() {
    for backend in all().await {
        backend.wait_for_turn("r1", "a", 0).await;
        assert_eq!(backend.take(&Turn::default()).await.as_deref(), Some("r1"));
        backend.clock.advance(i64::try_from(LEASE_MS).unwrap());
        backend.wait_for_turn("r2", "a", 0).await;
        let taken = backend.take_all(&[]).await;
        assert_eq!(taken, ["r1", "r2"], "{}", backend.name);
    }
}

#[tokio::test]
async fn the_next_is_due_when_it_waits_no_longer_or_its_lease_is_over() {
    for backend in all().await {
        let next = || backend.ledger.next_due_ms();
        assert_eq!(next().await.unwrap(), None, "{}", backend.name);
        backend.wait_for_turn("r0", "refunds", 0).await;
        assert_eq!(next().await.unwrap(), None, "{}: what is due is not to come", backend.name);
        let claims = [
            backend.start_claimed("r1").await,
            backend.start_claimed("r2").await,
            backend.start_claimed("r3").await,
        ];
        assert_eq!(next().await.unwrap(), Some(LEASE_MS), "{}", backend.name);
        backend.leave(&claims[0], RunState::Waiting, Some(backend.at().plus_ms(70))).await;
        backend.leave(&claims[1], RunState::Ready, Some(backend.at().plus_ms(50))).await;
        backend.leave(&claims[2], RunState::Halted, Some(backend.at().plus_ms(10))).await;
        assert_eq!(next().await.unwrap(), Some(50), "{}", backend.name);
        backend.clock.advance(50);
        assert_eq!(next().await.unwrap(), Some(20), "{}", backend.name);
        backend.clock.advance(20);
        assert_eq!(next().await.unwrap(), None, "{}", backend.name);
    }
}

#[tokio::test]
async fn an_overview_counts_what_is_not_over() {
    for backend in all().await {
        assert_eq!(backend.ledger.overview().await.unwrap(), Overview::default());
        for (id, state, due) in [
            ("r-done", RunState::Completed, None),
            ("r-failed", RunState::Failed, None),
            ("r-halted", RunState::Halted, None),
            ("r-quarantined", RunState::Quarantined, None),
            ("r-later", RunState::Waiting, Some(60_000)),
            ("r-ready-later", RunState::Ready, Some(60_000)),
            ("r-never", RunState::Waiting, None),
            ("r-soon", RunState::Waiting, Some(100)),
        ] {
            let claim = backend.start_claimed(id).await;
            let due = due.map(|ms| backend.at().plus_ms(ms));
            backend.leave(&claim, state, due).await;
        }
        backend.start_claimed("r-left").await;
        backend.clock.advance(i64::try_from(LEASE_MS).unwrap() + 30);
        backend.start_claimed("r-held").await;
        backend.wait_for_turn("other", "other", 0).await;
        let by_refunds = WorkflowLoad {
            workflow: name("refunds"),
            ready: 2,
            running: 1,
            waiting: 3,
            halted: 1,
            stuck: 0,
            quarantined: 1,
            lag_ms: Some(LEASE_MS + 30 - 100),
        };
        let by_other = WorkflowLoad {
            workflow: name("other"),
            ready: 1,
            running: 0,
            waiting: 0,
            halted: 0,
            stuck: 0,
            quarantined: 0,
            lag_ms: Some(0),
        };
        let worker = WorkerLoad { worker: WorkerId::parse("w1").unwrap(), runs: 1 };
        let expected = Overview { workflows: vec![by_other, by_refunds], workers: vec![worker] };
        assert_eq!(backend.ledger.overview().await.unwrap(), expected, "{}", backend.name);
    }
}

/// Long enough for a notice that is there already, or is being brought by a server.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn there_is_notice_of_what_becomes_due_and_of_nothing_else() {
    for backend in all().await {
        let mut notices = backend.ledger.notices();
        let mut last = backend.ledger.notices();
        backend.start("r1").await;
        let told = tokio::time::timeout(SOON, notices.heard()).await;
        assert!(told.is_ok(), "{}: a start", backend.name);
        let claim = backend.claimed("w1", None).await;
        if backend.name == "server" {
            // Its own notice comes back from there, some time.
            continue;
        }
        last.heard().await;
        backend.ledger.append(append(&claim, vec![parked(backend.at())])).await.unwrap();
        backend.ledger.renew(&claim.run.id, claim.fence, LEASE_MS).await.unwrap();
        // A notice is there as soon as the write is answered.
        let silent = tokio::time::timeout(Duration::ZERO, last.heard()).await;
        assert!(silent.is_err(), "{}: a step of a run", backend.name);
        let mut over = append(&claim, vec![parked(backend.at())]);
        over.run_change = Some(change(RunState::Waiting, Some(backend.at().plus_ms(5))));
        backend.ledger.append(over).await.unwrap();
        let told = tokio::time::timeout(SOON, last.heard()).await;
        assert!(told.is_ok(), "{}: a run let go", backend.name);
    }
}

/// A worker of another process is told by the server, also after its connection was cut.
#[tokio::test]
async fn a_server_tells_other_ledgers() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = twice_test_postgres::Cluster::shared().database();
    let first = crate::postgres::ledger(&database).await;
    let second = crate::postgres::open(&database.url()).await.unwrap();
    let mut notices = second.notices();
    // The first notice of all: now it listens.
    tokio::time::timeout(SOON, notices.heard()).await.expect("it listens");
    let start = |id: &'static str| {
        let first = Arc::clone(&first);
        async move { first.start_run(new_run(id, twice_core::time::Timestamp(1))).await.unwrap() }
    };
    start("r1").await;
    tokio::time::timeout(SOON, notices.heard()).await.expect("the start is told");
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    assert_eq!(database.sql(cut).unwrap(), "1");
    tokio::time::timeout(SOON, notices.heard()).await.expect("it listens again");
    start("r2").await;
    tokio::time::timeout(SOON, notices.heard()).await.expect("the second start is told");
}
