//! Runs that are more than a line: branches that run beside each other, joins, loops, fan-outs, time limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use twice::engine::RunEnd;
use twice::engine::boundary::Boundary;
use twice::tool::gate::Gate;
use twice::tool::{AnyRequest, Call, Driver, PrepareError, Prepared};
use twice_core::effect::State;
use twice_core::event::{ProbeResult, RunEvent, SkipReason};
use twice_core::outcome::Exchange;
use twice_provider_sim::{Fault, Switch};
use twice_tests::graphs::{each, fan_out, give, orders, refund, refund_of, setup, until_visit};
use twice_tests::host::{Host, Pace};
use twice_tests::tools::{Class, WINDOWS, Windows, later, until_attempt};

use super::run;

/// How many requests are under way at once, at most.
#[derive(Default)]
struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Waits for others to come, so that what may be under way at once is.
struct Counting {
    inner: Arc<twice::engine::Performer>,
    busy: Arc<Busy>,
}

#[async_trait]
impl Driver for Counting {
    type Request = AnyRequest;

    fn prepare(&self, call: &Call<'_>) -> Result<Prepared<AnyRequest>, PrepareError> {
        self.inner.prepare(call)
    }

    async fn send(&self, request: AnyRequest, gate: Gate) -> Exchange {
        let now = self.busy.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.busy.most.fetch_max(now, Ordering::SeqCst);
        let exchange = self.inner.send(request, gate).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        self.busy.now.fetch_sub(1, Ordering::SeqCst);
        exchange
    }

    async fn lookup(&self, call: &Call<'_>) -> (Value, ProbeResult) {
        self.inner.lookup(call).await
    }
}

#[track_caller]
fn completed(end: RunEnd) -> Value {
    match end {
        RunEnd::Completed(output) => output,
        other => panic!("{other:?}"),
    }
}

fn skipped(events: &[RunEvent]) -> Vec<(String, SkipReason)> {
    let skips = events.iter().filter_map(|event| match event {
        RunEvent::StepSkipped { node, why, .. } => Some((node.to_string(), *why)),
        _ => None,
    });
    skips.collect()
}

/// One branch asks, the other does not; both lead to a join.
fn diamond() -> Vec<(&'static str, String)> {
    let branch = |name: &str| {
        format!(
            "after = [\"choose\"]\nwhen = \"routes.choose == '{name}'\"\n{}",
            refund_of("/input/order")
        )
    };
    vec![
        ("choose", "routes = [\"left\", \"right\"]".to_owned()),
        ("left", branch("left")),
        ("right", branch("right")),
        ("join", "after = [\"left\", \"right\"]".to_owned()),
    ]
}

fn named<'a>(nodes: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    nodes.iter().map(|(name, keys)| (*name, keys.as_str())).collect()
}

#[test]
fn the_branch_that_was_chosen_runs_and_leads_to_the_join() {
    run(async {
        let nodes = diamond();
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &named(&nodes))).await;
        let mut input = each(&[
            ("choose", vec![give(&json!({ "route": "right" }))]),
            ("left", vec![refund("order-1")]),
            ("right", vec![refund("order-1")]),
            ("join", vec![json!({ "do": "nodes" })]),
        ]);
        input["order"] = json!("order-1");
        let output = completed(host.run("run-1", input).await);
        let seen = &output["notes"][0];
        assert_eq!(seen["choose"], json!({ "route": "right" }));
        assert_eq!((seen["left"].is_null(), seen["right"].is_null()), (true, false));
        let events = host.run_events("run-1").await;
        assert_eq!(skipped(&events), [("left".to_owned(), SkipReason::When)]);
        let effect = host.effect("run-1").await;
        assert_eq!((effect.state, effect.proposal.node.as_str()), (State::Confirmed, "right"));
    });
}

#[test]
fn a_route_that_was_not_declared_is_no_output() {
    run(async {
        let nodes = diamond();
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &named(&nodes))).await;
        let mut input = each(&[("choose", vec![give(&json!({ "route": "up" }))])]);
        input["order"] = json!("order-1");
        let end = host.run_and_finish("run-1", input, Pace::Jump).await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("a `route` other than `left`, `right`"), "{why}");
    });
}

