//! Locks on business objects: what two runs do about one order does not interleave.

use std::sync::Arc;

use serde_json::{Value, json};
use twice::engine::RunEnd;
use twice::engine::boundary::{Boundaries, Boundary};
use twice::engine::operator::{Decision, Finding};
use twice::engine::retry::Evidence;
use twice::engine::{StartRun, StartedRun};
use twice_core::effect::State;
use twice_core::event::{RunEvent, StepFailure};
use twice_core::run::{Priority, RunState};
use twice_core::time::Clock as _;
use twice_ledger::{LockFilter, LockRow};
use twice_provider_sim::{Fault, Switch};
use twice_tests::graphs::{each, refund, setup};
use twice_tests::host::{Host, Pace, Setup, Store, run_id};
use twice_tests::tools::{Class, WINDOWS, later, until_attempt};

use super::run;
use super::worker::{options, work};

const LOCK: &str = "lock = { name = \"order\" }";

fn slot(intent: &str, object: &str, lock: &str) -> String {
    format!(
        "[[node.effect]]\nslot = \"refund\"\ntool = \"payments.refund\"\nobject = \"{object}\"\nintent = \"{intent}\"\n{lock}\n"
    )
}

/// A workflow that reserves an order and then settles another, or the same.
fn two_steps(class: Class, lock: &str) -> Setup {
    let reserve = slot("reserve", "/input/first", lock);
    let settle = format!("after = [\"reserve\"]\n{}", slot("settle", "/input/second", lock));
    setup(class, WINDOWS, "", &[("reserve", &reserve), ("settle", &settle)])
}

/// The input of a run that has to wait between its two steps.
fn input(first: &str, second: &str) -> Value {
    let settle = vec![until_attempt(2, later()), refund(second)];
    let mut input = each(&[("reserve", vec![refund(first)]), ("settle", settle)]);
    input["first"] = json!(first);
    input["second"] = json!(second);
    input
}

/// Which run each request of the provider's books was of.
async fn asked(host: &Host, runs: &[&str]) -> Vec<String> {
    let mut keys = Vec::new();
    for run in runs {
        for effect in host.effects(run).await {
            keys.push((effect.proposal.provider_key.clone(), (*run).to_owned()));
        }
    }
    let requests = host.sim.requests(0).await.unwrap();
    let of = |key: Option<String>| keys.iter().find(|(known, _)| Some(known) == key.as_ref());
    let posts = requests.into_iter().filter(|request| request.method == "POST");
    posts.map(|request| of(request.idempotency_key).unwrap().1.clone()).collect()
}

async fn locks(host: &Host) -> Vec<LockRow> {
    host.ledger.locks(&LockFilter::default()).await.unwrap()
}

#[track_caller]
fn waits_for(end: &RunEnd, holder: &str) -> String {
    let RunEnd::Waiting { why, .. } = end else { panic!("{end:?}") };
    assert!(why.contains(&format!("run {holder} has the lock `order` on")), "{why}");
    why.clone()
}

#[track_caller]
fn completed(end: RunEnd) {
    assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
}

async fn locked(host: &Host, run: &str) -> Vec<(String, Option<String>)> {
    let events = host.run_events(run).await.into_iter();
    let locked = events.filter_map(|event| match event {
        RunEvent::ObjectLocked { object, expired, .. } => {
            Some((object, expired.map(|run| run.to_string())))
        }
        _ => None,
    });
    locked.collect()
}

#[test]
fn what_two_runs_do_about_one_order_does_not_interleave() {
    run(async {
        for store in [Store::Sqlite, Store::Memory] {
            let host = Host::start(two_steps(Class::KeyLookup, LOCK).store(store)).await;
            let first = host.run("run-1", input("order-1", "order-1")).await;
            assert!(matches!(first, RunEnd::Waiting { .. }), "{first:?}");
            let second = host.run("run-2", input("order-1", "order-1")).await;
            let why = waits_for(&second, "run-1");
            assert!(why.contains("on order-1 until it is over"), "{why}");
            assert!(host.listed("run-2").await.is_empty(), "{store:?}: nothing is proposed yet");
            let record = host.ledger.run(&run_id("run-2")).await.unwrap().unwrap();
            assert_eq!((record.state, record.reason), (RunState::Waiting, Some(why)));
            // Another order is nobody's business.
            let other = host.run("run-3", input("order-3", "order-3")).await;
            assert!(!matches!(&other, RunEnd::Waiting { why, .. } if why.contains("lock")));
            let waiting: Vec<_> = locks(&host).await.into_iter().map(|lock| lock.waiting).collect();
            assert_eq!((waiting.len(), waiting[0][0].0.as_str()), (2, "run-2"), "{store:?}");

            // Early or not, it waits as long as the other is not over.
            waits_for(&host.resume("run-2").await, "run-1");
            for id in ["run-1", "run-2", "run-3"] {
                completed(host.finish(id, Pace::Jump).await);
            }
            let asked = asked(&host, &["run-1", "run-2", "run-3"]).await;
            let about: Vec<_> = asked.iter().filter(|run| *run != "run-3").collect();
            assert_eq!(about, ["run-1", "run-1", "run-2", "run-2"], "{store:?}");
            assert_eq!(locked(&host, "run-2").await, [("order-1".to_owned(), None)]);
            assert!(locks(&host).await.is_empty(), "{store:?}");
        }
    });
}

