//! What a lookup's answer tells, and that it tells nothing where it is not as declared.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use twice::tool::Driver;
use twice_core::event::ProbeResult;
use twice_core::outcome::Echo;
use twice_tests::fault::{FaultServer, Script, Step, closed_port, reply};
use twice_workflow::model::{HttpRequest, Lookup, Operation};

use super::support::{Bench, literal, operation, reference, run};

fn ours() -> String {
    format!("eff_{}", "a".repeat(52))
}

/// `GET /refunds?reference=…`, a list.
fn searching() -> Operation {
    let mut operation = operation();
    operation.declarations.echo =
        vec![Echo { result: "/amount".to_owned(), args: "/amount".to_owned() }];
    operation.lookup = Some(Lookup {
        request: HttpRequest {
            method: "GET".to_owned(),
            path: vec![literal("refunds")],
            query: BTreeMap::from([("reference".to_owned(), reference("/effect_id"))]),
            headers: BTreeMap::new(),
            body: None,
        },
        absent_statuses: vec![404],
        items: Some("/data".to_owned()),
        matches: Some(("/reference".to_owned(), "/effect_id".to_owned())),
        pending: Some(("/status".to_owned(), vec![json!("pending"), json!("queued")])),
        failed: Some(("/status".to_owned(), vec![json!("failed")])),
        external_id: Some("/id".to_owned()),
    });
    operation
}

/// The same by the object itself.
fn reading() -> Operation {
    let mut operation = searching();
    operation.lookup.as_mut().unwrap().items = None;
    operation
}

fn probe(operation: &Operation, script: Script) -> ProbeResult {
    run(async {
        let server = FaultServer::start(None, vec![script]).await;
        let bench = Bench::new(&server.url(), operation.clone(), None);
        let (request, result) = bench.driver.lookup(&bench.call()).await;
        assert_eq!(request["url"], format!("{}/refunds?reference={}", server.url(), ours()));
        assert_eq!(request["headers"].get("idempotency-key"), None);
        let seen = server.finish().await;
        assert!(seen.connections == 1 && seen.requests.len() <= 1);
        result
    })
}

#[track_caller]
fn check(operation: &Operation, status: u16, body: &Value, expected: &ProbeResult) {
    let script = vec![Step::ReadRequest, reply(status, &[], &body.to_string())];
    assert_eq!(&probe(operation, script), expected, "{body}");
}

#[track_caller]
fn check_error(operation: &Operation, script: Script, expected: &str) {
    match probe(operation, script) {
        ProbeResult::Error { message } => assert!(message.contains(expected), "{message}"),
        other => panic!("{other:?}"),
    }
}

fn object(id: &str, status: &str, amount: i64) -> Value {
    json!({ "id": id, "status": status, "amount": amount, "reference": ours() })
}

fn foreign(id: &str) -> Value {
    json!({ "id": id, "status": "done", "amount": 4200, "reference": "eff_other" })
}

#[test]
fn one_object_as_asked_for_is_a_match() {
    let result = object("re_1", "done", 4200);
    let expected =
        ProbeResult::Match { external_id: Some("re_1".to_owned()), result: result.clone() };
    check(&searching(), 200, &json!({ "data": [foreign("re_0"), result] }), &expected);
    check(&reading(), 200, &result, &expected);
}

