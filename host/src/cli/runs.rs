//! `twice runs`

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use twice_core::chain::Verifier;
use twice_core::event::EffectEventKind;
use twice_core::ids::{EffectId, Name, RunId};
use twice_core::limits::PAGE_MAX;
use twice_core::run::RunState;
use twice_ledger::{Ledger, LedgerError, RunFilter, RunRecord, progress_of};

use super::decider::Decider;
use super::effects;
use super::exit::Exit;
use super::given;
use super::open::{self, Place};
use super::out::Out;
use super::progress::Watch;
use super::prune;
use super::run;
use super::term::{Column, shortened};
use crate::engine::operator::Decision;
use crate::engine::retry::Evidence;
use crate::engine::{Engine, RunEnd};
use crate::view::{ChildView, EntryView, RunView, StepView};

/// Least of a reason that is shown, however narrow the terminal. Characters.
const REASON_MIN: usize = 20;
/// What becomes of a request to cancel a run that a worker holds.
const HEARD: &str = "whoever holds it asks for nothing new, and hears of it with that or within a third of its lease";
/// Why a run was completed whose cancellation was asked for.
const NOT_CANCELLED: &str = "it had passed its point of no return, behind which it can only go on";
/// Length of the longest title of a column in the listing. Characters.
const TITLE_MAX: usize = 8;

/// List, show, resume, cancel and release runs.
#[derive(Debug, Subcommand)]
pub(super) enum Runs {
    /// List runs, newest first
    List(List),
    /// Show one run, its history, and whether its chain of entries holds
    Show(Show),
    /// Run a run on until it ends or waits
    Resume(Resume),
    /// Try a failed run again: what is confirmed stays, what failed is requested anew
    Retry(Again),
    /// Let a halted, stuck or quarantined run go on; a stuck one tries again to undo what it could not
    Release(Again),
    /// Cancel a run: nothing new is asked for, and what it did is undone
    Cancel(Cancel),
    /// Say that what a stuck run could not undo is settled by other means
    Resolve(Resolve),
    /// Export runs that are over, and remove them from the ledger
    Prune(prune::PruneRuns),
    /// Check an export by itself, without a ledger
    VerifyExport(prune::VerifyExport),
}

/// List runs, newest first.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only runs in this state: ready, running, waiting, halted, completed, failed, cancelled, stuck, quarantined
    #[arg(long, value_parser = given::run_state)]
    state: Option<RunState>,
    /// Only runs of this workflow
    #[arg(long, value_parser = given::name)]
    workflow: Option<Name>,
    /// Only runs that this run started
    #[arg(long, value_name = "RUN", value_parser = given::run_id)]
    parent: Option<RunId>,
    /// Only runs started before this one, for the next page
    #[arg(long, value_name = "RUN", value_parser = given::run_id)]
    before: Option<RunId>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Show one run, its history, and whether its chain of entries holds.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The run
    #[arg(value_parser = given::run_id)]
    run: RunId,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Run a run on until it ends or waits.
#[derive(Debug, Args)]
pub(super) struct Resume {
    /// The run
    #[arg(value_parser = given::run_id)]
    run: RunId,
    /// How long to stay with a run that waits for an instant
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A decision about a run.
#[derive(Debug, Args)]
pub(super) struct Decide {
    /// The run
    #[arg(value_parser = given::run_id)]
    run: RunId,
    /// Why; recorded
    #[arg(long, value_name = "TEXT", value_parser = given::reason)]
    reason: String,
    #[command(flatten)]
    decider: Decider,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Have what failed tried again.
#[derive(Debug, Args)]
pub(super) struct Again {
    #[command(flatten)]
    decide: Decide,
    /// Also what happened after all by what came since it failed: you know that it did not
    #[arg(long)]
    despite_evidence: bool,
}

/// Cancel a run.
#[derive(Debug, Args)]
pub(super) struct Cancel {
    #[command(flatten)]
    decide: Decide,
    /// How long to stay with the run until it is cancelled
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    /// Only ask; a worker does it
    #[arg(long)]
    detach: bool,
}

/// Say that what a stuck run could not undo is settled.
#[derive(Debug, Args)]
pub(super) struct Resolve {
    #[command(flatten)]
    decide: Decide,
    /// Only this effect, the one that could not be undone (default: all that the run is stuck at)
    #[arg(long, value_name = "EFFECT", value_parser = given::effect)]
    effect: Option<String>,
}

impl Runs {
    pub(super) const fn prints_json(&self) -> bool {
        match self {
            Self::List(command) => command.json,
            Self::Show(command) => command.json,
            Self::Resume(command) => command.json,
            Self::Retry(command) | Self::Release(command) => command.decide.json,
            Self::Cancel(command) => command.decide.json,
            Self::Resolve(command) => command.decide.json,
            Self::Prune(command) => command.json,
            Self::VerifyExport(command) => command.json,
        }
    }

    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.run(out, place).await,
            Self::Show(show) => show.run(out, place).await,
            Self::Resume(resume) => resume.run(out, place).await,
            Self::Retry(retry) => retry.retry(out, place).await,
            Self::Release(release) => release.release(out, place).await,
            Self::Cancel(cancel) => cancel.run(out, place).await,
            Self::Resolve(resolve) => resolve.run(out, place).await,
            Self::Prune(prune) => prune.run(out, place).await,
            Self::VerifyExport(verify) => verify.run(out),
        }
    }
}

