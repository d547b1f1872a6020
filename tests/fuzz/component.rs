//! Components, as bytes and as text from which bytes are made: what loads is run.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use twice_sandbox::{
    CallLimits, EffectAnswer, EffectRequest, Ended, Host, LogLevel, Position, Sandbox,
    SandboxConfig, SandboxError, Suspend,
};

use crate::driver::Target;

/// A component whose `run` is BODY. Address 0 of its memory holds `ok("{}")`.
const NODE: &str = r#"(component
    (import "twice:node/log@0.1.0" (instance $log
        (type $level-type (enum "debug" "info" "warn" "error"))
        (export "level" (type $level (eq $level-type)))
        (export "write" (func (param "level" $level) (param "message" string)))
        (export "print" (func (param "level" $level) (param "text" (list u8))))))
    (import "twice:node/context@0.1.0" (instance $context
        (export "random-u64" (func (result u64)))
        (export "random" (func (param "count" u32) (result (list u8))))))
    (core module $memory (memory (export "memory") 2)
        (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
    (core instance $memory (instantiate $memory))
    (alias core export $memory "memory" (core memory $shared))
    (alias core export $memory "realloc" (core func $realloc))
    (alias export $log "write" (func $write-log))
    (alias export $log "print" (func $print-log))
    (alias export $context "random-u64" (func $random-context))
    (alias export $context "random" (func $bytes-context))
    (core func $write (canon lower (func $write-log) (memory (core memory $shared)) (realloc (core func $realloc))))
    (core func $print (canon lower (func $print-log) (memory (core memory $shared)) (realloc (core func $realloc))))
    (core func $random (canon lower (func $random-context)))
    (core func $bytes (canon lower (func $bytes-context) (memory (core memory $shared)) (realloc (core func $realloc))))
    (core instance $host (export "write" (func $write)) (export "print" (func $print)) (export "random" (func $random)) (export "bytes" (func $bytes)))
    (core module $m
        (import "memory" "memory" (memory 1))
        (import "host" "write" (func $write (param i32 i32 i32)))
        (import "host" "print" (func $print (param i32 i32 i32)))
        (import "host" "random" (func $random (result i64)))
        (import "host" "bytes" (func $bytes (param i32 i32)))
        (table $t 4 funcref)
        (global $g (mut i32) (i32.const 0))
        (data (i32.const 0) "\00\00\00\00\10\00\00\00\02\00\00\00")
        (data (i32.const 16) "{}")
        (func $again (result i32) (i32.add (call $again) (i32.const 1)))
        (func (export "run") (param i32 i32) (result i32) BODY))
    (core instance $i (instantiate $m (with "memory" (instance $memory)) (with "host" (instance $host))))
    (alias core export $i "run" (core func $run-core))
    (type $error-type (variant (case "retryable" string) (case "fatal" string)))
    (export $error "node-error" (type $error-type))
    (func $run (param "input" string) (result (result string (error $error)))
        (canon lift (core func $run-core) (memory (core memory $shared)) (realloc (core func $realloc))))
    (export "run" (func $run)))"#;

const BODIES: [&str; 8] = [
    "(i32.const 0)",
    "(loop $l (br $l)) (i32.const 0)",
    "(drop (call $again)) (i32.const 0)",
    "(drop (memory.grow (i32.const 100))) (memory.fill (i32.const 0) (i32.const 7) (i32.const 65536)) (i32.const 0)",
    "(call $write (i32.const 1) (i32.const 16) (i32.const 2)) (call $print (i32.const 3) (i32.const 0) (i32.const 4096)) (i32.const 0)",
    "(i64.store (i32.const 32) (call $random)) (call $bytes (i32.const 64) (i32.const 40)) (i32.const 0)",
    "(drop (table.grow $t (ref.null func) (i32.const 1000))) (call_indirect (result i32) (local.get 0))",
    "(i32.store (i32.const 0) (i32.const 1)) (i32.store (i32.const 4) (local.get 1)) (local.get 0)",
];

const DICTIONARY: &[&str] = &[
    "(loop (br 0))",
    "unreachable",
    "(call $again)",
    "(memory 65536)",
    "(memory.grow (i32.const 65535))",
    "(table 100000000 funcref)",
    "(table.grow $t (ref.null func) (i32.const 100000000))",
    "(i32.const -1)",
    "(i32.const 0x7fffffff)",
    "(local.get 0)",
    "(call $write (i32.const 9) (i32.const -4) (i32.const -1))",
    "(call $bytes (i32.const -1) (i32.const -1))",
    "(component)",
    "(core module)",
    "(core instance (instantiate $m))",
    "(type (list (list u8)))",
    "(func)",
    "(start 0)",
    "(export \"run\" (func $run))",
    "(import \"wasi:http/types@0.2.0\" (instance))",
    "(import \"wasi:cli/exit@0.2.0\" (instance (export \"exit\" (func (param \"status\" (result))))))",
    "(global v128 (v128.const i64x2 0 0))",
    "(elem func 0)",
    "(data \"\")",
    "async ",
    "string",
    "u64",
    "\0asm\x0d\0\x01\0",
    "\0asm\x01\0\0\0",
];

struct Nothing;

#[async_trait]
impl Host for Nothing {
    async fn request(&mut self, _: Vec<EffectRequest>) -> Result<Vec<EffectAnswer>, Suspend> {
        Err(Suspend)
    }

    fn refused(&mut self, _: &str, _: &'static str, _: &str) {}

    fn position(&self) -> Position {
        Position { run: "run-1".to_owned(), node: "n".to_owned(), visit: 1, attempt: 1 }
    }

    fn now_ms(&mut self) -> u64 {
        0
    }

    fn random(&mut self, count: usize) -> Vec<u8> {
        vec![7; count]
    }

    fn log(&mut self, _: LogLevel, _: &str) {}
}

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let config = SandboxConfig { instances_max: 2, ..SandboxConfig::default() };
        Sandbox::new(&config).expect("this machine runs WebAssembly")
    })
}

