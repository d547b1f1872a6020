//! Each switch of effects: what the client sees, what was done, and what a second request under the same key gets.

use std::time::{Duration, Instant};

use serde_json::json;
use twice_provider_sim::{Outcome, WaitFor};

use crate::{World, is_reset, refund};

const LONG: Duration = Duration::from_secs(30);

/// What a request got.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    Reset,
    Status(u16),
    Replay(u16),
}
use Got::{Replay, Reset, Status};

async fn ask(world: &World) -> Got {
    match world.client.refund("key-1").await {
        Ok(seen) if seen.replayed => Replay(seen.status),
        Ok(seen) => Status(seen.status),
        Err(error) => {
            assert!(is_reset(&error), "neither an answer nor a reset: {error:?}");
            Reset
        }
    }
}

/// Asks twice under one key, and compares what came back and how many effects there were after each.
#[track_caller]
fn check(switches: &[&str], first: (Got, u64), second: (Got, u64)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (one, two) = runtime.block_on(async {
        let world = World::switched(switches).await;
        let one = (ask(&world).await, world.effects().await);
        (one, (ask(&world).await, world.effects().await))
    });
    assert_eq!((one, two), (first, second), "{switches:?}");
}

#[test]
fn what_is_lost_and_what_is_kept() {
    check(&[], (Status(201), 1), (Replay(201), 1));
    check(&["commit_then_drop=on,times=1"], (Reset, 1), (Replay(201), 1));
    check(&["commit_then_drop=on"], (Reset, 1), (Replay(201), 1));
    check(&["drop_before_commit=on,times=1"], (Reset, 0), (Status(201), 1));
    check(&["drop_before_commit=on"], (Reset, 0), (Reset, 0));
    check(&["commit_then_500=on,times=1"], (Status(500), 1), (Replay(500), 1));
    check(&["commit_then_500=unsaved,times=1"], (Status(500), 1), (Replay(201), 1));
    check(&["fail_500=on,times=1"], (Status(500), 0), (Status(201), 1));
    check(&["fail_500=saved,times=1"], (Status(500), 0), (Replay(500), 0));
    check(&["storm_429=2,times=1"], (Status(429), 0), (Status(201), 1));
    check(&["status=503,times=1"], (Status(503), 0), (Status(201), 1));
    check(&["decline_402=on,times=1"], (Status(402), 0), (Replay(402), 0));
}

#[test]
fn how_keys_are_honoured() {
    check(&["ignore_keys=on"], (Status(201), 1), (Status(201), 2));
    check(&["conflict_with_id=on"], (Status(201), 1), (Status(409), 1));
    check(
        &["success_only_replay=on", "decline_402=on,times=1"],
        (Status(402), 0),
        (Status(201), 1),
    );
    check(
        &["success_only_replay=on", "commit_then_500=on,times=1"],
        (Status(500), 1),
        (Replay(201), 1),
    );
    check(&["success_only_replay=on"], (Status(201), 1), (Replay(201), 1));
}

#[test]
fn a_switch_is_limited_by_path_method_and_chance() {
    check(&["decline_402@/v1/refunds=on"], (Status(402), 0), (Replay(402), 0));
    check(&["decline_402@/v1/messages=on"], (Status(201), 1), (Replay(201), 1));
    check(&["status@/v1/*=503"], (Status(503), 0), (Status(503), 0));
    check(&["status@/v1/{what}=503"], (Status(503), 0), (Status(503), 0));
    check(&["status@/v1/{what}/more=503"], (Status(201), 1), (Replay(201), 1));
    check(&["status=503,method=GET"], (Status(201), 1), (Replay(201), 1));
    check(&["status=503,probability=0"], (Status(201), 1), (Replay(201), 1));
    check(&["status=503,probability=1,seed=7"], (Status(503), 0), (Status(503), 0));
}

#[tokio::test]
async fn draws_follow_from_the_seed() {
    let mut sequences = Vec::new();
    for seed in [1, 1, 2] {
        let world = World::switched(&[&format!("status=503,probability=0.5,seed={seed}")]).await;
        let mut sequence = Vec::new();
        for n in 0..24 {
            let body = json!({ "order_id": format!("order-{n}"), "amount_cents": 1 });
            sequence.push(world.client.post("/v1/refunds", None, body).await.unwrap().status);
        }
        assert!(sequence.contains(&201) && sequence.contains(&503), "{sequence:?}");
        sequences.push(sequence);
    }
    assert_eq!(sequences[0], sequences[1]);
    assert_ne!(sequences[0], sequences[2]);
}

