//! The same operations on every implementation, drawn from a seed: the same answers, and the same histories.
//! `SEED=n` repeats one.

use serde_json::json;
use twice_core::chain::Head;
use twice_core::ids::{Fence, RunId};
use twice_core::run::{Priority, RunState};
use twice_core::time::Timestamp;
use twice_ledger::{
    Append, Cancel, ClaimBy, EffectFilter, Ledger, LockFilter, NewRun, ObjectLock, OperatorAppend,
    OverFilter, Prune, RunFilter, Turn, Unlock, Wanted,
};

use crate::children::child_of;
use crate::support::{
    Backend, LEASE_MS, Story, all, by, change, late, name, new_run, parked, run_id,
};

const SEEDS: [u64; 4] = [1, 2, 3, 20_240_607];
const STEPS: usize = 1_400;
/// More than are removed.
const RUNS: [&str; 8] = ["r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"];

/// Few, so that runs meet.
const OBJECTS: [&str; 3] = ["1", "2", "3"];

/// SplitMix64: small, and the same everywhere.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize].clone()
    }
}

#[tokio::test]
async fn implementations_agree() {
    let repeated = std::env::var("SEED").is_ok();
    let mut deadlocks = 0;
    let seeds = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => SEEDS.to_vec(),
    };
    for seed in seeds {
        println!("seed={seed}");
        let backends = all().await;
        let mut transcripts = Vec::new();
        for backend in &backends {
            transcripts.push(play(backend, seed).await);
        }
        let file = &transcripts[0];
        for (backend, other) in backends.iter().zip(&transcripts).skip(1) {
            for (step, (left, right)) in file.iter().zip(other).enumerate() {
                assert_eq!(left, right, "seed={seed} step={step} {}", backend.name);
            }
            assert_eq!(file.len(), other.len(), "seed={seed} {}", backend.name);
        }
        // A seed that only ever succeeds, or never, compares nothing of interest.
        let count = |what: &str| file.iter().filter(|line| line.contains(what)).count();
        for (what, least) in [("append", 20), ("observe", 2), ("prune", 0), ("unlock", 0)] {
            let (written, refused) = (count(&format!("{what} Ok")), count(&format!("{what} Err")));
            assert!(
                written > least && refused > least,
                "seed={seed}: {written} written, {refused} refused of {what}"
            );
        }
        for what in ["Taken", "Held"] {
            assert!(count(&format!("lock Ok({what}")) > 0, "seed={seed}: no lock was {what}");
        }
        deadlocks += count("lock Ok(Deadlock");
    }
    assert!(repeated || deadlocks > 0, "no runs waited for each other");
}

/// Plays the operations of a seed; returns what came of each, and then everything there is to read.
async fn play(backend: &Backend, seed: u64) -> Vec<String> {
    let mut draw = Draw(seed);
    let mut transcript = Vec::new();
    for _ in 0..STEPS {
        backend.clock.advance(draw.below(400) as i64);
        let line = step(backend, &mut draw).await;
        transcript.push(line);
    }
    let ledger = &backend.ledger;
    let runs = ledger.runs(&RunFilter::default()).await.unwrap();
    for run in &runs {
        transcript.push(format!("{run:?}"));
        transcript.push(format!("{:?}", backend.chain(run.id.as_str()).await));
    }
    for row in ledger.effects(&EffectFilter::default()).await.unwrap() {
        transcript.push(format!("{row:?} {:?}", ledger.effect(&row.id).await.unwrap()));
    }
    transcript.push(format!("{:?}", ledger.runs_over(&OverFilter::default()).await));
    for run in RUNS {
        transcript.push(format!("{:?}", ledger.tombstone(&run_id(run)).await));
    }
    let children = RunFilter { parent: Some(run_id("r1")), open: true, ..RunFilter::default() };
    transcript.push(format!("{:?}", ledger.runs(&children).await));
    transcript.push(format!("{:?}", ledger.next_due_ms().await));
    transcript.push(format!("{:?}", ledger.overview().await));
    transcript
}

