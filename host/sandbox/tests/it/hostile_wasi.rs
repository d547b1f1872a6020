//! Nodes that try to hurt the host, or to get out, by what they may import: the world of a node, and what is there of WASI.

use std::time::Duration;

use twice_sandbox::{CallLimits, Ended, LogLevel};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::support::{
    FakeHost, Reply, call, check_limit, check_trap, limits, resident_kib, sandbox,
};

/// What these nodes import, as far as they use it.
const WIT: &str = r#"
package twice:hostile;

interface things {
    resource thing { }
}

world hostile {
    include twice:node/node@0.1.0;
    import wasi:io/streams@0.2.6;
    import wasi:clocks/monotonic-clock@0.2.6;
    import wasi:clocks/wall-clock@0.2.6;
    import wasi:random/random@0.2.6;
    import wasi:cli/exit@0.2.6;
    import wasi:cli/stdin@0.2.6;
    import wasi:cli/stdout@0.2.6;
    import wasi:cli/stderr@0.2.6;
    import wasi:cli/environment@0.2.6;
    import wasi:filesystem/preopens@0.2.6;
    import wasi:sockets/tcp-create-socket@0.2.6;
    import wasi:sockets/udp-create-socket@0.2.6;
    import wasi:sockets/ip-name-lookup@0.2.6;
    import wasi:sockets/instance-network@0.2.6;
    export things;
}
"#;

/// The packages, each by itself, in the order of what rests on what.
const PACKAGES: [&str; 7] = [
    include_str!("../../../../guest-sdk/wit/node.wit"),
    r#"package wasi:io@0.2.6;
    interface error { resource error { } }
    interface poll {
        resource pollable { ready: func() -> bool; block: func(); }
        poll: func(in: list<borrow<pollable>>) -> list<u32>;
    }
    interface streams {
        use error.{error};
        use poll.{pollable};
        variant stream-error { last-operation-failed(error), closed }
        resource input-stream { read: func(len: u64) -> result<list<u8>, stream-error>; }
        resource output-stream {
            check-write: func() -> result<u64, stream-error>;
            write: func(contents: list<u8>) -> result<_, stream-error>;
            write-zeroes: func(len: u64) -> result<_, stream-error>;
            blocking-flush: func() -> result<_, stream-error>;
            subscribe: func() -> pollable;
        }
    }"#,
    r#"package wasi:clocks@0.2.6;
    interface monotonic-clock {
        use wasi:io/poll@0.2.6.{pollable};
        now: func() -> u64;
        subscribe-instant: func(when: u64) -> pollable;
        subscribe-duration: func(when: u64) -> pollable;
    }
    interface wall-clock {
        record datetime { seconds: u64, nanoseconds: u32 }
        now: func() -> datetime;
    }"#,
    r#"package wasi:random@0.2.6;
    interface random { get-random-bytes: func(len: u64) -> list<u8>; }"#,
    r#"package wasi:filesystem@0.2.6;
    interface types { resource descriptor { } }
    interface preopens {
        use types.{descriptor};
        get-directories: func() -> list<tuple<descriptor, string>>;
    }"#,
    r#"package wasi:cli@0.2.6;
    interface exit { exit: func(status: result); }
    interface stdin { use wasi:io/streams@0.2.6.{input-stream}; get-stdin: func() -> input-stream; }
    interface stdout { use wasi:io/streams@0.2.6.{output-stream}; get-stdout: func() -> output-stream; }
    interface stderr { use wasi:io/streams@0.2.6.{output-stream}; get-stderr: func() -> output-stream; }
    interface environment {
        get-environment: func() -> list<tuple<string, string>>;
        get-arguments: func() -> list<string>;
        initial-cwd: func() -> option<string>;
    }"#,
    r#"package wasi:sockets@0.2.6;
    interface network {
        resource network { }
        enum error-code { unknown, access-denied, not-supported, invalid-argument, out-of-memory, timeout,
            concurrency-conflict, not-in-progress, would-block, invalid-state, new-socket-limit, address-not-bindable,
            address-in-use, remote-unreachable, connection-refused, connection-reset, connection-aborted,
            datagram-too-large, name-unresolvable, temporary-resolver-failure, permanent-resolver-failure }
        enum ip-address-family { ipv4, ipv6 }
    }
    interface instance-network { use network.{network}; instance-network: func() -> network; }
    interface tcp { resource tcp-socket { } }
    interface tcp-create-socket {
        use network.{error-code, ip-address-family};
        use tcp.{tcp-socket};
        create-tcp-socket: func(address-family: ip-address-family) -> result<tcp-socket, error-code>;
    }
    interface udp { resource udp-socket { } }
    interface udp-create-socket {
        use network.{error-code, ip-address-family};
        use udp.{udp-socket};
        create-udp-socket: func(address-family: ip-address-family) -> result<udp-socket, error-code>;
    }
    interface ip-name-lookup {
        use network.{network, error-code};
        resource resolve-address-stream { }
        resolve-addresses: func(network: borrow<network>, name: string) -> result<resolve-address-stream, error-code>;
    }"#,
];

