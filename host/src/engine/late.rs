//! Requests that outlive whoever made them, and answers that come too late. Each request is a task of its own: the guest's
//! time limit, the loss of the lease or an error of the executor end the waiting, not the request. Its answer is then kept
//! in the ledger as an observation, which changes nothing: the effect is UNKNOWN, and reconciliation or a person decides.
//!
//! The same happens to answers that were taken in and could not be written, as the worker had lost its run by then.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use twice_core::effect::Attempt;
use twice_core::event::Observation;
use twice_core::ids::{EffectId, RunId};
use twice_core::outcome::{self, Exchange, Fault, FaultKind, Sent};
use twice_core::time::Clock;
use twice_ledger::{Ledger, LedgerError};

use super::step::StepContext;
use crate::tool::AnyRequest;
use crate::tool::gate::{Gate, Keeper};

/// What an observation is called whose request outlived the step that made it.
const LATE_ANSWER: &str = "late answer";

/// Keeps what arrives too late, and knows what is still under way.
pub(super) struct Late {
    ledger: Arc<dyn Ledger>,
    clock: Arc<dyn Clock>,
    under_way: watch::Sender<usize>,
}

/// A request that was made.
pub(super) struct Request {
    /// The run that made it.
    pub(super) run: RunId,
    /// The effect.
    pub(super) effect: EffectId,
    /// Which attempt.
    pub(super) attempt: u32,
    /// The step that made it.
    pub(super) context: StepContext,
}

/// Counts as something under way for as long as it is there.
pub(super) struct UnderWay(Arc<Late>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

impl Late {
    /// Nothing is under way.
    pub(super) fn new(ledger: Arc<dyn Ledger>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { ledger, clock, under_way: watch::Sender::new(0) })
    }

    /// Something more is under way.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.send_modify(|count| *count += 1);
        UnderWay(Arc::clone(self))
    }

    /// Whether anything is under way.
    pub(super) fn is_busy(&self) -> bool {
        *self.under_way.borrow() > 0
    }

    /// Returns when nothing is under way any more.
    pub(super) async fn settled(&self) {
        let mut under_way = self.under_way.subscribe();
        // It cannot be closed while `self` is there.
        let _ = under_way.wait_for(|count| *count == 0).await;
    }

    /// Sends a request, as a task of its own. It begins to leave before `before` and while its answer is waited for, or
    /// never.
    pub(super) fn send(
        self: &Arc<Self>,
        request: Request,
        prepared: AnyRequest,
        before: Instant,
    ) -> Awaited {
        let (gate, keeper) = Gate::kept(before);
        let (waiting, answer) = oneshot::channel();
        let request = Arc::new(request);
        let made = Arc::clone(&request);
        let under_way = self.begin();
        let task = tokio::spawn(async move {
            let exchange = made.context.drivers().send(prepared, gate).await;
            if let Err((exchange, under_way)) = waiting.send((exchange, under_way)) {
                under_way.0.take_in(&made, exchange).await;
            }
        });
        Awaited { answer, task, _keeper: keeper, request }
    }

    /// Judges an answer that nobody waits for, as it would have been judged in time, and keeps it.
    async fn take_in(&self, request: &Request, exchange: Exchange) {
        let Request { run, effect: id, attempt, context } = request;
        let effect = match self.ledger.effect(id).await {
            Ok(Some(effect)) => effect,
            Ok(None) => return,
            Err(problem) => return lost(run, id, LATE_ANSWER, None, &problem),
        };
        let Some(slot) = context.slot_of(&effect) else { return };
        let clean = !effect.attempts.iter().any(|a: &Attempt| a.number != *attempt && a.in_doubt());
        let Some((_, operation)) = slot.operation() else { return };
        let declared = &operation.declarations;
        let outcome = outcome::classify(&exchange, declared, &effect.proposal.args, clean);
        if outcome.contract_breach && !effect.state.is_final() {
            context.circuits().trip(slot.operation_name(), id.clone(), self.clock.now());
        }
        if let Some(seen) = outcome::observe(LATE_ANSWER, *attempt, &exchange, &outcome) {
            self.keep(run, id, seen).await;
        }
    }

    async fn keep(&self, run: &RunId, effect: &EffectId, seen: Observation) {
        // Whoever reads the log may still make something of it.
        let told = format!("{}: {}", seen.what, seen.message.as_deref().unwrap_or_default());
        let id = seen.external_id.clone();
        if let Err(problem) = self.ledger.observe(run, effect, seen, self.clock.now()).await {
            lost(run, effect, &told, id, &problem);
        }
    }
}

