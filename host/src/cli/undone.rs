//! What the way back of a run has made of its effects, for those who look at it.

use twice_core::effect::Effect;
use twice_core::progress::Progress;
use twice_core::run::RunState;
use twice_core::saga::{self, Next, Settled};
use twice_ledger::{Ledger, LedgerError, RunRecord, effects_of};
use twice_workflow::draw::Fate;

/// Every effect of a run, in the order in which they were asked for; with its fate where the run does not go on and it happened,
/// or may have. Effects that undo others have none of their own.
pub(super) async fn fates(
    ledger: &dyn Ledger,
    record: &RunRecord,
    progress: &Progress,
) -> Result<Vec<(Effect, Option<Fate>)>, LedgerError> {
    let mut all: Vec<_> = effects_of(ledger, &record.id).await?.into_values().collect();
    all.sort_by_key(|recorded| recorded.seq);
    let effects: Vec<&Effect> = all.iter().map(|recorded| &recorded.effect).collect();
    let undos = saga::undos(effects.iter().copied());
    let stuck_at = match record.state {
        RunState::Stuck => saga::stuck_at(&effects, &progress.undo_resolved, record.updated_at),
        _ => Vec::new(),
    };
    let is_stuck = |effect: &Effect| stuck_at.iter().any(|at| at.id == effect.id);
    let fate = |effect: &Effect| {
        if progress.compensating.is_none() || !effect.proposal.is_of_node() {
            return None;
        }
        let undos = undos.get(&effect.id).map_or(&[][..], Vec::as_slice);
        let resolved = progress.undo_resolved.contains(&effect.id);
        // What it waits for is no matter here: it is yet to be undone.
        match saga::next(effect, undos, resolved, record.updated_at) {
            Next::Settled(Settled::NotHappened) => None,
            Next::Settled(Settled::Undone) => Some(Fate::Undone),
            Next::Settled(Settled::ByPerson) => Some(Fate::Settled),
            Next::Settled(Settled::Stays) => Some(Fate::Stays),
            Next::Stuck { .. } => Some(Fate::Stuck),
            Next::Propose { .. } if is_stuck(effect) => Some(Fate::Stuck),
            Next::Propose { .. } | Next::Drive | Next::Wait { .. } | Next::Held => Some(Fate::Open),
        }
    };
    let fates: Vec<_> = all.iter().map(|recorded| fate(&recorded.effect)).collect();
    Ok(all.into_iter().map(|recorded| recorded.effect).zip(fates).collect())
}
