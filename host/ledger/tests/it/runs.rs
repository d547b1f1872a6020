//! Starting runs, writing their steps, and what a person may write.

use serde_json::json;
use twice_core::chain::{Content, NewEntry};
use twice_core::event::RunEvent;
use twice_core::ids::Fence;
use twice_core::progress::Progress;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{ClaimOutcome, LedgerError, NewRun, OperatorAppend, RunChange, Started, Wanted};

use crate::support::{Backend, Story, all, append, by, change, name, new_run, parked, run_id};

#[tokio::test]
async fn a_start_repeated_finds_the_same_run() {
    for backend in all().await {
        let keyed = || NewRun { caller_key: Some("k1".to_owned()), ..new_run("r1", backend.at()) };
        assert!(matches!(backend.ledger.start_run(keyed()).await, Ok(Started::Created(None))));
        let before = backend.chain("r1").await;
        check_existing(&backend, keyed()).await;
        // Without the key, and under the key with another id: the same run.
        check_existing(&backend, new_run("r1", backend.at())).await;
        check_existing(&backend, NewRun { id: run_id("r2"), ..keyed() }).await;
        // Components may have changed since: that pins nothing about an old run.
        backend.ledger.put_definition("sha256:newer", "text").await.unwrap();
        let newer = NewRun { definition: "sha256:newer".to_owned(), ..keyed() };
        check_existing(&backend, newer).await;
        // A claim comes only with a start.
        check_existing(&backend, NewRun { claim: Some(by("w1")), ..keyed() }).await;
        assert_eq!(backend.chain("r1").await, before);
    }
}

async fn check_existing(backend: &Backend, new: NewRun) {
    match backend.ledger.start_run(new).await {
        Ok(Started::Existing(run)) => assert_eq!(run.id, run_id("r1"), "{}", backend.name),
        other => panic!("{}: {other:?}", backend.name),
    }
}

