use std::sync::{Arc, RwLock};

use twice_core::redact::Redactor;
use twice_core::time::Timestamp;

/// A clock, for tests: stands in for the database's own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a ledger is opened.
#[derive(Clone)]
pub struct LedgerOptions {
    /// Takes secrets out of every text before it is hashed and stored (I10). Shared, so that secrets which become known
    /// later are covered from then on.
    pub redactor: Arc<RwLock<Redactor>>,
    /// Replaces the database's clock, by which leases and due times are judged. `None` in production.
    pub now: Option<Clock>,
    /// Whether a file that is missing is made.
    pub create: bool,
    /// Connections for reading, beside those for writing.
    pub readers: u32,
    /// How long another process may hold the database before one try to begin a write gives up. Milliseconds; a write
    /// tries [`BEGIN_TRIES`] times.
    pub busy_timeout_ms: u64,
}

/// How often a write tries to begin while another process holds the database.
pub const BEGIN_TRIES: u32 = 6;

impl Default for LedgerOptions {
    fn default() -> Self {
        Self {
            redactor: Arc::new(RwLock::new(Redactor::default())),
            now: None,
            create: true,
            readers: 4,
            busy_timeout_ms: 5_000,
        }
    }
}

impl std::fmt::Debug for LedgerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerOptions")
            .field("own_clock", &self.now.is_some())
            .field("create", &self.create)
            .field("readers", &self.readers)
            .field("busy_timeout_ms", &self.busy_timeout_ms)
            .finish_non_exhaustive()
    }
}
