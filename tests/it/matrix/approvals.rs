//! Effects that a person has to approve: asked once, for one request, whatever crashes in between.

use std::sync::Arc;

use serde_json::json;
use twice::engine::boundary::{Boundaries, Boundary};
use twice::engine::operator::{Decision, DecisionError, Finding};
use twice::engine::retry::Evidence;
use twice::engine::{Engine, NEEDS_PERSON, RunEnd};
use twice_core::approval::{self, Answer};
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, Source};
use twice_core::ids::EffectId;
use twice_core::run::RunState;
use twice_core::time::Clock;
use twice_ledger::EffectFilter;
use twice_provider_sim::{Fault, Switch};
use twice_tests::graphs::{each, fan_out, orders, refund, refund_of};
use twice_tests::host::{Host, Pace, Store, run_id};
use twice_tests::tools::Class;
use twice_tests::undoing::{setup, undone_refund};

use super::run;
use super::saga::{check_books, input, named};

/// A day.
const EXPIRES_MS: u64 = 86_400_000;
const BY_FINANCE: &str = "approve = { by = \"finance\", expires = \"24h\" }\n";

fn ann() -> Decision {
    Decision { who: "ann".to_owned(), why: "seen the photo".to_owned() }
}

/// One node that refunds an order, which has to be approved.
async fn one(approve: &str, store: Store) -> Host {
    let node = format!("{}{approve}", refund_of("/input/one"));
    Host::start(setup(Class::KeyLookup, "", &[("one", &node)]).store(store)).await
}

fn order(amount: u64) -> serde_json::Value {
    let args = json!({ "order_id": "order-1", "amount_cents": amount });
    let step = json!({ "do": "request", "slot": "refund", "must": true, "args": args });
    let mut input = each(&[("one", vec![step])]);
    input["one"] = json!("order-1");
    input
}

/// Everything that was asked of a person, answered or not.
async fn approvals(host: &Host, id: &str) -> Vec<Effect> {
    let effects = host.effects(id).await;
    effects.into_iter().filter(|effect| effect.proposal.approves.is_some()).collect()
}

/// What is asked of a person now, by the listing.
async fn open(host: &Host) -> Vec<EffectId> {
    let filter = EffectFilter { approvals: true, waiting: true, ..EffectFilter::default() };
    host.ledger.effects(&filter).await.unwrap().into_iter().map(|row| row.id).collect()
}

