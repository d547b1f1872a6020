//! `twice effects`

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use clap::{ArgGroup, Args, Subcommand};
use twice_core::effect::{Effect, State};
use twice_core::event::{ConflictRule, Observation};
use twice_core::evidence::{self, Evidence};
use twice_core::ids::{EffectId, RunId};
use twice_core::limits::{PAGE_MAX, PAYLOAD_BYTES_MAX};
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{EffectFilter, Ledger};

use super::exit::Exit;
use super::open::{self, Place};
use super::out::Out;
use super::progress::Watch;
use super::run;
use super::term::Column;
use crate::engine::Engine;
use crate::engine::operator::{Decision, Finding};
use crate::view::{EffectDetail, EffectView, EntryView};

/// List, show and settle effects.
#[derive(Debug, Subcommand)]
pub(super) enum Effects {
    /// List effects
    List(List),
    /// Show everything that is known of one effect
    Show(Show),
    /// Go on with the runs that have effects of unknown outcome, as far as it can be told now
    Reconcile(Reconcile),
    /// Record what you found out about an effect of unknown outcome
    Resolve(Resolve),
    /// Decide about an effect that was requested again with other args
    Conflict(Conflict),
}

/// List effects.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").args(["unknown", "waiting", "conflict", "state"])))]
pub(super) struct List {
    /// Only those of this run
    #[arg(long)]
    run: Option<String>,
    /// Only those of unknown outcome
    #[arg(long)]
    unknown: bool,
    /// Only those not answered yet
    #[arg(long)]
    waiting: bool,
    /// Only those that wait for a person's decision
    #[arg(long)]
    conflict: bool,
    /// Only those in this state
    #[arg(long)]
    state: Option<String>,
    /// Only those after this one, for the next page
    #[arg(long, value_name = "EFFECT")]
    after: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Show everything that is known of one effect.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The effect, or the beginning of its id if that is unique
    effect: String,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Go on with the runs that have effects of unknown outcome.
#[derive(Debug, Args)]
pub(super) struct Reconcile {
    /// How long to stay with each run
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait: u64,
}

/// Record what you found out about an effect of unknown outcome.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("finding").args(["confirmed", "failed"]).required(true)))]
pub(super) struct Resolve {
    /// The effect
    effect: String,
    /// It happened
    #[arg(long, requires = "receipt")]
    confirmed: bool,
    /// It did not happen
    #[arg(long)]
    failed: bool,
    /// What the provider shows, as JSON
    #[arg(long, value_name = "JSON")]
    receipt: Option<String>,
    /// The provider's id of it
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// How you know; recorded
    #[arg(long, value_name = "TEXT")]
    evidence: String,
    /// Who decides (default: the user of this process)
    #[arg(long, env = "USER", value_name = "NAME")]
    by: Option<String>,
}

/// Decide about an effect that was requested again with other args.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rule").args(["keep", "fail", "renew"]).required(true)))]
pub(super) struct Conflict {
    /// The effect
    effect: String,
    /// The node gets the recorded receipt
    #[arg(long)]
    keep: bool,
    /// The node gets an error
    #[arg(long)]
    fail: bool,
    /// The other request becomes a new action, of the next generation
    #[arg(long)]
    renew: bool,
    /// Why; recorded
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who decides (default: the user of this process)
    #[arg(long, env = "USER", value_name = "NAME")]
    by: Option<String>,
}

impl Effects {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        match self {
            Self::List(list) => list.run(out, place).await,
            Self::Show(show) => show.run(out, place).await,
            Self::Reconcile(reconcile) => reconcile.run(out, place).await,
            Self::Resolve(resolve) => resolve.run(out, place).await,
            Self::Conflict(conflict) => conflict.run(out, place).await,
        }
    }
}

impl List {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger(&Arc::default()).await?;
        let state = match &self.state {
            Some(word) => match State::parse(&word.to_ascii_uppercase()) {
                Some(state) => Some(state),
                None => bail!(
                    "there is no effect state `{word}`\nfix: one of PROPOSED, AUTHORIZED, REQUESTED, CONFIRMED, FAILED, UNKNOWN"
                ),
            },
            None => self.unknown.then_some(State::Unknown),
        };
        let filter = EffectFilter {
            run: self.run.clone().map(RunId::parse).transpose()?,
            state,
            held: self.conflict,
            waiting: self.waiting,
            after: self.after.clone().map(EffectId::parse).transpose()?,
            limit: self.limit.clamp(1, PAGE_MAX),
        };
        let effects: Vec<EffectView> =
            ledger.effects(&filter).await?.iter().map(EffectView::of).collect();
        if self.json {
            out.json(&effects);
            return Ok(Exit::Done);
        }
        if effects.is_empty() {
            out.line("no such effects");
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<String>> = effects
            .iter()
            .map(|effect| {
                vec![
                    effect.effect_id[..16].to_owned(),
                    effect.idempotency_key.clone(),
                    effect.kind.clone(),
                    effect.state.clone(),
                    effect.attempts.to_string(),
                    effect.external_id.clone().unwrap_or_default(),
                    effect.last_error.clone().unwrap_or_default(),
                ]
            })
            .collect();
        let columns = [
            Column::id("effect"),
            Column::id("key"),
            Column::text("type"),
            Column::status("state"),
            Column::text("attempts"),
            Column::text("external id"),
            Column::text("last error"),
        ];
        out.table(&columns, &rows);
        Ok(Exit::Done)
    }
}

