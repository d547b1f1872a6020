//! Leases: who gets a run, when, and how often a run may kill its worker.

use twice_core::ids::Fence;
use twice_core::limits::CRASHES_MAX;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{Claim, ClaimOutcome, LedgerError, OperatorAppend, Wanted};

use crate::support::{Backend, LEASE_MS, all, append, by, change, parked, run_id};

impl Backend {
    /// Ends a lease, leaving the run in a state.
    pub(crate) async fn leave(&self, claim: &Claim, state: RunState, due_at: Option<Timestamp>) {
        let mut leaving = append(claim, vec![parked(self.at())]);
        leaving.run_change = Some(change(state, due_at));
        self.ledger.append(leaving).await.unwrap();
    }
}

#[tokio::test]
async fn a_claim_raises_the_token_and_is_recorded() {
    for backend in all().await {
        backend.start("r1").await;
        let claim = backend.claimed("w1", None).await;
        assert_eq!((claim.fence, claim.run.fence), (Fence(1), Fence(1)), "{}", backend.name);
        assert_eq!(claim.run.worker, Some(by("w1").worker));
        assert_eq!(claim.run.lease_until, Some(backend.at().plus_ms(LEASE_MS)));
        assert!(claim.run.lease_live);
        assert_eq!(claim.head, backend.ledger.head(&run_id("r1")).await.unwrap());
        assert_eq!(backend.kinds("r1").await, ["run_started", "run_claimed"]);
        // BR-32: whoever comes second gets nothing, by name or not.
        for run in [None, Some("r1")] {
            let second = backend.claim("w2", run).await;
            assert!(matches!(second, ClaimOutcome::Nothing), "{}: {second:?}", backend.name);
        }
        assert_eq!(backend.chain("r1").await.len(), 2);
    }
}

#[tokio::test]
async fn whoever_waited_longest_is_first() {
    for backend in all().await {
        for id in ["r3", "r1", "r2"] {
            backend.start(id).await;
            backend.clock.advance(10);
        }
        let first = backend.claimed("w1", None).await;
        assert_eq!(first.run.id, run_id("r3"), "{}", backend.name);
        // Parked until 5 ms from now: due after the others.
        backend.leave(&first, RunState::Waiting, Some(backend.at().plus_ms(5))).await;
        backend.clock.advance(10);
        for id in ["r1", "r2", "r3"] {
            assert_eq!(backend.claimed("w1", None).await.run.id, run_id(id), "{}", backend.name);
        }
        assert!(matches!(backend.claim("w1", None).await, ClaimOutcome::Nothing));
    }
}

#[tokio::test]
async fn a_run_is_claimable_by_state_and_time() {
    let later = |backend: &Backend| Some(backend.at().plus_ms(500));
    for backend in all().await {
        // State, due, claimable now, claimable early, claimable when due.
        for (index, (state, due, now, early, when_due)) in [
            (RunState::Ready, None, true, true, true),
            (RunState::Ready, later(&backend), false, true, true),
            (RunState::Waiting, None, false, true, false),
            (RunState::Waiting, later(&backend), false, true, true),
            (RunState::Waiting, Some(Timestamp(0)), true, true, true),
            (RunState::Running, None, false, false, false),
            (RunState::Halted, Some(Timestamp(0)), false, false, false),
            (RunState::Completed, None, false, false, false),
            (RunState::Failed, None, false, false, false),
            (RunState::Cancelled, None, false, false, false),
            (RunState::Stuck, Some(Timestamp(0)), false, false, false),
            (RunState::Quarantined, Some(Timestamp(0)), false, false, false),
        ]
        .into_iter()
        .enumerate()
        {
            for (variant, early_allowed, wait_ms, expected) in
                [("now", false, 0, now), ("early", true, 0, early), ("due", false, 500, when_due)]
            {
                let id = format!("{variant}-{index}");
                let claim = backend.start_claimed(&id).await;
                let due = due.map(|due| if due.0 == 0 { due } else { backend.at().plus_ms(500) });
                backend.leave(&claim, state, due).await;
                backend.clock.advance(wait_ms);
                let run = run_id(&id);
                let outcome = backend
                    .ledger
                    .claim(&by("w2"), &Wanted::run(&run, early_allowed), backend.at())
                    .await;
                assert_eq!(
                    matches!(outcome, Ok(ClaimOutcome::Claimed(_))),
                    expected,
                    "{} {variant} {state} {due:?}: {outcome:?}",
                    backend.name
                );
            }
        }
    }
}

