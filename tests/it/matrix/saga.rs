//! Runs that do not go on: what they did is undone, newest first, once what is unknown is known.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use twice::engine::RunEnd;
use twice::engine::boundary::Boundary;
use twice::engine::operator::{Decision, DecisionError, Finding};
use twice::engine::retry::Evidence;
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, EndCause, RunEvent};
use twice_core::ids::EffectId;
use twice_core::run::RunState;
use twice_ledger::LedgerError;
use twice_provider_sim::{Fault, Switch};
use twice_tests::graphs::{each, orders, refund};
use twice_tests::host::{Host, Pace, Store, run_id};
use twice_tests::tools::{Class, later, until_attempt};
use twice_tests::undoing::{happened_after_all, released_refund, setup, undone_refund};

use super::run;

const REVERSALS: &str = "/v1/refunds/*";

fn fatal() -> Value {
    json!({ "do": "fatal", "message": "no way on" })
}

fn somebody() -> Decision {
    Decision { who: "ada".to_owned(), why: "looked it up".to_owned() }
}

/// `one` and `two` refund an order each, `three` does what it is told.
fn chain(first: &str, second: &str) -> Vec<(&'static str, String)> {
    vec![
        ("one", undone_refund("/input/one", "", first)),
        ("two", format!("after = [\"one\"]\n{}", undone_refund("/input/two", "", second))),
        ("three", "after = [\"two\"]".to_owned()),
    ]
}

pub(super) fn named<'a>(nodes: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    nodes.iter().map(|(name, keys)| (*name, keys.as_str())).collect()
}

pub(super) fn input(three: Vec<Value>) -> Value {
    let two = json!({
        "do": "request", "slot": "refund", "args": { "order_id": "order-2", "amount_cents": 100 },
    });
    let mut input = each(&[("one", vec![refund("order-1")]), ("two", vec![two]), ("three", three)]);
    input["one"] = json!("order-1");
    input["two"] = json!("order-2");
    input
}

async fn host(class: Class, switches: Vec<Switch>) -> Host {
    let nodes = chain("", "");
    Host::start(setup(class, "", &named(&nodes)).switches(switches)).await
}

