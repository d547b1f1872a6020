//! How a run ends that does not go on, as a step failed for good, its time is over, or it was cancelled: what it asked for is
//! settled, then what it did is undone, newest first. Nothing ends this but its own end: it has no time limit, and is not
//! cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use twice_core::effect::Effect;
use twice_core::event::{EffectEvent, EndCause, RunEvent};
use twice_core::ids::EffectId;
use twice_core::mutation;
use twice_core::progress::{Compensating, StepId};
use twice_core::saga::{self, Next, Settled, WayBack};
use twice_ledger::Recorded;
use twice_workflow::plan::{self, Undoable};

use super::EngineError;
use super::boundary::Boundary;
use super::drive;
use super::observer::Progress;
use super::resolve;
use super::session::Session;
use super::step::{self, StepContext};
use super::step_session::StepSession;
use super::steps::Steps;
use super::stop::Stop;

/// Most steps of one run that are settled, or effects that are undone, at once.
const AT_ONCE: usize = 32;

/// What comes of ending a run.
pub(super) enum Conclusion {
    /// It failed; what it did is undone.
    Failed(String),
    /// It was cancelled; what it did is undone.
    Cancelled(String),
    /// A person decides what becomes of it.
    Stuck(String),
    /// It waits, to go on ending then.
    Stopped(Stop),
    /// It has passed its point of no return, and can only go on.
    GoOn,
}

/// A run that does not go on.
pub(super) struct Ending<'s, 'e> {
    pub(super) steps: &'s mut Steps<'e>,
    pub(super) cause: EndCause,
    pub(super) why: String,
    /// Whether what waits for an instant is not to wait.
    pub(super) early: bool,
}

/// What came of undoing one effect.
enum Undone {
    Settled(Settled),
    /// It cannot be undone.
    Stuck(String),
    /// It is not known whether there is anything to undo.
    Held,
    Stopped(Stop),
}

/// What undoing came to.
#[derive(Default)]
struct Account {
    undone: usize,
    /// What a person said is settled by other means.
    by_person: usize,
    /// What happened, and nothing says how it is undone.
    stays: usize,
    /// What waits for something newer on its path.
    behind: usize,
    stuck: Vec<String>,
    persons: Vec<String>,
}

impl Ending<'_, '_> {
    /// Settles and undoes. To be called when no step is under way.
    ///
    /// # Errors
    /// [`EngineError`] when the executor itself cannot go on.
    pub(super) async fn conclude(mut self) -> Result<Conclusion, EngineError> {
        if let Some(conclusion) = self.look_at_pivot().await? {
            return Ok(conclusion);
        }
        let effects = self.steps.session.effects_of_run().await?;
        let unsettled = match self.settle(&effects).await? {
            Ok(persons) => persons,
            Err(wait) => return Ok(Conclusion::Stopped(wait)),
        };
        let mut account = Account { persons: unsettled, ..Account::default() };
        if self.steps.compiled.definition.workflow.undoes() {
            let settled = effects.iter().all(|recorded| recorded.effect.state.is_final());
            let effects = match settled {
                true => effects,
                false => self.steps.session.effects_of_run().await?,
            };
            if let Some(wait) = self.undo(&effects, &mut account).await? {
                return Ok(Conclusion::Stopped(wait));
            }
        }
        Ok(self.end(account))
    }

    /// Whether the run is behind its point of no return, where it can only go on.
    async fn look_at_pivot(&self) -> Result<Option<Conclusion>, EngineError> {
        let workflow = &self.steps.compiled.definition.workflow;
        let Some((node, slot)) = workflow.pivot() else { return Ok(None) };
        if mutation::is("undo-past-pivot") {
            return Ok(None);
        }
        let step = StepId { node: node.name.clone(), visit: 1, element: None };
        let session = &self.steps.session;
        let context = self.steps.context(&step)?;
        let stop = step::reconcile(Arc::clone(session), context, step.clone()).await?;
        let effects = session.effects_of(&step).await?;
        let way_back = saga::way_back(effects.iter().map(AsRef::as_ref), &slot.name);
        Ok(match (way_back, stop) {
            (WayBack::Closed(_), _) if self.cause != EndCause::Failed => Some(Conclusion::GoOn),
            (WayBack::Closed(pivot), _) => Some(Conclusion::Stuck(format!(
                "{}; it has passed its point of no return (effect {pivot}), so nothing is undone and it can only go on. Mend what it failed of, then `twice runs retry {} --reason 'WHY'`",
                self.why,
                session.id()
            ))),
            // Nothing may be undone while the way back may be closed.
            (WayBack::Doubtful(_), Some(stop)) => Some(Conclusion::Stopped(stop)),
            (WayBack::Doubtful(_), None) | (WayBack::Open, _) => None,
        })
    }

