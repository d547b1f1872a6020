//! Runs that other runs started: how they are told, found, woken for and kept.

use serde_json::json;
use twice_core::chain::{Content, NewEntry};
use twice_core::effect::State;
use twice_core::event::{Parent, RunEvent};
use twice_core::ids::{EffectId, Fence};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{
    Append, Claim, ClaimOutcome, EffectFilter, LedgerError, NewRun, Prune, RunFilter, Started,
    Wanted,
};

use crate::support::{Backend, LEASE_MS, Story, all, by, change, new_run, run_id};

fn parent(run: &str) -> Parent {
    let effect = EffectId::parse(format!("eff_{}", "a".repeat(52))).unwrap();
    Parent { run: run_id(run), effect }
}

/// The run that an effect of another starts, which is held for the first time.
pub(crate) fn child_of(run: &str, id: &str, at: Timestamp) -> NewRun {
    let mut new = NewRun { parent_fence: Some(Fence(1)), ..new_run(id, at) };
    let Content::Run(RunEvent::Started { parent: own, .. }) = &mut new.entry.content else {
        unreachable!("a run starts with that")
    };
    *own = Some(parent(run));
    new
}

impl Backend {
    async fn listed(&self, filter: RunFilter) -> Vec<String> {
        let runs = self.ledger.runs(&filter).await.unwrap();
        runs.iter().map(|run| run.id.to_string()).collect()
    }

    /// Ends a run, or lets it wait.
    async fn let_go(&self, id: &str, state: RunState, due_at: Option<Timestamp>) {
        let wanted = Wanted::run(&run_id(id), true);
        let claim = self.ledger.claim(&by("w1"), &wanted, self.at()).await.unwrap();
        let ClaimOutcome::Claimed(claim) = claim else { panic!("{claim:?}") };
        self.change(&claim, state, due_at).await;
    }

    async fn change(&self, claim: &Claim, state: RunState, due_at: Option<Timestamp>) {
        let event = RunEvent::Parked { why: "a test".to_owned(), until: due_at };
        let append = Append {
            run: claim.run.id.clone(),
            fence: claim.fence,
            entries: vec![NewEntry { content: Content::Run(event), at: self.at() }],
            effects: Vec::new(),
            run_change: Some(change(state, due_at)),
            progress_made: false,
            past_pivot: false,
        };
        self.ledger.append(append).await.unwrap();
    }

    async fn prune(&self, id: &str) -> Result<(), LedgerError> {
        let prune = Prune {
            run: run_id(id),
            expected_head: self.ledger.head(&run_id(id)).await.unwrap(),
            by: "ada".to_owned(),
            export: format!("/exports/{id}.jsonl"),
            export_digest: "sha256:export".to_owned(),
        };
        self.ledger.prune(prune).await.map(drop)
    }
}

#[tokio::test]
async fn the_children_of_a_run_are_listed_in_pages() {
    for backend in all().await {
        backend.start_claimed("r1").await;
        backend.start("r2").await;
        for (index, id) in ["c0", "c1", "c2", "c3"].into_iter().enumerate() {
            let at = backend.at().plus_ms(index as u64);
            backend.ledger.start_run(child_of("r1", id, at)).await.unwrap();
        }
        backend.claimed("w1", Some("c0")).await;
        backend.ledger.start_run(child_of("c0", "g0", backend.at())).await.unwrap();
        let of = |run: &str| RunFilter { parent: Some(run_id(run)), ..RunFilter::default() };
        assert_eq!(backend.listed(of("r1")).await, ["c3", "c2", "c1", "c0"], "{}", backend.name);
        assert_eq!(backend.listed(of("c0")).await, ["g0"], "{}", backend.name);
        assert!(backend.listed(of("r2")).await.is_empty(), "{}", backend.name);
        let next = RunFilter { before: Some(run_id("c2")), limit: 1, ..of("r1") };
        assert_eq!(backend.listed(next).await, ["c1"], "{}", backend.name);
        backend.let_go("c1", RunState::Completed, None).await;
        let open = RunFilter { open: true, ..of("r1") };
        assert_eq!(backend.listed(open).await, ["c3", "c2", "c0"], "{}", backend.name);
        let over = RunFilter { state: Some(RunState::Completed), ..of("r1") };
        assert_eq!(backend.listed(over).await, ["c1"], "{}", backend.name);
        let open = RunFilter { open: true, before: Some(run_id("c3")), ..RunFilter::default() };
        assert!(!backend.listed(open).await.contains(&"c1".to_owned()), "{}", backend.name);

        let record = backend.ledger.run(&run_id("c0")).await.unwrap().unwrap();
        assert_eq!(record.parent, Some(parent("r1")), "{}", backend.name);
        let record = backend.ledger.run(&run_id("r1")).await.unwrap().unwrap();
        assert_eq!(record.parent, None, "{}", backend.name);
    }
}

