//! The rate limit of a tool. It delays a request before it is sent and never beyond the last instant to send.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use governor::clock::{Clock, MonotonicClock};
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use twice_core::ids::Name;

use crate::tool::gate::{Gate, Shut};

/// One tool's rate limit, shared by its operations and lookups.
pub(super) type Pace = RateLimiter<NotKeyed, InMemoryState, MonotonicClock>;

/// The rate limits of all tools.
#[derive(Default)]
pub(super) struct Paces {
    made: Mutex<BTreeMap<(Name, NonZeroU32), Arc<Pace>>>,
}

impl Paces {
    /// The limit of `tool` at `per_second`. Runs pinned to another rate have their own.
    pub(super) fn get(&self, tool: &Name, per_second: Option<u32>) -> Option<Arc<Pace>> {
        let rate = NonZeroU32::new(per_second?)?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let pace = made.entry((tool.clone(), rate)).or_insert_with(|| {
            // Evenly spaced: a burst at the start of a second would make it twice as many within one.
            let quota = Quota::per_second(rate).allow_burst(NonZeroU32::MIN);
            Arc::new(RateLimiter::direct_with_clock(quota, MonotonicClock))
        });
        Some(Arc::clone(pace))
    }
}

/// Waits for a turn.
///
/// # Errors
/// At once when the turn would come too late, or when nobody waits for it any more.
pub(super) async fn turn(pace: &Pace, gate: &Gate) -> Result<(), Shut> {
    while let Err(not_yet) = pace.check() {
        let wait = not_yet.wait_time_from(MonotonicClock.now());
        if wait >= gate.left() {
            return Err(Shut::TooLate);
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = gate.abandoned() => return Err(Shut::Abandoned),
        }
    }
    Ok(())
}