/// The functions by the names that the bodies below use.
const IMPORTS: &str = r#"
    (import "wasi:io/poll@0.2.6" "poll" (func $poll (param i32 i32 i32)))
    (import "wasi:io/poll@0.2.6" "[method]pollable.block" (func $block (param i32)))
    (import "wasi:io/poll@0.2.6" "[resource-drop]pollable" (func $drop-pollable (param i32)))
    (import "wasi:io/streams@0.2.6" "[method]input-stream.read" (func $read (param i32 i64 i32)))
    (import "wasi:io/streams@0.2.6" "[method]output-stream.write" (func $write (param i32 i32 i32 i32)))
    (import "wasi:io/streams@0.2.6" "[method]output-stream.write-zeroes" (func $write-zeroes (param i32 i64 i32)))
    (import "wasi:io/streams@0.2.6" "[method]output-stream.blocking-flush" (func $flush (param i32 i32)))
    (import "wasi:clocks/monotonic-clock@0.2.6" "now" (func $now (result i64)))
    (import "wasi:clocks/monotonic-clock@0.2.6" "subscribe-instant" (func $at (param i64) (result i32)))
    (import "wasi:clocks/monotonic-clock@0.2.6" "subscribe-duration" (func $in (param i64) (result i32)))
    (import "wasi:clocks/wall-clock@0.2.6" "now" (func $wall (param i32)))
    (import "wasi:random/random@0.2.6" "get-random-bytes" (func $random (param i64 i32)))
    (import "wasi:cli/exit@0.2.6" "exit" (func $exit (param i32)))
    (import "wasi:cli/stdin@0.2.6" "get-stdin" (func $stdin (result i32)))
    (import "wasi:cli/stdout@0.2.6" "get-stdout" (func $stdout (result i32)))
    (import "wasi:cli/stderr@0.2.6" "get-stderr" (func $stderr (result i32)))
    (import "wasi:cli/environment@0.2.6" "get-environment" (func $environment (param i32)))
    (import "wasi:cli/environment@0.2.6" "get-arguments" (func $arguments (param i32)))
    (import "wasi:cli/environment@0.2.6" "initial-cwd" (func $cwd (param i32)))
    (import "wasi:filesystem/preopens@0.2.6" "get-directories" (func $directories (param i32)))
    (import "wasi:sockets/tcp-create-socket@0.2.6" "create-tcp-socket" (func $tcp (param i32 i32)))
    (import "wasi:sockets/udp-create-socket@0.2.6" "create-udp-socket" (func $udp (param i32 i32)))
    (import "wasi:sockets/instance-network@0.2.6" "instance-network" (func $network (result i32)))
    (import "wasi:sockets/ip-name-lookup@0.2.6" "resolve-addresses" (func $resolve (param i32 i32 i32 i32)))
    (import "twice:node/effects@0.1.0" "request" (func $request (param i32 i32 i32 i32 i32 i32 i32)))
    (import "twice:node/effects@0.1.0" "request-all" (func $request-all (param i32 i32 i32)))
    (import "twice:node/log@0.1.0" "print" (func $print (param i32 i32 i32)))
    (import "[export]twice:hostile/things" "[resource-new]thing" (func $new-thing (param i32) (result i32)))
