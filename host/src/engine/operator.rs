//! What a person decides: the outcome of an unknown effect, a conflict, a halted or quarantined run. Each decision is an
//! entry that says who, when and why; none of them sends anything.

use serde_json::Value;
use twice_core::chain::{Content, NewEntry};
use twice_core::effect::{Effect, Hold, State};
use twice_core::event::{ConflictDecision, ConflictRule, EffectEvent, Failure, RunEvent, Source};
use twice_core::ids::{EffectId, Fence, RunId};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_core::{outcome, reconcile};
use twice_ledger::{Ledger, LedgerError, OperatorAppend, RunChange, RunRecord, progress_of};

use super::retry::Evidence;
use super::{Engine, EngineError};

/// Who decides, and why.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The person.
    pub who: String,
    /// Their reason or evidence; not empty.
    pub why: String,
}

/// What a person found out about an unknown effect.
#[derive(Debug, Clone)]
pub enum Finding {
    /// It happened.
    Confirmed {
        /// What the provider shows.
        result: Value,
        /// The provider's id.
        external_id: Option<String>,
    },
    /// It did not happen.
    Failed,
}

/// Why a decision is refused.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// There is no such effect.
    #[error("there is no effect `{0}` in this ledger; `twice effects list` shows them")]
    NoEffect(EffectId),
    /// The effect is in a state in which there is nothing to decide.
    #[error("effect {effect} is {state}: {rule}")]
    NotNow {
        /// The effect.
        effect: EffectId,
        /// Its state.
        state: String,
        /// What could be decided, and when.
        rule: &'static str,
    },
    /// What is to be done again may have been done.
    #[error(
        "effect {effect} is recorded as FAILED, and happened by what came since: {says}; having it tried again could do it twice\nfix: look at the provider and at `twice effects show {effect}`; if it did not happen, add `--despite-evidence`"
    )]
    Contradicted {
        /// The effect.
        effect: EffectId,
        /// What says so.
        says: String,
    },
    /// An approval is not open any more.
    #[error("approval {approval} is {how}")]
    NotAsked {
        /// The approval.
        approval: EffectId,
        /// How it stands.
        how: String,
    },
    /// The run is not stuck at that effect.
    #[error(
        "run {run} is not stuck at effect {effect}, but at {}; nothing was recorded\nfix: `twice runs resolve {run} --effect {} --reason 'EVIDENCE'`",
        listed(.at), .at[0]
    )]
    NotStuckAt {
        /// The run.
        run: RunId,
        /// The effect that was named.
        effect: EffectId,
        /// What it is stuck at; not empty.
        at: Vec<EffectId>,
    },
    /// The receipt proves too little.
    #[error(transparent)]
    Receipt(#[from] outcome::NoExternalId),
    /// The executor or the ledger failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

fn listed(effects: &[EffectId]) -> String {
    let effects: Vec<String> = effects.iter().map(|id| format!("effect {id}")).collect();
    effects.join(" and ")
}

impl From<LedgerError> for DecisionError {
    fn from(error: LedgerError) -> Self {
        Self::Engine(EngineError::Ledger(error))
    }
}

impl Engine {
    /// Records what a person found out about an UNKNOWN effect; its run is due again at once.
    ///
    /// # Errors
    /// [`DecisionError::NotNow`] unless the effect is UNKNOWN (or REQUESTED under a dead lease);
    /// [`DecisionError::Receipt`].
    pub async fn resolve(
        &self,
        id: &EffectId,
        finding: Finding,
        decision: &Decision,
    ) -> Result<Effect, DecisionError> {
        let (mut effect, run) = self.effect_and_run(id).await?;
        let at = self.parts.clock.now();
        let mut entries = Vec::new();
        if effect.contract().settled_here {
            let rule = match effect.proposal.approves {
                Some(_) => {
                    "it is an approval, and settled by `twice approvals grant` or `twice approvals refuse`"
                }
                None => {
                    "it is settled by the run that it started; `twice runs show` of its run tells how that stands"
                }
            };
            return Err(not_now(&effect, rule));
        }
        if effect.state == State::Requested && !run.lease_live {
            let reason = reconcile::vanished(&effect);
            add(&mut effect, &mut entries, run.fence, at, EffectEvent::Unknown(reason))?;
        }
        if effect.state != State::Unknown {
            return Err(not_now(
                &effect,
                "only an UNKNOWN effect has an outcome for a person to settle",
            ));
        }
        let source = Source::Operator { who: decision.who.clone(), evidence: decision.why.clone() };
        let event = match finding {
            Finding::Confirmed { result, external_id } => {
                let definition = self.pinned(&run.id, &run.definition).await?;
                let Some(operation) = definition.operation(&effect.proposal) else {
                    return Err(not_now(
                        &effect,
                        "its run's definition does not have its operation",
                    ));
                };
                let receipt = outcome::receipt_by_person(
                    &effect,
                    &operation.declarations,
                    result,
                    external_id,
                    source,
                    at,
                )?;
                EffectEvent::Confirmed(Box::new(receipt))
            }
            Finding::Failed => EffectEvent::Failed(Failure {
                code: "resolved".to_owned(),
                message: format!("{} found that it did not happen: {}", decision.who, decision.why),
                denied: false,
                source: Some(source),
                rule: None,
                verdict: None,
                detail: Value::Null,
            }),
        };
        add(&mut effect, &mut entries, run.fence, at, event)?;
        self.decide(&run, effect, entries, decision).await
    }

    /// Records how a conflict (or a discrepancy) is decided; its run is due again at once.
    ///
    /// # Errors
    /// [`DecisionError::NotNow`] when nothing is held for a decision.
    pub async fn decide_conflict(
        &self,
        id: &EffectId,
        rule: ConflictRule,
        decision: &Decision,
    ) -> Result<Effect, DecisionError> {
        let (mut effect, run) = self.effect_and_run(id).await?;
        let requested_hash = match &effect.hold {
            Some(Hold::Conflict(conflict)) => conflict.requested_hash.clone(),
            Some(Hold::Discrepancy(_)) if rule == ConflictRule::Renew => {
                return Err(not_now(
                    &effect,
                    "it happened, though not as asked: let it stand (`--keep`) or fail (`--fail`); a new one would come on top",
                ));
            }
            Some(Hold::Discrepancy(_)) => effect.proposal.request_hash.clone(),
            None => return Err(not_now(&effect, "nothing about it is held for a decision")),
        };
        let at = self.parts.clock.now();
        let mut entries = Vec::new();
        let event = EffectEvent::ConflictDecided(ConflictDecision {
            decision: rule,
            who: decision.who.clone(),
            why: decision.why.clone(),
            requested_hash,
        });
        add(&mut effect, &mut entries, run.fence, at, event)?;
        self.decide(&run, effect, entries, decision).await
    }

    /// Lets a halted or quarantined run go on.
    ///
    /// # Errors
    /// [`LedgerError::State`] when it neither halted nor is in quarantine.
    pub async fn release(
        &self,
        id: &RunId,
        evidence: Evidence,
        decision: &Decision,
    ) -> Result<(), EngineError> {
        let run = self.record(id).await?;
        match run.state {
            RunState::Halted | RunState::Quarantined => {}
            RunState::Stuck => return self.release_stuck(&run, evidence, decision).await,
            RunState::Ready
            | RunState::Running
            | RunState::Waiting
            | RunState::Completed
            | RunState::Failed
            | RunState::Cancelled => {
                return Err(EngineError::Ledger(LedgerError::State {
                    run: id.clone(),
                    state: run.state.to_string(),
                    rule: "only a halted, stuck or quarantined run can be released",
                }));
            }
        }
        let at = self.parts.clock.now();
        let event = Some(released(decision));
        self.write_decision(&run, Vec::new(), Vec::new(), decision, event, at).await
    }

    pub(super) async fn record(&self, id: &RunId) -> Result<RunRecord, EngineError> {
        let record = self.parts.ledger.run(id).await?;
        Ok(record.ok_or_else(|| LedgerError::Absent { what: "run", id: id.to_string() })?)
    }

    pub(super) async fn effect_and_run(
        &self,
        id: &EffectId,
    ) -> Result<(Effect, RunRecord), DecisionError> {
        let effect = self.parts.ledger.effect(id).await?;
        let effect = effect.ok_or_else(|| DecisionError::NoEffect(id.clone()))?;
        let run = self.record(&effect.run).await?;
        Ok((effect, run))
    }

    pub(super) async fn decide(
        &self,
        run: &RunRecord,
        effect: Effect,
        entries: Vec<NewEntry>,
        decision: &Decision,
    ) -> Result<Effect, DecisionError> {
        let at = effect.updated_at;
        // A run that ended stays ended: a decision about one of its effects is recorded and changes nothing else.
        let event = (!run.state.is_final()).then(|| released(decision));
        self.write_decision(run, entries, vec![effect.clone()], decision, event, at).await?;
        Ok(effect)
    }

    /// I10: what a person says is refused rather than changed.
    pub(super) async fn refuse_secrets_of(
        &self,
        run: &RunRecord,
        decision: &Decision,
    ) -> Result<(), EngineError> {
        let definition = self.pinned(&run.id, &run.definition).await?;
        self.learn_secrets(&definition);
        self.refuse_secret("the decision's author", &Value::from(decision.who.as_str()))?;
        self.refuse_secret("the decision's reason", &Value::from(decision.why.as_str()))
    }

    /// Writes a decision, and lets the run go on when `event` says so.
    pub(super) async fn write_decision(
        &self,
        run: &RunRecord,
        entries: Vec<NewEntry>,
        effects: Vec<Effect>,
        decision: &Decision,
        event: Option<RunEvent>,
        at: Timestamp,
    ) -> Result<(), EngineError> {
        self.refuse_secrets_of(run, decision).await?;
        for receipt in effects.iter().filter_map(|effect| effect.receipt.as_ref()) {
            self.refuse_secret("the receipt", &receipt.result)?;
            self.refuse_secret("the receipt's id", &Value::from(receipt.external_id.clone()))?;
        }
        write(&*self.parts.ledger, run, entries, effects, event, at).await
    }
}

pub(super) fn add(
    effect: &mut Effect,
    entries: &mut Vec<NewEntry>,
    fence: Fence,
    at: Timestamp,
    event: EffectEvent,
) -> Result<(), EngineError> {
    effect
        .apply(&event, fence, at)
        .map_err(|source| EngineError::History { effect: effect.id.to_string(), source })?;
    entries.push(NewEntry { content: Content::Effect { effect: effect.id.clone(), event }, at });
    Ok(())
}

/// Writes what was decided about a run, and lets it go on when `event` says so.
pub(super) async fn write(
    ledger: &dyn Ledger,
    run: &RunRecord,
    mut entries: Vec<NewEntry>,
    effects: Vec<Effect>,
    event: Option<RunEvent>,
    at: Timestamp,
) -> Result<(), EngineError> {
    let expected_head = ledger.head(&run.id).await?;
    let mut progress = match event {
        Some(_) => Some(progress_of(ledger, run).await?),
        None => None,
    };
    let run_change = event.map(|event| {
        entries.push(NewEntry { content: Content::Run(event), at });
        if let Some(progress) = &mut progress {
            for entry in &entries {
                if let Content::Run(event) = &entry.content {
                    progress.apply(event, entry.at);
                }
            }
        }
        RunChange {
            state: RunState::Ready,
            progress,
            output: None,
            reason: None,
            due_at: Some(at),
            cancel_seen: true,
        }
    });
    let append =
        OperatorAppend { run: run.id.clone(), entries, effects, run_change, expected_head };
    ledger.append_as_operator(append).await?;
    Ok(())
}

pub(super) fn released(decision: &Decision) -> RunEvent {
    RunEvent::Released { who: decision.who.clone(), why: decision.why.clone() }
}

pub(super) fn not_now(effect: &Effect, rule: &'static str) -> DecisionError {
    DecisionError::NotNow { effect: effect.id.clone(), state: effect.state.to_string(), rule }
}
