//! How long a lease is good for, by the worker's own monotonic clock: only ever used to stop early. Whether a lease is
//! held is the database's to say, in the transaction of each write (I7). With each renewal a worker also learns whether its
//! run is to be cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use twice_core::ids::{Fence, RunId};
use twice_ledger::{Ledger, LedgerError};

/// The worker's own idea of its lease.
pub struct LeaseClock {
    good_until: watch::Sender<Instant>,
    lost: AtomicBool,
    lost_signal: Notify,
    cancelled: watch::Sender<bool>,
}

impl LeaseClock {
    /// A lease of `lease_ms` that was asked for at `asked`: a fifth of it is never used.
    #[must_use]
    pub fn new(asked: Instant, lease_ms: u64) -> Arc<Self> {
        let (good_until, _) = watch::channel(usable_until(asked, lease_ms));
        let (cancelled, _) = watch::channel(false);
        let lost = AtomicBool::new(false);
        Arc::new(Self { good_until, lost, lost_signal: Notify::new(), cancelled })
    }

    /// The instant after which nothing may be sent.
    #[must_use]
    pub fn good_until(&self) -> Instant {
        *self.good_until.borrow()
    }

    /// Returns when the lease is known to be lost.
    pub async fn lost(&self) {
        while !self.lost.load(Ordering::Acquire) {
            self.lost_signal.notified().await;
        }
    }

    /// Whether the cancellation of the run was asked for, as far as this worker has been told.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Returns when this worker is told that the cancellation of the run was asked for.
    pub async fn cancelled(&self) {
        let mut cancelled = self.cancelled.subscribe();
        // It cannot be closed while `self` is there.
        let _ = cancelled.wait_for(|cancelled| *cancelled).await;
    }

    /// Takes in that the cancellation of the run was asked for.
    pub fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    fn extend(&self, asked: Instant, lease_ms: u64) {
        self.good_until.send_replace(usable_until(asked, lease_ms));
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.lost_signal.notify_one();
    }
}

fn usable_until(asked: Instant, lease_ms: u64) -> Instant {
    asked + Duration::from_millis(lease_ms - lease_ms / 5)
}

/// Renews a lease until it is dropped. A renewal that fails is tried again while the lease lasts; the host renews, not
/// the guest, so that a busy guest keeps its run.
pub struct Heartbeat(JoinHandle<()>);

impl Heartbeat {
    /// Starts renewing.
    pub fn start(
        ledger: Arc<dyn Ledger>,
        run: RunId,
        fence: Fence,
        lease: Arc<LeaseClock>,
        lease_ms: u64,
    ) -> Self {
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(lease_ms / 3)).await;
                let asked = Instant::now();
                match ledger.renew(&run, fence, lease_ms).await {
                    Ok(cancelled) => {
                        lease.extend(asked, lease_ms);
                        if cancelled && !lease.is_cancelled() {
                            lease.cancel();
                        }
                    }
                    Err(LedgerError::Fenced { .. } | LedgerError::Absent { .. }) => {
                        lease.lose();
                        return;
                    }
                    Err(problem) => {
                        tracing::warn!(%run, %problem, "lease not renewed; trying again")
                    }
                }
            }
        }))
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}
