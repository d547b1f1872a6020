use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use twice_core::chain::{Entry, Head};
use twice_core::effect::{Effect, State};
use twice_core::event::Observation;
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::progress::StepId;
use twice_core::run::RunState;
use twice_core::time::Timestamp;

use crate::dialect::postgres::{self, PostgresDialect};
use crate::dialect::sqlite::SqliteDialect;
use crate::dialect::{Connection, Dialect, Trouble};
use crate::rows::{self, Fields};
use crate::stored::Cleaner;
use crate::value::{Row, Value};
use crate::work::{Reply, Start, Work};
use crate::writers::Writers;
use crate::{
    Append, Cancel, ClaimBy, ClaimOutcome, Clock, EffectFilter, EffectRow, Ledger, LedgerError,
    LedgerOptions, LockFilter, LockRow, Locked, ModuleRow, NewRun, Notices, ObjectLock,
    OperatorAppend, OverFilter, Overview, Prune, RunFilter, RunRecord, Started, Tombstone, Unlock,
    Wanted, locks, migrate, retention, rules, sql,
};

/// The ledger in a database. One of them per process and database: it has the only writers.
pub struct SqlLedger {
    dialect: Arc<dyn Dialect>,
    writers: Writers,
    cleaner: Cleaner,
    clock: Option<Clock>,
    /// Tells of runs that may have become claimable.
    notice: watch::Sender<()>,
    /// Whether what other processes tell is listened to.
    listening: AtomicBool,
}

/// How often opening is tried while another process holds the file.
const OPEN_TRIES: u32 = 20;
/// The pause after the first try; it grows by itself with each.
const OPEN_PAUSE: Duration = Duration::from_millis(25);

impl SqlLedger {
    /// Opens the ledger at a path or URL (`twice.db`, `sqlite:twice.db`, `postgres://USER@HOST/DATABASE`) and brings it up
    /// to this build's schema. A file is made when it is missing, unless the
    /// options say otherwise; one that is a database of something else is left alone. A Postgres database has to be there. The password in a
    /// URL becomes a secret of the redactor. Must be called within a Tokio runtime, which its writers then run on.
    ///
    /// # Errors
    /// [`LedgerError::Open`], with what to do; also when a server is set up to lose what it confirms.
    pub async fn open(url_or_path: &str, options: LedgerOptions) -> Result<Self, LedgerError> {
        let dialect = dialect_of(url_or_path, &options)?;
        let mut tried = 0;
        let mut connection = loop {
            tried += 1;
            match connect(&*dialect).await {
                Ok(connection) => break connection,
                // A process that opens or closes the file holds locks for which SQLite's own busy timeout does not wait; a
                // server may be just starting.
                Err(Refusal::Failed(error))
                    if tried < OPEN_TRIES && dialect.judge(&error) == Trouble::InTheWay =>
                {
                    tokio::time::sleep(OPEN_PAUSE * tried).await;
                }
                Err(refusal) => {
                    dialect.close_readers().await;
                    let url = dialect.location().to_owned();
                    let problem = match refusal {
                        Refusal::Failed(error) => dialect.explain(&error),
                        Refusal::Objection(problem) => problem,
                    };
                    return Err(LedgerError::Open { url, problem });
                }
            }
        };
        migrate::run(&*dialect, &mut *connection).await?;
        let notice = watch::Sender::new(());
        let writers = Writers::start(&dialect, connection, options.now.as_ref(), &notice);
        Ok(Self {
            dialect,
            writers,
            cleaner: Cleaner(options.redactor),
            clock: options.now,
            notice,
            listening: AtomicBool::new(false),
        })
    }

    async fn read(
        &self,
        action: &'static str,
        statement: &'static str,
        args: Vec<Value>,
    ) -> Result<Vec<Row>, LedgerError> {
        self.dialect.read(statement, args).await.map_err(|source| match source {
            sqlx::Error::PoolClosed => LedgerError::Closed,
            source => LedgerError::NotApplied { action, source },
        })
    }

    /// The instant to judge leases by; NULL for the database's own.
    fn instant(&self) -> Value {
        self.clock.as_ref().map(|clock| clock().0).into()
    }
}

/// Why there is no connection.
enum Refusal {
    Failed(sqlx::Error),
    Objection(String),
}

async fn connect(dialect: &dyn Dialect) -> Result<Box<dyn Connection>, Refusal> {
    match dialect.objection().await.map_err(Refusal::Failed)? {
        Some(problem) => Err(Refusal::Objection(problem)),
        None => dialect.connect().await.map_err(Refusal::Failed),
    }
}

