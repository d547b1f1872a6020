//! Whether what was posted is from the one who has the key.

use std::fmt;

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::scheme::{Encoding, KeyForm, Part, Scheme, Stamp};
use crate::limits::WEBHOOK_BYTES_MAX;
use crate::time::Timestamp;

/// How far the provider's clock may be ahead of ours. Milliseconds.
pub(super) const AHEAD_MS: u64 = 300_000;
/// Most signatures of one delivery that are tried: a provider has two while its key is exchanged.
const SIGNATURES_MAX: usize = 16;
/// Longest id of an event. Bytes.
const ID_BYTES_MAX: usize = 256;
/// Most digits of a time in seconds: enough for the year 9999 and beyond.
const SECONDS_DIGITS_MAX: usize = 12;

/// What was posted.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// The headers, with names in any case.
    pub headers: &'a [(String, String)],
    /// The body, byte for byte: read and written again, it would not have been signed.
    pub body: &'a [u8],
}

/// What is known of a genuine delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentic {
    /// The event's id, when it is signed.
    pub id: Option<String>,
    /// When it was sent, by the provider's clock, when that is signed.
    pub sent_at: Option<Timestamp>,
    /// `sha256:` and the digest of the body.
    pub body_hash: String,
}

/// Why a delivery is not taken for genuine. No text holds a key or a signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forgery {
    /// The body is larger than any event.
    #[error("its body has more than {WEBHOOK_BYTES_MAX} bytes")]
    TooLarge,
    /// A header that the scheme needs is not there.
    #[error("it has no header `{header}`")]
    NoHeader {
        /// The header.
        header: String,
    },
    /// A header is there more than once, so that it is not certain which one was signed.
    #[error("it has the header `{header}` more than once")]
    HeaderTwice {
        /// The header.
        header: String,
    },
    /// A header is not as the scheme has it.
    #[error("its header `{header}` {problem}")]
    BadHeader {
        /// The header.
        header: String,
        /// What is wrong.
        problem: Malformed,
    },
    /// It was sent at a time that has not come.
    #[error("it was sent at {sent_at}, and it is {now}: one of the two clocks is wrong")]
    FromTheFuture {
        /// When, by the provider's clock.
        sent_at: Timestamp,
        /// Ours.
        now: Timestamp,
    },
    /// A key is not as the scheme has it.
    #[error("key {number} of ours is not Base64, perhaps after `whsec_`")]
    BadKey {
        /// Which one, from 1.
        number: usize,
    },
    /// A key was needed, and there is none.
    #[error("there is no key to verify it with")]
    NoKey,
    /// No signature fits any of the keys: another key, another body, or another sender.
    #[error("none of its signatures was made of this body with a key of ours")]
    Forged,
}

/// What is wrong with a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// There is no signature of the scheme's kind in it.
    NoSignature,
    /// There are too many.
    TooManySignatures,
    /// It is no id.
    NoId,
    /// It is no time.
    NoTime,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSignature => f.write_str("has no signature of this scheme"),
            Self::TooManySignatures => {
                write!(f, "has more than {SIGNATURES_MAX} signatures")
            }
            Self::NoId => write!(
                f,
                "is no id: 1 to {ID_BYTES_MAX} visible characters, none of which separates what is signed"
            ),
            Self::NoTime => f.write_str("has no time in whole seconds since 1970"),
        }
    }
}