#[track_caller]
fn failed(end: RunEnd) -> String {
    match end {
        RunEnd::Failed { why } => why,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn stuck(end: RunEnd) -> String {
    match end {
        RunEnd::Stuck { why } => why,
        other => panic!("{other:?}"),
    }
}

/// The effects that nodes asked for, and those that undo them.
async fn sides(host: &Host, id: &str) -> (Vec<Effect>, Vec<Effect>) {
    let effects = host.effects(id).await;
    effects.into_iter().partition(|effect| effect.proposal.is_of_node())
}

/// The objects whose effects were undone, in the order in which that was asked for.
pub(super) async fn undone(host: &Host, id: &str) -> Vec<String> {
    let (asked, undos) = sides(host, id).await;
    let requested =
        host.effect_events(id).await.into_iter().filter_map(|(effect, event)| {
            matches!(event, EffectEvent::Requested(_)).then_some(effect)
        });
    let mut found: Vec<(EffectId, String)> = Vec::new();
    for effect in requested {
        let Some(undo) = undos.iter().find(|undo| undo.id == effect) else { continue };
        if undo.state == State::Confirmed && found.iter().all(|(known, _)| *known != effect) {
            let of = asked.iter().find(|of| Some(&of.id) == undo.proposal.undoes.as_ref()).unwrap();
            found.push((effect, of.proposal.identity.object.clone().unwrap()));
        }
    }
    found.into_iter().map(|(_, object)| object).collect()
}

/// The provider's own books say that exactly these many refunds were made, and these many of them reversed.
pub(super) async fn check_books(host: &Host, refunds: u64, reversals: u64) {
    let (refund, reversal) = (host.counted("refund").await, host.counted("reverse_refund").await);
    assert_eq!((refund.effects, refund.duplicates), (refunds, 0), "{refund:?}");
    assert_eq!((reversal.effects, reversal.duplicates), (reversals, 0), "{reversal:?}");
}

#[test]
fn a_run_that_fails_is_undone_newest_first_each_under_a_key_of_its_own() {
    run(async {
        for store in [Store::Sqlite, Store::Memory] {
            let nodes = chain("", "");
            let setup = setup(Class::KeyLookup, "", &named(&nodes)).store(store);
            let host = Host::start(setup).await;
            let why = failed(host.run("run-1", input(vec![fatal()])).await);
            assert!(why.contains("no way on") && why.contains("2 effect(s) undone"), "{why}");
            assert_eq!(undone(&host, "run-1").await, ["order-2", "order-1"]);
            check_books(&host, 2, 2).await;
            let (asked, undos) = sides(&host, "run-1").await;
            for (effect, undo) in asked.iter().zip(&undos) {
                let frozen = effect.proposal.compensation.as_ref().unwrap();
                let key = format!("{}/comp/payments.reverse", effect.proposal.idempotency_key);
                assert_eq!((&undo.proposal.idempotency_key, &frozen.idempotency_key), (&key, &key));
                assert_ne!(undo.proposal.provider_key, effect.proposal.provider_key);
                let id = effect.receipt.as_ref().unwrap().external_id.as_deref();
                assert_eq!(undo.proposal.args["refund_id"].as_str(), id);
                assert!(undo.authorization.is_some() && undo.receipt.is_some());
            }
            // Frozen before anything of it was sent.
            let first = host.effect_events("run-1").await.remove(0);
            let EffectEvent::Proposed(proposal) = first.1 else { panic!("{first:?}") };
            assert_eq!(proposal.compensation, asked[0].proposal.compensation);
            // Over is over.
            let before = host.history("run-1").await.len();
            assert!(matches!(host.resume("run-1").await, RunEnd::Failed { .. }));
            assert_eq!(host.history("run-1").await.len(), before);
            let refused = host
                .engine
                .retry(&run_id("run-1"), Evidence::Heeded, &somebody())
                .await
                .unwrap_err();
            assert!(refused.to_string().contains("start a new run"), "{refused}");
        }
    });
}

#[test]
fn what_is_unknown_is_found_out_before_anything_is_undone() {
    run(async {
        for (fault, refunds) in [(Fault::CommitThenDrop, 2), (Fault::DropBeforeCommit, 2)] {
            // It stays unknown for a while, as nobody can be asked; meanwhile the third node fails in another branch.
            let retry = "retry = { attempts = 2, initial = \"1ms\", max = \"1ms\" }";
            let nodes = vec![
                ("one", undone_refund("/input/one", "", "")),
                ("two", format!("after = [\"one\"]\n{}", undone_refund("/input/two", "", ""))),
                ("three", format!("after = [\"one\"]\n{retry}")),
            ];
            let lost = Switch::new(fault).path("/v1/orders/order-2/refunds").times(1);
            let deaf = Switch::new(Fault::LookupError).times(3);
            let setup = setup(Class::Lookup, "", &named(&nodes)).switches([lost, deaf]);
            let host = Host::start(setup).await;
            let end = host.run("run-1", input(vec![until_attempt(2, later()), fatal()])).await;
            assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
            host.resume("run-1").await;
            assert_eq!(sides(&host, "run-1").await.1.len(), 0, "undone before it was known");
            check_books(&host, u64::from(fault == Fault::CommitThenDrop) + 1, 0).await;
            failed(host.finish("run-1", Pace::Jump).await);
            let events = host.effect_events("run-1").await;
            let (asked, undos) = sides(&host, "run-1").await;
            let two =
                asked.iter().find(|e| e.proposal.identity.object.as_deref() == Some("order-2"));
            let two = two.unwrap();
            let settled = events.iter().position(|(id, event)| {
                let known = matches!(event, EffectEvent::Confirmed(_) | EffectEvent::Failed(_));
                *id == two.id && known
            });
            let begun = events.iter().position(|(id, _)| undos.iter().any(|undo| undo.id == *id));
            assert!(settled < begun, "{settled:?} {begun:?}");
            match two.state {
                State::Confirmed => {
                    assert_eq!(undone(&host, "run-1").await, ["order-2", "order-1"]);
                    check_books(&host, refunds, 2).await;
                }
                // It did not happen, so there is nothing to undo.
                State::Failed => {
                    assert_eq!(undone(&host, "run-1").await, ["order-1"]);
                    check_books(&host, 1, 1).await;
                }
                other => panic!("{other}"),
            }
        }
    });
}

#[test]
fn what_stays_unknown_holds_what_it_may_rest_on_and_nothing_else() {
    run(async {
        let nodes = vec![
            ("one", undone_refund("/input/one", "", "")),
            ("two", format!("after = [\"one\"]\n{}", undone_refund("/input/two", "", ""))),
            ("side", undone_refund("/input/side", "", "")),
            ("three", "after = [\"two\", \"side\"]".to_owned()),
        ];
        let lost = Switch::new(Fault::CommitThenDrop).path("/v1/orders/order-2/refunds").times(1);
        for confirmed in [true, false] {
            let setup = setup(Class::Neither, "", &named(&nodes)).switches([lost.clone()]);
            let host = Host::start(setup).await;
            let mut input = input(vec![]);
            input["nodes"]["side"] = json!([refund("side")]);
            input["side"] = json!("side");
            let end = host.run("run-1", input).await;
            assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
            // A person cancels it; nobody knows yet whether the second refund happened.
            host.engine.cancel(&run_id("run-1"), &somebody()).await.unwrap();
            let end = host.resume("run-1").await;
            let RunEnd::Halted { why } = end else { panic!("{end:?}") };
            assert!(why.contains("UNKNOWN") && why.contains("1 more on the way back"), "{why}");
            assert_eq!(undone(&host, "run-1").await, ["side"]);
            let unknown = sides(&host, "run-1").await.0;
            let unknown = unknown.iter().find(|e| e.state == State::Unknown).unwrap();
            let finding = match confirmed {
                true => Finding::Confirmed {
                    result: json!({ "id": "re_2", "order_id": "order-2", "amount_cents": 100 }),
                    external_id: Some(real_id(&host).await),
                },
                false => Finding::Failed,
            };
            host.engine.resolve(&unknown.id, finding, &somebody()).await.unwrap();
            let end = host.resume("run-1").await;
            let RunEnd::Cancelled { why } = end else { panic!("{end:?}") };
            assert!(why.starts_with("cancelled by ada: looked it up"), "{why}");
            let expected: &[&str] =
                if confirmed { &["side", "order-2", "order-1"] } else { &["side", "order-1"] };
            assert_eq!(undone(&host, "run-1").await, expected);
            check_books(&host, 3, expected.len() as u64).await;
        }
    });
}

/// The provider's id of the refund of `order-2`.
async fn real_id(host: &Host) -> String {
    let url = format!("{}/v1/refunds", host.sim.url());
    let client = twice::tool::http::plain_client().unwrap();
    let listed = client.get(url).bearer_auth(twice_tests::host::API_KEY).send().await.unwrap();
    let listed: Value = serde_json::from_str(&listed.text().await.unwrap()).unwrap();
    let all = listed["data"].as_array().unwrap();
    let found = all.iter().find(|refund| refund["order_id"] == "order-2").unwrap();
    found["id"].as_str().unwrap().to_owned()
}

#[test]
fn an_undo_that_does_no_harm_is_made_though_nobody_knows() {
    run(async {
        // What it undoes is named by its order, as there is no receipt: a release of whatever there may be.
        let slot = released_refund("/input/one", "", ", on_unknown = \"undo\"");
        let nodes = vec![("one", slot), ("two", "after = [\"one\"]".to_owned())];
        let lost = Switch::new(Fault::CommitThenDrop).path("/v1/orders/*").times(1);
        let answer = json!({ "status": 201, "body": { "id": "rev_1", "refund_id": "order-1" } });
        let harmless = Switch::new(Fault::Status).path(REVERSALS).value(answer);
        let host =
            Host::start(setup(Class::Neither, "", &named(&nodes)).switches([lost, harmless])).await;
        let mut input = each(&[("one", vec![refund("order-1")])]);
        input["one"] = json!("order-1");
        let end = host.run("run-1", input).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        host.engine.cancel(&run_id("run-1"), &somebody()).await.unwrap();
        // What may still happen is not taken back before, however early somebody is.
        let end = host.resume("run-1").await;
        let RunEnd::Waiting { why, .. } = end else { panic!("{end:?}") };
        assert!(why.contains("may still happen"), "{why}");
        assert!(undone(&host, "run-1").await.is_empty());
        let end = host.finish("run-1", Pace::Jump).await;
        // It is undone, and a person still has to say what happened.
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        assert_eq!(undone(&host, "run-1").await, ["order-1"]);
        let (asked, undos) = sides(&host, "run-1").await;
        assert_eq!((asked[0].state, undos.len()), (State::Unknown, 1));
        host.engine.resolve(&asked[0].id, Finding::Failed, &somebody()).await.unwrap();
        let end = host.resume("run-1").await;
        assert!(matches!(end, RunEnd::Cancelled { .. }), "{end:?}");
        assert_eq!(sides(&host, "run-1").await.1.len(), 1);
    });
}

/// Refuses to reverse the refund of `order-2`, so many times.
fn refuse(times: u32) -> Vec<Switch> {
    let answer = json!({ "status": 402, "body": { "error": { "code": "closed", "message": "the books are closed" } } });
    vec![Switch::new(Fault::Status).path(REVERSALS).value(answer).times(times)]
}

/// A person lets a run go on that is stuck at an undo, and has not seen what came since.
#[test]
fn an_undo_that_happened_after_all_is_made_again_by_one_who_knows() {
    run(async {
        let nodes = chain("", ", retry = { attempts = 1 }");
        let setup = setup(Class::KeyLookup, "", &named(&nodes)).switches(refuse(1));
        let host = Host::start(setup).await;
        stuck(host.run("run-1", input(vec![fatal()])).await);
        let (_, undos) = sides(&host, "run-1").await;
        let [refused] = undos.as_slice() else { panic!("{undos:?}") };
        let seen = happened_after_all();
        host.ledger.observe(&run_id("run-1"), &refused.id, seen, refused.updated_at).await.unwrap();

        host.engine.release(&run_id("run-1"), Evidence::Heeded, &somebody()).await.unwrap();
        let why = stuck(host.resume("run-1").await);
        assert!(why.contains("happened after all by what came since: evt_1 says so"), "{why}");
        assert_eq!(sides(&host, "run-1").await.1.len(), 1);

        host.engine.release(&run_id("run-1"), Evidence::Overruled, &somebody()).await.unwrap();
        failed(host.finish("run-1", Pace::Jump).await);
        assert_eq!(undone(&host, "run-1").await, ["order-2", "order-1"]);
    });
}

#[test]
fn an_undo_that_is_refused_for_good_leaves_the_run_stuck_until_a_person_decides() {
    run(async {
        for resolves in [false, true] {
            let nodes = chain("", ", retry = { attempts = 1 }");
            let setup = setup(Class::KeyLookup, "", &named(&nodes)).switches(refuse(1));
            let host = Host::start(setup).await;
            let why = stuck(host.run("run-1", input(vec![fatal()])).await);
            let told = ["no way on", "answered 402", "runs release", "runs resolve", "1 more"];
            assert!(told.iter().all(|part| why.contains(part)), "{why}");
            // What it may rest on is not undone before.
            assert_eq!(undone(&host, "run-1").await, [""; 0]);
            let record = host.ledger.run(&run_id("run-1")).await.unwrap().unwrap();
            assert_eq!(record.state, RunState::Stuck);
            assert!(matches!(host.resume("run-1").await, RunEnd::Stuck { .. }));
            let refused = host.engine.cancel(&run_id("run-1"), &somebody()).await.unwrap_err();
            assert!(refused.to_string().contains("stuck"), "{refused}");
            if resolves {
                // What waits on the way back is not settled by naming it.
                let first = sides(&host, "run-1").await.0[0].id.clone();
                let (run, ada) = (run_id("run-1"), somebody());
                let named = host.engine.resolve_undo(&run, Some(&first), &ada).await;
                let refused = named.unwrap_err();
                assert!(matches!(&refused, DecisionError::NotStuckAt { .. }), "{refused}");
                let found = host.engine.resolve_undo(&run_id("run-1"), None, &somebody()).await;
                assert_eq!(found.unwrap().len(), 1);
            } else {
                host.engine.release(&run_id("run-1"), Evidence::Heeded, &somebody()).await.unwrap();
            }
            let why = failed(host.finish("run-1", Pace::Jump).await);
            let told = match resolves {
                true => "; 1 effect(s) undone, 1 settled by a person",
                false => "; 2 effect(s) undone",
            };
            assert!(why.ends_with(told), "{why}");
            let expected: &[&str] = if resolves { &["order-1"] } else { &["order-2", "order-1"] };
            assert_eq!(undone(&host, "run-1").await, expected);
            check_books(&host, 2, expected.len() as u64).await;
        }
    });
}

#[test]
fn what_is_independent_of_what_is_stuck_is_undone() {
    run(async {
        let nodes = vec![
            ("one", undone_refund("/input/one", "", ", retry = { attempts = 1 }")),
            ("two", undone_refund("/input/two", "", ", retry = { attempts = 1 }")),
            ("three", "after = [\"one\", \"two\"]".to_owned()),
        ];
        let setup = setup(Class::KeyLookup, "", &named(&nodes));
        let host = Host::start(setup).await;
        // Both are undone at once; whichever comes first is refused.
        host.sim.set_switches(refuse(1)).await.unwrap();
        stuck(host.run("run-1", input(vec![fatal()])).await);
        assert_eq!(undone(&host, "run-1").await.len(), 1);
        host.engine.release(&run_id("run-1"), Evidence::Heeded, &somebody()).await.unwrap();
        failed(host.finish("run-1", Pace::Jump).await);
        check_books(&host, 2, 2).await;
    });
}

#[test]
fn an_undo_that_is_refused_is_asked_for_again_as_the_workflow_says() {
    run(async {
        let nodes = chain("", ", retry = { attempts = 3, initial = \"10m\", max = \"1h\" }");
        let setup = setup(Class::KeyLookup, "", &named(&nodes)).switches(refuse(2));
        let host = Host::start(setup).await;
        let end = host.run("run-1", input(vec![fatal()])).await;
        let RunEnd::Waiting { why, .. } = end else { panic!("{end:?}") };
        assert!(why.contains("asked for again"), "{why}");
        failed(host.finish("run-1", Pace::Jump).await);
        let (_, undos) = sides(&host, "run-1").await;
        let keys: BTreeSet<&str> =
            undos.iter().map(|undo| undo.proposal.provider_key.as_str()).collect();
        // Three of the one, and one of the other.
        assert_eq!((undos.len(), keys.len()), (4, 4));
        assert!(undos.iter().any(|u| u.proposal.idempotency_key.ends_with("/generation=3")));
        assert_eq!(undone(&host, "run-1").await, ["order-2", "order-1"]);
        check_books(&host, 2, 2).await;
    });
}

#[test]
fn a_run_that_takes_too_long_is_undone_and_so_is_one_that_is_cancelled_while_it_waits() {
    run(async {
        let slow = json!({ "do": "retryable", "message": "later" });
        let nodes = chain("", "");
        let mut nodes = named(&nodes);
        let retry =
            "after = [\"two\"]\nretry = { attempts = 100, initial = \"20m\", max = \"20m\" }";
        nodes[2].1 = retry;
        let host = Host::start(setup(Class::KeyLookup, "timeout = \"1h\"", &nodes)).await;
        let why = failed(host.run_and_finish("run-1", input(vec![slow.clone()]), Pace::Jump).await);
        assert!(why.contains("longer than its `timeout` of 1h"), "{why}");
        assert_eq!(undone(&host, "run-1").await, ["order-2", "order-1"]);
        check_books(&host, 2, 2).await;

        let end = host.run("run-2", renamed(input(vec![slow]))).await;
        assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
        let record = host.engine.cancel(&run_id("run-2"), &somebody()).await.unwrap();
        assert_eq!(record.state, RunState::Ready);
        // Asking twice is asking once.
        let before = host.history("run-2").await.len();
        host.engine.cancel(&run_id("run-2"), &somebody()).await.unwrap();
        assert_eq!(host.history("run-2").await.len(), before);
        let end = host.finish_due("run-2").await;
        assert!(matches!(end, RunEnd::Cancelled { .. }), "{end:?}");
        let events = host.run_events("run-2").await;
        let cause = events.iter().find_map(|event| match event {
            RunEvent::Compensating { cause, .. } => Some(*cause),
            _ => None,
        });
        assert_eq!(cause, Some(EndCause::Cancelled));
        check_books(&host, 4, 4).await;
        let refused = host.engine.cancel(&run_id("run-2"), &somebody()).await.unwrap_err();
        assert!(refused.to_string().contains("it is over"), "{refused}");
    });
}

/// The same about other orders.
fn renamed(mut input: Value) -> Value {
    for (node, order) in [("one", "order-3"), ("two", "order-4")] {
        input[node] = json!(order);
        input["nodes"][node][0]["args"]["order_id"] = json!(order);
    }
    input
}

#[test]
fn behind_the_point_of_no_return_nothing_is_undone_and_a_person_has_it_go_on() {
    run(async {
        let nodes = vec![
            ("one", undone_refund("/input/one", "", "")),
            (
                "two",
                format!(
                    "after = [\"one\"]\n{}",
                    twice_tests::graphs::refund_of("/input/two") + "pivot = true\n"
                ),
            ),
            ("three", "after = [\"two\"]\nretry = { attempts = 1 }".to_owned()),
        ];
        let host = Host::start(setup(Class::KeyLookup, "", &named(&nodes))).await;
        let three = vec![until_attempt(2, later())];
        let why = stuck(host.run("run-1", input(three)).await);
        assert!(why.contains("point of no return") && why.contains("runs retry"), "{why}");
        check_books(&host, 2, 0).await;
        let refused = host.engine.cancel(&run_id("run-1"), &somebody()).await.unwrap_err();
        assert!(refused.to_string().contains("point of no return"), "{refused}");
        let refused =
            host.engine.release(&run_id("run-1"), Evidence::Heeded, &somebody()).await.unwrap_err();
        assert!(refused.to_string().contains("runs retry"), "{refused}");
        let resolved = host.engine.resolve_undo(&run_id("run-1"), None, &somebody()).await;
        let refused = resolved.unwrap_err();
        assert!(refused.to_string().contains("nothing to resolve"), "{refused}");
        host.engine.retry(&run_id("run-1"), Evidence::Heeded, &somebody()).await.unwrap();
        // The node would fail for ever; the retry counts anew, so it is its first attempt again.
        let why = stuck(host.finish("run-1", Pace::Jump).await);
        assert!(why.contains("point of no return"), "{why}");
        check_books(&host, 2, 0).await;

        // Failing at the pivot itself is failing before it.
        let decline = Switch::new(Fault::Decline402).path("/v1/orders/order-4/refunds");
        host.sim.set_switches(vec![decline]).await.unwrap();
        let mut input = renamed(input(vec![fatal()]));
        input["nodes"]["two"][0]["must"] = json!(true);
        failed(host.run("run-2", input).await);
        assert_eq!(undone(&host, "run-2").await, ["order-3"]);
    });
}

#[test]
fn branches_and_elements_are_undone_at_once_where_the_workflow_says_so() {
    run(async {
        let (_, keys) = twice_tests::graphs::fan_out(8);
        let keys = keys.split("[[node.effect]]").next().unwrap().to_owned();
        let each = format!("{keys}{}", undone_refund("/element/id", "", ""));
        let nodes = [("each", each.as_str()), ("last", "after = [\"each\"]")];
        let head = "[saga]\nundo = \"branches\"\n";
        let setup = setup(Class::KeyLookup, "", &nodes);
        let setup = setup.workflow(&format!("{}{head}", twice_tests::graphs::graph("", &nodes)));
        let host = Host::start(setup).await;
        let mut input = orders(20);
        input["nodes"]["last"] = json!([fatal()]);
        failed(host.run("run-1", input).await);
        check_books(&host, 20, 20).await;
        let objects: BTreeSet<String> = undone(&host, "run-1").await.into_iter().collect();
        assert_eq!(objects.len(), 20);
        // Many were proposed before the first was answered: they went at once.
        let (_, undos) = sides(&host, "run-1").await;
        let undo = |id: &EffectId| undos.iter().any(|undo| undo.id == *id);
        let events = host.effect_events("run-1").await;
        let of_undos = || events.iter().filter(|(id, _)| undo(id));
        let before =
            of_undos().take_while(|(_, event)| !matches!(event, EffectEvent::Confirmed(_)));
        let proposed = before.filter(|(_, event)| matches!(event, EffectEvent::Proposed(_)));
        assert!(proposed.count() >= 5);
    });
}

#[test]
fn an_effect_that_could_not_be_undone_as_the_workflow_says_is_never_asked_for() {
    run(async {
        let slot = undone_refund("/input/one", "", "")
            .replace("\"/receipt/external_id\"", "\"/input/account\"");
        let host = Host::start(setup(Class::KeyLookup, "", &[("one", &slot)])).await;
        let mut input = each(&[("one", vec![refund("order-1")])]);
        input["one"] = json!("order-1");
        let why = failed(host.run("run-1", input).await);
        assert!(why.contains("could not be undone") && why.contains("/input/account"), "{why}");
        check_books(&host, 0, 0).await;
    });
}

/// A worker vanishes at each passing of each boundary, forward and on the way back; another takes over, and dies there too.
/// `lost`: answers are, so that both ways wait for what became of it.
async fn vanish(boundary: Boundary, nth: u32, lost: bool) -> bool {
    let switch = |path: &str| Switch::new(Fault::CommitThenDrop).path(path).times(1);
    let switches = match lost {
        true => vec![switch("/v1/orders/order-2/refunds"), switch(REVERSALS)],
        false => Vec::new(),
    };
    let host = Arc::new(host(Class::KeyLookup, switches).await);
    let input = input(vec![fatal()]);
    let crashed = if lost {
        // The first answer that is lost ends what the first worker does.
        host.run("run-1", input).await;
        host.advance(120_000).await;
        host.crash_resume("run-1", boundary, nth).await
    } else {
        host.crash_run("run-1", input, boundary, nth).await
    };
    host.outlive_lease().await;
    host.crash_resume("run-1", boundary, 1).await;
    host.outlive_lease().await;
    let end = host.finish("run-1", Pace::Jump).await;
    let context = format!("{}:{nth}, {lost}", boundary.as_str());
    assert!(matches!(end, RunEnd::Failed { .. }), "{context}: {end:?}");
    let before = host.history("run-1").await.len();
    assert_eq!(host.resume("run-1").await, end, "{context}");
    assert_eq!(host.history("run-1").await.len(), before, "{context}");
    assert_eq!(undone(&host, "run-1").await, ["order-2", "order-1"], "{context}");
    check_books(&host, 2, 2).await;
    for effect in host.effects("run-1").await {
        assert_eq!(effect.state, State::Confirmed, "{context}");
    }
    crashed
}

#[test]
fn each_is_undone_once_wherever_workers_vanish() {
    run(async {
        let mut reached = BTreeSet::new();
        for (boundary, lost) in Boundary::ALL.into_iter().flat_map(|b| [(b, false), (b, true)]) {
            for nth in 1..=6 {
                if !vanish(boundary, nth, lost).await {
                    break;
                }
                reached.insert((boundary, lost, nth));
            }
        }
        let often = |boundary| {
            let found = reached.iter().filter(|(b, lost, _)| *b == boundary && !lost);
            found.map(|(_, _, nth)| *nth).max()
        };
        // Two effects forward and two back.
        assert_eq!(often(Boundary::BeforeIntent), Some(4), "{reached:?}");
        assert_eq!(often(Boundary::AfterRequestedCommit), Some(4), "{reached:?}");
        assert_eq!(often(Boundary::AfterReply), Some(4), "{reached:?}");
        assert!(reached.contains(&(Boundary::AfterLookup, true, 1)), "{reached:?}");
    });
}

#[test]
fn nobody_else_resolves_what_is_not_stuck() {
    run(async {
        let host = host(Class::KeyLookup, Vec::new()).await;
        failed(host.run("run-1", input(vec![fatal()])).await);
        let refused = host.engine.resolve_undo(&run_id("run-1"), None, &somebody()).await;
        assert!(refused.unwrap_err().to_string().contains("only a stuck run"));
        let refused =
            host.engine.release(&run_id("run-1"), Evidence::Heeded, &somebody()).await.unwrap_err();
        let twice::engine::EngineError::Ledger(LedgerError::State { rule, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert!(rule.contains("halted, stuck or quarantined"), "{rule}");
    });
}
