//! How often this process was asked to stop: by Ctrl-C, or by SIGTERM, which is how supervisors ask.

use std::sync::OnceLock;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Counts the askings from when it is first listened for them; none is lost, whatever the command does meanwhile.
#[derive(Clone)]
pub(super) struct Askings(watch::Receiver<u32>);

impl Askings {
    /// Listens. Within the runtime of the command.
    ///
    /// # Errors
    /// When the system lets nobody listen.
    pub(super) fn listen() -> anyhow::Result<Self> {
        static COUNTED: OnceLock<watch::Receiver<u32>> = OnceLock::new();
        if let Some(counted) = COUNTED.get() {
            return Ok(Self(counted.clone()));
        }
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let (count, counted) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                count.send_modify(|count| *count += 1);
            }
        });
        Ok(Self(COUNTED.get_or_init(|| counted).clone()))
    }

    /// How often so far.
    pub(super) fn count(&self) -> u32 {
        *self.0.borrow()
    }

    /// Returns when it was asked more often than `count` times.
    pub(super) async fn more_than(&mut self, count: u32) {
        if self.0.wait_for(|asked| *asked > count).await.is_err() {
            // Nobody counts any more: the runtime ends.
            std::future::pending::<()>().await;
        }
    }
}
