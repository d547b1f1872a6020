//! Runs that are over and are removed: what goes, what stays, and what is never removed.

use serde_json::json;
use twice_core::chain::Head;
use twice_core::run::RunState;
use twice_ledger::{
    Claim, EffectFilter, LedgerError, NewRun, OverFilter, Prune, RunFilter, Started, Wanted,
};

use crate::support::{
    Backend, Story, all, append, by, change, late, name, new_run, parked, run_id,
};

fn prune(run: &str, head: Head) -> Prune {
    Prune {
        run: run_id(run),
        expected_head: head,
        by: "ada".to_owned(),
        export: format!("/exports/{run}.jsonl"),
        export_digest: "sha256:export".to_owned(),
    }
}

impl Backend {
    pub(crate) async fn head(&self, run: &str) -> Head {
        self.ledger.head(&run_id(run)).await.unwrap()
    }

    /// A run with a confirmed effect that is over.
    async fn over(&self, run: &str, key: Option<&str>, state: RunState) -> Story {
        let claim = Some(by("w1"));
        let caller_key = key.map(str::to_owned);
        let new = NewRun { caller_key, claim, ..new_run(run, self.at()) };
        let Started::Created(Some(claim)) = self.ledger.start_run(new).await.unwrap() else {
            panic!("{}: {run} is not new", self.name);
        };
        let story = Story::of_run(&claim.run.id, "refund", claim.fence, self.at());
        self.end(&claim, story, state).await
    }

    async fn end(&self, claim: &Claim, story: Story, state: RunState) -> Story {
        let at = self.at();
        let mut story = story.requested(at).confirmed(json!({ "id": 1 }), at);
        let mut write = story.write(claim);
        write.run_change = Some(change(state, None));
        self.ledger.append(write).await.unwrap();
        story
    }

    async fn old(&self, filter: OverFilter) -> Vec<String> {
        let runs = self.ledger.runs_over(&filter).await.unwrap();
        runs.iter().map(|run| run.id.to_string()).collect()
    }
}

#[tokio::test]
async fn a_run_that_was_removed_leaves_a_tombstone_and_nothing_else() {
    for backend in all().await {
        let ledger = &backend.ledger;
        let story = backend.over("r1", Some("k1"), RunState::Completed).await;
        let other = backend.over("r2", None, RunState::Failed).await;
        let before = ledger.run(&run_id("r1")).await.unwrap().unwrap();
        let head = backend.head("r1").await;
        backend.clock.advance(5_000);
        let tombstone = ledger.prune(prune("r1", head)).await.unwrap();
        assert_eq!((&tombstone.run, tombstone.head), (&run_id("r1"), head), "{}", backend.name);
        assert_eq!(tombstone.caller_key.as_deref(), Some("k1"));
        assert_eq!(tombstone.state, RunState::Completed);
        assert_eq!(tombstone.definition, before.definition);
        assert_eq!(tombstone.ended_at, before.updated_at);
        assert_eq!(tombstone.pruned_at, backend.at());
        assert_eq!(
            (tombstone.pruned_by.as_str(), tombstone.export.as_str()),
            ("ada", "/exports/r1.jsonl")
        );
        assert_eq!(ledger.tombstone(&run_id("r1")).await.unwrap(), Some(tombstone.clone()));
        assert_eq!(ledger.tombstone(&run_id("r2")).await.unwrap(), None);

        assert!(ledger.run(&run_id("r1")).await.unwrap().is_none(), "{}", backend.name);
        assert!(ledger.history(&run_id("r1"), 0, 0).await.unwrap().is_empty());
        assert!(ledger.effect(&story.effect.id).await.unwrap().is_none());
        let runs = ledger.runs(&RunFilter::default()).await.unwrap();
        assert_eq!(runs.len(), 1, "{}", backend.name);
        let effects = ledger.effects(&EffectFilter::default()).await.unwrap();
        assert_eq!(effects.iter().map(|row| &row.id).collect::<Vec<_>>(), [&other.effect.id]);
        let wanted = Wanted::run(&run_id("r1"), true);
        let claimed = ledger.claim(&by("w2"), &wanted, backend.at()).await;
        assert!(matches!(claimed, Err(LedgerError::Absent { .. })), "{}", backend.name);
        let id = &story.effect.id;
        let observed = ledger.observe(&run_id("r1"), id, late("late"), backend.at()).await;
        assert!(matches!(observed, Err(LedgerError::Absent { .. })), "{}", backend.name);
        // Twice is once.
        backend.clock.advance(5_000);
        assert_eq!(ledger.prune(prune("r1", head)).await.unwrap(), tombstone, "{}", backend.name);
        let none = ledger.prune(prune("r9", head)).await;
        assert!(matches!(none, Err(LedgerError::Absent { .. })), "{}", backend.name);
    }
}