/// The database that a path or URL names.
fn dialect_of(url_or_path: &str, options: &LedgerOptions) -> Result<Arc<dyn Dialect>, LedgerError> {
    if !postgres::is_url(url_or_path) {
        return Ok(Arc::new(SqliteDialect::new(&sqlite_path(url_or_path)?, options)));
    }
    if let Some(password) = postgres::password(url_or_path) {
        let mut redactor = options.redactor.write().unwrap_or_else(PoisonError::into_inner);
        // One that is too short to be taken out of texts is in none of ours.
        let _ = redactor.add(&password);
    }
    Ok(Arc::new(PostgresDialect::new(url_or_path, options)?))
}

/// The file of an SQLite ledger.
fn sqlite_path(url_or_path: &str) -> Result<PathBuf, LedgerError> {
    let refuse = |url: &str, problem: &str| {
        Err(LedgerError::Open { url: url.to_owned(), problem: problem.to_owned() })
    };
    let path = url_or_path
        .strip_prefix("sqlite://")
        .or_else(|| url_or_path.strip_prefix("sqlite:"))
        .unwrap_or(url_or_path);
    match path.split_once("://") {
        // Only the scheme is shown: what follows it may hold a password.
        Some((scheme, _)) => refuse(
            &format!("{scheme}://…"),
            "there is no support for that database; use a path, `sqlite:PATH` or `postgres://USER@HOST/DATABASE`",
        ),
        None if path.is_empty() || path == ":memory:" => {
            refuse(url_or_path, "a ledger must outlive its process; give the path of a file")
        }
        None => Ok(PathBuf::from(path)),
    }
}

#[async_trait]
impl Ledger for SqlLedger {
    async fn start_run(&self, run: NewRun) -> Result<Started, LedgerError> {
        let start = Start {
            caller_key: self.cleaner.key(run.caller_key.as_deref())?,
            input: self.cleaner.json(&run.input),
            entry: self.cleaner.entry(run.entry)?,
            id: run.id,
            workflow: run.workflow,
            definition: run.definition,
            priority: run.priority,
            claim: run.claim,
            parent_fence: run.parent_fence,
        };
        let Reply::Started(started) = self.writers.write(Work::Start(Box::new(start))).await?
        else {
            unreachable!("a start is answered as one")
        };
        Ok(*started)
    }

    async fn claim(
        &self,
        by: &ClaimBy,
        wanted: &Wanted,
        at: Timestamp,
    ) -> Result<ClaimOutcome, LedgerError> {
        let work = Work::Claim { by: by.clone(), wanted: wanted.clone(), at };
        let Reply::Claim(outcome) = self.writers.write(work).await? else {
            unreachable!("a claim is answered as one")
        };
        Ok(outcome)
    }

    async fn renew(&self, run: &RunId, fence: Fence, lease_ms: u64) -> Result<bool, LedgerError> {
        let work = Work::Renew { run: run.clone(), fence, lease_ms };
        let Reply::Renewed { cancelled } = self.writers.write(work).await? else {
            unreachable!("a renewal is answered as one")
        };
        Ok(cancelled)
    }

    async fn request_cancel(
        &self,
        run: &RunId,
        cancel: &Cancel,
        at: Timestamp,
    ) -> Result<Head, LedgerError> {
        let (cancel, entry) = self.cleaner.cancel(cancel, at)?;
        let work = Work::Cancel { run: run.clone(), cancel, entry: Box::new(entry) };
        Ok(self.writers.write(work).await?.into_head())
    }

    async fn append(&self, append: Append) -> Result<Head, LedgerError> {
        let Append { run, fence, entries, effects, run_change, progress_made, past_pivot } = append;
        let write = self.cleaner.write(run, entries, &effects, run_change)?;
        Ok(self
            .writers
            .write(Work::Append { write, fence, progress_made, past_pivot })
            .await?
            .into_head())
    }

    async fn append_as_operator(&self, append: OperatorAppend) -> Result<Head, LedgerError> {
        let OperatorAppend { run, entries, effects, run_change, expected_head } = append;
        let write = self.cleaner.write(run, entries, &effects, run_change)?;
        Ok(self.writers.write(Work::Decide { write, expected_head }).await?.into_head())
    }

    async fn wake(&self, run: &RunId) -> Result<(), LedgerError> {
        self.writers.write(Work::Wake { run: run.clone() }).await.map(drop)
    }

    async fn observe(
        &self,
        run: &RunId,
        effect: &EffectId,
        observation: Observation,
        at: Timestamp,
    ) -> Result<Head, LedgerError> {
        let entry = self.cleaner.observation(effect, observation, at)?;
        let work =
            Work::Observe { run: run.clone(), effect: effect.clone(), entry: Box::new(entry) };
        Ok(self.writers.write(work).await?.into_head())
    }

    async fn lock(&self, wanted: ObjectLock, at: Timestamp) -> Result<Locked, LedgerError> {
        let asked = self.cleaner.asked(wanted, at);
        let Reply::Locked(locked) = self.writers.write(Work::Lock(Box::new(asked))).await? else {
            unreachable!("asking for a lock is answered as that")
        };
        Ok(locked)
    }

