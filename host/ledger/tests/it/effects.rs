//! Effects as the ledger keeps them: owned, folded from entries, and never moved illegally.

use std::sync::{Arc, RwLock};

use serde_json::json;
use twice_core::effect::State;
use twice_core::event::EffectEvent;
use twice_core::redact::Redactor;
use twice_core::run::RunState;
use twice_ledger::{Append, EffectFilter, LedgerError, LedgerOptions, NewRun, OperatorAppend};

use crate::support::{
    Backend, Story, all, all_with, append, change, late, new_run, parked, run_id, step_id,
};

#[tokio::test]
async fn an_effect_is_the_fold_of_its_entries() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, backend.at());
        let id = story.effect.id.clone();
        assert!(backend.ledger.effect(&id).await.unwrap().is_none());
        backend.ledger.append(story.write(&claim)).await.unwrap();
        check_projection(&backend, &story).await;
        story = story.requested(backend.at());
        backend.ledger.append(story.write(&claim)).await.unwrap();
        check_projection(&backend, &story).await;
        // Twice is once: the same entries again are no legal move.
        let again = story.clone().unknown(backend.at()).write(&claim);
        backend.ledger.append(again.clone()).await.unwrap();
        let twice = backend.ledger.append(again).await;
        assert!(matches!(twice, Err(LedgerError::State { .. })), "{}: {twice:?}", backend.name);
        let mut story = story.unknown(backend.at()).confirmed(json!({ "id": 1 }), backend.at());
        let mut rest = story.write(&claim);
        rest.entries.remove(0);
        backend.ledger.append(rest).await.unwrap();
        check_projection(&backend, &story).await;
        let kinds = backend.kinds("r1").await;
        assert_eq!(kinds[2..], ["proposed", "authorized", "requested", "unknown", "confirmed"]);
    }
}

/// The effect read back is the one that was written, and its listed form says the same.
async fn check_projection(backend: &Backend, story: &Story) {
    let effect = backend.ledger.effect(&story.effect.id).await.unwrap().unwrap();
    assert_eq!(effect, story.effect, "{}", backend.name);
    let run = effect.run.clone();
    let step = backend.ledger.step_effects(&run, &step_id("refund", 1, None)).await.unwrap();
    assert_eq!(step, std::slice::from_ref(&effect), "{}", backend.name);
    let filter = EffectFilter { run: Some(run.clone()), ..EffectFilter::default() };
    let row = backend.ledger.effects(&filter).await.unwrap().pop().unwrap();
    assert_eq!((&row.id, &row.run), (&effect.id, &run));
    assert_eq!((row.state, row.attempts as usize), (effect.state, effect.attempts.len()));
    assert_eq!(row.operation, "payments.refund");
    assert_eq!(row.request_hash, effect.proposal.request_hash.as_str());
    assert_eq!(row.idempotency_key, effect.proposal.idempotency_key);
    let external_id = effect.receipt.as_ref().and_then(|receipt| receipt.external_id.clone());
    assert_eq!((row.external_id, row.held), (external_id, effect.hold.is_some()));
    assert_eq!((row.last_error, row.updated_at), (effect.last_error, effect.updated_at));
}

#[tokio::test]
async fn the_effects_of_a_step_are_its_own() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let mut ids = Vec::new();
        for slot in ["b", "a", "c"] {
            let mut story = Story::of_run(&claim.run.id, slot, claim.fence, backend.at());
            let of_element = story.clone().of_element(slot);
            backend.ledger.append(of_element.clone().write(&claim)).await.unwrap();
            let element = step_id("refund", 1, Some(slot));
            let found = backend.ledger.step_effects(&claim.run.id, &element).await.unwrap();
            assert_eq!(found, [of_element.effect], "{}", backend.name);
            ids.push(story.effect.id.clone());
            backend.ledger.append(story.write(&claim)).await.unwrap();
        }
        let step =
            backend.ledger.step_effects(&claim.run.id, &step_id("refund", 1, None)).await.unwrap();
        let found: Vec<_> = step.iter().map(|effect| effect.id.clone()).collect();
        assert_eq!(found, ids, "{}: in the order in which they were asked for", backend.name);
        for other in
            [step_id("refund", 2, None), step_id("other", 1, None), step_id("refund", 1, Some("d"))]
        {
            let found = backend.ledger.step_effects(&claim.run.id, &other).await;
            assert!(found.unwrap().is_empty(), "{} {other}", backend.name);
        }
    }
}

