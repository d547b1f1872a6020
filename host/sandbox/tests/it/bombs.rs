//! Components that try to hurt whoever loads them: by their size, their shape, or the time it takes to compile them.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use twice_sandbox::{CompilerProgram, FIXED_LIMITS, Sandbox, SandboxConfig, SandboxError};

use crate::hostile::component;
use crate::support::{FakeHost, Reply, block_on, limits, resident_kib, sandbox};

#[track_caller]
fn check_limit(error: &SandboxError, expected: &str, in_words: &str) {
    let text = error.to_string();
    match error {
        SandboxError::Limit { limit, .. } => assert_eq!(*limit, expected, "{text}"),
        other => panic!("no limit: {other:?}"),
    }
    assert!(text.contains(in_words), "`{in_words}` is not in: {text}");
}

fn refusal(bytes: &[u8]) -> SandboxError {
    sandbox().load(bytes).map(|component| component.inspection()).unwrap_err()
}

/// Refused by that limit, with its value, soon, and without much memory.
#[track_caller]
fn check(bytes: &[u8], limit: &str) {
    let value = FIXED_LIMITS.iter().find(|known| known.name == limit).expect("it is listed").value;
    let (before, begun) = (resident_kib(), Instant::now());
    check_limit(&refusal(bytes), limit, &value.to_string());
    let more = resident_kib().saturating_sub(before);
    assert!(more < 300 << 10, "{more} KiB more");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

fn wat(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

/// An unsigned number as WebAssembly writes it.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id], leb(content.len()).as_slice(), content].concat()
}

const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const MODULE: &[u8] = b"\0asm\x01\0\0\0";

#[test]
fn too_many_functions() {
    check(&component("", &"(func)".repeat(100_001), "(i32.const 0)"), "functions");
    // Of all modules together.
    let half = format!("(core module {})", "(func)".repeat(60_000));
    check(&component(&half, &"(func)".repeat(60_000), "(i32.const 0)"), "functions");
}

#[test]
fn a_function_that_is_too_large() {
    let body = "(drop (i32.const 1))".repeat(400_000);
    check(&component("", &format!("(func {body})"), "(i32.const 0)"), "function");
}

#[test]
fn too_many_locals() {
    // Four bytes of each function declare fifty thousand.
    let locals = format!("(func (local{}))", " i64".repeat(50_000));
    check(&component("", &locals.repeat(21), "(i32.const 0)"), "locals");
}

#[test]
fn too_many_parts() {
    check(&component(&"(core module)".repeat(300), "", "(i32.const 0)"), "modules");
    check(&component(&"(component)".repeat(300), "", "(i32.const 0)"), "components");
    let deep = "(component ".repeat(20) + &")".repeat(20);
    check(&component(&deep, "", "(i32.const 0)"), "nesting");
    let globals = "(global i32 (i32.const 0))".repeat(100_001);
    check(&component("", &globals, "(i32.const 0)"), "core items");
    check(&component("", &"(data \"\")".repeat(50_001), "(i32.const 0)"), "segments");
    // Each too far from the next for one image, in a memory of another module, or where that has yet to grow.
    let scattered = |step: u32, first: u32| {
        (0..60_000).fold(String::new(), |mut text, at| {
            _ = write!(text, "(data (memory 0) (i32.const {}) \"x\")", first + at * step);
            text
        })
    };
    let module = |text: &str| format!("(core module {text})");
    for data in [
        format!("(memory 1000){}", scattered(1_000, 0)),
        format!("(import \"\" \"\" (memory 1)) (memory 100) {}", scattered(1, 0)),
        format!("(memory 1){}", scattered(1, 10_000)),
    ] {
        check(&component(&module(&data), "", "(i32.const 0)"), "segments");
    }
    let image = format!("(memory 100){}", scattered(100, 0));
    sandbox().load(&component(&module(&image), "", "(i32.const 0)")).unwrap();
    check(&component(&module(&image).repeat(4), "", "(i32.const 0)"), "image segments");
    let elements = format!("(func $f) (elem func {})", "$f ".repeat(500_001));
    check(&component("", &elements, "(i32.const 0)"), "elements");
    let aliases = "(alias core export $memory \"memory\" (core memory))".repeat(50_001);
    let text = format!(
        "(component (core module $m (memory (export \"memory\") 1)) (core instance $memory (instantiate $m)) {aliases})"
    );
    check(&wat(&text), "items");
    let mut names = component("", "", "(i32.const 0)");
    let custom = [b"\x04name".as_slice(), &vec![0; 33 << 20]].concat();
    names.extend(section(0, &custom));
    check(&names, "custom sections");
}

#[test]
fn nested_components_by_the_thousand() {
    let mut bytes = COMPONENT.to_vec();
    for _ in 0..5_000 {
        bytes = [COMPONENT, &section(4, &bytes)].concat();
    }
    check(&bytes, "nesting");
}

#[test]
fn too_many_types() {
    let text = format!("(component {})", "(type (list u8))".repeat(10_001));
    check(&wat(&text), "types");
}

/// A type section with `depth` types of components within each other.
fn scopes(depth: usize) -> Vec<u8> {
    let mut types = vec![1];
    for _ in 0..depth {
        // A component type with one declaration, which is a type.
        types.extend([0x41, 1, 1]);
    }
    types.extend([0x41, 0]);
    section(7, &types)
}

#[test]
fn types_within_types_do_not_use_up_the_readers_stack() {
    check(&[COMPONENT, &scopes(5_000_000)].concat(), "type scopes");
    // As many as may be: whatever is wrong with them is said, on a stack like that of any thread.
    refusal(&[COMPONENT, &scopes(490)].concat());
    // A core module describes its world by a component in it.
    let name = b"\x10component-type:x";
    let world = [COMPONENT, &scopes(5_000_000)].concat();
    let module = [MODULE, &section(0, &[name, world.as_slice()].concat())].concat();
    check(&module, "type scopes");
}

#[test]
fn exponential_types_are_refused() {
    // Each type has the one before it twice.
    let mut text = "(component (type $t0 (tuple u8 u8))".to_owned();
    for level in 1..60 {
        _ = write!(text, "(type $t{level} (tuple $t{0} $t{0}))", level - 1);
    }
    let error = refusal(&wat(&(text + ")"))).to_string();
    assert!(error.contains("size"), "{error}");
}

#[test]
fn a_wide_type_of_run_is_told_in_a_few_words() {
    // Within all limits of types, its full name would have half a million words.
    let mut text = "(component (type $t0 (result u8 (error u8)))".to_owned();
    for level in 1..18 {
        _ = write!(text, "(type $t{level} (result $t{0} (error $t{0})))", level - 1);
    }
    text += r#"(core module $m (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
            (func (export "run") (result i32) unreachable))
        (core instance $i (instantiate $m))
        (alias core export $i "memory" (core memory $memory))
        (alias core export $i "run" (core func $core))
        (func $run (result $t17) (canon lift (core func $core) (memory (core memory $memory))))
        (export "run" (func $run)))"#;
    let error = refusal(&wat(&text)).to_string();
    assert!(error.contains("result<") && error.len() < 4_000, "{} bytes", error.len());
}

