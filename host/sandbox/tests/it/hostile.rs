//! Components written against the host.

use std::time::{Duration, Instant};

use twice_sandbox::{CallLimits, Ended, SandboxError};

use crate::support::{
    FakeHost, Reply, block_on, call, check_limit, check_trap, limits, resident_kib, sandbox,
};

/// A component whose `run` is the core instructions `body`, with `outer` in the component and `inner` in its core module. In
/// its memory, address 0 holds `ok("{}")`.
pub(crate) fn component(outer: &str, inner: &str, body: &str) -> Vec<u8> {
    linked(outer, "", "", inner, body)
}

/// As [`component`], with core instances that the module is instantiated with, and its imports.
fn linked(outer: &str, with: &str, imports: &str, inner: &str, body: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
            {outer}
            (core module $memory (memory (export "memory") 1)
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
            (core instance $memory (instantiate $memory))
            (alias core export $memory "memory" (core memory $shared))
            (alias core export $memory "realloc" (core func $realloc))
            {with}
            (core module $m
                (import "memory" "memory" (memory 1))
                {imports}
                (data (i32.const 0) "\00\00\00\00\10\00\00\00\02\00\00\00")
                (data (i32.const 16) "{{}}")
                (data (i32.const 32) "\ff\fe\00")
                {inner}
                (func $again (export "again") (result i32) (i32.add (call $again) (i32.const 1)))
                (func (export "run") (param i32 i32) (result i32) {body}))
            (core instance $i (instantiate $m (with "memory" (instance $memory)) {with_log}))
            (alias core export $i "run" (core func $run-core))
            (type $error-type (variant (case "retryable" string) (case "fatal" string)))
            (export $error "node-error" (type $error-type))
            (func $run (param "input" string) (result (result string (error $error)))
                (canon lift (core func $run-core) (memory (core memory $shared)) (realloc (core func $realloc))))
            (export "run" (func $run)))"#,
        with_log = if imports.is_empty() { "" } else { r#"(with "log" (instance $log-core))"# },
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A component that logs the `length` bytes at `address` of its memory.
fn logging(address: i64, length: i64) -> Vec<u8> {
    linked(
        r#"(import "twice:node/log@0.1.0" (instance $log
            (type $level-type (enum "debug" "info" "warn" "error"))
            (export "level" (type $level (eq $level-type)))
            (export "write" (func (param "level" $level) (param "message" string)))))"#,
        r#"(alias export $log "write" (func $write-log))
           (core func $write (canon lower (func $write-log) (memory (core memory $shared)) (realloc (core func $realloc))))
           (core instance $log-core (export "write" (func $write)))"#,
        r#"(import "log" "write" (func $write (param i32 i32 i32)))"#,
        "",
        &format!(
            "(call $write (i32.const 1) (i32.const {address}) (i32.const {length})) (i32.const 0)"
        ),
    )
}

fn run(bytes: &[u8], limits: CallLimits) -> (Ended, FakeHost) {
    let component = sandbox().load(bytes).unwrap_or_else(|error| panic!("{error}"));
    call(&component, "{}", limits, FakeHost::new(Reply::Echo))
}

#[test]
fn the_harmless_form_returns() {
    let (ended, _) = run(&component("", "", "(i32.const 0)"), limits());
    assert_eq!(ended, Ended::Returned("{}".to_owned()));
}

#[test]
fn an_endless_start_function_reaches_the_time_limit() {
    let bytes = component("", "(func $start (loop (br 0))) (start $start)", "(i32.const 0)");
    let time = Duration::from_millis(200);
    let begun = Instant::now();
    let (ended, _) = run(&bytes, CallLimits { time, ..limits() });
    check_limit(&ended, "time", "200 ms");
    // Loading and compiling are in it.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn memory_cannot_grow_beyond_the_limit() {
    let four_gib = "(i32.eq (memory.grow (i32.const 65535)) (i32.const -1))";
    // A refusal by itself is no failure.
    let body = format!("{four_gib} (if (then (return (i32.const 0)))) unreachable");
    let (ended, _) = run(&component("", "", &body), limits());
    assert_eq!(ended, Ended::Returned("{}".to_owned()));
    let body = format!("{four_gib} (if (then unreachable)) (i32.const 0)");
    let (ended, _) = run(&component("", "", &body), limits());
    check_limit(&ended, "memory", "it asked for 4194304 KiB in all");
    // Page by page, until refused.
    let body = "(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable";
    let (ended, _) = run(&component("", "", body), limits());
    check_limit(&ended, "memory", "65600 KiB in all");
    // Two memories share one limit.
    let (ended, _) = run(&component("", "(memory 1000)", "(i32.const 0)"), limits());
    assert_eq!(ended, Ended::Returned("{}".to_owned()));
    let (ended, _) = run(&component("", "(memory 1024)", "(i32.const 0)"), limits());
    check_limit(&ended, "memory", "65600 KiB in all");
}

