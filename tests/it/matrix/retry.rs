//! Who asks again: nodes, time limits, and providers that never answer.

use std::time::Duration;

use serde_json::json;
use twice::engine::RunEnd;
use twice_core::effect::State;
use twice_core::event::{EffectEvent, RunEvent, Source, StepFailure};
use twice_provider_sim::{Fault, Outcome, Switch, WaitFor};
use twice_tests::host::{Host, Pace};

use super::run;
use super::tools::{
    Class, IMPATIENT, WINDOWS, ask, for_each, many_orders, one_refund, one_refund_in, order,
    until_attempt,
};

#[test]
fn a_node_that_asks_again_in_the_same_step_gets_the_same_answer() {
    run(async {
        for (switches, key) in
            [(vec![], "effect_id"), (vec![Switch::new(Fault::Decline402)], "failed")]
        {
            let host = Host::start(one_refund(Class::Key, WINDOWS).switches(switches)).await;
            let once = || ask("refund", "order-1", 1_000);
            let input = order("order-1", vec![once(), once(), once()]);
            let end = host.run_and_finish("run-1", input, Pace::Jump).await;
            let RunEnd::Completed(output) = end else { panic!("{end:?}") };
            let notes = output["notes"].as_array().unwrap();
            assert!(
                notes.iter().all(|note| !note[key].is_null() && *note == notes[0]),
                "{notes:?}"
            );
            assert_eq!(host.counted("refund").await.requests, 1);
        }
    });
}

#[test]
fn the_node_s_time_limit_leaves_the_outcome_unknown_until_it_is_looked_up() {
    run(async {
        let slow = Switch::new(Fault::DelayAfterCommitMs).value(30_000).times(1);
        let node = "limits = { time = \"1s\" }";
        let host =
            Host::start(one_refund_in(Class::Lookup, WINDOWS, node, "").switches([slow])).await;
        let input = order("order-1", vec![ask("refund", "order-1", 1_000)]);
        let end = host.run("run-1", input).await;
        assert!(matches!(end, RunEnd::Waiting { .. }), "{end:?}");
        let effect = host.effect("run-1").await;
        assert_eq!(effect.state, State::Unknown);
        assert_eq!(effect.unknown.unwrap().rule.0, "node.time_limit");

        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{end:?}");
        assert_eq!(host.effect("run-1").await.receipt.unwrap().source, Source::Lookup);
        assert_eq!(host.counted("refund").await.requests, 1);
        let events = host.run_events("run-1").await;
        let reached = |event: &RunEvent| matches!(event, RunEvent::StepFailed { cause: StepFailure::Limit { limit, .. }, .. } if limit == "time");
        assert!(events.iter().any(reached), "{events:?}");
    });
}

#[test]
fn a_provider_that_hangs_is_let_go_of_when_the_request_s_own_time_is_up() {
    run(async {
        let hangs = Switch::new(Fault::PauseBeforeReplyUntil);
        let node = "limits = { time = \"1s\" }";
        let setup = one_refund_in(Class::Neither, IMPATIENT, node, "").switches([hangs]);
        let host = Host::start(setup).await;
        let input = order("order-1", vec![ask("refund", "order-1", 1_000)]);
        // The run does not wait for it, and it is not waited for for ever.
        host.run("run-1", input).await;
        assert_eq!(host.listed("run-1").await[0].state, State::Unknown);
        host.engine.settle_late().await;

        // The provider finds nobody to answer, though nothing has it go on: the connection was closed, not left open.
        let settled = host.sim.wait(WaitFor::Settled, 1, Some("refund"), Duration::from_secs(30));
        assert!(settled.await.unwrap());
        let requests = host.sim.requests(0).await.unwrap();
        assert_eq!(requests[0].outcome, Some(Outcome::ClientGone));
        assert!(host.effect("run-1").await.observed.is_empty(), "no answer tells nothing");

        let end = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(end, RunEnd::Halted { .. }), "{end:?}");
        assert_eq!(host.counted("refund").await.requests, 1);
    });
}

#[test]
fn a_step_that_gives_up_settles_its_unknown_effects_first() {
    run(async {
        let lost = Switch::new(Fault::CommitThenDrop).times(1);
        let host = Host::start(one_refund(Class::Lookup, WINDOWS).switches([lost])).await;
        let fatal = json!({ "do": "fatal", "message": "no use" });
        let input = order("order-1", vec![ask("refund", "order-1", 1_000), fatal]);
        let end = host.run_and_finish("run-1", input, Pace::Jump).await;
        assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
        assert_eq!(host.effect("run-1").await.state, State::Confirmed);
        let events = host.effect_events("run-1").await;
        let sends = events.iter().filter(|(_, e)| matches!(e, EffectEvent::Requested(_))).count();
        assert_eq!(sends, 1);
    });
}

/// A node's time is up amid its request, and after the restart it does not ask again.
#[track_caller]
fn check_forgetful(class: Class, state: State) {
    run(async move {
        let slow = Switch::new(Fault::DelayAfterCommitMs).value(30_000).times(1);
        let node = "limits = { time = \"1s\" }";
        let host = Host::start(one_refund_in(class, WINDOWS, node, "").switches([slow])).await;
        let input = order("order-1", vec![until_attempt(2, ask("refund", "order-1", 1_000))]);
        let end = host.run_and_finish("run-1", input, Pace::Jump).await;
        let effect = host.effect("run-1").await;
        assert_eq!(effect.state, state, "{class:?}: {end:?}");
        match state {
            State::Unknown => assert!(matches!(end, RunEnd::Halted { .. }), "{class:?}: {end:?}"),
            _ => assert!(matches!(end, RunEnd::Completed(_)), "{class:?}: {end:?}"),
        }
        assert_eq!(host.counted("refund").await.effects, 1, "{class:?}");
    });
}

#[test]
fn a_step_does_not_end_while_an_effect_is_in_doubt_that_it_no_longer_asks_for() {
    check_forgetful(Class::Lookup, State::Confirmed);
    check_forgetful(Class::Key, State::Confirmed);
    check_forgetful(Class::Neither, State::Unknown);
}

#[test]
fn a_step_that_gives_up_calls_off_what_was_never_processed() {
    run(async {
        let busy = Switch::new(Fault::Storm429).path("/v1/orders/order-0/refunds");
        let slow = Switch::new(Fault::DelayAfterCommitMs).value(30_000).times(1);
        let slow = slow.path("/v1/orders/order-1/refunds");
        let node = "limits = { time = \"1s\" }\nretry = { attempts = 1 }";
        let host = Host::start(for_each(Class::Lookup, node).switches([busy, slow])).await;
        let end = host.run_and_finish("run-1", many_orders(2), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
        let effects = host.effects("run-1").await;
        let told: Vec<_> = effects
            .iter()
            .map(|effect| (effect.state, effect.failure.as_ref().map(|f| f.code.as_str())))
            .collect();
        assert_eq!(told, [(State::Failed, Some("cancelled")), (State::Confirmed, None)]);
        let counted = host.counted("refund").await;
        assert_eq!((counted.requests, counted.effects), (2, 1));
    });
}
