//! What people are asked to approve.

use serde::Serialize;
use serde_json::Value;
use twice_core::approval::{self, Standing};
use twice_core::effect::Effect;
use twice_core::time::Timestamp;

/// What a person is asked to approve.
#[derive(Debug, Serialize)]
pub struct ApprovalView {
    /// Its id: an effect of its own.
    pub approval_id: String,
    /// The effect that waits for it.
    pub effect_id: String,
    /// The run of both.
    pub run_id: String,
    /// What is to be sent, as `tool.operation`.
    pub operation: String,
    /// The args.
    pub args: Value,
    /// The digest of the request, which alone is approved.
    pub request_hash: String,
    /// Who is asked.
    pub by: String,
    /// `open`, `granted`, `refused`, `expired`, or `void` when nothing waits for it any more.
    pub state: &'static str,
    /// When it can be answered no more.
    pub expires_at: String,
    /// Who answered.
    pub answered_by: Option<String>,
    /// What they said.
    pub reason: Option<String>,
}

impl ApprovalView {
    /// The view of an approval, by what it asks.
    #[must_use]
    pub fn of(effect: &Effect, question: approval::Question, now: Timestamp) -> Self {
        let (state, answer) = match approval::standing(effect, now) {
            Some(Standing::Granted { who, why }) => ("granted", Some((who, why))),
            Some(Standing::Refused { who, why }) => ("refused", Some((who, why))),
            Some(Standing::Expired) => ("expired", None),
            Some(Standing::Void) => ("void", None),
            Some(Standing::Open) | None => ("open", None),
        };
        Self {
            approval_id: effect.id.to_string(),
            effect_id: question.effect.to_string(),
            run_id: effect.run.to_string(),
            operation: question.operation,
            args: question.args,
            request_hash: question.request_hash.to_string(),
            by: question.by.to_string(),
            state,
            expires_at: question.expires_at.to_string(),
            answered_by: answer.map(|(who, _)| who.to_owned()),
            reason: answer.map(|(_, why)| why.to_owned()),
        }
    }
}