#[test]
fn tables_cannot_grow_beyond_the_limit() {
    let grow = "(table $t 1 funcref)";
    let body = "(i32.eq (table.grow $t (ref.null func) (i32.const 100000000)) (i32.const -1)) \
                (if (then unreachable)) (i32.const 0)";
    let (ended, _) = run(&component("", grow, body), limits());
    check_limit(&ended, "table", "131072");
}

#[test]
fn components_made_of_too_much_are_refused_at_load() {
    #[track_caller]
    fn check(outer: &str, inner: &str, expected: &str, in_words: &str) {
        let bytes = component(outer, inner, "(i32.const 0)");
        let error = sandbox().load(&bytes).map(|component| component.inspection()).unwrap_err();
        let text = error.to_string();
        match error {
            SandboxError::Limit { limit, .. } => assert_eq!(limit, expected, "{text}"),
            other => panic!("no limit: {other:?}"),
        }
        assert!(text.contains(in_words), "`{in_words}` is not in: {text}");
    }
    check("", "(table 10000000 funcref)", "table", "more than 131072 elements of one table");
    check("", &"(table 1 funcref)".repeat(90), "tables", "more than 16 tables");
    check("", &"(memory 1)".repeat(50), "memories", "more than 4 memories");
    let apart =
        "(core module $e (memory 1)) ".to_owned() + &"(core instance (instantiate $e))".repeat(5);
    check(&apart, "", "memories", "more than 4 memories");
    let many = "(core module $e) ".to_owned() + &"(core instance (instantiate $e))".repeat(200);
    check(&many, "", "instances", "202 core module instances");
}

#[test]
fn recursion_reaches_the_stack_limit() {
    let (ended, _) = run(&component("", "", "(call $again)"), limits());
    check_limit(&ended, "stack", "in again");
}

#[test]
fn lies_about_memory_trap() {
    #[track_caller]
    fn check(bytes: &[u8], in_words: &str) {
        let (ended, host) = run(bytes, limits());
        check_trap(&ended, in_words);
        assert!(host.log.is_empty());
    }
    check(&logging(32, 3), "utf-8");
    check(&logging(65_530, 100), "out of bounds");
    check(&logging(-8, 4), "out of bounds");
    check(&logging(0, 0x7fff_ffff), "out of bounds");
    // A result area that lies outside.
    check(&component("", "", "(i32.const 0x7ffffff0)"), "pointer");
    check(&component("", "", "(i32.const 1)"), "pointer");
    // A variant that is none.
    let bytes = component("", "", "(i32.store8 (i32.const 0) (i32.const 7)) (i32.const 0)");
    check(&bytes, "discriminant");
    check(
        &component("", "", "(i32.div_u (i32.const 1) (local.get 0)) drop unreachable"),
        "stopped itself",
    );
    check(&component("", "", "(i32.load (i32.const 0x7ffffff0))"), "outside of its own");
    check(&component("", "", "(i32.div_u (i32.const 1) (i32.const 0))"), "divided by zero");
}

#[test]
fn a_call_leaves_nothing_behind_for_the_next() {
    // Returns `fatal` from the second call on, if memory or globals were kept.
    let body = "(if (global.get $seen) (then unreachable)) (if (i32.load (i32.const 64)) (then unreachable)) \
                (global.set $seen (i32.const 1)) (i32.store (i32.const 64) (i32.const 1)) (i32.const 0)";
    let bytes = component("", "(global $seen (mut i32) (i32.const 0))", body);
    let node = sandbox().load(&bytes).unwrap();
    for _ in 0..50 {
        let (ended, _) = call(&node, "{}", limits(), FakeHost::new(Reply::Echo));
        assert_eq!(ended, Ended::Returned("{}".to_owned()));
    }
}

#[test]
fn no_bit_of_a_number_depends_on_the_machine() {
    // Every operation that makes a NaN of one with a payload, or of none, gives the one canonical NaN (I2).
    let odd = "(f64.reinterpret_i64 (i64.const 0x7ff4_0000_dead_beef))";
    let odd32 = "(f32.reinterpret_i32 (i32.const 0xffa1_2345))";
    let mut body = String::new();
    for made in [
        format!("(f64.add {odd} (f64.const 1))"),
        format!("(f64.mul (f64.const 0) {odd})"),
        format!("(f64.min {odd} (f64.const 2))"),
        format!("(f64.sub {odd} {odd})"),
        format!("(f64.sqrt {odd})"),
        format!("(f64.nearest {odd})"),
        format!("(f64.promote_f32 {odd32})"),
        "(f64.div (f64.const 0) (f64.const 0))".to_owned(),
        "(f64.sqrt (f64.const -1))".to_owned(),
        format!(
            "(f64x2.extract_lane 1 (f64x2.add (f64x2.splat {odd}) (f64x2.splat (f64.const 1))))"
        ),
    ] {
        body += &format!(
            "(if (i64.ne (i64.reinterpret_f64 {made}) (i64.const 0x7ff8_0000_0000_0000)) (then unreachable))"
        );
    }
    for made in [
        format!("(f32.demote_f64 {odd})"),
        format!("(f32.add {odd32} {odd32})"),
        format!("(f32.max {odd32} (f32.const 1))"),
        "(f32.sub (f32.const inf) (f32.const inf))".to_owned(),
    ] {
        body += &format!(
            "(if (i32.ne (i32.reinterpret_f32 {made}) (i32.const 0x7fc0_0000)) (then unreachable))"
        );
    }
    // Relaxed SIMD has one meaning of those that are permitted: here, multiplying and adding round once.
    body += "(if (f32.ne (f32x4.extract_lane 0 (f32x4.relaxed_madd (f32x4.splat (f32.const 0x1.001p0)) \
                 (f32x4.splat (f32.const 0x1.001p0)) (f32x4.splat (f32.const -0x1.002p0)))) (f32.const 0x1p-24)) (then unreachable)) \
             (i32.const 0)";
    let (ended, _) = run(&component("", "", &body), limits());
    assert_eq!(ended, Ended::Returned("{}".to_owned()));
}

