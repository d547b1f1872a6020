//! Every row of effect-semantics §2.1 and §2.2, and what declarations make of them.

use serde_json::{Value, json};
use twice_core::outcome::{
    Answer, Body, Declarations, Echo, Exchange, Fault, FaultKind, Matcher, Outcome, Sent, Verdict,
    classify,
};

use crate::fixtures::args;

use Verdict::{
    AcceptedPending as AP, Indeterminate as IN, NotProcessed as NP, NotSent as NS, Rejected as RJ,
    Succeeded as OK,
};

const FAULTS: [FaultKind; 17] = [
    FaultKind::Build,
    FaultKind::Secret,
    FaultKind::Dns,
    FaultKind::Connect,
    FaultKind::ConnectTimeout,
    FaultKind::Tls,
    FaultKind::LeaseTooShort,
    FaultKind::Timeout,
    FaultKind::ClosedBeforeHead,
    FaultKind::Write,
    FaultKind::RefusedStream,
    FaultKind::StreamReset,
    FaultKind::Parse,
    FaultKind::BodyTruncated,
    FaultKind::BodyTimeout,
    FaultKind::Abandoned,
    FaultKind::Other,
];

fn fault(kind: FaultKind, status: Option<u16>, sent: Sent) -> Exchange {
    Exchange { sent, result: Err(Fault { kind, status, message: "broke".to_owned() }) }
}

fn answer(status: u16, body: Body) -> Exchange {
    let answer = Answer {
        status,
        headers: vec![],
        body,
        body_hash: Some("sha256:ab".to_owned()),
        schema_error: None,
    };
    Exchange { sent: Sent::Maybe, result: Ok(answer) }
}

fn with_header(mut exchange: Exchange, name: &str, value: &str) -> Exchange {
    if let Ok(answer) = &mut exchange.result {
        answer.headers.push((name.to_owned(), value.to_owned()));
    }
    exchange
}

fn with_schema_error(mut exchange: Exchange) -> Exchange {
    if let Ok(answer) = &mut exchange.result {
        answer.schema_error = Some("`/id` is missing".to_owned());
    }
    exchange
}

fn refund() -> Body {
    Body::Json(json!({ "id": "re_1", "amount": 8200, "currency": "eur" }))
}

fn not_json() -> Body {
    Body::NotJson { excerpt: "<html>".to_owned(), problem: "expected a value".to_owned() }
}

fn too_large() -> Body {
    Body::TooLarge { excerpt: "{\"id\":".to_owned(), cap: 1024 }
}

fn bare() -> Declarations {
    Declarations::default()
}

fn with_id() -> Declarations {
    Declarations { external_id: Some("/id".to_owned()), ..bare() }
}

fn with_echo() -> Declarations {
    let echo = Echo { result: "/amount".to_owned(), args: "/amount_cents".to_owned() };
    Declarations { echo: vec![echo], ..with_id() }
}

fn status(status: u16) -> Matcher {
    Matcher { status: Some(status), ..Matcher::default() }
}

fn code(status: u16, code: &str) -> Matcher {
    Matcher {
        status: Some(status),
        pointer: Some("/error/code".to_owned()),
        equals: Some(json!(code)),
        header: None,
    }
}

fn error(code: &str) -> Body {
    Body::Json(json!({ "error": { "code": code } }))
}

fn judge(exchange: &Exchange, declarations: &Declarations) -> Outcome {
    classify(exchange, declarations, &args(), true)
}

#[track_caller]
fn check(exchange: &Exchange, declarations: &Declarations, verdict: Verdict, rule: &str) {
    let outcome = judge(exchange, declarations);
    assert_eq!(
        (outcome.verdict, outcome.rule.0.as_str()),
        (verdict, rule),
        "{exchange:?}: {}",
        outcome.message
    );
}