#[tokio::test]
async fn a_drop_is_a_reset_without_a_byte() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::switched(&["commit_then_drop=on"]).await;
    let mut stream = tokio::net::TcpStream::connect(world.sim.address()).await.unwrap();
    let body = refund().to_string();
    let request = format!(
        "POST /v1/refunds HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let error = stream.read_to_end(&mut answer).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(answer, b"");
    assert_eq!(world.effects().await, 1);
    assert_eq!(world.sim.requests(0).await.unwrap()[0].outcome, Some(Outcome::Dropped));
}

#[tokio::test]
async fn a_storm_says_when_to_come_back() {
    let world = World::switched(&["storm_429=7,times=2"]).await;
    for _ in 0..2 {
        let seen = world.client.refund("key-1").await.unwrap();
        assert_eq!((seen.status, seen.headers["retry-after"].to_str().unwrap()), (429, "7"));
    }
    assert_eq!(world.client.refund("key-1").await.unwrap().status, 201);
}

#[tokio::test]
async fn a_fixed_answer_is_given_as_it_is() {
    let world = World::switched(&[
        r#"status={"status":207,"body":{"partly":true},"headers":{"location":"/elsewhere"}}"#,
    ])
    .await;
    let seen = world.client.refund("key-1").await.unwrap();
    assert_eq!((seen.status, seen.json()), (207, json!({ "partly": true })));
    assert_eq!(seen.headers["location"], "/elsewhere");
}

#[tokio::test]
async fn a_conflict_names_the_first_object() {
    let world = World::switched(&["conflict_with_id=on"]).await;
    let id = world.client.refund("key-1").await.unwrap().id();
    let seen = world.client.refund("key-1").await.unwrap();
    assert_eq!(seen.code(), "idempotent_creation_conflict");
    assert_eq!(seen.json()["error"]["resource_id"], json!(id));
    assert_eq!(seen.json()["error"]["links"]["conflicting_resource_id"], json!(id));
}

#[tokio::test]
async fn a_wrong_amount_is_really_made() {
    let world = World::switched(&["wrong_amount=-100"]).await;
    let seen = world.client.refund("key-1").await.unwrap();
    assert_eq!((seen.status, &seen.json()["amount_cents"]), (201, &json!(1100)));
    let stored = world.client.get(&format!("/v1/refunds/{}", seen.id())).await.unwrap();
    assert_eq!(stored.json()["amount_cents"], json!(1100));
}

#[tokio::test]
async fn bodies_are_spoilt_on_the_wire_only() {
    for (switch, spoilt) in [
        ("huge_body=3000000,times=1", false),
        ("invalid_json=on,times=1", true),
        ("duplicate_key_json=on,times=1", false),
    ] {
        let world = World::switched(&[switch]).await;
        let seen = world.client.refund("key-1").await.unwrap();
        assert_eq!(seen.status, 201, "{switch}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&seen.text).is_err(),
            spoilt,
            "{switch}"
        );
        match switch.split('=').next().unwrap() {
            "huge_body" => assert!(seen.text.len() >= 3_000_000, "{}", seen.text.len()),
            "duplicate_key_json" => assert_eq!(seen.text.matches("\"id\":").count(), 2),
            _ => {}
        }
        let replay = world.client.refund("key-1").await.unwrap();
        assert!(replay.replayed, "{switch}");
        assert_eq!(replay.json()["amount_cents"], json!(1200), "{switch}");
        assert_eq!(world.effects().await, 1, "{switch}");
    }
}