#[track_caller]
fn waits(end: &RunEnd) -> String {
    match end {
        RunEnd::Waiting { why, .. } if why.starts_with(NEEDS_PERSON) => why.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_effect_waits_for_its_approval_and_is_sent_under_it() {
    run(async {
        for store in [Store::Sqlite, Store::Memory] {
            let host = one(BY_FINANCE, store).await;
            let why = waits(&host.run("run-1", order(100)).await);
            assert!(why.contains("`finance`") && why.contains("twice approvals grant"), "{why}");
            check_books(&host, 0, 0).await;
            let asked = approvals(&host, "run-1").await.remove(0);
            let question = approval::question(&asked).unwrap();
            assert_eq!((asked.state, question.by.as_str()), (State::Requested, "finance"));
            assert_eq!(question.args["amount_cents"], 100);
            assert_eq!(open(&host).await, std::slice::from_ref(&asked.id));

            // Looking again asks nobody again.
            let before = host.history("run-1").await.len();
            waits(&host.resume("run-1").await);
            waits(&host.resume("run-1").await);
            assert_eq!(approvals(&host, "run-1").await.len(), 1);
            let asked_again = host.history("run-1").await[before..]
                .iter()
                .filter(|entry| entry.effect.is_some())
                .count();
            assert_eq!(asked_again, 0);

            host.engine.answer(&asked.id, Answer::Grant, &ann()).await.unwrap();
            assert!(open(&host).await.is_empty());
            assert!(matches!(host.finish_due("run-1").await, RunEnd::Completed(_)));
            check_books(&host, 1, 0).await;
            let effects = host.effects("run-1").await;
            let sent = effects.iter().find(|effect| effect.proposal.is_of_node()).unwrap();
            assert_eq!(sent.receipt.as_ref().unwrap().approval.as_ref(), Some(&asked.id));
            let granted = &approvals(&host, "run-1").await[0];
            let source = &granted.receipt.as_ref().unwrap().source;
            assert!(matches!(source, Source::Operator { who, evidence }
                if who == "ann" && evidence == "seen the photo"));

            // An answer is given once.
            let late = host.engine.answer(&asked.id, Answer::Refuse, &ann()).await.unwrap_err();
            assert!(matches!(late, DecisionError::NotAsked { .. }), "{late}");
        }
    });
}

#[test]
fn what_is_refused_or_not_answered_in_time_is_never_sent() {
    run(async {
        let host = one(BY_FINANCE, Store::Sqlite).await;
        waits(&host.run("run-1", order(100)).await);
        // It may be named by the effect that waits for it.
        let effects = host.effects("run-1").await;
        let waiting = effects.iter().find(|effect| effect.proposal.is_of_node()).unwrap();
        host.engine.answer(&waiting.id, Answer::Refuse, &ann()).await.unwrap();
        let end = host.finish_due("run-1").await;
        assert!(matches!(&end, RunEnd::Failed { why } if why.contains("ann refused")), "{end:?}");
        let refused = host.ledger.effect(&waiting.id).await.unwrap().unwrap();
        let failure = refused.failure.unwrap();
        assert_eq!((failure.code.as_str(), failure.denied), ("not_approved", true));

        waits(&host.run("run-2", order(100)).await);
        let end = host.finish("run-2", Pace::Jump).await;
        assert!(
            matches!(&end, RunEnd::Failed { why } if why.contains("did not answer")),
            "{end:?}"
        );
        let asked = approvals(&host, "run-2").await.remove(0);
        assert_eq!(asked.failure.as_ref().unwrap().code, "expired");
        let late = host.engine.answer(&asked.id, Answer::Grant, &ann()).await.unwrap_err();
        assert!(late.to_string().contains("did not answer"), "{late}");

        // A grant that nobody used in time is no grant.
        waits(&host.run("run-3", order(100)).await);
        let asked = approvals(&host, "run-3").await.remove(0);
        host.engine.answer(&asked.id, Answer::Grant, &ann()).await.unwrap();
        host.advance(EXPIRES_MS).await;
        let end = host.finish_due("run-3").await;
        assert!(matches!(&end, RunEnd::Failed { why } if why.contains("expired")), "{end:?}");
        // Nor does an answer count that comes when the time is over, before anybody has noticed.
        waits(&host.run("run-4", order(100)).await);
        host.advance(EXPIRES_MS).await;
        let asked = approvals(&host, "run-4").await.remove(0);
        let late = host.engine.answer(&asked.id, Answer::Grant, &ann()).await.unwrap_err();
        assert!(late.to_string().contains("expired"), "{late}");
        check_books(&host, 0, 0).await;
    });
}

#[test]
fn an_approval_is_asked_for_where_its_condition_holds_or_cannot_be_decided() {
    run(async {
        let when = |condition: &str| {
            format!("approve = {{ when = \"{condition}\", by = \"finance\", expires = \"1h\" }}\n")
        };
        for (condition, amount, asks) in [
            ("args.amount_cents > 500", 100, false),
            ("args.amount_cents > 500", 501, true),
            // Divides by zero.
            ("10 / (args.amount_cents - 100) > 0", 100, true),
        ] {
            let host = one(&when(condition), Store::Memory).await;
            let end = host.run("run-1", order(amount)).await;
            match asks {
                true => drop(waits(&end)),
                false => assert!(matches!(end, RunEnd::Completed(_)), "{end:?}"),
            }
            assert_eq!(approvals(&host, "run-1").await.len(), usize::from(asks), "{condition}");
        }
        // What policy denies is asked of nobody.
        let denied = refund_of("/input/one").replace("\"true\"", "\"args.amount_cents < 5\"");
        let node = format!("{denied}{BY_FINANCE}");
        let host = Host::start(setup(Class::KeyLookup, "", &[("one", &node)])).await;
        assert!(matches!(host.run("run-1", order(100)).await, RunEnd::Failed { .. }));
        assert!(approvals(&host, "run-1").await.is_empty());
    });
}

#[test]
fn an_order_to_try_again_is_another_question() {
    run(async {
        let host = one(BY_FINANCE, Store::Sqlite).await;
        waits(&host.run("run-1", order(100)).await);
        let first = open(&host).await.remove(0);
        host.engine.answer(&first, Answer::Refuse, &ann()).await.unwrap();
        assert!(matches!(host.finish_due("run-1").await, RunEnd::Failed { .. }));
        // One effect, not the question as well.
        assert_eq!(host.engine.retry(&run_id("run-1"), Evidence::Heeded, &ann()).await.unwrap(), 1);
        waits(&host.finish_due_blocked("run-1").await);
        let second = open(&host).await.remove(0);
        assert_ne!(first, second);
        host.engine.answer(&second, Answer::Grant, &ann()).await.unwrap();
        assert!(matches!(host.finish_due("run-1").await, RunEnd::Completed(_)));
        check_books(&host, 1, 0).await;
    });
}

/// Grants what is asked as soon as somebody is, whoever holds the run.
fn grants(host: &Arc<Host>) -> tokio::task::JoinHandle<()> {
    let host = Arc::clone(host);
    tokio::spawn(async move {
        loop {
            if let Some(asked) = open(&host).await.first() {
                host.engine.answer(asked, Answer::Grant, &ann()).await.unwrap();
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
}

#[test]
fn an_answer_counts_at_once_while_another_branch_is_at_work() {
    run(async {
        let one = format!("{}{BY_FINANCE}", refund_of("/input/one"));
        let nodes = vec![("one", one), ("two", refund_of("/input/two"))];
        let slow = Switch::new(Fault::DelayAfterCommitMs).value(4_000);
        let slow = slow.path("/v1/orders/order-2/refunds");
        let setup = setup(Class::KeyLookup, "", &named(&nodes)).switches(vec![slow]);
        let host = Arc::new(Host::start(setup).await);
        let mut input = each(&[("one", vec![refund("order-1")]), ("two", vec![refund("order-2")])]);
        input["one"] = json!("order-1");
        input["two"] = json!("order-2");
        let granted = grants(&host);
        // It never parks: what was granted is sent while the other waits for its answer.
        let end = host.run("run-1", input).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        granted.await.unwrap();
        let kinds: Vec<String> =
            host.history("run-1").await.into_iter().map(|entry| entry.kind).collect();
        assert!(!kinds.iter().any(|kind| kind == "parked"), "{kinds:?}");
        check_books(&host, 2, 0).await;
    });
}

#[test]
fn an_answer_that_comes_while_a_run_is_put_to_rest_wakes_it() {
    run(async {
        let host = one(BY_FINANCE, Store::Sqlite).await;
        let clock = Arc::clone(&host.clock);
        let worker = granted_at(&host, Boundary::BeforePark);
        let before = clock.now();
        waits(&host.try_run_of(&worker, "graph", "run-1", order(100)).await.unwrap());
        // Due at once, though nobody knew that it waited.
        let end = host.engine.resume(&run_id("run-1"), false).await.unwrap();
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        assert!(clock.now().ms_since(before) < EXPIRES_MS);
        check_books(&host, 1, 0).await;
    });
}

/// A worker on which a person answers everything that is asked when it passes that boundary for the first time.
fn granted_at(host: &Host, at: Boundary) -> Engine {
    let (ledger, engine) = (Arc::clone(&host.ledger), Arc::new(host.another(Boundaries::none())));
    host.another(Boundaries::inject(move |boundary| {
        if boundary == at {
            let (ledger, engine) = (Arc::clone(&ledger), Arc::clone(&engine));
            let answered = async move {
                let filter =
                    EffectFilter { approvals: true, waiting: true, ..EffectFilter::default() };
                for asked in ledger.effects(&filter).await.unwrap() {
                    engine.answer(&asked.id, Answer::Grant, &ann()).await.unwrap();
                }
            };
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(answered));
        }
    }))
}

/// The run turns back, and its worker still finds out what became of the one effect when a person answers about the other.
#[test]
fn an_answer_that_comes_while_a_step_is_settled_stands() {
    run(async {
        let first = refund_of("/input/one").replace("\"refund\"", "\"first\"");
        let second = first.replace("\"first\"", "\"second\"").replace("/one", "/two");
        let node = format!("{first}{second}{BY_FINANCE}");
        let nodes = vec![("one", node), ("two", refund_of("/input/three"))];
        let path = |order: &str| format!("/v1/orders/{order}/refunds");
        let lost = Switch::new(Fault::CommitThenDrop).times(1).path(path("order-1"));
        // So that the other has asked for both by then.
        let slow = Switch::new(Fault::DelayMs).value(1_000).path(path("order-3"));
        let setup = setup(Class::KeyLookup, "", &named(&nodes)).switches(vec![lost, slow]);
        let host = Host::start(setup).await;
        let ask = |slot: &str, order: &str| json!({ "slot": slot, "args": { "order_id": order, "amount_cents": 100 } });
        let both = json!({
            "do": "request_all", "requests": [ask("first", "order-1"), ask("second", "order-2")],
        });
        let fatal = json!({ "do": "fatal", "message": "no way on" });
        let mut input = each(&[("one", vec![both]), ("two", vec![refund("order-3"), fatal])]);
        input["one"] = json!("order-1");
        input["two"] = json!("order-2");
        input["three"] = json!("order-3");
        let end = host.run("run-1", input).await;
        let RunEnd::Waiting { until, .. } = end else { panic!("{end:?}") };
        assert_eq!(open(&host).await.len(), 1);
        host.advance(until.ms_since(host.clock.now())).await;
        let worker = granted_at(&host, Boundary::AfterLookup);
        let mut end = worker.resume(&run_id("run-1"), false).await.unwrap();
        if matches!(end, RunEnd::Waiting { .. }) {
            end = host.finish("run-1", Pace::Jump).await;
        }
        assert!(matches!(&end, RunEnd::Failed { why } if why.contains("no way on")), "{end:?}");
        let asked = approvals(&host, "run-1").await.remove(0);
        assert_eq!(asked.state, State::Confirmed);
        // Granted, and not used.
        check_books(&host, 2, 0).await;
    });
}

#[test]
fn an_answer_that_cannot_count_any_more_is_refused() {
    run(async {
        let host = one(BY_FINANCE, Store::Sqlite).await;
        waits(&host.run("run-1", order(100)).await);
        let asked = open(&host).await.remove(0);
        host.engine.cancel(&run_id("run-1"), &ann()).await.unwrap();
        let vain = host.engine.answer(&asked, Answer::Grant, &ann()).await.unwrap_err();
        assert!(vain.to_string().contains("its run does not go on"), "{vain}");
        assert!(matches!(host.finish_due("run-1").await, RunEnd::Cancelled { .. }));
        // And whoever comes late is told how it ended.
        waits(&host.run("run-2", order(100)).await);
        let asked = open(&host).await.remove(0);
        host.engine.answer(&asked, Answer::Grant, &ann()).await.unwrap();
        let late = host.engine.answer(&asked, Answer::Refuse, &ann()).await.unwrap_err();
        let said = late.to_string();
        assert!(said.contains("granted by ann") && said.contains("seen the photo"), "{said}");
    });
}

#[test]
fn an_approval_is_settled_by_an_answer_alone_and_only_an_approval_is() {
    run(async {
        let host = one(BY_FINANCE, Store::Sqlite).await;
        waits(&host.run("run-1", order(100)).await);
        let asked = open(&host).await.remove(0);
        let by_hand = host.engine.resolve(&asked, Finding::Failed, &ann()).await.unwrap_err();
        assert!(by_hand.to_string().contains("approvals grant"), "{by_hand}");
        let mut plain = order(100);
        plain["one"] = json!("order-2");
        let other = one("", Store::Sqlite).await;
        assert!(matches!(other.run("run-1", plain).await, RunEnd::Completed(_)));
        let sent = other.effects("run-1").await.remove(0);
        let none = other.engine.answer(&sent.id, Answer::Grant, &ann()).await.unwrap_err();
        assert!(none.to_string().contains("needs no approval"), "{none}");
    });
}

#[test]
fn a_run_that_is_cancelled_or_fails_elsewhere_calls_its_questions_off() {
    run(async {
        let one = format!("{}{BY_FINANCE}", refund_of("/input/one"));
        let nodes = vec![("one", one), ("two", refund_of("/input/two"))];
        for cancelled in [true, false] {
            let host = Host::start(setup(Class::KeyLookup, "", &named(&nodes))).await;
            let two = match cancelled {
                true => json!({ "do": "return", "output": {} }),
                false => json!({ "do": "fatal", "message": "no way on" }),
            };
            let mut input = each(&[("one", vec![refund("order-1")]), ("two", vec![two])]);
            input["one"] = json!("order-1");
            input["two"] = json!("order-2");
            let end = host.run("run-1", input).await;
            if cancelled {
                waits(&end);
                host.engine.cancel(&run_id("run-1"), &ann()).await.unwrap();
                assert!(matches!(host.finish_due("run-1").await, RunEnd::Cancelled { .. }));
            } else {
                assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
            }
            assert!(open(&host).await.is_empty());
            for asked in approvals(&host, "run-1").await {
                assert_eq!(asked.failure.unwrap().code, "void");
            }
            check_books(&host, 0, 0).await;
        }
    });
}

/// `one` and `two` refund an order each, `three` fails; undoing the refund of `two` has to be approved.
async fn saga(more: &str) -> Host {
    let approve = format!(", approve = {{ by = \"finance\", expires = \"24h\" }}{more}");
    let nodes = vec![
        ("one", undone_refund("/input/one", "", "")),
        ("two", format!("after = [\"one\"]\n{}", undone_refund("/input/two", "", &approve))),
        ("three", "after = [\"two\"]".to_owned()),
    ];
    Host::start(setup(Class::KeyLookup, "", &named(&nodes))).await
}

fn fatal() -> serde_json::Value {
    input(vec![json!({ "do": "fatal", "message": "no way on" })])
}

#[test]
fn an_undo_waits_for_its_approval_and_what_is_older_waits_with_it() {
    run(async {
        let host = saga("").await;
        waits(&host.run("run-1", fatal()).await);
        check_books(&host, 2, 0).await;
        let asked = open(&host).await.remove(0);
        // Neither a cancellation nor time ends the way back.
        host.engine.cancel(&run_id("run-1"), &ann()).await.unwrap();
        waits(&host.resume("run-1").await);
        assert_eq!(open(&host).await, std::slice::from_ref(&asked));
        host.engine.answer(&asked, Answer::Grant, &ann()).await.unwrap();
        let end = host.finish_due("run-1").await;
        assert!(matches!(end, RunEnd::Failed { .. } | RunEnd::Cancelled { .. }), "{end:?}");
        check_books(&host, 2, 2).await;
        let effects = host.effects("run-1").await;
        let undo = effects
            .iter()
            .find(|effect| effect.proposal.undoes.is_some() && effect.proposal.approval.is_some());
        let undo = undo.unwrap();
        assert_eq!(undo.receipt.as_ref().unwrap().approval.as_ref(), Some(&asked));
        let key = &approvals(&host, "run-1").await[0].proposal.idempotency_key;
        let of = format!("{}/approval/", undo.proposal.idempotency_key);
        assert!(key.starts_with(&of), "{key}");
    });
}

#[test]
fn an_undo_that_is_not_approved_leaves_the_run_stuck_until_a_person_decides() {
    run(async {
        for expires in [false, true] {
            let host = saga("").await;
            waits(&host.run("run-1", fatal()).await);
            let asked = open(&host).await.remove(0);
            let end = match expires {
                true => host.finish("run-1", Pace::Jump).await,
                false => {
                    host.engine.answer(&asked, Answer::Refuse, &ann()).await.unwrap();
                    host.finish_due("run-1").await
                }
            };
            let RunEnd::Stuck { why } = &end else { panic!("{end:?}") };
            let said = if expires { "did not answer" } else { "ann refused" };
            assert!(why.contains(said), "{why}");
            check_books(&host, 2, 0).await;
            // Asked anew, with a question of its own.
            host.engine.release(&run_id("run-1"), Evidence::Heeded, &ann()).await.unwrap();
            waits(&host.finish_due_blocked("run-1").await);
            let again = open(&host).await.remove(0);
            assert_ne!(again, asked);
            host.engine.answer(&again, Answer::Grant, &ann()).await.unwrap();
            assert!(matches!(host.finish_due("run-1").await, RunEnd::Failed { .. }));
            check_books(&host, 2, 2).await;
        }
    });
}

#[test]
fn a_worker_that_vanishes_anywhere_asks_once_and_pays_once() {
    run(async {
        let mut vanished = 0;
        for boundary in Boundary::ALL {
            for nth in 1..=4 {
                let host = Arc::new(saga("").await);
                if !host.crash_run("run-1", fatal(), boundary, nth).await {
                    break;
                }
                vanished += 1;
                host.outlive_lease().await;
                let end = host.finish_due_blocked("run-1").await;
                waits(&end);
                let asked = open(&host).await;
                assert_eq!(asked.len(), 1, "{boundary:?} {nth}");
                host.engine.answer(&asked[0], Answer::Grant, &ann()).await.unwrap();
                // And once more, with the answer there.
                let again = host.crash_resume("run-1", boundary, 1).await;
                host.outlive_lease().await;
                let end = host.finish_due("run-1").await;
                assert!(
                    matches!(end, RunEnd::Failed { .. }),
                    "{boundary:?} {nth} {again}: {end:?}"
                );
                check_books(&host, 2, 2).await;
                assert_eq!(approvals(&host, "run-1").await.len(), 1, "{boundary:?} {nth}");
                let requests =
                    host.effect_events("run-1").await.into_iter().filter(|(id, event)| {
                        *id == asked[0] && matches!(event, EffectEvent::Requested(_))
                    });
                assert_eq!(requests.count(), 1, "{boundary:?} {nth}");
            }
        }
        assert!(vanished >= 12, "{vanished}");
    });
}

/// One step: a refund, then another that has to be approved. What was done before the pause is not done again behind it.
#[test]
fn what_a_step_did_before_it_waited_for_a_person_is_done_once() {
    run(async {
        let first = refund_of("/input/one").replace("\"refund\"", "\"first\"");
        let second = first.replace("\"first\"", "\"second\"").replace("/one", "/two");
        let node = format!("{first}{second}{BY_FINANCE}");
        let request = |slot: &str, order: &str| {
            let args = json!({ "order_id": order, "amount_cents": 100 });
            json!({ "do": "request", "slot": slot, "must": true, "args": args })
        };
        let steps = vec![request("first", "order-1"), request("second", "order-2")];
        let mut input = each(&[("one", steps)]);
        input["one"] = json!("order-1");
        input["two"] = json!("order-2");
        let mut vanished = 0;
        for boundary in Boundary::ALL {
            for nth in 1..=3 {
                let setup = setup(Class::KeyLookup, "", &[("one", &node)]);
                let host = Arc::new(Host::start(setup).await);
                if !host.crash_run("run-1", input.clone(), boundary, nth).await {
                    break;
                }
                vanished += 1;
                host.outlive_lease().await;
                waits(&host.finish_due_blocked("run-1").await);
                check_books(&host, 1, 0).await;
                let sent = host.effects("run-1").await;
                let first = sent.iter().find(|effect| effect.proposal.slot.as_str() == "first");
                let before = first.unwrap().clone();
                let asked = open(&host).await.remove(0);
                host.engine.answer(&asked, Answer::Grant, &ann()).await.unwrap();
                host.crash_resume("run-1", boundary, 1).await;
                host.outlive_lease().await;
                let end = host.finish_due("run-1").await;
                assert!(matches!(end, RunEnd::Completed(_)), "{boundary:?} {nth}: {end:?}");
                check_books(&host, 2, 0).await;
                let after = host.ledger.effect(&before.id).await.unwrap().unwrap();
                assert_eq!(after, before, "{boundary:?} {nth}");
                assert_eq!(approvals(&host, "run-1").await.len(), 1, "{boundary:?} {nth}");
            }
        }
        assert!(vanished >= 7, "{vanished}");
    });
}

#[test]
fn elements_of_a_fan_out_wait_for_approvals_of_their_own_beside_each_other() {
    run(async {
        let (name, keys) = fan_out(3);
        let node = format!("{keys}{BY_FINANCE}");
        let host = Host::start(setup(Class::KeyLookup, "", &[(name, &node)])).await;
        let why = waits(&host.run("run-1", orders(3)).await);
        assert!(
            why.contains("2 other approval(s) are open: `twice approvals list --run run-1`"),
            "{why}"
        );
        let asked = open(&host).await;
        assert_eq!(asked.len(), 3);
        check_books(&host, 0, 0).await;
        for (answered, id) in asked.iter().enumerate() {
            host.engine.answer(id, Answer::Grant, &ann()).await.unwrap();
            let end = host.finish_due_blocked("run-1").await;
            match answered {
                2 => assert!(matches!(end, RunEnd::Completed(_)), "{end:?}"),
                _ => drop(waits(&end)),
            }
            check_books(&host, answered as u64 + 1, 0).await;
        }
        let record = host.ledger.run(&run_id("run-1")).await.unwrap().unwrap();
        assert_eq!(record.state, RunState::Completed);
    });
}
