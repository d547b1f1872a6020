//! `twice approvals`

use std::sync::Arc;

use clap::{Args, Subcommand};
use twice_core::approval::{self, Answer};
use twice_core::ids::{EffectId, Name, RunId};
use twice_core::limits::PAGE_MAX;
use twice_ledger::EffectFilter;

use super::decider::Decider;
use super::effects;
use super::exit::Exit;
use super::given;
use super::open::Place;
use super::out::Out;
use super::progress::Watch;
use super::term::Column;
use crate::view::ApprovalView;

/// List and answer what people are asked to approve.
#[derive(Debug, Subcommand)]
pub(super) enum Approvals {
    /// List the effects that wait for a person's approval
    List(List),
    /// Let an effect be sent
    Grant(Reply),
    /// Have an effect fail instead of being sent
    Refuse(Reply),
}

/// List the effects that wait for a person's approval.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only those of this run
    #[arg(long, value_name = "RUN", value_parser = given::run_id)]
    run: Option<RunId>,
    /// Only what this one is asked
    #[arg(long, value_name = "NAME", value_parser = given::name)]
    of: Option<Name>,
    /// Also those that were answered, expired, or are not needed any more
    #[arg(long)]
    all: bool,
    /// Only those behind this one, for the next page
    #[arg(long, value_name = "APPROVAL", value_parser = given::effect_id)]
    after: Option<EffectId>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Answer an approval.
#[derive(Debug, Args)]
pub(super) struct Reply {
    /// The approval, or the effect that waits for it, or the beginning of either's id if that is unique
    #[arg(value_parser = given::effect)]
    approval: String,
    /// Why; recorded
    #[arg(long, value_name = "TEXT", value_parser = given::reason)]
    reason: String,
    #[command(flatten)]
    decider: Decider,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Approvals {
    pub(super) const fn prints_json(&self) -> bool {
        match self {
            Self::List(command) => command.json,
            Self::Grant(command) | Self::Refuse(command) => command.json,
        }
    }

    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.run(out, place).await,
            Self::Grant(reply) => reply.run(out, place, Answer::Grant).await,
            Self::Refuse(reply) => reply.run(out, place, Answer::Refuse).await,
        }
    }
}

impl List {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger().await?;
        if let Some(run) = &self.run {
            super::runs::find(ledger.as_ref(), run).await?;
        }
        let now = ledger.now().await?;
        let limit = self.limit.max(1) as usize;
        let mut filter = EffectFilter {
            run: self.run.clone(),
            waiting: !self.all,
            approvals: true,
            after: self.after.clone(),
            limit: PAGE_MAX,
            ..EffectFilter::default()
        };
        let mut found: Vec<ApprovalView> = Vec::new();
        let mut more = false;
        'pages: loop {
            let page = ledger.effects(&filter).await?;
            for row in &page {
                let Some(effect) = ledger.effect(&row.id).await? else { continue };
                let Some(question) = approval::question(&effect) else { continue };
                if self.of.as_ref().is_some_and(|of| *of != question.by) {
                    continue;
                }
                if found.len() == limit {
                    more = true;
                    break 'pages;
                }
                found.push(ApprovalView::of(&effect, question, now));
            }
            match page.last() {
                Some(last) if page.len() == PAGE_MAX as usize => {
                    filter.after = Some(last.id.clone())
                }
                Some(_) | None => break,
            }
        }
        let left = found
            .last()
            .filter(|_| more)
            .map(|last| format!("there are more; `--after {}` shows the next", last.approval_id));
        if self.json {
            out.json(&found);
            left.iter().for_each(|left| out.warn(left));
            return Ok(Exit::Done);
        }
        if found.is_empty() {
            out.line("nothing waits for an approval");
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<String>> = found
            .into_iter()
            .map(|found| {
                vec![
                    found.approval_id[..16].to_owned(),
                    found.run_id,
                    found.operation,
                    found.args.to_string(),
                    found.by,
                    found.state.to_owned(),
                    found.expires_at,
                    match (found.answered_by, found.reason) {
                        (Some(who), Some(why)) => format!("{who}: {why}"),
                        _ => String::new(),
                    },
                ]
            })
            .collect();
        let columns = [
            Column::id("approval"),
            Column::id("run"),
            Column::text("of"),
            Column::text("args"),
            Column::text("asked"),
            Column::status("state"),
            Column::text("expires"),
            Column::text("answer"),
        ];
        out.table(&columns, &rows);
        left.iter().for_each(|left| out.line(left));
        Ok(Exit::Done)
    }
}

impl Reply {
    async fn run(&self, out: &Out, place: &Place, answer: Answer) -> anyhow::Result<Exit> {
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let effect = effects::find(engine.ledger().as_ref(), &self.approval).await?;
        let decision = self.decider.decision(&self.reason);
        let answered = engine.answer(&effect.id, answer, &decision).await?;
        let now = engine.ledger().now().await?;
        engine.ledger().close().await;
        let Some(question) = approval::question(&answered) else { return Ok(Exit::Error) };
        let view = ApprovalView::of(&answered, question, now);
        if self.json {
            out.json(&view);
            return Ok(Exit::Done);
        }
        out.status_line(
            &format!("approval {} is ", view.approval_id),
            view.state,
            &format!("; run {} may go on: `twice runs resume {}`", view.run_id, view.run_id),
        );
        Ok(Exit::Done)
    }
}
