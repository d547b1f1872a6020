//! Where the steps and effects of a run stand, by its checkpoint and its entries.

use std::collections::BTreeMap;

use twice_core::chain::{Content, Entry};
use twice_core::effect::Effect;
use twice_core::ids::EffectId;
use twice_core::limits::PAGE_MAX;
use twice_core::progress::Progress;

use crate::{Ledger, LedgerError, RunRecord};

/// An effect of a run, and where it stands in the order in which they were asked for.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The number of its first entry.
    pub seq: i64,
    /// The effect.
    pub effect: Effect,
}

/// Every effect that a run owns, folded, in one walk over its entries.
///
/// # Errors
/// When the ledger cannot be read; [`LedgerError::Corrupt`] when an entry cannot be, or is no legal move.
pub async fn effects_of(
    ledger: &dyn Ledger,
    run: &twice_core::ids::RunId,
) -> Result<BTreeMap<EffectId, Recorded>, LedgerError> {
    let mut effects: BTreeMap<EffectId, Recorded> = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = ledger.history(run, after, PAGE_MAX).await?;
        for entry in &page {
            after = entry.seq;
            if entry.effect.is_none() {
                continue;
            }
            let Content::Effect { effect: id, event } = content(entry)? else { continue };
            let illegal = |problem: twice_core::transition::Illegal| {
                corrupt(entry, "kind", problem.to_string())
            };
            if let Some(known) = effects.get_mut(&id) {
                known.effect.apply(&event, entry.fence, entry.at).map_err(illegal)?;
            } else {
                let effect = Effect::begin(id.clone(), run.clone(), &event, entry.at);
                let effect = effect.map_err(illegal)?;
                effects.insert(id, Recorded { seq: entry.seq, effect });
            }
        }
        if page.len() < PAGE_MAX as usize {
            return Ok(effects);
        }
    }
}

fn content(entry: &Entry) -> Result<Content, LedgerError> {
    entry.content().map_err(|problem| corrupt(entry, "body", problem.to_string()))
}

fn corrupt(entry: &Entry, column: &'static str, problem: String) -> LedgerError {
    let key = format!("{}/{}", entry.run, entry.seq);
    LedgerError::Corrupt { table: "ledger_entry", column, key, problem }
}

/// Where the steps of a run stand, with every entry up to its last. A large checkpoint is saved only now and then, so that
/// writing a step costs as much as what is new; what came after it is folded here.
///
/// # Errors
/// When the ledger cannot be read; [`LedgerError::Corrupt`] when an entry cannot be.
pub async fn progress_of(ledger: &dyn Ledger, run: &RunRecord) -> Result<Progress, LedgerError> {
    let mut progress = run.progress.clone();
    let mut after = run.progress_seq;
    loop {
        let page = ledger.history(&run.id, after, PAGE_MAX).await?;
        for entry in &page {
            after = entry.seq;
            // What happened to effects moves no step.
            if entry.effect.is_some() {
                continue;
            }
            if let Content::Run(event) = content(entry)? {
                progress.apply(&event, entry.at);
            }
        }
        if page.len() < PAGE_MAX as usize {
            return Ok(progress);
        }
    }
}