const LIMITS: CallLimits = CallLimits {
    memory_bytes: 16 << 20,
    time: Duration::from_millis(100),
    effects: 3,
    payload_bytes: 64 << 10,
    log_bytes: 8 << 10,
};

#[test]
fn component() {
    let texts = BODIES.map(|body| NODE.replace("BODY", body));
    // Each as text, so that what is mutated is a component still, and as bytes.
    let mut corpus: Vec<Vec<u8>> = texts.iter().map(|text| text.clone().into_bytes()).collect();
    corpus.extend(texts.iter().map(|text| wat::parse_str(text).unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = move |input: &[u8]| {
        let text =
            std::str::from_utf8(input).ok().filter(|text| text.trim_start().starts_with('('));
        let assembled = text.and_then(|text| wat::parse_str(text).ok());
        let bytes = assembled.as_deref().unwrap_or(input);
        match sandbox().load(bytes) {
            Ok(component) => {
                let begun = Instant::now();
                let host = Box::new(Nothing);
                let (ended, _) = runtime.block_on(sandbox().run(&component, "{}", LIMITS, host));
                // Its limit and what a busy machine adds to it.
                assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
                told(&ended)
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.len() < 100_000, "{} bytes of an error", text.len());
                assert!(!matches!(error, SandboxError::Engine { .. }), "{text}");
                text.lines().next().unwrap_or_default().to_owned()
            }
        }
    };
    Target { name: "component", corpus, dictionary: DICTIONARY, run: Box::new(run) }.fuzz(40_000);
}

fn told(ended: &Ended) -> String {
    match ended {
        Ended::Returned(_) => "returned".to_owned(),
        Ended::Retryable(_) => "retryable".to_owned(),
        Ended::Fatal(_) => "fatal".to_owned(),
        Ended::Suspended => "suspended".to_owned(),
        Ended::Trapped { message } => message.lines().next().unwrap_or_default().to_owned(),
        Ended::Limit { limit, message } => {
            assert!(!message.is_empty());
            (*limit).to_owned()
        }
    }
}
