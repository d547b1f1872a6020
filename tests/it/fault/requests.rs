//! What goes over the wire, and what is kept of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use twice::tool::http::{HttpConfig, HttpDriver, plain_client};
use twice::tool::registry::{AnyRequest, Drivers};
use twice::tool::secret::{FixedSecrets, SecretError, SecretSource, SystemSecrets};
use twice::tool::{Driver, Gate, PrepareError};
use twice_core::ids::Name;
use twice_tests::fault::{FaultServer, Step, reply};
use twice_workflow::model::{Operation, Part, Template, Text};

use super::support::{Bench, End, literal, name, operation, reference, run, value_at};

const BASE: &str = "https://api.example.com/v1";
const KEY: &str = "0f0e0d0c-0b0a-8908-8706-050403020100";

fn text(parts: &[&str]) -> Text {
    let part = |text: &&str| match text.strip_prefix('@') {
        Some(pointer) => Part::Reference(pointer.to_owned()),
        None => Part::Literal((*text).to_owned()),
    };
    Text(parts.iter().map(part).collect())
}

fn stored(operation: Operation, args: Value) -> Result<Value, PrepareError> {
    let mut bench = Bench::new(BASE, operation, None);
    bench.args = args;
    bench.driver.prepare(&bench.call()).map(|prepared| prepared.stored)
}

#[test]
fn the_stored_form_is_what_is_sent() {
    let mut operation = operation();
    operation.request.path = vec![literal("orders"), reference("/args/order"), literal("refunds")];
    operation.request.query = BTreeMap::from([
        ("expand".to_owned(), literal("charge&x=y")),
        ("run id".to_owned(), reference("/run")),
    ]);
    operation.request.headers =
        BTreeMap::from([("X-Reference".to_owned(), text(&["for ", "@/run"]))]);
    let args = json!({ "order": "a/b?c#d é", "amount": 4200 });
    assert_eq!(
        stored(operation, args).unwrap(),
        json!({
            "method": "POST",
            "url": "https://api.example.com/v1/orders/a%2Fb%3Fc%23d%20%C3%A9/refunds?expand=charge%26x%3Dy&run%20id=run-1",
            "headers": {
                "accept": "application/json",
                "content-type": "application/json",
                "idempotency-key": KEY,
                "x-reference": "for run-1",
            },
            "body": { "amount": 4200, "reference": format!("eff_{}", "a".repeat(52)) },
        })
    );
}

#[test]
fn what_is_stored_arrives() {
    run(async {
        let script = vec![Step::ReadRequest, reply(201, &[], "{\"id\":\"re_1\"}")];
        let server = FaultServer::start(None, vec![script]).await;
        let mut operation = operation();
        operation.key_carrier.as_mut().unwrap().quoted = true;
        let bench = Bench::new(&server.url(), operation, None);
        assert_eq!(End::of(&bench.send().await), End::Status(201));
        let request = server.finish().await.requests.remove(0);
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /refunds HTTP/1.1\r\n"), "{head}");
        for line in [
            &format!("idempotency-key: \"{KEY}\""),
            "content-type: application/json",
            "accept: application/json",
            concat!("user-agent: twice/", env!("CARGO_PKG_VERSION")),
        ] {
            assert!(head.lines().any(|sent| sent == line), "{line} in {head}");
        }
        assert!(!head.contains("accept-encoding") && !head.contains("referer"), "{head}");
        assert_eq!(body, format!("{{\"amount\":4200,\"reference\":\"eff_{}\"}}", "a".repeat(52)));
    });
}

/// A resend must be the same bytes, or a provider takes it for another request.
#[test]
fn the_same_args_give_the_same_bytes() {
    let mut operation = operation();
    operation.request.body = Some(value_at("/args"));
    let mut bench = Bench::new(BASE, operation, None);
    let mut hashes = Vec::new();
    for args in ["{\"b\":1,\"a\":{\"y\":2,\"x\":[1,2]}}", "{\"a\":{\"x\":[1,2],\"y\":2},\"b\":1}"] {
        bench.args = serde_json::from_str(args).unwrap();
        hashes.push(bench.driver.prepare(&bench.call()).unwrap().body_hash);
    }
    assert_eq!(hashes[0], hashes[1]);
    bench.args = json!({ "a": 1 });
    assert_ne!(bench.driver.prepare(&bench.call()).unwrap().body_hash, hashes[0]);
}

#[test]
fn optional_references_to_nothing_are_left_out() {
    let optional =
        |pointer: &str| Template::Reference { pointer: pointer.to_owned(), optional: true };
    let mut operation = operation();
    operation.request.body = Some(Template::Object(BTreeMap::from([
        ("note".to_owned(), optional("/args/note")),
        ("nothing".to_owned(), optional("/args/nothing")),
        ("tags".to_owned(), Template::Array(vec![optional("/args/tag"), optional("/args/note")])),
        ("label".to_owned(), Template::Text(text(&["run ", "@/run"]))),
        ("fixed".to_owned(), Template::Literal(json!([1, null]))),
    ])));
    let stored = stored(operation, json!({ "note": "n", "nothing": null })).unwrap();
    assert_eq!(
        stored["body"],
        json!({ "note": "n", "nothing": null, "tags": ["n"], "label": "run run-1", "fixed": [1, null] })
    );
}

