//! The control routes, and the text form of switches.

use std::time::Duration;

use serde_json::{Value, json};
use twice_provider_sim::{Fault, SimConfig, SimError, Switch, WaitFor};

use crate::{Seen, World, refund};

async fn put(world: &World, path: &str, body: Value) -> Seen {
    let request = world
        .client
        .request("PUT", path)
        .header("content-type", "application/json")
        .body(body.to_string());
    crate::see(request).await.unwrap()
}

#[tokio::test]
async fn switches_are_replaced_as_a_whole_and_counted() {
    let world = World::new().await;
    let body = json!({ "switches": [
        { "name": "status", "value": 503, "path": "/v1/refunds", "times": 1 },
        { "name": "delay_ms", "value": 1, "probability": 0.5, "seed": 3 },
    ] });
    assert_eq!(put(&world, "/_sim/switches", body.clone()).await.status, 200);
    assert_eq!(world.client.refund("key-1").await.unwrap().status, 503);
    assert_eq!(world.client.refund("key-1").await.unwrap().status, 201);
    let seen = world.client.get("/_sim/switches").await.unwrap().json();
    assert_eq!(seen["switches"][0]["switch"], body["switches"][0]);
    assert_eq!(seen["switches"][0]["fired"], json!(1));
    assert_eq!(seen["switches"][1]["seen"], json!(1));
    let refused =
        put(&world, "/_sim/switches", json!({ "switches": [{ "name": "no_such" }] })).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "control_invalid"));
    assert_eq!(world.sim.switches().len(), 2, "a refused set changes nothing");
    assert_eq!(put(&world, "/_sim/switches", json!({ "switches": [] })).await.status, 200);
    assert_eq!(world.sim.switches(), []);
}

