//! `twice graph`

use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::{Value, json};
use twice_core::ids::{Name, RunId};
use twice_core::progress::Progress;
use twice_ledger::{Ledger, RunRecord, progress_of};
use twice_workflow::draw::{self, Asked, Line, Mark, Overlay, Shown};
use twice_workflow::model::{Definition, Node, Slot, Workflow};

use super::exit::Exit;
use super::given;
use super::open::Place;
use super::out::Out;
use super::runs;
use super::term::Tone;
use super::undone;

/// How wide a picture is when nobody is looking at it. Columns.
const WIDTH: usize = 80;

/// Draw a workflow, or where a run of it stands.
#[derive(Debug, Args)]
pub(super) struct Graph {
    /// The workflow
    #[arg(value_parser = given::name)]
    workflow: Name,
    /// Lay over it where this run stands; drawn is then the workflow that the run is pinned to
    #[arg(long, value_name = "RUN", value_parser = given::run_id)]
    run: Option<RunId>,
    /// Write a Mermaid flowchart
    #[arg(long, conflicts_with = "json")]
    mermaid: bool,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl Graph {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let (workflow, laid_over) = match &self.run {
            None => (self.of_project(out, place)?, None),
            Some(run) => {
                let ledger = place.ledger().await?;
                let record = runs::find(ledger.as_ref(), run).await?;
                let workflow = self.pinned(ledger.as_ref(), &record).await?;
                let progress = progress_of(ledger.as_ref(), &record).await?;
                let effects = asked(ledger.as_ref(), &record, &progress).await?;
                let overlay = Overlay::of(&workflow, &progress, record.state, &effects);
                ledger.close().await;
                (workflow, Some((record, overlay)))
            }
        };
        let overlay = laid_over.as_ref().map(|(_, overlay)| overlay);
        let record = laid_over.as_ref().map(|(record, _)| record);
        if self.json {
            out.json(&document(&workflow, record, overlay));
        } else if self.mermaid {
            out.line(draw::mermaid(&workflow, overlay).trim_end());
        } else {
            let title = format!("workflow {} version {}", workflow.name, workflow.version);
            match record {
                None => out.line(&title),
                Some(record) => {
                    out.status_line(
                        &format!("{title}, run {}: ", record.id),
                        record.state.as_str(),
                        "",
                    );
                }
            }
            for line in draw::terminal(&workflow, overlay, out.width().unwrap_or(WIDTH)) {
                out.toned_line(&toned(line));
            }
        }
        Ok(Exit::Done)
    }

    fn of_project(&self, out: &Out, place: &Place) -> anyhow::Result<Workflow> {
        let mut project = place.project(out)?;
        project.workflows.remove(&self.workflow).ok_or_else(|| {
            let known: Vec<&str> = project.workflows.keys().map(Name::as_str).collect();
            anyhow!(
                "there is no workflow `{}`\nfix: name one of: {}",
                self.workflow,
                known.join(", ")
            )
        })
    }

    async fn pinned(&self, ledger: &dyn Ledger, record: &RunRecord) -> anyhow::Result<Workflow> {
        if record.workflow != self.workflow {
            bail!(
                "run `{}` is one of workflow `{}`\nfix: `twice graph {} --run {}`",
                record.id,
                record.workflow,
                record.workflow,
                record.id
            );
        }
        let text = ledger
            .definition(&record.definition)
            .await?
            .ok_or_else(|| anyhow!("the definition of run `{}` is not in the ledger", record.id))?;
        Ok(Definition::from_text(&text)?.workflow)
    }
}

/// The effects that the nodes of a run asked for, with what its way back has made of them.
async fn asked(
    ledger: &dyn Ledger,
    record: &RunRecord,
    progress: &Progress,
) -> anyhow::Result<Vec<Asked>> {
    let fates = undone::fates(ledger, record, progress).await?;
    let asked = fates.into_iter().filter(|(effect, _)| effect.proposal.is_of_node());
    let asked = asked.map(|(effect, fate)| Asked {
        node: effect.proposal.node,
        visit: effect.proposal.visit,
        key: effect.proposal.idempotency_key,
        fate,
    });
    Ok(asked.collect())
}

fn toned(line: Line) -> Vec<(Tone, String)> {
    let tone = |mark| match mark {
        None => Tone::Plain,
        Some(Mark::Done) => Tone::Good,
        Some(Mark::Running) => Tone::Moving,
        Some(Mark::Waiting | Mark::Unfinished | Mark::Undone | Mark::BeingUndone) => Tone::Doubt,
        Some(Mark::Failed | Mark::Stuck) => Tone::Bad,
        Some(Mark::Skipped | Mark::NotReached) => Tone::Quiet,
    };
    line.into_iter().map(|span| (tone(span.mark), span.text)).collect()
}

/// What `--json` prints. Field names are promises to scripts.
fn document(workflow: &Workflow, record: Option<&RunRecord>, overlay: Option<&Overlay>) -> Value {
    let nodes: Vec<Value> = workflow
        .nodes
        .iter()
        .map(|node| node_document(node, overlay.and_then(|overlay| overlay.nodes.get(&node.name))))
        .collect();
    json!({
        "workflow": workflow.name,
        "version": workflow.version,
        "run": record.map(|record| json!({ "run_id": record.id, "state": record.state.as_str() })),
        "nodes": nodes,
    })
}

fn node_document(node: &Node, shown: Option<&Shown>) -> Value {
    json!({
        "name": node.name,
        "component": node.component,
        "after": node.after,
        "join": node.join,
        "when": node.when,
        "routes": node.routes,
        "for_each": node.for_each,
        "loop": node.closes,
        "ends": node.ends,
        "timeout_ms": node.timeout_ms,
        "effects": node.slots.iter().map(slot_document).collect::<Vec<_>>(),
        "progress": shown.map(|shown| json!({
            "mark": shown.mark.as_str(),
            "visit": shown.visit,
            "elements": shown.elements.map(|(done, total)| json!({ "done": done, "total": total })),
            "undoing": shown.undoing.as_ref().map(|undoing| json!({
                "effects": undoing.effects,
                "undone": undoing.undone,
                "settled": undoing.settled,
                "open": undoing.open,
                "stuck": undoing.stuck,
            })),
        })),
    })
}

fn slot_document(slot: &Slot) -> Value {
    let operation = |tool: &Name, operation: &Name| format!("{tool}.{operation}");
    json!({
        "slot": slot.name,
        "operation": (!slot.child).then(|| operation(&slot.tool, &slot.operation)),
        "workflow": slot.child.then_some(&slot.operation),
        "compensate": slot.compensate.as_ref().map(|c| operation(&c.tool, &c.operation)),
        "pivot": slot.pivot,
        "lock": slot.lock.as_ref().map(|lock| &lock.name),
    })
}
