//! Identifiers. Each is a checked string with a visible form, so that one kind is never taken for another.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is not a valid identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {kind}: {rule}")]
pub struct InvalidId {
    /// What was being read, e.g. `run id`.
    pub kind: &'static str,
    /// The text as given.
    pub text: String,
    /// The rule it breaks, in words.
    pub rule: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:ident, $rule:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Reads the identifier from text.
            ///
            /// # Errors
            /// [`InvalidId`] when the text breaks the rule of this kind.
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                if $check(&text) {
                    Ok(Self(text))
                } else {
                    Err(InvalidId { kind: $kind, text, rule: $rule })
                }
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

id!(
    /// A run, unique in its ledger. Given by the caller or drawn by the host.
    RunId,
    "run id",
    is_token,
    "1 to 128 letters, digits, `.`, `_` or `-`, starting with a letter or digit"
);
id!(
    /// A name in a workflow or tool file: node, slot, tool, operation, module.
    Name,
    "name",
    is_name,
    "1 to 63 lower-case letters, digits, `-` or `_`, starting with a letter"
);
id!(
    /// An effect: `eff_` and the base32 digest of its identity.
    EffectId,
    "effect id",
    is_effect_id,
    "`eff_` and 52 characters of lower-case base32"
);
id!(
    /// A worker process; drawn anew at each start, so that a restarted worker is never taken for its former self.
    WorkerId,
    "worker id",
    is_token,
    "1 to 128 letters, digits, `.`, `_` or `-`, starting with a letter or digit"
);

id!(
    /// An element of a fan-out: the string, or the integer as decimal text, that stays the same wherever it stands in its array.
    ElementId,
    "element id",
    is_element_id,
    "1 to 256 characters, none of them a control character"
);

fn is_token(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'))
}

fn is_element_id(text: &str) -> bool {
    (1..=256).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

fn is_effect_id(text: &str) -> bool {
    text.strip_prefix("eff_").is_some_and(|rest| {
        rest.len() == 52 && rest.chars().all(|c| matches!(c, 'a'..='z' | '2'..='7'))
    })
}

/// The fencing token of a lease: it rises with each owner of a run and is compared in the transaction of every write (I7).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub i64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