#[tokio::test]
async fn a_shared_effect_belongs_to_the_run_that_proposed_it_first() {
    for backend in all().await {
        let first = backend.start_claimed("r1").await;
        let second = backend.start_claimed("r2").await;
        let mut story = Story::shared(&first.run.id, first.fence, backend.at());
        backend.ledger.append(story.write(&first)).await.unwrap();
        let before = backend.chain("r2").await;

        let mut rival = Story::shared(&second.run.id, second.fence, backend.at());
        assert_eq!(rival.effect.id, story.effect.id);
        let mut write = rival.write(&second);
        write.entries.insert(0, parked(backend.at()));
        write.run_change = Some(change(RunState::Completed, None));
        let refused = backend.ledger.append(write).await;
        assert!(
            matches!(&refused, Err(LedgerError::EffectOwned { owner, .. }) if *owner == run_id("r1")),
            "{}: {refused:?}",
            backend.name
        );
        assert_eq!(backend.chain("r2").await, before, "{}: nothing of it", backend.name);
        let run = backend.ledger.run(&run_id("r2")).await.unwrap().unwrap();
        assert_eq!(run.state, RunState::Running);
        // Its owner goes on undisturbed.
        story = story.requested(backend.at());
        backend.ledger.append(story.write(&first)).await.unwrap();
        assert_eq!(backend.ledger.effect(&story.effect.id).await.unwrap().unwrap(), story.effect);
    }
}

#[tokio::test]
async fn illegal_or_untold_moves_are_refused_whole() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, backend.at());
        backend.ledger.append(story.write(&claim)).await.unwrap();
        let before = backend.chain("r1").await;
        let proposed = story.effect.clone();
        let good = story.requested(backend.at()).write(&claim);
        let skipped = Append { entries: good.entries[1..].to_vec(), ..good.clone() };
        let untold = Append { effects: Vec::new(), ..good.clone() };
        let stale = Append { effects: vec![proposed], ..good.clone() };
        let ahead = Append { entries: Vec::new(), ..good.clone() };
        for (case, write) in
            [("skipped", skipped), ("untold", untold), ("stale", stale), ("ahead", ahead)]
        {
            let refused = backend.ledger.append(write).await;
            assert!(
                matches!(refused, Err(LedgerError::State { .. })),
                "{} {case}: {refused:?}",
                backend.name
            );
            assert_eq!(backend.chain("r1").await, before, "{} {case}", backend.name);
        }
        backend.ledger.append(good).await.unwrap();
    }
}

#[tokio::test]
async fn requested_under_a_dead_lease_is_listed_as_unknown() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, backend.at())
            .requested(backend.at());
        backend.ledger.append(story.write(&claim)).await.unwrap();
        let shown = async |state| {
            let filter = EffectFilter { state: Some(state), ..EffectFilter::default() };
            backend.ledger.effects(&filter).await.unwrap().len()
        };
        assert_eq!((shown(State::Requested).await, shown(State::Unknown).await), (1, 0));
        // BR-44: no worker runs, nothing is written, and yet it shows.
        let commits = backend.ledger.commits();
        backend.clock.advance(1_000);
        assert_eq!((shown(State::Requested).await, shown(State::Unknown).await), (0, 1));
        let all = backend.ledger.effects(&EffectFilter::default()).await.unwrap();
        assert_eq!(all[0].state, State::Unknown, "{}", backend.name);
        assert_eq!(backend.ledger.commits(), commits);
        // What is recorded is still what happened.
        let effect = backend.ledger.effect(&story.effect.id).await.unwrap().unwrap();
        assert_eq!(effect.state, State::Requested);
        // A parked run holds no lease either.
        backend.ledger.renew(&claim.run.id, claim.fence, 60_000).await.unwrap();
        assert_eq!(shown(State::Unknown).await, 0);
        let mut park = append(&claim, vec![parked(backend.at())]);
        park.run_change = Some(change(RunState::Waiting, None));
        backend.ledger.append(park).await.unwrap();
        assert_eq!(shown(State::Unknown).await, 1, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_person_settles_an_effect() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, backend.at())
            .requested(backend.at())
            .unknown(backend.at());
        let mut write = story.write(&claim);
        write.run_change = Some(change(RunState::Halted, None));
        let head = backend.ledger.append(write).await.unwrap();
        let mut story = story.under(twice_core::ids::Fence(2)).confirmed(json!({}), backend.at());
        let decision = OperatorAppend {
            run: claim.run.id.clone(),
            entries: story.take_entries(),
            effects: vec![story.effect.clone()],
            run_change: Some(change(RunState::Ready, None)),
            expected_head: head,
        };
        backend.ledger.append_as_operator(decision).await.unwrap();
        check_projection(&backend, &story).await;
    }
}

