//! Locks on business objects: who has one, for how long, who waits, and what becomes of runs that wait for each other.

use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::Connection as _;
use twice_core::chain::Entry;
use twice_core::ids::Fence;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{
    Claim, Ledger, LedgerError, LedgerOptions, LockFilter, LockRow, Locked, ObjectLock,
    OperatorAppend, Prune, SqlLedger, Unlock, Waits,
};
use twice_test_postgres::Cluster;

use crate::support::{
    Backend, LEASE_MS, all, append, by, change, name, new_run, parked, run_id, verified_chain,
};

pub(crate) fn wanted(claim: &Claim, object: &str, expires_ms: Option<u64>) -> ObjectLock {
    ObjectLock {
        run: claim.run.id.clone(),
        fence: claim.fence,
        name: name("order"),
        object: object.to_owned(),
        expires_ms,
    }
}

impl Backend {
    async fn lock(&self, claim: &Claim, object: &str, expires_ms: Option<u64>) -> Locked {
        let wanted = wanted(claim, object, expires_ms);
        self.ledger.lock(wanted, self.at()).await.unwrap()
    }

    async fn lock_for_good(&self, claim: &Claim, object: &str) {
        let locked = self.lock(claim, object, None).await;
        assert_eq!(locked, Locked::Taken { until: None }, "{}", self.name);
    }

    async fn must_wait(&self, claim: &Claim, object: &str, holder: &str) {
        match self.lock(claim, object, None).await {
            Locked::Held { by, .. } => assert_eq!(by, run_id(holder), "{}", self.name),
            other => panic!("{}: {other:?}", self.name),
        }
    }

    async fn locks(&self) -> Vec<LockRow> {
        self.ledger.locks(&LockFilter::default()).await.unwrap()
    }

    async fn has(&self, object: &str) -> Option<String> {
        let filter = LockFilter { object: Some(object.to_owned()), ..LockFilter::default() };
        let mut found = self.ledger.locks(&filter).await.unwrap();
        assert!(found.len() < 2);
        found.pop().map(|lock| lock.run.to_string())
    }
}

fn data(entry: &Entry) -> Value {
    serde_json::from_str::<Value>(&entry.body).unwrap()["data"].clone()
}

#[tokio::test]
async fn one_run_has_a_lock_and_the_other_waits() {
    for backend in all().await {
        let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
        backend.lock_for_good(&one, "42").await;
        backend.clock.advance(5);
        let held = backend.lock(&two, "42", None).await;
        let since = backend.at();
        assert_eq!(held, Locked::Held { by: run_id("r1"), until: None, since });
        backend.lock_for_good(&two, "43").await;
        // Of another kind, and so another lock.
        let invoice = ObjectLock { name: name("invoice"), ..wanted(&two, "42", None) };
        let locked = backend.ledger.lock(invoice, backend.at()).await.unwrap();
        assert_eq!(locked, Locked::Taken { until: None });

        let listed = backend.locks().await;
        let names: Vec<_> = listed
            .iter()
            .map(|lock| (lock.name.as_str(), &*lock.object, lock.run.as_str()))
            .collect();
        let all = [("invoice", "42", "r2"), ("order", "42", "r1"), ("order", "43", "r2")];
        assert_eq!(names, all, "{}", backend.name);
        assert_eq!(listed[1].waiting, [(run_id("r2"), since)], "{}", backend.name);
        assert_eq!((listed[1].run_state, listed[1].expires_at), (RunState::Running, None));
        assert_eq!(listed[1].taken_at, Timestamp(since.0 - 5));
        let rest = LockFilter {
            after: Some((name("order"), "42".to_owned())),
            limit: 1,
            ..LockFilter::default()
        };
        assert_eq!(backend.ledger.locks(&rest).await.unwrap(), listed[2..]);
        let of_one = LockFilter { run: Some(run_id("r1")), ..LockFilter::default() };
        assert_eq!(backend.ledger.locks(&of_one).await.unwrap(), listed[1..2]);
    }
}

