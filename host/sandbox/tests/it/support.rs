//! Built nodes, and a host that answers as told.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use twice_sandbox::{
    CallLimits, Component, EffectAnswer, EffectRequest, Ended, Host, LogLevel, Position, Sandbox,
    SandboxConfig, Suspend,
};
use twice_toolchain::{BuildError, Language};

/// How the host answers requests.
#[derive(Clone)]
pub(crate) enum Reply {
    /// A receipt whose body is the args.
    Echo,
    /// A receipt with this body.
    Body(String),
    Failed,
    Denied,
    Suspend,
    /// As `Echo` so many times, then as `Suspend`.
    EchoThenSuspend(usize),
    /// Never.
    Hang,
    /// One answer too few.
    TooFew,
    /// A receipt, once so many requests wait at the same time.
    Together(Arc<Barrier>),
}

/// Remembers what it was asked.
pub(crate) struct FakeHost {
    pub(crate) reply: Reply,
    pub(crate) attempt: u32,
    pub(crate) requests: Vec<EffectRequest>,
    /// How many requests each call had.
    pub(crate) batches: Vec<usize>,
    pub(crate) log: Vec<(LogLevel, String)>,
    now: u64,
    random: u8,
}

impl FakeHost {
    pub(crate) fn new(reply: Reply) -> Self {
        let (requests, batches, log) = Default::default();
        Self { reply, attempt: 1, requests, batches, log, now: 1_700_000_000_000, random: 0 }
    }

    /// With other random bytes.
    pub(crate) fn seeded(self, random: u8) -> Self {
        Self { random, ..self }
    }

    /// At another time, in milliseconds.
    pub(crate) fn at(self, now: u64) -> Self {
        Self { now, ..self }
    }
}

#[async_trait]
impl Host for FakeHost {
    async fn request(
        &mut self,
        requests: Vec<EffectRequest>,
    ) -> Result<Vec<EffectAnswer>, Suspend> {
        self.requests.extend(requests.iter().cloned());
        self.batches.push(requests.len());
        self.now += 1;
        let receipt = |request: &EffectRequest, body: String| EffectAnswer::Receipt {
            effect_id: format!("eff_{}", request.slot),
            body,
        };
        let each =
            |answer: &dyn Fn(&EffectRequest) -> EffectAnswer| requests.iter().map(answer).collect();
        match &self.reply {
            Reply::Echo => Ok(each(&|request| receipt(request, request.args.clone()))),
            Reply::Body(body) => Ok(each(&|request| receipt(request, body.clone()))),
            Reply::Failed => Ok(each(&|_| EffectAnswer::Failed {
                code: "card_declined".to_owned(),
                message: "the card was declined".to_owned(),
            })),
            Reply::Denied => Ok(each(&|_| EffectAnswer::Denied {
                policy: "args.amount_cents <= 100".to_owned(),
                message: "too much".to_owned(),
            })),
            Reply::Suspend => Err(Suspend),
            Reply::EchoThenSuspend(times) if self.batches.len() > *times => Err(Suspend),
            Reply::EchoThenSuspend(_) => {
                Ok(each(&|request| receipt(request, request.args.clone())))
            }
            Reply::Hang => std::future::pending().await,
            Reply::TooFew => Ok(Vec::new()),
            Reply::Together(barrier) => {
                barrier.wait().await;
                Ok(requests.iter().map(|request| receipt(request, "null".to_owned())).collect())
            }
        }
    }

    fn refused(&mut self, slot: &str, policy: &'static str, message: &str) {
        self.log.push((LogLevel::Warn, format!("refused {slot} by {policy}: {message}")));
    }

    fn position(&self) -> Position {
        Position {
            run: "run_1".to_owned(),
            node: "conformance".to_owned(),
            visit: 2,
            attempt: self.attempt,
        }
    }

    fn now_ms(&mut self) -> u64 {
        self.now
    }

    fn random(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.random = self.random.wrapping_mul(29).wrapping_add(7);
                self.random
            })
            .collect()
    }

    fn log(&mut self, level: LogLevel, message: &str) {
        self.log.push((level, message.to_owned()));
    }
}

