//! Operations that change what others made: each once, and told by the books.

use serde_json::{Value, json};
use twice_provider_sim::Object;

use crate::World;

/// An operation that changes an object, and what it changes.
struct Case {
    makes: &'static str,
    body: Value,
    change: &'static str,
    operation: &'static str,
    listing: &'static str,
    status: &'static str,
}

fn cases() -> Vec<Case> {
    let case = |makes, body, change, operation, listing, status| Case {
        makes,
        body,
        change,
        operation,
        listing,
        status,
    };
    let money = json!({ "order_id": "o", "amount_cents": 5 });
    let lamps = json!({ "order_id": "o", "sku": "lamp", "quantity": 1 });
    let flight = json!({ "trip_id": "t", "kind": "flight" });
    vec![
        case("refunds", money.clone(), "reverse", "reverse_refund", "reversals", "reversed"),
        case("authorizations", money.clone(), "void", "void", "voids", "voided"),
        case("authorizations", money, "capture", "capture", "captures", "captured"),
        case("reservations", lamps, "release", "release", "releases", "released"),
        case(
            "shipments",
            json!({ "order_id": "o" }),
            "cancel",
            "cancel_shipment",
            "shipment-cancellations",
            "cancelled",
        ),
        case("bookings", flight, "cancel", "cancellation", "cancellations", "cancelled"),
    ]
}

#[tokio::test]
async fn each_change_happens_once_and_shows_on_the_object() {
    for case in cases() {
        let Case { makes, body, change, operation, listing, status } = case;
        let world = World::new().await;
        let made = world.client.post(&format!("/v1/{makes}"), Some("do"), body.clone()).await;
        let id = made.unwrap().id();
        let path = format!("/v1/{makes}/{id}/{change}");
        let asked = json!({ "reference": "eff_1" });
        let first = world.client.post(&path, Some("undo"), asked.clone()).await.unwrap();
        assert_eq!((first.status, first.replayed), (201, false), "{path}: {}", first.text);
        let same = world.client.post(&path, Some("undo"), asked.clone()).await.unwrap();
        assert_eq!((same.status, same.replayed, same.id()), (201, true, first.id()), "{path}");

        // Under another key it is another wish, and what is refused is kept under that key like any answer.
        for replayed in [false, true] {
            let again = world.client.post(&path, Some("undo-2"), asked.clone()).await.unwrap();
            assert_eq!((again.status, again.replayed), (409, replayed), "{path}");
            let error = again.json()["error"].clone();
            assert_eq!(error["code"], json!(format!("already_{status}")), "{path}");
            assert_eq!(error["resource_id"], json!(id), "{path}");
            assert_eq!(error["changed_by"], json!(first.id()), "{path}");
        }

        let shown = world.client.get(&format!("/v1/{makes}/{id}")).await.unwrap().json();
        assert_eq!((&shown["status"], &shown["changed_by"]), (&json!(status), &json!(first.id())));
        let found = world.client.get(&format!("/v1/{listing}?reference=eff_1")).await.unwrap();
        assert_eq!(found.json()["data"], json!([first.json()]), "{listing}");
        // The first answer of what made the object is the one that its key gets, whatever became of it since.
        let replay = world.client.post(&format!("/v1/{makes}"), Some("do"), body).await.unwrap();
        assert!(replay.replayed && replay.json()["changed_by"].is_null(), "{path}");

        let counters = world.sim.counters().await.unwrap();
        let counted = &counters.operations[operation];
        assert_eq!((counted.effects, counted.requests, counters.duplicates), (1, 4, 0), "{path}");
        assert_eq!(counted.effects_per_object[&id], 1, "{path}");
    }
}