"#;

/// A core module whose `run` is `body`. Address 0 holds `ok("{}")`; 64 is free for answers; from 4096 on there is room for 8 MiB.
fn node(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module {IMPORTS}
            (memory (export "memory") 160)
            (data (i32.const 0) "\00\00\00\00\10\00\00\00\02\00\00\00")
            (data (i32.const 16) "{{}}")
            (data (i32.const 128) "example.com")
            (global $heap (mut i32) (i32.const 9000000))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                (global.get $heap)
                (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -16)))))
            (func $expect (param i32 i32) (if (i32.ne (local.get 0) (local.get 1)) (then unreachable)))
            (func (export "run") (param i32 i32) (result i32)
                (local $i i32) (local $h i32) (local $g i32)
                {body}
                (i32.const 0)))"#
    );
    let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut resolve = Resolve::default();
    for package in PACKAGES {
        resolve.push_str("package.wit", package).expect("the test's own WIT is right");
    }
    let package = resolve.push_str("hostile.wit", WIT).expect("the test's own WIT is right");
    let world = resolve.select_world(&[package], Some("hostile")).expect("it is there");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("the world can be embedded");
    module
}

fn run(body: &str, limits: CallLimits) -> (Ended, FakeHost) {
    let component = sandbox().load(&node(body)).unwrap_or_else(|error| panic!("{error}"));
    call(&component, "{}", limits, FakeHost::new(Reply::Echo))
}

/// `times` rounds of `body`.
fn repeat(times: u32, body: &str) -> String {
    format!(
        "(loop $l {body} (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {times}))))"
    )
}

#[track_caller]
fn returns(body: &str) -> FakeHost {
    let (ended, host) = run(body, limits());
    assert_eq!(ended, Ended::Returned("{}".to_owned()));
    host
}

#[test]
fn handles_are_limited() {
    // Clocks that are waited for, and never dropped.
    let (ended, _) = run(&repeat(10_000_000, "(drop (call $in (i64.const 1)))"), limits());
    check_limit(&ended, "handles", "1024");
    // Streams.
    let (ended, _) = run(&repeat(10_000_000, "(drop (call $stdout))"), limits());
    check_limit(&ended, "handles", "1024");
    let (ended, _) = run(&repeat(10_000_000, "(drop (call $network))"), limits());
    check_limit(&ended, "handles", "1024");
    // Resources of its own, of which the host knows nothing but that they are there.
    let (ended, _) = run(&repeat(10_000_000, "(drop (call $new-thing (i32.const 7)))"), limits());
    check_limit(&ended, "handles", "1024");
    // One after the other, there may be as many as it likes.
    returns(&repeat(20_000, "(call $drop-pollable (call $in (i64.const 1)))"));
}

#[test]
fn a_million_pollables_are_no_way_round_the_limit() {
    let fill = repeat(
        1_000_000,
        "(i32.store (i32.add (i32.const 4096) (i32.shl (local.get $i) (i32.const 2))) (local.get $h))",
    );
    let body = format!(
        "(local.set $h (call $in (i64.const 1))) {fill} (call $poll (i32.const 4096) (i32.const 1000000) (i32.const 64))"
    );
    let before = resident_kib();
    let (ended, _) = run(&body, limits());
    check_limit(&ended, "payload", "more data to the host at once");
    let more = resident_kib().saturating_sub(before);
    assert!(more < 256 << 10, "{more} KiB more");
    // One that is lent counts as often as it is.
    let (ended, _) = run(&body.replace("1000000", "3000"), limits());
    check_limit(&ended, "handles", "1024");
    // A few hundred at once are nobody's concern.
    returns(&body.replace("1000000", "500"));
    // None at all is a mistake.
    let (ended, _) = run("(call $poll (i32.const 4096) (i32.const 0) (i32.const 64))", limits());
    check_trap(&ended, "empty poll list");
}