/// What the test above would see without a lock.
#[test]
fn without_a_lock_they_do() {
    run(async {
        let host = Host::start(two_steps(Class::KeyLookup, "")).await;
        host.run("run-1", input("order-1", "order-1")).await;
        host.run("run-2", input("order-1", "order-1")).await;
        for id in ["run-1", "run-2"] {
            completed(host.finish(id, Pace::Jump).await);
        }
        let asked = asked(&host, &["run-1", "run-2"]).await;
        assert_eq!(asked[..2], ["run-1", "run-2"]);
    });
}

#[test]
fn a_worker_with_many_runs_about_one_order_does_one_after_the_other() {
    run(async {
        let slow = Switch::new(Fault::DelayMs).value(30);
        let host = Host::start(two_steps(Class::KeyLookup, LOCK).switches([slow])).await;
        let ids = ["run-1", "run-2", "run-3", "run-4"];
        for id in ids {
            let plain = || vec![refund("order-1")];
            let mut input = each(&[("reserve", plain()), ("settle", plain())]);
            input["first"] = json!("order-1");
            input["second"] = json!("order-1");
            let start = StartRun {
                id: run_id(id),
                caller_key: None,
                input,
                priority: Priority::default(),
                claim: false,
            };
            let started = host.engine.start(host.definition("graph"), start).await.unwrap();
            assert!(matches!(started, StartedRun::Created(None)));
        }
        work(host.another(Boundaries::none()), options(4), 4, 0).await;
        let asked = asked(&host, &ids).await;
        assert_eq!(asked.len(), 8, "{asked:?}");
        for pair in asked.chunks(2) {
            assert_eq!(pair[0], pair[1], "{asked:?}");
        }
    });
}

#[test]
fn a_lock_that_expires_lets_the_other_run_go_on() {
    run(async {
        let lock = "lock = { name = \"order\", expires = \"10m\" }";
        let lost = Switch::new(Fault::CommitThenDrop).times(1);
        let host = Host::start(two_steps(Class::Neither, lock).switches([lost])).await;
        // Nobody knows what became of its request, so that it waits for a person.
        let first = host.run("run-1", input("order-1", "order-1")).await;
        assert!(matches!(first, RunEnd::Halted { .. }), "{first:?}");
        let expiry = locks(&host).await[0].expires_at.unwrap();
        let second = host.run("run-2", input("order-1", "order-1")).await;
        let why = waits_for(&second, "run-1");
        assert!(why.contains(&expiry.to_string()), "{why}");
        host.advance(expiry.ms_since(host.clock.now()) - 300).await;
        let RunEnd::Waiting { until, .. } = host.resume("run-2").await else { panic!("too early") };
        assert_eq!(until, expiry, "it looks again when the lock may be taken, not later");

        completed(host.finish("run-2", Pace::Jump).await);
        let taken = ("order-1".to_owned(), Some("run-1".to_owned()));
        assert_eq!(locked(&host, "run-2").await[0], taken);
        let record = host.ledger.run(&run_id("run-1")).await.unwrap().unwrap();
        assert_eq!(record.state, RunState::Halted);
    });
}

#[test]
fn of_runs_that_would_wait_for_each_other_for_ever_one_fails_and_the_other_goes_on() {
    run(async {
        let host = Host::start(two_steps(Class::KeyLookup, LOCK)).await;
        host.run("run-1", input("order-1", "order-2")).await;
        host.run("run-2", input("order-2", "order-1")).await;
        waits_for(&host.resume("run-1").await, "run-2");
        // Who began to wait last is told by milliseconds.
        host.advance(5).await;
        let RunEnd::Failed { why } = host.resume("run-2").await else { panic!("it waits") };
        for part in [
            "node `settle` would wait for ever",
            "run run-2 waits for the lock `order` on order-1, which run run-1 has",
            "run run-1 waits for the lock `order` on order-2, which run run-2 has",
        ] {
            assert!(why.contains(part), "{why}");
        }
        let events = host.run_events("run-2").await;
        let told = events.iter().any(|event| {
            matches!(event, RunEvent::StepFailed { cause: StepFailure::Deadlock { .. }, .. })
        });
        assert!(told, "{events:?}");
        assert_eq!(host.listed("run-2").await.len(), 1, "nothing more was proposed");
        completed(host.finish("run-1", Pace::Jump).await);

        // It may be tried again, now that the other is over.
        let decision = Decision { who: "ada".to_owned(), why: "the other is over".to_owned() };
        host.engine.retry(&run_id("run-2"), Evidence::Heeded, &decision).await.unwrap();
        completed(host.finish("run-2", Pace::Jump).await);
        assert_eq!(host.counted("refund").await.effects, 4);
        assert!(locks(&host).await.is_empty());
    });
}