impl Show {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger(&Arc::default()).await?;
        let effect = find(ledger.as_ref(), &self.effect).await?;
        let run = ledger.run(&effect.run).await?;
        let history = history(ledger.as_ref(), &effect).await?;
        let lease_live = run.as_ref().is_some_and(|run| run.lease_live);
        let detail = EffectDetail::of(&effect, lease_live, history);
        if self.json {
            out.json(&detail);
        } else {
            let person = run.is_some_and(|run| run.state == RunState::Halted);
            print_effect(out, &detail, &effect, person);
        }
        Ok(Exit::Done)
    }
}

/// `person`: its run waits for one.
fn print_effect(out: &Out, effect: &EffectDetail, folded: &Effect, person: bool) {
    let mut lines = vec![
        ("effect_id", effect.effect_id.clone()),
        ("run_id", effect.run_id.clone()),
        ("type", effect.kind.clone()),
        ("request_hash", effect.request_hash.clone()),
        ("idempotency_key", effect.idempotency_key.clone()),
        ("provider_key", effect.provider_key.clone()),
        ("state", effect.state.clone()),
        ("attempts", effect.attempts.to_string()),
        ("args", effect.args.to_string()),
        ("tool class", effect.tool_class.clone()),
    ];
    let optional = [
        ("policy", effect.policy.clone()),
        ("external_receipt", effect.external_receipt.as_ref().map(ToString::to_string)),
        ("failure", effect.failure.as_ref().map(ToString::to_string)),
        ("waits until", effect.not_before.clone()),
        ("held", effect.held.as_ref().map(ToString::to_string)),
        ("last_error", effect.last_error.clone()),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    lines.extend(effect.attempt_log.iter().map(|attempt| ("attempt", attempt.to_string())));
    let requested = effect.history.iter().filter(|entry| entry.kind == "requested");
    lines.extend(requested.map(|entry| ("request", entry.body["data"]["request"].to_string())));
    lines.extend(effect.lookups.iter().map(|lookup| ("lookup", lookup.to_string())));
    lines.extend(folded.observed.iter().map(|(at, seen)| ("observed", observed(*at, seen))));
    let in_doubt = effect.state == State::Unknown.as_str() && person;
    let evidence = evidence::of(folded).filter(|_| in_doubt);
    lines.extend(evidence.map(|found| ("evidence", how_to_resolve(&folded.id, found))));
    lines.extend(effect.decisions.iter().map(|decision| ("decision", decision.to_string())));
    out.fields(&lines);
}

/// One thing that arrived and was not applied, in words.
fn observed(at: Timestamp, seen: &Observation) -> String {
    let mut text = format!("{at} {}", seen.what);
    if let Some(attempt) = seen.attempt {
        text.push_str(&format!(", of attempt {attempt}"));
    }
    if let Some(message) = &seen.message {
        text.push_str(&format!(": {message}"));
    }
    let facts = [
        seen.verdict.map(|verdict| format!("verdict {}", verdict.as_str())),
        seen.rule.as_ref().map(|rule| format!("rule {rule}")),
        seen.external_id.as_ref().map(|id| format!("external id {id}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    if !facts.is_empty() {
        text.push_str(&format!(" ({})", facts.join(", ")));
    }
    text + "; not applied: it changed nothing"
}

/// What a person may make of what arrived too late.
fn how_to_resolve(effect: &EffectId, evidence: Evidence<'_>) -> String {
    let (says, command) = match evidence {
        Evidence::Happened(seen) => {
            let id = seen.external_id.as_ref();
            let id = id.map_or_else(String::new, |id| format!(" --external-id {id}"));
            ("that it happened", format!("--confirmed --receipt JSON{id}"))
        }
        Evidence::DidNotHappen(_) => ("that it did not happen", "--failed".to_owned()),
    };
    format!(
        "what was observed says {says}. If the provider shows the same: `twice effects resolve {effect} {command} --evidence TEXT`"
    )
}

impl Reconcile {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(Arc::new(Watch::new(out, false))).await?;
        let done = self.reconcile_on(&engine, out).await;
        open::take_leave(&engine, out).await;
        done
    }

    async fn reconcile_on(&self, engine: &Engine, out: &Out) -> anyhow::Result<Exit> {
        let filter = EffectFilter {
            state: Some(State::Unknown),
            limit: PAGE_MAX,
            ..EffectFilter::default()
        };
        let mut runs: Vec<RunId> =
            engine.ledger().effects(&filter).await?.into_iter().map(|row| row.run).collect();
        runs.dedup();
        if runs.is_empty() {
            out.line("no effect is of unknown outcome");
        }
        let mut exit = Exit::Done;
        for id in runs {
            let Some(record) = engine.ledger().run(&id).await? else { continue };
            let end = run::resume(engine, out, &record, self.wait, false).await?;
            run::report(out, &id, &end, false);
            if Exit::of_run(&end) != Exit::Done {
                exit = Exit::RunWaits;
            }
        }
        Ok(exit)
    }
}

impl Resolve {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(Arc::new(Watch::new(out, true))).await?;
        let effect = find(engine.ledger().as_ref(), &self.effect).await?;
        let finding = if self.confirmed {
            let text = self.receipt.as_deref().unwrap_or_default();
            let result = twice_core::json::parse(text, PAYLOAD_BYTES_MAX)
                .context("--receipt is not strict JSON")?;
            Finding::Confirmed { result, external_id: self.external_id.clone() }
        } else {
            Finding::Failed
        };
        let decision = decision(&self.by, &self.evidence, "--evidence")?;
        let effect = engine.resolve(&effect.id, finding, &decision).await?;
        settled(out, &effect);
        engine.ledger().close().await;
        Ok(Exit::Done)
    }
}

impl Conflict {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(Arc::new(Watch::new(out, true))).await?;
        let effect = find(engine.ledger().as_ref(), &self.effect).await?;
        let rule = match (self.keep, self.fail) {
            (true, _) => ConflictRule::Keep,
            (false, true) => ConflictRule::Fail,
            (false, false) => ConflictRule::Renew,
        };
        let decision = decision(&self.by, &self.reason, "--reason")?;
        let effect = engine.decide_conflict(&effect.id, rule, &decision).await?;
        settled(out, &effect);
        engine.ledger().close().await;
        Ok(Exit::Done)
    }
}

