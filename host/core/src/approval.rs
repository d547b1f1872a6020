//! A person's approval of one request. It is an effect of its own, with a key that follows from what it is about, and is settled by
//! what that person says; the request waits for it as PROPOSED. It is for one request alone: other args are another question.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::contract::Contract;
use crate::effect::{Effect, State};
use crate::event::{
    AttemptStart, Authorization, EffectEvent, Failure, Proposal, Receipt, Required, Source,
};
use crate::identity::{KeyFormat, RequestHash, hash_text, tagged_sha256};
use crate::ids::{EffectId, Name};
use crate::json;
use crate::outcome::{RuleId, Verdict, bare_receipt};
use crate::time::Timestamp;

/// The tool of every approval; its operation is whoever is asked. No tool file may have this name.
pub const TOOL: &str = "approval";
/// The version of what is asked, in the place of a tool file's.
const TOOL_VERSION: &str = "1";
/// The code of an approval, and of its effect, that was refused.
pub const NOT_APPROVED: &str = "not_approved";
/// The code of an approval that was not answered, or of an effect whose grant was not used, in time.
pub const EXPIRED: &str = "expired";
/// The code of an approval that nothing waits for any more.
pub const VOID: &str = "void";
/// The rule by which a grant settles an approval.
pub const RULE_GRANTED: &str = "approval.granted";

/// What a person is asked: the args of an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The effect that waits for it.
    pub effect: EffectId,
    /// Its operation, as `tool.operation`.
    pub operation: String,
    /// Its args.
    pub args: Value,
    /// The request that is approved, and no other.
    pub request_hash: RequestHash,
    /// Who is asked.
    pub by: Name,
    /// When nothing can be answered any more, and a grant that was not used is void. Milliseconds since 1970, UTC.
    pub expires_at: Timestamp,
}

/// What is to be done about an effect that needs an approval.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// It needs none, or has it.
    Permitted(Option<EffectId>),
    /// Nobody was asked, as this demands.
    Ask(Box<Required>),
    /// Somebody was, and did not answer.
    Wait {
        /// When they cannot any more.
        until: Timestamp,
        /// For people.
        why: String,
    },
    /// Nobody answered in time: first the approval failed, then the effect.
    Expire,
    /// It is not sent.
    Refused(Failure),
}

/// The id of the approval of an effect's request.
#[must_use]
pub fn id_of(proposal: &Proposal) -> EffectId {
    proposal.identity.approval(&proposal.request_hash).effect_id()
}

/// What is to be done about an effect that policy permits. `approval` is that of its very request ([`id_of`]).
#[must_use]
pub fn next(effect: &Effect, approval: Option<&Effect>, now: Timestamp) -> Next {
    let Some(required) = &effect.proposal.approval else { return Next::Permitted(None) };
    let Some(approval) = approval else { return Next::Ask(required.clone()) };
    let Some(question) = question(approval) else {
        let why = "its approval cannot be read".to_owned();
        return Next::Refused(unsent(failure("unreadable", why, None)));
    };
    let is_over = now >= question.expires_at;
    match approval.state {
        State::Confirmed if is_over => Next::Refused(unsent(unused_grant(approval))),
        State::Confirmed => Next::Permitted(Some(approval.id.clone())),
        State::Failed => {
            let known = approval.failure.clone();
            let why = || failure(NOT_APPROVED, "no reason recorded".to_owned(), None);
            Next::Refused(unsent(known.unwrap_or_else(why)))
        }
        State::Proposed | State::Authorized | State::Requested | State::Unknown if is_over => {
            Next::Expire
        }
        State::Proposed | State::Authorized | State::Requested | State::Unknown => Next::Wait {
            until: question.expires_at,
            why: format!(
                "`{}` is asked whether effect {} ({}) may be sent: `twice approvals grant {} --reason 'WHY'` or `twice approvals refuse {} --reason 'WHY'`",
                question.by, effect.id, question.operation, approval.id, approval.id
            ),
        },
    }
}

/// Why an effect is not sent any more that was authorized under `approval` and had to wait since: the grant expired before it was
/// used. What was sent once is sent again under it.
#[must_use]
pub fn lapsed(effect: &Effect, approval: &Effect, now: Timestamp) -> Option<Failure> {
    let unused = effect.state == State::Authorized && effect.attempts.is_empty();
    let is_over = question(approval).is_none_or(|question| now >= question.expires_at);
    (unused && is_over).then(|| unsent(unused_grant(approval)))
}

fn unused_grant(approval: &Effect) -> Failure {
    let why = format!("approval {} was granted, and expired before it was used", approval.id);
    failure(EXPIRED, why, None)
}