#[tokio::test]
async fn an_answer_is_written_whoever_holds_the_run_and_nothing_else_is() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let run = claim.run.id.clone();
        let story = |slot: &str| Story::of_run(&run, slot, claim.fence, backend.at());
        let mut asked = story("asked").settled_here().approving().requested(backend.at());
        backend.ledger.append(asked.write(&claim)).await.unwrap();
        let stale = backend.head("r1").await;
        let mut other = story("other").requested(backend.at());
        backend.ledger.append(other.write(&claim)).await.unwrap();

        let decision = |story: &mut Story, run_change| OperatorAppend {
            run: run.clone(),
            entries: story.take_entries(),
            effects: vec![story.effect.clone()],
            run_change,
            expected_head: stale,
        };
        // Neither something else, nor what comes with a change of the run.
        let mut unasked = other.clone().confirmed(json!(1), backend.at());
        let refused = backend.ledger.append_as_operator(decision(&mut unasked, None)).await;
        assert!(matches!(refused, Err(LedgerError::State { .. })), "{}: {refused:?}", backend.name);
        let mut granted = asked.clone().confirmed(json!(1), backend.at());
        let change = Some(change(RunState::Ready, None));
        let refused =
            backend.ledger.append_as_operator(decision(&mut granted.clone(), change)).await;
        assert!(matches!(refused, Err(LedgerError::State { .. })), "{}: {refused:?}", backend.name);

        let mut again = granted.clone();
        backend.ledger.append_as_operator(decision(&mut granted, None)).await.unwrap();
        let found = backend.ledger.effect(&granted.effect.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(&granted.effect), "{}", backend.name);
        let twice = backend.ledger.append_as_operator(decision(&mut again, None)).await;
        assert!(matches!(twice, Err(LedgerError::State { .. })), "{}: {twice:?}", backend.name);
        // The worker keeps its run, and cannot settle what is settled.
        let mut other = other.confirmed(json!(1), backend.at());
        backend.ledger.append(other.write(&claim)).await.unwrap();
        let mut void = asked.failed("void", backend.at());
        let late = backend.ledger.append(void.write(&claim)).await;
        assert!(matches!(late, Err(LedgerError::State { .. })), "{}: {late:?}", backend.name);
        backend.chain("r1").await;
    }
}