#[test]
fn faults_before_a_head() {
    let table = [
        (FaultKind::Build, NS, "transport.build"),
        (FaultKind::Secret, NS, "transport.secret"),
        (FaultKind::Dns, NS, "transport.dns"),
        (FaultKind::Connect, NS, "transport.connect"),
        (FaultKind::ConnectTimeout, NS, "transport.connect_timeout"),
        (FaultKind::Tls, NS, "transport.tls"),
        (FaultKind::LeaseTooShort, NS, "transport.lease_too_short"),
        (FaultKind::Timeout, IN, "transport.timeout"),
        (FaultKind::ClosedBeforeHead, IN, "transport.closed_before_head"),
        (FaultKind::Write, IN, "transport.write"),
        (FaultKind::RefusedStream, NP, "transport.refused_stream"),
        (FaultKind::StreamReset, IN, "transport.stream_reset"),
        (FaultKind::Parse, IN, "transport.parse"),
        (FaultKind::BodyTruncated, IN, "transport.body_truncated"),
        (FaultKind::BodyTimeout, IN, "transport.body_timeout"),
        (FaultKind::Abandoned, IN, "transport.abandoned"),
        (FaultKind::Other, IN, "transport.other"),
    ];
    assert_eq!(table.map(|(kind, ..)| kind), FAULTS);
    for (kind, verdict, rule) in table {
        check(&fault(kind, None, Sent::Maybe), &with_echo(), verdict, rule);
        // The witness comes before all else: what was never asked for cannot have left.
        check(&fault(kind, None, Sent::Nothing), &with_echo(), NS, rule);
    }
}

#[test]
fn faults_after_a_head() {
    for kind in [FaultKind::BodyTruncated, FaultKind::BodyTimeout, FaultKind::Other] {
        let rule = format!("transport.{}", kind.as_str());
        for sent in [Sent::Maybe, Sent::Nothing] {
            for head in [200, 201, 202, 204, 303, 307, 400, 418, 500, 501, 503] {
                check(&fault(kind, Some(head), sent), &bare(), IN, &rule);
            }
            for head in [401, 402, 403, 404, 405, 410, 413, 415, 422] {
                check(&fault(kind, Some(head), sent), &bare(), RJ, &format!("http.{head}"));
            }
            check(&fault(kind, Some(423), sent), &bare(), NP, "http.423");
            // Where a pattern looks into the answer, the status alone decides nothing.
            let by_code = Declarations { in_flight: vec![code(422, "704")], ..bare() };
            check(&fault(kind, Some(422), sent), &by_code, IN, &rule);
            let anywhere = Matcher { header: Some("x-busy".to_owned()), ..Matcher::default() };
            let by_header = Declarations { in_flight: vec![anywhere], ..bare() };
            check(&fault(kind, Some(404), sent), &by_header, IN, &rule);
            let limiter = Declarations { not_processed: vec![status(429)], ..bare() };
            check(&fault(kind, Some(429), sent), &limiter, NP, "declared.not_processed");
        }
    }
    let outcome = judge(&fault(FaultKind::BodyTruncated, Some(200), Sent::Maybe), &bare());
    assert!(outcome.message.contains("likely happened"), "{}", outcome.message);
    assert!(!outcome.answered);
    assert!(judge(&fault(FaultKind::BodyTruncated, Some(500), Sent::Maybe), &bare()).answered);
}

/// Statuses with a JSON body and nothing declared about them.
#[test]
fn statuses_by_the_general_table() {
    let table = [
        (101, IN),
        (200, OK),
        (201, OK),
        (202, AP),
        (203, IN),
        (204, IN),
        (205, IN),
        (206, IN),
        (207, IN),
        (226, IN),
        (300, IN),
        (301, IN),
        (302, IN),
        (303, IN),
        (304, IN),
        (307, IN),
        (308, IN),
        (400, IN),
        (401, RJ),
        (402, RJ),
        (403, RJ),
        (404, RJ),
        (405, RJ),
        (406, RJ),
        (407, IN),
        (408, IN),
        (409, IN),
        (410, RJ),
        (411, RJ),
        (412, RJ),
        (413, RJ),
        (414, RJ),
        (415, RJ),
        (416, IN),
        (418, IN),
        (421, NP),
        (422, RJ),
        (423, NP),
        (424, NP),
        (425, NP),
        (426, IN),
        (428, RJ),
        (429, IN),
        (431, RJ),
        (451, IN),
        (499, IN),
        (500, IN),
        (501, RJ),
        (502, IN),
        (503, IN),
        (504, IN),
        (505, IN),
        (507, IN),
        (508, IN),
        (511, IN),
        (520, IN),
        (521, IN),
        (522, IN),
        (523, IN),
        (524, IN),
        (525, IN),
        (526, IN),
        (599, IN),
        (600, IN),
        (999, IN),
    ];
    for (status, verdict) in table {
        check(&answer(status, refund()), &with_echo(), verdict, &format!("http.{status}"));
    }
}

