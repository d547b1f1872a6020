//! What is taken of a response: its headers and its body, whatever the body is.

use serde_json::json;
use twice_core::outcome::{Answer, Body, Matcher};
use twice_tests::fault::{Authority, Script, Step, reply};
use twice_workflow::model::Operation;

use super::support::{BODY_MAX, TRANSPORTS, exchange_with, operation, run};

fn answers(operation: &Operation, script: Script) -> Vec<Answer> {
    let ca = Authority::new();
    TRANSPORTS
        .iter()
        .map(|transport| {
            let tls = ca.server("localhost");
            let (exchange, seen) =
                run(exchange_with(*transport, &ca, tls, operation.clone(), script.clone()));
            assert_eq!(seen.requests.len(), 1);
            exchange.result.unwrap_or_else(|fault| panic!("{transport:?}: {fault:?}"))
        })
        .collect()
}

#[track_caller]
fn check(body: &[u8], expected: impl Fn(&Answer) -> bool) {
    let mut bytes =
        format!("HTTP/1.1 201 C\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    for answer in answers(&operation(), vec![Step::ReadRequest, Step::Write(bytes)]) {
        assert_eq!(answer.status, 201);
        assert!(expected(&answer), "{answer:?}");
    }
}

fn not_json(answer: &Answer) -> bool {
    matches!(&answer.body, Body::NotJson { .. })
        && answer.schema_error.is_none()
        && answer.body_hash.is_some()
}

#[test]
fn a_body_is_json_or_it_is_not() {
    check(b"{\"id\":\"re_1\"}", |answer| {
        answer.body == Body::Json(json!({ "id": "re_1" })) && answer.schema_error.is_none()
    });
    check(b"", |answer| answer.body == Body::Empty && answer.body_hash.is_none());
    check(b"<html>Bad gateway</html>", not_json);
    check(b"{\"id\":\"re_1\"", not_json);
    check(b"{\"id\":\"re_1\"} trailing", not_json);
    check(b"\xef\xbb\xbf{\"id\":\"re_1\"}", not_json);
    check(b"{\"id\":\"\xff\xfe\"}", not_json);
    check(b"{\"id\":NaN}", not_json);
    check(b"{\"id\":\"re_1\",\"id\":\"re_2\"}", not_json);
    check(b"{\"id\":9007199254740993}", not_json);
    check(b"{\"id\":\"\\ud800\"}", not_json);
    check(format!("{}1{}", "[".repeat(1_000), "]".repeat(1_000)).as_bytes(), not_json);
}

#[test]
fn the_hash_is_of_the_bytes_that_came() {
    let digest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    check(b"{}", |answer| answer.body_hash.as_deref() == Some(digest));
}

#[test]
fn a_breach_of_the_response_schema_is_told() {
    check(b"{\"ident\":\"re_1\"}", |answer| {
        answer.schema_error.as_ref().is_some_and(|error| error.contains("id"))
    });
}

#[test]
fn the_body_of_a_refusal_has_no_schema_to_breach() {
    let script = vec![Step::ReadRequest, reply(402, &[], "{\"error\":\"declined\"}")];
    for answer in answers(&operation(), script) {
        assert_eq!(answer.schema_error, None);
    }
}

#[track_caller]
fn check_too_large(script: Script) {
    for answer in answers(&operation(), script) {
        let Body::TooLarge { excerpt, cap } = &answer.body else { panic!("{answer:?}") };
        assert_eq!((answer.status, *cap), (201, BODY_MAX));
        assert!(excerpt.starts_with("{\"id\"") && excerpt.len() as u64 <= BODY_MAX);
        assert!(answer.body_hash.is_some());
    }
}

#[test]
fn a_body_over_the_cap_is_cut_off() {
    let large = format!("{{\"id\":\"{}\"}}", "x".repeat(100_000));
    check_too_large(vec![Step::ReadRequest, reply(201, &[], &large)]);
    let announced = "HTTP/1.1 201 C\r\ncontent-length: 99999999999\r\n\r\n{\"id\":\"re_1\"";
    check_too_large(vec![Step::ReadRequest, Step::Write(announced.into())]);
    check_too_large(vec![
        Step::ReadRequest,
        Step::Write(
            b"HTTP/1.1 201 C\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n".to_vec(),
        ),
        Step::WriteForever(b"8\r\naaaaaaaa\r\n".repeat(100)),
    ]);
}

#[test]
fn a_compressed_body_stays_as_it_is() {
    let script =
        vec![Step::ReadRequest, reply(201, &[("content-encoding", "gzip")], "{\"id\":\"re_1\"}")];
    for answer in answers(&operation(), script) {
        assert_eq!(answer.body, Body::Json(json!({ "id": "re_1" })));
    }
}

#[test]
fn only_headers_that_may_be_kept_are_kept() {
    let mut watching = operation();
    watching.declarations.refused =
        vec![Matcher { header: Some("X-Outcome".to_owned()), ..Matcher::default() }];
    let headers = [
        ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Retry-After", "7"),
        ("Idempotent-Replayed", "true"),
        ("X-Request-Id", "req_1"),
        ("X-Outcome", "no"),
        ("Set-Cookie", "session=1"),
        ("X-Internal", "hidden"),
    ];
    let script = vec![Step::ReadRequest, reply(201, &headers, "")];
    for answer in answers(&watching, script) {
        let names: Vec<_> = answer.headers.iter().map(|(name, _)| name.as_str()).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(
            sorted,
            [
                "content-length",
                "date",
                "idempotent-replayed",
                "retry-after",
                "x-outcome",
                "x-request-id"
            ]
        );
    }
}