#[tokio::test]
async fn an_endless_body_does_not_end() {
    let world = World::switched(&["endless_body=on"]).await;
    let mut response = world
        .client
        .request("POST", "/v1/refunds")
        .header("idempotency-key", "key-1")
        .body(refund().to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(response.content_length(), None);
    let mut read = 0;
    while read < 4 << 20 {
        read += response.chunk().await.unwrap().expect("it goes on").len();
    }
    assert_eq!(world.effects().await, 1);
}

#[tokio::test]
async fn delays_lie_before_or_after_the_commit() {
    for switch in ["delay_ms=60", "delay_after_commit_ms=60"] {
        let world = World::switched(&[switch]).await;
        let start = Instant::now();
        assert_eq!(world.client.refund("key-1").await.unwrap().status, 201, "{switch}");
        assert!(start.elapsed() >= Duration::from_millis(60), "{switch}");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_changes_nothing() {
    let world = World::switched(&["delay_ms=200,times=1"]).await;
    let client = world.client.clone();
    let asking = tokio::spawn(async move { client.refund("key-1").await });
    assert!(world.sim.wait(WaitFor::Received, 1, None, LONG).await.unwrap());
    asking.abort();
    assert!(world.sim.wait(WaitFor::Committed, 1, None, LONG).await.unwrap());
    assert_eq!(ask(&world).await, Replay(201));
    assert_eq!(world.effects().await, 1);
}

#[tokio::test]
async fn a_held_request_commits_late() {
    let world = World::switched(&["hold_then_commit_late_ms=1500,times=1"]).await;
    let start = Instant::now();
    assert_eq!(ask(&world).await, Reset);
    let seen = world.client.refund("key-1").await.unwrap();
    assert_eq!((seen.status, seen.code().as_str()), (409, "idempotency_key_in_use"));
    let lookup = "/v1/refunds?reference=eff_1";
    assert_eq!(world.client.get(lookup).await.unwrap().found(), 0);
    assert!(world.sim.wait(WaitFor::Committed, 1, Some("refund"), LONG).await.unwrap());
    assert!(start.elapsed() >= Duration::from_millis(1500));
    assert_eq!(world.client.get(lookup).await.unwrap().found(), 1);
    assert_eq!(ask(&world).await, Replay(201));
}

#[tokio::test]
async fn a_paused_reply_waits_for_the_control_call() {
    let world = World::switched(&["pause_before_reply_until=on,times=1"]).await;
    let client = world.client.clone();
    let asking = tokio::spawn(async move { client.refund("key-1").await });
    assert!(world.sim.wait(WaitFor::Committed, 1, None, LONG).await.unwrap());
    // The effect is made and on record under its key, while its own reply is still out.
    assert_eq!(ask(&world).await, Replay(201));
    assert!(world.sim.wait(WaitFor::Paused, 1, None, LONG).await.unwrap());
    assert!(!asking.is_finished());
    let seen = world.client.post("/_sim/continue", None, json!({})).await.unwrap();
    assert_eq!(seen.json(), json!({ "continued": 1 }));
    assert_eq!(asking.await.unwrap().unwrap().status, 201);
}

#[tokio::test]
async fn a_control_call_that_follows_the_commit_is_never_too_early() {
    for _ in 0..20 {
        let world = World::switched(&["pause_before_reply_until=on"]).await;
        let client = world.client.clone();
        let asking = tokio::spawn(async move { client.refund("key-1").await });
        assert!(world.sim.wait(WaitFor::Committed, 1, None, LONG).await.unwrap());
        world.sim.go_on();
        assert_eq!(asking.await.unwrap().unwrap().status, 201);
    }
}

#[tokio::test]
async fn a_paused_reply_waits_for_a_file() {
    let world = World::new().await;
    let file = world.directory.path().join("go");
    world.switch(&[&format!("pause_before_reply_until={}", file.display())]).await;
    let client = world.client.clone();
    let asking = tokio::spawn(async move { client.refund("key-1").await });
    assert!(world.sim.wait(WaitFor::Paused, 1, None, LONG).await.unwrap());
    assert!(!asking.is_finished());
    std::fs::write(file, "").unwrap();
    assert_eq!(asking.await.unwrap().unwrap().status, 201);
}

#[tokio::test]
async fn a_client_killed_between_commit_and_reply_finds_its_effect() {
    let world = World::switched(&["pause_before_reply_until=on,times=1"]).await;
    let client = world.client.clone();
    let asking = tokio::spawn(async move { client.refund("key-1").await });
    assert!(world.sim.wait(WaitFor::Paused, 1, None, LONG).await.unwrap());
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    world.sim.go_on();
    assert!(world.sim.wait(WaitFor::Settled, 1, Some("refund"), LONG).await.unwrap());
    assert_eq!(ask(&world).await, Replay(201));
    let counters = world.sim.counters().await.unwrap();
    let refunds = &counters.operations["refund"];
    assert_eq!((refunds.effects, refunds.duplicates), (1, 0));
    assert_eq!(refunds.deliveries_per_key["key-1"], 2);
}
