//! `twice runs`

use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use twice_core::chain::Verifier;
use twice_core::ids::{Name, RunId};
use twice_core::limits::PAGE_MAX;
use twice_core::run::RunState;
use twice_ledger::{Ledger, RunFilter, RunRecord};

use super::exit::Exit;
use super::open::Place;
use super::out::Out;
use super::progress::Watch;
use super::run;
use super::term::Column;
use crate::engine::operator::Decision;
use crate::view::{EntryView, RunView};

/// List, show, resume and release runs.
#[derive(Debug, Subcommand)]
pub(super) enum Runs {
    /// List runs, newest first
    List(List),
    /// Show one run, its history, and whether its chain of entries holds
    Show(Show),
    /// Run a run on until it ends or waits
    Resume(Resume),
    /// Try a failed run again: what is confirmed stays, what failed is requested anew
    Retry(Decide),
    /// Let a halted or quarantined run go on
    Release(Decide),
}

/// List runs, newest first.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only runs in this state: ready, running, waiting, halted, completed, failed, quarantined
    #[arg(long)]
    state: Option<String>,
    /// Only runs of this workflow
    #[arg(long)]
    workflow: Option<String>,
    /// Only runs started before this one, for the next page
    #[arg(long, value_name = "RUN")]
    before: Option<String>,
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
    run: String,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Run a run on until it ends or waits.
#[derive(Debug, Args)]
pub(super) struct Resume {
    /// The run
    run: String,
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
    run: String,
    /// Why; recorded
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who decides (default: the user of this process)
    #[arg(long, env = "USER", value_name = "NAME")]
    by: Option<String>,
}

impl Runs {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.run(out, place).await,
            Self::Show(show) => show.run(out, place).await,
            Self::Resume(resume) => resume.run(out, place).await,
            Self::Retry(retry) => retry.retry(out, place).await,
            Self::Release(release) => release.release(out, place).await,
        }
    }
}

impl List {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger(&Arc::default()).await?;
        let state = match &self.state {
            None => None,
            Some(word) => match RunState::parse(word) {
                Some(state) => Some(state),
                None => bail!(
                    "there is no run state `{word}`\nfix: one of ready, running, waiting, halted, completed, failed, quarantined"
                ),
            },
        };
        let filter = RunFilter {
            state,
            workflow: self.workflow.clone().map(Name::parse).transpose()?,
            before: self.before.clone().map(RunId::parse).transpose()?,
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
        let rows: Vec<Vec<String>> = runs
            .iter()
            .map(|run| {
                vec![
                    run.run_id.clone(),
                    run.workflow.clone(),
                    run.state.clone(),
                    run.updated_at.clone(),
                    run.reason.clone().unwrap_or_default(),
                ]
            })
            .collect();
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

impl Show {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger(&Arc::default()).await?;
        let record = find(ledger.as_ref(), &self.run).await?;
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
        let run = RunView::of(&record);
        let chain = broken.as_ref().map_or_else(|| "holds".to_owned(), |b| format!("broken: {b}"));
        if self.json {
            out.json(&serde_json::json!({ "run": run, "chain": chain, "history": entries }));
        } else {
            print_run(out, &run, &entries, &chain);
        }
        Ok(if broken.is_some() { Exit::Error } else { Exit::Done })
    }
}

fn print_run(out: &Out, run: &RunView, entries: &[EntryView], chain: &str) {
    out.status_line(&format!("run {} of {}: ", run.run_id, run.workflow), &run.state, "");
    if let Some(reason) = &run.reason {
        out.line(&format!("  {reason}"));
    }
    out.line(&format!("  input   {}", run.input));
    if let Some(output) = &run.output {
        out.line(&format!("  output  {output}"));
    }
    out.line(&format!("  pinned  {}", run.definition));
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
        let engine = place.engine(Arc::new(Watch::new(out, self.json))).await?;
        let record = find(engine.ledger().as_ref(), &self.run).await?;
        let end = run::resume(&engine, out, &record, self.wait, self.json).await?;
        run::report(out, &record.id, &end, self.json);
        engine.ledger().close().await;
        Ok(Exit::of_run(&end))
    }
}

impl Decide {
    async fn retry(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(Arc::new(Watch::new(out, true))).await?;
        let id = find(engine.ledger().as_ref(), &self.run).await?.id;
        let renewed = engine.retry(&id, &self.decision()?).await?;
        out.line(&format!(
            "run {id} may be tried again; {renewed} failed effect(s) may be requested anew: `twice runs resume {id}`"
        ));
        engine.ledger().close().await;
        Ok(Exit::Done)
    }

    fn decision(&self) -> anyhow::Result<Decision> {
        if self.reason.trim().is_empty() {
            bail!("--reason is empty\nfix: say why; it is recorded for whoever audits this run");
        }
        let who = self.by.clone().unwrap_or_else(|| "unknown".to_owned());
        Ok(Decision { who, why: self.reason.clone() })
    }

    async fn release(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(Arc::new(Watch::new(out, true))).await?;
        let id = find(engine.ledger().as_ref(), &self.run).await?.id;
        engine.release(&id, &self.decision()?).await?;
        out.line(&format!("run {id} may go on: `twice runs resume {id}`"));
        engine.ledger().close().await;
        Ok(Exit::Done)
    }
}

async fn find(ledger: &dyn Ledger, id: &str) -> anyhow::Result<RunRecord> {
    let id = RunId::parse(id.to_owned())?;
    let found = ledger.run(&id).await?;
    found.ok_or_else(|| {
        anyhow!("there is no run `{id}` in this ledger\nfix: `twice runs list` shows them")
    })
}
