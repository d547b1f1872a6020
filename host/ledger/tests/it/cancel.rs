//! Requests to cancel a run: whoever holds it hears of them, and nobody loses them.

use twice_core::event::RunEvent;
use twice_core::ids::{Fence, RunId};
use twice_core::run::RunState;
use twice_ledger::{Append, Cancel, ClaimOutcome, LedgerError};

use crate::support::{Backend, LEASE_MS, Story, all, append, change, parked, run_id};

fn cancel() -> Cancel {
    Cancel { who: "ada".to_owned(), why: "ordered twice".to_owned() }
}

impl Backend {
    async fn cancel(&self, run: &str) -> Result<twice_core::chain::Head, LedgerError> {
        self.ledger.request_cancel(&run_id(run), &cancel(), self.at()).await
    }

    async fn state(&self, run: &str) -> RunState {
        self.ledger.run(&run_id(run)).await.unwrap().unwrap().state
    }
}

#[tokio::test]
async fn whoever_holds_a_run_hears_that_it_is_to_be_cancelled_and_goes_on_writing() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        assert!(!backend.ledger.renew(&claim.run.id, claim.fence, LEASE_MS).await.unwrap());
        let head = backend.cancel("r1").await.unwrap();
        assert_eq!(backend.kinds("r1").await.pop().as_deref(), Some("cancel_requested"));
        // Asked for again, it changes nothing, whoever asks.
        let other = Cancel { who: "bob".to_owned(), why: "me too".to_owned() };
        let again = backend.ledger.request_cancel(&claim.run.id, &other, backend.at()).await;
        assert_eq!(again.unwrap(), head, "{}", backend.name);
        let run = backend.ledger.run(&claim.run.id).await.unwrap().unwrap();
        assert_eq!(
            (run.cancel, run.state, run.fence),
            (Some(cancel()), RunState::Running, Fence(1))
        );
        assert!(backend.ledger.renew(&claim.run.id, claim.fence, LEASE_MS).await.unwrap());
        backend.ledger.append(append(&claim, vec![parked(backend.at())])).await.unwrap();
        let chain = backend.chain("r1").await;
        let content = chain[2].content().unwrap();
        let twice_core::chain::Content::Run(RunEvent::CancelRequested { who, why }) = content
        else {
            panic!("{content:?}")
        };
        assert_eq!(
            (who.as_str(), why.as_str(), chain[2].fence),
            ("ada", "ordered twice", Fence(1))
        );
    }
}

#[tokio::test]
async fn a_run_that_waits_is_due_at_once_for_a_person_as_well() {
    for backend in all().await {
        for (id, state) in [("r1", RunState::Waiting), ("r2", RunState::Halted)] {
            let claim = backend.start_claimed(id).await;
            backend.leave(&claim, state, Some(backend.at().plus_ms(1_000_000))).await;
            assert!(matches!(backend.claim("w2", None).await, ClaimOutcome::Nothing));
            backend.cancel(id).await.unwrap();
            assert_eq!(backend.state(id).await, RunState::Ready, "{}", backend.name);
            let claim = backend.claimed("w2", None).await;
            assert_eq!((claim.run.id.as_str(), claim.run.cancel.clone()), (id, Some(cancel())));
            // Whoever knows of it may have it wait.
            let mut leaving = append(&claim, vec![parked(backend.at())]);
            let later = Some(backend.at().plus_ms(1_000_000));
            leaving.run_change =
                Some(twice_ledger::RunChange { cancel_seen: true, ..change(state, later) });
            backend.ledger.append(leaving).await.unwrap();
            assert_eq!(backend.state(id).await, state, "{}", backend.name);
            assert!(matches!(backend.claim("w3", None).await, ClaimOutcome::Nothing));
        }
    }
}

#[tokio::test]
async fn a_worker_that_did_not_hear_of_it_does_not_put_a_run_to_sleep() {
    for backend in all().await {
        for (id, state) in [("r1", RunState::Waiting), ("r2", RunState::Halted)] {
            let claim = backend.start_claimed(id).await;
            backend.cancel(id).await.unwrap();
            backend.leave(&claim, state, Some(backend.at().plus_ms(1_000_000))).await;
            assert_eq!(backend.state(id).await, RunState::Ready, "{}", backend.name);
            assert_eq!(backend.claimed("w2", None).await.run.id, run_id(id));
        }
        // What it was about to end as failed, it ends.
        let claim = backend.start_claimed("r3").await;
        backend.cancel("r3").await.unwrap();
        backend.leave(&claim, RunState::Failed, None).await;
        assert_eq!(backend.state("r3").await, RunState::Failed, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_run_that_is_to_be_cancelled_asks_for_nothing_new_and_is_not_completed() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let (run, fence, at) = (&claim.run.id, claim.fence, backend.at());
        let mut sent = Story::of_run(run, "sent", fence, at).requested(at);
        let mut unsent = Story::of_run(run, "unsent", fence, at);
        backend.ledger.append(sent.write(&claim)).await.unwrap();
        backend.ledger.append(unsent.write(&claim)).await.unwrap();
        backend.cancel("r1").await.unwrap();
        let before = backend.chain("r1").await.len();

        let mut new = Story::of_run(run, "new", fence, at);
        let mut ended = append(&claim, vec![parked(at)]);
        ended.run_change = Some(change(RunState::Completed, None));
        let new = new.write(&claim);
        for refused in [new.clone(), unsent.requested(at).write(&claim), ended.clone()] {
            let refused = backend.ledger.append(refused).await;
            assert!(
                matches!(&refused, Err(LedgerError::Cancelled { run: of }) if of == run),
                "{}: {refused:?}",
                backend.name
            );
        }
        assert_eq!(backend.chain("r1").await.len(), before, "{}", backend.name);

        // What was sent is settled, and what was denied is on record as that.
        let denied = Story::of_run(run, "denied", fence, at).failed("denied", at);
        sent = sent.confirmed(serde_json::json!({ "ok": true }), at);
        backend.ledger.append(sent.write(&claim)).await.unwrap();
        backend.ledger.append({ denied }.write(&claim)).await.unwrap();
        // Behind the point of no return it goes on to its end.
        backend.ledger.append(Append { past_pivot: true, ..new }).await.unwrap();
        backend.ledger.append(Append { past_pivot: true, ..ended }).await.unwrap();
        assert_eq!(backend.state("r1").await, RunState::Completed, "{}", backend.name);
    }
}

#[tokio::test]
async fn what_is_over_or_needs_a_person_first_is_not_cancelled() {
    for backend in all().await {
        let refused = [
            RunState::Completed,
            RunState::Failed,
            RunState::Cancelled,
            RunState::Stuck,
            RunState::Quarantined,
        ];
        for state in refused {
            let id = format!("r-{state}");
            let claim = backend.start_claimed(&id).await;
            backend.leave(&claim, state, None).await;
            let before = backend.chain(&id).await.len();
            let refused = backend.cancel(&id).await;
            assert!(
                matches!(&refused, Err(LedgerError::State { run, .. }) if run.as_str() == id),
                "{} {state}: {refused:?}",
                backend.name
            );
            assert_eq!(backend.chain(&id).await.len(), before);
        }
        let none = RunId::parse("none").unwrap();
        let absent = backend.ledger.request_cancel(&none, &cancel(), backend.at()).await;
        assert!(matches!(absent, Err(LedgerError::Absent { .. })), "{}: {absent:?}", backend.name);
    }
}
