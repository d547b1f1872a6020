//! How a provider signs what it posts. All schemes here are an HMAC-SHA256 over the raw body, and differ in what is signed with
//! it and where the signature stands.

use serde::{Deserialize, Serialize};

/// How what a provider posts is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheme {
    /// The header with the signature, in lower case.
    pub signature: String,
    /// What separates the parts of that header; absent: it is one.
    pub separator: Option<char>,
    /// How a part begins that is a signature; other parts are passed over.
    pub prefix: String,
    /// How the signature is written.
    pub encoding: Encoding,
    /// What is signed, in order; the body among it.
    pub signed: Vec<Part>,
    /// The header with the event's id, in lower case, if that is signed.
    pub id: Option<String>,
    /// Where the time of sending stands, in whole seconds since 1970, if that is signed.
    pub timestamp: Option<Stamp>,
    /// How the key is written.
    pub key: KeyForm,
}

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Hexadecimal digits, in either case.
    Hex,
    /// Base64 with padding (RFC 4648, section 4).
    Base64,
}

/// A part of what is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text as it stands.
    Literal(String),
    /// The event's id.
    Id,
    /// The time of sending, as it stands in its header.
    Timestamp,
    /// The raw body.
    Body,
}

/// Where the time of sending stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stamp {
    /// In a header of its own, named in lower case.
    Header(String),
    /// In the part of the signature's header that begins so.
    Part(String),
}

/// How the key is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyForm {
    /// The text is the key.
    Text,
    /// Base64, perhaps after `whsec_`.
    Base64,
}

impl Scheme {
    /// The schemes that have a name.
    pub const NAMES: [&'static str; 5] = ["standard", "svix", "stripe", "github", "shopify"];

    /// The scheme of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let plain = |signature: &str, prefix: &str, encoding| Self {
            signature: signature.to_owned(),
            separator: None,
            prefix: prefix.to_owned(),
            encoding,
            signed: vec![Part::Body],
            id: None,
            timestamp: None,
            key: KeyForm::Text,
        };
        Some(match name {
            "standard" => Self::standard("webhook"),
            "svix" => Self::standard("svix"),
            // https://docs.stripe.com/webhooks?verify=verify-manually
            "stripe" => Self {
                signature: "stripe-signature".to_owned(),
                separator: Some(','),
                prefix: "v1=".to_owned(),
                encoding: Encoding::Hex,
                signed: vec![Part::Timestamp, Part::Literal(".".to_owned()), Part::Body],
                id: None,
                timestamp: Some(Stamp::Part("t=".to_owned())),
                key: KeyForm::Text,
            },
            // https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
            "github" => plain("x-hub-signature-256", "sha256=", Encoding::Hex),
            // https://shopify.dev/docs/apps/build/webhooks/subscribe/https
            "shopify" => plain("x-shopify-hmac-sha256", "", Encoding::Base64),
            _ => return None,
        })
    }

    /// Standard Webhooks 1.0 (<https://www.standardwebhooks.com>), its headers beginning with `family`. Signatures of another version
    /// than `v1` are passed over.
    fn standard(family: &str) -> Self {
        Self {
            signature: format!("{family}-signature"),
            separator: Some(' '),
            prefix: "v1,".to_owned(),
            encoding: Encoding::Base64,
            signed: vec![
                Part::Id,
                Part::Literal(".".to_owned()),
                Part::Timestamp,
                Part::Literal(".".to_owned()),
                Part::Body,
            ],
            id: Some(format!("{family}-id")),
            timestamp: Some(Stamp::Header(format!("{family}-timestamp"))),
            key: KeyForm::Base64,
        }
    }

    /// What is signed, from a text such as `{id}.{timestamp}.{body}`. `None` unless the body is in it, once and last, and all else in
    /// braces is known and there once: otherwise two different deliveries could be one and the same to whoever verifies them.
    #[must_use]
    pub fn signed_parts(text: &str) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, after) = match rest.split_once('{') {
                Some((literal, after)) => (literal, Some(after)),
                None => (rest, None),
            };
            if literal.contains('}') {
                return None;
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            let Some(after) = after else { break };
            let (name, left) = after.split_once('}')?;
            let part = match name {
                "id" => Part::Id,
                "timestamp" => Part::Timestamp,
                "body" => Part::Body,
                _ => return None,
            };
            if parts.contains(&part) || !is_apart(&parts) {
                return None;
            }
            parts.push(part);
            rest = left;
        }
        (parts.last() == Some(&Part::Body)).then_some(parts)
    }
}

/// Whether what follows these parts cannot be read as the end of what they stand for: an id, or a time in digits, ends where
/// something stands that neither has in it.
fn is_apart(parts: &[Part]) -> bool {
    match parts {
        [] | [Part::Literal(_)] => true,
        [.., Part::Literal(text)] => !text.starts_with(|c: char| c.is_ascii_alphanumeric()),
        [.., Part::Id | Part::Timestamp | Part::Body] => false,
    }
}