#[test]
fn branches_run_beside_each_other_and_one_that_waits_holds_none_up() {
    run(async {
        let slot = refund_of("/input/order");
        let nodes = [
            ("slow", ""),
            ("pay", slot.as_str()),
            ("tell", "after = [\"pay\"]"),
            ("join", "after = [\"slow\", \"tell\"]"),
        ];
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &nodes)).await;
        let mut input = each(&[
            ("slow", vec![until_attempt(2, later())]),
            ("pay", vec![refund("order-1")]),
            ("join", vec![json!({ "do": "nodes" })]),
        ]);
        input["order"] = json!("order-1");
        let end = host.run("run-1", input).await;
        let RunEnd::Waiting { why, .. } = end else { panic!("{end:?}") };
        assert!(why.contains("node `slow` asked for a later start"), "{why}");
        let done = |events: &[RunEvent]| -> Vec<String> {
            let of = events.iter().filter_map(|event| match event {
                RunEvent::StepCompleted { node, .. } => Some(node.to_string()),
                _ => None,
            });
            of.collect()
        };
        assert_eq!(done(&host.run_events("run-1").await), ["pay", "tell"]);
        let output = completed(host.finish("run-1", Pace::Jump).await);
        assert_eq!(output["notes"][0].as_object().unwrap().len(), 3, "{output}");
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

#[test]
fn a_step_that_is_started_again_sees_what_it_saw_at_first() {
    run(async {
        // `late` is not waited for, and returns between the two starts of `join`.
        let nodes = [
            ("first", ""),
            ("late", ""),
            ("join", "after = [\"first\", \"late\"]\njoin = \"any\""),
        ];
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &nodes)).await;
        let see = json!({ "do": "nodes" });
        let input = each(&[
            ("late", vec![until_attempt(2, later())]),
            ("join", vec![see, until_attempt(3, later())]),
        ]);
        let output = completed(host.run_and_finish("run-1", input, Pace::Jump).await);
        assert_eq!(output["notes"][0], json!({ "first": { "notes": [] } }), "{output}");
    });
}

#[test]
fn each_round_of_a_loop_has_effects_of_its_own() {
    run(async {
        let slot = refund_of("/input/order");
        let review = "after = [\"draft\"]\nroutes = [\"again\", \"good\"]\nloop = { to = \"draft\", when = \"routes.review == 'again'\", max_visits = 5 }";
        let nodes = [("draft", slot.as_str()), ("review", review), ("end", "after = [\"review\"]")];
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &nodes)).await;
        let mut input = each(&[
            ("draft", vec![refund("order-1"), json!({ "do": "nodes" }), json!({ "do": "now" })]),
            (
                "review",
                vec![
                    until_visit(3, give(&json!({ "route": "again" }))),
                    give(&json!({ "route": "good" })),
                ],
            ),
            ("end", vec![json!({ "do": "nodes" })]),
        ]);
        input["order"] = json!("order-1");
        let output = completed(host.run("run-1", input).await);
        let last = &output["notes"][0]["draft"]["notes"];
        assert_eq!(last[1]["review"], json!({ "route": "again" }), "it sees the round before");
        let keys: Vec<String> = host
            .effects("run-1")
            .await
            .into_iter()
            .map(|effect| effect.proposal.idempotency_key)
            .collect();
        let key = "refund/run-1/order-1/full/node=draft";
        assert_eq!(keys, [key.to_owned(), format!("{key}/visit=2"), format!("{key}/visit=3")]);
        assert_eq!(host.counted("refund").await.effects, 3);
    });
}

#[test]
fn a_loop_that_would_go_on_after_its_last_round_fails_the_run() {
    run(async {
        let nodes = [("spin", "loop = { to = \"spin\", when = \"true\", max_visits = 3 }")];
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &nodes)).await;
        let end = host.run("run-1", each(&[])).await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("after 3 rounds"), "{why}");
    });
}

#[test]
fn a_fan_out_returns_what_its_elements_did_in_their_order() {
    run(async {
        let busy = Arc::new(Busy::default());
        let counted = Arc::clone(&busy);
        let (name, keys) = fan_out(16);
        let nodes = [(name, keys.as_str()), ("end", "after = [\"each\"]")];
        let setup = setup(Class::KeyLookup, WINDOWS, "", &nodes)
            .wrap(move |inner, _| Arc::new(Counting { inner, busy: Arc::clone(&counted) }));
        let host = Host::start(setup).await;
        let mut input = orders(64);
        input["nodes"]["end"] = json!([{ "do": "nodes" }]);
        let commits = host.ledger.commits();
        let output = completed(host.run("run-1", input).await);
        let outputs = output["notes"][0]["each"].as_array().unwrap();
        assert_eq!(outputs.len(), 64);
        let effects = host.effects("run-1").await;
        for (number, output) in outputs.iter().enumerate() {
            let id = output["notes"][0]["effect_id"].as_str().unwrap();
            let effect = effects.iter().find(|effect| effect.id.as_str() == id).unwrap();
            assert_eq!(effect.proposal.args["order_id"], format!("order-{number}"));
        }
        assert_eq!(busy.most.load(Ordering::SeqCst), 16, "as many at once as `parallel` says");
        let counted = host.counted("refund").await;
        assert_eq!((counted.effects, counted.duplicates), (64, 0));
        // Flushes that meet are one write: fewer than one for each effect.
        let commits = host.ledger.commits() - commits;
        assert!(commits < 56, "{commits} commits");
    });
}

