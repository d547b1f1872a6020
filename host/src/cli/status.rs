//! `twice status`

use clap::Args;
use twice_workflow::units::duration_text;

use super::exit::Exit;
use super::open::Place;
use super::out::Out;
use super::term::Column;
use crate::view::StatusView;

/// Show how the runs of each workflow stand, and which workers hold runs.
#[derive(Debug, Args)]
pub(super) struct Status {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// A lag as a person reads it: from a second on, in whole ones.
fn lag(ms: u64) -> String {
    duration_text(if ms < 1_000 { ms } else { ms - ms % 1_000 })
}

impl Status {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let status = StatusView::of(&place.ledger().await?.overview().await?);
        if self.json {
            out.json(&status);
            return Ok(Exit::Done);
        }
        if status.workflows.is_empty() {
            out.line("no runs that are not over");
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<String>> = status
            .workflows
            .iter()
            .map(|load| {
                let counts = [
                    load.ready,
                    load.running,
                    load.waiting,
                    load.halted,
                    load.stuck,
                    load.quarantined,
                ];
                let mut row = vec![load.workflow.clone()];
                row.extend(counts.iter().map(ToString::to_string));
                row.push(load.lag_ms.map_or_else(String::new, lag));
                row
            })
            .collect();
        let columns = [
            Column::text("workflow"),
            Column::text("ready"),
            Column::text("running"),
            Column::text("waiting"),
            Column::text("halted"),
            Column::text("stuck"),
            Column::text("quarantined"),
            Column::text("lag"),
        ];
        out.table(&columns, &rows);
        if status.workers.is_empty() {
            out.line("no worker holds a run; `twice worker` runs what is ready");
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<String>> = status
            .workers
            .iter()
            .map(|load| vec![load.worker.clone(), load.runs.to_string()])
            .collect();
        out.table(&[Column::id("worker"), Column::text("runs")], &rows);
        Ok(Exit::Done)
    }
}
