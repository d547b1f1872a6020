//! What a module built for WASI preview 1 finds behind it: the node's own time, randomness and log, and nothing else.

use serde_json::{Value, json};
use twice_sandbox::{LogLevel, componentize};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::support::{FakeHost, Reply, call, check_trap, limits, returned, sandbox};

/// A module that imports preview 1, runs `body`, and returns the first 64 bytes of its memory, each as two digits. Its allocator
/// reads a clock, as Go's does, where a component may not call out.
fn node(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
            (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_open"
                (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (memory (export "memory") 2)
            (global $free (mut i32) (i32.const 65536))
            (data (i32.const 1024) "hel" "lo\nwor" "ld\n")
            ;; Three pieces of that text.
            (data (i32.const 1040) "\00\04\00\00\03\00\00\00\03\04\00\00\06\00\00\00\09\04\00\00\03\00\00\00")
            (func (export "_initialize") (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 2048))))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 2048)))
                (global.get $free)
                (global.set $free (i32.and
                    (i32.add (i32.add (global.get $free) (local.get 3)) (i32.const 7))
                    (i32.const -8))))
            (func $digit (param i32) (result i32)
                (i32.add (local.get 0) (select (i32.const 87) (i32.const 48) (i32.gt_u (local.get 0) (i32.const 9)))))
            (func $told (result i32) (local $i i32) (local $to i32) (local $byte i32)
                (local.set $to (i32.const 4097))
                (loop $each
                    (local.set $byte (i32.load8_u (local.get $i)))
                    (i32.store8 (local.get $to) (call $digit (i32.shr_u (local.get $byte) (i32.const 4))))
                    (i32.store8 offset=1 (local.get $to) (call $digit (i32.and (local.get $byte) (i32.const 15))))
                    (local.set $to (i32.add (local.get $to) (i32.const 2)))
                    (local.set $i (i32.add (local.get $i) (i32.const 1)))
                    (br_if $each (i32.lt_u (local.get $i) (i32.const 64))))
                (i32.store8 (i32.const 4096) (i32.const 34))
                (i32.store8 (local.get $to) (i32.const 34))
                (i64.store (i32.const 3072) (i64.const 0))
                (i32.store (i32.const 3076) (i32.const 4096))
                (i32.store (i32.const 3080) (i32.const 130))
                (i32.const 3072))
            (func (export "run") (param i32 i32) (result i32) {body} (call $told)))"#
    );
    let mut module = wat::parse_str(text).expect("the test's own text is right");
    let mut resolve = Resolve::default();
    let wit = include_str!("../../../../guest-sdk/wit/node.wit");
    let package = resolve.push_str("node.wit", wit).expect("the WIT is right");
    let world = resolve.select_world(&[package], Some("node")).expect("it has the world");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("the world can be described");
    componentize(&module).expect("it is a node").into_owned()
}

/// The 64 bytes, and the host.
fn run(body: &str) -> (Vec<u8>, FakeHost) {
    let node = sandbox().load(&node(body)).expect("it is a component");
    let input = json!({ "input": null, "nodes": {} }).to_string();
    let (ended, host) = call(&node, &input, limits(), FakeHost::new(Reply::Echo));
    let Value::String(digits) = returned(&ended) else { panic!("no text: {ended:?}") };
    let bytes = digits.as_bytes().chunks(2).map(|pair| {
        u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect("two digits")
    });
    (bytes.collect(), host)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn it_imports_what_a_node_may_and_only_what_it_uses() {
    let bytes = node("(drop (call $random (i32.const 0) (i32.const 1)))");
    let node = sandbox().load(&bytes).expect("it is a component");
    assert_eq!(node.inspection().imports, ["twice:node/context@0.1.0", "twice:node/log@0.1.0"]);
}

#[test]
fn both_clocks_are_the_nodes_time_and_go_on() {
    let (bytes, _) = run(r"
        (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 0)))
        (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 8)))");
    let (first, second) = (u64_at(&bytes, 0), u64_at(&bytes, 8));
    assert_eq!(first / 1_000_000, 1_700_000_000_000);
    assert_eq!(second - first, 1_000);
}