fn settled(out: &Out, effect: &Effect) {
    out.status_line(
        &format!("effect {} is ", effect.id),
        effect.state.as_str(),
        &format!("; its run {} may go on: `twice runs resume {}`", effect.run, effect.run),
    );
}

fn decision(by: &Option<String>, why: &str, option: &str) -> anyhow::Result<Decision> {
    if why.trim().is_empty() {
        bail!(
            "{option} is empty\nfix: say how you know; it is recorded for whoever audits this run"
        );
    }
    let who = by.clone().unwrap_or_else(|| "unknown".to_owned());
    Ok(Decision { who, why: why.to_owned() })
}

/// The entries about an effect, in their order.
async fn history(ledger: &dyn Ledger, effect: &Effect) -> anyhow::Result<Vec<EntryView>> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let page = ledger.history(&effect.run, after, PAGE_MAX).await?;
        let about = page.iter().filter(|entry| entry.effect.as_ref() == Some(&effect.id));
        found.extend(about.map(EntryView::of));
        match page.last() {
            Some(last) if page.len() == PAGE_MAX as usize => after = last.seq,
            Some(_) | None => return Ok(found),
        }
    }
}

/// The effect of that id, or the only one whose id begins so.
async fn find(ledger: &dyn Ledger, given: &str) -> anyhow::Result<Effect> {
    if let Ok(id) = EffectId::parse(given.to_owned()) {
        let found = ledger.effect(&id).await?;
        return found.ok_or_else(|| absent(given));
    }
    if !given.starts_with("eff_") || given.len() < 8 {
        bail!(
            "`{given}` is not an effect id\nfix: give `eff_…` as `twice effects list` shows it, at least 8 characters"
        );
    }
    let mut found = Vec::new();
    let mut filter = EffectFilter { limit: PAGE_MAX, ..EffectFilter::default() };
    loop {
        let page = ledger.effects(&filter).await?;
        let full = page.len() == PAGE_MAX as usize;
        filter.after = page.last().map(|row| row.id.clone());
        found.extend(page.into_iter().filter(|row| row.id.as_str().starts_with(given)));
        if !full {
            break;
        }
    }
    match found.as_slice() {
        [row] => {
            let effect = ledger.effect(&row.id).await?;
            effect.ok_or_else(|| absent(given))
        }
        [] => Err(absent(given)),
        many => bail!("{} effects begin with `{given}`\nfix: give more of the id", many.len()),
    }
}

fn absent(given: &str) -> anyhow::Error {
    anyhow!("there is no effect `{given}` in this ledger\nfix: `twice effects list` shows them")
}
