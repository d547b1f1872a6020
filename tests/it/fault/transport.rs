//! One row per line of the table of transport failures.

use std::time::{Duration, Instant};

use twice::tool::Gate;
use twice_core::outcome::{Exchange, FaultKind, Sent, Verdict};
use twice_tests::fault::{
    Authority, FaultServer, Script, Step, TlsServer, Unanswered, closed_port, reply,
};

use super::support::{
    Bench, End, Row, TRANSPORTS, Transport, check, check_exchange, exchange_with, key_contract,
    operation, run,
};

fn head(text: &str) -> Step {
    Step::Write(text.as_bytes().to_vec())
}

fn rows() -> Vec<Row> {
    use FaultKind::{BodyTruncated, ClosedBeforeHead, Parse};
    use Step::{ReadBytes, ReadRequest, Reset};
    let unsure = |name, script: Script, end| Row::new(name, script, end, Verdict::Indeterminate);
    let created = "HTTP/1.1 201 Created\r\n";
    vec![
        unsure("reset amid the request", vec![ReadBytes(30), Reset], End::Fault(ClosedBeforeHead)),
        unsure("closed amid the request", vec![ReadBytes(30)], End::Fault(ClosedBeforeHead)),
        unsure("closed before the head", vec![ReadRequest], End::Fault(ClosedBeforeHead)),
        unsure("reset before the head", vec![ReadRequest, Reset], End::Fault(ClosedBeforeHead)),
        unsure(
            "closed amid the head",
            vec![ReadRequest, head("HTTP/1.1 201 Created\r\ncontent-")],
            End::Fault(ClosedBeforeHead),
        ),
        unsure(
            "reset amid the head",
            vec![ReadRequest, head("HTTP/1.1 20"), Reset],
            End::Fault(ClosedBeforeHead),
        ),
        unsure("garbage", vec![ReadRequest, head("\u{1}\u{2}nonsense\r\n\r\n")], End::Fault(Parse)),
        unsure(
            "a head without end",
            vec![ReadRequest, head(created), Step::WriteForever(b"a: b\r\n".repeat(200))],
            End::Fault(Parse),
        ),
        unsure(
            "two lengths",
            vec![
                ReadRequest,
                head("HTTP/1.1 201 C\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}"),
            ],
            End::Fault(Parse),
        ),
        unsure(
            "only an interim answer",
            vec![ReadRequest, head("HTTP/1.1 100 Continue\r\n\r\n")],
            End::Fault(ClosedBeforeHead),
        ),
        unsure(
            "truncated body",
            vec![ReadRequest, head("HTTP/1.1 201 C\r\ncontent-length: 99\r\n\r\n{\"id\":")],
            End::BodyFault(BodyTruncated, 201),
        ),
        unsure(
            "reset amid the body",
            vec![ReadRequest, head("HTTP/1.1 201 C\r\ncontent-length: 99\r\n\r\n{"), Reset],
            End::BodyFault(BodyTruncated, 201),
        ),
        unsure(
            "truncated chunk",
            vec![ReadRequest, head("HTTP/1.1 201 C\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{}")],
            End::BodyFault(BodyTruncated, 201),
        ),
        unsure(
            "bad chunk",
            vec![
                ReadRequest,
                head("HTTP/1.1 201 C\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
            ],
            End::BodyFault(Parse, 201),
        ),
        Row::new(
            "truncated body of a refusal that needs none",
            vec![ReadRequest, head("HTTP/1.1 402 No\r\ncontent-length: 99\r\n\r\n{")],
            End::BodyFault(BodyTruncated, 402),
            Verdict::Rejected,
        )
        .by("http.402"),
    ]
}

fn slow_rows() -> Vec<Row> {
    use FaultKind::{BodyTimeout, Timeout};
    use Step::{AwaitClose, ReadRequest};
    let unsure = |name, script: Script, end| Row::new(name, script, end, Verdict::Indeterminate);
    let created = "HTTP/1.1 201 Created\r\n";
    vec![
        unsure("no head in time", vec![ReadRequest, AwaitClose], End::Fault(Timeout)),
        unsure(
            "a head that does not end in time",
            vec![ReadRequest, head(created), AwaitClose],
            End::Fault(Timeout),
        ),
        unsure(
            "a body that does not end in time",
            vec![ReadRequest, head("HTTP/1.1 201 C\r\ncontent-length: 99\r\n\r\n{"), AwaitClose],
            End::BodyFault(BodyTimeout, 201),
        ),
    ]
}

#[test]
fn every_way_of_losing_an_answer_is_indeterminate() {
    for row in rows() {
        check(&row, &operation());
    }
}

#[test]
fn an_answer_that_does_not_come_in_time_is_indeterminate() {
    for row in slow_rows() {
        check(&row, &operation());
    }
}

/// Where a connection is lost before anything was read, the client may or may not have started to write. Whatever it
/// says, it must not have tried again.
#[test]
fn a_connection_lost_at_once_is_not_tried_again() {
    let ca = Authority::new();
    for transport in TRANSPORTS {
        for script in [vec![], vec![Step::Reset]] {
            let (exchange, seen) =
                run(exchange_with(transport, &ca, ca.server("localhost"), operation(), script));
            assert_eq!(End::of(&exchange), End::Fault(FaultKind::ClosedBeforeHead), "{exchange:?}");
            assert_eq!(seen.connections, 1, "{transport:?}");
        }
    }
}

#[test]
fn a_large_request_cut_off_is_indeterminate() {
    let ca = Authority::new();
    for transport in TRANSPORTS {
        let exchange = run(async {
            let tls = (transport == Transport::Tls).then(|| ca.server("localhost"));
            let server =
                FaultServer::start(tls, vec![vec![Step::ReadBytes(1_000), Step::Reset]]).await;
            let mut bench = Bench::new(&server.url(), operation(), Some(&ca));
            bench.args["amount"] = "9".repeat(8 << 20).into();
            bench.send().await
        });
        assert_eq!(exchange.sent, Sent::Maybe, "{exchange:?}");
        assert_eq!(End::of(&exchange), End::Fault(FaultKind::ClosedBeforeHead), "{exchange:?}");
    }
}

#[track_caller]
fn check_not_sent(name: &'static str, url: &str, kind: FaultKind) {
    let row = Row::new(name, Vec::new(), End::Fault(kind), Verdict::NotSent);
    check_exchange(&row, url, &run(Bench::new(url, operation(), None).send()));
}

#[test]
fn without_a_connection_nothing_was_sent() {
    for scheme in ["http", "https"] {
        let url = run(closed_port(scheme));
        check_not_sent("refused", &url, FaultKind::Connect);
        let url = format!("{scheme}://name.invalid");
        check_not_sent("a name that does not resolve", &url, FaultKind::Dns);
    }
}

#[test]
fn a_connection_that_does_not_come_about_in_time_sent_nothing() {
    let row = Row::new(
        "connect timeout",
        vec![Step::SkipTls, Step::AwaitClose],
        End::Fault(FaultKind::ConnectTimeout),
        Verdict::NotSent,
    );
    for scheme in ["http", "https"] {
        let exchange = run(async {
            let unanswered = Unanswered::start().await;
            Bench::new(&unanswered.url(scheme), operation(), None).send().await
        });
        check_exchange(&row, scheme, &exchange);
    }
    let ca = Authority::new();
    let tls = ca.server("localhost");
    let (exchange, _) =
        run(exchange_with(Transport::Tls, &ca, tls, operation(), row.script.clone()));
    check_exchange(&row, "a handshake without answer", &exchange);
}

/// The client's own total timeout says the same whether it fires while connecting or after everything was sent; the
/// witness tells them apart.
#[test]
fn a_total_timeout_while_connecting_sent_nothing() {
    let row = Row::new(
        "total timeout while connecting",
        vec![],
        End::Fault(FaultKind::ConnectTimeout),
        Verdict::NotSent,
    );
    let mut hasty = operation();
    hasty.contract.timeout_ms = 200;
    hasty.connect_timeout_ms = 60_000;
    let mut bare = hasty.clone();
    bare.request.body = None;
    run(async {
        let unanswered = Unanswered::start().await;
        for (what, operation) in [("with a body", hasty), ("without a body", bare)] {
            let bench = Bench::new(&unanswered.url("http"), operation, None);
            check_exchange(&row, what, &bench.send().await);
        }
    });
}

#[track_caller]
fn check_handshake(name: &'static str, tls: TlsServer, ca: &Authority, script: Script) {
    let row = Row::new(name, script.clone(), End::Fault(FaultKind::Tls), Verdict::NotSent);
    let (exchange, seen) = run(exchange_with(Transport::Tls, ca, tls, operation(), script));
    check_exchange(&row, "Tls", &exchange);
    assert_eq!((seen.connections, seen.requests.len()), (1, 0), "{name}");
}

#[test]
fn a_handshake_that_fails_sent_nothing() {
    let ca = Authority::new();
    let good = || ca.server("localhost");
    check_handshake("an unknown authority", Authority::new().server("localhost"), &ca, vec![]);
    check_handshake("another host's certificate", ca.server("example.com"), &ca, vec![]);
    let skip = Step::SkipTls;
    let hello = Step::ReadBytes(50);
    check_handshake("closed in the handshake", good(), &ca, vec![skip.clone(), hello.clone()]);
    check_handshake(
        "reset in the handshake",
        good(),
        &ca,
        vec![skip.clone(), hello.clone(), Step::Reset],
    );
    check_handshake("no TLS at all", good(), &ca, vec![skip, hello, reply(400, &[], "no")]);
}

/// Under TLS 1.3 the server learns of the missing client certificate after the client was done with the handshake and
/// wrote its request.
#[test]
fn a_refused_client_certificate_is_indeterminate() {
    let ca = Authority::new();
    let row = Row::new(
        "client certificate refused",
        vec![],
        End::Fault(FaultKind::ClosedBeforeHead),
        Verdict::Indeterminate,
    );
    let tls = ca.server_for_known_clients("localhost");
    let (exchange, seen) =
        run(exchange_with(Transport::Tls, &ca, tls, operation(), row.script.clone()));
    check_exchange(&row, "Tls", &exchange);
    assert_eq!(seen.connections, 1);
}

/// The gate is shut at the last moment before the first byte, not only when sending starts.
#[test]
fn nothing_leaves_after_the_lease_got_too_short() {
    let row = Row::new("late", vec![], End::Fault(FaultKind::LeaseTooShort), Verdict::NotSent);
    run(async {
        let server = FaultServer::start(None, vec![vec![Step::AwaitClose]]).await;
        let bench = Bench::new(&server.url(), operation(), None);
        check_exchange(&row, "before it starts", &bench.send_before(Instant::now()).await);
        assert_eq!(server.finish().await.bytes, 0);
    });
    run(async {
        // The time passes while the connection is being made.
        let unanswered = Unanswered::start().await;
        let bench = Bench::new(&unanswered.url("http"), operation(), None);
        let soon = Instant::now() + Duration::from_millis(200);
        check_exchange(&row, "while connecting", &bench.send_before(soon).await);
    });
}

/// Whoever wanted the answer is gone before the request began to leave: it does not begin any more, and says so at once.
#[test]
fn nothing_leaves_that_nobody_waits_for_any_more() {
    let row = Row::new("gone", vec![], End::Fault(FaultKind::Abandoned), Verdict::NotSent);
    let minute = || Instant::now() + Duration::from_secs(60);
    run(async {
        let server = FaultServer::start(None, vec![vec![Step::AwaitClose]]).await;
        let bench = Bench::new(&server.url(), operation(), None);
        let (gate, keeper) = Gate::kept(minute());
        drop(keeper);
        check_exchange(&row, "before it starts", &bench.send_through(gate).await);
        assert_eq!(server.finish().await.bytes, 0);
    });
    run(async {
        let unanswered = Unanswered::start().await;
        let mut patient = operation();
        patient.connect_timeout_ms = 60_000;
        let bench = Bench::new(&unanswered.url("http"), patient, None);
        check_exchange(&row, "while connecting", &give_up(&bench).await);
    });
    run(async {
        let script = vec![Step::ReadRequest, reply(201, &[], "{\"id\":\"re_1\"}")];
        let server = FaultServer::start(None, vec![script]).await;
        let mut bench = Bench::new(&server.url(), operation(), None);
        bench.http().rate_per_second = Some(1);
        assert_eq!(End::of(&bench.send().await), End::Status(201));
        check_exchange(&row, "while waiting for its turn", &give_up(&bench).await);
        assert_eq!(server.finish().await.requests.len(), 1);
    });
}

/// Sends, and stops waiting for the answer a moment later.
async fn give_up(bench: &Bench) -> Exchange {
    let (gate, keeper) = Gate::kept(Instant::now() + Duration::from_secs(60));
    let leave = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(keeper);
    };
    tokio::join!(bench.send_through(gate), leave).0
}