    async fn unlock(&self, unlock: Unlock, at: Timestamp) -> Result<Head, LedgerError> {
        let freed = self.cleaner.freed(unlock, at)?;
        Ok(self.writers.write(Work::Unlock(Box::new(freed))).await?.into_head())
    }

    async fn locks(&self, filter: &LockFilter) -> Result<Vec<LockRow>, LedgerError> {
        let after =
            filter.after.as_ref().map_or(("", ""), |(name, object)| (name.as_str(), object));
        let args = vec![
            filter.run.as_ref().map(RunId::as_str).into(),
            filter.object.as_deref().map(|object| self.cleaner.lock_object(object)).into(),
            after.0.into(),
            after.1.into(),
            i64::from(rules::page(filter.limit)).into(),
        ];
        locks::listed(self.read("list locks", sql::OBJECT_LOCKS, args).await?)
    }

    async fn runs_over(&self, filter: &OverFilter) -> Result<Vec<RunRecord>, LedgerError> {
        let args = vec![
            self.instant(),
            filter.state.map(RunState::as_str).into(),
            i64::try_from(filter.older_than_ms).unwrap_or(i64::MAX).into(),
            filter.after.as_ref().map_or("", RunId::as_str).into(),
            i64::from(rules::page(filter.limit)).into(),
        ];
        let rows = self.read("list runs", sql::RUNS_OVER, args).await?;
        rows.into_iter().map(|row| Ok(rows::run(row)?.0)).collect()
    }

    async fn prune(&self, prune: Prune) -> Result<Tombstone, LedgerError> {
        let prune = self.cleaner.prune(prune)?;
        let Reply::Tombstone(tombstone) = self.writers.write(Work::Prune(Box::new(prune))).await?
        else {
            unreachable!("removing a run is answered by its tombstone")
        };
        Ok(*tombstone)
    }

    async fn tombstone(&self, id: &RunId) -> Result<Option<Tombstone>, LedgerError> {
        let args = vec![id.as_str().into()];
        let row = self.read("read a tombstone", sql::TOMBSTONE, args).await?.pop();
        row.map(retention::tombstone).transpose()
    }

