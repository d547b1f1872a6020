//! A ledger with a test between it and its workers: it sees what they write, and may refuse it, lose it, or hold it up.

use async_trait::async_trait;
use std::sync::Arc;
use twice_core::chain::{Content, Entry, Head};
use twice_core::effect::Effect;
use twice_core::event::{EffectEvent, Observation};
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::progress::StepId;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{
    Append, Cancel, ClaimBy, ClaimOutcome, EffectFilter, EffectRow, Ledger, LedgerError,
    LockFilter, LockRow, Locked, ModuleRow, NewRun, Notices, ObjectLock, OperatorAppend,
    OverFilter, Overview, Prune, RunFilter, RunRecord, Started, Tombstone, Unlock, Wanted,
};

/// A boundary that is a write of the ledger, by what becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// A run starts.
    Start,
    /// A worker takes a run.
    Claim,
    /// REQUESTED, with whatever rides along.
    Requested,
    /// An answer that is written at once, as nothing could tell it again.
    Answer,
    /// The run waits.
    Park,
    /// The run waits for a person.
    Halt,
    /// The run is done.
    Complete,
    /// The run failed.
    Fail,
}

impl Point {
    /// Every point.
    pub const ALL: [Self; 8] = [
        Self::Start,
        Self::Claim,
        Self::Requested,
        Self::Answer,
        Self::Park,
        Self::Halt,
        Self::Complete,
        Self::Fail,
    ];

    /// What an append makes durable.
    ///
    /// # Panics
    /// When it leaves the run in a state in which no worker leaves one.
    #[must_use]
    pub fn of(append: &Append) -> Self {
        let requests = |content: &Content| {
            matches!(content, Content::Effect { event: EffectEvent::Requested(_), .. })
        };
        match append.run_change.as_ref().map_or(RunState::Running, |change| change.state) {
            RunState::Completed => Self::Complete,
            RunState::Failed | RunState::Cancelled => Self::Fail,
            RunState::Ready | RunState::Waiting => Self::Park,
            RunState::Halted | RunState::Stuck => Self::Halt,
            RunState::Running if append.entries.iter().any(|new| requests(&new.content)) => {
                Self::Requested
            }
            RunState::Running => Self::Answer,
            RunState::Quarantined => panic!("a worker does not put its own run into quarantine"),
        }
    }

    /// The name used in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Claim => "claim",
            Self::Requested => "requested",
            Self::Answer => "answer",
            Self::Park => "park",
            Self::Halt => "halt",
            Self::Complete => "complete",
            Self::Fail => "fail",
        }
    }
}

/// What goes wrong with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is refused, and said to be.
    NotApplied,
    /// It is applied, and the answer is lost.
    AppliedUnseen,
    /// The connection is lost before it is applied, and nobody can tell.
    LostUnseen,
    /// It is held up until another worker holds the run, then handed in.
    HeldUp,
    /// It is held up until another worker is done with the run, then handed in.
    HeldUpLonger,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::NotApplied, Self::AppliedUnseen, Self::LostUnseen, Self::HeldUp, Self::HeldUpLonger];
}

/// One failure of the store: of the write at `point` that is the `nth` (1 for the first) of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreFault {
    /// Which write.
    pub point: Point,
    /// Which of those.
    pub nth: u32,
    /// What goes wrong.
    pub kind: Kind,
}

/// What a store says that refused.
#[must_use]
pub const fn not_applied() -> LedgerError {
    LedgerError::NotApplied { action: "write", source: sqlx::Error::PoolTimedOut }
}

/// What a store says that does not know.
#[must_use]
pub const fn indeterminate() -> LedgerError {
    LedgerError::Indeterminate { action: "write", source: sqlx::Error::WorkerCrashed }
}

/// What stands between workers and their ledger.
#[async_trait]
pub trait Between: Send + Sync + 'static {
    /// The ledger itself.
    fn ledger(&self) -> Arc<dyn Ledger>;

    /// A run is to be started.
    async fn start_run(&self, run: NewRun) -> Result<Started, LedgerError>;

    /// A run is to be taken.
    async fn claim(
        &self,
        by: &ClaimBy,
        wanted: &Wanted,
        at: Timestamp,
    ) -> Result<ClaimOutcome, LedgerError>;

    /// A step is to be made durable.
    async fn append(&self, append: Append) -> Result<Head, LedgerError>;
}

/// The ledger as its workers see it.
pub struct Watched<B>(pub Arc<B>);

#[async_trait]
impl<B: Between> Ledger for Watched<B> {
    async fn append(&self, append: Append) -> Result<Head, LedgerError> {
        self.0.append(append).await
    }

    async fn start_run(&self, run: NewRun) -> Result<Started, LedgerError> {
        self.0.start_run(run).await
    }