#[test]
fn a_number_is_an_id_too_and_numbers_are_compared_by_value() {
    let result = json!({ "id": 7, "status": "done", "amount": 4200.0, "reference": ours() });
    match probe(&reading(), vec![Step::ReadRequest, reply(200, &[], &result.to_string())]) {
        ProbeResult::Match { external_id, .. } => assert_eq!(external_id.as_deref(), Some("7")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_object_that_differs_is_a_mismatch_in_words() {
    let result = object("re_1", "done", 100);
    let difference = "/amount is 100, 4200 was asked for".to_owned();
    let external_id = Some("re_1".to_owned());
    let expected = ProbeResult::Mismatch { external_id, result: result.clone(), difference };
    check(&reading(), 200, &result, &expected);
    let mut lacking = result;
    lacking.as_object_mut().unwrap().remove("amount");
    let expected = ProbeResult::Mismatch {
        external_id: Some("re_1".to_owned()),
        result: lacking.clone(),
        difference: "/amount is missing, 4200 was asked for".to_owned(),
    };
    check(&reading(), 200, &lacking, &expected);
}

#[test]
fn several_objects_are_told_in_the_order_they_came() {
    let items: Vec<_> = (0..25).map(|i| object(&format!("re_{i}"), "done", 4200)).collect();
    let expected = ProbeResult::Many {
        count: 25,
        external_ids: (0..20).map(|i| format!("re_{i}")).collect(),
        oldest: items[0].clone(),
    };
    // A cap of the body that a list of 25 fits in.
    let mut operation = searching();
    operation.response_bytes_max = 100_000;
    check(&operation, 200, &json!({ "data": items }), &expected);
}

#[test]
fn states_are_read() {
    check(
        &searching(),
        200,
        &json!({ "data": [object("re_1", "queued", 1)] }),
        &ProbeResult::Pending,
    );
    let result = object("re_1", "failed", 4200);
    let expected = ProbeResult::Refused {
        external_id: Some("re_1".to_owned()),
        result: result.clone(),
        message: "the lookup found it in the state /status = \"failed\"".to_owned(),
    };
    check(&reading(), 200, &result, &expected);
}

#[test]
fn only_what_is_declared_absent_is_a_miss() {
    check(&reading(), 404, &json!({ "error": "no such refund" }), &ProbeResult::Miss);
    check(&searching(), 200, &json!({ "data": [] }), &ProbeResult::Miss);
    check(&searching(), 200, &json!({ "data": [foreign("re_0")] }), &ProbeResult::Miss);
}

#[test]
fn what_is_not_as_declared_tells_nothing() {
    let answer =
        |status, body: Value| vec![Step::ReadRequest, reply(status, &[], &body.to_string())];
    let object_without = |member: &str| {
        let mut object = object("re_1", "done", 4200);
        object.as_object_mut().unwrap().remove(member);
        answer(200, object)
    };
    check_error(&reading(), object_without("status"), "no state at /status");
    check_error(&reading(), object_without("id"), "no id at /id");
    check_error(&reading(), object_without("reference"), "does not carry our reference");
    check_error(&reading(), answer(200, foreign("re_0")), "does not carry our reference");
    check_error(&reading(), answer(200, json!([])), "not an object");
    for status in [301, 400, 401, 403, 410, 429, 500, 503] {
        check_error(&reading(), answer(status, json!({})), &format!("status {status}"));
    }
    check_error(&searching(), answer(200, json!({ "items": [] })), "no array at /data");
    check_error(&searching(), answer(200, json!({ "data": {} })), "no array at /data");
    let renamed = json!({ "data": [{ "id": "re_1", "ref": ours() }] });
    check_error(&searching(), answer(200, renamed), "not one of the objects");
    let nameless = json!({ "reference": ours(), "status": "done", "amount": 4200 });
    let two = json!({ "data": [nameless, object("re_1", "done", 4200)] });
    check_error(
        &searching(),
        answer(200, two),
        "one of the objects that the lookup found has no id",
    );
    check_error(&searching(), vec![Step::ReadRequest, reply(200, &[], "")], "no body");
    check_error(&searching(), vec![Step::ReadRequest, reply(200, &[], "<html>")], "not JSON");
    check_error(&searching(), vec![Step::ReadRequest, reply(200, &[], &"[".repeat(9_000))], "over");
    check_error(&searching(), vec![Step::ReadRequest], "ended before an answer");
    check_error(&searching(), vec![Step::ReadRequest, Step::AwaitClose], "no answer in time");
}

/// On a page of several, what is not found may be on the next.
#[test]
fn a_miss_on_one_page_of_several_tells_nothing() {
    let more = json!({ "data": [foreign("re_0")], "has_more": true }).to_string();
    check_error(&searching(), vec![Step::ReadRequest, reply(200, &[], &more)], "there are more");
    let body = json!({ "data": [] }).to_string();
    let link = [("link", "<https://api.example.com/refunds?page=2>; rel=\"next\"")];
    check_error(&searching(), vec![Step::ReadRequest, reply(200, &link, &body)], "there are more");
}

#[test]
fn a_lookup_that_cannot_be_made_is_an_error() {
    let mut broken = searching();
    broken.lookup.as_mut().unwrap().request.path = vec![reference("/args/order")];
    for (operation, expected) in [
        (operation(), "declares no lookup"),
        (broken, "refers to `/args/order`"),
        (searching(), "no connection"),
    ] {
        let url = run(closed_port("http"));
        let bench = Bench::new(&url, operation, None);
        match run(bench.driver.lookup(&bench.call())).1 {
            ProbeResult::Error { message } => assert!(message.contains(expected), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}
