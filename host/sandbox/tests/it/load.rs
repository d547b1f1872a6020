//! What is refused before it runs, and in which words.

use twice_sandbox::{SandboxError, componentize};

use crate::hostile::component;
use crate::support::{built, sandbox};

#[track_caller]
fn check(bytes: &[u8], expected: &[&str]) -> SandboxError {
    let error = sandbox().load(bytes).map(|component| component.inspection()).unwrap_err();
    let text = error.to_string();
    for part in expected {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    error
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the test's own text is right")
}

#[test]
fn a_good_node_is_described() {
    let bytes = built("refund");
    let node = sandbox().load(&bytes).expect("it is a component");
    let inspection = node.inspection();
    assert_eq!(inspection.digest.len(), "sha256:".len() + 64);
    assert_eq!(node.digest(), inspection.digest);
    assert_eq!(inspection.bytes, bytes.len() as u64);
    assert_eq!(inspection.imports, ["twice:node/effects@0.1.0", "twice:node/log@0.1.0"]);
    assert_eq!(inspection.exports, ["run"]);
    assert!(inspection.compiled_in.is_some());
}

#[test]
fn a_component_is_passed_through_componentizing() {
    let bytes = built("refund");
    assert_eq!(componentize(&bytes).unwrap(), bytes);
}

#[test]
fn what_is_no_component() {
    let node = built("refund");
    check(b"", &["it is empty"]);
    check(b"\x7fELF....", &["does not start with the WebAssembly header"]);
    check(b" (component)", &["it is WebAssembly text", "wasm-tools parse"]);
    check(b"\0asm\x0d", &["was the file cut off?"]);
    check(&node[..node.len() / 2], &["it is damaged"]);
    check(
        &wat("(module)"),
        &["without component metadata", "wasm-tools component embed", "target/twice"],
    );
    check(&wat(r#"(module (@custom "component-type:x" "rubbish"))"#), &["does not fit the world"]);
    let mut flipped = node.clone();
    flipped[node.len() / 3] ^= 0xff;
    // Damage may fall into a constant, where nothing can find it; it must never do worse than that.
    drop(sandbox().load(&flipped).map(|component| component.inspection()));
}

#[test]
fn what_is_too_big() {
    let error = check(&vec![0; (64 << 20) + 1], &["67108865 bytes", "the limit is 67108864"]);
    assert!(matches!(error, SandboxError::TooBig { .. }));
}

#[test]
fn imports_that_are_not_offered_are_all_named() {
    let error = check(
        &wat(r#"(component
            (import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "now" (func (result u64)))))
            (import "wasi:clocks/monotonic-clock@0.3.0" (instance (export "now" (func (result u64)))))
            (import "wasi:keyvalue/store@0.2.0" (instance (export "open" (func))))
            (import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func))))
            (import "twice:node/effects@0.2.0" (instance (export "request" (func))))
            (import "twice:node/secrets@0.1.0" (instance (export "read" (func))))
            (import "twice:node/log@0.1.9" (instance (export "flush" (func))))
            (import "helper" (func)))"#),
        &[
            "`wasi:clocks/monotonic-clock@0.3.0`: of WASI, this host offers version 0.2",
            "`wasi:keyvalue/store@0.2.0`: of WASI",
            "`wasi:http/outgoing-handler@0.2.0`: a node never has a network",
            "`twice:node/effects@0.2.0`: the interface is known, but not in this version; this host offers `twice:node/effects@0.1.0`",
            "`twice:node/secrets@0.1.0`: twice:node has no such interface",
            "`twice:node/log@0.1.9`: it has no function `flush` here; this host offers write",
            "`helper`: a function, which a node cannot import",
        ],
    );
    let SandboxError::UnknownImports { unknown } = error else { panic!("{error:?}") };
    assert_eq!(unknown.len(), 7);
}

#[test]
fn a_known_import_of_another_type_is_refused() {
    let error = check(
        &component(
            r#"(import "twice:node/context@0.1.0" (instance $context (export "now" (func (result string)))))"#,
            "",
            "unreachable",
        ),
        &["now", "guest-sdk/wit"],
    );
    assert!(matches!(error, SandboxError::UnknownImports { .. }));
}

#[test]
fn run_must_be_there_with_its_type() {
    let lifted = |ty: &str, core: &str| {
        wat(&format!(
            r#"(component
                (core module $m
                    (memory (export "memory") 1)
                    (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
                    (func (export "run") {core} unreachable))
                (core instance $i (instantiate $m))
                (alias core export $i "memory" (core memory $memory))
                (alias core export $i "realloc" (core func $realloc))
                (alias core export $i "run" (core func $core))
                (func $run {ty}
                    (canon lift (core func $core) (memory (core memory $memory)) (realloc (core func $realloc))))
                (export "run" (func $run)))"#
        ))
    };
    check(&wat("(component)"), &["it exports nothing", "twice_node::node!"]);
    check(
        &wat(
            r#"(component (component $c) (instance $i (instantiate $c)) (export "wasi:cli/run@0.2.0" (instance $i)))"#,
        ),
        &["it exports only `wasi:cli/run@0.2.0`"],
    );
    check(
        &wat(
            r#"(component (component $c) (instance $i (instantiate $c)) (export "run" (instance $i)))"#,
        ),
        &["its `run` is a interface"],
    );
    check(&lifted("", ""), &["its `run` is `func()`"]);
    check(
        &lifted(r#"(param "input" string) (result string)"#, "(param i32 i32) (result i32)"),
        &["`func(input: string) -> string`", "retryable(string), fatal(string)"],
    );
    let error = check(
        &lifted(
            r#"(param "input" (list u8)) (result (result string (error string)))"#,
            "(param i32 i32) (result i32)",
        ),
        &["`func(input: list<u8>) -> result<string, string>`"],
    );
    assert!(matches!(error, SandboxError::NoRun { .. }));
}