#[tokio::test]
async fn a_start_that_differs_conflicts() {
    for backend in all().await {
        let keyed = || NewRun { caller_key: Some("k1".to_owned()), ..new_run("r1", backend.at()) };
        backend.ledger.start_run(keyed()).await.unwrap();
        backend.start("r2").await;
        for (new, difference) in [
            (NewRun { workflow: name("other"), ..keyed() }, "another workflow (`refunds`)"),
            (NewRun { input: json!({ "order_id": "order-2" }), ..keyed() }, "another input"),
            (NewRun { id: run_id("r3"), input: json!(1), ..keyed() }, "another input"),
            (NewRun { id: run_id("r2"), ..keyed() }, "another caller's key"),
            (NewRun { caller_key: Some("k2".to_owned()), ..keyed() }, "another caller's key"),
        ] {
            match backend.ledger.start_run(new).await {
                Err(LedgerError::RunConflict { difference: found, .. }) => {
                    assert_eq!(found, difference, "{}", backend.name);
                }
                other => panic!("{}: {difference}: {other:?}", backend.name),
            }
        }
        assert!(backend.ledger.run(&run_id("r3")).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_run_needs_its_definition() {
    for backend in all().await {
        let new = NewRun { definition: "sha256:none".to_owned(), ..new_run("r1", backend.at()) };
        let started = backend.ledger.start_run(new).await;
        assert!(
            matches!(&started, Err(LedgerError::Absent { what: "definition", .. })),
            "{}: {started:?}",
            backend.name
        );
    }
}

#[tokio::test]
async fn a_claimed_start_is_one_commit() {
    for backend in all().await {
        let before = backend.ledger.commits();
        let claim = backend.start_claimed("r1").await;
        assert!(backend.ledger.commits() - before <= 1, "{}", backend.name);
        assert_eq!((claim.fence, claim.head.seq), (Fence(1), 2), "{}", backend.name);
        assert_eq!(claim.run.state, RunState::Running);
        assert!(claim.run.lease_live);
        assert_eq!(backend.kinds("r1").await, ["run_started", "run_claimed"]);
        assert_eq!(backend.ledger.head(&run_id("r1")).await.unwrap(), claim.head);
    }
}

#[tokio::test]
async fn a_step_is_written_whole() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let at = Timestamp(backend.at().0 + 7);
        let event = RunEvent::StepCompleted {
            node: name("refund"),
            visit: 1,
            element: None,
            attempt: 1,
            output: json!({ "done": true }),
            diverged: Vec::new(),
        };
        let mut progress = claim.run.progress.clone();
        progress.apply(&event, at);
        let mut step = append(&claim, vec![NewEntry { content: Content::Run(event), at }]);
        step.run_change = Some(RunChange {
            state: RunState::Completed,
            progress: Some(progress.clone()),
            output: Some(json!([1, 2.5])),
            reason: Some("all is done".to_owned()),
            due_at: None,
            cancel_seen: false,
        });
        let head = backend.ledger.append(step).await.unwrap();
        let run = backend.ledger.run(&run_id("r1")).await.unwrap().unwrap();
        assert_eq!(
            (run.state, &run.progress),
            (RunState::Completed, &progress),
            "{}",
            backend.name
        );
        assert_eq!(run.output, Some(json!([1, 2.5])));
        assert_eq!(run.reason.as_deref(), Some("all is done"));
        assert_eq!(run.updated_at, at);
        assert!(!run.lease_live);
        assert_eq!(run.lease_until, Some(backend.at()), "the lease ends with the run");
        // The projection of the run is the fold of its entries.
        let mut folded = Progress::default();
        for entry in backend.chain("r1").await {
            if let Ok(Content::Run(event)) = Content::from_stored(&entry.kind, None, &entry.body) {
                folded.apply(&event, entry.at);
            }
        }
        assert_eq!(folded, run.progress, "{}", backend.name);
        assert_eq!(run.progress_seq, head.seq, "{}", backend.name);
        assert_eq!(backend.ledger.head(&run_id("r1")).await.unwrap(), head);
    }
}

#[tokio::test]
async fn what_came_after_the_checkpoint_is_folded() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let completed = |node: &str| RunEvent::StepCompleted {
            node: name(node),
            visit: 1,
            element: None,
            attempt: 1,
            output: json!(node),
            diverged: Vec::new(),
        };
        let entry = |event| NewEntry { content: Content::Run(event), at: backend.at() };
        let mut saved = append(&claim, vec![entry(completed("a"))]);
        let mut progress = claim.run.progress.clone();
        progress.apply(&completed("a"), backend.at());
        saved.run_change =
            Some(RunChange { progress: Some(progress.clone()), ..change(RunState::Running, None) });
        let checkpoint = backend.ledger.append(saved).await.unwrap();
        // Neither an effect nor a step without a checkpoint changes the one that is there.
        let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, backend.at());
        backend.ledger.append(story.write(&claim)).await.unwrap();
        let mut parked = append(&claim, vec![entry(completed("b"))]);
        let unsaved = RunChange { progress: None, ..change(RunState::Waiting, None) };
        parked.run_change = Some(unsaved);
        backend.ledger.append(parked).await.unwrap();
        let run = backend.ledger.run(&run_id("r1")).await.unwrap().unwrap();
        assert_eq!((&run.progress, run.progress_seq), (&progress, checkpoint.seq));
        progress.apply(&completed("b"), backend.at());
        let folded = twice_ledger::progress_of(&*backend.ledger, &run).await.unwrap();
        assert_eq!(folded, progress, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_stale_fence_writes_nothing() {
    for backend in all().await {
        let old = backend.start_claimed("r1").await;
        backend.clock.advance(2_000);
        let new = backend.claimed("w2", Some("r1")).await;
        let before = backend.chain("r1").await;
        // BR-14: all that the worker with the lost lease may still try.
        let mut story = Story::of_run(&old.run.id, "refund", old.fence, backend.at());
        let mut ending = append(&old, Vec::new());
        ending.run_change = Some(change(RunState::Completed, None));
        for write in [
            append(&old, vec![parked(backend.at())]),
            append(&old, vec![]),
            story.write(&old),
            ending,
        ] {
            let written = backend.ledger.append(write).await;
            assert!(
                matches!(&written, Err(LedgerError::Fenced { fence: Fence(1), .. })),
                "{}: {written:?}",
                backend.name
            );
        }
        let renewed = backend.ledger.renew(&old.run.id, old.fence, 60_000).await;
        assert!(matches!(renewed, Err(LedgerError::Fenced { .. })), "{}", backend.name);
        // A token that nobody was given yet is no better.
        let ahead = backend.ledger.renew(&old.run.id, Fence(9), 60_000).await;
        assert!(matches!(ahead, Err(LedgerError::Fenced { .. })), "{}", backend.name);
        assert_eq!(backend.chain("r1").await, before);
        assert!(backend.ledger.effect(&story.effect.id).await.unwrap().is_none());
        backend.ledger.append(append(&new, vec![parked(backend.at())])).await.unwrap();
    }
}

#[tokio::test]
async fn an_ended_lease_is_gone() {
    for backend in all().await {
        for state in RunState::ALL {
            let id = format!("run-{state}");
            let claim = backend.start_claimed(&id).await;
            let mut ending = append(&claim, vec![parked(backend.at())]);
            ending.run_change = Some(change(state, Some(Timestamp(i64::MAX))));
            backend.ledger.append(ending).await.unwrap();
            let again = backend.ledger.append(append(&claim, vec![parked(backend.at())])).await;
            let renewed = backend.ledger.renew(&claim.run.id, claim.fence, 1).await;
            let held = state == RunState::Running;
            assert_eq!((again.is_ok(), renewed.is_ok()), (held, held), "{} {state}", backend.name);
        }
    }
}

#[tokio::test]
async fn absent_runs_are_absent() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let none = run_id("none");
        let mut elsewhere = append(&claim, vec![parked(backend.at())]);
        elsewhere.run = none.clone();
        let decision = OperatorAppend {
            run: none.clone(),
            entries: vec![parked(backend.at())],
            effects: Vec::new(),
            run_change: None,
            expected_head: claim.head,
        };
        let errors = [
            backend.ledger.append(elsewhere).await.err(),
            backend.ledger.append_as_operator(decision).await.err(),
            backend.ledger.renew(&none, Fence(1), 1).await.err(),
            backend.ledger.claim(&by("w1"), &Wanted::run(&none, true), backend.at()).await.err(),
            backend.ledger.head(&none).await.err(),
        ];
        for error in errors {
            assert!(
                matches!(&error, Some(LedgerError::Absent { what: "run", .. })),
                "{}: {error:?}",
                backend.name
            );
        }
        assert!(backend.ledger.run(&none).await.unwrap().is_none());
        assert!(backend.ledger.history(&none, 0, 10).await.unwrap().is_empty());
    }
}

