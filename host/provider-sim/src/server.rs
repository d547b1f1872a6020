//! The routes of the services, and what all of them share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{HeaderMap, header, request::Parts};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use futures_util::StreamExt;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::connection::Connection;
use crate::control;
use crate::keys::{self, InFlight};
use crate::limits::{REFUSED_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::lookup::{self, Kind, Question};
use crate::operation::Operation;
use crate::perform::{Call, perform};
use crate::replier::Replier;
use crate::reply::{Answer, Reply};
use crate::store::{Arrival, Store, StoreError};
use crate::switches::Switches;

/// The state behind all routes.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) switches: Switches,
    pub(crate) clock: Clock,
    pub(crate) in_flight: InFlight,
    /// Replies that wait before they are sent.
    pub(crate) paused: Arc<AtomicU64>,
    /// Rises with each control call that continues paused replies.
    pub(crate) continued: watch::Sender<u64>,
    /// Rises whenever something changed that `/_sim/wait` waits for.
    pub(crate) changed: watch::Sender<u64>,
    /// Turns true when the simulator stops.
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) authorization: Option<String>,
}

pub(crate) type Shared = Arc<App>;

impl App {
    /// Completes when the simulator stops.
    pub(crate) async fn stopped(&self) {
        let mut stopping = self.stopping.subscribe();
        // An error means that the sender is gone, which is the same.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }
}

/// All routes.
pub(crate) fn router(app: Shared) -> Router {
    use Operation::{
        Authorization, Booking, CancelShipment, Cancellation, Capture, Message, Model, Refund,
        Release, Reservation, ReverseRefund, Shipment, Ticket, Void,
    };
    let services = Router::new()
        .route("/v1/refunds", effect(Refund).merge(question(Refund, Kind::List)))
        .route("/v1/orders/{order_id}/refunds", effect(Refund))
        .route("/v1/refunds/{id}", question(Refund, Kind::ById))
        .route("/v1/refunds/{id}/reverse", effect(ReverseRefund))
        .route("/v1/reversals", question(ReverseRefund, Kind::List))
        .route(
            "/v1/authorizations",
            effect(Authorization).merge(question(Authorization, Kind::List)),
        )
        .route("/v1/authorizations/{id}", question(Authorization, Kind::ById))
        .route("/v1/authorizations/{id}/void", effect(Void))
        .route("/v1/authorizations/{id}/capture", effect(Capture))
        .route("/v1/voids", question(Void, Kind::List))
        .route("/v1/captures", question(Capture, Kind::List))
        .route("/v1/messages", effect(Message).merge(question(Message, Kind::List)))
        .route("/v1/messages/{id}", question(Message, Kind::ById))
        .route("/v1/tickets", effect(Ticket).merge(question(Ticket, Kind::List)))
        .route("/v1/tickets/search", question(Ticket, Kind::Search))
        .route("/v1/reservations", effect(Reservation).merge(question(Reservation, Kind::List)))
        .route("/v1/reservations/{id}", question(Reservation, Kind::ById))
        .route("/v1/reservations/{id}/release", effect(Release))
        .route("/v1/releases", question(Release, Kind::List))
        .route("/v1/shipments", effect(Shipment).merge(question(Shipment, Kind::List)))
        .route("/v1/shipments/{id}", question(Shipment, Kind::ById))
        .route("/v1/shipments/{id}/cancel", effect(CancelShipment))
        .route("/v1/shipment-cancellations", question(CancelShipment, Kind::List))
        .route("/v1/bookings", effect(Booking).merge(question(Booking, Kind::List)))
        .route("/v1/trips/{trip_id}/bookings/{kind}", effect(Booking))
        .route("/v1/bookings/{id}", question(Booking, Kind::ById))
        .route("/v1/bookings/{id}/cancel", effect(Cancellation))
        .route("/v1/cancellations", question(Cancellation, Kind::List))
        .route("/v1/model", effect(Model));
    let fallback =
        || async { Answer::error(404, "unknown_route", "there is no such route").into_response() };
    let wrong_method = || async {
        Answer::error(405, "method_not_allowed", "this route has another method").into_response()
    };
    services
        .merge(control::router())
        .fallback(fallback)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

type Params = Path<BTreeMap<String, String>>;

fn effect(operation: Operation) -> MethodRouter<Shared> {
    post(
        move |State(app): State<Shared>,
              ConnectInfo(connection): ConnectInfo<Connection>,
              Path(params): Params,
              request: Request| async move {
            let reply = take_effect(&app, operation, params, request).await;
            deliver(&connection, reply)
        },
    )
}

fn question(of: Operation, kind: Kind) -> MethodRouter<Shared> {
    get(
        move |State(app): State<Shared>,
              ConnectInfo(connection): ConnectInfo<Connection>,
              Path(params): Params,
              request: Request| async move {
            let reply = take_question(&app, of, kind, params, request).await;
            deliver(&connection, reply)
        },
    )
}

/// Writes the reply, or makes the connection end in a reset.
fn deliver(connection: &Connection, reply: Result<Reply, StoreError>) -> Response {
    match reply {
        Ok(Reply::Answer(answer)) => answer.into_response(),
        Ok(Reply::Reset) => {
            connection.reset();
            // Never written: the connection refuses.
            Answer::new(500, Value::Null).into_response()
        }
        Err(error) => broken(&error).into_response(),
    }
}

/// The simulator itself failed; the code keeps this apart from every simulated failure.
pub(crate) fn broken(error: &StoreError) -> Answer {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    Answer::error(500, "simulator_failed", &format!("{error}{}", cause.unwrap_or_default()))
}

async fn take_effect(
    app: &Shared,
    operation: Operation,
    params: BTreeMap<String, String>,
    request: Request,
) -> Result<Reply, StoreError> {
    let (parts, body) = request.into_parts();
    let Some(bytes) = read_body(body).await else {
        let message =
            format!("the body must arrive in full and have at most {REQUEST_BYTES_MAX} bytes");
        return Ok(Reply::Answer(Answer::error(413, "body_too_large", &message)));
    };
    // Read before the arrival is on record: a reset that follows the record then always outdates this request.
    let epoch = app.store.epoch();
    let key = keys::read_key(&parts.headers);
    let known_key = key.as_ref().ok().cloned().flatten();
    let seq = arrive(app, operation.as_str(), &parts, &bytes, known_key.clone()).await?;
    let (mut replier, reply) = Replier::new(seq, operation.as_str());
    let refused = match (&key, authorized(app, &parts.headers)) {
        (_, false) => Some(unauthorized()),
        (Err(invalid), true) => Some(Answer::invalid(invalid)),
        (Ok(_), true) => None,
    };
    let body = match (refused, serde_json::from_slice::<Value>(&bytes)) {
        (Some(answer), _) => Err(answer),
        (None, Err(_)) => Err(Answer::error(400, "body_invalid", "the body is not JSON")),
        (None, Ok(body)) => Ok(body),
    };
    let task_app = Arc::clone(app);
    let path = parts.uri.path().to_owned();
    let task = tokio::spawn(async move {
        let app = &*task_app;
        let work = async {
            match body {
                Err(answer) => replier.answer(app, answer).await,
                Ok(body) => {
                    let call = Call { operation, path, params, key: known_key, body, epoch };
                    perform(app, call, &mut replier).await
                }
            }
        };
        tokio::select! {
            done = work => done,
            () = app.stopped() => Ok(()),
        }
    });
    match reply.await {
        Ok(reply) => Ok(reply),
        // The task ended without a reply: the simulator stops, or its database failed.
        Err(_) => match task.await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Ok(Reply::Reset),
        },
    }
}

/// The body, unless it is too large or breaks off. What is too much is read to the end and thrown away, or else the
/// client would meet a closed connection instead of the answer.
async fn read_body(body: Body) -> Option<Vec<u8>> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut length = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.ok()?;
        length += chunk.len();
        if length <= REQUEST_BYTES_MAX {
            bytes.extend_from_slice(&chunk);
        } else if length > REFUSED_BYTES_MAX {
            return None;
        }
    }
    (length <= REQUEST_BYTES_MAX).then_some(bytes)
}

