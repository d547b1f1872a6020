//! Time and randomness as a node sees them: derived from what is recorded for its step, so that a node that is started
//! again sees the same values in the same order.

use sha2::{Digest, Sha256};
use twice_core::ids::RunId;
use twice_core::progress::StepId;
use twice_core::time::Timestamp;

/// Starts when the step became due and moves to the time of each answer.
#[derive(Debug)]
pub(super) struct DurableClock(Timestamp);

impl DurableClock {
    /// A clock that starts at `since`.
    #[must_use]
    pub(super) const fn new(since: Timestamp) -> Self {
        Self(since)
    }

    /// Moves forward to `at`; never back.
    pub(super) fn advance(&mut self, at: Timestamp) {
        self.0 = self.0.max(at);
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.0.0).unwrap_or(0)
    }
}

/// SHA-256 in counter mode over run, node, visit and, in a fan-out, element.
#[derive(Debug)]
pub(super) struct DurableRandom {
    seed: [u8; 32],
    block: u64,
    buffer: Vec<u8>,
}

impl DurableRandom {
    /// The stream of one step.
    #[must_use]
    pub(super) fn new(run: &RunId, step: &StepId) -> Self {
        let StepId { node, visit, element } = step;
        let mut of = format!("{run}/{node}/{visit}");
        if let Some(element) = element {
            // Only the last part may hold a `/`.
            of.push_str(&format!("/{element}"));
        }
        let seed = twice_core::identity::tagged_sha256("twice/random/v1", of.as_bytes());
        Self { seed, block: 0, buffer: Vec::new() }
    }

    /// The next bytes.
    pub(super) fn next(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            let mut hasher = Sha256::new();
            hasher.update(self.seed);
            hasher.update(self.block.to_be_bytes());
            self.buffer.extend_from_slice(&hasher.finalize());
            self.block += 1;
        }
        self.buffer.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use twice_core::ids::{ElementId, Name};

    use super::*;

    #[test]
    fn random_is_the_same_for_the_same_step_however_it_is_read() {
        let run = RunId::parse("run-1").unwrap();
        let step = |visit, element: Option<&str>| StepId {
            node: Name::parse("pay").unwrap(),
            visit,
            element: element.map(|id| ElementId::parse(id).unwrap()),
        };
        let mut whole = DurableRandom::new(&run, &step(1, None));
        let mut parts = DurableRandom::new(&run, &step(1, None));
        let mut joined = parts.next(7);
        joined.extend(parts.next(93));
        assert_eq!(whole.next(100), joined);
        for other in [step(2, None), step(1, Some("1")), step(1, Some("2"))] {
            assert_ne!(DurableRandom::new(&run, &other).next(8), joined[..8]);
        }
    }

    #[test]
    fn the_clock_never_goes_back() {
        let mut clock = DurableClock::new(Timestamp(50));
        clock.advance(Timestamp(40));
        assert_eq!(clock.now_ms(), 50);
        clock.advance(Timestamp(60));
        assert_eq!(clock.now_ms(), 60);
    }
}