#[tokio::test]
async fn what_is_captured_cannot_be_voided_nor_the_other_way_round() {
    let world = World::new().await;
    for (number, [first, second], code) in
        [(1, ["capture", "void"], "already_captured"), (2, ["void", "capture"], "already_voided")]
    {
        let body = json!({ "order_id": format!("o{number}"), "amount_cents": 5 });
        let id = world.client.post("/v1/authorizations", None, body).await.unwrap().id();
        let ask = |change: &str| {
            let path = format!("/v1/authorizations/{id}/{change}");
            let client = world.client.clone();
            async move { client.post(&path, None, json!({})).await.unwrap() }
        };
        assert_eq!(ask(first).await.status, 201);
        let refused = ask(second).await;
        assert_eq!((refused.status, refused.code().as_str()), (409, code));
    }
    let counters = world.sim.counters().await.unwrap();
    assert_eq!(counters.operations["void"].effects, 1);
    assert_eq!(counters.operations["capture"].effects, 1);
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_happened() {
    let world = World::new().await;
    let body = json!({ "order_id": "o", "amount_cents": 5 });
    let id = world.client.post("/v1/authorizations", None, body).await.unwrap().id();
    world.switch(&["commit_then_drop@/v1/authorizations/{id}/void=on,times=1"]).await;
    let path = format!("/v1/authorizations/{id}/void");
    assert!(world.client.post(&path, Some("undo"), json!({})).await.is_err());
    assert!(world.client.post(&path, Some("undo"), json!({})).await.unwrap().replayed);
    assert_eq!(world.sim.counters().await.unwrap().operations["void"].effects, 1);
}

#[tokio::test]
async fn the_books_tell_how_each_object_stands() {
    let world = World::new().await;
    let body = json!({ "order_id": "o", "sku": "lamp", "quantity": 1, "reference": "eff_1" });
    let kept = world.client.post("/v1/reservations", Some("key-1"), body.clone()).await.unwrap();
    let freed = world.client.post("/v1/reservations", Some("key-2"), body).await.unwrap();
    let path = format!("/v1/reservations/{}/release", freed.id());
    world.client.post(&path, Some("key-3"), json!({ "reference": "eff_3" })).await.unwrap();

    let books = world.client.get("/_sim/objects").await.unwrap().json();
    let books: Vec<Object> = serde_json::from_value(books["data"].clone()).unwrap();
    assert_eq!(books, world.sim.objects(0).await.unwrap());
    let text = |text: &str| Some(text.to_owned());
    let reservation = Object {
        seq: 1,
        id: kept.id(),
        operation: "reservation".to_owned(),
        object: "o/lamp".to_owned(),
        reference: text("eff_1"),
        idempotency_key: text("key-1"),
        status: text("reserved"),
        changed_by: None,
    };
    let released = Object {
        seq: 2,
        id: freed.id(),
        idempotency_key: text("key-2"),
        status: text("released"),
        changed_by: text("rel_000001"),
        ..reservation.clone()
    };
    let release = Object {
        seq: 3,
        id: "rel_000001".to_owned(),
        operation: "release".to_owned(),
        object: freed.id(),
        reference: text("eff_3"),
        idempotency_key: text("key-3"),
        status: text("succeeded"),
        changed_by: None,
    };
    assert_eq!(books, [reservation, released, release]);
    let page = world.client.get("/_sim/objects?after=1&limit=1").await.unwrap().json();
    assert_eq!(
        (page["data"][0]["seq"].as_i64(), page["data"].as_array().unwrap().len()),
        (Some(2), 1)
    );
    assert_eq!(world.client.get("/_sim/objects?before=1").await.unwrap().status, 400);
}

#[tokio::test]
async fn a_refusal_is_for_good_and_for_as_many_as_it_says() {
    let world = World::switched(&[
        r#"refuse@/v1/shipments={"code":"address_unknown","message":"there is no such street"},times=1"#,
        "refuse@/v1/trips/{trip}/bookings/car=no_car_left",
    ])
    .await;
    let ship = |key: &'static str| {
        world.client.post("/v1/shipments", Some(key), json!({ "order_id": "o" }))
    };
    for replayed in [false, true] {
        let seen = ship("key-1").await.unwrap();
        assert_eq!((seen.status, seen.replayed), (422, replayed));
        let error = json!({ "code": "address_unknown", "message": "there is no such street" });
        assert_eq!(seen.json()["error"], error);
    }
    assert_eq!(ship("key-2").await.unwrap().status, 201);
    for (kind, status) in [("car", 422), ("hotel", 201), ("car", 422)] {
        let path = format!("/v1/trips/t/bookings/{kind}");
        assert_eq!(world.client.post(&path, None, json!({})).await.unwrap().status, status);
    }
    let counters = world.sim.counters().await.unwrap();
    assert_eq!(counters.effects, 2);
    assert_eq!(
        counters.operations["booking"].effects_per_object.keys().collect::<Vec<_>>(),
        ["t/hotel"]
    );
}
