//! Which run is next and what taking it does, when another will be due, and how all of them stand.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use twice_core::chain::{Content, NewEntry};
use twice_core::event::RunEvent;
use twice_core::ids::{Name, RunId, WorkerId};
use twice_core::run::{Priority, RunState};
use twice_core::time::Timestamp;

use super::{Memory, Run};
use crate::{Claim, ClaimBy, ClaimOutcome, Overview, Turn, WorkerLoad, WorkflowLoad, rules};

impl Run {
    /// Gives it to a worker, or puts it into quarantine when it killed too many.
    pub(super) fn take(&mut self, by: &ClaimBy, at: Timestamp, now: i64) -> ClaimOutcome {
        let takeover = self.record.state == RunState::Running;
        self.record.fence.0 += 1;
        self.record.due_at = None;
        self.record.crashes += u32::from(takeover);
        let crashes = self.record.crashes;
        if takeover && rules::is_poison(crashes) {
            self.record.state = RunState::Quarantined;
            self.record.reason = Some(rules::quarantine_reason(&self.record.id, crashes));
            self.claim_at = None;
            self.push(&NewEntry { content: Content::Run(RunEvent::Quarantined { crashes }), at });
            return ClaimOutcome::Quarantined(self.record.id.clone());
        }
        let until = rules::lease_end(now, by.lease_ms);
        self.record.state = RunState::Running;
        self.record.reason = None;
        self.record.worker = Some(by.worker.clone());
        self.record.lease_until = Some(Timestamp(until));
        self.claim_at = Some(until);
        let event = RunEvent::Claimed { worker: by.worker.clone(), takeover };
        self.push(&NewEntry { content: Content::Run(event), at });
        let run = self.shown(now);
        ClaimOutcome::Claimed(Box::new(Claim { fence: run.fence, head: self.head(), run }))
    }
}

impl Memory {
    /// The next run of a turn.
    pub(super) fn next_of(&self, turn: &Turn, now: i64) -> Option<RunId> {
        let due: Vec<&Run> = self
            .runs
            .values()
            .filter(|run| rules::is_due(run.claim_at, now))
            .filter(|run| !turn.not.contains(&run.record.workflow))
            .collect();
        let mut most_urgent: BTreeMap<&Name, Priority> = BTreeMap::new();
        for run in &due {
            let urgency = most_urgent.entry(&run.record.workflow).or_insert(Priority::MIN);
            *urgency = run.record.priority.max(*urgency);
        }
        let highest = *most_urgent.values().max()?;
        let first = |name: &&&Name| turn.after.as_ref().is_none_or(|after| **name > after);
        let equals: Vec<&Name> = most_urgent
            .iter()
            .filter(|(_, urgency)| **urgency == highest)
            .map(|(n, _)| *n)
            .collect();
        let workflow = *equals.iter().find(first).or_else(|| equals.first())?;
        due.into_iter()
            .filter(|run| run.record.workflow == *workflow)
            .min_by_key(|run| (Reverse(run.record.priority), run.claim_at, &run.record.id))
            .map(|run| run.record.id.clone())
    }

    /// How long until another run becomes claimable.
    pub(super) fn next_due_ms(&self, now: i64) -> Option<u64> {
        let later = self.runs.values().filter_map(|run| run.claim_at).filter(|at| *at > now);
        later.min().map(|at| at.abs_diff(now))
    }

    pub(super) fn overview(&self, now: i64) -> Overview {
        let mut workflows: BTreeMap<&Name, WorkflowLoad> = BTreeMap::new();
        let mut workers: BTreeMap<&WorkerId, u64> = BTreeMap::new();
        for run in self.runs.values().filter(|run| !run.record.state.is_final()) {
            let name = &run.record.workflow;
            let load = workflows.entry(name).or_insert_with(|| WorkflowLoad::none(name.clone()));
            match (run.claim_at, run.record.state) {
                (Some(at), _) if at <= now => {
                    load.ready += 1;
                    load.lag_ms = load.lag_ms.max(Some(now.abs_diff(at)));
                }
                (_, RunState::Running) => {
                    load.running += 1;
                    if let Some(worker) = &run.record.worker {
                        *workers.entry(worker).or_default() += 1;
                    }
                }
                (_, RunState::Ready | RunState::Waiting) => load.waiting += 1,
                (_, RunState::Halted) => load.halted += 1,
                (_, RunState::Stuck) => load.stuck += 1,
                (_, RunState::Quarantined) => load.quarantined += 1,
                (_, RunState::Completed | RunState::Failed | RunState::Cancelled) => {}
            }
        }
        let workers = workers.into_iter();
        Overview {
            workflows: workflows.into_values().collect(),
            workers: workers
                .map(|(worker, runs)| WorkerLoad { worker: worker.clone(), runs })
                .collect(),
        }
    }
}