#[tokio::test]
async fn starting_a_child_again_finds_it_and_no_other_run() {
    for backend in all().await {
        let ledger = &backend.ledger;
        let claim = backend.start_claimed("r1").await;
        let child = || child_of("r1", "c1", backend.at());
        let created = ledger.start_run(child()).await.unwrap();
        assert!(matches!(created, Started::Created(None)), "{}", backend.name);
        let again = ledger.start_run(child()).await.unwrap();
        assert!(matches!(again, Started::Existing(_)), "{}", backend.name);
        // Whoever starts a run by its id finds it.
        let plain = ledger.start_run(new_run("c1", backend.at())).await.unwrap();
        assert!(matches!(plain, Started::Existing(_)), "{}", backend.name);
        for (id, run) in [("c1", "r2"), ("r1", "r2")] {
            let other = ledger.start_run(child_of(run, id, backend.at())).await;
            let refused = matches!(&other, Err(LedgerError::RunConflict { difference, .. }) if difference == "another parent");
            assert!(refused, "{}: {other:?}", backend.name);
        }
        // Found it is by whoever asks; started only by whoever holds its parent (I7).
        let older = NewRun { parent_fence: Some(Fence(0)), ..child_of("r1", "c2", backend.at()) };
        let none = NewRun { parent_fence: None, ..older.clone() };
        for refused in [older, none] {
            let refused = ledger.start_run(refused).await;
            let fenced =
                matches!(&refused, Err(LedgerError::Fenced { run, .. }) if *run == run_id("r1"));
            assert!(fenced, "{}: {refused:?}", backend.name);
        }
        backend.change(&claim, RunState::Waiting, None).await;
        let refused = ledger.start_run(child_of("r1", "c2", backend.at())).await;
        assert!(matches!(refused, Err(LedgerError::Fenced { .. })), "{}", backend.name);
        assert!(ledger.run(&run_id("c2")).await.unwrap().is_none(), "{}", backend.name);
        let again = ledger.start_run(child()).await.unwrap();
        assert!(matches!(again, Started::Existing(_)), "{}", backend.name);
    }
}

#[tokio::test]
async fn only_a_run_that_waits_is_woken() {
    for backend in all().await {
        let ledger = &backend.ledger;
        let mut notices = ledger.notices();
        ledger.wake(&run_id("none")).await.unwrap();
        for (id, state) in [("h", RunState::Halted), ("f", RunState::Failed)] {
            backend.start(id).await;
            backend.let_go(id, state, None).await;
        }
        for (id, due) in [("w", Some(backend.at().plus_ms(60_000))), ("n", None)] {
            backend.start(id).await;
            backend.let_go(id, RunState::Waiting, due).await;
        }
        let held = backend.start_claimed("held").await;
        for id in ["h", "f", "w", "n", "held"] {
            let before = ledger.head(&run_id(id)).await.unwrap();
            ledger.wake(&run_id(id)).await.unwrap();
            ledger.wake(&run_id(id)).await.unwrap();
            assert_eq!(ledger.head(&run_id(id)).await.unwrap(), before, "{}: {id}", backend.name);
        }
        notices.heard().await;
        let mut taken = Vec::new();
        while let ClaimOutcome::Claimed(claim) = backend.claim("w2", None).await {
            taken.push(claim.run.id.to_string());
        }
        taken.sort();
        assert_eq!(taken, ["n", "w"], "{}", backend.name);
        // The lease of the one that is held is what it was.
        ledger.renew(&run_id("held"), held.fence, LEASE_MS).await.unwrap();
    }
}

#[tokio::test]
async fn a_child_is_kept_while_its_parent_may_ask() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        backend.ledger.start_run(child_of("r1", "c1", backend.at())).await.unwrap();
        backend.let_go("c1", RunState::Completed, None).await;
        backend.change(&claim, RunState::Waiting, Some(backend.at())).await;
        for state in [RunState::Waiting, RunState::Failed] {
            backend.let_go("r1", state, Some(backend.at())).await;
            let kept = backend.prune("c1").await;
            let refused = matches!(&kept, Err(LedgerError::State { rule, .. }) if rule.contains("may still ask"));
            assert!(refused, "{}: {kept:?}", backend.name);
        }
        backend.prune("r1").await.unwrap();
        backend.prune("c1").await.unwrap();
    }
}

/// What became of it can be asked of the ledger at any time (I5).
#[tokio::test]
async fn what_the_ledger_settles_is_requested_whoever_holds_its_run() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let story = Story::of_run(&claim.run.id, "ship", claim.fence, backend.at());
        let mut story = story.settled_here().requested(backend.at());
        let other = Story::of_run(&claim.run.id, "pay", claim.fence, backend.at());
        let mut other = other.requested(backend.at());
        for story in [&mut story, &mut other] {
            let write = story.write(&claim);
            backend.ledger.append(write).await.unwrap();
        }
        backend.clock.advance(i64::try_from(LEASE_MS).unwrap() + 1);
        let shown = async |state| {
            let filter = EffectFilter { state: Some(state), ..EffectFilter::default() };
            let rows = backend.ledger.effects(&filter).await.unwrap();
            rows.into_iter().map(|row| row.slot.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(State::Requested).await, ["ship"], "{}", backend.name);
        assert_eq!(shown(State::Unknown).await, ["pay"], "{}", backend.name);
        let claim = backend.claimed("w2", Some("r1")).await;
        let story = story.under(claim.fence);
        let mut story = story.confirmed(json!({ "ok": true }), backend.at());
        backend.ledger.append(story.write(&claim)).await.unwrap();
        assert_eq!(shown(State::Confirmed).await, ["ship"], "{}", backend.name);
    }
}
