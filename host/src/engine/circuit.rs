//! Stops new effects of an operation whose answers break its own response schema: the tool file and the provider have
//! drifted apart, and each further request would only add to what nobody can read.
//!
//! Nothing is kept here but a short memory of what the ledger says: the circuit is open while an effect of the operation is
//! UNKNOWN to which an answer broke the schema, be it in time or too late to be applied, and closes when that effect is
//! settled, by a lookup or a person.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use twice_core::effect::{Effect, State};
use twice_core::ids::EffectId;
use twice_core::limits::PAGE_MAX;
use twice_core::time::Timestamp;
use twice_ledger::{EffectFilter, Ledger};

use super::error::EngineError;
use super::session::Session;
use super::stop::Stop;

/// How long the ledger's answer is believed. Milliseconds.
const MEMORY_MS: u64 = 1_000;
/// How long a run waits before it asks again. Milliseconds.
const POLL_MS: u64 = 2_000;

/// The circuits of all operations.
#[derive(Default)]
pub(super) struct Circuits(Mutex<HashMap<String, Seen>>);

struct Seen {
    at: Timestamp,
    breach: Option<EffectId>,
}

impl Circuits {
    /// Why a new effect of `operation` (`tool.operation`) may not be proposed now, if it may not.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn open(
        &self,
        session: &Session,
        operation: &str,
    ) -> Result<Option<Stop>, EngineError> {
        let known = self.known(operation, session.now());
        let breach = match known {
            Some(breach) => breach,
            None => {
                let breach = breach_of(session.ledger(), operation).await?;
                let seen = Seen { at: session.now(), breach: breach.clone() };
                self.lock().insert(operation.to_owned(), seen);
                breach
            }
        };
        Ok(breach.map(|effect| Stop::Wait {
            until: session.now().plus_ms(POLL_MS),
            why: format!(
                "no new effect of {operation} is sent: the answer to effect {effect} breaks the response schema of its tool file. Correct the file for later runs, and settle that effect (`twice effects show {effect}`)"
            ),
        }))
    }

    /// Takes in that an answer just broke the schema, so that this process need not ask the ledger to know.
    pub(super) fn trip(&self, operation: String, effect: EffectId, at: Timestamp) {
        self.lock().insert(operation, Seen { at, breach: Some(effect) });
    }

    fn known(&self, operation: &str, now: Timestamp) -> Option<Option<EffectId>> {
        let seen = self.lock();
        let seen = seen.get(operation).filter(|seen| now.ms_since(seen.at) < MEMORY_MS)?;
        Some(seen.breach.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first effect of the operation that is UNKNOWN because its answer broke the schema.
async fn breach_of(ledger: &dyn Ledger, operation: &str) -> Result<Option<EffectId>, EngineError> {
    let mut filter =
        EffectFilter { state: Some(State::Unknown), limit: PAGE_MAX, ..EffectFilter::default() };
    loop {
        let page = ledger.effects(&filter).await?;
        for row in page.iter().filter(|row| row.operation == operation) {
            if ledger.effect(&row.id).await?.is_some_and(|effect| breaks_schema(&effect)) {
                return Ok(Some(row.id.clone()));
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE_MAX as usize => filter.after = Some(last.id.clone()),
            Some(_) | None => return Ok(None),
        }
    }
}

/// Whether an answer to the effect broke the schema, one that came too late included.
fn breaks_schema(effect: &Effect) -> bool {
    effect.unknown.as_ref().is_some_and(|unknown| unknown.breach)
        || effect.observed.iter().any(|(_, seen)| seen.breach)
}
