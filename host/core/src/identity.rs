//! The identity of an effect and everything that is derived from it. It rests on trusted durable state alone (I2): no
//! function here sees an attempt, a model's words or, but for the request hash, the args.

use std::fmt;

use data_encoding::BASE32_NOPAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ids::{EffectId, ElementId, Name, RunId};
use crate::json;

/// The version of the algorithm below; pinned in each run (I9).
pub const IDENTITY_ALG: u32 = 1;

/// What makes an effect this effect and no other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The version of the algorithm, [`IDENTITY_ALG`].
    pub alg: u32,
    /// Whose effect it is.
    pub scope: Scope,
    /// The business object: a string, or an integer as decimal text. Absent only for reads.
    pub object: Option<String>,
    /// What is meant; literal text of the workflow.
    pub intent: String,
    /// Which of several requests of one slot in one step.
    pub selector: Selector,
    /// 1 at first; one more for each time that a person ordered a new logical action, or that another run may ask for a shared effect
    /// of which nothing was sent ([`Effect::is_void_for_others`](crate::effect::Effect::is_void_for_others)).
    pub generation: u32,
}

/// Whether an effect belongs to one step of one run, or to a business object whatever run asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Scope {
    /// One step of one run.
    Run {
        /// The run.
        run: RunId,
        /// The node.
        node: Name,
        /// The visit of the node, from 1.
        visit: u32,
        /// The element, in a fan-out; left out elsewhere, so that identities from before there were fan-outs stay the same.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        element: Option<ElementId>,
        /// The slot.
        slot: Name,
    },
    /// Every run that asks for this operation on this object with this intent.
    Object {
        /// The tool.
        tool: Name,
        /// The operation.
        operation: Name,
    },
    /// The undoing of one effect.
    Compensation {
        /// The readable key of that effect, which no other effect has.
        of: String,
        /// The tool that undoes it.
        tool: Name,
        /// The operation that undoes it.
        operation: Name,
    },
    /// A person's approval of one request of one effect.
    Approval {
        /// The readable key of that effect, which no other effect has.
        of: String,
        /// That request.
        request: RequestHash,
    },
}

/// Which of several requests of one slot in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// The slot is used once.
    Once,
    /// The element of the trusted array that the slot is bound to, from 0.
    Item(u32),
    /// The host-counted call of a slot with `repeat`, from 0.
    Ordinal(u32),
}

/// The form in which a provider wants its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyFormat {
    /// 36 characters in the shape of a UUID, version 8 (RFC 9562); fits every provider known.
    Uuid,
    /// As `Uuid`, with the version nibble 4 for validators that insist on it.
    UuidV4,
    /// The readable key.
    Readable,
    /// 64 lower-case hexadecimal digits.
    Hash,
}

/// Stands in a readable key where there is no object.
const NO_OBJECT: &str = "-";

impl Identity {
    /// The effect id: `eff_` and base32 of SHA-256 over the domain tag and the canonical JSON of the identity.
    #[must_use]
    pub fn effect_id(&self) -> EffectId {
        let digest = self.digest("twice/effect-id/v1");
        let text = format!("eff_{}", BASE32_NOPAD.encode(&digest).to_ascii_lowercase());
        EffectId::parse(text).expect("base32 of 32 bytes is 52 characters")
    }

    /// The readable key, e.g. `refund/run-781/order-42/full-damaged-item`. Two identities never share one: what is not
    /// in the four parts of the common case follows as `name=value`.
    #[must_use]
    pub fn key(&self) -> String {
        let object = match self.object.as_deref() {
            None => NO_OBJECT.to_owned(),
            Some(NO_OBJECT) => "%2D".to_owned(),
            Some(object) => escape(object),
        };
        let intent = escape(&self.intent);
        let mut key = match &self.scope {
            Scope::Run { run, node, visit, element, slot } => {
                let mut key = format!("{slot}/{run}/{object}/{intent}");
                if node != slot {
                    key.push_str(&format!("/node={node}"));
                }
                if *visit != 1 {
                    key.push_str(&format!("/visit={visit}"));
                }
                if let Some(element) = element {
                    key.push_str(&format!("/element={}", escape(element.as_str())));
                }
                key
            }
            Scope::Object { tool, operation } => format!("{tool}.{operation}/{object}/{intent}"),
            Scope::Compensation { of, tool, operation } => format!("{of}/comp/{tool}.{operation}"),
            Scope::Approval { of, request } => {
                format!("{of}/approval/{}", escape(request.as_str().trim_start_matches("sha256:")))
            }
        };
        match self.selector {
            Selector::Once => {}
            Selector::Item(index) => key.push_str(&format!("/item={index}")),
            Selector::Ordinal(index) => key.push_str(&format!("/call={index}")),
        }
        if self.generation != 1 {
            key.push_str(&format!("/generation={}", self.generation));
        }
        key
    }