#[tokio::test]
async fn the_log_tells_what_came_and_what_became_of_it() {
    let world = World::switched(&["commit_then_drop=on,times=1"]).await;
    assert!(world.client.refund("\"key-1\"").await.is_err());
    world.client.refund("key-1").await.unwrap();
    world.client.get("/v1/refunds?reference=eff_1").await.unwrap();
    let log = world.client.get("/_sim/requests").await.unwrap().json();
    let told: Vec<_> = log["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (&r["operation"], &r["query"], &r["idempotency_key"], &r["outcome"], &r["status"]))
        .collect();
    let key = json!("key-1");
    assert_eq!(
        told,
        [
            (&json!("refund"), &json!(""), &key, &json!("dropped"), &Value::Null),
            (&json!("refund"), &json!(""), &key, &json!("replayed"), &json!(201)),
            (
                &json!("refund_lookup"),
                &json!("reference=eff_1"),
                &Value::Null,
                &json!("answered"),
                &json!(200)
            ),
        ]
    );
    let first = &log["data"][0];
    assert_eq!(first["headers"]["idempotency-key"], json!("\"key-1\""));
    assert_eq!(first["body_bytes"], json!(refund().to_string().len()));
    assert_eq!(first["body_hash"], log["data"][1]["body_hash"]);
    let after = world.client.get("/_sim/requests?after=1&limit=1").await.unwrap().json();
    assert_eq!(after["data"].as_array().unwrap().len(), 1);
    assert_eq!(after["data"][0]["seq"], json!(2));
}

#[tokio::test]
async fn a_wait_ends_with_the_count_or_the_time() {
    let world = World::new().await;
    let late = world.client.get("/_sim/wait?for=committed&count=1&timeout_ms=1").await.unwrap();
    assert_eq!((late.status, &late.json()["reached"]), (504, &json!(false)));
    let client = world.client.clone();
    let waiting = tokio::spawn(async move {
        client.get("/_sim/wait?for=committed&count=1&operation=refund").await
    });
    world.client.post("/v1/model", None, json!({})).await.unwrap();
    world.client.refund("key-1").await.unwrap();
    let seen = waiting.await.unwrap().unwrap();
    assert_eq!(
        (seen.status, seen.json()),
        (200, json!({ "for": "committed", "reached": true, "count": 1 }))
    );
    assert_eq!(world.client.get("/_sim/wait?for=nothing&count=1").await.unwrap().status, 400);
}

#[tokio::test]
async fn a_reset_forgets_everything_also_what_is_under_way() {
    let world = World::switched(&["hold_then_commit_late_ms=200,times=1"]).await;
    world.sim.advance_clock(5_000).await.unwrap();
    assert!(world.client.refund("key-1").await.is_err());
    assert_eq!(world.client.post("/_sim/reset", None, json!({})).await.unwrap().status, 200);
    assert_eq!(world.sim.switches(), []);
    assert_eq!(world.sim.counters().await.unwrap(), Default::default());
    let clock = world.client.get("/_sim/clock").await.unwrap().json();
    assert_eq!(clock["offset_ms"], json!(0));
    // The key is free, and what was held when the reset came commits nothing.
    assert_eq!(world.client.refund("key-1").await.unwrap().status, 201);
    let more = world.sim.wait(WaitFor::Committed, 2, None, Duration::from_millis(400)).await;
    assert!(!more.unwrap());
    assert_eq!(world.client.get("/v1/refunds").await.unwrap().found(), 1);
}

#[tokio::test]
async fn the_script_and_the_clock_are_set_over_http() {
    let world = World::new().await;
    assert_eq!(put(&world, "/_sim/script", json!({ "lines": ["a", "b"] })).await.status, 200);
    let said = world.client.post("/v1/model", None, json!({})).await.unwrap().json();
    assert_eq!(said["output"], json!("a"));
    let request = world
        .client
        .request("POST", "/_sim/clock")
        .header("content-type", "application/json")
        .body(r#"{"advance_ms":60000}"#);
    assert_eq!(crate::see(request).await.unwrap().json()["offset_ms"], json!(60_000));
    assert_eq!(put(&world, "/_sim/script", json!({ "line": [] })).await.status, 400);
}

#[tokio::test]
async fn only_this_machine_is_served() {
    let mut config = SimConfig::new("unused.db");
    config.listen = "0.0.0.0:0".parse().unwrap();
    let error = twice_provider_sim::Sim::start(config).await.unwrap_err();
    assert!(matches!(error, SimError::NotLoopback { .. }), "{error}");
}

#[track_caller]
fn reads(text: &str, switch: Switch) {
    assert_eq!(text.parse::<Switch>(), Ok(switch), "{text}");
}

#[track_caller]
fn refuses(text: &str, problem: &str) {
    let error = text.parse::<Switch>().expect_err(text);
    assert!(error.problem.contains(problem), "{text}: {error}");
}

#[test]
fn switches_read_from_text() {
    reads("ignore_keys=on", Switch::new(Fault::IgnoreKeys));
    reads("ignore_keys", Switch::new(Fault::IgnoreKeys));
    reads(
        "commit_then_500@/v1/*,times=2",
        Switch::new(Fault::CommitThen500).path("/v1/*").times(2),
    );
    reads("delay_ms=5", Switch::new(Fault::DelayMs).value(5));
    reads(
        "status@/v1/refunds=503,times=2,method=GET",
        Switch::new(Fault::Status).value(503).path("/v1/refunds").times(2).method("GET"),
    );
    reads(
        r#"status={"status":409,"body":{"a":1,"b":2}},probability=0.25,seed=9"#,
        Switch::new(Fault::Status)
            .value(json!({ "status": 409, "body": { "a": 1, "b": 2 } }))
            .probability(0.25, 9),
    );
    reads(
        "pause_before_reply_until=/tmp/a,b=c",
        Switch::new(Fault::PauseBeforeReplyUntil).value("/tmp/a,b=c"),
    );
    reads(
        r#"refuse@/v1/shipments={"status":409,"code":"gone"},times=3"#,
        Switch::new(Fault::Refuse)
            .value(json!({ "status": 409, "code": "gone" }))
            .path("/v1/shipments")
            .times(3),
    );
    reads("refuse", Switch::new(Fault::Refuse));
    refuses("refuse=Not Me", "a code of lower-case letters");
    refuses(r#"refuse={"status":500}"#, "400 to 499");
    refuses("delay_ms", "none is given");
    refuses("ignore_key", "there is no switch");
    refuses("no_such=on", "the switches are commit_then_drop");
    refuses("ignore_keys=5", "takes no value");
    refuses("delay_ms=soon", "whole milliseconds");
    refuses("delay_ms=600001", "at most 600000");
    refuses("status=99", "status from 200 to 599");
    refuses("status=503,times=0", "at least 1");
    refuses("status=503,times=x", "not a number");
    refuses("status=503,probability=2", "from 0 to 1");
    refuses("status=503,seed=2", "without probability");
    refuses("status@v1=503", "start with `/`");
    refuses("status=503,method=PATCH", "GET or POST");
}

#[test]
fn every_fault_has_a_name_of_its_own_and_a_sentence() {
    let mut names: Vec<_> = Fault::ALL.iter().map(|fault| fault.as_str()).collect();
    for fault in Fault::ALL {
        assert_eq!(fault.as_str().parse(), Ok(fault));
        assert!(fault.about().len() > 20, "{fault}");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Fault::ALL.len());
}