#[test]
fn waiting_for_ever_ends_at_once() {
    let body = "(call $block (call $in (i64.const -1))) (call $block (call $at (i64.const -1))) \
                (call $block (call $in (i64.const -1))) \
                (call $expect (i64.eq (call $now) (i64.const -1)) (i32.const 1)) (call $wall (i32.const 64))";
    returns(body);
    // A node that does nothing but wait uses up its own time, nobody else's.
    let (ended, _) = run(
        "(loop $l (local.set $h (call $in (i64.const 1000000000))) (call $block (local.get $h)) \
         (call $drop-pollable (local.get $h)) (br $l))",
        CallLimits { time: Duration::from_millis(300), ..limits() },
    );
    check_limit(&ended, "time", "300 ms");
}

#[test]
fn floods_of_output_are_bounded() {
    let bounded = |host: &FakeHost| {
        let bytes: usize = host.log.iter().map(|(_, text)| text.len()).sum();
        assert!(bytes <= limits().log_bytes + 1_000 && host.log.len() < 4_096, "{bytes}");
        let (level, last) = host.log.last().expect("something was logged");
        assert_eq!(*level, LogLevel::Warn);
        assert!(last.contains("reached its limit"), "{last}");
    };
    let before = resident_kib();
    // Pages without the end of a line, on both streams in turn.
    let both = "(local.set $h (call $stdout)) (local.set $g (call $stderr))";
    let page = "(call $write (local.get $h) (i32.const 4096) (i32.const 65536) (i32.const 64)) \
                (call $write (local.get $g) (i32.const 4096) (i32.const 65536) (i32.const 64))";
    bounded(&returns(&format!("{both} {}", repeat(300, page))));
    // Single bytes.
    let byte = page.replace("65536", "1");
    bounded(&returns(&format!("{both} {}", repeat(40_000, &byte))));
    // Nothing at all, very often.
    let nothing = page.replace("65536", "0");
    let host = returns(&format!("{both} {}", repeat(50_000, &nothing)));
    assert!(host.log.is_empty());
    // More than a stream takes at once.
    returns(&format!("{both} {}", page.replace("65536", "400000")));
    let more = resident_kib().saturating_sub(before);
    assert!(more < 200 << 10, "{more} KiB more");
}

#[test]
fn zeroes_cost_the_host_no_more_than_a_stream_takes() {
    let zeroes = |count: i64| {
        format!("(call $write-zeroes (call $stdout) (i64.const {count}) (i32.const 64))")
    };
    let (ended, _) = run(&zeroes(-1), limits());
    check_trap(&ended, "the most that a stream takes is 65536 bytes");
    let (ended, _) = run(&zeroes(1 << 40), limits());
    check_trap(&ended, "1099511627776 zeroes");
    let host = returns(&zeroes(100));
    assert_eq!(host.log, [(LogLevel::Info, "\0".repeat(100))]);
}

#[test]
fn printed_floods_are_bounded() {
    // 8 MB of anything but the end of a line, then as many ends of lines as fit.
    let roomy = CallLimits { payload_bytes: 16 << 20, ..limits() };
    let returns_roomy = |body: &str| {
        let (ended, host) = run(body, roomy.clone());
        assert_eq!(ended, Ended::Returned("{}".to_owned()));
        host
    };
    let host = returns_roomy(&repeat(
        20,
        "(call $print (i32.const 1) (i32.const 4096) (i32.const 8000000))",
    ));
    assert!(host.log.len() < 20, "{}", host.log.len());
    let lines = "(memory.fill (i32.const 4096) (i32.const 10) (i32.const 8000000))";
    let print = repeat(20, "(call $print (i32.const 2) (i32.const 4096) (i32.const 8000000))");
    let host = returns_roomy(&format!("{lines} {print}"));
    assert!(host.log.len() <= 4_096, "{}", host.log.len());
    // No UTF-8, cut in the middle of a character, over several pieces.
    let host = returns(
        r"(i32.store (i32.const 4096) (i32.const 0x82e2ff41)) (i32.store (i32.const 4100) (i32.const 0x0a42ac))
          (call $print (i32.const 1) (i32.const 4096) (i32.const 4))
          (call $print (i32.const 1) (i32.const 4100) (i32.const 3))
          (call $print (i32.const 1) (i32.const 4096) (i32.const 3))",
    );
    let expected = [
        (LogLevel::Info, "A\u{fffd}€B".to_owned()),
        (LogLevel::Info, "A\u{fffd}\u{fffd}".to_owned()),
    ];
    assert_eq!(host.log, expected);
}

