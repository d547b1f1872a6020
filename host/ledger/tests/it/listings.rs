//! Pages of runs, effects and entries.

use serde_json::json;
use twice_core::effect::State;
use twice_core::event::{Conflict, EffectEvent};
use twice_core::limits::PAGE_MAX;
use twice_core::run::RunState;
use twice_ledger::{EffectFilter, NewRun, RunFilter};

use crate::support::{Backend, Story, all, append, change, name, new_run, parked, run_id};

#[tokio::test]
async fn runs_are_listed_newest_first_in_pages() {
    for backend in all().await {
        for index in 0..7 {
            // Two of each instant: paging must not lose or repeat either.
            let at = backend.at().plus_ms(index / 2);
            let id = format!("r{index}");
            backend.ledger.start_run(new_run(&id, at)).await.unwrap();
        }
        let whole = ["r6", "r5", "r4", "r3", "r2", "r1", "r0"];
        assert_eq!(ids(&backend, &RunFilter::default()).await, whole, "{}", backend.name);
        let mut paged = Vec::new();
        let mut filter = RunFilter { limit: 2, ..RunFilter::default() };
        loop {
            let page = ids(&backend, &filter).await;
            assert!(page.len() <= 2);
            let Some(last) = page.last() else { break };
            filter.before = Some(run_id(last));
            paged.extend(page);
        }
        assert_eq!(paged, whole, "{}", backend.name);
        let none = RunFilter { before: Some(run_id("none")), ..RunFilter::default() };
        assert!(ids(&backend, &none).await.is_empty());
    }
}

/// By their bytes, in no language's order: pages of one database are those of another.
#[tokio::test]
async fn ids_are_ordered_by_their_bytes() {
    for backend in all().await {
        for id in ["b", "a_b", "B", "a-b", "ab", "A", "a.b", "aB"] {
            backend.start(id).await;
        }
        let mut ordered = vec!["A", "B", "a-b", "a.b", "aB", "a_b", "ab", "b"];
        for id in &ordered {
            assert_eq!(backend.claimed("w1", None).await.run.id, run_id(id), "{}", backend.name);
        }
        ordered.reverse();
        assert_eq!(ids(&backend, &RunFilter::default()).await, ordered, "{}", backend.name);
    }
}

async fn ids(backend: &Backend, filter: &RunFilter) -> Vec<String> {
    let runs = backend.ledger.runs(filter).await.unwrap();
    runs.into_iter().map(|run| run.id.to_string()).collect()
}

#[tokio::test]
async fn runs_are_listed_by_state_and_workflow() {
    for backend in all().await {
        backend.start("r1").await;
        let other = NewRun { workflow: name("other"), ..new_run("r2", backend.at()) };
        backend.ledger.start_run(other).await.unwrap();
        backend.start_claimed("r3").await;
        for (state, workflow, expected) in [
            (None, None, vec!["r3", "r2", "r1"]),
            (Some(RunState::Ready), None, vec!["r2", "r1"]),
            (Some(RunState::Running), None, vec!["r3"]),
            (Some(RunState::Failed), None, vec![]),
            (None, Some("other"), vec!["r2"]),
            (Some(RunState::Ready), Some("refunds"), vec!["r1"]),
        ] {
            let filter = RunFilter { state, workflow: workflow.map(name), ..RunFilter::default() };
            assert_eq!(ids(&backend, &filter).await, expected, "{} {filter:?}", backend.name);
        }
    }
}

#[tokio::test]
async fn histories_come_in_pages() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let many = (0..PAGE_MAX + 10).map(|_| parked(backend.at())).collect();
        backend.ledger.append(append(&claim, many)).await.unwrap();
        let run = run_id("r1");
        for (after, limit, expected) in [
            (0, 3, 3),
            (0, 0, PAGE_MAX as usize),
            (0, u32::MAX, PAGE_MAX as usize),
            (1_010, 10, 2),
            (1_012, 10, 0),
        ] {
            let page = backend.ledger.history(&run, after, limit).await.unwrap();
            assert_eq!(page.len(), expected, "{} {after} {limit}", backend.name);
            assert!(page.iter().enumerate().all(|(at, entry)| entry.seq == after + 1 + at as i64));
        }
        assert_eq!(backend.chain("r1").await.len(), 1_012);
    }
}