#[track_caller]
fn check_refused(change: impl Fn(&mut Operation), args: Value, expected: &str) {
    let mut operation = operation();
    change(&mut operation);
    let error = stored(operation, args).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn requests_that_would_be_another_one_are_refused() {
    let path = |operation: &mut Operation| operation.request.path = vec![reference("/args/id")];
    for (id, expected) in [
        (json!(""), "path of payments.refund: a segment is empty"),
        (json!("."), "a segment is ."),
        (json!(".."), "a segment is .."),
        (json!(1.5), "is not an integer"),
        (json!(null), "neither a string, an integer nor a boolean"),
        (json!(["a"]), "neither a string, an integer nor a boolean"),
    ] {
        check_refused(path, json!({ "id": id, "amount": 1 }), expected);
    }
    let long = json!({ "id": "x".repeat(9_000), "amount": 1 });
    check_refused(path, long, "url of payments.refund: it is over 8000 bytes");
    check_refused(|_| {}, json!({}), "body.amount of payments.refund refers to `/args/amount`");
    let header = |name: &'static str, value: &'static str| {
        move |operation: &mut Operation| {
            operation.request.headers.insert(name.to_owned(), text(&[value]));
        }
    };
    let args = || json!({ "amount": 1, "id": "a\r\nx-evil: 1" });
    check_refused(header("x-id", "@/args/id"), args(), "header x-id of payments.refund: its value");
    let accented = json!({ "amount": 1, "id": "é" });
    check_refused(header("x-id", "@/args/id"), accented, "only printable ASCII");
    check_refused(header("Host", "other"), args(), "belongs to the connection");
    check_refused(header("Content-Length", "1"), args(), "belongs to the connection");
    check_refused(header("a b", "1"), args(), "not a header name");
    check_refused(header("idempotency-key", "mine"), args(), "given twice");
    check_refused(|operation| operation.request.method = "TRACE".to_owned(), args(), "`TRACE`");
}

#[track_caller]
fn check_base(base: &str, expected: &str) {
    let bench = Bench::new(base, operation(), None);
    let error = bench.driver.prepare(&bench.call()).unwrap_err();
    assert!(matches!(error, PrepareError::BaseUrl { .. }), "{error:?}");
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn a_base_url_that_cannot_be_used_is_said() {
    check_base("ftp://example.com", "its scheme is ftp");
    check_base("not a url", "not a URL");
    check_base("env:NOT_SET", "the environment variable NOT_SET is not set");
    let bench = Bench::with_secrets("env:BASE", operation(), None, &[("BASE", BASE)]);
    let stored = bench.driver.prepare(&bench.call()).unwrap().stored;
    assert_eq!(stored["url"], "https://api.example.com/v1/refunds");
}

#[test]
fn a_ca_file_that_cannot_be_used_is_said_before_anything_is_recorded() {
    let mut bench = Bench::new(BASE, operation(), None);
    bench.http().ca_file = Some("missing.pem".to_owned());
    let error = bench.driver.prepare(&bench.call()).unwrap_err();
    assert!(error.to_string().contains("ca_file missing.pem cannot be read"), "{error}");
}

#[test]
fn the_registry_sends_by_kind() {
    run(async {
        let script = vec![Step::ReadRequest, reply(201, &[], "{\"id\":\"re_1\"}")];
        let server = FaultServer::start(None, vec![script]).await;
        let bench = Bench::new(&server.url(), operation(), None);
        let drivers = Drivers::new(HttpDriver::new(HttpConfig {
            secrets: std::sync::Arc::new(FixedSecrets::default()),
            redactor: std::sync::Arc::clone(&bench.redactor),
            root: std::path::PathBuf::new(),
        }));
        let prepared = drivers.prepare(&bench.call()).unwrap();
        assert!(matches!(&prepared.request, AnyRequest::Http(_)));
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(60);
        assert_eq!(
            End::of(&drivers.send(prepared.request, Gate::until(soon)).await),
            End::Status(201)
        );
        server.finish().await;
    });
}

/// It has no effect to witness, and works outside any.
#[test]
fn the_plain_client_is_for_servers_of_our_own() {
    run(async {
        let script = vec![Step::ReadRequest, reply(200, &[], "{}")];
        let server = FaultServer::start(None, vec![script]).await;
        let answer = plain_client().unwrap().get(server.url()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        server.finish().await;
    });
}

#[test]
fn secrets_of_the_system_are_read_by_reference() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("token"), "s3cret\n").unwrap();
    std::fs::write(root.path().join("empty"), "\n").unwrap();
    std::fs::write(root.path().join("large"), "x".repeat(20_000)).unwrap();
    let system = SystemSecrets { root: root.path().to_owned() };
    assert_eq!(system.read("file:token"), Ok("s3cret".to_owned()));
    assert_eq!(system.read("file:empty"), Err(SecretError::NotText));
    assert_eq!(system.read("file:large"), Err(SecretError::NotText));
    assert!(matches!(system.read("file:missing"), Err(SecretError::Unreadable { .. })));
    assert_eq!(system.read("s3cret"), Err(SecretError::BadReference));
    let unset = "TWICE_TEST_VARIABLE_THAT_NOBODY_SETS";
    assert_eq!(
        system.read(&format!("env:{unset}")),
        Err(SecretError::NotSet { name: unset.to_owned() })
    );
}

#[test]
fn names_of_secrets_are_checked() {
    let undeclared: Name = name("token");
    let mut operation = operation();
    operation
        .request
        .headers
        .insert("authorization".to_owned(), Text(vec![Part::Secret(undeclared)]));
    let error = stored(operation, json!({ "amount": 1 })).unwrap_err();
    assert!(error.to_string().contains("the tool does not declare it"), "{error}");
}
