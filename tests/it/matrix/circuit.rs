//! An operation whose answers break its own schema gets no new effects, until what is in doubt is settled.

use serde_json::json;
use twice::engine::RunEnd;
use twice_core::effect::State;
use twice_provider_sim::{Fault, Switch};
use twice_tests::host::{Host, Pace};

use super::run;
use super::tools::{Class, WINDOWS, ask, one_refund, order};

#[test]
fn no_new_effect_is_sent_while_an_answer_that_broke_the_schema_is_in_doubt() {
    run(async {
        let drifted = json!({ "status": 201, "body": { "refund": "in another shape" } });
        let switches = [Switch::new(Fault::Status).value(drifted).times(1)];
        let host = Host::start(one_refund(Class::Key, WINDOWS).switches(switches)).await;

        let first = host.run("run-1", order("order-1", vec![ask("refund", "order-1", 100)])).await;
        assert!(matches!(first, RunEnd::Waiting { .. }), "{first:?}");
        let effect = host.effect("run-1").await;
        assert_eq!(effect.state, State::Unknown);
        assert!(effect.unknown.as_ref().unwrap().breach);

        let second = host.run("run-2", order("order-2", vec![ask("refund", "order-2", 200)])).await;
        let RunEnd::Waiting { why, .. } = second else { panic!("{second:?}") };
        assert!(why.contains(effect.id.as_str()) && why.contains("response schema"), "{why}");
        assert!(host.listed("run-2").await.is_empty(), "nothing is proposed either");
        assert_eq!(host.counted("refund").await.requests, 1);

        let first = host.finish("run-1", Pace::Jump).await;
        assert!(matches!(first, RunEnd::Completed(_)), "{first:?}");
        let second = host.finish("run-2", Pace::Jump).await;
        assert!(matches!(second, RunEnd::Completed(_)), "{second:?}");
        assert_eq!(host.counted("refund").await.effects, 2);
        assert_eq!(host.counted("refund").await.duplicates, 0);
    });
}
