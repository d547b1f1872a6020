//! The named places where a crash can fall. In production passing one is a test of a `None`; tests put an injector
//! there that kills, delays or fails.

use std::sync::Arc;

/// A place between two durable, sent or received things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Boundary {
    /// A guest asked; nothing of it is recorded.
    BeforeIntent,
    /// A lock on a business object is durable; nothing is proposed.
    AfterLock,
    /// REQUESTED is durable; nothing has left.
    AfterRequestedCommit,
    /// The answer is in memory; nothing of it is durable.
    AfterReply,
    /// About to record that the outcome of a request is not known.
    BeforeUnknown,
    /// About to look an unknown outcome up.
    BeforeLookup,
    /// A lookup answered; nothing of it is durable.
    AfterLookup,
    /// A step returned; its checkpoint is not durable.
    BeforeCheckpoint,
    /// The checkpoint is durable; nobody was told.
    AfterCheckpoint,
    /// The run is about to wait.
    BeforePark,
    /// The run waits; its lease is gone.
    AfterPark,
    /// The run is claimed; nothing was done.
    AfterClaim,
}

impl Boundary {
    /// Every boundary.
    pub const ALL: [Self; 12] = [
        Self::BeforeIntent,
        Self::AfterLock,
        Self::AfterRequestedCommit,
        Self::AfterReply,
        Self::BeforeUnknown,
        Self::BeforeLookup,
        Self::AfterLookup,
        Self::BeforeCheckpoint,
        Self::AfterCheckpoint,
        Self::BeforePark,
        Self::AfterPark,
        Self::AfterClaim,
    ];

    /// The name used in reports and by injectors.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeIntent => "before-intent",
            Self::AfterLock => "after-lock",
            Self::AfterRequestedCommit => "after-requested-commit",
            Self::AfterReply => "after-reply",
            Self::BeforeUnknown => "before-unknown",
            Self::BeforeLookup => "before-lookup",
            Self::AfterLookup => "after-lookup",
            Self::BeforeCheckpoint => "before-checkpoint",
            Self::AfterCheckpoint => "after-checkpoint",
            Self::BeforePark => "before-park",
            Self::AfterPark => "after-park",
            Self::AfterClaim => "after-claim",
        }
    }

    /// Reads the name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|boundary| boundary.as_str() == name)
    }
}

/// What happens at boundaries.
#[derive(Clone, Default)]
pub struct Boundaries(Option<Arc<dyn Fn(Boundary) + Send + Sync>>);

impl Boundaries {
    /// Nothing happens.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// `injector` is called at each boundary that is passed.
    #[must_use]
    pub fn inject(injector: impl Fn(Boundary) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(injector)))
    }

    /// Passes a boundary.
    pub fn pass(&self, boundary: Boundary) {
        if let Some(injector) = &self.0 {
            injector(boundary);
        }
    }
}