async fn step(backend: &Backend, draw: &mut Draw) -> String {
    let ledger = &backend.ledger;
    let run = run_id(draw.pick(&RUNS));
    let worker = by(draw.pick(&["w1", "w2", "w3"]));
    match draw.below(32) {
        0 | 1 => {
            let key = draw.pick(&[None, None, Some("k1".to_owned()), Some("k2".to_owned())]);
            let input = draw.pick(&[
                json!({ "order_id": "order-1" }),
                json!({ "order_id": "order-1" }),
                json!(2),
            ]);
            let claim = draw.pick(&[None, Some(worker)]);
            let workflow = name(if run.as_str() < "r4" { "refunds" } else { "a" });
            let priority = draw.pick(&[0, 0, 0, 1, -1]);
            let parent = draw.pick(&[None, None, None, Some("r1"), Some("r2")]);
            let started = match parent {
                Some(parent) => child_of(parent, run.as_str(), backend.at()),
                None => new_run(run.as_str(), backend.at()),
            };
            let new = NewRun {
                caller_key: key,
                workflow,
                input,
                priority: Priority::try_from(priority).unwrap(),
                claim,
                ..started
            };
            format!("start {:?}", ledger.start_run(new).await)
        }
        2 | 3 => {
            let after = draw.pick(&[None, Some("a"), Some("refunds"), Some("z")]).map(name);
            let not = draw.pick(&[vec![], vec![], vec![name("a")], vec![name("refunds")]]);
            let turn = Wanted::Turn(Turn { after, not });
            format!("claim next {:?}", ledger.claim(&worker, &turn, backend.at()).await)
        }
        4 => {
            let early = draw.below(2) == 0;
            format!(
                "claim {:?}",
                ledger.claim(&worker, &Wanted::run(&run, early), backend.at()).await
            )
        }
        5 => {
            let fence = fence_of(&**ledger, &run, draw).await;
            format!("renew {:?}", ledger.renew(&run, fence, LEASE_MS).await)
        }
        6 => format!("decide {:?}", decide(backend, &run, draw).await),
        13 => {
            let over = ledger.runs_over(&OverFilter::default()).await.unwrap();
            let run = match draw.below(4) {
                1.. if !over.is_empty() => draw.pick(&over).id,
                _ => run,
            };
            let head = ledger.head(&run).await.unwrap_or_else(|_| Head::empty(&run));
            // Few runs come to an end by chance.
            let ended = OperatorAppend {
                run: run.clone(),
                entries: vec![parked(backend.at())],
                effects: Vec::new(),
                run_change: Some(change(draw.pick(&[RunState::Failed, RunState::Completed]), None)),
                expected_head: head,
            };
            let head = match draw.below(4) {
                0..3 => head,
                _ => ledger.append_as_operator(ended).await.unwrap_or(head),
            };
            let prune = Prune {
                run,
                expected_head: draw.pick(&[head, head, Head { seq: 1, ..head }]),
                by: "ada".to_owned(),
                export: "there".to_owned(),
                export_digest: "sha256:1".to_owned(),
            };
            format!("prune {:?}", ledger.prune(prune).await)
        }
        18 | 24..=26 => {
            let unlock = Unlock {
                run,
                name: name("order"),
                object: draw.pick(&OBJECTS).to_owned(),
                who: "ada".to_owned(),
                why: "it is time".to_owned(),
            };
            format!("unlock {:?}", ledger.unlock(unlock, backend.at()).await)
        }
        14..=17 | 27..=29 => {
            let wanted = ObjectLock {
                fence: fence_of(&**ledger, &run, draw).await,
                run,
                name: name("order"),
                object: draw.pick(&OBJECTS).to_owned(),
                expires_ms: draw.pick(&[None, Some(500), Some(3_000)]),
            };
            let locked = ledger.lock(wanted, backend.at()).await;
            let listed = ledger.locks(&LockFilter::default()).await;
            format!("lock {locked:?} {listed:?}")
        }
        20 => format!("wake {:?}", ledger.wake(&run).await),
        7 => format!("observe {:?}", observe(backend, &run, draw).await),
        19 if draw.below(3) == 0 => {
            let cancel = Cancel { who: "ada".to_owned(), why: "no more".to_owned() };
            format!("cancel {:?}", ledger.request_cancel(&run, &cancel, backend.at()).await)
        }
        _ => format!("append {:?}", write(backend, &run, draw).await),
    }
}

/// Mostly the token of the run, sometimes one of before.
async fn fence_of(ledger: &dyn Ledger, run: &RunId, draw: &mut Draw) -> Fence {
    let current = ledger.run(run).await.unwrap().map_or(Fence(1), |run| run.fence);
    Fence(current.0 - i64::from(draw.below(6) == 0))
}

