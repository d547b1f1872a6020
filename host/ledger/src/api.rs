//! The ledger's contract.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use twice_core::chain::{Entry, Head, NewEntry};
use twice_core::effect::{Effect, State};
use twice_core::event::{Observation, Parent};
use twice_core::ids::{EffectId, ElementId, Fence, Name, RunId, WorkerId};
use twice_core::progress::{Progress, StepId};
use twice_core::run::{Priority, RunState};
use twice_core::time::Timestamp;

use crate::LedgerError;
use crate::locks::{LockFilter, LockRow, Locked, ObjectLock, Unlock};
use crate::queue::{Notices, Overview, Wanted};
use crate::retention::{OverFilter, Prune, Tombstone};

/// A run to start.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The caller's own key: starting again with the same key finds the same run.
    pub caller_key: Option<String>,
    /// The workflow.
    pub workflow: Name,
    /// Digest of the pinned definition (see [`Ledger::put_definition`]).
    pub definition: String,
    /// The input, strictly parsed.
    pub input: Value,
    /// How urgent it is; fixed from then on.
    pub priority: Priority,
    /// The first entry of its chain, a `run_started`. It says whose child the run is, if it is one.
    pub entry: NewEntry,
    /// When set, the run is claimed in the same transaction.
    pub claim: Option<ClaimBy>,
    /// The token under which its parent is held, if it has one: only whoever holds that run starts others for it (I7).
    pub parent_fence: Option<Fence>,
}

/// Who claims, and for how long.
#[derive(Debug, Clone)]
pub struct ClaimBy {
    /// The worker.
    pub worker: WorkerId,
    /// The length of the lease, from now by the database's clock. Milliseconds.
    pub lease_ms: u64,
}

/// What came of starting a run.
#[derive(Debug)]
pub enum Started {
    /// It is new; claimed, if that was asked for.
    Created(Option<Claim>),
    /// The same run was started before; nothing was written.
    Existing(RunRecord),
}

/// A run held under a lease.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The run as it was when claimed.
    pub run: RunRecord,
    /// The fencing token of this lease.
    pub fence: Fence,
    /// The head of its chain.
    pub head: Head,
}

/// What came of trying to claim.
#[derive(Debug)]
pub enum ClaimOutcome {
    /// The run is ours.
    Claimed(Box<Claim>),
    /// Nothing is due (or the run that was asked for is not claimable: see its record).
    Nothing,
    /// The run killed too many workers and was put into quarantine by this very call.
    Quarantined(RunId),
}

/// A run as recorded: the projection of its entries, and its lease.
#[derive(Debug, Clone)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// The workflow.
    pub workflow: Name,
    /// Digest of the pinned definition.
    pub definition: String,
    /// The input.
    pub input: Value,
    /// How urgent it is.
    pub priority: Priority,
    /// Where it stands.
    pub state: RunState,
    /// The checkpoint. It may lag behind the entries: see [`crate::progress_of`].
    pub progress: Progress,
    /// The number of the last entry that the checkpoint has taken in.
    pub progress_seq: i64,
    /// The output, once completed.
    pub output: Option<Value>,
    /// Why it waits, halted or failed.
    pub reason: Option<String>,
    /// Who asked for its cancellation, if somebody did.
    pub cancel: Option<Cancel>,
    /// When it is due again, while it waits.
    pub due_at: Option<Timestamp>,
    /// Who holds or last held it.
    pub worker: Option<WorkerId>,
    /// The current fencing token.
    pub fence: Fence,
    /// Whether the lease is held, by the database's clock at the time of reading.
    pub lease_live: bool,
    /// When the lease ends or ended, by the database's clock.
    pub lease_until: Option<Timestamp>,
    /// Times a worker vanished with it in a row, without progress.
    pub crashes: u32,
    /// When it was started.
    pub created_at: Timestamp,
    /// When its latest entry was made.
    pub updated_at: Timestamp,
    /// The effect that it is, when another run started it.
    pub parent: Option<Parent>,
}

/// A request to cancel a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Who asks.
    pub who: String,
    /// Why, in their words.
    pub why: String,
}