#[test]
fn a_turn_that_comes_too_late_sends_nothing() {
    let row = Row::new("no turn", vec![], End::Fault(FaultKind::LeaseTooShort), Verdict::NotSent);
    run(async {
        let script = vec![Step::ReadRequest, reply(201, &[], "{\"id\":\"re_1\"}")];
        let server = FaultServer::start(None, vec![script]).await;
        let mut bench = Bench::new(&server.url(), operation(), None);
        bench.http().rate_per_second = Some(1);
        assert_eq!(End::of(&bench.send().await), End::Status(201));
        let soon = Instant::now() + Duration::from_millis(100);
        check_exchange(&row, "rate limit", &bench.send_before(soon).await);
        assert_eq!(server.finish().await.requests.len(), 1);
    });
}

#[test]
fn a_rate_limit_spaces_requests() {
    run(async {
        let script = vec![Step::ReadRequest, reply(201, &[], "{\"id\":\"re_1\"}")];
        let server = FaultServer::start(None, vec![script; 3]).await;
        let mut bench = Bench::new(&server.url(), operation(), None);
        bench.http().rate_per_second = Some(20);
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(End::of(&bench.send().await), End::Status(201));
        }
        assert!(start.elapsed() >= Duration::from_millis(95), "{:?}", start.elapsed());
        assert_eq!(server.finish().await.requests.len(), 3);
    });
}

