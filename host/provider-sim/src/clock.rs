//! The simulator's clock: the machine's, moved by an offset that a control call sets. The only place that reads time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that can be moved.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    offset_ms: AtomicI64,
}

impl Clock {
    pub(crate) fn with_offset_ms(offset_ms: i64) -> Self {
        Self { offset_ms: AtomicI64::new(offset_ms) }
    }

    /// Milliseconds since the epoch.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the machine's clock is read"
    )]
    pub(crate) fn now_ms(&self) -> i64 {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        i64::try_from(machine).unwrap_or(i64::MAX).saturating_add(self.offset_ms())
    }

    pub(crate) fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::SeqCst)
    }

    pub(crate) fn set_offset_ms(&self, offset_ms: i64) {
        self.offset_ms.store(offset_ms, Ordering::SeqCst);
    }
}
