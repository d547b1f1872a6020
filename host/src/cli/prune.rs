//! `twice runs prune` and `twice runs verify-export`

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use twice_core::identity::hash_text;
use twice_core::run::RunState;
use twice_ledger::{Ledger, RunRecord, Tombstone};

use super::exit::Exit;
use super::given;
use super::open::Place;
use super::out::Out;
use crate::retention::{self, Outcome};

/// Export runs that are over, and remove them from the ledger.
#[derive(Debug, Args)]
#[command(
    after_help = "Each run is written to DIR/RUN.jsonl, read back and verified before it is removed. What stays is a tombstone: \
                        starting the run again still finds it, and `twice runs show` says where it went. Runs that own an effect \
                        with scope = \"object\" are kept."
)]
pub(super) struct PruneRuns {
    /// Only runs whose latest entry is at least so old, by the database's clock, e.g. 30d
    #[arg(long, value_name = "TIME", value_parser = given::duration)]
    older_than: u64,
    /// Only runs that completed, or only those that failed
    #[arg(long, value_parser = given::ended_state)]
    state: Option<RunState>,
    /// The folder for the exports; made when it is not there
    #[arg(long, value_name = "DIR")]
    export: PathBuf,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Who removes them (default: the user of this process)
    #[arg(long, env = "USER", value_name = "NAME", default_value = "unknown")]
    by: String,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// Check an export by itself, without a ledger.
#[derive(Debug, Args)]
pub(super) struct VerifyExport {
    /// The file
    file: PathBuf,
    /// The digest that it has to have, as `twice runs show` tells it
    #[arg(long, value_name = "sha256:…")]
    digest: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl PruneRuns {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger().await?;
        if !self.dry_run {
            let export = &self.export;
            std::fs::create_dir_all(export)
                .with_context(|| format!("cannot make the folder {}", export.display()))?;
        }
        let done = self.prune_all(out, ledger.as_ref()).await;
        ledger.close().await;
        let (pruned, kept) = done?;
        if self.json {
            out.json(&json!({ "dry_run": self.dry_run, "pruned": pruned, "kept": kept }));
        } else if self.dry_run {
            out.line(&format!(
                "{} run(s) are old enough; those that own an effect which others may adopt would be kept",
                pruned.len()
            ));
        } else {
            out.line(&format!(
                "{} run(s) exported to {} and removed, {} kept",
                pruned.len(),
                self.export.display(),
                kept.len()
            ));
        }
        Ok(Exit::Done)
    }

    async fn prune_all(
        &self,
        out: &Out,
        ledger: &dyn Ledger,
    ) -> anyhow::Result<(Vec<Value>, Vec<Value>)> {
        let (mut pruned, mut kept) = (Vec::new(), Vec::new());
        let mut after = None;
        loop {
            let page = retention::page(ledger, self.state, self.older_than, after).await?;
            let Some(last) = page.last() else { return Ok((pruned, kept)) };
            after = Some(last.id.clone());
            for run in &page {
                if self.dry_run {
                    pruned.push(self.would_prune(out, run));
                    continue;
                }
                let outcome = retention::prune(ledger, run, &self.export, &self.by).await;
                match outcome.with_context(|| format!("run {} is not removed", run.id))? {
                    Outcome::Pruned(tombstone) => {
                        self.say(out, &format!("run {} is in {}", run.id, tombstone.export));
                        pruned.push(document(&tombstone));
                    }
                    Outcome::Kept(why) => {
                        self.say(out, &format!("run {} is kept: {why}", run.id));
                        kept.push(json!({ "run_id": run.id.as_str(), "reason": why }));
                    }
                }
            }
        }
    }

    fn would_prune(&self, out: &Out, run: &RunRecord) -> Value {
        self.say(out, &format!("run {} {} on {}", run.id, run.state, run.updated_at));
        json!({ "run_id": run.id.as_str(), "state": run.state.as_str(), "ended_at": run.updated_at.to_string() })
    }

    fn say(&self, out: &Out, line: &str) {
        if !self.json {
            out.line(line);
        }
    }
}

impl VerifyExport {
    pub(super) fn run(&self, out: &Out) -> anyhow::Result<Exit> {
        let path = self.file.display();
        let verified =
            retention::verify(&self.file).with_context(|| format!("{path} does not hold"))?;
        if let Some(digest) = self.digest.as_ref().filter(|digest| **digest != verified.digest) {
            bail!("{path} does not hold: its digest is {}, not {digest}", verified.digest);
        }
        if self.json {
            out.json(&json!({
                "run_id": verified.run.as_str(), "entries": verified.head.seq,
                "head": hash_text(&verified.head.hash), "digest": verified.digest, "chain": "holds",
            }));
        } else {
            out.line(&format!(
                "run {}: chain holds ({} entries), digest {}",
                verified.run, verified.head.seq, verified.digest
            ));
        }
        Ok(Exit::Done)
    }
}

/// A tombstone as a document.
pub(super) fn document(tombstone: &Tombstone) -> Value {
    json!({
        "run_id": tombstone.run.as_str(),
        "workflow": tombstone.workflow.as_str(),
        "caller_key": tombstone.caller_key,
        "definition": tombstone.definition,
        "state": tombstone.state.as_str(),
        "entries": tombstone.head.seq,
        "head": hash_text(&tombstone.head.hash),
        "created_at": tombstone.created_at.to_string(),
        "ended_at": tombstone.ended_at.to_string(),
        "pruned_at": tombstone.pruned_at.to_string(),
        "pruned_by": tombstone.pruned_by,
        "export": tombstone.export,
        "export_digest": tombstone.export_digest,
    })
}

/// A run of which only its tombstone is left.
pub(super) fn show(out: &Out, tombstone: &Tombstone, as_json: bool) {
    if as_json {
        out.json(&json!({ "pruned": document(tombstone) }));
        return;
    }
    out.status_line(
        &format!("run {} of {}: ", tombstone.run, tombstone.workflow),
        tombstone.state.as_str(),
        ", exported and removed",
    );
    out.line(&format!("  removed on {} by {}", tombstone.pruned_at, tombstone.pruned_by));
    out.line(&format!("  export  {}", tombstone.export));
    out.line(&format!("  digest  {}", tombstone.export_digest));
    out.line(&format!("  head    {} {}", tombstone.head.seq, hash_text(&tombstone.head.hash)));
}
