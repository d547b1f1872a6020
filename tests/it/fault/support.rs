//! The tool under test, and the one way in which a row of a table is checked.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use twice::tool::http::{HttpConfig, HttpDriver};
use twice::tool::secret::FixedSecrets;
use twice::tool::{Call, Driver, Gate};
use twice_core::contract::{Contract, KeyContract, Replay, RetentionBasis, Retry};
use twice_core::identity::KeyFormat;
use twice_core::ids::{EffectId, Name, RunId};
use twice_core::outcome::{Declarations, Exchange, FaultKind, Sent, Verdict, classify};
use twice_core::redact::Redactor;
use twice_tests::fault::{Authority, FaultServer, Script, Seen, TlsServer};
use twice_workflow::model::{
    HttpRequest, HttpTool, KeyCarrier, Operation, Part, Template, Text, Tool, ToolKind,
};

/// Total time of one attempt in these tests; long enough for a busy machine, short enough to wait for in full.
pub(super) const TIMEOUT_MS: u64 = 1_000;
/// Largest response body in these tests.
pub(super) const BODY_MAX: u64 = 4_096;

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(super) fn literal(text: &str) -> Text {
    Text(vec![Part::Literal(text.to_owned())])
}

pub(super) fn reference(pointer: &str) -> Text {
    Text(vec![Part::Reference(pointer.to_owned())])
}

pub(super) fn value_at(pointer: &str) -> Template {
    Template::Reference { pointer: pointer.to_owned(), optional: false }
}

/// `POST /refunds` with the amount and our reference, under an idempotency key.
pub(super) fn operation() -> Operation {
    Operation {
        args_schema: json!({}),
        incidental: Vec::new(),
        request: HttpRequest {
            method: "POST".to_owned(),
            path: vec![literal("refunds")],
            query: BTreeMap::new(),
            headers: BTreeMap::new(),
            body: Some(Template::Object(BTreeMap::from([
                ("amount".to_owned(), value_at("/args/amount")),
                ("reference".to_owned(), value_at("/effect_id")),
            ]))),
        },
        key_carrier: Some(KeyCarrier {
            header: Some("Idempotency-Key".to_owned()),
            quoted: false,
            format: KeyFormat::Uuid,
        }),
        lookup: None,
        webhook: None,
        response_schema: Some(json!({ "type": "object", "required": ["id"] })),
        declarations: Declarations::default(),
        contract: Contract {
            read: false,
            key: None,
            lookup: None,
            settle_ms: 1_000,
            timeout_ms: TIMEOUT_MS,
            retry: Retry { attempts: 3, initial_ms: 10, max_ms: 100 },
            horizon_ms: 60_000,
            settled_here: false,
        },
        connect_timeout_ms: 500,
        response_bytes_max: BODY_MAX,
    }
}

pub(super) fn key_contract() -> KeyContract {
    KeyContract {
        retention_ms: 86_400_000,
        basis: RetentionBasis::FirstSend,
        replay: Replay::FirstAnswer,
    }
}

/// A driver with its tool, as the executor would hold them.
pub(super) struct Bench {
    pub(super) driver: HttpDriver,
    pub(super) redactor: Arc<RwLock<Redactor>>,
    pub(super) tool: Tool,
    pub(super) operation: Operation,
    pub(super) args: Value,
    effect: EffectId,
    run: RunId,
    _root: TempDir,
}

impl Bench {
    /// `ca` is trusted beside the system's roots; without one, a stranger is, so that no test needs the system to have any.
    pub(super) fn new(base_url: &str, operation: Operation, ca: Option<&Authority>) -> Self {
        Self::with_secrets(base_url, operation, ca, &[])
    }

    pub(super) fn with_secrets(
        base_url: &str,
        operation: Operation,
        ca: Option<&Authority>,
        secrets: &[(&str, &str)],
    ) -> Self {
        let root = tempfile::tempdir().unwrap();
        let pem = ca.map_or_else(|| Authority::new().pem(), Authority::pem);
        std::fs::write(root.path().join("ca.pem"), pem).unwrap();
        let redactor = Arc::new(RwLock::new(Redactor::default()));
        let driver = HttpDriver::new(HttpConfig {
            secrets: Arc::new(FixedSecrets::new(
                secrets.iter().map(|(name, value)| (format!("env:{name}"), (*value).to_owned())),
            )),
            redactor: Arc::clone(&redactor),
            root: root.path().to_owned(),
        });
        let tool = Tool {
            name: name("payments"),
            version: "1".to_owned(),
            model: false,
            wit: None,
            webhook: None,
            kind: ToolKind::Http(HttpTool {
                base_url: base_url.to_owned(),
                secrets: secrets
                    .iter()
                    .map(|(secret, _)| (name(&secret.to_lowercase()), format!("env:{secret}")))
                    .collect(),
                ca_file: Some("ca.pem".to_owned()),
                rate_per_second: None,
                concurrency: None,
            }),
            operations: BTreeMap::from([(name("refund"), operation.clone())]),
        };
        Self {
            driver,
            redactor,
            tool,
            operation,
            args: json!({ "amount": 4200 }),
            effect: EffectId::parse(format!("eff_{}", "a".repeat(52))).unwrap(),
            run: RunId::parse("run-1").unwrap(),
            _root: root,
        }
    }

