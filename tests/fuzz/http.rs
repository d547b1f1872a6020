//! What a provider answers: any bytes at all.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twice::tool::http::{HttpConfig, HttpDriver};
use twice::tool::secret::FixedSecrets;
use twice::tool::{Call, Driver as _, Gate};
use twice_core::ids::{EffectId, Name, RunId};
use twice_core::outcome::{Body, Exchange, Sent, Verdict, classify};
use twice_core::redact::Redactor;
use twice_workflow::Project;
use twice_workflow::model::Tool;

use crate::driver::Target;

const TOOL: &str = r#"
tool = "payments"
version = "1"
kind = "http"
base_url = "http://ADDRESS"

[operation.refund]
args = { schema = "schemas/args.json" }
lookup = "none"
retry = { attempts = 5, initial = "500ms", max = "30s" }
timeout = "2s"
connect_timeout = "2s"
settle = "2s"
horizon = "24h"

[operation.refund.request]
method = "POST"
path = "/refunds"
body = { amount = "{/args/amount}", reference = "{/effect_id}" }

[operation.refund.key]
header = "Idempotency-Key"
format = "uuid"
retention = "24h"
basis = "first_send"
replay = "first_answer"
mismatch = [{ status = 422, pointer = "/error/code", equals = "reused" }]
in_flight = [{ status = 409 }]

[operation.refund.response]
schema = "schemas/refund.json"
external_id = "/id"
echo = { "/amount" = "/amount" }
refused = [{ status = 402 }]
not_processed = [{ status = 429 }]
"#;
const ARGS: &str = r#"{ "type": "object", "required": ["amount"] }"#;
const SCHEMA: &str = r#"{ "type": "object", "required": ["id", "amount"], "properties": { "id": { "type": "string" } } }"#;

const DICTIONARY: &[&str] = &[
    "HTTP/1.1 ",
    "HTTP/1.0 ",
    "HTTP/2 ",
    "100 Continue\r\n\r\n",
    "101 ",
    "200 OK\r\n",
    "201 Created\r\n",
    "202 \r\n",
    "204 \r\n",
    "301 \r\nlocation: http://localhost/\r\n",
    "400 ",
    "402 ",
    "409 ",
    "422 ",
    "429 ",
    "500 ",
    "999 ",
    "content-length: ",
    "transfer-encoding: chunked\r\n",
    "connection: close\r\n",
    "content-encoding: gzip\r\n",
    "retry-after: ",
    "\r\n",
    "\r\n\r\n",
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "{\"id\":\"re_1\",\"amount\":4200}",
    "\"id\"",
    "\"amount\":",
    "{\"error\":{\"code\":\"reused\"}}",
    "content-length: 18446744073709551615\r\n",
    "date: Mon, 30 Nov 2026 09:00:00 GMT\r\n",
    "\0",
    "[[[[[[[[",
];

/// A server that answers each connection with whatever is set, and hangs up.
struct Server {
    address: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::<Mutex<Vec<u8>>>::default();
        let told = Arc::clone(&answer);
        // Ends with the process.
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let answer = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A client that has heard enough goes away.
                _ = serve(connection, &answer);
            }
        });
        Self { address, answer }
    }
}

fn serve(mut connection: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    connection.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut request = Vec::new();
    let mut buffer = [0; 4_096];
    // Its body is the end of it: an object, whose last byte is a brace.
    while !request.ends_with(b"}") {
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&buffer[..count]),
        }
    }
    connection.write_all(answer)?;
    connection.shutdown(std::net::Shutdown::Write)?;
    // Until the client is gone: a reset would take back what it has not read.
    while connection.read(&mut buffer)? > 0 {}
    Ok(())
}