/// Whether a delivery was signed with one of `keys`, by `scheme`. A delivery that is old is as genuine as when it was sent, and is
/// not refused: what it says of an effect that it names does not become another effect's by being said again.
///
/// # Errors
/// [`Forgery`].
pub fn verify(
    scheme: &Scheme,
    keys: &[String],
    delivery: Delivery<'_>,
    now: Timestamp,
) -> Result<Authentic, Forgery> {
    if delivery.body.len() > WEBHOOK_BYTES_MAX {
        return Err(Forgery::TooLarge);
    }
    let line = header(delivery.headers, &scheme.signature)?;
    let parts: Vec<&str> = match scheme.separator {
        Some(separator) => line.split(separator).map(str::trim).collect(),
        None => vec![line.trim()],
    };
    let id = scheme.id.as_deref().map(|name| id(scheme, delivery.headers, name)).transpose()?;
    let seconds = scheme.timestamp.as_ref().map(|at| seconds(scheme, delivery.headers, &parts, at));
    let seconds = seconds.transpose()?;
    let sent_at = seconds.and_then(|text| text.parse::<i64>().ok()).map(|s| Timestamp(s * 1_000));
    if let Some(sent_at) = sent_at.filter(|at| at.ms_since(now) > AHEAD_MS) {
        return Err(Forgery::FromTheFuture { sent_at, now });
    }
    let signatures = signatures(scheme, &parts)?;
    if keys.is_empty() {
        return Err(Forgery::NoKey);
    }
    // Every pair is tried, whatever comes of the others: how long it takes tells nothing about the keys.
    let (mut genuine, mut bad_key) = (false, None);
    for (at, key) in keys.iter().enumerate() {
        let mac =
            key_bytes(scheme.key, key).and_then(|key| Hmac::<Sha256>::new_from_slice(&key).ok());
        let Some(mut mac) = mac else {
            bad_key.get_or_insert(at + 1);
            continue;
        };
        for part in &scheme.signed {
            mac.update(match part {
                Part::Literal(text) => text.as_bytes(),
                Part::Id => id.unwrap_or_default().as_bytes(),
                Part::Timestamp => seconds.unwrap_or_default().as_bytes(),
                Part::Body => delivery.body,
            });
        }
        for signature in &signatures {
            genuine |= mac.clone().verify_slice(signature).is_ok();
        }
    }
    if !genuine {
        return Err(bad_key.map_or(Forgery::Forged, |number| Forgery::BadKey { number }));
    }
    let digest: [u8; 32] = Sha256::digest(delivery.body).into();
    let body_hash = format!("sha256:{}", data_encoding::HEXLOWER.encode(&digest));
    Ok(Authentic { id: id.map(str::to_owned), sent_at, body_hash })
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Result<&'a str, Forgery> {
    let mut found = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    match (found.next(), found.next()) {
        (Some((_, value)), None) => Ok(value),
        (Some(_), Some(_)) => Err(Forgery::HeaderTwice { header: name.to_owned() }),
        (None, _) => Err(Forgery::NoHeader { header: name.to_owned() }),
    }
}

fn bad(header: &str, problem: Malformed) -> Forgery {
    Forgery::BadHeader { header: header.to_owned(), problem }
}

fn id<'a>(
    scheme: &Scheme,
    headers: &'a [(String, String)],
    name: &str,
) -> Result<&'a str, Forgery> {
    let id = header(headers, name)?;
    // A separator within it would let one delivery be read as another.
    let separates = |c: char| {
        scheme.signed.iter().any(|part| matches!(part, Part::Literal(text) if text.contains(c)))
    };
    let good = |c: char| c.is_ascii_graphic() && !separates(c);
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.chars().all(good) {
        return Err(bad(name, Malformed::NoId));
    }
    Ok(id)
}

fn seconds<'a>(
    scheme: &Scheme,
    headers: &'a [(String, String)],
    parts: &[&'a str],
    stamp: &Stamp,
) -> Result<&'a str, Forgery> {
    let (text, name) = match stamp {
        Stamp::Header(name) => (header(headers, name)?, name),
        Stamp::Part(prefix) => {
            let mut found = parts.iter().filter_map(|part| part.strip_prefix(prefix.as_str()));
            match (found.next(), found.next()) {
                (Some(text), None) => (text, &scheme.signature),
                (None, _) | (Some(_), Some(_)) => {
                    return Err(bad(&scheme.signature, Malformed::NoTime));
                }
            }
        }
    };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || text.len() > SECONDS_DIGITS_MAX {
        return Err(bad(name, Malformed::NoTime));
    }
    Ok(text)
}

/// The signatures in a header that are whole; what is none is passed over, as the scheme may grow others beside it.
fn signatures(scheme: &Scheme, parts: &[&str]) -> Result<Vec<Vec<u8>>, Forgery> {
    let decode = |text: &str| match scheme.encoding {
        Encoding::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok(),
        Encoding::Base64 => BASE64.decode(text.as_bytes()).ok(),
    };
    let found: Vec<Vec<u8>> = parts
        .iter()
        .filter_map(|part| part.strip_prefix(scheme.prefix.as_str()))
        .filter_map(decode)
        .filter(|bytes| bytes.len() == Sha256::output_size())
        .take(SIGNATURES_MAX + 1)
        .collect();
    match found.len() {
        0 => Err(bad(&scheme.signature, Malformed::NoSignature)),
        1..=SIGNATURES_MAX => Ok(found),
        _ => Err(bad(&scheme.signature, Malformed::TooManySignatures)),
    }
}

fn key_bytes(form: KeyForm, key: &str) -> Option<Vec<u8>> {
    let bytes = match form {
        KeyForm::Text => key.as_bytes().to_vec(),
        KeyForm::Base64 => {
            let key = key.trim();
            BASE64.decode(key.strip_prefix("whsec_").unwrap_or(key).as_bytes()).ok()?
        }
    };
    (!bytes.is_empty()).then_some(bytes)
}
