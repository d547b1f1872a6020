//! A ledger whose store fails at one append: before it is applied, after it was, or while nobody can tell; or that is held
//! up in it for as long as a test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use twice_core::chain::{Entry, Head};
use twice_core::effect::Effect;
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::time::Timestamp;
use twice_ledger::{
    Append, ClaimBy, ClaimOutcome, EffectFilter, EffectRow, Ledger, LedgerError, ModuleRow, NewRun,
    OperatorAppend, RunFilter, RunRecord, Started,
};

/// What goes wrong with an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is refused, and said to be.
    NotApplied,
    /// It is applied, and the answer is lost.
    AppliedUnseen,
    /// The connection is lost before it is applied, and nobody can tell.
    LostUnseen,
    /// It is held up until [`StoreFault::release`], then handed in.
    HeldUp,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] =
        [Self::NotApplied, Self::AppliedUnseen, Self::LostUnseen, Self::HeldUp];
}

/// One failure of the store, at the append of that number.
#[derive(Debug)]
pub struct StoreFault {
    kind: Kind,
    at: u32,
    appends: AtomicU32,
    held: Semaphore,
    released: Semaphore,
}

impl StoreFault {
    /// The append `at` (1 for the first that any worker makes) goes wrong in that way.
    #[must_use]
    pub fn new(kind: Kind, at: u32) -> Arc<Self> {
        Arc::new(Self {
            kind,
            at,
            appends: AtomicU32::new(0),
            held: Semaphore::new(0),
            released: Semaphore::new(0),
        })
    }

    /// Whether that append was made.
    #[must_use]
    pub fn happened(&self) -> bool {
        self.appends.load(Ordering::SeqCst) >= self.at
    }

    /// Returns once the append is held up, for whoever asks first.
    pub async fn held(&self) {
        pass(&self.held).await;
    }

    /// Lets the append that is held up go on.
    pub fn release(&self) {
        self.released.add_permits(1);
    }
}

async fn pass(gate: &Semaphore) {
    gate.acquire().await.expect("the gate is never closed").forget();
}

/// A ledger that fails as a [`StoreFault`] says, and otherwise does as the one behind it.
pub struct FaultyLedger {
    inner: Arc<dyn Ledger>,
    fault: Arc<StoreFault>,
}

impl FaultyLedger {
    /// `inner`, with that failure.
    #[must_use]
    pub fn new(inner: Arc<dyn Ledger>, fault: Arc<StoreFault>) -> Self {
        Self { inner, fault }
    }
}

const ACTION: &str = "append to a run";

fn indeterminate() -> LedgerError {
    LedgerError::Indeterminate { action: ACTION, source: sqlx::Error::WorkerCrashed }
}

#[async_trait]
impl Ledger for FaultyLedger {
    async fn append(&self, append: Append) -> Result<Head, LedgerError> {
        let number = self.fault.appends.fetch_add(1, Ordering::SeqCst) + 1;
        if number != self.fault.at {
            return self.inner.append(append).await;
        }
        match self.fault.kind {
            Kind::NotApplied => {
                let source = sqlx::Error::PoolTimedOut;
                Err(LedgerError::NotApplied { action: ACTION, source })
            }
            Kind::AppliedUnseen => {
                self.inner.append(append).await?;
                Err(indeterminate())
            }
            Kind::LostUnseen => Err(indeterminate()),
            Kind::HeldUp => {
                self.fault.held.add_permits(1);
                pass(&self.fault.released).await;
                self.inner.append(append).await
            }
        }
    }

    async fn start_run(&self, run: NewRun) -> Result<Started, LedgerError> {
        self.inner.start_run(run).await
    }

    async fn claim(
        &self,
        by: &ClaimBy,
        run: Option<&RunId>,
        early: bool,
        at: Timestamp,
    ) -> Result<ClaimOutcome, LedgerError> {
        self.inner.claim(by, run, early, at).await
    }

    async fn renew(&self, run: &RunId, fence: Fence, lease_ms: u64) -> Result<(), LedgerError> {
        self.inner.renew(run, fence, lease_ms).await
    }

    async fn append_as_operator(&self, append: OperatorAppend) -> Result<Head, LedgerError> {
        self.inner.append_as_operator(append).await
    }

    async fn run(&self, id: &RunId) -> Result<Option<RunRecord>, LedgerError> {
        self.inner.run(id).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>, LedgerError> {
        self.inner.runs(filter).await
    }

    async fn head(&self, run: &RunId) -> Result<Head, LedgerError> {
        self.inner.head(run).await
    }

    async fn history(
        &self,
        run: &RunId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<Entry>, LedgerError> {
        self.inner.history(run, after, limit).await
    }

    async fn effect(&self, id: &EffectId) -> Result<Option<Effect>, LedgerError> {
        self.inner.effect(id).await
    }

    async fn step_effects(
        &self,
        run: &RunId,
        node: &Name,
        visit: u32,
    ) -> Result<Vec<Effect>, LedgerError> {
        self.inner.step_effects(run, node, visit).await
    }

    async fn effects(&self, filter: &EffectFilter) -> Result<Vec<EffectRow>, LedgerError> {
        self.inner.effects(filter).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, LedgerError> {
        self.inner.next_due().await
    }

    async fn put_definition(&self, digest: &str, text: &str) -> Result<(), LedgerError> {
        self.inner.put_definition(digest, text).await
    }

    async fn definition(&self, digest: &str) -> Result<Option<String>, LedgerError> {
        self.inner.definition(digest).await
    }

    async fn put_module(
        &self,
        name: &Name,
        digest: &str,
        bytes: &[u8],
        at: Timestamp,
    ) -> Result<(), LedgerError> {
        self.inner.put_module(name, digest, bytes, at).await
    }

    async fn module(&self, name: &Name) -> Result<Option<ModuleRow>, LedgerError> {
        self.inner.module(name).await
    }

    async fn module_bytes(&self, digest: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        self.inner.module_bytes(digest).await
    }

    async fn modules(&self) -> Result<Vec<ModuleRow>, LedgerError> {
        self.inner.modules().await
    }

    fn commits(&self) -> u64 {
        self.inner.commits()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