#[test]
fn sleeping_takes_no_time_but_the_clocks() {
    // A timer of 90 s and one of 5 s: the second ends first.
    let (bytes, _) = run(r"
        (i64.store (i32.const 512) (i64.const 7))
        (i64.store (i32.const 536) (i64.const 90000000000))
        (i64.store (i32.const 560) (i64.const 8))
        (i64.store (i32.const 584) (i64.const 5000000000))
        (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 0)))
        (i32.store (i32.const 16) (call $poll (i32.const 512) (i32.const 32) (i32.const 2) (i32.const 20)))
        (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 8)))");
    let slept = u64_at(&bytes, 8) - u64_at(&bytes, 0);
    assert!((5_000_000_000..5_001_000_000).contains(&slept), "{slept}");
    let (problem, events, whose) = (u32_at(&bytes, 16), u32_at(&bytes, 20), u64_at(&bytes, 32));
    assert_eq!((problem, events, whose), (0, 1, 8));
}

#[test]
fn randomness_is_the_nodes_and_goes_on() {
    let (bytes, _) = run(r"
        (drop (call $random (i32.const 0) (i32.const 16)))
        (drop (call $random (i32.const 16) (i32.const 3)))
        (drop (call $random (i32.const 20) (i32.const 0)))");
    let host: &mut dyn twice_sandbox::Host = &mut FakeHost::new(Reply::Echo);
    let expected = host.random(19);
    assert_eq!(bytes[..19], expected);
    assert_eq!(bytes[19..24], [0; 5]);
}

#[test]
fn standard_output_and_error_are_logged_by_lines() {
    let (bytes, host) = run(r"
        (i32.store (i32.const 0) (call $write (i32.const 1) (i32.const 1040) (i32.const 3) (i32.const 4)))
        (i32.store (i32.const 8) (call $write (i32.const 2) (i32.const 1040) (i32.const 1) (i32.const 12)))
        (i32.store (i32.const 16) (call $write (i32.const 3) (i32.const 1040) (i32.const 1) (i32.const 20)))
        (i32.store (i32.const 24) (call $write (i32.const 0) (i32.const 1040) (i32.const 1) (i32.const 20)))");
    let info = |line: &str| (LogLevel::Info, line.to_owned());
    let expected = [info("hello"), info("world"), (LogLevel::Warn, "hel".to_owned())];
    assert_eq!(host.log, expected);
    let told: Vec<u32> = (0..7).map(|word| u32_at(&bytes, 4 * word)).collect();
    assert_eq!(told, [0, 12, 0, 3, 8, 0, 8]);
}

#[test]
fn there_is_no_file_no_argument_and_no_environment() {
    let (bytes, _) = run(r"
        (i32.store (i32.const 0) (call $prestat (i32.const 3) (i32.const 512)))
        (i32.store (i32.const 4) (call $open (i32.const 3) (i32.const 0) (i32.const 1024) (i32.const 3)
            (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 512)))
        (i64.store (i32.const 8) (i64.const -1))
        (i64.store (i32.const 16) (i64.const -1))
        (drop (call $args (i32.const 8) (i32.const 12)))
        (drop (call $environ (i32.const 16) (i32.const 20)))
        (i32.store (i32.const 24) (call $read (i32.const 0) (i32.const 1040) (i32.const 1) (i32.const 28)))");
    let told: Vec<u32> = (0..8).map(|word| u32_at(&bytes, 4 * word)).collect();
    assert_eq!(told, [8, 8, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn leaving_the_process_traps() {
    let node = sandbox().load(&node("(call $exit (i32.const 0))")).expect("it is a component");
    let (ended, _) = call(&node, "{}", limits(), FakeHost::new(Reply::Echo));
    check_trap(&ended, "unreachable");
}