#[tokio::test]
async fn renewing_keeps_a_lease_and_an_expired_one_may_be_renewed() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        for _ in 0..5 {
            backend.clock.advance(900);
            backend.ledger.renew(&claim.run.id, claim.fence, LEASE_MS).await.unwrap();
            assert!(matches!(backend.claim("w2", None).await, ClaimOutcome::Nothing));
        }
        backend.clock.advance(5_000);
        assert!(!backend.ledger.run(&claim.run.id).await.unwrap().unwrap().lease_live);
        backend.ledger.renew(&claim.run.id, claim.fence, LEASE_MS).await.unwrap();
        let run = backend.ledger.run(&claim.run.id).await.unwrap().unwrap();
        assert!(run.lease_live, "{}", backend.name);
        assert_eq!((run.fence, run.crashes), (Fence(1), 0));
        assert_eq!(backend.chain("r1").await.len(), 2, "renewals are no entries");
    }
}

#[tokio::test]
async fn a_run_that_kills_its_workers_is_quarantined() {
    for backend in all().await {
        backend.start("r1").await;
        backend.claimed("w0", None).await;
        for crash in 1..CRASHES_MAX {
            backend.clock.advance(2_000);
            let claim = backend.claimed(&format!("w{crash}"), None).await;
            assert_eq!(claim.run.crashes, crash, "{}", backend.name);
        }
        backend.clock.advance(2_000);
        let outcome = backend.claim("w9", None).await;
        assert!(
            matches!(&outcome, ClaimOutcome::Quarantined(id) if *id == run_id("r1")),
            "{}: {outcome:?}",
            backend.name
        );
        assert!(matches!(backend.claim("w9", None).await, ClaimOutcome::Nothing));
        let run = backend.ledger.run(&run_id("r1")).await.unwrap().unwrap();
        assert_eq!((run.state, run.crashes), (RunState::Quarantined, CRASHES_MAX));
        assert!(run.reason.is_some_and(|reason| reason.contains("twice runs release r1")));
        assert_eq!(backend.kinds("r1").await.last().unwrap(), "run_quarantined");

        // Released, it starts from zero.
        let decision = OperatorAppend {
            run: run_id("r1"),
            entries: vec![parked(backend.at())],
            effects: Vec::new(),
            run_change: Some(change(RunState::Ready, None)),
            expected_head: backend.ledger.head(&run_id("r1")).await.unwrap(),
        };
        backend.ledger.append_as_operator(decision).await.unwrap();
        assert_eq!(backend.claimed("w1", None).await.run.crashes, 0, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_run_that_is_over_stays_over() {
    for backend in all().await {
        for state in [RunState::Completed, RunState::Failed] {
            let id = format!("r-{state}");
            let claim = backend.start_claimed(&id).await;
            backend.leave(&claim, state, None).await;
            let before = backend.chain(&id).await;
            backend.clock.advance(10_000);
            // Whoever still thinks that its lease ran out, twice.
            for _ in 0..2 {
                for run in [None, Some(id.as_str())] {
                    let outcome = backend.claim("w2", run).await;
                    assert!(matches!(outcome, ClaimOutcome::Nothing), "{}", backend.name);
                }
                let renewed = backend.ledger.renew(&claim.run.id, claim.fence, LEASE_MS).await;
                assert!(matches!(renewed, Err(LedgerError::Fenced { .. })), "{}", backend.name);
                let late = backend.ledger.append(append(&claim, vec![parked(backend.at())])).await;
                assert!(matches!(late, Err(LedgerError::Fenced { .. })), "{}", backend.name);
            }
            let record = backend.ledger.run(&claim.run.id).await.unwrap().unwrap();
            assert_eq!((record.state, record.crashes), (state, 0), "{}", backend.name);
            assert_eq!(backend.chain(&id).await, before, "{}", backend.name);
        }
    }
}

#[tokio::test]
async fn a_wait_of_a_month_is_over_once() {
    const DAY_MS: i64 = 86_400_000;
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let due = backend.at().plus_ms(30 * 86_400_000);
        backend.leave(&claim, RunState::Waiting, Some(due)).await;
        // Every new worker looks, more often than the longest lease lasts.
        for look in 0..100 {
            let outcome = backend.claim(&format!("w{look}"), None).await;
            assert!(matches!(outcome, ClaimOutcome::Nothing), "{}: look {look}", backend.name);
            backend.clock.advance(DAY_MS * 29 / 100);
        }
        backend.clock.advance(2 * DAY_MS);
        assert_eq!(backend.claimed("w-on-time", None).await.run.id, claim.run.id);
        assert!(matches!(backend.claim("w-late", None).await, ClaimOutcome::Nothing));
        let kinds = backend.kinds("r1").await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "run_claimed").count(), 2, "{kinds:?}");
    }
}