#[test]
fn what_the_engine_does_not_run_is_refused_before_compiling() {
    for inner in ["(memory i64 1)", "(memory 1 1 shared)", "(tag)"] {
        let error = refusal(&component("", inner, "(i32.const 0)"));
        assert!(matches!(error, SandboxError::NotAComponent { .. }), "{inner}: {error}");
    }
}

/// Takes a while to compile, whatever compiles it: many calls with many results each.
fn slow() -> Vec<u8> {
    let calls =
        "(i32.add (local.get 0) (i32.mul (local.get 1) (i32.load (local.get 0)))) local.set 0 "
            .repeat(8_000);
    let functions = format!("(func (param i32 i32) (result i32) {calls} (local.get 0))").repeat(12);
    component("", &functions, "(i32.const 0)")
}

fn with_time(compile_time: Duration, compiler: Option<CompilerProgram>) -> Sandbox {
    let config =
        SandboxConfig { instances_max: 2, compile_time, compiler, ..SandboxConfig::default() };
    Sandbox::new(&config).unwrap()
}

#[test]
fn a_compilation_that_takes_too_long_is_given_up_and_holds_nobody_up() {
    let sandbox = with_time(Duration::from_millis(40), None);
    let bomb = slow();
    let load = |bytes: &[u8]| sandbox.load(bytes).map(|component| component.inspection());
    check_limit(&load(&bomb).unwrap_err(), "compile time", "40 ms; it was given up");
    // It goes on in its thread, and is not begun again beside itself.
    check_limit(&load(&bomb).unwrap_err(), "compile time", "it did before");
    // Another gets the other place. (Each try may take long on a busy machine; that it gets its turn is what counts.)
    let harmless = component("", "", "(i32.const 0)");
    let begun = Instant::now();
    while load(&harmless).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody else gets a turn");
    }
}

#[cfg(unix)]
mod in_a_process {
    use super::*;

    fn shell(script: &str, time: Duration) -> Sandbox {
        let args = vec!["-c".to_owned(), script.to_owned()];
        with_time(time, Some(CompilerProgram { program: "/bin/sh".into(), args }))
    }

    #[track_caller]
    fn fails(script: &str, time: Duration) -> SandboxError {
        let bytes = component("", "", "(i32.const 0)");
        shell(script, time).load(&bytes).map(|component| component.inspection()).unwrap_err()
    }

    const AMPLE: Duration = Duration::from_secs(60);

    #[test]
    fn that_takes_too_long_is_ended() {
        let begun = Instant::now();
        let error = fails("exec sleep 600", Duration::from_millis(300));
        check_limit(&error, "compile time", "300 ms; it was ended");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }

    #[test]
    fn that_breaks_down_does_so_alone() {
        check_limit(&fails("kill -9 $$", AMPLE), "compile memory", "signal: 9");
        check_limit(&fails("cat > /dev/null; exit 3", AMPLE), "compile memory", "exit status: 3");
    }

    #[test]
    fn that_refuses_is_heard() {
        let error = fails("echo 'no such instruction' >&2; exit 1", AMPLE).to_string();
        assert_eq!(error, "the component cannot be compiled: no such instruction");
    }

    #[test]
    fn that_makes_rubbish_is_not_believed() {
        let error = fails("cat > /dev/null; echo rubbish", AMPLE).to_string();
        assert!(error.contains("does not load"), "{error}");
    }

    #[test]
    fn that_cannot_be_started_is_done_without() {
        let program = Some(CompilerProgram { program: "/nowhere/twice".into(), args: Vec::new() });
        let sandbox = with_time(AMPLE, program);
        let node = sandbox.load(&component("", "", "(i32.const 0)")).unwrap();
        let host = Box::new(FakeHost::new(Reply::Echo));
        let (ended, _) = block_on(sandbox.run(&node, "{}", limits(), host));
        assert_eq!(ended, twice_sandbox::Ended::Returned("{}".to_owned()));
    }
}
