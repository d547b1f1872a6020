//! A provider made of the project's own tool files: it keeps the promises that they declare, and not one more. Its books
//! are its own; the ledger is checked against them. It runs in the process that is never killed.

mod answer;
mod books;
mod instance;
mod unify;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use twice_core::ids::Name;
use twice_core::limits::PAYLOAD_BYTES_MAX;
use twice_core::time::Timestamp;
use twice_workflow::model::{HttpTool, Tool, ToolKind};
use url::form_urlencoded;

pub use self::books::{Books, Commit, Mark, Seen};

use self::answer::{Offer, look_up, perform};
use self::instance::Reply;
use self::unify::{Received, unify};

/// Answers by `tool.operation`, in place of those made from schemas.
pub type Examples = BTreeMap<String, Value>;

/// What the provider is told beyond the declarations, by `tool.operation`.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// Answers in place of those made from schemas.
    pub examples: Examples,
    /// Operations that are refused for good.
    pub refuse: BTreeSet<String>,
}

/// The running provider, for all cases of a test.
pub struct Provider {
    shared: Arc<Shared>,
    port: u16,
    serving: JoinHandle<()>,
}

struct Shared {
    tools: BTreeMap<Name, Tool>,
    script: Script,
    cases: Mutex<BTreeMap<String, Arc<Case>>>,
}

/// One case's provider.
pub struct Case {
    books: Mutex<Books>,
    held: Notify,
}

impl Case {
    /// The books, to be read or set.
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when an answer is being held back.
    pub async fn held(&self) {
        self.held.notified().await;
    }
}

impl Provider {
    /// Starts listening on this machine alone.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(tools: BTreeMap<Name, Tool>, script: Script) -> std::io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared { tools, script, cases: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It ends with the test; that it cannot listen any more shows in every case.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { shared, port, serving })
    }

    /// Opens the books of a case.
    #[must_use]
    pub fn open(&self, case: &str, books: Books) -> Arc<Case> {
        let opened = Arc::new(Case { books: Mutex::new(books), held: Notify::new() });
        lock(&self.shared.cases).insert(case.to_owned(), Arc::clone(&opened));
        opened
    }

    /// Where the case's worker says what time it is.
    #[must_use]
    pub fn clock_url(&self, case: &str) -> String {
        format!("http://127.0.0.1:{}/{case}/{CLOCK}", self.port)
    }

    /// The tool as the case's worker is to see it: at this provider, and without anything of the real one's connection.
    #[must_use]
    pub fn in_place_of(&self, case: &str, tool: &Tool) -> Tool {
        let mut tool = tool.clone();
        let ToolKind::Http(HttpTool { base_url, ca_file, rate_per_second, concurrency, .. }) =
            &mut tool.kind;
        *base_url = format!("http://127.0.0.1:{}/{case}/{}", self.port, tool.name);
        *ca_file = None;
        (*rate_per_second, *concurrency) = (None, None);
        tool
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The path under which a worker tells the time; no tool can have this name.
const CLOCK: &str = "_clock";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    let mut segments = path.split('/').map(decoded);
    let (Some(case), Some(place)) = (segments.next(), segments.next()) else {
        return plain(StatusCode::NOT_FOUND);
    };
    let Some(case) = lock(&shared.cases).get(&case).cloned() else {
        return plain(StatusCode::NOT_FOUND);
    };
    if place == CLOCK {
        let now = segments.next().and_then(|text| text.parse().ok());
        return match now {
            Some(now) => {
                let mut books = case.books();
                books.now = books.now.max(Timestamp(now));
                plain(StatusCode::NO_CONTENT)
            }
            None => plain(StatusCode::BAD_REQUEST),
        };
    }
    let segments: Vec<String> = segments.collect();
    let Some(received) = receive(request, segments).await else {
        case.books().problems.push(format!("a request to {path} could not be read"));
        return plain(StatusCode::BAD_REQUEST);
    };
    let tool = Name::parse(place).ok().and_then(|name| shared.tools.get(&name));
    let answered = tool.and_then(|tool| serve(&shared.script, tool, &received, &case));
    match answered {
        Some((_, true)) => {
            case.held.notify_one();
            // The sender is killed meanwhile, and the connection with it.
            std::future::pending().await
        }
        Some((reply, false)) => response(reply),
        None => {
            let problem =
                format!("{} {path} is no request of any declared operation", received.method);
            case.books().problems.push(problem);
            plain(StatusCode::NOT_FOUND)
        }
    }
}

/// Finds the operation that a request is made by, and lets it answer.
fn serve(script: &Script, tool: &Tool, received: &Received, case: &Case) -> Option<(Reply, bool)> {
    let mut books = case.books();
    let mut nothing = None;
    for (name, operation) in &tool.operations {
        let name = format!("{}.{name}", tool.name);
        let offer = Offer {
            name: &name,
            operation,
            example: script.examples.get(&name),
            refused: script.refuse.contains(&name),
        };
        if let Some(bound) = unify(&operation.request, &operation.args_schema, received) {
            return Some(perform(&offer, &bound, received, &mut books));
        }
        let Some(lookup) = &operation.lookup else { continue };
        if let Some(bound) = unify(&lookup.request, &operation.args_schema, received) {
            let before = books.commits.iter().filter(|commit| commit.operation == name).count();
            let reply = look_up(&offer, lookup, &bound, &mut books);
            if before > 0 {
                return Some((reply, false));
            }
            // Operations may share one route for their lookups; another of them may have something to show.
            nothing.get_or_insert((reply, false));
        }
    }
    nothing
}

async fn receive(request: Request, segments: Vec<String>) -> Option<Received> {
    let (head, body) = request.into_parts();
    let query = head.uri.query().unwrap_or_default();
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let headers = head
        .headers
        .iter()
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        })
        .collect();
    let bytes = axum::body::to_bytes(body, PAYLOAD_BYTES_MAX).await.ok()?;
    let body = if bytes.is_empty() { None } else { Some(serde_json::from_slice(&bytes).ok()?) };
    Some(Received { method: head.method.to_string(), segments, query, headers, body })
}

/// A path segment as it was meant.
fn decoded(segment: &str) -> String {
    // `+` stands for itself in a path; the decoder of forms would read a space.
    let escaped = format!("x={}", segment.replace('+', "%2B").replace('&', "%26"));
    form_urlencoded::parse(escaped.as_bytes())
        .next()
        .map(|(_, v)| v.into_owned())
        .unwrap_or_default()
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn response(reply: Reply) -> Response<Body> {
    let Reply { status, headers, body } = reply;
    let mut response = plain(StatusCode::from_u16(status).unwrap_or(StatusCode::IM_A_TEAPOT));
    if let Some(body) = body {
        *response.body_mut() = Body::from(body.to_string());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert("content-type", json);
    }
    for (name, value) in headers {
        let name = axum::http::HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