#[test]
fn every_status_there_can_be_has_a_verdict() {
    for status in 0..=u16::MAX {
        let outcome = judge(&answer(status, Body::Empty), &bare());
        assert_ne!(outcome.verdict, NS, "an answer came, so something was sent");
        assert_ne!(outcome.verdict, OK, "an empty body proves nothing: {status}");
    }
}

#[test]
fn answers_that_may_be_stored_under_the_key_are_marked() {
    for status in [400, 418, 500, 505, 507, 511, 599] {
        assert!(judge(&answer(status, Body::Empty), &bare()).answered, "{status}");
    }
    for status in [200, 202, 302, 401, 408, 409, 429, 502, 503, 504, 520, 524] {
        assert!(!judge(&answer(status, Body::Empty), &bare()).answered, "{status}");
    }
    assert!(judge(&answer(101, Body::Empty), &bare()).contract_breach);
}

#[test]
fn a_failed_precondition_refuses_the_first_attempt_only() {
    let exchange = answer(412, Body::Empty);
    assert_eq!(classify(&exchange, &bare(), &args(), true).verdict, RJ);
    assert_eq!(classify(&exchange, &bare(), &args(), false).verdict, IN);
}

#[test]
fn a_success_is_one_only_if_its_body_bears_it_out() {
    for status in [200, 201] {
        let rule = format!("http.{status}");
        check(&answer(status, refund()), &bare(), OK, &rule);
        check(&answer(status, refund()), &with_echo(), OK, &rule);
        check(&answer(status, not_json()), &bare(), IN, "http.2xx.malformed");
        check(&answer(status, Body::Empty), &bare(), IN, "http.2xx.empty");
        let no_id = answer(status, Body::Json(json!({ "amount": 8200 })));
        check(&no_id, &with_id(), IN, "http.2xx.no_external_id");
        for id in [json!(null), json!(""), json!(0.5), json!(true), json!(["re_1"])] {
            let exchange = answer(status, Body::Json(json!({ "id": id })));
            check(&exchange, &with_id(), IN, "http.2xx.no_external_id");
        }
        let broken = with_schema_error(answer(status, refund()));
        check(&broken, &with_id(), IN, "http.2xx.schema");
        let outcome = judge(&broken, &with_id());
        assert!(outcome.contract_breach);
        assert_eq!(outcome.external_id.as_deref(), Some("re_1"), "for the lookup");
        assert!(outcome.message.contains("likely happened"), "{}", outcome.message);
    }
}

#[test]
fn a_body_over_the_limit_proves_nothing_unless_nothing_was_expected_of_it() {
    let exchange = answer(201, too_large());
    check(&exchange, &bare(), OK, "http.201");
    let outcome = judge(&exchange, &bare());
    assert_eq!((outcome.truncated, outcome.result), (true, json!("{\"id\":")));
    check(&exchange, &with_id(), IN, "http.2xx.too_large");
    let echo = Declarations { external_id: None, ..with_echo() };
    check(&exchange, &echo, IN, "http.2xx.too_large");
    check(&with_schema_error(answer(201, too_large())), &bare(), IN, "http.2xx.schema");
    // GraphQL tells its errors in a 200: without the whole body nobody knows.
    let errors = Matcher { pointer: Some("/errors/0".to_owned()), ..Matcher::default() };
    let graphql = Declarations { refused: vec![errors], ..bare() };
    check(&exchange, &graphql, IN, "http.2xx.too_large");
}

#[test]
fn success_without_a_body_must_be_declared() {
    let declared = Declarations { no_body: true, ..bare() };
    for status in [200, 201, 204, 205] {
        check(&answer(status, Body::Empty), &declared, OK, &format!("http.{status}"));
    }
    check(&answer(200, not_json()), &declared, OK, "http.200");
    check(&answer(204, Body::Empty), &bare(), IN, "http.204");
}