    pub(super) fn http(&mut self) -> &mut HttpTool {
        let ToolKind::Http(http) = &mut self.tool.kind;
        http
    }

    pub(super) fn call(&self) -> Call<'_> {
        Call {
            tool: &self.tool,
            operation: &self.operation,
            args: &self.args,
            key: "0f0e0d0c-0b0a-8908-8706-050403020100",
            effect: &self.effect,
            run: &self.run,
        }
    }

    /// Prepares and sends once, with a lease that is long enough.
    pub(super) async fn send(&self) -> Exchange {
        self.send_before(Instant::now() + Duration::from_secs(60)).await
    }

    pub(super) async fn send_before(&self, before: Instant) -> Exchange {
        self.send_through(Gate::until(before)).await
    }

    pub(super) async fn send_through(&self, gate: Gate) -> Exchange {
        let prepared = self.driver.prepare(&self.call()).unwrap();
        self.driver.send(prepared.request, gate).await
    }
}

/// How an exchange ends, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With an answer of that status.
    Status(u16),
    /// Without an answer.
    Fault(FaultKind),
    /// With a head of that status, but not with its body.
    BodyFault(FaultKind, u16),
}

impl End {
    pub(super) fn of(exchange: &Exchange) -> Self {
        match &exchange.result {
            Ok(answer) => Self::Status(answer.status),
            Err(fault) => match fault.status {
                Some(status) => Self::BodyFault(fault.kind, status),
                None => Self::Fault(fault.kind),
            },
        }
    }
}

/// One line of the tables of outcomes.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) script: Script,
    pub(super) end: End,
    /// The verdict on an operation that declares nothing.
    pub(super) verdict: Verdict,
    /// The classifier's rule that says so.
    pub(super) rule: String,
}

impl Row {
    pub(super) fn new(name: &'static str, script: Script, end: End, verdict: Verdict) -> Self {
        let rule = match end {
            End::Status(status) => format!("http.{status}"),
            End::Fault(kind) | End::BodyFault(kind, _) => format!("transport.{}", word(kind)),
        };
        Self { name, script, end, verdict, rule }
    }

    /// The same, by another rule than the one that the end suggests.
    pub(super) fn by(self, rule: &str) -> Self {
        Self { rule: rule.to_owned(), ..self }
    }
}

/// The word for a fault in the name of its rule.
const fn word(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Build => "build",
        FaultKind::Secret => "secret",
        FaultKind::Dns => "dns",
        FaultKind::Connect => "connect",
        FaultKind::ConnectTimeout => "connect_timeout",
        FaultKind::Tls => "tls",
        FaultKind::LeaseTooShort => "lease_too_short",
        FaultKind::Timeout => "timeout",
        FaultKind::ClosedBeforeHead => "closed_before_head",
        FaultKind::Write => "write",
        FaultKind::RefusedStream => "refused_stream",
        FaultKind::StreamReset => "stream_reset",
        FaultKind::Parse => "parse",
        FaultKind::BodyTruncated => "body_truncated",
        FaultKind::BodyTimeout => "body_timeout",
        FaultKind::Abandoned => "abandoned",
        FaultKind::Other => "other",
    }
}

/// A server behind plain TCP, and the same behind TLS with a `ca_file`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Plain,
    Tls,
}

pub(super) const TRANSPORTS: [Transport; 2] = [Transport::Plain, Transport::Tls];

/// Runs a future on a runtime of its own.
pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Sends once to a server that follows `script`.
pub(super) async fn exchange_with(
    transport: Transport,
    ca: &Authority,
    tls: TlsServer,
    operation: Operation,
    script: Script,
) -> (Exchange, Seen) {
    let tls = match transport {
        Transport::Plain => None,
        Transport::Tls => Some(tls),
    };
    let server = FaultServer::start(tls, vec![script]).await;
    let bench = Bench::new(&server.url(), operation, Some(ca));
    let exchange = bench.send().await;
    (exchange, server.finish().await)
}

/// One send, one row: how it ends, that nothing was sent twice, and that "not sent" is claimed exactly where it is true.
#[track_caller]
pub(super) fn check(row: &Row, operation: &Operation) {
    let ca = Authority::new();
    for transport in TRANSPORTS {
        let (exchange, seen) = run(exchange_with(
            transport,
            &ca,
            ca.server("localhost"),
            operation.clone(),
            row.script.clone(),
        ));
        check_exchange(row, &format!("{transport:?}"), &exchange);
        assert_eq!(seen.connections, 1, "{} over {transport:?}: connections", row.name);
        assert!(seen.requests.len() <= 1, "{} over {transport:?}: {seen:?}", row.name);
    }
}

#[track_caller]
pub(super) fn check_exchange(row: &Row, over: &str, exchange: &Exchange) {
    let context = format!("{} over {over} ({}): {exchange:?}", row.name, row.rule);
    assert_eq!(End::of(exchange), row.end, "{context}");
    let outcome = classify(exchange, &Declarations::default(), &Value::Null, true);
    assert_eq!(
        (outcome.verdict, outcome.rule.0.as_str()),
        (row.verdict, row.rule.as_str()),
        "{context}"
    );
    let not_sent = row.verdict == Verdict::NotSent;
    assert_eq!(exchange.sent == Sent::Nothing, not_sent, "{context}");
}