impl List {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger().await?;
        let filter = RunFilter {
            state: self.state,
            workflow: self.workflow.clone(),
            parent: self.parent.clone(),
            open: false,
            before: self.before.clone(),
            limit: self.limit.clamp(1, PAGE_MAX),
        };
        let runs: Vec<RunView> = ledger.runs(&filter).await?.iter().map(RunView::of).collect();
        if self.json {
            out.json(&runs);
            return Ok(Exit::Done);
        }
        if runs.is_empty() {
            out.line("no runs; start one with `twice run WORKFLOW --input FILE`");
            return Ok(Exit::Done);
        }
        let mut rows: Vec<Vec<String>> = runs
            .iter()
            .map(|run| {
                vec![
                    run.run_id.clone(),
                    run.workflow.clone(),
                    run.state.clone(),
                    run.updated_at.clone(),
                ]
            })
            .collect();
        let left = out.width().map_or(usize::MAX, |width| width.saturating_sub(taken(&rows)));
        for (row, run) in rows.iter_mut().zip(&runs) {
            row.push(shortened(run.reason.as_deref().unwrap_or_default(), left.max(REASON_MIN)));
        }
        let columns = [
            Column::id("run"),
            Column::text("workflow"),
            Column::status("state"),
            Column::text("updated"),
            Column::text("reason"),
        ];
        out.table(&columns, &rows);
        Ok(Exit::Done)
    }
}

/// How many columns of the terminal a table takes up with these rows, the space behind each cell included.
fn taken(rows: &[Vec<String>]) -> usize {
    let cells = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |cell: usize| rows.iter().map(|row| row[cell].chars().count()).max();
    (0..cells).filter_map(widest).map(|width| width.max(TITLE_MAX) + 2).sum()
}

impl Show {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger().await?;
        if ledger.run(&self.run).await?.is_none()
            && let Some(tombstone) = ledger.tombstone(&self.run).await?
        {
            prune::show(out, &tombstone, self.json);
            return Ok(Exit::Done);
        }
        let mut record = find(ledger.as_ref(), &self.run).await?;
        record.progress = progress_of(ledger.as_ref(), &record).await?;
        let mut entries = Vec::new();
        let mut verifier = Verifier::new(&record.id);
        let mut broken = None;
        loop {
            let after = entries.last().map_or(0, |entry: &EntryView| entry.seq);
            let page = ledger.history(&record.id, after, PAGE_MAX).await?;
            for entry in &page {
                if broken.is_none() {
                    broken = verifier.push(entry).err();
                }
                entries.push(EntryView::of(entry));
            }
            if page.len() < PAGE_MAX as usize {
                break;
            }
        }
        let children = children(ledger.as_ref(), &record.id).await?;
        let mut run = RunView::of(&record);
        in_order(&mut run.steps, &entries);
        let chain = broken.as_ref().map_or_else(|| "holds".to_owned(), |b| format!("broken: {b}"));
        if self.json {
            out.json(&serde_json::json!({
                "run": run, "children": children, "chain": chain, "history": entries,
            }));
        } else {
            print_run(out, &run, &children, &entries, &chain);
        }
        Ok(if broken.is_some() { Exit::Error } else { Exit::Done })
    }
}

/// Puts nodes in the order in which the run came to them: that of the first entry that is about each.
fn in_order(steps: &mut [StepView], entries: &[EntryView]) {
    let mut first: HashMap<&str, i64> = HashMap::new();
    for entry in entries {
        if let Some(node) = entry.body["data"]["node"].as_str() {
            first.entry(node).or_insert(entry.seq);
        }
    }
    steps.sort_by_key(|step| first.get(step.node.as_str()).copied().unwrap_or(i64::MAX));
}

