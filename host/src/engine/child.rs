//! Runs that an effect starts: a child workflow is asked for by starting its run, and answered by how that run ends. It is this
//! very ledger that is asked, so that nothing about it is ever unknown.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use twice_core::chain::{Content, NewEntry};
use twice_core::effect::Effect;
use twice_core::event::{AttemptStart, Parent, RunEvent};
use twice_core::identity::{IDENTITY_ALG, child_run, hash_text, tagged_sha256};
use twice_core::ids::{Name, RunId};
use twice_core::json;
use twice_core::outcome::ChildEnd;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{Cancel, Ledger, LedgerError, NewRun, RunRecord, Started};

use super::error::EngineError;
use super::operator::Decision;
use super::retry;
use super::session::Session;
use super::stop::NEEDS_PERSON;

/// The workflow of which a slot starts runs, as it is pinned with its parent.
#[derive(Debug, Clone)]
pub struct ChildWorkflow {
    /// Its name.
    pub name: Name,
    /// Its version.
    pub version: u32,
    /// The digest of its definition.
    pub digest: String,
}

/// How a child stands.
#[derive(Debug)]
pub(super) enum Stands {
    /// It is over.
    Over(ChildEnd),
    /// It goes on by itself.
    UnderWay {
        /// In words.
        why: String,
    },
    /// It does not go on until a person decides something.
    NeedsPerson {
        /// Which, and what.
        why: String,
    },
}

/// What is asked of the ledger about an effect that starts a run.
pub(super) struct Question {
    ledger: Arc<dyn Ledger>,
    run: NewRun,
    parent: Parent,
    /// Whether it is asked for anew, after a person's decision.
    renewed: bool,
}

/// The run of an effect.
pub(super) fn run_of(effect: &Effect) -> RunId {
    let proposal = &effect.proposal;
    child_run(&proposal.identity, &proposal.request_hash, &effect.run, &proposal.slot)
}

/// What is recorded of the request: which run is to be started, under which definition. Its input are the args.
pub(super) fn start(effect: &Effect, workflow: &ChildWorkflow, attempt: u32) -> AttemptStart {
    let args = json::canonical(&effect.proposal.args);
    AttemptStart {
        attempt,
        request: json!({
            "run": run_of(effect), "workflow": workflow.name, "version": workflow.version,
            "definition": workflow.digest,
        }),
        body_hash: hash_text(&tagged_sha256("twice/child-input/v1", args.as_bytes())),
    }
}

impl Question {
    /// About that effect of this session's run.
    pub(super) fn about(session: &Session, effect: &Effect, workflow: &ChildWorkflow) -> Self {
        let parent = Parent { run: effect.run.clone(), effect: effect.id.clone() };
        let (input, priority) = (effect.proposal.args.clone(), session.run.priority);
        let event = RunEvent::Started {
            workflow: workflow.name.clone(),
            version: workflow.version,
            definition: workflow.digest.clone(),
            input: input.clone(),
            identity_alg: IDENTITY_ALG,
            priority,
            parent: Some(parent.clone()),
        };
        let run = NewRun {
            id: run_of(effect),
            caller_key: None,
            workflow: workflow.name.clone(),
            definition: workflow.digest.clone(),
            input,
            priority,
            entry: NewEntry { content: Content::Run(event), at: session.now() },
            claim: None,
            parent_fence: Some(session.fence),
        };
        let renewed = effect.proposal.identity.generation > 1;
        Self { ledger: session.shared_ledger(), run, parent, renewed }
    }

    /// The child.
    pub(super) const fn child(&self) -> &RunId {
        &self.run.id
    }

    /// Asks how the child stands; one that nobody started yet is started.
    ///
    /// # Errors
    /// When the ledger fails.
    pub(super) async fn ask(self) -> Result<Stands, EngineError> {
        if let Some(record) = self.ledger.run(&self.run.id).await? {
            return self.judge(&record).await;
        }
        match self.ledger.start_run(self.run.clone()).await {
            Ok(Started::Created(_)) => Ok(under_way(&self.run.id, RunState::Ready)),
            Ok(Started::Existing(record)) => self.judge(&record).await,
            Err(LedgerError::RunConflict { difference, .. }) => Ok(self.occupied(&difference)),
            Err(LedgerError::Pruned { .. }) => Ok(Stands::NeedsPerson {
                why: format!(
                    "{NEEDS_PERSON} for a child run: {} was removed from the ledger before its parent asked what became of it; its export tells",
                    self.run.id
                ),
            }),
            Err(error) => Err(error.into()),
        }
    }

