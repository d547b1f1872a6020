//! A worker in this process: what it takes, how many at a time, and what it does with what it cannot run.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use twice::engine::boundary::{Boundaries, Boundary};
use twice::engine::{Engine, RunEnd, StartRun, StartedRun, Taken};
use twice::worker::{self, Event, Options};
use twice_core::chain::{Content, NewEntry};
use twice_core::event::RunEvent;
use twice_core::run::{Priority, RunState};
use twice_core::time::Clock;
use twice_ledger::{NewRun, RunRecord, Turn};
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, LEASE_MS, Setup, run_id};

use super::run;
use super::tools::{Class, WINDOWS, ask, order, payments, refund_slot, workflow};

const HOURS: i64 = 5 * 3_600_000;

fn two_workflows() -> Setup {
    let slot = refund_slot("refund", "");
    let (a, b) = (workflow("a", "", &[&slot]), workflow("b", "", &[&slot]));
    Setup::new(&[&a, &b]).tool(payments(Class::KeyLookup, WINDOWS))
}

fn start(id: &str, priority: i64, claim: bool) -> StartRun {
    StartRun {
        id: run_id(id),
        caller_key: None,
        input: order(id, vec![ask("refund", id, 100)]),
        priority: Priority::try_from(priority).unwrap(),
        claim,
    }
}

/// Records runs `NAME-0` and so on of a workflow, for workers.
async fn record(host: &Host, workflow: &str, runs: usize) {
    for number in 0..runs {
        let new = start(&format!("{workflow}-{number}"), 0, false);
        let started = host.engine.start(host.definition(workflow), new).await.unwrap();
        assert!(matches!(started, StartedRun::Created(None)));
    }
}

async fn record_of(host: &Host, run: &str) -> RunRecord {
    host.ledger.run(&run_id(run)).await.unwrap().unwrap()
}

pub(super) fn options(concurrency: usize) -> Options {
    Options {
        concurrency: NonZeroUsize::new(concurrency).unwrap(),
        per_workflow: BTreeMap::new(),
        until_idle: false,
    }
}

/// What a worker told, in words.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn take_in(&self, event: &Event<'_>) {
        let said = match event {
            Event::Taken { run, .. } => format!("taken {run}"),
            Event::Left { run, end: RunEnd::Completed(_), .. } => format!("completed {run}"),
            Event::Left { run, end, .. } => format!("left {run} {end:?}"),
            Event::Lost { run, why, .. } => format!("lost {run} {why}"),
            Event::Trouble { why, .. } => format!("trouble {why}"),
        };
        self.0.lock().unwrap().push(said);
    }

    fn count(&self, word: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|said| said.starts_with(word)).count()
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Lets a worker work until so many runs completed and so many were lost; then it is told to stop.
pub(super) async fn work(
    engine: Engine,
    options: Options,
    completed: usize,
    lost: usize,
) -> Vec<String> {
    let told = Told::default();
    let (stop, told_to_stop) = watch::channel(false);
    let tell = |event: &Event<'_>| {
        told.take_in(event);
        let enough = told.count("completed") >= completed && told.count("lost") >= lost;
        stop.send_if_modified(|stop| enough && !std::mem::replace(stop, true));
    };
    worker::work(&Arc::new(engine), &options, told_to_stop, &tell).await.unwrap();
    told.all()
}

#[test]
fn a_run_that_no_worker_can_run_keeps_no_place() {
    run(async {
        let host = Host::start(two_workflows()).await;
        let damaged = "sha256:damaged".to_owned();
        host.ledger.put_definition(&damaged, "not what it was").await.unwrap();
        let StartRun { id, input, priority, .. } = start("run-0", 9, false);
        let workflow = host.definition("a").workflow.name.clone();
        let event = RunEvent::Started {
            workflow: workflow.clone(),
            version: 1,
            definition: damaged.clone(),
            input: input.clone(),
            identity_alg: 1,
            priority,
            parent: None,
        };
        let entry = NewEntry { content: Content::Run(event), at: host.clock.now() };
        let new = NewRun {
            id,
            caller_key: None,
            workflow,
            definition: damaged,
            input,
            priority,
            entry,
            claim: None,
            parent_fence: None,
        };
        host.ledger.start_run(new).await.unwrap();
        record(&host, "a", 2).await;

        let told = work(host.another(Boundaries::none()), options(1), 2, 0).await;
        assert_eq!(told[0], "taken run-0", "{told:?}");
        assert!(told[1].starts_with("left run-0 Waiting"), "{told:?}");
        let left = record_of(&host, "run-0").await;
        assert_eq!((left.state, left.crashes), (RunState::Waiting, 0), "{left:?}");
        let reason = left.reason.unwrap();
        assert!(reason.contains("its worker could not go on with it: run run-0"), "{reason}");
        assert!(left.due_at.is_some());
    });
}