#[tokio::test]
async fn what_is_locked_is_an_entry_and_what_is_asked_for_in_vain_is_none() {
    for backend in all().await {
        let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
        backend.lock_for_good(&one, "42").await;
        backend.lock_for_good(&one, "42").await;
        backend.must_wait(&two, "42", "r1").await;
        let kinds = ["run_started", "run_claimed", "object_locked"];
        assert_eq!(backend.kinds("r1").await, kinds, "{}", backend.name);
        assert_eq!(backend.kinds("r2").await, kinds[..2], "{}", backend.name);
        let entry = backend.chain("r1").await.pop().unwrap();
        let told = json!({ "name": "order", "object": "42", "until": null });
        assert_eq!((data(&entry), entry.fence), (told, Fence(1)), "{}", backend.name);
        // The lease goes on, and with it what the session writes.
        backend.ledger.append(append(&one, vec![parked(backend.at())])).await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_is_free_when_its_run_is_over_and_not_before() {
    for backend in all().await {
        for (number, end) in [RunState::Completed, RunState::Failed].into_iter().enumerate() {
            let (holder, other) = (format!("holder-{number}"), format!("other-{number}"));
            let one = backend.start_claimed(&holder).await;
            let two = backend.start_claimed(&other).await;
            let object = format!("order-{number}");
            backend.lock_for_good(&one, &object).await;
            backend.leave(&one, RunState::Halted, None).await;
            backend.must_wait(&two, &object, &holder).await;
            let head = backend.ledger.head(&one.run.id).await.unwrap();
            let released = OperatorAppend {
                run: one.run.id.clone(),
                entries: vec![parked(backend.at())],
                effects: Vec::new(),
                run_change: Some(change(RunState::Ready, None)),
                expected_head: head,
            };
            backend.ledger.append_as_operator(released).await.unwrap();
            backend.must_wait(&two, &object, &holder).await;
            let one = backend.claimed("w2", Some(&holder)).await;
            backend.must_wait(&two, &object, &holder).await;
            let before = backend.ledger.commits();
            backend.leave(&one, end, None).await;
            assert_eq!(backend.ledger.commits(), before + 1, "{}", backend.name);
            assert_eq!(backend.has(&object).await, None, "{}", backend.name);
            backend.lock_for_good(&two, &object).await;
        }
    }
}

#[tokio::test]
async fn a_vanished_worker_leaves_the_lock_with_its_run() {
    for backend in all().await {
        let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
        backend.lock_for_good(&one, "42").await;
        backend.clock.advance(LEASE_MS as i64 * 10);
        let two = backend.claimed("w2", Some(two.run.id.as_str())).await;
        backend.must_wait(&two, "42", "r1").await;
        // Whoever goes on with the run has it, and the worker that lost the run takes none.
        let again = backend.claimed("w3", Some("r1")).await;
        backend.lock_for_good(&again, "42").await;
        for object in ["42", "43"] {
            let late = backend.ledger.lock(wanted(&one, object, None), backend.at()).await;
            assert!(matches!(late, Err(LedgerError::Fenced { .. })), "{}: {late:?}", backend.name);
        }
        assert_eq!(backend.has("43").await, None, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_lock_that_expires_may_be_taken_by_another_run() {
    for backend in all().await {
        let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
        let start = backend.at();
        let until = Some(start.plus_ms(1_000));
        assert_eq!(backend.lock(&one, "42", Some(1_000)).await, Locked::Taken { until });
        backend.clock.advance(999);
        let Locked::Held { until: told, .. } = backend.lock(&two, "42", None).await else {
            panic!("{}: it is not over", backend.name)
        };
        assert_eq!(told, until);
        backend.clock.advance(1);
        let longer = backend.at().plus_ms(500);
        let taken = backend.lock(&two, "42", Some(500)).await;
        assert_eq!(taken, Locked::Taken { until: Some(longer) }, "{}", backend.name);
        let entry = backend.chain("r2").await.pop().unwrap();
        let told = json!({ "name": "order", "object": "42", "until": longer.0, "expired": "r1" });
        assert_eq!(data(&entry), told, "{}", backend.name);
        // The run that had it waits now, and its end takes nothing from the other.
        assert!(matches!(backend.lock(&one, "42", None).await, Locked::Held { .. }));
        backend.leave(&one, RunState::Completed, None).await;
        let listed = backend.locks().await;
        assert_eq!(listed.len(), 1);
        assert_eq!((&listed[0].run, listed[0].taken_at), (&run_id("r2"), start.plus_ms(1_000)));
        assert!(listed[0].waiting.is_empty(), "{}: {listed:?}", backend.name);
    }
}

#[tokio::test]
async fn taking_a_lock_again_makes_it_longer_and_never_shorter() {
    for backend in all().await {
        let one = backend.start_claimed("r1").await;
        let start = backend.at();
        let until = |ms| Locked::Taken { until: Some(start.plus_ms(ms)) };
        assert_eq!(backend.lock(&one, "42", Some(1_000)).await, until(1_000));
        backend.clock.advance(400);
        assert_eq!(backend.lock(&one, "42", Some(500)).await, until(1_000));
        assert_eq!(backend.lock(&one, "42", Some(1_000)).await, until(1_400));
        // Over, and nobody else asked.
        backend.clock.advance(2_000);
        assert_eq!(backend.lock(&one, "42", Some(100)).await, until(2_500));
        assert_eq!(backend.lock(&one, "42", None).await, Locked::Taken { until: None });
        assert_eq!(backend.lock(&one, "42", Some(9_000)).await, Locked::Taken { until: None });
        let kinds = backend.kinds("r1").await;
        let written = kinds.iter().filter(|kind| *kind == "object_locked").count();
        assert_eq!(written, 4, "{}: {kinds:?}", backend.name);
        assert_eq!(backend.locks().await[0].taken_at, start, "{}", backend.name);
    }
}

fn waits(run: &str, object: &str) -> Waits {
    Waits { run: run_id(run), name: name("order"), object: object.to_owned() }
}

#[tokio::test]
async fn of_runs_that_wait_for_each_other_the_last_is_told() {
    for backend in all().await {
        let mut claims = Vec::new();
        for number in 1..=3 {
            let claim = backend.start_claimed(&format!("r{number}")).await;
            backend.lock_for_good(&claim, &number.to_string()).await;
            claims.push(claim);
        }
        // Waits for one of the circle, and is no part of it.
        let bystander = backend.start_claimed("r0").await;
        backend.must_wait(&bystander, "1", "r1").await;
        backend.clock.advance(1);
        backend.must_wait(&claims[0], "2", "r2").await;
        backend.clock.advance(1);
        backend.must_wait(&claims[1], "3", "r3").await;
        backend.clock.advance(1);
        let circle = vec![waits("r3", "1"), waits("r1", "2"), waits("r2", "3")];
        let last = backend.lock(&claims[2], "1", None).await;
        assert_eq!(last, Locked::Deadlock { circle }, "{}", backend.name);
        // The others wait on, and the one that was told waits for nothing.
        backend.must_wait(&claims[0], "2", "r2").await;
        backend.must_wait(&claims[1], "3", "r3").await;
        backend.must_wait(&bystander, "1", "r1").await;
        let waiting: Vec<usize> =
            backend.locks().await.iter().map(|lock| lock.waiting.len()).collect();
        assert_eq!(waiting, [1, 1, 1], "{}", backend.name);
        backend.leave(&claims[2], RunState::Failed, None).await;
        backend.lock_for_good(&claims[1], "3").await;
    }
}

/// Two looks at once may each miss the other. When they look again, one is told, and it is the same one whoever looks first.
#[tokio::test]
async fn a_circle_that_nobody_saw_closing_is_found_later_by_one_run() {
    for first in ["r1", "r2"] {
        for backend in all().await {
            let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
            backend.lock_for_good(&one, "1").await;
            backend.lock_for_good(&two, "2").await;
            backend.clock.advance(1);
            backend.must_wait(&one, "2", "r2").await;
            // Taken up by a person's decision and not asked since: its wait does not count just now.
            backend.leave(&one, RunState::Halted, None).await;
            let decided = OperatorAppend {
                run: one.run.id.clone(),
                entries: vec![parked(backend.at())],
                effects: Vec::new(),
                run_change: Some(change(RunState::Ready, None)),
                expected_head: backend.ledger.head(&one.run.id).await.unwrap(),
            };
            backend.ledger.append_as_operator(decided).await.unwrap();
            backend.clock.advance(1);
            backend.must_wait(&two, "1", "r1").await;
            backend.clock.advance(1);
            let one = backend.claimed("w2", Some("r1")).await;
            let mut told = Vec::new();
            for run in if first == "r1" { ["r1", "r2"] } else { ["r2", "r1"] } {
                let (claim, object) = if run == "r1" { (&one, "2") } else { (&two, "1") };
                if matches!(backend.lock(claim, object, None).await, Locked::Deadlock { .. }) {
                    told.push(run);
                }
            }
            // Where nobody is told yet, the next look does it.
            if told.is_empty() {
                assert_eq!(first, "r2", "{}", backend.name);
            }
            for (run, claim, object) in [("r2", &two, "1"), ("r1", &one, "2")] {
                if told.is_empty()
                    && matches!(backend.lock(claim, object, None).await, Locked::Deadlock { .. })
                {
                    told.push(run);
                }
            }
            assert_eq!(told.len(), 1, "{}, {first} first: {told:?}", backend.name);
        }
    }
}

#[tokio::test]
async fn a_circle_with_a_lock_that_is_over_is_none() {
    for backend in all().await {
        let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
        assert!(matches!(backend.lock(&one, "1", Some(100)).await, Locked::Taken { .. }));
        backend.lock_for_good(&two, "2").await;
        backend.must_wait(&one, "2", "r2").await;
        backend.clock.advance(100);
        backend.lock_for_good(&two, "1").await;
    }
}

#[tokio::test]
async fn a_person_takes_a_lock_from_a_run_that_no_worker_holds() {
    for backend in all().await {
        let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
        backend.lock_for_good(&one, "42").await;
        let unlock = |run: &str, object: &str| {
            let unlock = Unlock {
                run: run_id(run),
                name: name("order"),
                object: object.to_owned(),
                who: "ada".to_owned(),
                why: "the order was cancelled".to_owned(),
            };
            backend.ledger.unlock(unlock, backend.at())
        };
        let refused = unlock("r1", "42").await.unwrap_err();
        assert!(matches!(refused, LedgerError::State { .. }), "{}: {refused}", backend.name);
        backend.leave(&one, RunState::Halted, None).await;
        for (run, object) in [("r1", "43"), ("no-such-run", "42")] {
            let refused = unlock(run, object).await.unwrap_err();
            assert!(matches!(refused, LedgerError::Absent { .. }), "{}: {refused}", backend.name);
        }
        unlock("r1", "42").await.unwrap();
        let entry = backend.chain("r1").await.pop().unwrap();
        assert_eq!((entry.kind.as_str(), entry.fence), ("object_unlocked", Fence(2)));
        let told = json!({
            "name": "order", "object": "42", "who": "ada", "why": "the order was cancelled",
        });
        assert_eq!(data(&entry), told, "{}", backend.name);
        let run = backend.ledger.run(&run_id("r1")).await.unwrap().unwrap();
        assert_eq!(run.state, RunState::Halted, "{}", backend.name);
        backend.lock_for_good(&two, "42").await;
        assert!(unlock("r1", "42").await.is_err(), "{}: it is another run's", backend.name);
    }
}

#[tokio::test]
async fn a_run_that_had_a_lock_and_waited_for_one_can_be_removed() {
    for backend in all().await {
        let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
        backend.lock_for_good(&one, "1").await;
        backend.lock_for_good(&two, "2").await;
        backend.must_wait(&one, "2", "r2").await;
        backend.leave(&one, RunState::Failed, None).await;
        let prune = Prune {
            run: one.run.id.clone(),
            expected_head: backend.ledger.head(&one.run.id).await.unwrap(),
            by: "ada".to_owned(),
            export: "there".to_owned(),
            export_digest: "sha256:1".to_owned(),
        };
        backend.ledger.prune(prune).await.unwrap();
        let listed = backend.locks().await;
        assert_eq!(listed.len(), 1, "{}: {listed:?}", backend.name);
        assert!(listed[0].waiting.is_empty(), "{}: {listed:?}", backend.name);
    }
}

#[tokio::test]
async fn an_object_of_any_length_can_be_locked() {
    for backend in all().await {
        let (one, two) = (backend.start_claimed("r1").await, backend.start_claimed("r2").await);
        // Differing only behind what is kept of them; with a character that would be cut in two, and one that is not stored.
        let long = "ä\0".repeat(50_000);
        let longer = format!("{long}!");
        backend.lock_for_good(&one, &long).await;
        backend.must_wait(&two, &long, "r1").await;
        backend.lock_for_good(&two, &longer).await;
        assert_eq!(backend.has(&long).await.as_deref(), Some("r1"), "{}", backend.name);
        assert_eq!(backend.has(&longer).await.as_deref(), Some("r2"), "{}", backend.name);
        for lock in backend.locks().await {
            assert!(lock.object.len() < 400, "{}: {}", backend.name, lock.object.len());
            // As it is listed, it is found.
            assert_eq!(backend.has(&lock.object).await, Some(lock.run.to_string()));
        }
    }
}

/// Several processes on one server, each with its writers: whoever asks at once, one run has each lock, and no write waits
/// for another in a circle (a server takes a second to find one, and says so).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_that_ask_at_once_has_each_lock() {
    if twice_test_postgres::is_missing() {
        return;
    }
    const OBJECTS: usize = 6;
    const ROUNDS: usize = 12;
    let database = Cluster::shared().database();
    let mut ledgers = Vec::new();
    for _ in 0..3 {
        let ledger = SqlLedger::open(&database.url(), LedgerOptions::default()).await.unwrap();
        ledgers.push(Arc::new(ledger));
    }
    ledgers[0].put_definition(crate::support::DEFINITION, "text").await.unwrap();
    for round in 0..ROUNDS {
        let runs: Vec<_> = (0..24)
            .map(|number| {
                let ledger = Arc::clone(&ledgers[number % ledgers.len()]);
                tokio::spawn(async move { one_of_many(ledger, round, number).await })
            })
            .collect();
        let mut had: Vec<Vec<usize>> = vec![Vec::new(); OBJECTS];
        for (number, run) in runs.into_iter().enumerate() {
            for object in run.await.unwrap() {
                had[object].push(number);
            }
        }
        let counts: Vec<usize> = had.iter().map(Vec::len).collect();
        assert_eq!(counts, [1; OBJECTS], "round {round}: {had:?}");
        // All of them come to their ends at once, beside the first asks of the next round.
        let listed = ledgers[0].locks(&LockFilter::default()).await.unwrap();
        assert_eq!(listed.len(), OBJECTS, "round {round}");
        let ends = (0..24).map(|number| {
            let ledger = Arc::clone(&ledgers[number % ledgers.len()]);
            tokio::spawn(async move { end(&ledger, round, number).await })
        });
        for end in ends.collect::<Vec<_>>() {
            end.await.unwrap();
        }
        assert!(ledgers[0].locks(&LockFilter::default()).await.unwrap().is_empty());
    }
    // What a session counted is told when it ends.
    for ledger in &ledgers {
        ledger.close().await;
    }
    let mut asking = sqlx::PgConnection::connect(&database.url()).await.unwrap();
    let counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let deadlocks: i64 = sqlx::query_scalar(counted).fetch_one(&mut asking).await.unwrap();
    assert_eq!(deadlocks, 0, "writes waited for each other");

    /// Asks for all objects at once, and for one of them twice; tells which it has.
    async fn one_of_many(ledger: Arc<SqlLedger>, round: usize, number: usize) -> Vec<usize> {
        let at = ledger.now().await.unwrap();
        let id = format!("r-{round}-{number}");
        let new = twice_ledger::NewRun {
            claim: Some(twice_ledger::ClaimBy { lease_ms: 600_000, ..by("w1") }),
            ..new_run(&id, at)
        };
        let claim = match ledger.start_run(new).await.unwrap() {
            twice_ledger::Started::Created(Some(claim)) => claim,
            other => panic!("{other:?}"),
        };
        // Each in another order.
        let asked = (0..=OBJECTS).map(|object| (object + number) % OBJECTS);
        let mut asks = tokio::task::JoinSet::new();
        for object in asked {
            let wanted = wanted(&claim, &format!("{round}-{object}"), None);
            let ledger = Arc::clone(&ledger);
            asks.spawn(async move { (object, ledger.lock(wanted, at).await.unwrap()) });
        }
        let answers = asks.join_all().await;
        let mut taken: Vec<usize> = answers
            .into_iter()
            .filter(|(_, locked)| matches!(locked, Locked::Taken { .. }))
            .map(|(object, _)| object)
            .collect();
        taken.sort_unstable();
        taken.dedup();
        taken
    }

    async fn end(ledger: &SqlLedger, round: usize, number: usize) {
        let id = run_id(&format!("r-{round}-{number}"));
        let record = ledger.run(&id).await.unwrap().unwrap();
        let ending = twice_ledger::Append {
            run: id.clone(),
            fence: record.fence,
            entries: vec![parked(record.updated_at)],
            effects: Vec::new(),
            run_change: Some(change(RunState::Completed, None)),
            progress_made: false,
            past_pivot: false,
        };
        ledger.append(ending).await.unwrap();
        verified_chain(ledger, &id).await;
    }
}

/// Runs that lock two objects in two orders, over two processes: of each pair that waits for each other one is told, and the
/// other comes to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_close_a_circle_at_once_one_goes_on() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let url = database.url();
    let open = || SqlLedger::open(&url, LedgerOptions::default());
    let ledgers = [Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap())];
    ledgers[0].put_definition(crate::support::DEFINITION, "text").await.unwrap();
    for round in 0..10 {
        let at = ledgers[0].now().await.unwrap();
        let mut claims = Vec::new();
        for (number, ledger) in ledgers.iter().enumerate() {
            let new = twice_ledger::NewRun {
                claim: Some(twice_ledger::ClaimBy { lease_ms: 600_000, ..by("w1") }),
                ..new_run(&format!("r-{round}-{number}"), at)
            };
            let twice_ledger::Started::Created(Some(claim)) = ledger.start_run(new).await.unwrap()
            else {
                panic!("it is new")
            };
            let first = wanted(&claim, &format!("{round}-{number}"), None);
            assert_eq!(ledger.lock(first, at).await.unwrap(), Locked::Taken { until: None });
            claims.push(claim);
        }
        let mut told = 0;
        // Each look of both at once.
        while told == 0 {
            let mut asks = tokio::task::JoinSet::new();
            for number in 0..2 {
                let second = wanted(&claims[number], &format!("{round}-{}", 1 - number), None);
                let ledger = Arc::clone(&ledgers[number]);
                asks.spawn(async move { ledger.lock(second, at).await.unwrap() });
            }
            for answer in asks.join_all().await {
                match answer {
                    Locked::Deadlock { circle } => {
                        assert_eq!(circle.len(), 2, "{circle:?}");
                        told += 1;
                    }
                    Locked::Held { .. } => {}
                    Locked::Taken { .. } => panic!("round {round}: both have it"),
                }
            }
        }
        assert_eq!(told, 1, "round {round}");
    }
}
