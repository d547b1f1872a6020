//! The services without a fault: what they take, make and refuse.

use serde_json::{Value, json};

use crate::World;

#[tokio::test]
async fn each_service_makes_its_object() {
    let world = World::new().await;
    for (path, body, id, object) in [
        (
            "/v1/refunds",
            json!({ "order_id": "o1", "amount_cents": 5, "reference": "r", "reason": "broken" }),
            "re_000001",
            json!({ "order_id": "o1", "amount_cents": 5, "reference": "r", "reason": "broken",
                    "status": "succeeded" }),
        ),
        (
            "/v1/orders/o2/refunds",
            json!({ "amount_cents": 6, "reason": null }),
            "re_000002",
            json!({ "order_id": "o2", "amount_cents": 6, "status": "succeeded" }),
        ),
        (
            "/v1/refunds/re_000001/reverse",
            json!({}),
            "rev_000001",
            json!({ "refund_id": "re_000001", "status": "succeeded" }),
        ),
        (
            "/v1/messages",
            json!({ "to": "a@example.com", "subject": "s", "text": "t" }),
            "msg_000001",
            json!({ "to": "a@example.com", "subject": "s", "text": "t", "status": "sent" }),
        ),
        (
            "/v1/tickets",
            json!({ "title": "t", "body": "b", "reference": "r" }),
            "tkt_000001",
            json!({ "title": "t", "body": "b", "reference": "r", "status": "open" }),
        ),
        (
            "/v1/reservations",
            json!({ "order_id": "o1", "sku": "lamp", "quantity": 2 }),
            "res_000001",
            json!({ "order_id": "o1", "sku": "lamp", "quantity": 2, "status": "reserved" }),
        ),
        (
            "/v1/reservations/res_000001/release",
            json!({}),
            "rel_000001",
            json!({ "reservation_id": "res_000001", "status": "succeeded" }),
        ),
        (
            "/v1/shipments",
            json!({ "order_id": "o1", "address": "1 High Street" }),
            "shp_000001",
            json!({ "order_id": "o1", "address": "1 High Street", "status": "shipped" }),
        ),
        (
            "/v1/shipments/shp_000001/cancel",
            json!({ "reference": "r" }),
            "csh_000001",
            json!({ "shipment_id": "shp_000001", "reference": "r", "status": "succeeded" }),
        ),
        (
            "/v1/authorizations",
            json!({ "order_id": "o1", "amount_cents": 7, "reference": "r" }),
            "auth_000001",
            json!({ "order_id": "o1", "amount_cents": 7, "reference": "r", "status": "authorized" }),
        ),
        (
            "/v1/authorizations/auth_000001/capture",
            json!({}),
            "cap_000001",
            json!({ "authorization_id": "auth_000001", "status": "succeeded" }),
        ),
        (
            "/v1/bookings",
            json!({ "trip_id": "t1", "kind": "flight", "details": "LIS to OSL", "reference": "r" }),
            "bk_000001",
            json!({ "trip_id": "t1", "kind": "flight", "details": "LIS to OSL", "reference": "r",
                    "status": "booked" }),
        ),
        (
            "/v1/trips/t1/bookings/car",
            json!({}),
            "bk_000002",
            json!({ "trip_id": "t1", "kind": "car", "status": "booked" }),
        ),
        (
            "/v1/bookings/bk_000001/cancel",
            json!({}),
            "can_000001",
            json!({ "booking_id": "bk_000001", "status": "succeeded" }),
        ),
    ] {
        let seen = world.client.post(path, None, body).await.unwrap();
        assert_eq!(seen.status, 201, "{path}: {}", seen.text);
        let mut made = seen.json();
        let made = made.as_object_mut().unwrap();
        assert_eq!(made.remove("id"), Some(json!(id)), "{path}");
        assert!(made.remove("created").is_some_and(|created| created.is_i64()), "{path}");
        assert_eq!(Value::Object(made.clone()), object, "{path}");
    }
    assert_eq!(world.effects().await, 14);
    assert_eq!(world.client.get("/v1/messages").await.unwrap().found(), 1);
}