#[tokio::test]
async fn progress_clears_the_crash_count() {
    for backend in all().await {
        backend.start_claimed("r1").await;
        backend.clock.advance(2_000);
        let claim = backend.claimed("w2", None).await;
        assert_eq!(claim.run.crashes, 1);
        let mut without = append(&claim, vec![parked(backend.at())]);
        backend.ledger.append(without.clone()).await.unwrap();
        assert_eq!(backend.ledger.run(&claim.run.id).await.unwrap().unwrap().crashes, 1);
        without.progress_made = true;
        backend.ledger.append(without).await.unwrap();
        let run = backend.ledger.run(&claim.run.id).await.unwrap().unwrap();
        assert_eq!(run.crashes, 0, "{}", backend.name);
        // A lease that ends in order is no crash.
        backend.leave(&claim, RunState::Ready, None).await;
        backend.clock.advance(2_000);
        assert_eq!(backend.claimed("w3", None).await.run.crashes, 0, "{}", backend.name);
    }
}

#[tokio::test]
async fn claims_at_once_get_different_runs() {
    for backend in all().await {
        for run in 0..20 {
            backend.start(&format!("r{run}")).await;
        }
        let claims = (0..32).map(|worker| {
            let ledger = std::sync::Arc::clone(&backend.ledger);
            let at = backend.at();
            tokio::spawn(async move {
                ledger.claim(&by(&format!("w{worker}")), &Wanted::any(), at).await.unwrap()
            })
        });
        let mut taken = Vec::new();
        for claim in claims.collect::<Vec<_>>() {
            match claim.await.unwrap() {
                ClaimOutcome::Claimed(claim) => taken.push(claim.run.id),
                ClaimOutcome::Nothing => {}
                ClaimOutcome::Quarantined(run) => panic!("{run}"),
            }
        }
        taken.sort();
        taken.dedup();
        assert_eq!(taken.len(), 20, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_fenced_worker_learns_it_from_any_write() {
    for backend in all().await {
        let old = backend.start_claimed("r1").await;
        backend.clock.advance(2_000);
        backend.claimed("w2", Some("r1")).await;
        let error = backend.ledger.renew(&old.run.id, old.fence, 1).await.unwrap_err();
        assert!(matches!(error, LedgerError::Fenced { fence: Fence(1), .. }));
        assert!(error.to_string().contains("nothing was written"), "{error}");
    }
}