async fn take_question(
    app: &Shared,
    of: Operation,
    kind: Kind,
    params: BTreeMap<String, String>,
    request: Request,
) -> Result<Reply, StoreError> {
    let (parts, _) = request.into_parts();
    let seq = arrive(app, of.lookup_name(), &parts, &[], None).await?;
    let (mut replier, reply) = Replier::new(seq, of.lookup_name());
    let looked = if authorized(app, &parts.headers) {
        match Query::<BTreeMap<String, String>>::try_from_uri(&parts.uri) {
            Ok(Query(query)) => {
                let path = parts.uri.path().to_owned();
                lookup::look(app, &Question { of, kind, path, params, query }).await?
            }
            Err(_) => Reply::Answer(Answer::error(400, "query_invalid", "the query is not valid")),
        }
    } else {
        Reply::Answer(unauthorized())
    };
    match looked {
        Reply::Answer(answer) => replier.answer(app, answer).await?,
        Reply::Reset => replier.reset(app).await?,
    }
    Ok(reply.await.unwrap_or(Reply::Reset))
}

async fn arrive(
    app: &App,
    operation: &'static str,
    parts: &Parts,
    body: &[u8],
    key: Option<String>,
) -> Result<i64, StoreError> {
    let digest = Sha256::digest(body);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let arrival = Arrival {
        at_ms: app.clock.now_ms(),
        operation,
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: logged_headers(&parts.headers),
        key,
        body_hash: format!("sha256:{hex}"),
        body_bytes: i64::try_from(body.len()).unwrap_or(i64::MAX),
    };
    let seq = app.store.arrive(&arrival).await?;
    app.changed.send_modify(|n| *n += 1);
    Ok(seq)
}

/// Headers for the log. Credentials are kept by name only, so that the log never becomes a place where secrets lie.
fn logged_headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| {
            let secret = [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE]
                .contains(name)
                || name.as_str().contains("api-key");
            let text = if secret {
                "(redacted)".to_owned()
            } else {
                String::from_utf8_lossy(value.as_bytes()).into_owned()
            };
            (name.to_string(), text)
        })
        .collect()
}

fn authorized(app: &App, headers: &HeaderMap) -> bool {
    app.authorization.as_ref().is_none_or(|wanted| {
        headers
            .get(header::AUTHORIZATION)
            .is_some_and(|given| given.as_bytes() == wanted.as_bytes())
    })
}

fn unauthorized() -> Answer {
    Answer::error(401, "unauthorized", "send `Authorization: Bearer` with the API key")
}