#[test]
fn a_worker_that_vanishes_between_lock_and_proposal_leaves_the_lock_with_its_run() {
    run(async {
        for boundary in [Boundary::AfterLock, Boundary::AfterRequestedCommit] {
            let host = Arc::new(Host::start(two_steps(Class::KeyLookup, LOCK)).await);
            let one = input("order-1", "order-1");
            assert!(host.crash_run("run-1", one, boundary, 1).await);
            let proposed = host.listed("run-1").await.len();
            assert_eq!(proposed, usize::from(boundary == Boundary::AfterRequestedCommit));
            waits_for(&host.run("run-2", input("order-1", "order-1")).await, "run-1");
            host.outlive_lease().await;
            waits_for(&host.resume("run-2").await, "run-1");
            // And once more, at the same place if it comes there again.
            let again = host.crash_resume("run-1", boundary, 1).await;
            assert_eq!(again, boundary == Boundary::AfterLock, "{}", boundary.as_str());
            host.outlive_lease().await;
            if again {
                waits_for(&host.resume("run-2").await, "run-1");
            }
            completed(host.finish("run-1", Pace::Jump).await);
            completed(host.finish("run-2", Pace::Jump).await);
            // Taken once, whoever went on with the run.
            assert_eq!(locked(&host, "run-1").await.len(), 1, "{}", boundary.as_str());
            let asked = asked(&host, &["run-1", "run-2"]).await;
            let turns = asked.iter().zip(&asked[1..]).filter(|(a, b)| a != b).count();
            assert_eq!(turns, 1, "{}: {asked:?}", boundary.as_str());
            assert_eq!(host.counted("refund").await.effects, 4, "{}", boundary.as_str());
        }
    });
}

/// Else the run that goes on could find another object, and lock that one too. What is written first stands first in the
/// chain, so this tells also of an order in which no worker happened to vanish.
#[test]
fn what_an_object_was_found_in_is_durable_before_the_lock_on_it_is() {
    run(async {
        let reserve = slot("reserve", "/input/first", "");
        let settle = slot("settle", "/receipts/reserve/refund/external_id", LOCK);
        let settle = format!("after = [\"reserve\"]\n{settle}");
        let nodes = [("reserve", reserve.as_str()), ("settle", settle.as_str())];
        let host = Arc::new(Host::start(setup(Class::KeyLookup, WINDOWS, "", &nodes)).await);
        let steps = [("reserve", vec![refund("order-1")]), ("settle", vec![refund("order-1")])];
        let mut input = each(&steps);
        input["first"] = json!("order-1");
        assert!(host.crash_run("run-1", input, Boundary::AfterLock, 1).await);
        let reserved = host.effect("run-1").await;
        assert_eq!(reserved.state, State::Confirmed);
        let id = reserved.receipt.unwrap().external_id.unwrap();
        assert_eq!(locked(&host, "run-1").await, [(id, None)]);
        let kinds: Vec<String> =
            host.history("run-1").await.into_iter().map(|entry| entry.kind).collect();
        let place = |kind: &str| kinds.iter().position(|found| found == kind);
        assert!(place("confirmed").unwrap() < place("object_locked").unwrap(), "{kinds:?}");
        host.outlive_lease().await;
        completed(host.finish("run-1", Pace::Jump).await);
        assert_eq!(locked(&host, "run-1").await.len(), 1);
    });
}

#[test]
fn what_is_on_record_asks_for_no_lock_when_a_person_took_it_away() {
    run(async {
        let lost = Switch::new(Fault::CommitThenDrop).times(1);
        let host = Host::start(two_steps(Class::Neither, LOCK).switches([lost])).await;
        let first = host.run("run-1", input("order-1", "order-9")).await;
        assert!(matches!(first, RunEnd::Halted { .. }), "{first:?}");
        waits_for(&host.run("run-2", input("order-1", "order-1")).await, "run-1");
        let decision = Decision { who: "ada".to_owned(), why: "it will take days".to_owned() };
        let held = locks(&host).await.remove(0);
        host.engine.unlock(&held, &decision).await.unwrap();
        let second = host.resume("run-2").await;
        assert!(!matches!(&second, RunEnd::Waiting { why, .. } if why.contains("lock")));

        let effect = host.effect("run-1").await;
        let finding = Finding::Confirmed {
            result: json!({ "id": "re_1", "order_id": "order-1", "amount_cents": 100 }),
            external_id: Some("re_1".to_owned()),
        };
        host.engine.resolve(&effect.id, finding, &decision).await.unwrap();
        // The other has the lock on order-1 by now, and the effect that this run asks for again is answered.
        completed(host.finish("run-1", Pace::Jump).await);
        completed(host.finish("run-2", Pace::Jump).await);
    });
}
