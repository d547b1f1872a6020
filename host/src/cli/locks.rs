//! `twice locks`

use std::sync::Arc;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use twice_core::ids::{Name, RunId};
use twice_core::limits::PAGE_MAX;
use twice_ledger::LockFilter;

use super::decider::Decider;
use super::exit::Exit;
use super::given;
use super::open::Place;
use super::out::Out;
use super::progress::Watch;
use super::term::Column;
use crate::view::LockView;

/// List and release locks on business objects.
#[derive(Debug, Subcommand)]
pub(super) enum Locks {
    /// List the locks that runs have on business objects, and who waits for them
    List(List),
    /// Take a lock from the run that has it; nothing holds other runs back from its object then
    Release(Release),
}

/// List the locks that runs have on business objects, and who waits for them.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only locks that this run has
    #[arg(long, value_name = "RUN", value_parser = given::run_id)]
    run: Option<RunId>,
    /// Only locks on this object
    #[arg(long, value_name = "VALUE")]
    object: Option<String>,
    /// Only locks behind this one, for the next page
    #[arg(long, num_args = 2, value_names = ["NAME", "OBJECT"])]
    after: Option<Vec<String>>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Take a lock from the run that has it.
#[derive(Debug, Args)]
pub(super) struct Release {
    /// The name of the lock, as listed
    #[arg(value_parser = given::name)]
    name: Name,
    /// The object, as listed
    object: String,
    /// Why; recorded in the run that had it
    #[arg(long, value_name = "TEXT", value_parser = given::reason)]
    reason: String,
    #[command(flatten)]
    decider: Decider,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Locks {
    pub(super) const fn prints_json(&self) -> bool {
        match self {
            Self::List(command) => command.json,
            Self::Release(command) => command.json,
        }
    }

    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.run(out, place).await,
            Self::Release(release) => release.run(out, place).await,
        }
    }
}

impl List {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let after = match self.after.as_deref() {
            Some([name, object]) => Some((Name::parse(name.clone())?, object.clone())),
            Some(_) | None => None,
        };
        let filter = LockFilter {
            run: self.run.clone(),
            object: self.object.clone(),
            after,
            limit: self.limit.clamp(1, PAGE_MAX),
        };
        let locks = place.ledger().await?.locks(&filter).await?;
        let locks: Vec<LockView> = locks.iter().map(LockView::of).collect();
        if self.json {
            out.json(&locks);
            return Ok(Exit::Done);
        }
        if locks.is_empty() {
            out.line("no locks; a run has them whose slots say `lock`, until it is over");
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<String>> = locks
            .into_iter()
            .map(|lock| {
                let waiting: Vec<String> =
                    lock.waiting.into_iter().map(|waiting| waiting.run_id).collect();
                vec![
                    lock.lock,
                    lock.object,
                    lock.run_id,
                    lock.run_state,
                    lock.since,
                    lock.expires_at.unwrap_or_else(|| "never".to_owned()),
                    waiting.join(", "),
                ]
            })
            .collect();
        let columns = [
            Column::text("lock"),
            Column::id("object"),
            Column::id("run"),
            Column::status("state"),
            Column::text("since"),
            Column::text("expires"),
            Column::text("waiting"),
        ];
        out.table(&columns, &rows);
        Ok(Exit::Done)
    }
}

impl Release {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let Self { name, object, .. } = self;
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let filter = LockFilter { object: Some(object.clone()), ..LockFilter::default() };
        let locks = engine.ledger().locks(&filter).await?;
        let lock = locks.into_iter().find(|lock| lock.name == *name).ok_or_else(|| {
            anyhow!("no run has the lock `{name}` on {object}\nfix: `twice locks list` shows them")
        })?;
        let run = engine.unlock(&lock, &self.decider.decision(&self.reason)).await?;
        engine.ledger().close().await;
        if self.json {
            let released = serde_json::json!({
                "lock": name.as_str(), "object": lock.object, "run_id": run.as_str(), "released": true,
            });
            out.json(&released);
            return Ok(Exit::Done);
        }
        out.line(&format!("run {run} no longer has the lock `{name}` on {object}"));
        Ok(Exit::Done)
    }
}