fn released(backend: &Backend, run: &str, head: twice_core::chain::Head) -> OperatorAppend {
    let event = RunEvent::Released { who: "ann".to_owned(), why: "it is mended".to_owned() };
    OperatorAppend {
        run: run_id(run),
        entries: vec![NewEntry { content: Content::Run(event), at: backend.at() }],
        effects: Vec::new(),
        run_change: Some(change(RunState::Ready, None)),
        expected_head: head,
    }
}

#[tokio::test]
async fn a_person_decides_only_about_what_nobody_holds() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let held = backend.ledger.append_as_operator(released(&backend, "r1", claim.head)).await;
        assert!(matches!(held, Err(LedgerError::State { .. })), "{}: {held:?}", backend.name);
        let mut halt = append(&claim, vec![parked(backend.at())]);
        halt.run_change = Some(change(RunState::Halted, None));
        let head = backend.ledger.append(halt).await.unwrap();

        let stale = backend.ledger.append_as_operator(released(&backend, "r1", claim.head)).await;
        assert!(matches!(stale, Err(LedgerError::State { .. })), "{}: {stale:?}", backend.name);
        let mut to_running = released(&backend, "r1", head);
        to_running.run_change = Some(change(RunState::Running, None));
        let refused = backend.ledger.append_as_operator(to_running).await;
        assert!(matches!(refused, Err(LedgerError::State { .. })), "{}", backend.name);
        assert_eq!(backend.ledger.head(&run_id("r1")).await.unwrap(), head);

        backend.ledger.append_as_operator(released(&backend, "r1", head)).await.unwrap();
        let run = backend.ledger.run(&run_id("r1")).await.unwrap().unwrap();
        assert_eq!((run.state, run.fence), (RunState::Ready, Fence(2)), "{}", backend.name);
        // The same decision again rests on a head that is no more.
        let again = backend.ledger.append_as_operator(released(&backend, "r1", head)).await;
        assert!(matches!(again, Err(LedgerError::State { .. })), "{}", backend.name);
        let last = backend.chain("r1").await.pop().unwrap();
        assert_eq!((last.kind.as_str(), last.fence), ("run_released", Fence(2)));
        let fence = backend.claimed("w2", None).await.fence;
        assert_eq!(fence, Fence(3), "{}", backend.name);
    }
}

#[tokio::test]
async fn a_person_may_decide_under_a_dead_lease() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        backend.clock.advance(2_000);
        let mut decision = released(&backend, "r1", claim.head);
        decision.run_change = None;
        backend.ledger.append_as_operator(decision).await.unwrap();
        // The worker that was thought dead is not: too late.
        let late = backend.ledger.append(append(&claim, vec![parked(backend.at())])).await;
        assert!(matches!(late, Err(LedgerError::Fenced { .. })), "{}", backend.name);
        let next = backend.claim("w2", Some("r1")).await;
        assert!(matches!(next, ClaimOutcome::Claimed(_)), "{}: {next:?}", backend.name);
    }
}

#[tokio::test]
async fn a_closed_ledger_says_so() {
    for backend in all().await {
        backend.start("r1").await;
        backend.ledger.close().await;
        backend.ledger.close().await;
        let written = backend.ledger.put_definition("sha256:late", "text").await;
        assert!(matches!(written, Err(LedgerError::Closed)), "{}: {written:?}", backend.name);
        let read = backend.ledger.run(&run_id("r1")).await;
        assert!(matches!(read, Err(LedgerError::Closed)), "{}: {read:?}", backend.name);
    }
}
