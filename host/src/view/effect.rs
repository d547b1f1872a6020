//! Effects, as listed and with everything that is known of them.

use serde::Serialize;
use serde_json::Value;
use twice_core::approval;
use twice_core::effect::{Effect, Hold};
use twice_ledger::EffectRow;

use super::{EntryView, json, text};

/// An effect in a listing.
#[derive(Debug, Serialize)]
pub struct EffectView {
    /// Its id.
    pub effect_id: String,
    /// The run that owns it.
    pub run_id: String,
    /// `tool.operation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The node that asked.
    pub node: String,
    /// The visit of that node.
    pub visit: u32,
    /// The element, in a fan-out.
    pub element: Option<String>,
    /// The slot it asked through.
    pub slot: String,
    /// The digest of the request.
    pub request_hash: String,
    /// The readable key, the same on each attempt.
    pub idempotency_key: String,
    /// The state; REQUESTED under a dead lease is shown as UNKNOWN.
    pub state: String,
    /// Whether a person must decide something about it.
    pub held: bool,
    /// The effect that it undoes, if it undoes one.
    pub undoes: Option<String>,
    /// The effect that it asks a person's approval of, if it does.
    pub approves: Option<String>,
    /// What has become of its own undoing, where its run does not go on and it may have happened: `undone`, `settled` (by a person),
    /// `open`, `stuck`, or `stays` where the workflow does not say how to undo it.
    pub undoing: Option<&'static str>,
    /// How many attempts were made.
    pub attempts: u32,
    /// The provider's id of what came of it.
    pub external_id: Option<String>,
    /// The last error.
    pub last_error: Option<String>,
    /// When its latest entry was made.
    pub updated_at: String,
}

impl EffectView {
    /// The view of a row.
    #[must_use]
    pub fn of(row: &EffectRow) -> Self {
        Self {
            effect_id: row.id.to_string(),
            run_id: row.run.to_string(),
            kind: row.operation.clone(),
            node: row.node.to_string(),
            visit: row.visit,
            element: row.element.as_ref().map(ToString::to_string),
            slot: row.slot.to_string(),
            request_hash: row.request_hash.clone(),
            idempotency_key: row.idempotency_key.clone(),
            state: row.state.to_string(),
            held: row.held,
            undoes: row.undoes.as_ref().map(ToString::to_string),
            approves: row.approves.as_ref().map(ToString::to_string),
            // It is no matter of the row: whoever lists effects finds it out from their runs.
            undoing: None,
            attempts: row.attempts,
            external_id: row.external_id.clone(),
            last_error: row.last_error.clone(),
            updated_at: row.updated_at.to_string(),
        }
    }
}

/// An effect with everything that is known of it.
#[derive(Debug, Serialize)]
pub struct EffectDetail {
    /// Its id.
    pub effect_id: String,
    /// The run that owns it.
    pub run_id: String,
    /// `tool.operation`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The digest of the request.
    pub request_hash: String,
    /// The readable key, the same on each attempt.
    pub idempotency_key: String,
    /// The key in the form the provider gets.
    pub provider_key: String,
    /// The state; REQUESTED under a dead lease is shown as UNKNOWN.
    pub state: String,
    /// How many attempts were made.
    pub attempts: u32,
    /// The receipt, once confirmed.
    pub external_receipt: Option<Value>,
    /// The last error.
    pub last_error: Option<String>,
    /// The node that asked.
    pub node: String,
    /// The slot it asked through.
    pub slot: String,
    /// The args.
    pub args: Value,
    /// The class of its tool and what that promises.
    pub tool_class: String,
    /// The policy that permitted it.
    pub policy: Option<String>,
    /// The approval that it needs, if it needs one: its id, who is asked and for how long, why, and whether it was sent under it.
    pub approval: Option<Value>,
    /// The effect that it asks a person's approval of, if it does.
    pub approves: Option<String>,
    /// The effect that it undoes, if it undoes one.
    pub undoes: Option<String>,
    /// How it is undone, as frozen when it was proposed: operation, args (what comes from the receipt still open), key.
    pub compensation: Option<Value>,
    /// The failure, once failed.
    pub failure: Option<Value>,
    /// What a person must decide: both requests of a conflict, or a discrepancy.
    pub held: Option<Value>,
    /// Not to be moved before.
    pub not_before: Option<String>,
    /// Every send: number, fence, verdict, times.
    pub attempt_log: Vec<Value>,
    /// Every lookup.
    pub lookups: Vec<Value>,
    /// What arrived about it and was not applied: when, and what it said.
    pub observations: Vec<Value>,
    /// What was decided by whom.
    pub decisions: Vec<Value>,
    /// Its ledger entries, the exact requests among them.
    pub history: Vec<EntryView>,
    /// When its latest entry was made.
    pub updated_at: String,
}

