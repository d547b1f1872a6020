//! What the ledger in memory keeps, and the rules by which it grows.

use std::collections::BTreeMap;

use twice_core::chain::{Content, Entry, Head, NewEntry, seal};
use twice_core::effect::State;
use twice_core::event::{Parent, RunEvent};
use twice_core::ids::{EffectId, Fence, Name, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_core::{json, transition};

use super::locks::Locks;
use crate::stored::{Projection, Write};
use crate::{EffectRow, LedgerError, ModuleRow, NewRun, RunRecord, Tombstone, retention, rules};

#[derive(Default)]
pub(super) struct Memory {
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) effects: BTreeMap<EffectId, (RunId, Projection)>,
    pub(super) definitions: BTreeMap<String, String>,
    pub(super) modules: BTreeMap<Name, ModuleRow>,
    pub(super) module_bytes: BTreeMap<String, Vec<u8>>,
    pub(super) tombstones: BTreeMap<RunId, Tombstone>,
    pub(super) locks: Locks,
    pub(super) commits: u64,
    pub(super) closed: bool,
}

pub(super) struct Run {
    pub(super) record: RunRecord,
    pub(super) caller_key: Option<String>,
    /// Since when a worker may take it, while no lease is live.
    pub(super) claim_at: Option<i64>,
    pub(super) entries: Vec<Entry>,
}

impl Run {
    pub(super) fn is_child_of(&self, parent: &RunId) -> bool {
        self.record.parent.as_ref().is_some_and(|own| own.run == *parent)
    }

    pub(super) fn head(&self) -> Head {
        self.entries.last().map_or_else(
            || Head::empty(&self.record.id),
            |last| Head { seq: last.seq, hash: last.hash },
        )
    }

    pub(super) fn push(&mut self, new: &NewEntry) {
        let entry = seal(&self.record.id, self.head(), self.record.fence, new);
        self.record.updated_at = entry.at;
        self.entries.push(entry);
    }

    /// The record with what the clock says of its lease.
    pub(super) fn shown(&self, now: i64) -> RunRecord {
        let live = self.record.lease_until.is_some_and(|until| until.0 > now);
        let lease_live = live && self.record.state == RunState::Running;
        RunRecord { lease_live, ..self.record.clone() }
    }
}

impl Memory {
    pub(super) fn run(&mut self, id: &RunId) -> Result<&mut Run, LedgerError> {
        self.runs.get_mut(id).ok_or_else(|| rules::absent("run", id))
    }

    /// The run under the lease of that token (I7).
    pub(super) fn held(&mut self, id: &RunId, fence: Fence) -> Result<&mut Run, LedgerError> {
        let run = self.run(id)?;
        if rules::holds(run.record.state, run.record.fence, fence) {
            Ok(run)
        } else {
            Err(LedgerError::Fenced { run: id.clone(), fence })
        }
    }

    /// The run that a start repeats, if it repeats one.
    pub(super) fn started_before(
        &self,
        new: &NewRun,
        key: Option<&str>,
        input: &str,
    ) -> Result<Option<&Run>, LedgerError> {
        let by_id = self.runs.get(&new.id);
        let by_key = key
            .and_then(|key| self.runs.values().find(|run| run.caller_key.as_deref() == Some(key)));
        let Some(found) = by_id.or(by_key) else {
            let removed: Vec<Tombstone> = self.tombstones.values().cloned().collect();
            retention::refuse_restart(&removed, &new.id, key, &new.workflow, input)?;
            return Ok(None);
        };
        let id = &found.record.id;
        if key.is_some() && by_key.is_none_or(|run| run.record.id != *id) {
            return Err(rules::conflict(id, "another caller's key"));
        }
        if found.record.workflow != new.workflow {
            let difference = format!("another workflow (`{}`)", found.record.workflow);
            return Err(rules::conflict(id, difference));
        }
        if json::canonical(&found.record.input) != input {
            return Err(rules::conflict(id, "another input"));
        }
        rules::refuse_other_parent(&found.record, parent_of(&new.entry))?;
        Ok(Some(found))
    }

    /// Checks that the entries are legal moves of effects which the run owns, and end where the projections say.
    pub(super) fn check(&self, write: &Write, state: RunState) -> Result<(), LedgerError> {
        let mut states: BTreeMap<&EffectId, Option<State>> = BTreeMap::new();
        for told in &write.effects {
            match self.effects.get(&told.id) {
                Some((owner, _)) if *owner != write.run => {
                    let (effect, owner) = (told.id.clone(), owner.clone());
                    return Err(LedgerError::EffectOwned { effect, owner });
                }
                known => states.insert(&told.id, known.map(|(_, projection)| projection.state)),
            };
        }
        let refuse = |rule| rules::refused(&write.run, state, rule);
        for new in &write.entries {
            let Content::Effect { effect, event } = &new.entry.content else { continue };
            let state = states.get_mut(effect).ok_or_else(|| refuse(rules::EFFECT_MISSING))?;
            let next = transition::next(*state, event.kind());
            *state = Some(next.map_err(|_| refuse(rules::ILLEGAL_MOVE))?);
        }
        let told = write.effects.iter().all(|told| states[&told.id] == Some(told.state));
        if told { Ok(()) } else { Err(refuse(rules::EFFECT_MISSING)) }
    }

    /// Writes what was checked.
    pub(super) fn apply(&mut self, write: Write, now: i64) -> Result<Head, LedgerError> {
        for projection in write.effects {
            self.effects.insert(projection.id.clone(), (write.run.clone(), projection));
        }
        let run = self.run(&write.run)?;
        write.entries.iter().for_each(|ready| run.push(&ready.entry));
        let seq = run.head().seq;
        if let Some(change) = write.change {
            let record = &mut run.record;
            let damaged = |column, problem: serde_json::Error| LedgerError::Corrupt {
                table: "run",
                column,
                key: write.run.to_string(),
                problem: problem.to_string(),
            };
            if let Some(progress) = &change.progress {
                record.progress =
                    serde_json::from_str(progress).map_err(|e| damaged("progress", e))?;
                record.progress_seq = seq;
            }
            if let Some(output) = &change.output {
                record.output =
                    Some(serde_json::from_str(output).map_err(|e| damaged("output", e))?);
            }
            let missed = rules::missed_cancel(record.cancel.is_some(), &change);
            record.state = if missed { RunState::Ready } else { change.state };
            record.reason = change.reason;
            let due_at = change.due_at.filter(|_| !missed);
            record.due_at = due_at.map(Timestamp);
            if change.state != RunState::Running {
                record.lease_until = record.lease_until.map(|until| until.min(Timestamp(now)));
                run.claim_at = rules::claim_at(record.state, due_at, now);
            }
        }
        let (head, is_over) = (run.head(), run.record.state.is_final());
        if is_over {
            self.locks.release(&write.run);
        }
        self.commits += 1;
        Ok(head)
    }

    pub(super) fn row(&self, owner: &RunId, effect: &Projection, now: i64) -> EffectRow {
        let live = self.runs.get(owner).is_some_and(|run| run.shown(now).lease_live);
        let dead = effect.state == State::Requested && !effect.settled_here && !live;
        effect.row(owner, if dead { State::Unknown } else { effect.state })
    }
}

/// The effect that a run is, when another run starts it.
pub(super) const fn parent_of(entry: &NewEntry) -> Option<&Parent> {
    match &entry.content {
        Content::Run(RunEvent::Started { parent, .. }) => parent.as_ref(),
        Content::Run(_) | Content::Effect { .. } => None,
    }
}