/// What becomes of a run with an [`Append`].
#[derive(Debug, Clone, PartialEq)]
pub struct RunChange {
    /// Its new state. Anything but `running` ends the lease.
    pub state: RunState,
    /// Its new checkpoint, which has taken in every entry up to the last of this write; absent, the old one stays.
    pub progress: Option<Progress>,
    /// Its output.
    pub output: Option<Value>,
    /// Why it waits, halted or failed.
    pub reason: Option<String>,
    /// When it is due again.
    pub due_at: Option<Timestamp>,
    /// Whether whoever writes this knows of the request to cancel the run, if there is one. A run that is left to wait by one who
    /// does not is due at once instead.
    pub cancel_seen: bool,
}

/// One durable step of a run: everything in it is written in one transaction under the fence, or nothing is.
#[derive(Debug, Clone)]
pub struct Append {
    /// The run.
    pub run: RunId,
    /// The token of the lease.
    pub fence: Fence,
    /// The entries, in order.
    pub entries: Vec<NewEntry>,
    /// The effects that they touch, as they stand after them.
    pub effects: Vec<Effect>,
    /// What becomes of the run, if anything does.
    pub run_change: Option<RunChange>,
    /// Whether this is progress that clears the crash count.
    pub progress_made: bool,
    /// Whether the run has passed its point of no return, as far as whoever writes this knows: no request to cancel it counts
    /// any more.
    pub past_pivot: bool,
}

/// What an operator does to a run that no worker holds; or, to whatever run, an answer to what a person was asked: entries about
/// effects that ask for an approval, and no change of the run.
#[derive(Debug, Clone)]
pub struct OperatorAppend {
    /// The run.
    pub run: RunId,
    /// The entries, in order.
    pub entries: Vec<NewEntry>,
    /// The effects that they touch, as they stand after them.
    pub effects: Vec<Effect>,
    /// The run's state and due time afterwards, if they change.
    pub run_change: Option<RunChange>,
    /// The head on which the decision rests; when the chain has grown since, nothing is written.
    pub expected_head: Head,
}

/// Which effects to list.
#[derive(Debug, Clone, Default)]
pub struct EffectFilter {
    /// Of this run.
    pub run: Option<RunId>,
    /// Shown in this state (REQUESTED under a dead lease counts as UNKNOWN).
    pub state: Option<State>,
    /// Held for a person's decision.
    pub held: bool,
    /// Not answered yet.
    pub waiting: bool,
    /// Asks a person's approval of another.
    pub approvals: bool,
    /// After this id, for paging.
    pub after: Option<EffectId>,
    /// At most so many; 0 and whatever exceeds the page limit mean the page limit.
    pub limit: u32,
}

/// An effect as listed. The whole of it is [`Ledger::effect`].
#[derive(Debug, Clone, PartialEq)]
pub struct EffectRow {
    /// Its id.
    pub id: EffectId,
    /// The run that owns it.
    pub run: RunId,
    /// The node that asked.
    pub node: Name,
    /// The visit of that node.
    pub visit: u32,
    /// The element, in a fan-out.
    pub element: Option<ElementId>,
    /// The slot.
    pub slot: Name,
    /// `tool.operation`.
    pub operation: String,
    /// The readable key.
    pub idempotency_key: String,
    /// The digest of the request.
    pub request_hash: String,
    /// The state to show: REQUESTED under a dead lease is UNKNOWN (I5).
    pub state: State,
    /// How many attempts were made.
    pub attempts: u32,
    /// The provider's id, once confirmed.
    pub external_id: Option<String>,
    /// Whether a person must decide.
    pub held: bool,
    /// The effect that it undoes, if it undoes one.
    pub undoes: Option<EffectId>,
    /// The effect that it asks a person's approval of, if it does.
    pub approves: Option<EffectId>,
    /// The last error.
    pub last_error: Option<String>,
    /// When its latest entry was made.
    pub updated_at: Timestamp,
}

/// Which runs to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// In this state.
    pub state: Option<RunState>,
    /// Of this workflow.
    pub workflow: Option<Name>,
    /// Started by this run.
    pub parent: Option<RunId>,
    /// Not over.
    pub open: bool,
    /// Started before this run, for paging.
    pub before: Option<RunId>,
    /// At most so many; 0 and whatever exceeds the page limit mean the page limit.
    pub limit: u32,
}

/// A registered component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleRow {
    /// Its name.
    pub name: Name,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was registered under this name.
    pub added_at: Timestamp,
}

