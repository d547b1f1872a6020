//! Questions, and the switches that spoil their answers.

use serde_json::json;

use crate::{World, is_reset};

const BY_REFERENCE: &str = "/v1/refunds?reference=eff_1";

async fn with_a_refund() -> World {
    let world = World::new().await;
    assert_eq!(world.client.refund("key-1").await.unwrap().status, 201);
    world
}

#[tokio::test]
async fn a_refund_is_found_by_each_of_its_names() {
    let world = with_a_refund().await;
    let other = json!({ "order_id": "order-43", "amount_cents": 7, "reference": "eff_2" });
    let other = world.client.post("/v1/refunds", Some("key-2"), other).await.unwrap();
    for query in ["reference=eff_2", "idempotency_key=key-2", "order_id=order-43"] {
        let seen = world.client.get(&format!("/v1/refunds?{query}")).await.unwrap();
        assert_eq!(seen.json()["data"], json!([other.json()]), "{query}");
    }
    let by_id = world.client.get(&format!("/v1/refunds/{}", other.id())).await.unwrap();
    assert_eq!(by_id.json(), other.json());
    let none = world.client.get("/v1/refunds?reference=eff_3").await.unwrap();
    assert_eq!((none.status, none.found()), (200, 0));
    let absent = world.client.get("/v1/refunds/re_none").await.unwrap();
    assert_eq!((absent.status, absent.code().as_str()), (404, "not_found"));
}

#[tokio::test]
async fn lists_are_oldest_first_and_paged() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for amount_cents in 1..=5 {
        let body = json!({ "order_id": "o", "amount_cents": amount_cents });
        ids.push(world.client.post("/v1/refunds", None, body).await.unwrap().id());
    }
    let mut paged = Vec::new();
    let mut after = String::new();
    loop {
        let page = world.client.get(&format!("/v1/refunds?limit=2{after}")).await.unwrap().json();
        for refund in page["data"].as_array().unwrap() {
            paged.push(refund["id"].as_str().unwrap().to_owned());
        }
        if page["has_more"] == json!(false) {
            break;
        }
        after = format!("&starting_after={}", paged.last().unwrap());
    }
    assert_eq!(paged, ids);
}

#[tokio::test]
async fn a_parameter_that_is_not_known_is_refused() {
    let world = with_a_refund().await;
    for query in ["refrence=eff_1", "limit=0", "limit=1001", "q=x"] {
        let seen = world.client.get(&format!("/v1/refunds?{query}")).await.unwrap();
        assert_eq!((seen.status, seen.code().as_str()), (400, "parameter_invalid"), "{query}");
    }
}

#[tokio::test]
async fn a_lagging_lookup_finds_later() {
    let world = with_a_refund().await;
    world.switch(&["lookup_lag_ms=60000"]).await;
    assert_eq!(world.client.get(BY_REFERENCE).await.unwrap().found(), 0);
    assert_eq!(world.client.get("/v1/refunds/re_000001").await.unwrap().status, 404);
    world.sim.advance_clock(60_000).await.unwrap();
    assert_eq!(world.client.get(BY_REFERENCE).await.unwrap().found(), 1);
    assert_eq!(world.client.get("/v1/refunds/re_000001").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_flapping_lookup_finds_every_other_time() {
    let world = with_a_refund().await;
    world.switch(&["lookup_flapping=on"]).await;
    let mut found = Vec::new();
    for _ in 0..4 {
        found.push(world.client.get(BY_REFERENCE).await.unwrap().found());
    }
    assert_eq!(found, [0, 1, 0, 1]);
}

#[tokio::test]
async fn lookups_fail_as_told() {
    let world = with_a_refund().await;
    for (switch, status, code) in [
        ("lookup_error=on", 503, "lookup_failed"),
        ("lookup_error=401", 401, "lookup_failed"),
        ("no_lookup=on", 404, "unknown_route"),
        ("status=418,method=GET", 418, "fixed_status"),
        ("storm_429=on,method=GET", 429, "rate_limited"),
        ("fail_500=on,method=GET", 500, "internal_error"),
    ] {
        world.switch(&[switch]).await;
        let seen = world.client.get(BY_REFERENCE).await.unwrap();
        assert_eq!((seen.status, seen.code().as_str()), (status, code), "{switch}");
        // Effects are not touched by what is said of lookups.
        assert!(world.client.refund("key-1").await.unwrap().replayed, "{switch}");
    }
    world.switch(&["drop_before_commit=on,method=GET"]).await;
    assert!(is_reset(&world.client.get(BY_REFERENCE).await.unwrap_err()));
    world.switch(&["invalid_json=on,method=GET"]).await;
    let text = world.client.get(BY_REFERENCE).await.unwrap().text;
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_err(), "{text}");
}

#[tokio::test]
async fn the_ticket_search_is_behind_the_list() {
    let world = World::new().await;
    let ticket = json!({ "title": "Broken lamp", "body": "[twice:eff_1]", "reference": "eff_1" });
    world.client.post("/v1/tickets", None, ticket).await.unwrap();
    let search = "/v1/tickets/search?q=EFF_1";
    assert_eq!(world.client.get("/v1/tickets").await.unwrap().found(), 1);
    assert_eq!(world.client.get("/v1/tickets?reference=eff_1").await.unwrap().found(), 1);
    assert_eq!(world.client.get(search).await.unwrap().found(), 0);
    world.sim.advance_clock(2_000).await.unwrap();
    assert_eq!(world.client.get(search).await.unwrap().found(), 1);
    assert_eq!(world.client.get("/v1/tickets/search?q=lamp").await.unwrap().found(), 1);
    assert_eq!(world.client.get("/v1/tickets/search?q=eff_2").await.unwrap().found(), 0);
    world.switch(&["lookup_lag_ms@/v1/tickets/search=60000"]).await;
    assert_eq!(world.client.get(search).await.unwrap().found(), 0);
    assert_eq!(world.client.get("/v1/tickets/search").await.unwrap().code(), "parameter_missing");
}
