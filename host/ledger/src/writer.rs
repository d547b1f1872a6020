//! A writer. It takes what waits, makes it one transaction, and answers after the commit: concurrent runs share
//! commits, and one lone write has one of its own.
//!
//! Nothing but writers writes in this crate. A transaction that another process was in the way of, or whose connection was lost
//! before it was to be committed, is made again. Any other error of the database in a shared transaction is met by giving
//! each write its own, so that it stays with the write that causes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::batch::{Batch, Refused};
use crate::dialect::{Connection, Dialect, Trouble};
use crate::work::{Reply, Work};
use crate::{BEGIN_TRIES, Clock, LedgerError};

/// Writes that may wait; beyond that, callers wait to hand theirs in.
pub(crate) const QUEUE_MAX: usize = 1_024;
/// Writes in one transaction.
const BATCH_MAX: usize = 512;
/// Entries in one transaction, more or less: bounds how long everyone in it waits.
const BATCH_ENTRIES_MAX: usize = 4_096;

/// The pause before the second try to be connected; it doubles with each.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// What the writer is told.
pub(crate) enum Message {
    Work(Box<Command>),
    /// Finish what was taken in, and stop.
    Close,
}

pub(crate) struct Command {
    pub(crate) work: Work,
    pub(crate) reply: oneshot::Sender<Result<Reply, LedgerError>>,
}

pub(crate) struct Writer {
    pub(crate) dialect: Arc<dyn Dialect>,
    /// `None` after it failed; the next transaction opens another.
    pub(crate) connection: Option<Box<dyn Connection>>,
    pub(crate) clock: Option<Clock>,
    pub(crate) commits: Arc<AtomicU64>,
    /// Dropped when this writer has stopped.
    pub(crate) running: watch::Sender<()>,
    /// Told when a run may have become claimable.
    pub(crate) notice: watch::Sender<()>,
}

/// How far a transaction came before the database failed.
enum Failed {
    /// Not even begun.
    Begin(sqlx::Error),
    /// Undone.
    Undone(sqlx::Error),
    /// Perhaps durable. The answers of writes that were refused stand all the same.
    Commit(sqlx::Error, Vec<Result<Reply, LedgerError>>),
}