fn tool(address: SocketAddr) -> Tool {
    let files = BTreeMap::from(
        [
            ("twice.toml", "project = \"p\"\n".to_owned()),
            ("tools/payments.toml", TOOL.replace("ADDRESS", &address.to_string())),
            ("schemas/args.json", ARGS.to_owned()),
            ("schemas/refund.json", SCHEMA.to_owned()),
        ]
        .map(|(path, text)| (path.to_owned(), text)),
    );
    let project = Project::load(&files).unwrap_or_else(|found| {
        panic!("{}", found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    });
    project.tools[&Name::parse("payments").unwrap()].clone()
}

#[test]
fn http_answer() {
    let server = Server::start();
    let tool = tool(server.address);
    let driver = HttpDriver::new(HttpConfig {
        secrets: Arc::new(FixedSecrets::new([])),
        redactor: Arc::new(RwLock::new(Redactor::default())),
        root: std::env::temp_dir(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let args = json!({ "amount": 4_200 });
    let run = move |input: &[u8]| {
        *server.answer.lock().unwrap_or_else(PoisonError::into_inner) = input.to_vec();
        let exchange = runtime.block_on(send(&driver, &tool, &args));
        judge(&exchange, &tool, &args, input)
    };
    let good = |head: &str, body: &str| {
        format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let body = r#"{"id":"re_1","amount":4200}"#;
    let corpus = vec![
        good("201 Created", body),
        good("200 OK", r#"{"id":"re_1","amount":4100}"#),
        good("402 Payment Required", r#"{"error":{"code":"declined"}}"#),
        good("422 U", r#"{"error":{"code":"reused"}}"#),
        good("500 E", ""),
        good("202 A", body),
        good("429 T\r\nretry-after: 5", ""),
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1b\r\n{body}\r\n0\r\n\r\n")
            .into_bytes(),
        format!("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{body}").into_bytes(),
        b"HTTP/1.1 204 N\r\n\r\n".to_vec(),
        Vec::new(),
    ];
    Target { name: "http_answer", corpus, dictionary: DICTIONARY, run: Box::new(run) }.fuzz(8_000);
}

async fn send(driver: &HttpDriver, tool: &Tool, args: &Value) -> Exchange {
    let call = Call {
        tool,
        operation: &tool.operations[&Name::parse("refund").unwrap()],
        args,
        key: "0f0e0d0c-0b0a-8908-8706-050403020100",
        effect: &EffectId::parse(format!("eff_{}", "a".repeat(52))).unwrap(),
        run: &RunId::parse("run-1").unwrap(),
    };
    let prepared = driver.prepare(&call).unwrap();
    driver.send(prepared.request, Gate::until(Instant::now() + Duration::from_secs(60))).await
}

/// The server had the whole request before it said anything. So nothing may count as not sent; and nothing counts as done but
/// a whole answer that says so, with all that the operation's schema asks of a receipt.
fn judge(exchange: &Exchange, tool: &Tool, args: &Value, input: &[u8]) -> String {
    let operation = &tool.operations[&Name::parse("refund").unwrap()];
    let outcome = classify(exchange, &operation.declarations, args, true);
    let shown = || format!("{outcome:?}\nof {exchange:?}");
    assert_eq!(exchange.sent, Sent::Maybe, "{}", shown());
    assert_ne!(outcome.verdict, Verdict::NotSent, "{}", shown());
    if outcome.verdict == Verdict::Succeeded {
        let Ok(answer) = &exchange.result else { panic!("no answer: {}", shown()) };
        let Body::Json(body) = &answer.body else { panic!("no body: {}", shown()) };
        assert!(matches!(answer.status, 200 | 201), "{}", shown());
        assert_eq!(answer.schema_error, None, "{}", shown());
        let id = body["id"].as_str().filter(|id| !id.is_empty());
        assert_eq!(outcome.external_id.as_deref(), id, "{}", shown());
        // Empty lines before an answer are passed over (RFC 9112, section 2.2, asks it of servers, clients do it as well).
        let begins = input.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(0);
        assert!(id.is_some() && input[begins..].starts_with(b"HTTP/1."), "{}", shown());
        assert!(outcome.discrepancy.is_some() || body["amount"] == args["amount"], "{}", shown());
    }
    if outcome.verdict == Verdict::Rejected {
        // A status can be a refusal by itself, whatever becomes of the body.
        let status = match &exchange.result {
            Ok(answer) => Some(answer.status),
            Err(fault) => fault.status,
        };
        assert!(status.is_some_and(|status| status >= 400), "{}", shown());
    }
    format!("{:?} {} {}", outcome.verdict, outcome.rule, outcome.truncated)
}