    /// The identity of the undoing of this effect. `attempt` is 1 at first, and one more for each time that it was definitely
    /// refused and is tried again.
    #[must_use]
    pub fn compensation(&self, tool: &Name, operation: &Name, attempt: u32) -> Self {
        Self {
            alg: self.alg,
            scope: Scope::Compensation {
                of: self.key(),
                tool: tool.clone(),
                operation: operation.clone(),
            },
            object: self.object.clone(),
            intent: self.intent.clone(),
            selector: Selector::Once,
            generation: attempt,
        }
    }

    /// The identity of a person's approval of that request of this effect.
    #[must_use]
    pub fn approval(&self, request: &RequestHash) -> Self {
        Self {
            alg: self.alg,
            scope: Scope::Approval { of: self.key(), request: request.clone() },
            object: self.object.clone(),
            intent: self.intent.clone(),
            selector: Selector::Once,
            generation: 1,
        }
    }

    /// The key in the form that a provider wants.
    #[must_use]
    pub fn provider_key(&self, format: KeyFormat) -> String {
        let digest = self.digest("twice/provider-key/v1");
        match format {
            KeyFormat::Uuid => uuid_text(&digest, 0x80),
            KeyFormat::UuidV4 => uuid_text(&digest, 0x40),
            KeyFormat::Readable => self.key(),
            KeyFormat::Hash => data_encoding::HEXLOWER.encode(&digest),
        }
    }

    fn digest(&self, domain: &str) -> [u8; 32] {
        let value = serde_json::to_value(self).expect("an identity is plain data");
        tagged_sha256(domain, json::canonical(&value).as_bytes())
    }
}

/// Longest part of a child run's id that is taken from its parent's, and from the slot's name. Characters.
const CHILD_PART_MAX: usize = 40;
/// How much of a digest is in a child run's id. Characters of 5 bits each.
const CHILD_DIGEST_CHARS: usize = 20;

/// The id of the run that an effect of `parent` starts: always the same, so that starting it again finds it. It reads
/// `PARENT.SLOT.DIGEST`, e.g. `run-781.ship.x3k2…`; the digest alone tells it from others. The generation is no part of it:
/// a run that failed and is ordered to be tried again goes on itself, as what it had confirmed must not happen twice. Another
/// request under the same identity is another run.
///
/// # Panics
/// Never: a digest has more characters than are taken.
#[must_use]
pub fn child_run(identity: &Identity, request: &RequestHash, parent: &RunId, slot: &Name) -> RunId {
    let first = Identity { generation: 1, ..identity.clone() }.effect_id();
    let digest = tagged_sha256("twice/child-run/v1", format!("{first}/{request}").as_bytes());
    let digest = BASE32_NOPAD.encode(&digest).to_ascii_lowercase();
    let short = |text: &str| text.chars().take(CHILD_PART_MAX).collect::<String>();
    let (parent, slot) = (short(parent.as_str()), short(slot.as_str()));
    let text = format!("{parent}.{slot}.{}", &digest[..CHILD_DIGEST_CHARS]);
    RunId::parse(text).expect("it is made of a run id, a name and base32")
}

/// The digest by which requests under one identity are compared: `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestHash(String);

impl RequestHash {
    /// The hash of a request. `incidental` names args that may be reworded (JSON Pointers); they are left out, which is
    /// why an approval survives a new wording.
    #[must_use]
    pub fn of(
        tool: &Name,
        tool_version: &str,
        operation: &Name,
        args: &Value,
        incidental: &[String],
    ) -> Self {
        let mut args = args.clone();
        for pointer in incidental {
            json::remove(&mut args, pointer);
        }
        let request = json!({
            "tool": tool, "tool_version": tool_version, "operation": operation, "args": args,
        });
        Self(hash_text(&tagged_sha256("twice/request/v1", json::canonical(&request).as_bytes())))
    }

    /// The hash as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// SHA-256 over a domain tag, a zero byte and the content, so that no digest of one kind is ever one of another.
#[must_use]
pub fn tagged_sha256(domain: &str, content: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(domain.as_bytes());
    hasher.update([0]);
    hasher.update(content);
    hasher.finalize().into()
}

/// A digest as `sha256:` and lower-case hexadecimal.
#[must_use]
pub fn hash_text(digest: &[u8; 32]) -> String {
    format!("sha256:{}", data_encoding::HEXLOWER.encode(digest))
}

fn uuid_text(digest: &[u8; 32], version: u8) -> String {
    let mut bytes: [u8; 16] = digest[..16].try_into().expect("a digest has 32 bytes");
    bytes[6] = version | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Percent-encodes all but unreserved characters (RFC 3986), so that the parts of a key cannot run into each other.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
