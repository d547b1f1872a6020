//! `twice worker`

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use tokio::sync::watch;
use twice_core::ids::{Name, RunId};

use super::exit::Exit;
use super::open::{self, Place};
use super::out::Out;
use super::progress::NodeLog;
use super::signals::Askings;
use super::{given, run};
use crate::engine::{HANDED_OVER, RunEnd};
use crate::worker::{self, Event, Options};

/// Run what is due, with as many other workers as there are, until told to stop.
#[derive(Debug, Args)]
#[command(
    after_help = "SIGTERM or Ctrl-C: it takes no more runs, lets each one under way come to its end or its next step, \
                        and ends with code 0. A second one: it ends at once, and its leases run out."
)]
pub(super) struct Worker {
    /// Most runs at a time
    #[arg(long, value_name = "N", default_value = "16")]
    concurrency: NonZeroUsize,
    /// Most runs of a workflow at a time, by this worker; may be given several times
    #[arg(long, value_name = "WORKFLOW=N", value_parser = given::limit_of_workflow)]
    per_workflow: Vec<(Name, NonZeroUsize)>,
    /// End when nothing is due or running, and nothing will become due by itself
    #[arg(long)]
    until_idle: bool,
    /// Print one JSON object per line for each run that ended or waits
    #[arg(long)]
    json: bool,
}

impl Worker {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let mut askings = Askings::listen()?;
        let engine = place.engine(place.ledger_to_fill().await?, Arc::new(NodeLog)).await?;
        let engine = Arc::new(engine);
        let options = Options {
            concurrency: self.concurrency,
            per_workflow: BTreeMap::from_iter(self.per_workflow.iter().cloned()),
            until_idle: self.until_idle,
        };
        if !self.json {
            out.line(&format!(
                "worker {} takes runs, {} at a time at most; Ctrl-C lets it finish",
                engine.worker(),
                options.concurrency
            ));
        }
        let (stop, told_to_stop) = watch::channel(false);
        let tell = |event: &Event<'_>| self.tell(out, event);
        let done = {
            let mut working = pin!(worker::work(&engine, &options, told_to_stop, &tell));
            loop {
                tokio::select! {
                    done = &mut working => break done,
                    () = askings.more_than(u32::from(*stop.borrow())) => {
                        if askings.count() > 1 {
                            return Ok(cut_off(out));
                        }
                        engine.drain();
                        stop.send_replace(true);
                        out.warn("stopping: runs under way come to their end or their next step (again: stop at once)");
                    }
                }
            }
        };
        tokio::select! {
            () = open::take_leave(&engine, out) => {}
            () = askings.more_than(1), if *stop.borrow() => return Ok(cut_off(out)),
        }
        done?;
        if !self.json {
            let why = if *stop.borrow() { "was told to stop" } else { "found nothing more to do" };
            out.line(&format!("worker {} {why}", engine.worker()));
        }
        Ok(Exit::Done)
    }

    fn tell(&self, out: &Out, event: &Event<'_>) {
        match event {
            Event::Taken { run, workflow, takeover } => {
                if !self.json {
                    let how =
                        if *takeover { "taken over from a worker that vanished" } else { "taken" };
                    out.line(&format!("run {run} of {workflow} {how}"));
                }
            }
            Event::Left { run, workflow, end } => {
                if self.json {
                    let mut document = run::outcome(run, end);
                    document["workflow"] = json!(workflow.map(Name::as_str));
                    out.json_line(&document);
                } else {
                    out.line(&ending(run, *workflow, end));
                }
            }
            Event::Lost { run, workflow, why } => {
                out.warn(&format!("run {run} of {workflow} is left to its lease: {why}"));
            }
            Event::Trouble { why, pause } => {
                out.warn(&format!("{why}; trying again in {} s", pause.as_secs()));
            }
        }
    }
}

fn cut_off(out: &Out) -> Exit {
    out.warn("stopped at once; its runs are free when their leases have run out");
    Exit::Interrupted
}

/// How a run was left, in one line.
fn ending(run: &RunId, workflow: Option<&Name>, end: &RunEnd) -> String {
    let of = workflow.map_or_else(String::new, |name| format!(" of {name}"));
    match end {
        RunEnd::Completed(_) => format!("run {run}{of} completed"),
        RunEnd::Failed { why } => format!("run {run}{of} failed: {why}"),
        RunEnd::Cancelled { why } => format!("run {run}{of} is cancelled: {why}"),
        RunEnd::Stuck { why } => format!("run {run}{of} is stuck: {why}"),
        RunEnd::Waiting { why, .. } if why == HANDED_OVER => format!("run {run}{of} given back"),
        RunEnd::Waiting { until, why } => format!("run {run}{of} waits until {until}: {why}"),
        RunEnd::Halted { why } => format!("run {run}{of} needs a person: {why}"),
        RunEnd::Quarantined => format!(
            "run {run}{of} is in quarantine: it killed its worker {} times in a row",
            twice_core::limits::CRASHES_MAX
        ),
        RunEnd::Elsewhere => format!("run {run}{of} was taken by another worker"),
    }
}
