//! Which crashes there are.

use std::fmt;

use crate::engine::boundary::Boundary;

/// The name of the place that lies outside of the worker.
pub const AFTER_PROVIDER_COMMIT: &str = "after-provider-commit";

/// A place where a crash can fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A boundary that the worker passes.
    Boundary(Boundary),
    /// The provider did it and has not answered.
    AfterProviderCommit,
}

impl Place {
    /// The name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Boundary(boundary) => boundary.as_str(),
            Self::AfterProviderCommit => AFTER_PROVIDER_COMMIT,
        }
    }

    /// Reads the name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if name == AFTER_PROVIDER_COMMIT {
            return Some(Self::AfterProviderCommit);
        }
        Boundary::parse(name).map(Self::Boundary)
    }

    /// Every place.
    pub fn all() -> impl Iterator<Item = Self> {
        Boundary::ALL.into_iter().map(Self::Boundary).chain([Self::AfterProviderCommit])
    }
}

/// What befalls the worker there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// SIGKILL.
    Kill,
    /// SIGSTOP until its lease is over and another worker took the run, then SIGCONT.
    Freeze,
}

impl Action {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
        }
    }
}

/// A crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Crash {
    /// Where.
    pub place: Place,
    /// At which passing: 1 for the first.
    pub occurrence: u32,
    /// What.
    pub action: Action,
}

/// A case: nothing, a crash, or a crash and another while the run recovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CaseSpec {
    /// The crash; none in the undisturbed run.
    pub first: Option<Crash>,
    /// A kill of the worker that resumes, at a boundary that only a recovery passes.
    pub second: Option<(Boundary, u32)>,
}

impl CaseSpec {
    /// The undisturbed run.
    pub const UNDISTURBED: Self = Self { first: None, second: None };

    /// One crash.
    #[must_use]
    pub const fn one(place: Place, occurrence: u32, action: Action) -> Self {
        Self { first: Some(Crash { place, occurrence, action }), second: None }
    }

    /// The place that the case is about: the last crash.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match self.second {
            Some((boundary, _)) => Some(Place::Boundary(boundary)),
            None => self.first.map(|crash| crash.place),
        }
    }

    /// Which passing of it.
    #[must_use]
    pub fn occurrence(&self) -> Option<u32> {
        match self.second {
            Some((_, occurrence)) => Some(occurrence),
            None => self.first.map(|crash| crash.occurrence),
        }
    }

    /// What befalls the worker, in words.
    #[must_use]
    pub fn action(&self) -> String {
        match (self.first, self.second) {
            (None, _) => "none".to_owned(),
            (Some(first), None) => first.action.as_str().to_owned(),
            (Some(first), Some(_)) => {
                format!("kill, after a kill at {} {}", first.place.as_str(), first.occurrence)
            }
        }
    }
}

impl fmt::Display for CaseSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.place(), self.occurrence()) {
            (Some(place), Some(occurrence)) => {
                write!(f, "{} {occurrence}, {}", place.as_str(), self.action())
            }
            (None, _) | (_, None) => f.write_str("undisturbed"),
        }
    }
}