/// The runs that a run started, oldest first.
async fn children(ledger: &dyn Ledger, run: &RunId) -> anyhow::Result<Vec<ChildView>> {
    let mut filter =
        RunFilter { parent: Some(run.clone()), limit: PAGE_MAX, ..RunFilter::default() };
    let mut found = Vec::new();
    loop {
        let page = ledger.runs(&filter).await?;
        found.extend(page.iter().map(ChildView::of));
        filter.before = page.last().map(|last| last.id.clone());
        if page.len() < PAGE_MAX as usize {
            found.reverse();
            return Ok(found);
        }
    }
}

fn print_run(out: &Out, run: &RunView, children: &[ChildView], entries: &[EntryView], chain: &str) {
    out.status_line(&format!("run {} of {}: ", run.run_id, run.workflow), &run.state, "");
    if let Some(reason) = &run.reason {
        out.line(&format!("  {reason}"));
    }
    if let Some(cancel) = &run.cancel {
        out.line(&format!("  cancel  asked for by {}: {}", cancel.who, cancel.why));
        if run.state == RunState::Completed.as_str() {
            out.line(&format!("          not cancelled: {NOT_CANCELLED}"));
        }
    }
    if let Some(compensating) = &run.compensating {
        out.line(&format!("  undone  as {}: {}", compensating.cause, compensating.why));
    }
    if run.priority != 0 {
        out.line(&format!("  priority {}", run.priority));
    }
    out.line(&format!("  input   {}", run.input));
    if let Some(output) = &run.output {
        out.line(&format!("  output  {output}"));
    }
    out.line(&format!("  pinned  {}", run.definition));
    if let Some(parent) = &run.parent {
        out.line(&format!("  parent  {} (effect {})", parent.run_id, parent.effect_id));
    }
    for child in children {
        let reason = child.reason.as_ref().map_or_else(String::new, |why| format!(", {why}"));
        let ChildView { run_id, workflow, state, .. } = child;
        out.line(&format!("  child   {run_id} of {workflow}: {state}{reason}"));
    }
    for step in &run.steps {
        let visit = if step.visit > 1 { format!(" (visit {})", step.visit) } else { String::new() };
        let of = step.elements_done.zip(step.elements);
        let of = of.map_or_else(String::new, |(done, all)| format!(", {done} of {all} elements"));
        out.line(&format!("  step    {}{visit}: {}{of}", step.node, step.state));
    }
    for entry in entries.iter().filter(|entry| entry.kind == EffectEventKind::Observed.as_str()) {
        let effect = entry.effect_id.as_deref().map_or("", |id| &id[..12]);
        let data = &entry.body["data"];
        let says = data["message"].as_str().or(data["what"].as_str()).unwrap_or_default();
        out.line(&format!("  evidence {effect}: {says}; not applied"));
    }
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            vec![
                entry.seq.to_string(),
                entry.at.clone(),
                entry.fence.to_string(),
                entry.kind.clone(),
                entry.effect_id.clone().map_or_else(String::new, |id| id[..12].to_owned()),
            ]
        })
        .collect();
    let columns = [
        Column::id("seq"),
        Column::text("at"),
        Column::text("fence"),
        Column::text("entry"),
        Column::id("effect"),
    ];
    out.table(&columns, &rows);
    out.line(&format!("chain {chain} ({} entries)", entries.len()));
}

impl Resume {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine =
            place.engine(place.ledger().await?, Arc::new(Watch::new(out, self.json))).await?;
        let done = self.resume_on(&engine, out).await;
        open::take_leave(&engine, out).await;
        done
    }

    async fn resume_on(&self, engine: &Engine, out: &Out) -> anyhow::Result<Exit> {
        let record = find(engine.ledger().as_ref(), &self.run).await?;
        let going = run::resume(engine, out, &record, self.wait, self.json);
        let ended = run::unless_interrupted(engine, out, &record.id, self.json, going).await?;
        let Some(end) = ended else { return Ok(Exit::Interrupted) };
        run::report(out, &record.id, &end, self.json);
        Ok(Exit::of_run(&end))
    }
}

impl Again {
    const fn evidence(&self) -> Evidence {
        if self.despite_evidence { Evidence::Overruled } else { Evidence::Heeded }
    }

