//! The provider's own books of one case: what it did, what it was asked, and what it remembers of keys.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use twice_core::ids::EffectId;
use twice_core::time::Timestamp;

/// Something the provider did.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// `tool.operation`.
    pub operation: String,
    /// Our reference, where the request plants it.
    pub reference: Option<String>,
    /// The key, where the operation honours one.
    pub key: Option<String>,
    /// The args that the request shows, by JSON Pointer.
    pub args: BTreeMap<String, Value>,
    /// When, by the case's clock.
    pub at: Timestamp,
    /// The object as answers describe it.
    pub object: Value,
}

/// An effect, as far as it is recognised by in the books.
#[derive(Debug, Clone, Copy)]
pub struct Mark<'a> {
    /// `tool.operation`.
    pub operation: &'a str,
    /// Its id.
    pub effect: &'a EffectId,
    /// Its key in the provider's form.
    pub key: &'a str,
    /// Its args.
    pub args: &'a Value,
}

impl Commit {
    /// Whether it is what that effect asked for.
    #[must_use]
    pub fn is_of(&self, mark: &Mark<'_>) -> bool {
        self.operation == mark.operation
            && belongs(self.reference.as_deref(), self.key.as_deref(), &self.args, mark)
    }
}

fn belongs(
    reference: Option<&str>,
    key: Option<&str>,
    args: &BTreeMap<String, Value>,
    mark: &Mark<'_>,
) -> bool {
    match (reference, key) {
        (Some(reference), _) => reference == mark.effect.as_str(),
        (None, Some(key)) => key == mark.key,
        // Nothing of ours is in the request: what it asks for has to tell.
        (None, None) => {
            args.iter().all(|(pointer, value)| mark.args.pointer(pointer) == Some(value))
        }
    }
}

/// A request that arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// `tool.operation`.
    pub operation: String,
    /// Our reference, where the request plants it.
    pub reference: Option<String>,
    /// The key, where the operation honours one.
    pub key: Option<String>,
    /// The args that the request shows, by JSON Pointer.
    pub args: BTreeMap<String, Value>,
    /// Whether it asks for the effect, and not what became of it.
    pub effect: bool,
}

impl Seen {
    /// Whether that effect sent it.
    #[must_use]
    pub fn is_of(&self, mark: &Mark<'_>) -> bool {
        self.effect
            && self.operation == mark.operation
            && belongs(self.reference.as_deref(), self.key.as_deref(), &self.args, mark)
    }
}

/// What the provider remembers of a key.
#[derive(Debug, Clone)]
pub(super) struct KeyRecord {
    pub(super) first: Timestamp,
    pub(super) content: String,
    /// Index of the commit.
    pub(super) commit: usize,
}

/// The books of one case.
#[derive(Debug, Clone)]
pub struct Books {
    /// The case's clock.
    pub now: Timestamp,
    /// Everything it did, oldest first.
    pub commits: Vec<Commit>,
    /// Everything it was asked, oldest first.
    pub seen: Vec<Seen>,
    /// What it could not understand or answer; such a test proves nothing.
    pub problems: Vec<String>,
    /// The commit whose answer is held back: 1 for the first.
    pub hold: Option<usize>,
    pub(super) keys: BTreeMap<(String, String), KeyRecord>,
    /// Keys whose next request is told that the first is still being worked on.
    pub(super) in_flight: BTreeSet<String>,
}

impl Books {
    /// Empty books.
    #[must_use]
    pub fn new(now: Timestamp, hold: Option<usize>) -> Self {
        Self {
            now,
            commits: Vec::new(),
            seen: Vec::new(),
            problems: Vec::new(),
            hold,
            keys: BTreeMap::new(),
            in_flight: BTreeSet::new(),
        }
    }

    /// How often it did what that effect asked for.
    #[must_use]
    pub fn commits_of(&self, mark: &Mark<'_>) -> usize {
        self.commits.iter().filter(|commit| commit.is_of(mark)).count()
    }

    /// How many requests of that effect arrived.
    #[must_use]
    pub fn requests_of(&self, mark: &Mark<'_>) -> usize {
        self.seen.iter().filter(|seen| seen.is_of(mark)).count()
    }
}