#[test]
fn the_result_is_kept_as_far_as_it_may_be() {
    let outcome = judge(&answer(200, refund()), &with_id());
    assert_eq!(outcome.external_id.as_deref(), Some("re_1"));
    assert_eq!(outcome.result, json!({ "id": "re_1", "amount": 8200, "currency": "eur" }));
    assert_eq!(outcome.result_hash.as_deref(), Some("sha256:ab"));
    assert!(!outcome.truncated);
    let number = Body::Json(json!({ "id": 9_007_199_254_740_991_i64 }));
    let outcome = judge(&answer(200, number), &with_id());
    assert_eq!(outcome.external_id.as_deref(), Some("9007199254740991"));
    let outcome = judge(&answer(500, not_json()), &bare());
    assert_eq!((outcome.result, outcome.truncated), (json!("<html>"), false));
    let long = Body::NotJson { excerpt: "x".repeat(4096), problem: "no".to_owned() };
    assert!(judge(&answer(500, long), &bare()).truncated);
}

#[test]
fn a_result_that_differs_from_what_was_asked_for_still_happened() {
    #[track_caller]
    fn check_amount(amount: &Value, discrepancy: Option<&str>) {
        let body = Body::Json(json!({ "id": "re_1", "amount": amount }));
        let outcome = judge(&answer(200, body), &with_echo());
        assert_eq!((outcome.verdict, outcome.discrepancy.as_deref()), (OK, discrepancy));
    }
    check_amount(&json!(8200), None);
    check_amount(&json!(8200.0), None);
    check_amount(&json!(82000), Some("`/amount` is 82000 where 8200 was asked for"));
    check_amount(&json!(8200.5), Some("`/amount` is 8200.5 where 8200 was asked for"));
    check_amount(&json!("8200"), Some("`/amount` is \"8200\" where 8200 was asked for"));
    check_amount(&json!(null), Some("`/amount` is null where 8200 was asked for"));

    let body = || Body::Json(json!({ "id": "re_1" }));
    let outcome = judge(&answer(200, body()), &with_echo());
    assert_eq!(
        (outcome.verdict, outcome.discrepancy.as_deref()),
        (OK, Some("`/amount` is nothing where 8200 was asked for"))
    );
    // What was not asked for cannot differ.
    let outcome = classify(&answer(200, body()), &with_echo(), &json!({}), true);
    assert_eq!((outcome.verdict, outcome.discrepancy), (OK, None));
    // Beyond 2^53 two integers stay two.
    let large = json!({ "id": "x", "amount": 9_007_199_254_740_993_i64 });
    let outcome = classify(
        &answer(200, Body::Json(large)),
        &with_echo(),
        &json!({ "amount_cents": 9_007_199_254_740_992_i64 }),
        true,
    );
    assert!(outcome.discrepancy.is_some());
}

#[test]
fn the_guest_sees_what_is_exposed() {
    #[track_caller]
    fn check(expose: &[&str], expected: &Value) {
        let expose = expose.iter().map(|&pointer| pointer.to_owned()).collect();
        let declarations = Declarations { expose, ..bare() };
        let body = json!({ "id": "re_1", "data": { "id": "d", "a/b": [1, 2] }, "secret": "s" });
        assert_eq!(&judge(&answer(200, Body::Json(body)), &declarations).exposed, expected);
    }
    check(&[], &json!({}));
    check(&["/id", "/missing"], &json!({ "id": "re_1" }));
    check(&["/data/a~1b", "/data/a~1b/1"], &json!({ "a/b": [1, 2], "1": 2 }));
    check(&["/id", "/data/id"], &json!({ "id": "d" }));
    check(&[""], &json!({ "id": "re_1", "data": { "id": "d", "a/b": [1, 2] }, "secret": "s" }));
    assert_eq!(judge(&answer(402, refund()), &with_id()).exposed, json!({}));
}