fn lost(
    run: &RunId,
    effect: &EffectId,
    told: &str,
    external_id: Option<String>,
    problem: &LedgerError,
) {
    tracing::warn!(%run, %effect, told, external_id, %problem, "what arrived could not be kept");
}

/// Goes on by itself, after the caller is gone.
fn go_on(under_way: UnderWay, work: impl Future<Output = ()> + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(async move {
            work.await;
            drop(under_way);
        })),
        Err(_) => tracing::warn!("an answer is lost, as the process is ending"),
    }
}

/// The answer to a request that goes on whether anybody waits for it or not. Dropping this ends the waiting: a request
/// that did not begin to leave never does then.
pub(super) struct Awaited {
    answer: oneshot::Receiver<(Exchange, UnderWay)>,
    task: JoinHandle<()>,
    _keeper: Keeper,
    request: Arc<Request>,
}

impl Awaited {
    /// The answer.
    ///
    /// # Panics
    /// When the driver does.
    pub(super) async fn wait(mut self) -> Exchange {
        if let Ok((exchange, _under_way)) = (&mut self.answer).await {
            return exchange;
        }
        if let Err(ended) = (&mut self.task).await
            && ended.is_panic()
        {
            std::panic::resume_unwind(ended.into_panic());
        }
        let message = "the request's task ended without an answer".to_owned();
        let fault = Fault { kind: FaultKind::Other, status: None, message };
        Exchange { sent: Sent::Maybe, result: Err(fault) }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        // Between the last look and now it may have come.
        self.answer.close();
        if let Ok((exchange, under_way)) = self.answer.try_recv() {
            let (late, request) = (Arc::clone(&under_way.0), Arc::clone(&self.request));
            go_on(under_way, async move { late.take_in(&request, exchange).await });
        }
    }
}

/// What a session has learnt and not written yet. Dropping it without [`Learnt::written`] keeps it as observations.
pub(super) struct Learnt {
    late: Arc<Late>,
    run: RunId,
    seen: Vec<(EffectId, Observation)>,
}

impl Learnt {
    /// Nothing.
    pub(super) const fn new(late: Arc<Late>, run: RunId) -> Self {
        Self { late, run, seen: Vec::new() }
    }

    /// Takes in what an answer told.
    pub(super) fn add(&mut self, effect: EffectId, seen: Option<Observation>) {
        self.seen.extend(seen.map(|seen| (effect, seen)));
    }

    /// What was learnt so far, to be written now; nothing is left here.
    pub(super) fn take(&mut self) -> Self {
        let seen = std::mem::take(&mut self.seen);
        Self { late: Arc::clone(&self.late), run: self.run.clone(), seen }
    }

    /// It is in the ledger, as what it is.
    pub(super) fn written(mut self) {
        self.seen.clear();
    }
}

impl Drop for Learnt {
    fn drop(&mut self) {
        // What a panic leaves behind is not trusted: it ends as a crash does.
        if self.seen.is_empty() || std::thread::panicking() {
            return;
        }
        let (late, run) = (Arc::clone(&self.late), self.run.clone());
        let seen = std::mem::take(&mut self.seen);
        go_on(self.late.begin(), async move {
            for (effect, seen) in seen {
                late.keep(&run, &effect, seen).await;
            }
        });
    }
}