async fn write(
    backend: &Backend,
    run: &RunId,
    draw: &mut Draw,
) -> Result<Head, twice_ledger::LedgerError> {
    let fence = fence_of(&*backend.ledger, run, draw).await;
    let (entries, effects) = moves(backend, run, fence, draw).await;
    let run_change = if draw.below(8) == 0 {
        let state = draw.pick(&[
            RunState::Running,
            RunState::Waiting,
            RunState::Ready,
            RunState::Ready,
            RunState::Failed,
            RunState::Completed,
            RunState::Cancelled,
            RunState::Halted,
            RunState::Stuck,
        ]);
        let due = draw.pick(&[None, Some(backend.at().plus_ms(300)), Some(Timestamp(5))]);
        Some(change(state, due))
    } else {
        None
    };
    let progress_made = draw.below(3) == 0;
    let past_pivot = draw.below(8) == 0;
    let run = run.clone();
    let append = Append { run, fence, entries, effects, run_change, progress_made, past_pivot };
    backend.ledger.append(append).await
}

/// The next moves of an effect, or of the run itself.
async fn moves(
    backend: &Backend,
    run: &RunId,
    fence: Fence,
    draw: &mut Draw,
) -> (Vec<twice_core::chain::NewEntry>, Vec<twice_core::effect::Effect>) {
    let at = backend.at();
    let mut story = match draw.below(6) {
        0 => return (vec![parked(at), parked(at)], Vec::new()),
        1 => Story::shared(run, fence, at),
        _ => Story::of_run(run, draw.pick(&["a", "b", "c"]), fence, at),
    };
    if let Some(known) = backend.ledger.effect(&story.effect.id).await.unwrap() {
        drop(story.take_entries());
        story.effect = known;
    }
    use twice_core::effect::State;
    let mut story = match (story.effect.state, draw.below(3)) {
        (State::Proposed, 0) => story.failed("denied", at),
        (State::Proposed, _) => story.requested(at),
        (State::Requested, 0) => story.unknown(at),
        (State::Requested | State::Unknown, 1) => story.failed("refused", at),
        (State::Requested | State::Unknown, _) => story.confirmed(json!({ "ok": true }), at),
        // A new proposal of something that is over: refused by the ledger.
        (State::Authorized | State::Confirmed | State::Failed, _) => {
            Story::of_run(run, "a", fence, at)
        }
    };
    (story.take_entries(), vec![story.effect])
}

async fn decide(
    backend: &Backend,
    run: &RunId,
    draw: &mut Draw,
) -> Result<Head, twice_ledger::LedgerError> {
    let head = backend.ledger.head(run).await.unwrap_or_else(|_| Head::empty(run));
    let state = draw.pick(&[RunState::Ready, RunState::Ready, RunState::Ready, RunState::Running]);
    let expected_head = draw.pick(&[head, head, head, Head::empty(run)]);
    let decision = OperatorAppend {
        run: run.clone(),
        entries: vec![parked(backend.at())],
        effects: Vec::new(),
        run_change: draw.pick(&[None, Some(change(state, None))]),
        expected_head,
    };
    backend.ledger.append_as_operator(decision).await
}

/// Of an effect that the run may own, or another, or none.
async fn observe(
    backend: &Backend,
    run: &RunId,
    draw: &mut Draw,
) -> Result<Head, twice_ledger::LedgerError> {
    let (fence, at) = (Fence(1), backend.at());
    let story = match draw.below(4) {
        0 => Story::shared(run, fence, at),
        _ => Story::of_run(run, draw.pick(&["a", "b", "c"]), fence, at),
    };
    backend.ledger.observe(run, &story.effect.id, late("so it was"), at).await
}

/// Leases of zero length end as they begin: the next claim takes over at once.
#[tokio::test]
async fn a_lease_of_no_length_is_dead_at_once() {
    for backend in all().await {
        backend.start("r1").await;
        let none = ClaimBy { lease_ms: 0, ..by("w1") };
        for fence in 1..=3 {
            match backend.ledger.claim(&none, &Wanted::any(), backend.at()).await.unwrap() {
                twice_ledger::ClaimOutcome::Claimed(claim) => {
                    assert_eq!((claim.fence, claim.run.lease_live), (Fence(fence), false));
                }
                other => panic!("{}: {other:?}", backend.name),
            }
        }
    }
}