    /// Finds out what became of everything that was asked for, and calls off what was never sent. What only a person can find
    /// out, or an instant to wait for.
    async fn settle(&self, effects: &[Recorded]) -> Result<Result<Vec<String>, Stop>, EngineError> {
        let open = effects.iter().map(|recorded| &recorded.effect);
        let open = open.filter(|effect| !effect.state.is_final() && effect.proposal.is_of_node());
        let open: BTreeSet<StepId> = open.map(|effect| effect.proposal.step()).collect();
        let mut settling = Vec::new();
        for id in open {
            let context = self.steps.context(&id)?;
            settling.push(step::settle(Arc::clone(&self.steps.session), context, id));
        }
        let stops: Vec<Option<Stop>> =
            stream::iter(settling).buffered(AT_ONCE).try_collect().await?;
        let stops: Vec<Stop> = stops.into_iter().flatten().collect();
        let first = Stop::first(&stops);
        if let Some(wait @ Stop::Wait { .. }) = first
            && !mutation::is("undo-before-reconciled")
        {
            return Ok(Err(wait));
        }
        Ok(Ok(stops.into_iter().filter_map(Stop::person).collect()))
    }

    /// Undoes what is to be undone; an instant to wait for, if that is needed first.
    async fn undo(
        &mut self,
        effects: &[Recorded],
        account: &mut Account,
    ) -> Result<Option<Stop>, EngineError> {
        let session = Arc::clone(&self.steps.session);
        let undos = saga::undos(effects.iter().map(|recorded| &recorded.effect));
        let mut asked = Vec::new();
        for recorded in effects.iter().filter(|recorded| recorded.effect.proposal.is_of_node()) {
            let effect = &recorded.effect;
            let undos = undos.get(&effect.id).map_or(&[][..], Vec::as_slice);
            let resolved = is_resolved(&session, &effect.id);
            match saga::next(effect, undos, resolved, session.now()) {
                Next::Settled(Settled::NotHappened) => {}
                Next::Settled(Settled::Stays) => {
                    account.stays += usize::from(!effect.contract().read);
                }
                _ => asked.push(recorded),
            }
        }
        if asked.iter().all(|recorded| recorded.effect.proposal.compensation.is_none()) {
            return Ok(None);
        }
        self.begin();
        let compiled = Arc::clone(&self.steps.compiled);
        let (workflow, graph) = (&compiled.definition.workflow, &compiled.graph);
        let undoables: Vec<Undoable> = asked
            .iter()
            .map(|recorded| Undoable {
                step: recorded.effect.proposal.step(),
                order: u64::try_from(recorded.seq).unwrap_or(u64::MAX),
            })
            .collect();
        let mut groups = plan::compensation_order(workflow, graph, &undoables);
        if mutation::is("undo-oldest-first") {
            groups.reverse();
        }
        // The steps of newer effects that are not undone: what they may rest on stays until they are.
        let mut blocking: Vec<StepId> = Vec::new();
        for group in groups {
            let mut tasks = Vec::new();
            for place in group {
                let step = &undoables[place].step;
                let rests = blocking.iter().any(|newer| plan::rests_on(graph, newer, step));
                if rests && !mutation::is("undo-past-blocked") {
                    account.behind += 1;
                    blocking.push(step.clone());
                    continue;
                }
                let context = self.steps.context(step)?;
                let element = self.steps.element_behind(step).await?;
                let own = context.session(Arc::clone(&session), step.clone(), element);
                let id = asked[place].effect.id.clone();
                tasks.push(undo_one(own, context, id, self.early));
            }
            let ends: Vec<(StepId, Undone)> =
                stream::iter(tasks).buffered(AT_ONCE).try_collect().await?;
            let mut waits = Vec::new();
            for (step, end) in ends {
                match end {
                    Undone::Settled(Settled::Undone) => account.undone += 1,
                    Undone::Settled(Settled::ByPerson) => account.by_person += 1,
                    Undone::Settled(Settled::Stays | Settled::NotHappened) => {}
                    Undone::Stopped(wait @ Stop::Wait { .. }) => waits.push(wait),
                    Undone::Stopped(Stop::Person { why }) => {
                        account.persons.push(why);
                        blocking.push(step);
                    }
                    // What is not known is told of already.
                    Undone::Held => blocking.push(step),
                    Undone::Stuck(why) => {
                        account.stuck.push(why);
                        blocking.push(step);
                    }
                }
            }
            if let Some(wait) = Stop::first(&waits) {
                return Ok(Some(wait));
            }
        }
        Ok(None)
    }

