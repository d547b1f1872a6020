//! A secret goes to the provider and nowhere else (I10).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use twice::tool::Driver;
use twice_core::outcome::Exchange;
use twice_tests::fault::{FaultServer, Script, Step, reply};
use twice_workflow::model::{Operation, Part, Template, Text};

use super::support::{Bench, literal, name, operation, reference, run};

const CANARY: &str = "canary/7f3a+9d=c0ffee";

fn with_secret(lead: &str) -> Text {
    Text(vec![Part::Literal(lead.to_owned()), Part::Secret(name("token"))])
}

/// The secret in every place of a request.
fn leaky_operation() -> Operation {
    let mut operation = operation();
    operation.request.path = vec![literal("bot"), with_secret("t-")];
    operation.request.query = BTreeMap::from([("api_key".to_owned(), with_secret(""))]);
    operation.request.headers =
        BTreeMap::from([("authorization".to_owned(), with_secret("Bearer "))]);
    operation.request.body = Some(Template::Object(BTreeMap::from([(
        "credentials".to_owned(),
        Template::Text(with_secret("key:")),
    )])));
    operation
}

fn bench(url: &str) -> Bench {
    Bench::with_secrets(url, leaky_operation(), None, &[("TOKEN", CANARY)])
}

#[track_caller]
fn check_clean(what: &str, text: &str) {
    for needle in [CANARY, "canary", "7f3a", "c0ffee"] {
        assert!(!text.contains(needle), "{what} holds a secret: {text}");
    }
}

async fn exchange(script: Script) -> (Exchange, Vec<String>) {
    let server = FaultServer::start(None, vec![script]).await;
    let bench = bench(&server.url());
    let exchange = bench.send().await;
    (exchange, server.finish().await.requests)
}

#[test]
fn what_is_kept_of_a_request_names_its_secrets() {
    let bench = bench("https://api.example.com");
    let prepared = bench.driver.prepare(&bench.call()).unwrap();
    check_clean("stored", &prepared.stored.to_string());
    check_clean("the debug form", &format!("{prepared:?}"));
    assert_eq!(
        prepared.stored["url"],
        "https://api.example.com/bot/t-{secret:token}?api_key={secret:token}"
    );
    assert_eq!(prepared.stored["body"]["credentials"], "key:{secret:token}");
    assert_eq!(prepared.stored["headers"].get("authorization"), None);
}

#[test]
fn the_provider_gets_the_secret() {
    let (_, requests) = run(exchange(vec![Step::ReadRequest, reply(201, &[], "")]));
    let encoded = "canary%2F7f3a%2B9d%3Dc0ffee";
    for part in [
        format!("POST /bot/t-{encoded}?api_key={encoded} HTTP/1.1\r\n"),
        format!("authorization: Bearer {CANARY}\r\n"),
        format!("{{\"credentials\":\"key:{CANARY}\"}}"),
    ] {
        assert!(requests[0].contains(&part), "{part} in {}", requests[0]);
    }
}

#[test]
fn failures_do_not_tell_secrets() {
    run(async {
        for script in [
            vec![],
            vec![Step::Reset],
            vec![Step::ReadRequest, Step::Reset],
            vec![Step::ReadRequest, Step::Write(format!("{CANARY}\r\n\r\n").into_bytes())],
            vec![Step::ReadRequest, Step::AwaitClose],
        ] {
            let (exchange, _) = exchange(script).await;
            check_clean("the exchange", &format!("{exchange:?}"));
        }
        for url in ["http://name.invalid", "http://127.0.0.1:1", "https://127.0.0.1:1"] {
            check_clean(url, &format!("{:?}", bench(url).send().await));
        }
        let late = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        check_clean("late", &format!("{:?}", bench("http://127.0.0.1:1").send_before(late).await));
    });
}

/// Providers put what they were sent into their errors, in whatever form.
#[test]
fn an_answer_that_repeats_a_secret_is_redacted() {
    let encoded = "canary%2F7f3a%2B9d%3Dc0ffee";
    let long = format!("{}{CANARY}{}", "x".repeat(4_090), "y".repeat(10_000));
    // Read no further than to the middle of the secret.
    let cut = format!("{}{CANARY}{CANARY}{CANARY}", "x".repeat(4_085));
    let bodies = [
        cut,
        format!("{{\"error\":\"bad key {CANARY}\",\"{CANARY}\":[\"{encoded}\"]}}"),
        format!("<html>no such resource: /bot/t-{encoded}?api_key={CANARY}</html>"),
        long,
    ];
    let headers =
        [("location", format!("/login?key={encoded}")), ("x-request-id", CANARY.to_owned())];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for body in bodies {
        for status in [201, 401, 500] {
            let script = vec![Step::ReadRequest, reply(status, &headers, &body)];
            let (exchange, _) = run(exchange(script));
            assert!(exchange.result.is_ok(), "{exchange:?}");
            check_clean("the exchange", &format!("{exchange:?}"));
        }
    }
}

/// What a guest found out, or was given by mistake, is not kept because it came through its args.
#[test]
fn args_that_hold_a_secret_are_redacted_where_they_are_kept() {
    let mut operation = leaky_operation();
    operation.request.headers.insert("x-note".to_owned(), reference("/args/note"));
    let secrets = [("TOKEN", CANARY)];
    let mut bench = Bench::with_secrets("https://api.example.com", operation, None, &secrets);
    bench.args["note"] = format!("key is {CANARY}").into();
    let prepared = bench.driver.prepare(&bench.call()).unwrap();
    check_clean("stored", &prepared.stored.to_string());
    check_clean("the debug form", &format!("{prepared:?}"));
}

#[test]
fn the_redactor_learns_a_secret_before_it_is_used() {
    let bench = bench("https://api.example.com");
    assert_eq!(bench.redactor.read().unwrap().text(CANARY), CANARY);
    bench.driver.prepare(&bench.call()).unwrap();
    check_clean("the redactor's text", &bench.redactor.read().unwrap().text(CANARY));
}

#[test]
fn a_secret_too_short_to_be_found_is_not_used() {
    let secrets = [("TOKEN", "ab")];
    let bench = Bench::with_secrets("https://api.example.com", leaky_operation(), None, &secrets);
    let error = bench.driver.prepare(&bench.call()).unwrap_err().to_string();
    assert!(
        error.contains("secret `token` of tool payments (env:TOKEN): a secret of 2 char"),
        "{error}"
    );
}

#[test]
fn an_unreadable_secret_is_named_by_its_reference() {
    let mut bench = bench("https://api.example.com");
    bench.http().secrets.insert(name("token"), "env:NOT_SET".to_owned());
    let error = bench.driver.prepare(&bench.call()).unwrap_err().to_string();
    assert!(error.contains("secret `token` of tool payments (env:NOT_SET)"), "{error}");
    // Somebody wrote the value itself where its reference belongs.
    bench.http().secrets.insert(name("token"), CANARY.to_owned());
    let error = bench.driver.prepare(&bench.call()).unwrap_err();
    check_clean("the error", &format!("{error} {error:?}"));
}