    async fn retry(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let id = find(engine.ledger().as_ref(), &self.decide.run).await?.id;
        let renewed = engine.retry(&id, self.evidence(), &self.decide.decision()).await?;
        engine.ledger().close().await;
        if self.decide.json {
            out.json(&serde_json::json!({ "run_id": id.as_str(), "renewed_effects": renewed }));
            return Ok(Exit::Done);
        }
        out.line(&format!(
            "run {id} may be tried again, with the components and files that it was started with; {renewed} failed effect(s) may be requested anew: `twice runs resume {id}`"
        ));
        Ok(Exit::Done)
    }

    async fn release(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let id = find(engine.ledger().as_ref(), &self.decide.run).await?.id;
        engine.release(&id, self.evidence(), &self.decide.decision()).await?;
        engine.ledger().close().await;
        if self.decide.json {
            out.json(&serde_json::json!({ "run_id": id.as_str(), "released": true }));
            return Ok(Exit::Done);
        }
        out.line(&format!("run {id} may go on: `twice runs resume {id}`"));
        Ok(Exit::Done)
    }
}

impl Decide {
    fn decision(&self) -> Decision {
        self.decider.decision(&self.reason)
    }
}

impl Cancel {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let watch = Arc::new(Watch::new(out, self.decide.json));
        let engine = place.engine(place.ledger().await?, watch).await?;
        let done = self.cancel(&engine, out).await;
        open::take_leave(&engine, out).await;
        done
    }

    async fn cancel(&self, engine: &Engine, out: &Out) -> anyhow::Result<Exit> {
        let id = find(engine.ledger().as_ref(), &self.decide.run).await?.id;
        let record = engine.cancel(&id, &self.decide.decision()).await?;
        if self.detach {
            if self.decide.json {
                let state = record.state.as_str();
                out.json(&serde_json::json!({ "run_id": id.as_str(), "state": state, "cancel_requested": true }));
            } else {
                out.line(&format!("the cancellation of run {id} is on record; {HEARD}"));
            }
            return Ok(Exit::Done);
        }
        let as_json = self.decide.json;
        if record.lease_live && !as_json {
            out.line(&format!("the cancellation of run {id} is on record; {HEARD}"));
        }
        let going = run::resume(engine, out, &record, self.wait, as_json || record.lease_live);
        let ended = run::unless_interrupted(engine, out, &id, as_json, going).await?;
        let Some(end) = ended else { return Ok(Exit::Interrupted) };
        if end == RunEnd::Elsewhere && !as_json {
            out.line(&format!(
                "a worker still holds run {id}: see how it ends with `twice runs show {id}`"
            ));
        } else {
            run::report(out, &id, &end, as_json);
        }
        Ok(match end {
            RunEnd::Cancelled { .. } => Exit::Done,
            // It is not completed once its cancellation is on record, but behind its point of no return.
            RunEnd::Completed(_) => {
                out.warn(&format!("run {id} was not cancelled: {NOT_CANCELLED}"));
                Exit::Error
            }
            end => Exit::of_run(&end),
        })
    }
}

impl Resolve {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let id = find(engine.ledger().as_ref(), &self.decide.run).await?.id;
        let decision = self.decide.decision();
        let named = match &self.effect {
            Some(given) => Some(effects::find(engine.ledger().as_ref(), given).await?.id),
            None => None,
        };
        let resolved = engine.resolve_undo(&id, named.as_ref(), &decision).await?;
        engine.ledger().close().await;
        let effects: Vec<&str> = resolved.iter().map(EffectId::as_str).collect();
        if self.decide.json {
            out.json(&serde_json::json!({ "run_id": id.as_str(), "resolved_effects": effects }));
            return Ok(Exit::Done);
        }
        out.line(&format!(
            "settled: {}\nrun {id} goes on with its way back: `twice runs resume {id}`",
            effects.join(", ")
        ));
        Ok(Exit::Done)
    }
}

/// The run of that id.
///
/// # Errors
/// When there is none, with how to find it.
pub(super) async fn find(ledger: &dyn Ledger, id: &RunId) -> anyhow::Result<RunRecord> {
    if let Some(found) = ledger.run(id).await? {
        return Ok(found);
    }
    if let Some(tombstone) = ledger.tombstone(id).await? {
        return Err(LedgerError::Pruned { tombstone: Box::new(tombstone) }.into());
    }
    Err(anyhow!("there is no run `{id}` in this ledger\nfix: `twice runs list` shows them"))
}