#[test]
fn what_breaks_in_one_run_ends_no_other_and_no_worker() {
    run(async {
        let host = Host::start(two_workflows()).await;
        record(&host, "a", 4).await;
        let broken = AtomicBool::new(false);
        let boundaries = Boundaries::inject(move |boundary| {
            if boundary == Boundary::AfterReply && !broken.swap(true, Ordering::SeqCst) {
                std::panic::resume_unwind(Box::new("broken"));
            }
        });
        let told = work(host.another(boundaries), options(2), 3, 1).await;
        let lost: Vec<&str> =
            told.iter().filter_map(|said| said.strip_prefix("lost ")?.split(' ').next()).collect();
        assert_eq!(lost.len(), 1, "{told:?}");
        let left = record_of(&host, lost[0]).await;
        assert_eq!(left.state, RunState::Running, "{left:?}");

        host.outlive_lease().await;
        let told = work(host.another(Boundaries::none()), options(2), 1, 0).await;
        assert!(told.contains(&format!("completed {}", lost[0])), "{told:?}");
        let counted = host.counted("refund").await;
        assert_eq!((counted.effects, counted.duplicates), (4, 0), "{counted:?}");
    });
}

#[test]
fn a_worker_takes_no_more_at_a_time_than_it_may() {
    run(async {
        let slow = Switch::new(Fault::DelayMs).value(60);
        let host = Host::start(two_workflows().switches([slow])).await;
        record(&host, "a", 6).await;
        record(&host, "b", 6).await;
        let mut options = options(3);
        let name = host.definition("a").workflow.name.clone();
        options.per_workflow.insert(name, NonZeroUsize::MIN);
        let told = work(host.another(Boundaries::none()), options, 12, 0).await;
        let (mut of_a, mut of_b) = (0_usize, 0_usize);
        let (mut most_of_a, mut most) = (0, 0);
        for said in &told {
            let (what, run) = said.split_once(' ').unwrap();
            let running = if run.starts_with("a-") { &mut of_a } else { &mut of_b };
            match what {
                "taken" => *running += 1,
                _ => *running -= 1,
            }
            most_of_a = most_of_a.max(of_a);
            most = most.max(of_a + of_b);
        }
        assert_eq!((most_of_a, most), (1, 3), "{told:?}");
    });
}

/// Leases are judged by the ledger's clock alone.
#[test]
fn a_worker_whose_clock_is_wrong_takes_nothing_too_early_or_too_late() {
    run(async {
        let host = Host::start(two_workflows()).await;
        let held = start("held", 0, true);
        let held = host.engine.start(host.definition("a"), held).await.unwrap();
        let StartedRun::Created(Some(_held)) = held else { panic!("it is new") };
        let (ahead, behind) = (host.another_off_by(HOURS), host.another_off_by(-HOURS));
        for engine in [&ahead, &behind] {
            let taken = engine.take_next(&Turn::default()).await.unwrap();
            assert!(matches!(taken, Taken::Nothing), "a lease was taken that is held");
        }
        record(&host, "a", 2).await;
        record(&host, "b", 2).await;
        let told = work(ahead, options(2), 4, 0).await;
        assert_eq!(told.iter().filter(|said| said.starts_with("completed")).count(), 4);
        host.advance(LEASE_MS + 1).await;
        let told = work(behind, options(2), 1, 0).await;
        assert_eq!(told, ["taken held", "completed held"]);
    });
}