/// Whoever has no place waits: not longer than the lease lets it, and not on the provider's time.
#[test]
fn a_tool_has_so_many_requests_at_a_time() {
    let late = Row::new("no place", vec![], End::Fault(FaultKind::LeaseTooShort), Verdict::NotSent);
    let gone = Row::new("gone", vec![], End::Fault(FaultKind::Abandoned), Verdict::NotSent);
    run(async {
        let silent = vec![Step::ReadRequest, Step::AwaitClose];
        let prompt = vec![Step::ReadRequest, reply(201, &[], "{\"id\":\"re_1\"}")];
        let server = FaultServer::start(None, vec![silent, prompt]).await;
        let mut bench = Bench::new(&server.url(), operation(), None);
        bench.http().concurrency = Some(1);
        bench.operation.contract.timeout_ms = 1_000;
        let soon = Instant::now() + Duration::from_millis(100);
        let (silent, prompt, too_late, given_up) =
            tokio::join!(bench.send(), bench.send(), bench.send_before(soon), give_up(&bench));
        assert_eq!(End::of(&silent), End::Fault(FaultKind::Timeout), "{silent:?}");
        // It waited for as long as its own timeout is.
        assert_eq!(End::of(&prompt), End::Status(201), "{prompt:?}");
        check_exchange(&late, "limit", &too_late);
        check_exchange(&gone, "limit", &given_up);
        assert_eq!(server.finish().await.requests.len(), 2);
    });
}