    async fn judge(&self, record: &RunRecord) -> Result<Stands, EngineError> {
        let is_ours = record.parent.as_ref().is_some_and(|own| own.run == self.parent.run);
        if !is_ours {
            return Ok(self.occupied("another parent"));
        }
        // What was undone cannot be gone on from: such a child stays failed.
        if record.state == RunState::Failed
            && self.renewed
            && !self.was_tried_again(record).await?
            && !retry::is_undone(&*self.ledger, &record.id).await?
            // What may have happened is not done again on the word of one who did not look at it.
            && !retry::is_contradicted(&*self.ledger, &record.id).await?
        {
            let decision = Decision {
                who: format!("run {}", self.parent.run),
                why: format!("effect {} asks for it anew", self.parent.effect),
            };
            retry::try_again(&*self.ledger, record, &decision, self.run.entry.at).await?;
            return Ok(under_way(&record.id, RunState::Ready));
        }
        Ok(how(record))
    }

    /// Whether the run was tried again for this very effect. What failed before an order to try the parent again is no answer to
    /// what is asked after it.
    async fn was_tried_again(&self, record: &RunRecord) -> Result<bool, EngineError> {
        let mut after = 0;
        loop {
            let page = self.ledger.history(&record.id, after, 0).await?;
            let Some(last) = page.last() else { return Ok(false) };
            after = last.seq;
            let retries = page.iter().filter(|entry| entry.effect.is_none());
            for entry in retries {
                if let Ok(Content::Run(RunEvent::Retried { why, .. })) = entry.content()
                    && why.contains(self.parent.effect.as_str())
                {
                    return Ok(true);
                }
            }
        }
    }

    /// Somebody else's run has the id, so that nothing was started, or ever will be.
    fn occupied(&self, difference: &str) -> Stands {
        let why = format!("there is a run {} already, with {difference}", self.run.id);
        Stands::Over(ChildEnd::Failed { code: "not_started", why })
    }
}

/// How a child stands by its record.
fn how(record: &RunRecord) -> Stands {
    let why = || record.reason.clone().unwrap_or_default();
    match record.state {
        RunState::Completed => {
            Stands::Over(ChildEnd::Completed(record.output.clone().unwrap_or(Value::Null)))
        }
        RunState::Failed => Stands::Over(ChildEnd::Failed {
            code: "child_failed",
            why: format!("run {} of `{}` failed: {}", record.id, record.workflow, why()),
        }),
        RunState::Cancelled => Stands::Over(ChildEnd::Failed {
            code: "child_cancelled",
            why: format!("run {} of `{}` was cancelled: {}", record.id, record.workflow, why()),
        }),
        RunState::Halted | RunState::Stuck | RunState::Quarantined => Stands::NeedsPerson {
            why: format!(
                "{NEEDS_PERSON} for a child run: run {} of `{}` is {}: {}",
                record.id,
                record.workflow,
                record.state,
                why()
            ),
        },
        // It waits for a child of its own, and says for which.
        RunState::Waiting if why().starts_with(NEEDS_PERSON) => Stands::NeedsPerson { why: why() },
        RunState::Ready | RunState::Running | RunState::Waiting => {
            under_way(&record.id, record.state)
        }
    }
}

fn under_way(child: &RunId, state: RunState) -> Stands {
    Stands::UnderWay { why: format!("child run {child} is not over; it is {state}") }
}

/// Asks that a child be cancelled, as its parent does not go on. What became of it is asked afterwards as ever: it is over
/// sooner or later, and only then is its effect settled. One that is over, or needs a person first, is left as it is.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn stop_child(
    session: &Session,
    child: &RunId,
    now: Timestamp,
) -> Result<(), EngineError> {
    let cancel = Cancel {
        who: format!("run {}", session.id()),
        why: "the run that started it does not go on".to_owned(),
    };
    match session.ledger().request_cancel(child, &cancel, now).await {
        Ok(_) | Err(LedgerError::State { .. } | LedgerError::Absent { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes the run that waits for this one due at once. It may be missed, as when this process ends here: the parent also looks
/// for itself from time to time.
pub(super) async fn wake_parent(ledger: &dyn Ledger, parent: Option<&Parent>) {
    if let Some(parent) = parent {
        wake(ledger, &parent.run).await;
    }
}

/// Makes a run that has just begun to wait due at once if one of these children is over: it ended before there was anybody to
/// wake.
pub(super) async fn wake_if_over(ledger: &dyn Ledger, run: &RunId, children: BTreeSet<RunId>) {
    for child in children {
        let record = ledger.run(&child).await;
        if record.is_ok_and(|record| record.is_some_and(|record| record.state.is_final())) {
            return wake(ledger, run).await;
        }
    }
}

/// Makes a run that waits due at once.
pub(super) async fn wake(ledger: &dyn Ledger, run: &RunId) {
    if let Err(problem) = ledger.wake(run).await {
        tracing::debug!(%run, %problem, "a run that waits for its child could not be woken");
    }
}