#[test]
fn the_elements_that_are_done_stay_done_when_one_fails_for_good() {
    run(async {
        let (name, keys) = fan_out(2);
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &[(name, &keys)])).await;
        let mut input = orders(6);
        let fatal = json!({ "do": "fatal", "message": "no use", "of_element": "order-3" });
        input["nodes"]["each"].as_array_mut().unwrap().insert(0, fatal);
        let end = host.run("run-1", input).await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("step each[order-3]: node `each` gave up: no use"), "{why}");
        let effects = host.effects("run-1").await;
        assert!(effects.iter().all(|effect| effect.state == State::Confirmed));
        assert!((3..=5).contains(&effects.len()), "{}", effects.len());
    });
}

/// `pay` is UNKNOWN, as the answer was lost; `fail` gives up beside it.
#[test]
fn a_run_fails_only_when_nothing_that_was_asked_for_is_unexplained() {
    run(async {
        let slot = refund_of("/input/order");
        let nodes = [("pay", slot.as_str()), ("fail", "")];
        let setup = setup(Class::Lookup, WINDOWS, "", &nodes)
            .switches([Switch::new(Fault::CommitThenDrop).times(1)])
            .switches([Switch::new(Fault::LookupError).times(1)]);
        let host = Host::start(setup).await;
        let mut input = each(&[
            ("pay", vec![refund("order-1")]),
            ("fail", vec![json!({ "do": "fatal", "message": "no use" })]),
        ]);
        input["order"] = json!("order-1");
        let end = host.run("run-1", input).await;
        assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
        assert_eq!(host.effect("run-1").await.state, State::Unknown);
        let end = host.finish("run-1", Pace::Jump).await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("node `fail` gave up: no use"), "{why}");
        assert_eq!(host.effect("run-1").await.state, State::Confirmed);
    });
}

/// `pay` needs a person, as its answer was lost and there is no way to ask; what else there is to do is done first.
#[test]
fn a_run_halts_for_a_person_when_nothing_else_can_go_on() {
    run(async {
        let slot = refund_of("/input/order");
        let nodes = [("pay", slot.as_str()), ("other", ""), ("then", "after = [\"other\"]")];
        let setup = setup(Class::Neither, WINDOWS, "", &nodes)
            .switches([Switch::new(Fault::CommitThenDrop).times(1)]);
        let host = Host::start(setup).await;
        let mut input =
            each(&[("pay", vec![refund("order-1")]), ("other", vec![until_attempt(2, later())])]);
        input["order"] = json!("order-1");
        let end = host.run("run-1", input).await;
        let RunEnd::Waiting { why, .. } = end else { panic!("{end:?}") };
        assert!(why.contains("and a person is needed"), "{why}");
        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        let events = host.run_events("run-1").await;
        let done = |name: &str| {
            events.iter().any(
                |event| matches!(event, RunEvent::StepCompleted { node, .. } if node.as_str() == name),
            )
        };
        assert!(done("then") && !done("pay"));
    });
}

#[test]
fn a_visit_that_takes_longer_than_its_timeout_fails_for_good() {
    run(async {
        let keys = "timeout = \"30s\"\nretry = { attempts = 100, initial = \"8s\", max = \"8s\" }";
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &[("wait", keys)])).await;
        let input = each(&[("wait", vec![later()])]);
        let end = host.run_and_finish("run-1", input, Pace::Jump).await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("asked for a later start"), "the next would come too late: {why}");
        let too_late = "it is not tried again, as its `timeout` of 30s would be over by then";
        assert!(why.contains(too_late), "{why}");
        let attempts = host.run_events("run-1").await;
        let failed = attempts.iter().filter(|e| matches!(e, RunEvent::StepFailed { .. })).count();
        assert!((3..=4).contains(&failed), "{failed}");
    });
}

/// An effect that nobody can tell the outcome of keeps its step from failing, not from being over.
#[test]
fn what_waits_for_an_outcome_is_settled_before_its_time_is_over() {
    run(async {
        let keys = format!("timeout = \"90s\"\n{}", refund_of("/input/order"));
        let setup = setup(Class::Lookup, WINDOWS, "", &[("pay", &keys)])
            .switches([Switch::new(Fault::DropBeforeCommit).times(1)])
            .switches([Switch::new(Fault::LookupError)]);
        let host = Host::start(setup).await;
        let mut input = each(&[("pay", vec![refund("order-1")])]);
        input["order"] = json!("order-1");
        let mut end = host.run("run-1", input).await;
        // While lookups fail it stays unknown, however late it is.
        for _ in 0..4 {
            assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
            host.advance(60_000).await;
            end = host.resume("run-1").await;
        }
        host.sim.set_switches(Vec::new()).await.unwrap();
        let end = host.finish("run-1", Pace::Jump).await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("reached its timeout limit"), "{why}");
    });
}