/// The ledger. Implemented by [`crate::SqlLedger`] for each database, and by [`crate::MemoryLedger`] as the executable
/// specification.
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Starts a run, or finds it started already.
    ///
    /// # Errors
    /// [`LedgerError::RunConflict`] when the id or the caller's key belongs to a run with another workflow or input, or
    /// the id to a run with another caller's key, or a child is to be started and the run is not its parent's; [`LedgerError::Pruned`] when it was run and removed;
    /// [`LedgerError::Fenced`] when it is new and its parent is not held under that token;
    /// [`LedgerError::Absent`] when its definition was not stored before.
    async fn start_run(&self, run: NewRun) -> Result<Started, LedgerError>;

    /// Takes a run: the one named, or the next one of a turn. Raises its fencing token, records the claim
    /// (`run_claimed`), and counts a crash when the last owner vanished. A run is claimable when it is `ready` or
    /// `waiting` and due, or `running` under a dead lease.
    ///
    /// # Errors
    /// [`LedgerError::Absent`] when the named run does not exist.
    async fn claim(
        &self,
        by: &ClaimBy,
        wanted: &Wanted,
        at: Timestamp,
    ) -> Result<ClaimOutcome, LedgerError>;

    /// Extends a lease, from now by the database's clock. Tells whether the run's cancellation was asked for.
    ///
    /// # Errors
    /// [`LedgerError::Fenced`] when it is gone (expired leases that nobody took may be extended).
    async fn renew(&self, run: &RunId, fence: Fence, lease_ms: u64) -> Result<bool, LedgerError>;

    /// Asks that a run be cancelled, whoever holds it: one `cancel_requested` entry at the end of its chain, under its current
    /// fencing token. From then on the run asks for nothing new ([`Ledger::append`] refuses it). A worker that holds it is told with
    /// that, or with its next renewal; a run that waits, for a person as well, becomes due at once. Asking again does nothing.
    ///
    /// # Errors
    /// [`LedgerError::Absent`]; [`LedgerError::State`] when it is over, stuck or in quarantine.
    async fn request_cancel(
        &self,
        run: &RunId,
        cancel: &Cancel,
        at: Timestamp,
    ) -> Result<Head, LedgerError>;

    /// Makes a step of a run durable. When this returns, it is on disk.
    ///
    /// # Errors
    /// [`LedgerError::Fenced`], also when the lease was ended by an earlier append; [`LedgerError::EffectOwned`];
    /// [`LedgerError::Cancelled`] when the cancellation of the run was asked for, and this asks for something new that undoes
    /// nothing ([`twice_core::saga::asks_anew`]), or completes the run, unless that has passed its point of no return;
    /// [`LedgerError::State`] when an entry is no legal move of its effect, or `effects` does not tell the states that
    /// the entries lead to; [`LedgerError::Indeterminate`].
    async fn append(&self, append: Append) -> Result<Head, LedgerError>;

    /// Writes a person's decision about a run that no worker holds; raises the fencing token, so that nothing older can
    /// write after it. An answer to what a person was asked is written whoever holds the run, under its current token, and
    /// whatever was written since it was read; it changes nothing about the run, which is to be woken ([`Ledger::wake`]).
    ///
    /// # Errors
    /// [`LedgerError::State`] when a worker holds the run, the chain has grown since, the run would become `running`, or
    /// an entry is no legal move. A change of the run also clears its crash count.
    async fn append_as_operator(&self, append: OperatorAppend) -> Result<Head, LedgerError>;

    /// Makes a run due at once that waits, as what it waits for may be there. One that does not wait, or is not there, stays
    /// as it is: whoever holds it looks for itself.
    async fn wake(&self, run: &RunId) -> Result<(), LedgerError>;

    /// Keeps something that arrived about an effect and may not be applied, such as the answer to a worker that lost its
    /// run. One `observed` entry is written at the end of the run's chain, whoever holds the run, under its current fencing
    /// token; it changes neither the effect nor the run nor the lease. Observing the same again writes another entry.
    ///
    /// # Errors
    /// [`LedgerError::Absent`] when there is no such run or effect; [`LedgerError::EffectOwned`] when the effect is another
    /// run's; [`LedgerError::State`] when nothing of the effect can have been sent.
    async fn observe(
        &self,
        run: &RunId,
        effect: &EffectId,
        observation: Observation,
        at: Timestamp,
    ) -> Result<Head, LedgerError>;

    /// Takes a lock on a business object for a run, which has it from then on until the run is over, or for as long as stated. Taking it
    /// again makes that longer, never shorter, and writes nothing when it is long enough. One entry (`object_locked`) is
    /// written with it, at the end of the run's chain. While another run has it, nothing is taken: what becomes of the run
    /// that waits is the caller's to say.
    ///
    /// # Errors
    /// [`LedgerError::Fenced`]; [`LedgerError::Absent`] when there is no such run.
    async fn lock(&self, wanted: ObjectLock, at: Timestamp) -> Result<Locked, LedgerError>;

    /// Takes a lock from a run that no worker holds, on a person's word; raises the fencing token.
    ///
    /// # Errors
    /// [`LedgerError::Absent`] when there is no such run, or it does not have the lock; [`LedgerError::State`] when a worker
    /// holds the run.
    async fn unlock(&self, unlock: Unlock, at: Timestamp) -> Result<Head, LedgerError>;

    /// A page of the locks that runs have.
    async fn locks(&self, filter: &LockFilter) -> Result<Vec<LockRow>, LedgerError>;

    /// A page of runs that are over and have been for some time, in the order of their ids.
    async fn runs_over(&self, filter: &OverFilter) -> Result<Vec<RunRecord>, LedgerError>;

    /// Removes a run that is over, with its entries and effects, and leaves a tombstone, in one transaction. Removing it again
    /// finds the tombstone.
    ///
    /// # Errors
    /// [`LedgerError::Absent`]; [`LedgerError::State`] when the run is not over, has grown since, is the child
    /// of a run that is not over, or owns an effect that other runs may still adopt.
    async fn prune(&self, prune: Prune) -> Result<Tombstone, LedgerError>;

    /// What stays of a run that was removed.
    async fn tombstone(&self, id: &RunId) -> Result<Option<Tombstone>, LedgerError>;

    /// The run of that id.
    async fn run(&self, id: &RunId) -> Result<Option<RunRecord>, LedgerError>;

    /// A page of runs.
    async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>, LedgerError>;

    /// The head of a run's chain.
    ///
    /// # Errors
    /// [`LedgerError::Absent`] when the run does not exist.
    async fn head(&self, run: &RunId) -> Result<Head, LedgerError>;

    /// A page of a run's entries after number `after`; `limit` as in the filters. Empty when there is no such run.
    async fn history(&self, run: &RunId, after: i64, limit: u32)
    -> Result<Vec<Entry>, LedgerError>;

    /// An effect, folded from its entries.
    async fn effect(&self, id: &EffectId) -> Result<Option<Effect>, LedgerError>;

    /// The effects that a run owns, folded, of one step.
    async fn step_effects(&self, run: &RunId, step: &StepId) -> Result<Vec<Effect>, LedgerError>;

    /// A page of effects.
    async fn effects(&self, filter: &EffectFilter) -> Result<Vec<EffectRow>, LedgerError>;

    /// How long until another run becomes claimable, by its due time or the end of its lease; `None` when none will by
    /// itself. What is claimable already does not count. Milliseconds, by the database's clock.
    async fn next_due_ms(&self) -> Result<Option<u64>, LedgerError>;

    /// How many runs of each workflow stand how, and who holds runs. Runs that are over are not looked at.
    async fn overview(&self) -> Result<Overview, LedgerError>;

    /// Notices of runs that may have become claimable. Must be called within a Tokio runtime.
    fn notices(&self) -> Notices;

    /// Stores a pinned definition under its digest; storing it again does nothing.
    async fn put_definition(&self, digest: &str, text: &str) -> Result<(), LedgerError>;

    /// A pinned definition.
    async fn definition(&self, digest: &str) -> Result<Option<String>, LedgerError>;

    /// Registers a component under a name; the newest registration of a name is the current one. Registering the current
    /// one again does nothing.
    async fn put_module(
        &self,
        name: &Name,
        digest: &str,
        bytes: &[u8],
        at: Timestamp,
    ) -> Result<(), LedgerError>;

    /// The current component of a name.
    async fn module(&self, name: &Name) -> Result<Option<ModuleRow>, LedgerError>;

    /// The bytes of a component.
    async fn module_bytes(&self, digest: &str) -> Result<Option<Vec<u8>>, LedgerError>;

    /// The current component of every name.
    async fn modules(&self) -> Result<Vec<ModuleRow>, LedgerError>;

    /// What the database's clock shows, by which leases and due times are judged.
    async fn now(&self) -> Result<Timestamp, LedgerError>;

    /// How many transactions were committed since the ledger was opened; the measure of shared commits.
    fn commits(&self) -> u64;

    /// Stops the writer after what it has taken in is durable.
    async fn close(&self);
}
