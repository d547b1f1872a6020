//! When a request may begin to leave: before the lease gets too short, and while somebody waits for its answer.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// The last thing that a request passes before its first byte. Once shut it stays shut; what passed it before goes on.
#[derive(Debug, Clone)]
pub struct Gate {
    before: Instant,
    kept: Option<watch::Receiver<()>>,
}

/// Keeps a gate open; dropping it shuts the gate.
#[derive(Debug)]
pub struct Keeper {
    _open: watch::Sender<()>,
}

/// Why a gate is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shut {
    /// The lease leaves no time.
    TooLate,
    /// Nobody waits for the answer any more.
    Abandoned,
}

impl Gate {
    /// A gate that is open until an instant.
    #[must_use]
    pub const fn until(before: Instant) -> Self {
        Self { before, kept: None }
    }

    /// A gate that is open until an instant, but not longer than its keeper is there.
    #[must_use]
    pub fn kept(before: Instant) -> (Self, Keeper) {
        let (open, kept) = watch::channel(());
        (Self { before, kept: Some(kept) }, Keeper { _open: open })
    }

    /// Why it is shut, if it is.
    #[must_use]
    pub fn shut(&self) -> Option<Shut> {
        if self.kept.as_ref().is_some_and(|kept| kept.has_changed().is_err()) {
            Some(Shut::Abandoned)
        } else {
            (Instant::now() >= self.before).then_some(Shut::TooLate)
        }
    }

    /// How long it stays open at most.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.before.saturating_duration_since(Instant::now())
    }

    /// Returns when nobody waits for the answer any more.
    pub async fn abandoned(&self) {
        match &self.kept {
            Some(kept) => {
                let mut kept = kept.clone();
                while kept.changed().await.is_ok() {}
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_gate_is_open_until_its_time_and_while_it_is_kept() {
        assert_eq!(Gate::until(Instant::now() + MINUTE).shut(), None);
        assert_eq!(Gate::until(Instant::now()).shut(), Some(Shut::TooLate));
        let (gate, keeper) = Gate::kept(Instant::now() + MINUTE);
        assert_eq!(gate.shut(), None);
        drop(keeper);
        assert_eq!(gate.shut(), Some(Shut::Abandoned));
        let (late, _keeper) = Gate::kept(Instant::now());
        assert_eq!(late.shut(), Some(Shut::TooLate));
    }
}
