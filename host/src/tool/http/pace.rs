//! The limits of a tool: how many requests per second, and how many at a time. They delay a request before it is sent and
//! never beyond the last instant to send.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use governor::clock::{Clock, MonotonicClock};
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use twice_core::ids::Name;
use twice_workflow::model::HttpTool;

use crate::tool::gate::{Gate, Shut};

/// One tool's limits, shared by its operations and lookups.
pub(super) struct Pace {
    rate: Option<RateLimiter<NotKeyed, InMemoryState, MonotonicClock>>,
    places: Option<Arc<Semaphore>>,
}

/// Leave to send, until the answer is there.
pub(super) struct Leave(
    #[expect(dead_code, reason = "held, not read")] Option<OwnedSemaphorePermit>,
);

/// Requests per second, and at a time.
type Limits = (Option<NonZeroU32>, Option<u32>);

/// The limits of all tools.
#[derive(Default)]
pub(super) struct Paces {
    made: Mutex<BTreeMap<(Name, Limits), Arc<Pace>>>,
}

impl Paces {
    /// The limits of a tool. Runs pinned to other limits have their own.
    pub(super) fn get(&self, name: &Name, tool: &HttpTool) -> Option<Arc<Pace>> {
        let rate = tool.rate_per_second.and_then(NonZeroU32::new);
        if rate.is_none() && tool.concurrency.is_none() {
            return None;
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = (name.clone(), (rate, tool.concurrency));
        let pace = made.entry(limits).or_insert_with(|| {
            Arc::new(Pace {
                // Evenly spaced: a burst at the start of a second would make it twice as many within one.
                rate: rate.map(|rate| {
                    let quota = Quota::per_second(rate).allow_burst(NonZeroU32::MIN);
                    RateLimiter::direct_with_clock(quota, MonotonicClock)
                }),
                places: tool.concurrency.map(|most| Arc::new(Semaphore::new(most as usize))),
            })
        });
        Some(Arc::clone(pace))
    }
}

/// Waits for a place, and then for a turn: a turn that is not used at once would let two requests leave together.
///
/// # Errors
/// When it would come too late, or when nobody waits for it any more.
pub(super) async fn leave(pace: &Pace, gate: &Gate) -> Result<Leave, Shut> {
    let place = match &pace.places {
        Some(places) => Some(place(places, gate).await?),
        None => None,
    };
    if let Some(rate) = &pace.rate {
        while let Err(not_yet) = rate.check() {
            let wait = not_yet.wait_time_from(MonotonicClock.now());
            if wait >= gate.left() {
                return Err(Shut::TooLate);
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = gate.abandoned() => return Err(Shut::Abandoned),
            }
        }
    }
    Ok(Leave(place))
}

async fn place(places: &Arc<Semaphore>, gate: &Gate) -> Result<OwnedSemaphorePermit, Shut> {
    tokio::select! {
        // It is never closed.
        place = Arc::clone(places).acquire_owned() => place.map_err(|_| Shut::Abandoned),
        () = tokio::time::sleep(gate.left()) => Err(Shut::TooLate),
        () = gate.abandoned() => Err(Shut::Abandoned),
    }
}
