//! Every limit of a call, and what comes of a node that reaches it.

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use twice_sandbox::{CallLimits, Ended, FIXED_LIMITS, LogLevel, WASI};

use crate::support::{
    FakeHost, Reply, act, call, check_limit, check_trap, conformance, limits, resident_kib,
    returned,
};

/// How long after its limit a call may still return. Generous, since the machine may be busy.
const GRACE: Duration = Duration::from_millis(500);

#[track_caller]
fn check_steps(steps: &Value, limits: CallLimits, limit: &str, in_words: &str) -> FakeHost {
    let (ended, host) = act(steps, limits, FakeHost::new(Reply::Echo));
    check_limit(&ended, limit, in_words);
    host
}

#[test]
fn memory() {
    check_steps(&json!([{ "do": "grow", "bytes": 100 << 20 }]), limits(), "memory", "65536 KiB");
    let roomy = CallLimits { memory_bytes: 128 << 20, ..limits() };
    let (ended, _) =
        act(&json!([{ "do": "grow", "bytes": 100 << 20 }]), roomy, FakeHost::new(Reply::Echo));
    assert_eq!(returned(&ended)["notes"][0], 100 << 20);
    let tight = CallLimits { memory_bytes: 64 << 10, ..limits() };
    check_steps(&json!([]), tight, "memory", "limits.memory");
}

#[test]
fn stack() {
    let host = check_steps(
        &json!([{ "do": "recurse" }]),
        limits(),
        "stack",
        "in twice_conformance::recurse (16 times)",
    );
    assert!(host.requests.is_empty());
}

#[test]
fn effects() {
    let many = |count: u32| json!([{ "do": "request_many", "slot": "a", "count": count }]);
    let host = check_steps(&many(11), limits(), "effects", "the limit is 10");
    assert_eq!(host.requests.len(), 10, "the eleventh never reaches the host");
    let (ended, _) = act(&many(10), limits(), FakeHost::new(Reply::Echo));
    assert_eq!(returned(&ended)["notes"][0].as_array().map(Vec::len), Some(10));
    let batch = vec![json!({ "slot": "a" }); 11];
    let host = check_steps(
        &json!([{ "do": "request_all", "requests": batch }]),
        limits(),
        "effects",
        "requested 11",
    );
    assert!(host.requests.is_empty(), "a batch is admitted whole or not at all");
}

#[test]
fn payload_in_each_direction() {
    let big = |what: &str, bytes: usize| json!([{ "do": what, "slot": "a", "bytes": bytes }]);
    let limit = limits().payload_bytes;
    let host =
        check_steps(&big("request_big", limit + 1), limits(), "payload", "a request for an effect");
    assert!(host.requests.is_empty());
    check_steps(&big("request_big", 8 << 20), limits(), "payload", &limit.to_string());
    check_steps(&big("big_output", limit + 1), limits(), "payload", "the node's output");
    check_steps(&big("big_output", 5 << 20), limits(), "payload", &limit.to_string());
    let (ended, _) = act(&big("big_output", limit - 2), limits(), FakeHost::new(Reply::Echo));
    assert_eq!(returned(&ended).as_str().map(str::len), Some(limit - 2));

    let body = json!("x".repeat(limit)).to_string();
    let (ended, _) =
        act(&json!([{ "do": "request", "slot": "a" }]), limits(), FakeHost::new(Reply::Body(body)));
    check_limit(&ended, "payload", "the receipt of an effect");

    let input = " ".repeat(limit + 1);
    let (ended, _) = call(&conformance(), &input, limits(), FakeHost::new(Reply::Echo));
    check_limit(&ended, "payload", "the node's input");
}

#[test]
fn odd_texts_pass_untouched_for_the_host_to_judge() {
    let steps =
        json!([{ "do": "request_deep", "slot": "a", "depth": 2_000 }, { "do": "bad_output" }]);
    let (ended, host) = act(&steps, limits(), FakeHost::new(Reply::Failed));
    assert_eq!(ended, Ended::Returned("{\"half\":".to_owned()));
    assert_eq!(host.requests[0].args.len(), 2 * 2_000 + "null".len());
    let (ended, _) = act(
        &json!([{ "do": "deep_output", "depth": 5_000 }]),
        limits(),
        FakeHost::new(Reply::Echo),
    );
    assert_eq!(ended, Ended::Returned("[".repeat(5_000) + &"]".repeat(5_000)));
}

#[test]
fn time_of_a_node_that_computes_or_waits() {
    #[track_caller]
    fn check(steps: &Value, reply: Reply, requests: usize) {
        let time = Duration::from_millis(300);
        let node = conformance();
        let begun = Instant::now();
        let (ended, host) = call(
            &node,
            &crate::support::plan(steps),
            CallLimits { time, ..limits() },
            FakeHost::new(reply),
        );
        let took = begun.elapsed();
        check_limit(&ended, "time", "300 ms");
        assert!(took >= time && took < time + GRACE, "{took:?}");
        assert_eq!(host.requests.len(), requests, "the host knows what was in flight");
    }
    check(&json!([{ "do": "loop" }]), Reply::Echo, 0);
    check(&json!([{ "do": "request", "slot": "a" }]), Reply::Hang, 1);
    check(&json!([{ "do": "request", "slot": "a" }, { "do": "loop" }]), Reply::Echo, 1);
}