impl Writer {
    /// Serves until it is told to close, or nobody is left to tell.
    pub(crate) async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        while let Some(message) = messages.recv().await {
            let mut batch = Vec::new();
            let mut entries = 0;
            let mut next = Some(message);
            while let Some(message) = next.take() {
                match message {
                    Message::Work(command) => {
                        entries += command.work.entries();
                        batch.push(*command);
                    }
                    Message::Close => messages.close(),
                }
                if batch.len() < BATCH_MAX && entries < BATCH_ENTRIES_MAX {
                    next = messages.try_recv().ok();
                }
            }
            self.write(batch).await;
        }
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
        drop(self.running);
    }

    async fn write(&mut self, batch: Vec<Command>) {
        if batch.is_empty() {
            return;
        }
        let works: Vec<&Work> = batch.iter().map(|command| &command.work).collect();
        match self.transaction(&works).await {
            Ok(replies) => answer(batch, replies),
            Err(Failed::Undone(error)) if batch.len() > 1 => {
                tracing::warn!(%error, writes = batch.len(), "a shared transaction failed; each write gets its own");
                for command in batch {
                    let reply = match self.transaction(&[&command.work]).await {
                        Ok(mut replies) => replies.pop().unwrap_or(Err(LedgerError::Closed)),
                        Err(failed) => failed.reply(&command.work),
                    };
                    // A caller that went away has no use for the answer.
                    drop(command.reply.send(reply));
                }
            }
            Err(failed) => {
                let replies = failed.replies(&works);
                answer(batch, replies);
            }
        }
    }

    /// One transaction, made again when that may help and nothing of it can have been written.
    async fn transaction(
        &mut self,
        works: &[&Work],
    ) -> Result<Vec<Result<Reply, LedgerError>>, Failed> {
        let mut tried = 0;
        loop {
            tried += 1;
            let error = match self.attempt(works).await {
                Err(Failed::Undone(error)) => error,
                done => return done,
            };
            match self.dialect.judge(&error) {
                Trouble::InTheWay | Trouble::Lost if tried < BEGIN_TRIES => {
                    tracing::debug!(%error, tried, "a transaction was undone; making it again");
                }
                Trouble::InTheWay | Trouble::Lost | Trouble::Refused | Trouble::Unclear => {
                    return Err(Failed::Undone(error));
                }
            }
        }
    }

    async fn attempt(
        &mut self,
        works: &[&Work],
    ) -> Result<Vec<Result<Reply, LedgerError>>, Failed> {
        let mut connection = self.begin().await.map_err(Failed::Begin)?;
        let clock = self.clock.as_ref().map(|clock| clock().0);
        match stage(&mut *connection, clock, works).await {
            Ok((replies, Some(due))) => match connection.commit(due).await {
                Ok(()) => {
                    if due {
                        self.notice.send_replace(());
                    }
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    self.connection = Some(connection);
                    Ok(replies)
                }
                Err(error) => match self.dialect.judge(&error) {
                    Trouble::InTheWay | Trouble::Refused => {
                        self.undo(connection).await;
                        Err(Failed::Undone(error))
                    }
                    // The connection is dropped, whatever state it is in.
                    Trouble::Lost | Trouble::Unclear => Err(Failed::Commit(error, replies)),
                },
            },
            Ok((replies, None)) => {
                self.undo(connection).await;
                Ok(replies)
            }
            Err(error) => {
                self.undo(connection).await;
                Err(Failed::Undone(error))
            }
        }
    }

    /// A connection with a transaction begun. Another process may hold the database for a while, and a server may be
    /// just starting: that is waited for.
    async fn begin(&mut self) -> Result<Box<dyn Connection>, sqlx::Error> {
        let mut tried = 0;
        let mut pause = RECONNECT_PAUSE;
        loop {
            tried += 1;
            let mut fresh = false;
            let begun = match self.connection.take() {
                Some(connection) => Ok(connection),
                None => {
                    fresh = true;
                    self.dialect.connect().await
                }
            };
            let (error, connection) = match begun {
                Ok(mut connection) => match connection.begin().await {
                    Ok(()) => return Ok(connection),
                    Err(error) => (error, Some(connection)),
                },
                Err(error) => (error, None),
            };
            let trouble = self.dialect.judge(&error);
            match trouble {
                Trouble::InTheWay | Trouble::Lost if tried < BEGIN_TRIES => {}
                Trouble::InTheWay | Trouble::Lost | Trouble::Refused | Trouble::Unclear => {
                    return Err(error);
                }
            }
            tracing::warn!(%error, tried, "the ledger cannot be written to; trying again");
            let connected = connection.is_some();
            if trouble == Trouble::InTheWay {
                self.connection = connection;
            }
            // Whoever holds the database was waited for; a server that cannot be reached was not. A connection that was
            // lost some time ago says nothing about the next.
            if fresh && !connected {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
    }

    async fn undo(&mut self, mut connection: Box<dyn Connection>) {
        match connection.rollback().await {
            Ok(()) => self.connection = Some(connection),
            Err(error) => tracing::warn!(%error, "the ledger's connection is given up"),
        }
    }
}

/// Stages every write; returns the answers and, if there is anything to commit, whether a run becomes claimable by it.
async fn stage(
    connection: &mut dyn Connection,
    clock: Option<i64>,
    works: &[&Work],
) -> Result<(Vec<Result<Reply, LedgerError>>, Option<bool>), sqlx::Error> {
    let mut batch = Batch::load(connection, clock, works).await?;
    let mut replies: Vec<_> = works.iter().map(|_| Err(LedgerError::Closed)).collect();
    // Locks on business objects come last and in one order, so that two processes which take the same ones do not wait for
    // each other: whoever waits for one has every run already.
    let mut order: Vec<usize> = (0..works.len()).collect();
    order.sort_by_key(|at| works[*at].lock());
    let mut locking = false;
    for at in order {
        if works[at].lock().is_some() && !std::mem::replace(&mut locking, true) {
            batch.flush().await?;
        }
        replies[at] = match batch.apply(works[at]).await {
            Ok(reply) => Ok(reply),
            Err(Refused::Alone(error)) => Err(error),
            Err(Refused::Database(error)) => return Err(error),
        };
    }
    batch.flush().await?;
    Ok((replies, batch.wrote().then_some(batch.makes_due())))
}

fn answer(batch: Vec<Command>, replies: Vec<Result<Reply, LedgerError>>) {
    for (command, reply) in batch.into_iter().zip(replies) {
        // A caller that went away has no use for the answer.
        drop(command.reply.send(reply));
    }
}

impl Failed {
    fn reply(self, work: &Work) -> Result<Reply, LedgerError> {
        let action = work.action();
        match self {
            Self::Begin(source) | Self::Undone(source) => {
                Err(LedgerError::NotApplied { action, source })
            }
            Self::Commit(source, mut replies) => match replies.pop() {
                Some(Err(refused)) => Err(refused),
                Some(Ok(_)) | None => Err(LedgerError::Indeterminate { action, source }),
            },
        }
    }

    fn replies(self, works: &[&Work]) -> Vec<Result<Reply, LedgerError>> {
        let actions = works.iter().map(|work| work.action());
        match self {
            Self::Begin(source) | Self::Undone(source) => {
                let source = Shared(Arc::new(source));
                let refuse = |action| LedgerError::NotApplied { action, source: source.error() };
                actions.map(|action| Err(refuse(action))).collect()
            }
            Self::Commit(source, replies) => {
                let source = Shared(Arc::new(source));
                let doubt = |action| LedgerError::Indeterminate { action, source: source.error() };
                let both = actions.zip(replies);
                both.map(|(action, reply)| reply.and_then(|_| Err(doubt(action)))).collect()
            }
        }
    }
}

/// One error for all writes of a transaction.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
struct Shared(Arc<sqlx::Error>);

impl Shared {
    fn error(&self) -> sqlx::Error {
        sqlx::Error::AnyDriverError(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicU32;

    use async_trait::async_trait;
    use tempfile::TempDir;

    use super::*;
    use crate::LedgerOptions;
    use crate::dialect::sqlite::SqliteDialect;
    use crate::dialect::{Held, Migration};
    use crate::value::{Row, Value};

    /// SQLite, but the next `failing` commits fail: while an even number is left, after they became durable.
    struct Faulty {
        inner: SqliteDialect,
        failing: Arc<AtomicU32>,
        connections: AtomicU32,
    }

    struct FaultyConnection {
        inner: Box<dyn Connection>,
        failing: Arc<AtomicU32>,
    }

    #[async_trait]
    impl Dialect for Faulty {
        fn location(&self) -> &str {
            self.inner.location()
        }
        fn migrations(&self) -> &'static [Migration] {
            self.inner.migrations()
        }
        async fn objection(&self) -> Result<Option<String>, sqlx::Error> {
            self.inner.objection().await
        }

        fn writers(&self) -> usize {
            self.inner.writers()
        }
        async fn connect(&self) -> Result<Box<dyn Connection>, sqlx::Error> {
            self.connections.fetch_add(1, Ordering::Relaxed);
            let inner = self.inner.connect().await?;
            Ok(Box::new(FaultyConnection { inner, failing: Arc::clone(&self.failing) }))
        }
        async fn read(&self, sql: &'static str, args: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
            self.inner.read(sql, args).await
        }
        async fn close_readers(&self) {
            self.inner.close_readers().await;
        }
        fn listen(&self, notice: watch::Sender<()>, running: watch::Receiver<()>) {
            self.inner.listen(notice, running);
        }
        fn judge(&self, error: &sqlx::Error) -> Trouble {
            self.inner.judge(error)
        }
        fn explain(&self, error: &sqlx::Error) -> String {
            self.inner.explain(error)
        }
    }

    #[async_trait]
    impl Connection for FaultyConnection {
        async fn begin(&mut self) -> Result<(), sqlx::Error> {
            self.inner.begin().await
        }
        async fn begin_alone(&mut self) -> Result<(), sqlx::Error> {
            self.inner.begin_alone().await
        }
        async fn commit(&mut self, due: bool) -> Result<(), sqlx::Error> {
            let left = self.failing.load(Ordering::Relaxed);
            if left > 0 {
                self.failing.store(left - 1, Ordering::Relaxed);
                if left.is_multiple_of(2) {
                    self.inner.commit(due).await?;
                }
                return Err(sqlx::Error::WorkerCrashed);
            }
            self.inner.commit(due).await
        }
        async fn rollback(&mut self) -> Result<(), sqlx::Error> {
            self.inner.rollback().await
        }
        async fn script(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
            self.inner.script(text).await
        }
        async fn execute(
            &mut self,
            sql: &'static str,
            args: Vec<Value>,
        ) -> Result<u64, sqlx::Error> {
            self.inner.execute(sql, args).await
        }
        async fn fetch(
            &mut self,
            sql: &'static str,
            args: Vec<Value>,
        ) -> Result<Vec<Row>, sqlx::Error> {
            self.inner.fetch(sql, args).await
        }
        async fn fetch_locked(
            &mut self,
            sql: &'static str,
            args: Vec<Value>,
            held: Held,
        ) -> Result<Vec<Row>, sqlx::Error> {
            self.inner.fetch_locked(sql, args, held).await
        }
        async fn close(self: Box<Self>) {
            self.inner.close().await;
        }
    }

    async fn faulty_writer(path: &Path) -> (Writer, Arc<Faulty>) {
        let inner = SqliteDialect::new(path, &LedgerOptions::default());
        let dialect = Arc::new(Faulty {
            inner,
            failing: Arc::new(AtomicU32::new(0)),
            connections: AtomicU32::new(0),
        });
        let mut connection = dialect.connect().await.unwrap();
        crate::migrate::run(&*dialect, &mut *connection).await.unwrap();
        let writer = Writer {
            dialect: Arc::clone(&dialect) as Arc<dyn Dialect>,
            connection: Some(connection),
            clock: None,
            commits: Arc::new(AtomicU64::new(0)),
            running: watch::channel(()).0,
            notice: watch::Sender::new(()),
        };
        (writer, dialect)
    }

    /// Hands all works in at once; returns what came of each.
    async fn write(writer: &mut Writer, works: Vec<Work>) -> Vec<Result<Reply, LedgerError>> {
        let (batch, answers): (Vec<_>, Vec<_>) = works
            .into_iter()
            .map(|work| {
                let (reply, answer) = oneshot::channel();
                (Command { work, reply }, answer)
            })
            .unzip();
        writer.write(batch).await;
        let mut replies = Vec::new();
        for answer in answers {
            replies.push(answer.await.unwrap());
        }
        replies
    }

    fn definition(digest: &str) -> Work {
        Work::PutDefinition { digest: digest.to_owned(), text: "text".to_owned() }
    }

    fn renewal() -> Work {
        let run = twice_core::ids::RunId::parse("none").unwrap();
        Work::Renew { run, fence: twice_core::ids::Fence(1), lease_ms: 1 }
    }

    #[tokio::test]
    async fn a_commit_that_fails_leaves_its_writes_in_doubt() {
        let dir = TempDir::new().unwrap();
        let (mut writer, dialect) = faulty_writer(&dir.path().join("twice.db")).await;
        // Not durable (1 left), then durable (2 left): the writer cannot tell them apart, and says so.
        for (left, digest) in [(1, "sha256:a"), (2, "sha256:b")] {
            dialect.failing.store(left, Ordering::Relaxed);
            let works = vec![definition(digest), renewal(), definition(&format!("{digest}2"))];
            let replies = write(&mut writer, works).await;
            assert!(matches!(&replies[0], Err(LedgerError::Indeterminate { .. })), "{replies:?}");
            assert!(matches!(&replies[1], Err(LedgerError::Absent { .. })), "{replies:?}");
            assert!(matches!(&replies[2], Err(LedgerError::Indeterminate { .. })), "{replies:?}");
            dialect.failing.store(0, Ordering::Relaxed);
        }
        assert_eq!(writer.commits.load(Ordering::Relaxed), 0);
        let stored = dialect.read(crate::sql::DEFINITION, vec!["sha256:a".into()]).await.unwrap();
        assert!(stored.is_empty());
        let stored = dialect.read(crate::sql::DEFINITION, vec!["sha256:b".into()]).await.unwrap();
        assert_eq!(stored.len(), 1);
        // Each failed connection was given up, and the next write has a new one.
        assert!(write(&mut writer, vec![definition("sha256:c")]).await[0].is_ok());
        assert_eq!(dialect.connections.load(Ordering::Relaxed), 3);
        assert_eq!(writer.commits.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_writes_nothing_commits_nothing() {
        let dir = TempDir::new().unwrap();
        let (mut writer, _) = faulty_writer(&dir.path().join("twice.db")).await;
        for (works, commits) in [
            (vec![renewal()], 0),
            (vec![definition("sha256:a"), renewal(), definition("sha256:b")], 1),
            (vec![definition("sha256:a")], 1),
        ] {
            write(&mut writer, works).await;
            assert_eq!(writer.commits.load(Ordering::Relaxed), commits);
        }
    }
}