/// A client library that finds a kept connection broken may send again on a new one. Ours must not.
#[test]
fn a_stale_connection_is_not_retried() {
    let ca = Authority::new();
    for transport in TRANSPORTS {
        for last in [vec![Step::ReadRequest, Step::Reset], vec![Step::ReadBytes(40)]] {
            run(async {
                let tls = (transport == Transport::Tls).then(|| ca.server("localhost"));
                let first = vec![Step::ReadRequest, reply(201, &[], "{\"id\":\"re_1\"}")];
                let server = FaultServer::start(tls, vec![[first, last].concat()]).await;
                let mut keyed = operation();
                keyed.contract.key = Some(key_contract());
                let bench = Bench::new(&server.url(), keyed, Some(&ca));
                assert_eq!(End::of(&bench.send().await), End::Status(201));
                let second = bench.send().await;
                assert_eq!(End::of(&second), End::Fault(FaultKind::ClosedBeforeHead), "{second:?}");
                assert_eq!(second.sent, Sent::Maybe);
                let seen = server.finish().await;
                assert_eq!(seen.connections, 1, "the kept connection was used, and no other");
                assert!(seen.requests.len() <= 2);
            });
        }
    }
}

/// A stale connection would cost an operation without a key an unknown outcome, so it gets a fresh one.
#[test]
fn without_a_key_no_connection_is_used_twice() {
    run(async {
        let script =
            vec![Step::ReadRequest, reply(201, &[], "{\"id\":\"re_1\"}"), Step::AwaitClose];
        let server = FaultServer::start(None, vec![script.clone(), script]).await;
        let bench = Bench::new(&server.url(), operation(), None);
        for _ in 0..2 {
            assert_eq!(End::of(&bench.send().await), End::Status(201));
        }
        assert_eq!(server.finish().await.connections, 2);
    });
}

/// Without a body the witness has only the connection to go by.
#[test]
fn a_request_without_a_body_is_judged_by_its_connection() {
    let mut bare = operation();
    bare.request.body = None;
    let row = Row::new(
        "closed before the head",
        vec![Step::ReadRequest],
        End::Fault(FaultKind::ClosedBeforeHead),
        Verdict::Indeterminate,
    );
    check(&row, &bare);
    let refused = Row::new("refused", vec![], End::Fault(FaultKind::Connect), Verdict::NotSent);
    let url = run(closed_port("http"));
    check_exchange(&refused, "Plain", &run(Bench::new(&url, bare, None).send()));
}
