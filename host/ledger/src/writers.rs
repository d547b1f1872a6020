//! The writers of a ledger: one where the database has one writer at a time, several where it has not. Each run has one of
//! them, so that what is written of a run is written in the order in which it was handed in.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot, watch};
use twice_core::ids::RunId;

use crate::dialect::{Connection, Dialect};
use crate::work::{Reply, Work};
use crate::writer::{Command, Message, QUEUE_MAX, Writer};
use crate::{Clock, LedgerError};

pub(crate) struct Writers {
    queues: Vec<mpsc::Sender<Message>>,
    /// Closed when the last of them has stopped.
    running: watch::Receiver<()>,
    commits: Arc<AtomicU64>,
}

impl Writers {
    /// As many as the dialect allows; the first goes on with `connection`, the others connect when they are needed.
    pub(crate) fn start(
        dialect: &Arc<dyn Dialect>,
        connection: Box<dyn Connection>,
        clock: Option<&Clock>,
        notice: &watch::Sender<()>,
    ) -> Self {
        let (stopped, running) = watch::channel(());
        let commits = Arc::new(AtomicU64::new(0));
        let mut connection = Some(connection);
        let queues = (0..dialect.writers()).map(|_| {
            let (queue, inbox) = mpsc::channel(QUEUE_MAX);
            let writer = Writer {
                dialect: Arc::clone(dialect),
                connection: connection.take(),
                clock: clock.cloned(),
                commits: Arc::clone(&commits),
                running: stopped.clone(),
                notice: notice.clone(),
            };
            tokio::spawn(writer.run(inbox));
            queue
        });
        Self { queues: queues.collect(), running, commits }
    }

    pub(crate) async fn write(&self, work: Work) -> Result<Reply, LedgerError> {
        let (reply, answer) = oneshot::channel();
        let queue = self.queue_of(work.run());
        let message = Message::Work(Box::new(Command { work, reply }));
        queue.send(message).await.map_err(|_| LedgerError::Closed)?;
        answer.await.map_err(|_| LedgerError::Closed)?
    }

    /// What is about no run that is known yet goes to the first.
    fn queue_of(&self, run: Option<&RunId>) -> &mpsc::Sender<Message> {
        let hash = run.map_or(0, |run| {
            let mut hasher = DefaultHasher::new();
            run.hash(&mut hasher);
            hasher.finish()
        });
        &self.queues[(hash % self.queues.len() as u64) as usize]
    }

    /// Closed when the writers have stopped.
    pub(crate) fn running(&self) -> watch::Receiver<()> {
        self.running.clone()
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Returns when what was taken in is durable, and nothing is taken in any more.
    pub(crate) async fn close(&self) {
        for queue in &self.queues {
            // When it cannot be told, it has stopped already.
            drop(queue.send(Message::Close).await);
        }
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }
}