    /// Records that there is no way on, once.
    fn begin(&self) {
        let session = &self.steps.session;
        if session.progress(|progress| progress.compensating.is_some()) {
            return;
        }
        let (cause, why) = (self.cause, self.why.clone());
        session.observe(&Progress::Compensating { why: &why });
        if mutation::is("forget-compensating") {
            return;
        }
        session.record_run(RunEvent::Compensating { cause, why });
    }

    fn end(self, account: Account) -> Conclusion {
        let Account { undone, by_person, stays, behind, stuck, persons } = account;
        let run = self.steps.session.id();
        let behind = match behind {
            0 => String::new(),
            behind => format!("; {behind} more on the way back wait for it"),
        };
        if !stuck.is_empty() && !mutation::is("stuck-is-failed") {
            let persons: String = persons.iter().map(|why| format!("; {why}")).collect();
            return Conclusion::Stuck(format!(
                "{}; {}{persons}{behind}. Have it tried again with `twice runs release {run} --reason 'WHY'`, or say that it is settled otherwise with `twice runs resolve {run} --reason 'EVIDENCE'`",
                self.why,
                stuck.join("; ")
            ));
        }
        if !persons.is_empty() {
            let why = format!("{}{behind}", persons.join("; "));
            return Conclusion::Stopped(Stop::Person { why });
        }
        let mut why = self.why;
        if undone + by_person > 0 {
            why.push_str(&format!("; {undone} effect(s) undone"));
            if by_person > 0 {
                why.push_str(&format!(", {by_person} settled by a person"));
            }
            if stays > 0 {
                why.push_str(&format!(", {stays} left as nothing says how to undo them"));
            }
        }
        match self.cause {
            EndCause::Cancelled => Conclusion::Cancelled(why),
            EndCause::Failed | EndCause::TimedOut => Conclusion::Failed(why),
        }
    }
}

/// Why and with what cause a run that is being undone ends.
pub(super) fn of_record(compensating: &Compensating) -> (EndCause, String) {
    (compensating.cause, compensating.why.clone())
}

/// Whether a person said that nothing is left to undo of an effect.
fn is_resolved(session: &Session, id: &EffectId) -> bool {
    session.progress(|progress| progress.undo_resolved.contains(id))
}

/// Undoes one effect, as far as that can be done now.
async fn undo_one(
    mut session: StepSession,
    context: StepContext,
    id: EffectId,
    mut early: bool,
) -> Result<(StepId, Undone), EngineError> {
    step::load(&mut session).await?;
    let end = loop {
        let Some(effect) = session.effect(&id) else { break Undone::Settled(Settled::NotHappened) };
        let resolved = is_resolved(&session, &id);
        let undos = saga::undos(session.all_effects()).remove(&id).unwrap_or_default();
        let latest = undos.last().map(|undo| undo.id.clone());
        let attempt = match saga::next(effect, &undos, resolved, session.now()) {
            Next::Settled(settled) => break Undone::Settled(settled),
            Next::Held => break Undone::Held,
            Next::Stuck { why } => break Undone::Stuck(why),
            // Whoever is early skips one wait after a refusal, and never that for what may still happen.
            Next::Wait { .. } if !undos.is_empty() && std::mem::take(&mut early) => {
                undos.len() as u32 + 1
            }
            Next::Wait { until, why } => break Undone::Stopped(Stop::Wait { until, why }),
            Next::Drive => {
                let Some(latest) = latest else { break Undone::Held };
                let stop = drive::drive(&mut session, &context, &[latest]).await?;
                match stop {
                    Some(stop) => break Undone::Stopped(stop),
                    None => continue,
                }
            }
            Next::Propose { attempt } => attempt,
        };
        session.boundaries.pass(Boundary::BeforeIntent);
        match propose(&session, effect, &context, attempt) {
            Ok((undo, event)) => session.record(&undo, event)?,
            Err(why) => break Undone::Stuck(why),
        }
    };
    Ok((session.step.clone(), end))
}

fn propose(
    session: &StepSession,
    effect: &Effect,
    context: &StepContext,
    attempt: u32,
) -> Result<(EffectId, EffectEvent), String> {
    let stuck = |problem: String| {
        format!(
            "effect {} ({}) happened and cannot be undone: {problem}",
            effect.id, effect.proposal.idempotency_key
        )
    };
    let slot = context.slot_of(effect).and_then(|slot| slot.undo.as_deref());
    let (Some(compensation), Some(undo)) = (&effect.proposal.compensation, slot) else {
        return Err(stuck("the pinned definition does not say how".to_owned()));
    };
    let state = || session.state();
    let proposal =
        resolve::propose_undo(effect, compensation, undo, attempt, state).map_err(stuck)?;
    if context.drivers().holds_secret(&proposal.args) {
        return Err(stuck("the args of its compensation hold the value of a secret".to_owned()));
    }
    Ok((resolve::effect_id(&proposal), EffectEvent::Proposed(proposal)))
}
