//! The way back to the client, used once. What is sent is logged before it can arrive.

use tokio::sync::oneshot;

use crate::reply::{Answer, Reply};
use crate::server::App;
use crate::store::{Outcome, StoreError};

/// Answers one request, or resets its connection; whatever comes after the first is for nobody.
#[derive(Debug)]
pub(crate) struct Replier {
    seq: i64,
    operation: &'static str,
    client: Option<oneshot::Sender<Reply>>,
}

impl Replier {
    pub(crate) fn new(seq: i64, operation: &'static str) -> (Self, oneshot::Receiver<Reply>) {
        let (client, reply) = oneshot::channel();
        (Self { seq, operation, client: Some(client) }, reply)
    }

    /// Waits until nobody waits for the answer any more.
    pub(crate) async fn gone(&mut self) {
        if let Some(client) = &mut self.client {
            client.closed().await;
        }
    }

    pub(crate) async fn answer(&mut self, app: &App, answer: Answer) -> Result<(), StoreError> {
        let Some(client) = self.client.take() else { return Ok(()) };
        let outcome = match (client.is_closed(), answer.replayed) {
            (true, _) => Outcome::ClientGone,
            (false, true) => Outcome::Replayed,
            (false, false) => Outcome::Answered,
        };
        app.store.settle(self.seq, self.operation, outcome, Some(answer.status)).await?;
        app.changed.send_modify(|n| *n += 1);
        // A client that left since then is indistinguishable, on the wire, from one that got the answer.
        let _ = client.send(Reply::Answer(answer));
        Ok(())
    }

    pub(crate) async fn reset(&mut self, app: &App) -> Result<(), StoreError> {
        let Some(client) = self.client.take() else { return Ok(()) };
        app.store.settle(self.seq, self.operation, Outcome::Dropped, None).await?;
        app.changed.send_modify(|n| *n += 1);
        let _ = client.send(Reply::Reset);
        Ok(())
    }
}