#[test]
fn a_node_that_computes_leaves_its_thread_to_others() {
    let node = conformance();
    let run = |steps: Value, time| {
        let (node, limits) = (node.clone(), CallLimits { time, ..limits() });
        async move {
            let host = Box::new(FakeHost::new(Reply::Echo));
            let input = crate::support::plan(&steps);
            crate::support::sandbox().run(&node, &input, limits, host).await.0
        }
    };
    crate::support::block_on(async {
        let endless = run(json!([{ "do": "loop" }]), Duration::from_secs(10));
        let short = run(json!([{ "do": "now" }]), Duration::from_secs(10));
        // Both share one thread, and the endless one begins.
        tokio::select! {
            biased;
            ended = endless => panic!("the endless node ended first: {ended:?}"),
            ended = short => assert_eq!(returned(&ended)["notes"].as_array().map(Vec::len), Some(1)),
        }
    });
}

#[test]
fn log_stops_with_one_notice_and_the_node_goes_on() {
    let steps = json!([{ "do": "log_flood", "messages": 1_000, "bytes": 1_000 },
                       { "do": "log_flood", "messages": 100_000, "bytes": 0 }, { "do": "now" }]);
    let (ended, host) = act(&steps, limits(), FakeHost::new(Reply::Echo));
    assert_eq!(returned(&ended)["notes"].as_array().map(Vec::len), Some(3));
    let (last, before) = host.log.split_last().expect("something was logged");
    assert_eq!(last.0, LogLevel::Warn);
    assert!(last.1.contains("65536 bytes"), "{}", last.1);
    assert!(before.iter().all(|(level, text)| *level == LogLevel::Info && text.len() == 1_000));
    let bytes: usize = before.iter().map(|(_, text)| text.len()).sum();
    assert!((50_000..=65_536).contains(&bytes), "{bytes}");
}

#[test]
fn empty_messages_use_up_the_log_too() {
    let steps = json!([{ "do": "log_flood", "messages": 100_000, "bytes": 0 }]);
    let (_, host) = act(&steps, limits(), FakeHost::new(Reply::Echo));
    assert!(host.log.len() <= 4_096, "{}", host.log.len());
}

#[test]
fn random_bytes_are_bounded() {
    let ask = |count: u32| json!([{ "do": "random", "count": count }]);
    let roomy = CallLimits { payload_bytes: 1 << 20, ..limits() };
    let (ended, _) = act(&ask(65_536), roomy.clone(), FakeHost::new(Reply::Echo));
    assert_eq!(returned(&ended)["notes"][0].as_array().map(Vec::len), Some(65_536));
    let (ended, _) = act(&ask(65_537), roomy, FakeHost::new(Reply::Echo));
    check_trap(&ended, "the most is 65536");
}

#[test]
fn errors_of_a_node_are_cut() {
    let steps = json!([{ "do": "fatal", "message": "é".repeat(20_000) }]);
    let (ended, _) = act(&steps, limits(), FakeHost::new(Reply::Echo));
    let Ended::Fatal(message) = ended else { panic!("{ended:?}") };
    assert!(message.len() <= 8 << 10 && message.ends_with("bytes cut]"), "{}", message.len());
}

#[test]
fn a_suspended_instance_releases_its_memory() {
    let steps = json!([{ "do": "grow", "bytes": 48 << 20 }, { "do": "request", "slot": "a" }]);
    let suspend = || act(&steps, limits(), FakeHost::new(Reply::Suspend)).0;
    assert_eq!(suspend(), Ended::Suspended);
    let before = resident_kib();
    for _ in 0..20 {
        assert_eq!(suspend(), Ended::Suspended);
    }
    let kept = resident_kib().saturating_sub(before);
    assert!(kept < 200 << 10, "{kept} KiB stay after 20 instances of 48 MiB each");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_message_is_kept_or_cut_at_a_character(unit in "[a-z]|é|€|🦀", times in 0_usize..9_000) {
        let message = unit.repeat(times);
        let steps = json!([{ "do": "log", "level": "debug", "message": message }]);
        let (ended, host) = act(&steps, limits(), FakeHost::new(Reply::Echo));
        prop_assert!(matches!(ended, Ended::Returned(_)));
        let (level, logged) = &host.log[0];
        prop_assert_eq!(*level, LogLevel::Debug);
        if message.len() <= 8 << 10 {
            prop_assert_eq!(logged, &message);
        } else {
            prop_assert!(logged.len() <= 8 << 10);
            let kept = logged.split(' ').next().unwrap();
            prop_assert!(message.starts_with(kept) && kept.len() > 8_000);
        }
    }
}

#[test]
fn every_limit_that_is_reported_is_listed() {
    let names: Vec<&str> = FIXED_LIMITS.iter().map(|limit| limit.name).collect();
    for reported in ["stack", "table", "instances", "payload", "handles", "compile time"] {
        assert!(names.contains(&reported), "`{reported}`");
    }
}

#[test]
fn the_documents_table_is_the_list() {
    let doc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sandbox.md");
    let doc = std::fs::read_to_string(doc).unwrap();
    let rows = |heading: &str| -> Vec<String> {
        let section = doc.split(heading).nth(1).unwrap_or_else(|| panic!("no section {heading}"));
        let section = section.split("\n#").next().unwrap_or_default();
        section.lines().filter(|line| line.starts_with('|')).skip(2).map(str::to_owned).collect()
    };
    let limits: Vec<String> = FIXED_LIMITS
        .iter()
        .map(|limit| {
            format!("| {} | {} {} | {} |", limit.name, limit.value, limit.unit, limit.reached)
        })
        .collect();
    assert_eq!(rows("## The same for every node"), limits, "{}", limits.join("\n"));
    let wasi: Vec<String> =
        WASI.iter().map(|(interface, gets)| format!("| `{interface}` | {gets} |")).collect();
    assert_eq!(rows("## WASI"), wasi, "{}", wasi.join("\n"));
}