    async fn run(&self, id: &RunId) -> Result<Option<RunRecord>, LedgerError> {
        let args = vec![self.instant(), id.as_str().into()];
        let row = self.read("read a run", sql::RUN, args).await?.pop();
        row.map(|row| rows::run(row).map(|(record, _)| record)).transpose()
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>, LedgerError> {
        let mut args = vec![
            self.instant(),
            filter.state.map(RunState::as_str).into(),
            filter.workflow.as_ref().map(Name::as_str).into(),
            i64::from(rules::page(filter.limit)).into(),
            i64::from(filter.open).into(),
        ];
        args.extend(filter.parent.iter().map(|parent| parent.as_str().into()));
        args.extend(filter.before.iter().map(|before| before.as_str().into()));
        let statement = match (&filter.parent, &filter.before) {
            (None, None) => sql::RUNS,
            (None, Some(_)) => sql::RUNS_BEFORE,
            (Some(_), None) => sql::CHILDREN,
            (Some(_), Some(_)) => sql::CHILDREN_BEFORE,
        };
        let found = self.read("list runs", statement, args).await?;
        found.into_iter().map(|row| rows::run(row).map(|(record, _)| record)).collect()
    }

    async fn head(&self, run: &RunId) -> Result<Head, LedgerError> {
        let row = self.read("read a chain", sql::HEAD, vec![run.as_str().into()]).await?.pop();
        row.map_or_else(|| Err(rules::absent("run", run)), |row| Fields::of("run", row).head())
    }

    async fn history(
        &self,
        run: &RunId,
        after: i64,
        limit: u32,
    ) -> Result<Vec<Entry>, LedgerError> {
        let args = vec![run.as_str().into(), after.into(), i64::from(rules::page(limit)).into()];
        let found = self.read("read a history", sql::HISTORY, args).await?;
        found.into_iter().map(rows::entry).collect()
    }

    async fn effect(&self, id: &EffectId) -> Result<Option<Effect>, LedgerError> {
        let args = vec![id.as_str().into()];
        let found = self.read("read an effect", sql::ENTRIES_OF_EFFECT, args).await?;
        let entries = found.into_iter().map(rows::entry).collect::<Result<_, _>>()?;
        Ok(rows::fold(entries)?.pop())
    }

    async fn step_effects(&self, run: &RunId, step: &StepId) -> Result<Vec<Effect>, LedgerError> {
        let StepId { node, visit, element } = step;
        let mut args = vec![run.as_str().into(), node.as_str().into(), i64::from(*visit).into()];
        let statement = match element {
            None => sql::ENTRIES_OF_STEP,
            Some(element) => {
                args.push(element.as_str().into());
                sql::ENTRIES_OF_ELEMENT
            }
        };
        let found = self.read("read the effects of a step", statement, args).await?;
        rows::fold(found.into_iter().map(rows::entry).collect::<Result<_, _>>()?)
    }

    async fn effects(&self, filter: &EffectFilter) -> Result<Vec<EffectRow>, LedgerError> {
        let open = filter.waiting || filter.state.is_some_and(|state| !state.is_final());
        let statement = match (&filter.run, filter.held, filter.approvals, open) {
            (Some(_), _, _, _) => sql::EFFECTS_OF_RUN,
            (None, true, _, _) => sql::EFFECTS_HELD,
            (None, false, true, _) => sql::EFFECTS_APPROVING,
            (None, false, false, true) => sql::EFFECTS_OPEN,
            (None, false, false, false) => sql::EFFECTS,
        };
        let args = vec![
            self.instant(),
            filter.run.as_ref().map(RunId::as_str).into(),
            filter.state.map(State::as_str).into(),
            i64::from(filter.held).into(),
            i64::from(filter.waiting).into(),
            filter.after.as_ref().map_or("", EffectId::as_str).into(),
            i64::from(rules::page(filter.limit)).into(),
            i64::from(filter.approvals).into(),
        ];
        let found = self.read("list effects", statement, args).await?;
        found.into_iter().map(rows::effect).collect()
    }

    async fn now(&self) -> Result<Timestamp, LedgerError> {
        let row = self.read("tell the time", sql::NOW, vec![self.instant()]).await?.pop();
        let now = row.map(|row| Fields::of("clock", row).optional_int("now_ms")).transpose()?;
        Ok(Timestamp(now.flatten().unwrap_or(0)))
    }

    async fn next_due_ms(&self) -> Result<Option<u64>, LedgerError> {
        let args = vec![self.instant()];
        let row = self.read("find what is due next", sql::NEXT_DUE, args).await?.pop();
        let next = row.map(|row| Fields::of("run", row).optional_int("claim_at")).transpose()?;
        Ok(next.flatten().map(|ms| u64::try_from(ms).unwrap_or(0)))
    }

    async fn overview(&self) -> Result<Overview, LedgerError> {
        let loads = self.read("count runs", sql::LOADS, vec![self.instant()]).await?;
        let workers = self.read("count runs", sql::WORKERS, vec![self.instant()]).await?;
        rows::overview(loads, workers)
    }

    fn notices(&self) -> Notices {
        if !self.listening.swap(true, Ordering::Relaxed) {
            self.dialect.listen(self.notice.clone(), self.writers.running());
        }
        Notices(self.notice.subscribe())
    }

    async fn put_definition(&self, digest: &str, text: &str) -> Result<(), LedgerError> {
        let text = self.cleaner.whole("definition", text)?;
        self.writers.write(Work::PutDefinition { digest: digest.to_owned(), text }).await.map(drop)
    }

    async fn definition(&self, digest: &str) -> Result<Option<String>, LedgerError> {
        let row = self.read("read a definition", sql::DEFINITION, vec![digest.into()]).await?.pop();
        row.map(|row| Fields::of("definition", row).text("body")).transpose()
    }

    async fn put_module(
        &self,
        name: &Name,
        digest: &str,
        bytes: &[u8],
        at: Timestamp,
    ) -> Result<(), LedgerError> {
        let work = Work::PutModule {
            name: name.clone(),
            digest: digest.to_owned(),
            bytes: bytes.to_vec(),
            at,
        };
        self.writers.write(work).await.map(drop)
    }

    async fn module(&self, name: &Name) -> Result<Option<ModuleRow>, LedgerError> {
        let row =
            self.read("find a component", sql::MODULE, vec![name.as_str().into()]).await?.pop();
        row.map(|row| rows::module(row).map(|(module, _)| module)).transpose()
    }

    async fn module_bytes(&self, digest: &str) -> Result<Option<Vec<u8>>, LedgerError> {
        let row =
            self.read("read a component", sql::MODULE_BYTES, vec![digest.into()]).await?.pop();
        row.map(|row| Fields::of("module", row).bytes("bytes")).transpose()
    }

    async fn modules(&self) -> Result<Vec<ModuleRow>, LedgerError> {
        let found = self.read("list components", sql::MODULES, Vec::new()).await?;
        found.into_iter().map(|row| rows::module(row).map(|(module, _)| module)).collect()
    }

    fn commits(&self) -> u64 {
        self.writers.commits()
    }

    async fn close(&self) {
        self.writers.close().await;
        self.dialect.close_readers().await;
    }
}

impl std::fmt::Debug for SqlLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlLedger")
            .field("location", &self.dialect.location())
            .finish_non_exhaustive()
    }
}