/// What is recorded when somebody is asked, in this order.
#[must_use]
pub fn ask(effect: &Effect, required: &Required, now: Timestamp) -> [EffectEvent; 3] {
    let about = &effect.proposal;
    let question = Question {
        effect: effect.id.clone(),
        operation: format!("{}.{}", about.tool, about.operation),
        args: about.args.clone(),
        request_hash: about.request_hash.clone(),
        by: required.by.clone(),
        expires_at: now.plus_ms(required.expires_ms),
    };
    let args = serde_json::to_value(&question).expect("a question is plain data");
    let tool = Name::parse(TOOL).expect("it is a name");
    let request_hash = RequestHash::of(&tool, TOOL_VERSION, &required.by, &args, &[]);
    let identity = about.identity.approval(&about.request_hash);
    let body = json::canonical(&args);
    [
        EffectEvent::Proposed(Proposal {
            node: about.node.clone(),
            visit: about.visit,
            element: about.element.clone(),
            slot: about.slot.clone(),
            tool,
            tool_version: TOOL_VERSION.to_owned(),
            operation: required.by.clone(),
            args: args.clone(),
            request_hash: request_hash.clone(),
            idempotency_key: identity.key(),
            provider_key: identity.provider_key(KeyFormat::Uuid),
            contract: Contract::SETTLED_HERE,
            compensation: None,
            undoes: None,
            approval: None,
            approves: Some(effect.id.clone()),
            identity,
        }),
        EffectEvent::Authorized(Authorization {
            policy: required.policy.clone(),
            request_hash,
            approval: None,
        }),
        EffectEvent::Requested(AttemptStart {
            attempt: 1,
            request: args,
            body_hash: hash_text(&tagged_sha256("twice/approval/v1", body.as_bytes())),
        }),
    ]
}

/// What is asked by an approval; `None` when the effect is none.
#[must_use]
pub fn question(approval: &Effect) -> Option<Question> {
    approval.proposal.approves.as_ref()?;
    serde_json::from_value(approval.proposal.args.clone()).ok()
}

/// What a person says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It may be sent.
    Grant,
    /// It may not.
    Refuse,
}

/// What is recorded of an answer.
///
/// # Errors
/// How the approval stands when it is not open; `None` when the effect is none.
pub fn answer<'a>(
    approval: &'a Effect,
    answer: Answer,
    who: &str,
    why: &str,
    now: Timestamp,
) -> Result<EffectEvent, Option<Standing<'a>>> {
    match standing(approval, now) {
        Some(Standing::Open) => {}
        not_open => return Err(not_open),
    }
    let source = Source::Operator { who: who.to_owned(), evidence: why.to_owned() };
    Ok(match answer {
        Answer::Grant => {
            let said = json!({ "granted_by": who, "reason": why });
            EffectEvent::Confirmed(Box::new(Receipt {
                result: said.clone(),
                exposed: said,
                source,
                rule: RuleId::new(RULE_GRANTED),
                verdict: Some(Verdict::Succeeded),
                ..bare_receipt(approval, now)
            }))
        }
        Answer::Refuse => EffectEvent::Failed(failure(
            NOT_APPROVED,
            format!("{who} refused approval {}: {why}", approval.id),
            Some(source),
        )),
    })
}

/// Whether an entry about an approval can be an answer: one settles it.
#[must_use]
pub const fn is_answer(event: &EffectEvent) -> bool {
    matches!(event, EffectEvent::Confirmed(_) | EffectEvent::Failed(_))
}

/// How an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'a> {
    /// It can be answered.
    Open,
    /// A person granted it.
    Granted {
        /// Who.
        who: &'a str,
        /// Their reason.
        why: &'a str,
    },
    /// A person refused it.
    Refused {
        /// Who.
        who: &'a str,
        /// Their reason.
        why: &'a str,
    },
    /// Nobody answered in time.
    Expired,
    /// Nothing waits for it any more.
    Void,
}

/// How an approval stands at that instant; `None` when the effect is none.
#[must_use]
pub fn standing<'a>(approval: &'a Effect, now: Timestamp) -> Option<Standing<'a>> {
    let question = question(approval)?;
    let receipt = approval.receipt.as_ref().map(|receipt| &receipt.source);
    let failure = approval.failure.as_ref();
    let (who, why) = match receipt.or_else(|| failure.and_then(|failure| failure.source.as_ref())) {
        Some(Source::Operator { who, evidence }) => (who.as_str(), evidence.as_str()),
        _ => ("", ""),
    };
    Some(match (approval.state, failure.map(|failure| failure.code.as_str())) {
        (State::Confirmed, _) => Standing::Granted { who, why },
        (State::Failed, Some(VOID)) => Standing::Void,
        (State::Failed, Some(EXPIRED)) => Standing::Expired,
        (State::Failed, _) => Standing::Refused { who, why },
        _ if now >= question.expires_at => Standing::Expired,
        _ => Standing::Open,
    })
}

/// Why an approval is over that nobody answered.
#[must_use]
pub fn expired(approval: &Effect) -> Failure {
    let by = &approval.proposal.operation;
    failure(
        EXPIRED,
        format!("`{by}` did not answer approval {} before it expired", approval.id),
        None,
    )
}

/// Why an approval is over that nothing waits for any more.
#[must_use]
pub fn void(why: &str) -> Failure {
    failure(VOID, format!("nothing waits for it any more: {why}"), None)
}

fn failure(code: &str, message: String, source: Option<Source>) -> Failure {
    Failure {
        code: code.to_owned(),
        message,
        denied: true,
        source,
        rule: None,
        verdict: Some(Verdict::Rejected),
        detail: Value::Null,
    }
}

/// A failure of what was never sent.
fn unsent(failure: Failure) -> Failure {
    Failure { verdict: None, ..failure }
}
