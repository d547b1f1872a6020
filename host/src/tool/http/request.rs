//! Builds a request from its template. Everything that can be wrong with it is found here, before anything is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use twice_core::identity::hash_text;
use twice_core::ids::Name;
use twice_core::json::canonical;
use twice_workflow::model::{HttpRequest, KeyCarrier};

use super::super::{Call, PrepareError, Prepared};
use super::pace::Pace;
use super::template::{Fill, Filler, joined};
use super::url::{Builder, Built};

/// Methods of requests.
const METHODS: [Method; 5] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// Headers that belong to the connection or the client, not to a tool file.
const RESERVED: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// An HTTP request ready to be sent. Its debug form is the form that may be kept.
pub struct HttpReady {
    pub(super) message: Message,
    pub(super) client: reqwest::Client,
    pub(super) terms: Terms,
}

/// How a request is sent and its answer read.
pub(super) struct Terms {
    /// Whether the connection may have carried another request before.
    pub(super) reuse: bool,
    pub(super) tls: bool,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) response_bytes_max: u64,
    pub(super) response_schema: Option<Value>,
    /// Names of headers that the operation's matchers look at.
    pub(super) watched: BTreeSet<String>,
    pub(super) pace: Option<Arc<Pace>>,
}

/// The request itself.
pub(super) struct Message {
    pub(super) method: Method,
    pub(super) url: ::url::Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
    /// The form that may be kept.
    pub(super) shown: Value,
}

impl fmt::Debug for HttpReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpReady({})", self.message.shown)
    }
}

impl HttpReady {
    pub(super) fn prepared(
        message: Message,
        client: reqwest::Client,
        terms: Terms,
    ) -> Prepared<Self> {
        Prepared {
            stored: message.shown.clone(),
            body_hash: digest(message.body.as_deref().unwrap_or_default()),
            request: Self { message, client, terms },
        }
    }
}

/// `sha256:` and the digest of some bytes.
pub(super) fn digest(bytes: &[u8]) -> String {
    hash_text(&Sha256::digest(bytes).into())
}

/// Fills a request's template.
pub(super) fn build(
    call: &Call<'_>,
    template: &HttpRequest,
    base: &::url::Url,
    key_carrier: Option<&KeyCarrier>,
    secrets: &BTreeMap<Name, String>,
) -> Result<Message, PrepareError> {
    let filler = Filler::new(call, secrets);
    let method =
        METHODS.into_iter().find(|method| method.as_str() == template.method).ok_or_else(|| {
            filler.invalid("method", format!("`{}` is not one that tools use", template.method))
        })?;
    let Built { sent: url, shown: shown_url } = fill_url(&filler, template, base)?;
    let body = fill_body(&filler, template)?;
    let headers = fill_headers(&filler, template, key_carrier, call.key, body.is_some())?;
    let mut shown = Map::new();
    shown.insert("method".to_owned(), json!(method.as_str()));
    shown.insert("url".to_owned(), json!(shown_url));
    shown.insert("headers".to_owned(), Value::Object(headers.shown));
    let body = body.map(|(bytes, value)| {
        shown.insert("body".to_owned(), value);
        bytes
    });
    Ok(Message { method, url, headers: headers.sent, body, shown: Value::Object(shown) })
}

fn fill_url(
    filler: &Filler<'_>,
    template: &HttpRequest,
    base: &::url::Url,
) -> Result<Built, PrepareError> {
    let mut builder = Builder::new(base);
    for segment in &template.path {
        let pieces = filler.text(segment, "path")?;
        builder.segment(&pieces).map_err(|problem| filler.invalid("path", problem))?;
    }
    for (name, text) in &template.query {
        builder.parameter(name, &filler.text(text, &format!("query {name}"))?);
    }
    builder.finish().map_err(|problem| filler.invalid("url", problem))
}

/// The exact bytes, and the value without secrets.
fn fill_body(
    filler: &Filler<'_>,
    template: &HttpRequest,
) -> Result<Option<(Bytes, Value)>, PrepareError> {
    let Some(body) = &template.body else { return Ok(None) };
    let Some(sent) = filler.value(body, "body", Fill::Sent)? else { return Ok(None) };
    let shown = filler.value(body, "body", Fill::Shown)?.unwrap_or(Value::Null);
    // Written once, in canonical form: the same args give the same bytes at every attempt, whoever builds them.
    Ok(Some((Bytes::from(canonical(&sent)), shown)))
}

struct Headers {
    sent: HeaderMap,
    shown: Map<String, Value>,
}

impl Headers {
    fn insert(&mut self, name: HeaderName, value: &str, secret: bool) -> Result<(), &'static str> {
        const UNFIT: &str = "its value holds characters that headers cannot carry; \
             only printable ASCII is read alike everywhere";
        if !value.is_ascii() {
            return Err(UNFIT);
        }
        let mut sent = HeaderValue::from_str(value).map_err(|_| UNFIT)?;
        sent.set_sensitive(secret);
        if !secret {
            self.shown.insert(name.as_str().to_owned(), json!(value));
        }
        if self.sent.insert(name, sent).is_some() {
            return Err("it is given twice");
        }
        Ok(())
    }
}

fn fill_headers(
    filler: &Filler<'_>,
    template: &HttpRequest,
    key_carrier: Option<&KeyCarrier>,
    key: &str,
    has_body: bool,
) -> Result<Headers, PrepareError> {
    let mut headers = Headers { sent: HeaderMap::new(), shown: Map::new() };
    for (name, text) in &template.headers {
        let place = format!("header {name}");
        let pieces = filler.text(text, &place)?;
        let secret = pieces.iter().any(|piece| piece.secret.is_some());
        header_name(name)
            .and_then(|name| headers.insert(name, &joined(&pieces), secret))
            .map_err(|problem| filler.invalid(&place, problem))?;
    }
    if let Some(carrier) = key_carrier
        && let Some(name) = &carrier.header
    {
        let value = if carrier.quoted { quoted(key) } else { key.to_owned() };
        header_name(name)
            .and_then(|name| headers.insert(name, &value, false))
            .map_err(|problem| filler.invalid(format!("header {name}"), problem))?;
    }
    for (name, wanted) in [(CONTENT_TYPE, has_body), (ACCEPT, true)] {
        if wanted && !headers.sent.contains_key(&name) {
            let inserted = headers.insert(name, "application/json", false);
            inserted.map_err(|problem| filler.invalid("header", problem))?;
        }
    }
    Ok(headers)
}

fn header_name(name: &str) -> Result<HeaderName, &'static str> {
    let name = HeaderName::try_from(name).map_err(|_| "it is not a header name")?;
    if RESERVED.contains(&name.as_str()) {
        return Err("it belongs to the connection; leave it out of the tool file");
    }
    Ok(name)
}

/// An RFC 8941 string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