#[test]
fn random_bytes_are_limited() {
    let (ended, _) = run("(call $random (i64.const -1) (i32.const 64))", limits());
    check_trap(&ended, "the most is 65536");
    returns(
        "(call $random (i64.const 65536) (i32.const 64)) (call $expect (i32.load (i32.const 68)) (i32.const 65536))",
    );
}

#[test]
fn leaving_is_an_end_that_says_so() {
    let (ended, _) = run("(call $exit (i32.const 1))", limits());
    check_trap(&ended, "left with status 1");
    let (ended, _) = run("(call $exit (i32.const 0))", limits());
    check_trap(&ended, "left with status 0");
}

#[test]
fn there_is_nothing_of_this_machine() {
    let empty = |function: &str| {
        format!(
            "(i64.store (i32.const 64) (i64.const -1)) (call ${function} (i32.const 64)) (call $expect (i32.load (i32.const 68)) (i32.const 0))"
        )
    };
    returns(&empty("environment"));
    returns(&empty("arguments"));
    returns(&empty("directories"));
    returns(
        "(i32.store (i32.const 64) (i32.const -1)) (call $cwd (i32.const 64)) (call $expect (i32.load8_u (i32.const 64)) (i32.const 0))",
    );
    // Standard input is at its end: an error, and the case `closed`.
    returns(
        "(call $read (call $stdin) (i64.const -1) (i32.const 64)) (call $expect (i32.load8_u (i32.const 64)) (i32.const 1)) \
         (call $expect (i32.load8_u (i32.const 68)) (i32.const 1))",
    );
}

#[test]
fn there_is_no_network() {
    let refused = "(call $expect (i32.load8_u (i32.const 64)) (i32.const 1))";
    for family in [0, 1] {
        returns(&format!("(call $tcp (i32.const {family}) (i32.const 64)) {refused}"));
        returns(&format!("(call $udp (i32.const {family}) (i32.const 64)) {refused}"));
    }
    returns(&format!(
        "(call $resolve (call $network) (i32.const 128) (i32.const 11) (i32.const 64)) {refused}"
    ));
}

#[test]
fn millions_of_requests_reach_the_host_as_often_as_granted() {
    let one = "(call $request (i32.const 128) (i32.const 7) (i32.const 0) (i32.const 0) (i32.const 16) (i32.const 2) (i32.const 64))";
    let (ended, host) = run(&repeat(10_000_000, one), limits());
    check_limit(&ended, "effects", "the limit is 10");
    assert_eq!((host.requests.len(), host.requests[0].slot.as_str()), (10, "example"));
    // At once: lists of empty requests, which are bytes of zero.
    let all = |count: u32| {
        format!("(call $request-all (i32.const 4096) (i32.const {count}) (i32.const 64))")
    };
    let before = resident_kib();
    for (count, limit) in [(1_000, "effects"), (330_000, "payload")] {
        let (ended, host) = run(&all(count), limits());
        check_limit(&ended, limit, "limit");
        assert!(host.requests.is_empty(), "a batch is admitted whole or not at all");
    }
    let more = resident_kib().saturating_sub(before);
    assert!(more < 200 << 10, "{more} KiB more");
}