    async fn claim(
        &self,
        by: &ClaimBy,
        wanted: &Wanted,
        at: Timestamp,
    ) -> Result<ClaimOutcome, LedgerError> {
        self.0.claim(by, wanted, at).await
    }

    async fn observe(
        &self,
        run: &RunId,
        effect: &EffectId,
        observation: Observation,
        at: Timestamp,
    ) -> Result<Head, LedgerError> {
        self.0.ledger().observe(run, effect, observation, at).await
    }

    async fn lock(&self, wanted: ObjectLock, at: Timestamp) -> Result<Locked, LedgerError> {
        self.0.ledger().lock(wanted, at).await
    }

    async fn unlock(&self, unlock: Unlock, at: Timestamp) -> Result<Head, LedgerError> {
        self.0.ledger().unlock(unlock, at).await
    }

    async fn locks(&self, filter: &LockFilter) -> Result<Vec<LockRow>, LedgerError> {
        self.0.ledger().locks(filter).await
    }

    async fn wake(&self, run: &RunId) -> Result<(), LedgerError> {
        self.0.ledger().wake(run).await
    }

    async fn renew(&self, run: &RunId, fence: Fence, lease_ms: u64) -> Result<bool, LedgerError> {
        self.0.ledger().renew(run, fence, lease_ms).await
    }

    async fn request_cancel(
        &self,
        run: &RunId,
        cancel: &Cancel,
        at: Timestamp,
    ) -> Result<Head, LedgerError> {
        self.0.ledger().request_cancel(run, cancel, at).await
    }

    async fn append_as_operator(&self, append: OperatorAppend) -> Result<Head, LedgerError> {
        self.0.ledger().append_as_operator(append).await
    }

    async fn run(&self, id: &RunId) -> Result<Option<RunRecord>, LedgerError> {
        self.0.ledger().run(id).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>, LedgerError> {
        self.0.ledger().runs(filter).await
    }

    async fn head(&self, run: &RunId) -> Result<Head, LedgerError> {
        self.0.ledger().head(run).await
    }

    async fn history(
        &self,
        run: &RunId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<Entry>, LedgerError> {
        self.0.ledger().history(run, after, limit).await
    }

    async fn effect(&self, id: &EffectId) -> Result<Option<Effect>, LedgerError> {
        self.0.ledger().effect(id).await
    }

    async fn step_effects(&self, run: &RunId, step: &StepId) -> Result<Vec<Effect>, LedgerError> {
        self.0.ledger().step_effects(run, step).await
    }

    async fn effects(&self, filter: &EffectFilter) -> Result<Vec<EffectRow>, LedgerError> {
        self.0.ledger().effects(filter).await
    }

    async fn runs_over(&self, filter: &OverFilter) -> Result<Vec<RunRecord>, LedgerError> {
        self.0.ledger().runs_over(filter).await
    }

    async fn prune(&self, prune: Prune) -> Result<Tombstone, LedgerError> {
        self.0.ledger().prune(prune).await
    }

    async fn tombstone(&self, id: &RunId) -> Result<Option<Tombstone>, LedgerError> {
        self.0.ledger().tombstone(id).await
    }

    async fn now(&self) -> Result<Timestamp, LedgerError> {
        self.0.ledger().now().await
    }

    async fn next_due_ms(&self) -> Result<Option<u64>, LedgerError> {
        self.0.ledger().next_due_ms().await
    }

    async fn overview(&self) -> Result<Overview, LedgerError> {
        self.0.ledger().overview().await
    }

    fn notices(&self) -> Notices {
        self.0.ledger().notices()
    }

    async fn put_definition(&self, digest: &str, text: &str) -> Result<(), LedgerError> {
        self.0.ledger().put_definition(digest, text).await
    }

    async fn definition(&self, digest: &str) -> Result<Option<String>, LedgerError> {
        self.0.ledger().definition(digest).await
    }

    async fn put_module(
        &self,
        name: &Name,
        digest: &str,
        bytes: &[u8],
        at: Timestamp,
    ) -> Result<(), LedgerError> {
        self.0.ledger().put_module(name, digest, bytes, at).await
    }

    async fn module(&self, name: &Name) -> Result<Option<ModuleRow>, LedgerError> {
        self.0.ledger().module(name).await
    }

    async fn module_bytes(&self, digest: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        self.0.ledger().module_bytes(digest).await
    }

    async fn modules(&self) -> Result<Vec<ModuleRow>, LedgerError> {
        self.0.ledger().modules().await
    }

    fn commits(&self) -> u64 {
        self.0.ledger().commits()
    }

    async fn close(&self) {
        self.0.ledger().close().await;
    }
}