#[tokio::test]
async fn a_run_that_was_removed_is_not_run_again() {
    for backend in all().await {
        backend.over("r1", Some("k1"), RunState::Completed).await;
        backend.ledger.prune(prune("r1", backend.head("r1").await)).await.unwrap();
        let start = |run: &str, key: Option<&str>| NewRun {
            caller_key: key.map(str::to_owned),
            ..new_run(run, backend.at())
        };
        // The same by its id, its key, or both.
        for (run, key) in [("r1", None), ("r1", Some("k1")), ("r2", Some("k1"))] {
            let refused = backend.ledger.start_run(start(run, key)).await.unwrap_err();
            let LedgerError::Pruned { tombstone } = &refused else {
                panic!("{}: {run} {key:?}: {refused:?}", backend.name);
            };
            assert_eq!(tombstone.run, run_id("r1"));
            assert!(refused.to_string().contains("/exports/r1.jsonl"), "{refused}");
        }
        let other_input = NewRun { input: json!(2), ..start("r1", None) };
        let other_workflow = NewRun { workflow: name("a"), ..start("r2", Some("k1")) };
        for other in [start("r1", Some("k2")), other_input, other_workflow] {
            let refused = backend.ledger.start_run(other).await;
            let conflict = matches!(refused, Err(LedgerError::RunConflict { .. }));
            assert!(conflict, "{}: {refused:?}", backend.name);
        }
        assert!(backend.ledger.runs(&RunFilter::default()).await.unwrap().is_empty());
        backend.start("r2").await;
    }
}

#[tokio::test]
async fn what_is_not_over_or_may_be_adopted_is_kept() {
    for backend in all().await {
        let ledger = &backend.ledger;
        for state in [RunState::Waiting, RunState::Halted] {
            let id = format!("r-{state}");
            let claim = backend.start_claimed(&id).await;
            let mut leaving = append(&claim, vec![parked(backend.at())]);
            leaving.run_change = Some(change(state, None));
            ledger.append(leaving).await.unwrap();
            let refused = ledger.prune(prune(&id, backend.head(&id).await)).await.unwrap_err();
            assert!(refused.to_string().contains("is over"), "{}: {refused}", backend.name);
        }
        let story = backend.over("grown", None, RunState::Completed).await;
        let head = backend.head("grown").await;
        let (run, id) = (run_id("grown"), story.effect.id.clone());
        ledger.observe(&run, &id, late("late"), backend.at()).await.unwrap();
        let refused = ledger.prune(prune("grown", head)).await.unwrap_err();
        assert!(refused.to_string().contains("grown since"), "{}: {refused}", backend.name);
        ledger.prune(prune("grown", backend.head("grown").await)).await.unwrap();

        // What undoes, or approves, an effect of the run is the run's own.
        let claim = backend.start_claimed("undone").await;
        let story = Story::undoing(&claim.run.id, claim.fence, backend.at());
        backend.end(&claim, story, RunState::Failed).await;
        ledger.prune(prune("undone", backend.head("undone").await)).await.unwrap();

        let claim = backend.start_claimed("shared").await;
        let story = Story::shared(&claim.run.id, claim.fence, backend.at());
        let story = backend.end(&claim, story, RunState::Completed).await;
        let head = backend.head("shared").await;
        let refused = ledger.prune(prune("shared", head)).await.unwrap_err();
        assert!(refused.to_string().contains("scope = \"object\""), "{}: {refused}", backend.name);
        assert_eq!(backend.head("shared").await, head, "{}", backend.name);
        assert!(ledger.effect(&story.effect.id).await.unwrap().is_some(), "{}", backend.name);
    }
}

#[tokio::test]
async fn runs_that_are_over_are_listed_by_age_and_state() {
    let all_of = OverFilter::default;
    for backend in all().await {
        backend.over("r3", None, RunState::Completed).await;
        backend.clock.advance(1_000);
        backend.over("r1", None, RunState::Failed).await;
        backend.over("r2", None, RunState::Completed).await;
        backend.start("r0").await;
        assert_eq!(backend.old(all_of()).await, ["r1", "r2", "r3"], "{}", backend.name);
        let older = |older_than_ms| OverFilter { older_than_ms, ..all_of() };
        assert_eq!(backend.old(older(1_000)).await, ["r3"], "{}", backend.name);
        assert!(backend.old(older(1_001)).await.is_empty(), "{}", backend.name);
        backend.clock.advance(1);
        assert_eq!(backend.old(older(1_001)).await, ["r3"], "{}", backend.name);
        let failed = OverFilter { state: Some(RunState::Failed), ..all_of() };
        assert_eq!(backend.old(failed).await, ["r1"], "{}", backend.name);
        let ready = OverFilter { state: Some(RunState::Ready), ..all_of() };
        assert!(backend.old(ready).await.is_empty(), "{}", backend.name);
        let page =
            |after: Option<&str>| OverFilter { after: after.map(run_id), limit: 2, ..all_of() };
        assert_eq!(backend.old(page(None)).await, ["r1", "r2"], "{}", backend.name);
        assert_eq!(backend.old(page(Some("r2"))).await, ["r3"], "{}", backend.name);
    }
}