#[test]
fn declarations_refine_the_table_in_their_order() {
    let all = |matcher: &Matcher| Declarations {
        mismatch: vec![matcher.clone()],
        in_flight: vec![matcher.clone()],
        duplicate: vec![matcher.clone()],
        refused: vec![matcher.clone()],
        not_processed: vec![matcher.clone()],
        pending: vec![matcher.clone()],
        succeeded: vec![matcher.clone()],
        duplicate_id: Some("/id".to_owned()),
        ..bare()
    };
    let mut declarations = all(&status(409));
    let exchange = answer(409, refund());
    check(&exchange, &declarations, IN, "declared.mismatch");
    assert!(judge(&exchange, &declarations).quarantined);
    declarations.mismatch.clear();
    check(&exchange, &declarations, IN, "declared.in_flight");
    assert!(!judge(&exchange, &declarations).quarantined);
    declarations.in_flight.clear();
    check(&exchange, &declarations, OK, "declared.duplicate");
    declarations.duplicate.clear();
    check(&exchange, &declarations, RJ, "declared.refused");
    declarations.refused.clear();
    check(&exchange, &declarations, NP, "declared.not_processed");
    declarations.not_processed.clear();
    check(&exchange, &declarations, AP, "declared.pending");
    declarations.pending.clear();
    check(&exchange, &declarations, OK, "declared.succeeded");
    declarations.succeeded.clear();
    check(&exchange, &declarations, IN, "http.409");
}

#[test]
fn one_status_with_several_meanings_is_told_apart_by_its_body() {
    let declarations = Declarations {
        mismatch: vec![code(422, "key_reused")],
        in_flight: vec![code(422, "704"), code(409, "in_use")],
        duplicate: vec![code(409, "exists")],
        duplicate_id: Some("/error/id".to_owned()),
        refused: vec![code(400, "amount_too_large"), code(409, "already_refunded")],
        not_processed: vec![status(429), status(503), status(521), status(307)],
        ..bare()
    };
    let table = [
        (422, "key_reused", IN, "declared.mismatch"),
        (422, "704", IN, "declared.in_flight"),
        (422, "bad_currency", RJ, "http.422"),
        (409, "in_use", IN, "declared.in_flight"),
        (409, "exists", IN, "declared.duplicate"),
        (409, "already_refunded", RJ, "declared.refused"),
        (409, "else", IN, "http.409"),
        (400, "amount_too_large", RJ, "declared.refused"),
        (400, "else", IN, "http.400"),
        (429, "slow", NP, "declared.not_processed"),
        (503, "busy", NP, "declared.not_processed"),
        (521, "down", NP, "declared.not_processed"),
        (307, "moved", NP, "declared.not_processed"),
        (522, "down", IN, "http.522"),
    ];
    for (status, word, verdict, rule) in table {
        check(&answer(status, error(word)), &declarations, verdict, rule);
    }
    let code_of = |status, word| judge(&answer(status, error(word)), &declarations).code;
    assert_eq!(code_of(400, "amount_too_large"), "amount_too_large");
    assert_eq!(code_of(422, "bad_currency"), "http_422");
}

#[test]
fn a_duplicate_settles_only_what_it_shows() {
    let declarations = Declarations {
        duplicate: vec![status(409)],
        duplicate_id: Some("/resource_id".to_owned()),
        ..with_echo()
    };
    let named = answer(409, Body::Json(json!({ "resource_id": "re_9" })));
    check(&named, &declarations, IN, "declared.duplicate");
    let outcome = judge(&named, &declarations);
    assert_eq!(outcome.external_id.as_deref(), Some("re_9"), "the lookup compares it");

    let no_echo = Declarations { echo: vec![], ..declarations.clone() };
    check(&named, &no_echo, OK, "declared.duplicate");
    assert!(judge(&named, &no_echo).replayed);

    let shown = answer(409, Body::Json(json!({ "resource_id": "re_9", "amount": 1 })));
    let outcome = judge(&shown, &declarations);
    assert_eq!(outcome.verdict, OK);
    assert_eq!(outcome.discrepancy.as_deref(), Some("`/amount` is 1 where 8200 was asked for"));
    check(&answer(409, Body::Json(json!({}))), &no_echo, IN, "declared.duplicate");
}