pub(crate) fn limits() -> CallLimits {
    CallLimits {
        memory_bytes: 64 << 20,
        time: Duration::from_secs(20),
        effects: 10,
        payload_bytes: 64 << 10,
        log_bytes: 64 << 10,
    }
}

/// The sandbox that all tests of a process share; without a cache.
pub(crate) fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        Sandbox::new(&SandboxConfig::default()).expect("this machine runs WebAssembly")
    })
}

pub(crate) fn nodes_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../nodes")
}

/// The component of the node in `nodes/<folder>`, or `None` where the tools of its language are missing: it is said, and in CI
/// a failure.
pub(crate) fn language_node(language: Language, folder: &Path) -> Option<Vec<u8>> {
    match twice_toolchain::build(&nodes_dir().join(folder), &mut |line| println!("{line}")) {
        Ok(built) => {
            assert_eq!(built.language, language);
            Some(built.component)
        }
        Err(error @ BuildError::NoTool { .. }) if std::env::var_os("CI").is_none() => {
            eprintln!("LEFT OUT: nodes in {}: {error}", language.word());
            None
        }
        Err(error) => panic!("{}: {error}", folder.display()),
    }
}

/// The bytes of a node of this repository.
pub(crate) fn built(name: &str) -> Vec<u8> {
    twice_toolchain::build(&nodes_dir().join(name), &mut |line| println!("{line}"))
        .expect("the nodes of this repository build")
        .component
}

pub(crate) fn conformance() -> Component {
    static NODE: OnceLock<Component> = OnceLock::new();
    NODE.get_or_init(|| sandbox().load(&built("conformance")).expect("it is a component")).clone()
}

/// Runs `future` on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built")
        .block_on(future)
}

/// Calls `run` once and gets the host back.
pub(crate) fn call(
    component: &Component,
    input: &str,
    limits: CallLimits,
    host: FakeHost,
) -> (Ended, FakeHost) {
    let (ended, host) = block_on(sandbox().run(component, input, limits, Box::new(host)));
    let host: Box<dyn Any> = host;
    (ended, *host.downcast::<FakeHost>().expect("it is the host that went in"))
}

/// The state of a run whose input lists `steps` for the conformance node.
pub(crate) fn plan(steps: &Value) -> String {
    plan_of(&json!({ "steps": steps }))
}

/// The state of a run with that input.
pub(crate) fn plan_of(input: &Value) -> String {
    json!({ "input": input, "nodes": {} }).to_string()
}

/// Has the conformance node do `steps`.
pub(crate) fn act(steps: &Value, limits: CallLimits, host: FakeHost) -> (Ended, FakeHost) {
    call(&conformance(), &plan(steps), limits, host)
}

#[track_caller]
pub(crate) fn returned(ended: &Ended) -> Value {
    match ended {
        Ended::Returned(text) => serde_json::from_str(text).expect("the output is JSON"),
        Ended::Retryable(_)
        | Ended::Fatal(_)
        | Ended::Suspended
        | Ended::Trapped { .. }
        | Ended::Limit { .. } => panic!("not returned: {ended:?}"),
    }
}

#[track_caller]
pub(crate) fn check_limit(ended: &Ended, expected: &str, in_words: &str) {
    match ended {
        Ended::Limit { limit, message } => {
            assert_eq!(*limit, expected, "{message}");
            assert!(message.contains(in_words), "`{in_words}` is not in: {message}");
        }
        Ended::Returned(_)
        | Ended::Retryable(_)
        | Ended::Fatal(_)
        | Ended::Suspended
        | Ended::Trapped { .. } => panic!("no limit: {ended:?}"),
    }
}

#[track_caller]
pub(crate) fn check_trap(ended: &Ended, in_words: &str) {
    match ended {
        Ended::Trapped { message } => {
            assert!(message.contains(in_words), "`{in_words}` is not in: {message}");
        }
        Ended::Returned(_)
        | Ended::Retryable(_)
        | Ended::Fatal(_)
        | Ended::Suspended
        | Ended::Limit { .. } => panic!("no trap: {ended:?}"),
    }
}

/// How much memory of this process is in use. KiB.
pub(crate) fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
