//! Idempotency keys as the IETF draft describes them.

use serde_json::json;

use crate::{World, refund};

#[tokio::test]
async fn a_replay_is_the_first_answer() {
    let world = World::new().await;
    let first = world.client.refund("key-1").await.unwrap();
    let second = world.client.refund("key-1").await.unwrap();
    assert_eq!((first.status, first.replayed), (201, false));
    assert_eq!((second.status, second.replayed), (201, true));
    assert_eq!(first.text, second.text);
}

#[tokio::test]
async fn the_order_of_members_does_not_matter_but_their_values_do() {
    let world = World::new().await;
    let first = r#"{"order_id":"o","amount_cents":5}"#;
    let send = |body: &'static str| {
        crate::see(
            world.client.request("POST", "/v1/refunds").header("idempotency-key", "k").body(body),
        )
    };
    assert_eq!(send(first).await.unwrap().status, 201);
    assert!(send(r#"{ "amount_cents": 5, "order_id": "o" }"#).await.unwrap().replayed);
    let other = send(r#"{"order_id":"o","amount_cents":6}"#).await.unwrap();
    assert_eq!((other.status, other.code().as_str()), (422, "idempotency_key_reused"));
    let elsewhere = world
        .client
        .post("/v1/orders/o/refunds", Some("k"), json!({ "order_id": "o", "amount_cents": 5 }))
        .await
        .unwrap();
    assert_eq!((elsewhere.status, elsewhere.code().as_str()), (422, "idempotency_key_reused"));
    assert_eq!(world.effects().await, 1);
}

#[tokio::test]
async fn a_quoted_key_is_the_same_key() {
    let world = World::new().await;
    assert_eq!(world.client.refund("key-1").await.unwrap().status, 201);
    assert!(world.client.refund("\"key-1\"").await.unwrap().replayed);
    assert!(world.client.refund("\"key\\-1\";v=1").await.unwrap().replayed);
    assert_eq!(world.effects().await, 1);
}

#[tokio::test]
async fn a_key_that_is_none_is_refused() {
    let world = World::new().await;
    for key in ["", "\"\"", "\"open", &"k".repeat(257)] {
        let seen = world.client.refund(key).await.unwrap();
        assert_eq!((seen.status, seen.code().as_str()), (400, "idempotency_key_invalid"), "{key}");
    }
    assert_eq!(world.effects().await, 0);
}

#[tokio::test]
async fn a_refused_body_leaves_the_key_free() {
    let world = World::new().await;
    let wrong = json!({ "order_id": "order-42", "amount_cents": 0 });
    let seen = world.client.post("/v1/refunds", Some("key-1"), wrong).await.unwrap();
    assert_eq!((seen.status, seen.code().as_str()), (400, "parameter_invalid"));
    assert_eq!(world.client.refund("key-1").await.unwrap().status, 201);
}

#[tokio::test]
async fn twenty_at_once_make_one_effect() {
    for delay in ["delay_ms=0", "delay_ms=100"] {
        let world = World::switched(&[delay]).await;
        let asking: Vec<_> = (0..20)
            .map(|_| {
                let client = world.client.clone();
                tokio::spawn(async move { client.refund("key-1").await.unwrap() })
            })
            .collect();
        let mut made = 0;
        for asking in asking {
            let seen = asking.await.unwrap();
            match (seen.status, seen.replayed) {
                (201, false) => made += 1,
                (201, true) => {}
                (409, false) => assert_eq!(seen.code(), "idempotency_key_in_use"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(made, 1, "{delay}");
        let counters = world.sim.counters().await.unwrap();
        assert_eq!((counters.effects, counters.duplicates), (1, 0), "{delay}");
        assert_eq!(counters.operations["refund"].deliveries_per_key["key-1"], 20, "{delay}");
    }
}

#[tokio::test]
async fn another_body_is_told_apart_even_in_flight() {
    let world = World::switched(&["hold_then_commit_late_ms=1000,times=1"]).await;
    assert!(world.client.refund("key-1").await.is_err());
    let other = json!({ "order_id": "order-42", "amount_cents": 1 });
    let seen = world.client.post("/v1/refunds", Some("key-1"), other).await.unwrap();
    assert_eq!((seen.status, seen.code().as_str()), (422, "idempotency_key_reused"));
}

#[tokio::test]
async fn a_forgotten_key_is_a_new_key() {
    let world = World::switched(&["forget_keys_after_ms=86400000"]).await;
    let first = world.client.refund("key-1").await.unwrap();
    world.sim.advance_clock(80_000_000).await.unwrap();
    assert_eq!(world.client.refund("key-1").await.unwrap().id(), first.id());
    world.sim.advance_clock(7_000_000).await.unwrap();
    let second = world.client.refund("key-1").await.unwrap();
    assert_ne!(second.id(), first.id());
    assert!(!second.replayed);
    assert_eq!(world.client.refund("key-1").await.unwrap().id(), second.id());
    let counters = world.sim.counters().await.unwrap();
    assert_eq!((counters.effects, counters.duplicates), (2, 1));
    assert_eq!(counters.operations["refund"].duplicate_references, 1);
}

#[tokio::test]
async fn a_ticket_tracker_knows_no_keys() {
    let world = World::new().await;
    let ticket = json!({ "title": "t", "body": "b", "reference": "eff_1" });
    let first = world.client.post("/v1/tickets", Some("key-1"), ticket.clone()).await.unwrap();
    let second = world.client.post("/v1/tickets", Some("key-1"), ticket).await.unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(world.sim.counters().await.unwrap().operations["ticket"].duplicates, 1);
}

#[tokio::test]
async fn requests_without_a_key_are_all_served() {
    let world = World::new().await;
    for _ in 0..2 {
        let seen = world.client.post("/v1/refunds", None, refund()).await.unwrap();
        assert_eq!(seen.status, 201);
    }
    let counters = world.sim.counters().await.unwrap();
    assert_eq!(counters.operations["refund"].requests_without_key, 2);
    assert_eq!(counters.operations["refund"].effects_per_object["order-42"], 2);
}