#[tokio::test]
async fn an_observation_is_kept_whoever_holds_the_run_and_changes_nothing() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let run = claim.run.id.clone();
        let mut story = Story::of_run(&run, "refund", claim.fence, backend.at())
            .requested(backend.at())
            .unknown(backend.at());
        backend.ledger.append(story.write(&claim)).await.unwrap();
        backend.clock.advance(1_000);
        let claim = backend.claimed("w2", Some("r1")).await;
        let mut story = story.under(claim.fence);
        for holder in ["another worker", "nobody"] {
            backend.clock.advance(1);
            let at = backend.at();
            let before = backend.ledger.run(&run).await.unwrap().unwrap();
            let id = story.effect.id.clone();
            let head = backend.ledger.observe(&run, &id, late("it is done"), at).await.unwrap();
            story = story.then(EffectEvent::Observed(late("it is done")), at);
            drop(story.take_entries());
            check_projection(&backend, &story).await;
            let after = backend.ledger.run(&run).await.unwrap().unwrap();
            let expected = twice_ledger::RunRecord { updated_at: at, ..before };
            assert_eq!(format!("{after:?}"), format!("{expected:?}"), "{}: {holder}", backend.name);
            let chain = backend.chain("r1").await;
            let last = chain.last().unwrap();
            assert_eq!((last.kind.as_str(), last.fence), ("observed", claim.fence), "{holder}");
            assert_eq!((head.seq, head.hash), (last.seq, last.hash), "{holder}");
            // Its owner goes on undisturbed.
            if holder == "another worker" {
                story = story.failed("refused", at);
                let mut write = story.write(&claim);
                write.run_change = Some(change(RunState::Waiting, Some(at)));
                backend.ledger.append(write).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn an_observation_of_what_was_never_sent_is_refused() {
    for backend in all().await {
        let first = backend.start_claimed("r1").await;
        backend.start("r2").await;
        let mut story = Story::of_run(&first.run.id, "refund", first.fence, backend.at());
        let id = story.effect.id.clone();
        let observe = async |run: &str| {
            backend.ledger.observe(&run_id(run), &id, late("it is done"), backend.at()).await
        };
        let absent = observe("r1").await;
        assert!(matches!(absent, Err(LedgerError::Absent { what: "effect", .. })), "{absent:?}");
        backend.ledger.append(story.write(&first)).await.unwrap();
        let before = backend.chain("r1").await;
        let proposed = observe("r1").await;
        assert!(matches!(proposed, Err(LedgerError::State { .. })), "{proposed:?}");
        let foreign = observe("r2").await;
        assert!(matches!(foreign, Err(LedgerError::EffectOwned { .. })), "{foreign:?}");
        let nowhere = observe("r3").await;
        assert!(matches!(nowhere, Err(LedgerError::Absent { what: "run", .. })), "{nowhere:?}");
        assert_eq!(backend.chain("r1").await, before, "{}", backend.name);
        check_projection(&backend, &story).await;
    }
}

#[tokio::test]
async fn secrets_are_taken_out_before_anything_is_stored() {
    let mut redactor = Redactor::default();
    redactor.add("s3cr3t-t0ken").unwrap();
    let marked = redactor.text("s3cr3t-t0ken") != "s3cr3t-t0ken";
    let redactor = Arc::new(RwLock::new(redactor));
    for backend in all_with(LedgerOptions { redactor, ..LedgerOptions::default() }).await {
        let claim = backend.start_claimed("r1").await;
        let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, backend.at())
            .requested(backend.at())
            .failed("refused: s3cr3t-t0ken is not valid", backend.at());
        let mut write = story.write(&claim);
        write.run_change = Some(twice_ledger::RunChange {
            output: Some(json!({ "echo": "s3cr3t-t0ken" })),
            reason: Some("s3cr3t-t0ken".to_owned()),
            ..change(RunState::Failed, None)
        });
        backend.ledger.append(write).await.unwrap();
        let observed = late("s3cr3t-t0ken is not valid");
        let (run, effect) = (&claim.run.id, &story.effect.id);
        backend.ledger.observe(run, effect, observed, backend.at()).await.unwrap();
        backend.ledger.put_definition("sha256:d", "key = s3cr3t-t0ken").await.unwrap();
        let all = format!(
            "{:?} {:?} {:?} {:?}",
            backend.chain("r1").await,
            backend.ledger.run(&run_id("r1")).await.unwrap(),
            backend.ledger.effects(&EffectFilter::default()).await.unwrap(),
            backend.ledger.definition("sha256:d").await.unwrap()
        );
        // The ledger stores what the redactor leaves, whatever that is.
        assert_eq!(all.contains("s3cr3t-t0ken"), !marked, "{}: {all}", backend.name);
    }
}

/// U+0000 is a character like any other to a provider, and none at all to some databases.
#[tokio::test]
async fn a_character_that_not_every_database_holds_spoils_nothing() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, backend.at())
            .failed("no\0way", backend.at());
        let mut write = story.write(&claim);
        let mut waiting = change(RunState::Waiting, None);
        waiting.reason = Some("it\0waits".to_owned());
        waiting.output = Some(json!({ "said\0": "\0" }));
        write.run_change = Some(waiting);
        backend.ledger.append(write).await.unwrap();
        // For people it is shown as something; what was said is kept.
        let listed = backend.ledger.effects(&EffectFilter::default()).await.unwrap();
        assert_eq!(listed[0].last_error.as_deref(), Some("no\u{fffd}way"), "{}", backend.name);
        let effect = backend.ledger.effect(&story.effect.id).await.unwrap().unwrap();
        assert_eq!(effect.last_error.as_deref(), Some("no\0way"), "{}", backend.name);
        let run = backend.ledger.run(&claim.run.id).await.unwrap().unwrap();
        assert_eq!(run.reason.as_deref(), Some("it\u{fffd}waits"), "{}", backend.name);
        assert_eq!(run.output, Some(json!({ "said\0": "\0" })), "{}", backend.name);
        backend.chain("r1").await;
        // What stands for something is kept as it is or refused.
        for key in ["k\0".to_owned(), "k".repeat(1_025)] {
            let new = NewRun { caller_key: Some(key), ..new_run("r2", backend.at()) };
            let refused = backend.ledger.start_run(new).await;
            assert!(matches!(refused, Err(LedgerError::Unstorable { .. })), "{refused:?}");
        }
        let longest = Some("ö".repeat(512));
        let new = NewRun { caller_key: longest, ..new_run("r2", backend.at()) };
        backend.ledger.start_run(new).await.unwrap();
        let refused = backend.ledger.put_definition("sha256:nul", "a\0b").await;
        assert!(matches!(refused, Err(LedgerError::Unstorable { .. })), "{refused:?}");
    }
}