#[test]
fn a_run_that_takes_longer_than_its_timeout_fails() {
    run(async {
        let nodes = [("wait", "retry = { attempts = 100, initial = \"10m\", max = \"10m\" }")];
        let setup = setup(Class::KeyLookup, WINDOWS, "timeout = \"1h\"", &nodes);
        let host = Host::start(setup).await;
        let end = host.run_and_finish("run-1", each(&[("wait", vec![later()])]), Pace::Jump).await;
        let RunEnd::Failed { why } = end else { panic!("{end:?}") };
        assert!(why.contains("longer than its `timeout` of 1h"), "{why}");
    });
}

#[test]
fn a_node_that_ends_the_run_ends_it_with_its_output() {
    run(async {
        let nodes = [("quick", "ends = true"), ("slow", ""), ("behind", "after = [\"slow\"]")];
        let host = Host::start(setup(Class::KeyLookup, WINDOWS, "", &nodes)).await;
        let input = each(&[
            ("quick", vec![give(&json!("enough"))]),
            ("slow", vec![until_attempt(2, later())]),
        ]);
        let output = completed(host.run_and_finish("run-1", input, Pace::Jump).await);
        assert_eq!(output, "enough");
        let ended = skipped(&host.run_events("run-1").await);
        assert_eq!(ended, [("behind".to_owned(), SkipReason::Ended)]);
    });
}

/// A model is asked what to do until it says that it is done, and answers otherwise each time that it is asked.
#[test]
fn an_agent_goes_on_with_what_it_was_told_wherever_it_is_killed() {
    run(async {
        let slots = "[[node.effect]]\nslot = \"model\"\ntool = \"mind.refund\"\nrepeat = 9\n\
            [[node.effect]]\nslot = \"act\"\ntool = \"payments.refund\"\nobject = \"/input/order\"\nintent = \"act\"\nrepeat = 9\n";
        let again = "after = [\"agent\"]\nloop = { to = \"agent\", when = \"true\", max_visits = 2, exhausted = \"go_on\" }";
        let nodes = [("agent", slots), ("again", again)];
        let mind = twice_tests::tools::payments(Class::Read, WINDOWS).replacen(
            "\"payments\"",
            "\"mind\"",
            1,
        );
        let mut input =
            each(&[("agent", vec![json!({ "do": "agent", "model": "model", "act": "act" })])]);
        input["order"] = json!("order-1");
        let mut reached = 0;
        for boundary in Boundary::ALL {
            for nth in 1.. {
                let setup = setup(Class::Key, Windows { attempts: 5, ..WINDOWS }, "", &nodes)
                    .tool(mind.clone());
                let host = Arc::new(Host::start(setup).await);
                let ask =
                    |cents: u64| json!({ "ask": { "order_id": "order-1", "amount_cents": cents } });
                // Each line is given once: whoever asked again would get another one, and act otherwise.
                let done = || json!({ "done": true });
                let mut lines: Vec<Value> = vec![ask(1), ask(2), done()];
                lines.extend((3..20).flat_map(|cents| [ask(cents), done()]));
                host.sim.set_script(&lines).await.unwrap();
                let at = format!("{}:{nth}", boundary.as_str());
                if !host.crash_run("run-1", input.clone(), boundary, nth).await {
                    break;
                }
                reached += 1;
                host.outlive_lease().await;
                completed(host.finish("run-1", Pace::Jump).await);
                let acted: Vec<Value> = host
                    .effects("run-1")
                    .await
                    .into_iter()
                    .filter(|effect| effect.proposal.slot.as_str() == "act")
                    .map(|effect| effect.proposal.args["amount_cents"].clone())
                    .collect();
                // What the two rounds were told, in the order in which they acted on it.
                let said: Vec<Value> = host
                    .run_events("run-1")
                    .await
                    .iter()
                    .filter_map(|event| match event {
                        RunEvent::StepCompleted { output, .. } => output["notes"][0].as_array(),
                        _ => None,
                    })
                    .flatten()
                    .cloned()
                    .collect();
                let told = said.iter().filter(|said| said["done"].is_null());
                let told: Vec<Value> =
                    told.map(|said| said["ask"]["amount_cents"].clone()).collect();
                assert_eq!(acted, told, "{at}");
                let (acts, asked) = (host.counted("refund").await, host.counted("model").await);
                assert_eq!(acts.effects, acted.len() as u64, "{at}: {acted:?}");
                // At most the answer is asked for again that was lost with the worker, and nothing rests on that one.
                let lost = asked.effects - said.len() as u64;
                assert!(lost <= 1, "{at}: {lost} answers were lost");
            }
        }
        assert!(reached >= 20, "{reached}");
    });
}