async fn refuses(path: &str, body: Value, status: u16, code: &str) {
    let world = World::new().await;
    let seen = world.client.post(path, None, body.clone()).await.unwrap();
    assert_eq!((seen.status, seen.code().as_str()), (status, code), "{path} {body}");
    assert_eq!(world.effects().await, 0);
}

#[tokio::test]
async fn what_is_not_valid_is_refused() {
    let refund = "/v1/refunds";
    refuses(refund, json!([]), 400, "body_invalid").await;
    refuses(refund, json!({ "amount_cents": 5 }), 400, "parameter_missing").await;
    refuses(refund, json!({ "order_id": "o" }), 400, "parameter_missing").await;
    for amount in [json!(0), json!(-5), json!(1.5), json!("5"), json!(1_000_000_000_001_i64)] {
        let body = json!({ "order_id": "o", "amount_cents": amount });
        refuses(refund, body, 400, "parameter_invalid").await;
    }
    for order in [json!(""), json!(7), json!("o".repeat(257))] {
        let body = json!({ "order_id": order, "amount_cents": 5 });
        refuses(refund, body, 400, "parameter_invalid").await;
    }
    let other = json!({ "order_id": "o2", "amount_cents": 5 });
    refuses("/v1/orders/o1/refunds", other, 400, "path_mismatch").await;
    let ship = json!({ "trip_id": "t", "kind": "ship" });
    refuses("/v1/bookings", ship, 400, "parameter_invalid").await;
    refuses("/v1/trips/t/bookings/car", json!({ "kind": "hotel" }), 400, "path_mismatch").await;
    refuses("/v1/messages", json!({ "to": "a", "subject": "s" }), 400, "parameter_missing").await;
    refuses("/v1/tickets", json!({ "body": "b" }), 400, "parameter_missing").await;
    refuses("/v1/refunds/re_000009/reverse", json!({}), 404, "not_found").await;
    refuses("/v1/reservations/re_000009/release", json!({}), 404, "not_found").await;
    refuses("/v1/authorizations/auth_000009/void", json!({}), 404, "not_found").await;
    refuses("/v1/nothing", json!({}), 404, "unknown_route").await;
    refuses("/v1/refunds/re_000009", json!({}), 405, "method_not_allowed").await;
    refuses(refund, json!({ "order_id": "o".repeat(2 << 20) }), 413, "body_too_large").await;
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused_and_logged() {
    let world = World::new().await;
    let seen =
        crate::see(world.client.request("POST", "/v1/refunds").body("{order:")).await.unwrap();
    assert_eq!((seen.status, seen.code().as_str()), (400, "body_invalid"));
    assert_eq!(world.sim.counters().await.unwrap().operations["refund"].requests, 1);
}

#[tokio::test]
async fn the_model_says_something_else_each_time() {
    let world = World::new().await;
    world.sim.set_script(&[json!({ "amount": 1200 }), json!("refuse")]).await.unwrap();
    let mut outputs = Vec::new();
    for call in 1..=3 {
        let seen = world.client.post("/v1/model", Some("same"), json!({ "prompt": "p" })).await;
        let seen = seen.unwrap().json();
        assert_eq!(seen["call"], json!(call));
        outputs.push(seen["output"].clone());
    }
    assert_eq!(outputs, [json!({ "amount": 1200 }), json!("refuse"), json!({ "amount": 1200 })]);
    assert_eq!(world.sim.counters().await.unwrap().duplicates, 0);
}

#[tokio::test]
async fn the_api_key_is_asked_for_and_not_kept() {
    let world = World::with(|config| config.api_key = Some("s3cret-of-the-sim".to_owned())).await;
    let refused = world.client.refund("key-1").await.unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (401, "unauthorized"));
    assert_eq!(world.client.get("/v1/refunds").await.unwrap().status, 401);
    let sent = world
        .client
        .request("POST", "/v1/refunds")
        .header("authorization", "Bearer s3cret-of-the-sim")
        .header("idempotency-key", "key-1")
        .body(crate::refund().to_string());
    assert_eq!(crate::see(sent).await.unwrap().status, 201);
    let log = world.sim.requests(0).await.unwrap();
    assert_eq!(log.last().unwrap().headers["authorization"], "(redacted)");
    world.sim.stop().await;
    for file in std::fs::read_dir(world.directory.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("s3cret-of-the-sim"));
    }
}