impl EffectDetail {
    /// The view of an effect with its entries.
    #[must_use]
    pub fn of(effect: &Effect, lease_live: bool, history: Vec<EntryView>) -> Self {
        let proposal = &effect.proposal;
        let class = effect.contract().class();
        Self {
            effect_id: effect.id.to_string(),
            run_id: effect.run.to_string(),
            kind: format!("{}.{}", proposal.tool, proposal.operation),
            request_hash: proposal.request_hash.to_string(),
            idempotency_key: proposal.idempotency_key.clone(),
            provider_key: proposal.provider_key.clone(),
            state: effect.shown_state(lease_live).to_string(),
            attempts: effect.attempts.len() as u32,
            external_receipt: effect.receipt.as_ref().map(json),
            last_error: effect.last_error.clone(),
            node: proposal.node.to_string(),
            slot: proposal.slot.to_string(),
            args: proposal.args.clone(),
            tool_class: format!("{}: {}", class.as_str(), class.promise()),
            policy: effect.authorization.as_ref().map(|a| a.policy.clone()),
            approval: proposal.approval.as_ref().map(|required| {
                serde_json::json!({
                    "effect_id": approval::id_of(proposal),
                    "by": required.by,
                    "expires_ms": required.expires_ms,
                    "policy": required.policy,
                    "granted": effect.authorization.as_ref().is_some_and(|a| a.approval.is_some()),
                })
            }),
            approves: proposal.approves.as_ref().map(ToString::to_string),
            undoes: proposal.undoes.as_ref().map(ToString::to_string),
            compensation: proposal.compensation.as_ref().map(json),
            failure: effect.failure.as_ref().map(json),
            held: effect.hold.as_ref().map(|hold| held(effect, hold)),
            // What is settled waits for nothing, whatever it once waited for.
            not_before: text(effect.not_before.filter(|_| !effect.state.is_final())),
            attempt_log: effect
                .attempts
                .iter()
                .map(|attempt| {
                    serde_json::json!({
                        "attempt": attempt.number,
                        "fence": attempt.fence,
                        "requested_at": attempt.requested_at.to_string(),
                        "body_hash": attempt.body_hash,
                        "verdict": attempt.verdict.as_ref().map(json),
                        "settled_at": text(attempt.settled_at),
                    })
                })
                .collect(),
            lookups: effect
                .probes
                .iter()
                .map(|(at, probe)| serde_json::json!({ "at": at.to_string(), "lookup": json(probe) }))
                .collect(),
            observations: effect
                .observed
                .iter()
                .map(|(at, seen)| {
                    serde_json::json!({
                        "at": at.to_string(), "applied": false, "observation": json(seen),
                    })
                })
                .collect(),
            decisions: effect
                .decisions
                .iter()
                .map(json)
                .chain(history.iter().filter(|entry| entry.settles(&effect.id)).map(|entry| entry.body["data"].clone()))
                .collect(),
            history,
            updated_at: effect.updated_at.to_string(),
        }
    }
}

fn held(effect: &Effect, hold: &Hold) -> Value {
    match hold {
        Hold::Conflict(conflict) => serde_json::json!({
            "conflict": {
                "recorded": { "request_hash": conflict.recorded_hash, "args": effect.proposal.args },
                "requested": { "request_hash": conflict.requested_hash, "args": conflict.args },
            }
        }),
        Hold::Discrepancy(difference) => serde_json::json!({ "discrepancy": difference }),
    }
}
