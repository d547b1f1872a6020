//! How a provider feels: what goes wrong with requests and lookups.

use std::collections::VecDeque;

/// What goes wrong with a request for an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No connection.
    NotConnected,
    /// The connection is reset; nothing is done.
    DropBeforeCommit,
    /// 429, before anything is looked at.
    TooMany,
    /// That status, before anything is looked at.
    Status(u16),
    /// Declined; that is the first answer under the key.
    Decline,
    /// 500, and nothing is done; that is the first answer under the key.
    FailSaved,
    /// It is done, over a cent more.
    WrongAmount,
    /// It is done, and the connection reset.
    CommitThenDrop,
    /// It is done, and 500 is the first answer under the key.
    CommitThenFailSaved,
    /// It is done, and something in front answers 500; under the key there is a success.
    CommitThenFail,
    /// It is done, and the answer's JSON breaks off.
    BrokenAnswer,
    /// It is done, and the answer is too long to be taken.
    HugeAnswer,
    /// It is done at some moment while the sender runs out of patience, or in the settle window after.
    Slow,
    /// The connection is reset, and it is done later, within the settle window.
    CommitLate,
}

impl Trouble {
    /// Every trouble.
    pub const ALL: [Self; 15] = [
        Self::NotConnected,
        Self::DropBeforeCommit,
        Self::TooMany,
        Self::Status(401),
        Self::Status(503),
        Self::Decline,
        Self::FailSaved,
        Self::WrongAmount,
        Self::CommitThenDrop,
        Self::CommitThenFailSaved,
        Self::CommitThenFail,
        Self::BrokenAnswer,
        Self::HugeAnswer,
        Self::Slow,
        Self::CommitLate,
    ];
}

/// What goes wrong with lookups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LookupTrouble {
    /// How many of a hundred fail.
    pub errors: u64,
    /// How many of a hundred find nothing, whatever there is. Only for lookups that prove nothing.
    pub blind: u64,
    /// How long after its commit an object is found. Milliseconds.
    pub lag_ms: u64,
}

/// How a provider feels.
#[derive(Debug, Clone, Default)]
pub struct Mood {
    /// What goes wrong with the first requests that are no reversals, in order.
    pub script: VecDeque<Trouble>,
    /// The same of the first reversals.
    pub back: VecDeque<Trouble>,
    /// What goes wrong after that: how many of a hundred requests have each trouble.
    pub chances: Vec<(Trouble, u64)>,
    /// What goes wrong with lookups.
    pub lookups: LookupTrouble,
    /// What all that depends on.
    pub seed: u64,
}
