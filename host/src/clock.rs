//! The one clock of everything that is recorded: the database's. Workers on several machines judge how long ago something was
//! (whether a settle window has passed, whether a provider still knows a key, when a run is due) by what others wrote
//! down; that rests on one clock or on nothing.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use twice_core::time::{Clock, Timestamp};
use twice_ledger::{Ledger, LedgerError};

/// How often the database is asked what time it is. Between that, this machine's monotonic clock counts on, which differs by
/// less than a millisecond in such a time, but stands still while some machines sleep.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// An answer that took longer says too little; the one before holds on.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// A ledger's clock as this process knows it. What the machine takes the time to be has no part in it.
#[derive(Debug)]
pub struct LedgerClock {
    since: Instant,
    /// What the ledger's clock showed at `since`. Milliseconds since 1970-01-01 UTC.
    shown: AtomicI64,
}

impl LedgerClock {
    /// The clock of this ledger, followed until it is dropped or the ledger is. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// When the ledger cannot be asked.
    pub async fn of(ledger: &Arc<dyn Ledger>) -> Result<Arc<Self>, LedgerError> {
        let clock = Arc::new(Self { since: Instant::now(), shown: AtomicI64::new(0) });
        clock.ask(ledger.as_ref(), Duration::MAX).await?;
        tokio::spawn(follow(Arc::downgrade(&clock), Arc::downgrade(ledger)));
        Ok(clock)
    }

    async fn ask(&self, ledger: &dyn Ledger, answer_max: Duration) -> Result<(), LedgerError> {
        let asked = Instant::now();
        let now = ledger.now().await?;
        let took = asked.elapsed();
        if took <= answer_max {
            // It was that late somewhere between question and answer.
            let read = asked.duration_since(self.since) + took / 2;
            self.shown.store(now.0.saturating_sub(milliseconds(read)), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Clock for LedgerClock {
    fn now(&self) -> Timestamp {
        let shown = self.shown.load(Ordering::Relaxed);
        Timestamp(shown.saturating_add(milliseconds(self.since.elapsed())))
    }
}

async fn follow(clock: Weak<LedgerClock>, ledger: Weak<dyn Ledger>) {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let (Some(clock), Some(ledger)) = (clock.upgrade(), ledger.upgrade()) else { return };
        match clock.ask(ledger.as_ref(), ANSWER_MAX).await {
            Ok(()) => {}
            Err(LedgerError::Closed) => return,
            Err(problem) => tracing::debug!(%problem, "the ledger does not tell the time"),
        }
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