#[test]
fn those_beside_hostile_ones_get_their_share() {
    const HOSTILE: u32 = 6;
    let work = "(local $i i32) (loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) \
                (i32.const 100_000_000)))) (i32.const 0)";
    let good = sandbox().load(&component("", "", work)).unwrap();
    let endless = component("", "", "(loop $l (br $l)) (i32.const 0)");
    let greedy =
        component("", "", "(loop $l (drop (memory.grow (i32.const 1))) (br $l)) (i32.const 0)");
    let (endless, greedy) = (sandbox().load(&endless).unwrap(), sandbox().load(&greedy).unwrap());
    let run = |node: twice_sandbox::Component, time| async move {
        let limits = CallLimits { time, ..limits() };
        sandbox().run(&node, "{}", limits, Box::new(FakeHost::new(Reply::Echo))).await.0
    };
    let ample = Duration::from_secs(600);
    let measured = || {
        let good = run(good.clone(), ample);
        async move {
            let begun = Instant::now();
            // A task like the others, as each run is: what a runtime blocks on has a share of another kind.
            let ended = tokio::task::spawn(good).await.unwrap();
            assert_eq!(ended, Ended::Returned("{}".to_owned()));
            begun.elapsed()
        }
    };
    // All of them share one thread.
    block_on(async {
        let alone = measured().await.max(measured().await);
        let hostile: Vec<_> = (0..HOSTILE)
            .map(|n| if n % 2 == 0 { endless.clone() } else { greedy.clone() })
            .map(|node| tokio::task::spawn(run(node, ample)))
            .collect();
        let beside = measured().await;
        assert!(hostile.iter().all(|call| !call.is_finished()), "the hostile ones were there");
        hostile.iter().for_each(tokio::task::JoinHandle::abort);
        let share = HOSTILE + 1;
        assert!(beside < alone * share * 3, "{beside:?} beside {HOSTILE}, {alone:?} alone");
    });
}

#[test]
fn hostile_calls_leave_no_memory_behind() {
    // Fills all it can get, then ends by a trap, by its time, or by its stack.
    let fill = "(loop $g (br_if $g (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) \
                (memory.fill (i32.const 65536) (i32.const 7) (i32.const 60_000_000))";
    let time = Duration::from_millis(400);
    let ends = ["unreachable", "(loop $l (br $l)) (i32.const 0)", "(call $again)"];
    let nodes =
        ends.map(|end| sandbox().load(&component("", "", &format!("{fill} {end}"))).unwrap());
    let all = || {
        for node in &nodes {
            let (ended, _) =
                call(node, "{}", CallLimits { time, ..limits() }, FakeHost::new(Reply::Echo));
            assert!(matches!(ended, Ended::Limit { .. } | Ended::Trapped { .. }), "{ended:?}");
        }
    };
    all();
    let before = resident_kib();
    (0..8).for_each(|_| all());
    let kept = resident_kib().saturating_sub(before);
    assert!(kept < 300 << 10, "{kept} KiB stay after 24 calls of 60 MB each");
}

#[test]
fn more_calls_than_instances_take_turns() {
    let config = twice_sandbox::SandboxConfig { instances_max: 2, ..Default::default() };
    let sandbox = twice_sandbox::Sandbox::new(&config).unwrap();
    let endless = sandbox.load(&component("", "", "(loop $l (br $l)) (i32.const 0)")).unwrap();
    let time = Duration::from_millis(50);
    block_on(async {
        let calls = (0..12).map(|_| {
            let host = Box::new(FakeHost::new(Reply::Echo));
            sandbox.run(&endless, "{}", CallLimits { time, ..limits() }, host)
        });
        // Each has its own time, which does not begin before its turn.
        for (ended, _) in futures_util::future::join_all(calls).await {
            check_limit(&ended, "time", "50 ms");
        }
    });
}