#[tokio::test]
async fn effects_are_listed_by_what_they_wait_for() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let dead = backend.start_claimed("r2").await;
        let at = backend.at();
        let story = |slot: &str| Story::of_run(&claim.run.id, slot, claim.fence, at);
        let conflict = |story: Story| {
            let hash = story.effect.proposal.request_hash.clone();
            let other = Conflict {
                recorded_hash: hash.clone(),
                requested_hash: hash,
                args: json!({ "amount_cents": 2 }),
            };
            story.then(EffectEvent::Conflicted(other), at)
        };
        let stories = [
            ("proposed", story("proposed")),
            ("requested", story("requested").requested(at)),
            ("unknown", story("unknown").requested(at).unknown(at)),
            ("confirmed", story("confirmed").requested(at).confirmed(json!(1), at)),
            ("failed", story("failed").failed("no", at)),
            ("held", conflict(story("held").requested(at).confirmed(json!(1), at))),
            ("dead", Story::of_run(&dead.run.id, "dead", dead.fence, at).requested(at)),
            ("asked", story("asked").settled_here().approving().requested(at)),
            (
                "granted",
                story("granted").settled_here().approving().requested(at).confirmed(json!(1), at),
            ),
        ];
        for (slot, mut story) in stories {
            let owner = if slot == "dead" { &dead } else { &claim };
            backend.ledger.append(story.write(owner)).await.unwrap();
        }
        let mut leave = append(&dead, vec![parked(at)]);
        leave.run_change = Some(change(RunState::Waiting, None));
        backend.ledger.append(leave).await.unwrap();

        let any = EffectFilter::default;
        let of = |run: &str| Some(run_id(run));
        for (filter, mut expected) in [
            (
                any(),
                vec![
                    "proposed",
                    "requested",
                    "unknown",
                    "confirmed",
                    "failed",
                    "held",
                    "dead",
                    "asked",
                    "granted",
                ],
            ),
            (EffectFilter { run: of("r2"), ..any() }, vec!["dead"]),
            (
                EffectFilter { waiting: true, ..any() },
                vec!["proposed", "requested", "unknown", "dead", "asked"],
            ),
            (EffectFilter { held: true, ..any() }, vec!["held"]),
            (EffectFilter { held: true, waiting: true, ..any() }, vec![]),
            (EffectFilter { run: of("r1"), held: true, ..any() }, vec!["held"]),
            (
                EffectFilter { run: of("r1"), waiting: true, ..any() },
                vec!["proposed", "requested", "unknown", "asked"],
            ),
            (EffectFilter { approvals: true, ..any() }, vec!["asked", "granted"]),
            (EffectFilter { approvals: true, waiting: true, ..any() }, vec!["asked"]),
            (
                EffectFilter { run: of("r1"), approvals: true, waiting: true, ..any() },
                vec!["asked"],
            ),
            (EffectFilter { run: of("r2"), approvals: true, ..any() }, vec![]),
            (EffectFilter { state: Some(State::Unknown), ..any() }, vec!["unknown", "dead"]),
            (EffectFilter { state: Some(State::Requested), ..any() }, vec!["requested", "asked"]),
            (
                EffectFilter { state: Some(State::Confirmed), ..any() },
                vec!["confirmed", "held", "granted"],
            ),
            (EffectFilter { state: Some(State::Authorized), ..any() }, vec![]),
            (EffectFilter { run: of("none"), ..any() }, vec![]),
        ] {
            let mut found = slots(&backend, &filter).await;
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected, "{} {filter:?}", backend.name);
        }
        check_paging(&backend).await;
    }
}

async fn slots(backend: &Backend, filter: &EffectFilter) -> Vec<String> {
    let rows = backend.ledger.effects(filter).await.unwrap();
    rows.into_iter().map(|row| row.slot.to_string()).collect()
}

async fn check_paging(backend: &Backend) {
    let whole = backend.ledger.effects(&EffectFilter::default()).await.unwrap();
    let mut paged = Vec::new();
    let mut filter = EffectFilter { limit: 2, ..EffectFilter::default() };
    loop {
        let page = backend.ledger.effects(&filter).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.after = Some(last.id.clone());
        paged.extend(page);
    }
    assert_eq!(paged, whole, "{}", backend.name);
}
