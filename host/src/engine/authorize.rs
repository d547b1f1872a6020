//! Whether an effect may be sent: by its slot's policy, and by a person's approval where the workflow wants one.

use serde_json::json;
use twice_core::approval::{self, Next};
use twice_core::effect::Effect;
use twice_core::event::{Authorization, EffectEvent, Failure};
use twice_core::ids::EffectId;

use super::compiled::{CompiledSlot, Permission};
use super::error::EngineError;
use super::step_session::StepSession;
use super::stop::{NEEDS_PERSON, Stop};

/// What came of it.
pub(super) enum Authorized {
    /// It may be sent, or it never will; that is recorded.
    Decided,
    /// A person was asked, which is recorded; ask again.
    Asked,
    /// Nobody has answered yet.
    Waits(Stop),
}

/// Decides about an effect that is PROPOSED. The policy is asked each time, as what was permitted before a wait may not be any more.
///
/// # Errors
/// [`EngineError::History`].
pub(super) fn authorize(
    session: &mut StepSession,
    slot: &CompiledSlot,
    id: &EffectId,
) -> Result<Authorized, EngineError> {
    let Some(effect) = session.effect(id) else { return Ok(Authorized::Decided) };
    let request_hash = effect.proposal.request_hash.clone();
    let (args, object) = (&effect.proposal.args, &effect.proposal.identity.object);
    let policy = match slot.permission(args, object.as_deref(), || session.state()) {
        Permission::Permitted(policy) => policy,
        Permission::Refused { policy, message } => {
            let denied = EffectEvent::Failed(Failure {
                code: "denied".to_owned(),
                message,
                denied: true,
                source: None,
                rule: None,
                verdict: None,
                detail: json!({ "policy": policy }),
            });
            session.record(id, denied)?;
            return Ok(Authorized::Decided);
        }
    };
    let asked = approval::id_of(&effect.proposal);
    let now = session.now();
    match approval::next(effect, session.effect(&asked), now) {
        Next::Permitted(approval) => {
            let given = Authorization { policy, request_hash, approval };
            session.record(id, EffectEvent::Authorized(given))?;
        }
        Next::Refused(failure) => session.record(id, EffectEvent::Failed(failure))?,
        Next::Wait { until, why } => {
            let why = format!("{NEEDS_PERSON}: {why}");
            session.awaits.answer(asked, session.step.clone());
            return Ok(Authorized::Waits(Stop::Wait { until, why }));
        }
        Next::Expire => {
            if let Some(expired) = session.effect(&asked).map(approval::expired) {
                session.record(&asked, EffectEvent::Failed(expired))?;
            }
        }
        Next::Ask(required) => {
            let events = approval::ask(effect, &required, now);
            void(session, "other args are asked for now", |of, _| of == id)?;
            for event in events {
                session.record(&asked, event)?;
            }
            return Ok(Authorized::Asked);
        }
    }
    Ok(Authorized::Decided)
}

/// Why an effect that was authorized is not sent any more: the grant under which it was expired before it was used.
pub(super) fn lapsed(session: &StepSession, effect: &Effect) -> Option<Failure> {
    let approval = effect.authorization.as_ref()?.approval.as_ref()?;
    approval::lapsed(effect, session.effect(approval)?, session.now())
}

/// Calls off what a person is asked about effects that are settled, or were never taken up.
///
/// # Errors
/// [`EngineError::History`].
pub(super) fn void_approvals(session: &mut StepSession) -> Result<(), EngineError> {
    void(session, "what it was for is settled", |of, session| {
        session.effect(of).is_none_or(|effect| effect.state.is_final())
    })
}

fn void(
    session: &mut StepSession,
    why: &str,
    is_void: impl Fn(&EffectId, &StepSession) -> bool,
) -> Result<(), EngineError> {
    let open = session.all_effects().filter(|effect| !effect.state.is_final());
    let open = open
        .filter(|effect| effect.proposal.approves.as_ref().is_some_and(|of| is_void(of, session)));
    let open: Vec<EffectId> = open.map(|effect| effect.id.clone()).collect();
    for id in open {
        session.record(&id, EffectEvent::Failed(approval::void(why)))?;
    }
    Ok(())
}