#[test]
fn a_declared_success_is_judged_like_any_other() {
    let gone = Declarations { succeeded: vec![status(404)], ..with_id() };
    check(&answer(404, error("gone")), &gone, OK, "declared.succeeded");
    let accepted = Declarations { succeeded: vec![status(202)], ..with_id() };
    check(&answer(202, refund()), &accepted, OK, "declared.succeeded");
    check(&answer(202, Body::Json(json!({}))), &accepted, IN, "http.2xx.no_external_id");
    let processing = Matcher {
        status: Some(201),
        pointer: Some("/status".to_owned()),
        equals: Some(json!("processing")),
        header: None,
    };
    let pending = Declarations { pending: vec![processing], ..with_id() };
    let body = Body::Json(json!({ "id": "re_1", "status": "processing" }));
    check(&answer(201, body.clone()), &pending, AP, "declared.pending");
    assert_eq!(judge(&answer(201, body), &pending).external_id.as_deref(), Some("re_1"));
}

#[test]
fn patterns_hold_in_every_part_they_name() {
    #[track_caller]
    fn check(matcher: Matcher, exchange: &Exchange, fits: bool) {
        let declarations = Declarations { replayed: vec![matcher], ..bare() };
        assert_eq!(judge(exchange, &declarations).replayed, fits);
    }
    let exchange = with_header(
        answer(200, Body::Json(json!({ "error": null, "state": "done", "n": 1.0 }))),
        "idempotent-replayed",
        "true",
    );
    let header = |equals: Option<Value>| Matcher {
        header: Some("idempotent-replayed".to_owned()),
        equals,
        ..Matcher::default()
    };
    let pointer = |pointer: &str, equals: Option<Value>| Matcher {
        pointer: Some(pointer.to_owned()),
        equals,
        ..Matcher::default()
    };
    check(Matcher::default(), &exchange, false);
    check(status(200), &exchange, true);
    check(status(201), &exchange, false);
    check(header(None), &exchange, true);
    check(header(Some(json!("true"))), &exchange, true);
    check(header(Some(json!("false"))), &exchange, false);
    check(header(Some(json!(true))), &exchange, false);
    check(Matcher { status: Some(201), ..header(None) }, &exchange, false);
    check(pointer("/state", None), &exchange, true);
    check(pointer("/state", Some(json!("done"))), &exchange, true);
    check(pointer("/state", Some(json!("open"))), &exchange, false);
    check(pointer("/n", Some(json!(1))), &exchange, true);
    check(pointer("/none", None), &exchange, false);
    check(pointer("/error", None), &exchange, false);
    check(pointer("/error", Some(json!(null))), &exchange, true);
    let both = |equals| Matcher { pointer: Some("/state".to_owned()), ..header(Some(equals)) };
    check(both(json!("done")), &exchange, true);
    check(both(json!("true")), &exchange, false);
    check(pointer("/state", None), &answer(200, not_json()), false);
}

#[test]
fn retry_after_is_read_without_a_clock() {
    #[track_caller]
    fn check(retry_after: &str, date: Option<&str>, expected: Option<u64>) {
        let mut exchange = with_header(answer(503, Body::Empty), "retry-after", retry_after);
        if let Some(date) = date {
            exchange = with_header(exchange, "date", date);
        }
        assert_eq!(judge(&exchange, &bare()).retry_after_ms, expected, "{retry_after}");
    }
    let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
    check("0", None, Some(0));
    check(" 120 ", None, Some(120_000));
    check("99999999999999999999999", None, Some(u64::MAX));
    check("Sun, 06 Nov 1994 08:49:47 GMT", date, Some(10_000));
    check("Sunday, 06-Nov-94 08:50:37 GMT", date, Some(60_000));
    check("Sun Nov  6 09:49:37 1994", date, Some(3_600_000));
    check("Tue, 29 Feb 2000 00:00:00 GMT", Some("Mon, 28 Feb 2000 00:00:00 GMT"), Some(86_400_000));
    check(
        "Wed, 01 Mar 2000 00:00:00 GMT",
        Some("Mon, 28 Feb 2000 00:00:00 GMT"),
        Some(172_800_000),
    );
    check("Fri, 01 Jan 2100 00:00:00 GMT", Some("Thu, 31 Dec 2099 23:59:59 GMT"), Some(1_000));
    check("Sun, 06 Nov 1994 08:49:27 GMT", date, Some(0));
    check("Sun, 06 Nov 1994 08:49:47 GMT", None, None);
    for nonsense in [
        "",
        "soon",
        "-1",
        "1.5",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 CET",
    ] {
        check(nonsense, date, None);
    }
}
