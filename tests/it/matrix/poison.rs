//! Answers and requests that are too big: what happened is kept, what may not be kept is cut off, and nothing is asked
//! for again because of it.

use serde_json::json;
use twice::engine::RunEnd;
use twice_core::effect::State;
use twice_core::event::RunEvent;
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, Pace, Setup};

use super::run;
use super::tools::{Class, WINDOWS, ask, order, payments, refund_slot, workflow};

/// Two slots of an operation that reads nothing from its answers.
fn incurious(class: Class) -> Setup {
    let tool = payments(class, WINDOWS);
    let (before, after) = tool.split_once("[operation.refund.response]").unwrap();
    let (_, after) = after.split_once("refused =").unwrap();
    let tool = format!("{before}[operation.refund.response]\nrefused ={after}");
    let slots = [refund_slot("goods", ""), refund_slot("postage", "")];
    Setup::new(&[&workflow("refunds", "", &[&slots[0], &slots[1]])]).tool(tool)
}

#[track_caller]
fn check(class: Class, switch: Switch) {
    run(async move {
        let host = Host::start(incurious(class).switches([switch.times(1)])).await;
        let todo = vec![ask("goods", "order-1", 1_000), ask("postage", "order-1", 500)];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Completed(_)), "{class:?}: {end:?}");
        let effects = host.effects("run-1").await;
        let truncated: Vec<bool> =
            effects.iter().map(|effect| effect.receipt.as_ref().unwrap().truncated).collect();
        assert_eq!(truncated, [true, false], "{class:?}");
        let kept = effects[0].receipt.as_ref().unwrap();
        assert!(kept.result.as_str().unwrap().len() <= 4 << 10, "{class:?}");
        assert!(kept.result_hash.is_some(), "{class:?}");
        assert_eq!(host.counted("refund").await.requests, 2, "{class:?}");
    });
}

#[test]
fn an_answer_that_is_too_big_is_kept_cut_off() {
    for class in [Class::Neither, Class::Key] {
        check(class, Switch::new(Fault::HugeBody).value(64 << 20));
        check(class, Switch::new(Fault::EndlessBody));
    }
}

#[test]
fn args_that_are_too_big_never_become_an_effect() {
    run(async {
        let host = Host::start(incurious(Class::Key)).await;
        let todo = vec![json!({ "do": "request_big", "slot": "goods", "bytes": 2 << 20 })];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        assert!(matches!(end, RunEnd::Failed { .. }), "{end:?}");
        assert!(host.listed("run-1").await.is_empty());
        assert_eq!(host.counted("refund").await.requests, 0);
        let events = host.run_events("run-1").await;
        let limit = |event: &RunEvent| matches!(event, RunEvent::StepFailed { .. });
        assert!(events.iter().any(limit), "{events:?}");
    });
}

#[test]
fn args_that_are_too_deep_are_refused_and_the_node_goes_on() {
    run(async {
        let host = Host::start(incurious(Class::Key)).await;
        let deep = json!({ "do": "request_deep", "slot": "goods", "depth": 80 });
        let todo = vec![deep, ask("goods", "order-1", 1_000)];
        let end = host.run_and_finish("run-1", order("order-1", todo), Pace::Jump).await;
        let RunEnd::Completed(output) = end else { panic!("{end:?}") };
        assert_eq!(output["notes"][0]["denied"], "args");
        assert_eq!(host.effect("run-1").await.state, State::Confirmed);
    });
}
