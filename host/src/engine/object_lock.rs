//! Locks on business objects, as a step asks for them: before a slot that declares one proposes something new. Compensations
//! ask for none: what a run undoes it has locked already, or may undo without.

use std::collections::BTreeSet;
use std::sync::Mutex;

use twice_core::ids::{Name, RunId};
use twice_core::time::Timestamp;
use twice_ledger::{LockRow, Locked, ObjectLock, Unlock, Waits};
use twice_workflow::model::Lock;

use super::boundary::Boundary;
use super::error::EngineError;
use super::operator::Decision;
use super::session::Session;
use super::stop::Stop;
use super::{Engine, lock};

/// How often a run looks again at first whose lock another has. Milliseconds.
const POLL_MIN_MS: u64 = 1_000;
/// And how often at last: each look is two entries in its chain. Milliseconds.
const POLL_MAX_MS: u64 = 30_000;
/// A run that has waited for long looks again after such a part of it.
const POLL_PART: u64 = 10;

/// The locks that a run is known to have until it is over, by name and object: while a worker holds the run, nobody takes
/// them from it.
#[derive(Default)]
pub(super) struct HeldLocks(Mutex<BTreeSet<(Name, String)>>);

/// Why a step cannot go on.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// It waits.
    Stop(Stop),
    /// It would wait for ever, for this reason.
    Deadlock(String),
}

impl From<Stop> for Obstacle {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Takes a lock for the run, or says what is in the way.
///
/// # Errors
/// [`EngineError`] when the ledger refuses or fails; whether the run has the lock is not known then, and does no harm.
pub(super) async fn take(
    session: &Session,
    declared: &Lock,
    object: &str,
) -> Result<Option<Obstacle>, EngineError> {
    let key = (declared.name.clone(), object.to_owned());
    if lock(&session.locks.0).contains(&key) {
        return Ok(None);
    }
    // What the object was found in is durable before the lock on it is.
    session.flush().await?;
    let wanted = ObjectLock {
        run: session.id().clone(),
        fence: session.fence,
        name: declared.name.clone(),
        object: object.to_owned(),
        expires_ms: declared.expires_ms,
    };
    let now = session.now();
    match session.ledger().lock(wanted, now).await? {
        Locked::Taken { until } => {
            session.boundaries.pass(Boundary::AfterLock);
            if until.is_none() {
                lock(&session.locks.0).insert(key);
            }
            Ok(None)
        }
        Locked::Held { by, until, since } => {
            let end = until.map_or_else(|| "it is over".to_owned(), |until| until.to_string());
            let why = format!(
                "run {by} has the lock `{}` on {object} until {end}; see `twice locks list --run {by}`",
                declared.name
            );
            Ok(Some(Obstacle::Stop(Stop::Wait { until: next_look(now, since, until), why })))
        }
        Locked::Deadlock { circle } => Ok(Some(Obstacle::Deadlock(describe(&circle)))),
    }
}

impl Engine {
    /// Takes a lock from the run that has it, on a person's word. Returns that run.
    ///
    /// # Errors
    /// [`EngineError::Ledger`] when a worker holds that run, and when it has the lock no longer;
    /// [`EngineError::HoldsSecret`].
    pub async fn unlock(&self, held: &LockRow, decision: &Decision) -> Result<RunId, EngineError> {
        let run = self.record(&held.run).await?;
        self.refuse_secrets_of(&run, decision).await?;
        let unlock = Unlock {
            run: held.run.clone(),
            name: held.name.clone(),
            object: held.object.clone(),
            who: decision.who.clone(),
            why: decision.why.clone(),
        };
        self.parts.ledger.unlock(unlock, self.parts.clock.now()).await?;
        Ok(run.id)
    }
}

/// When a run looks again that has been waiting since then for a lock that is held until then.
fn next_look(now: Timestamp, since: Timestamp, until: Option<Timestamp>) -> Timestamp {
    let pause = (now.ms_since(since) / POLL_PART).clamp(POLL_MIN_MS, POLL_MAX_MS);
    let next = now.plus_ms(pause);
    until.map_or(next, |until| next.min(until))
}

fn describe(circle: &[Waits]) -> String {
    let holders = circle.iter().cycle().skip(1);
    let waits: Vec<String> = circle
        .iter()
        .zip(holders)
        .map(|(waits, holder)| {
            let Waits { run, name, object } = waits;
            format!(
                "run {run} waits for the lock `{name}` on {object}, which run {} has",
                holder.run
            )
        })
        .collect();
    format!(
        "{}. Nothing of it was sent; the others go on when this run is over. Let all of them lock their objects in one order",
        waits.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_looks_less_often_the_longer_it_waits_and_never_after_the_expiry() {
        let since = Timestamp(1_000_000);
        for (waited, pause) in [(0, 1_000), (10_000, 1_000), (60_000, 6_000), (86_400_000, 30_000)]
        {
            let now = since.plus_ms(waited);
            assert_eq!(next_look(now, since, None), now.plus_ms(pause), "{waited}");
            let soon = now.plus_ms(500);
            assert_eq!(next_look(now, since, Some(soon)), soon, "{waited}");
        }
    }
}
