//! Answers, and the ways in which they can be spoilt on the wire.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use serde_json::{Value, json};

use crate::limits::{ENDLESS_BODY_BYTES_MAX, HUGE_BODY_BYTES_DEFAULT};
use crate::operation::Invalid;

/// What a request gets.
#[derive(Debug)]
pub(crate) enum Reply {
    /// An answer.
    Answer(Answer),
    /// A reset of its connection.
    Reset,
}

/// An answer before it is written out.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) shape: Shape,
    pub(crate) replayed: bool,
}

/// How the body goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As it is.
    Plain,
    /// Padded to so many bytes.
    Huge(u64),
    /// Followed by spaces, and never ended.
    Endless,
    /// Cut in the middle.
    Broken,
    /// With a second, different `id` in front.
    DuplicateKey,
}

impl Answer {
    pub(crate) const fn new(status: u16, body: Value) -> Self {
        Self { status, body, headers: Vec::new(), shape: Shape::Plain, replayed: false }
    }

    /// `{ "error": { "code": …, "message": … } }`
    pub(crate) fn error(status: u16, code: &str, message: &str) -> Self {
        Self::new(status, json!({ "error": { "code": code, "message": message } }))
    }

    pub(crate) fn invalid(invalid: &Invalid) -> Self {
        Self::error(400, invalid.code, &invalid.message)
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) const fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    pub(crate) fn into_replay(mut self) -> Self {
        self.replayed = true;
        self.header("idempotent-replayed", "true")
    }

    pub(crate) fn into_response(self) -> Response {
        let body = match self.shape {
            Shape::Plain => Body::from(self.body.to_string()),
            Shape::Huge(bytes) => Body::from(padded(&self.body, bytes)),
            Shape::Endless => endless(self.body.to_string()),
            Shape::Broken => {
                let text = self.body.to_string();
                let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at));
                Body::from(text[..middle.unwrap_or(0)].to_owned())
            }
            Shape::DuplicateKey => {
                let text = self.body.to_string();
                Body::from(text.replacen('{', "{\"id\":\"another_id\",", 1))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in self.headers {
            // A header of the `status` switch that HTTP cannot carry is left out.
            if let (Ok(name), Ok(value)) =
                (name.parse::<HeaderName>(), HeaderValue::from_str(&value))
            {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// The size of a `huge_body` answer.
pub(crate) fn huge_bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or(HUGE_BODY_BYTES_DEFAULT)
}

/// The object with a member `padding` that brings its text to about this length.
fn padded(body: &Value, bytes: u64) -> String {
    let mut body = body.clone();
    let missing = usize::try_from(bytes).unwrap_or(0).saturating_sub(body.to_string().len());
    if let Value::Object(map) = &mut body {
        map.insert("padding".to_owned(), Value::from("x".repeat(missing)));
    }
    body.to_string()
}

fn endless(start: String) -> Body {
    static CHUNK: [u8; 64 << 10] = [b' '; 64 << 10];
    // The last brace is held back, so that what was read so far is never a whole document.
    let start = Bytes::from(start[..start.len().saturating_sub(1)].to_owned());
    Body::from_stream(stream::unfold(
        (Some(start), 0_u64),
        |(start, sent): (Option<Bytes>, u64)| async move {
            if sent >= ENDLESS_BODY_BYTES_MAX {
                return Some((Err(io::Error::from(io::ErrorKind::UnexpectedEof)), (None, sent)));
            }
            let chunk = start.unwrap_or_else(|| Bytes::from_static(&CHUNK));
            let sent = sent + chunk.len() as u64;
            Some((Ok::<_, io::Error>(chunk), (None, sent)))
        },
    ))
}
