//! `twice effects`

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use clap::{ArgGroup, Args, Subcommand};
use serde_json::Value;
use twice_core::effect::{Effect, State};
use twice_core::event::ConflictRule;
use twice_core::ids::{EffectId, RunId};
use twice_core::limits::PAGE_MAX;
use twice_core::run::RunState;
use twice_ledger::{EffectFilter, EffectRow, Ledger, progress_of};
use twice_workflow::draw::Fate;

use super::decider::Decider;
use super::effect_text;
use super::exit::Exit;
use super::given;
use super::open::{self, Place};
use super::out::Out;
use super::progress::Watch;
use super::run;
use super::runs;
use super::term::Column;
use super::undone;
use crate::engine::Engine;
use crate::engine::operator::Finding;
use crate::view::{EffectDetail, EffectView, EntryView};

/// How many effects a listing shows unless it is told otherwise, and is not that of one run.
const LISTED: usize = 50;
/// How many effects are counted beyond what is shown. About so many.
const COUNTED: usize = 10_000;

/// List, show and settle effects.
#[derive(Debug, Subcommand)]
pub(super) enum Effects {
    /// List effects: of one run in the order in which they were asked for, else by their ids
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

/// List effects: of one run in the order in which they were asked for, else by their ids.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").args(["unknown", "waiting", "conflict", "state"])))]
pub(super) struct List {
    /// Only those of this run
    #[arg(long, value_parser = given::run_id)]
    run: Option<RunId>,
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
    #[arg(long, value_parser = given::effect_state)]
    state: Option<State>,
    /// Only those after this one, for the next page
    #[arg(long, value_name = "EFFECT", value_parser = given::effect_id)]
    after: Option<EffectId>,
    /// At most so many (default: 50, and all of one run)
    #[arg(long)]
    limit: Option<u32>,
    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Show everything that is known of one effect.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// The effect, or the beginning of its id if that is unique
    #[arg(value_parser = given::effect)]
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
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Record what you found out about an effect of unknown outcome.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("finding").args(["confirmed", "failed"]).required(true)))]
pub(super) struct Resolve {
    /// The effect, or the beginning of its id if that is unique
    #[arg(value_parser = given::effect)]
    effect: String,
    /// It happened
    #[arg(long, requires = "receipt")]
    confirmed: bool,
    /// It did not happen
    #[arg(long)]
    failed: bool,
    /// What the provider shows, as JSON
    #[arg(long, value_name = "JSON", value_parser = given::json)]
    receipt: Option<Value>,
    /// The provider's id of it
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// How you know; recorded
    #[arg(long, value_name = "TEXT", value_parser = given::reason)]
    evidence: String,
    #[command(flatten)]
    decider: Decider,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Decide about an effect that was requested again with other args.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rule").args(["keep", "fail", "renew"]).required(true)))]
pub(super) struct Conflict {
    /// The effect, or the beginning of its id if that is unique
    #[arg(value_parser = given::effect)]
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
    #[arg(long, value_name = "TEXT", value_parser = given::reason)]
    reason: String,
    #[command(flatten)]
    decider: Decider,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Effects {
    pub(super) const fn prints_json(&self) -> bool {
        match self {
            Self::List(command) => command.json,
            Self::Show(command) => command.json,
            Self::Reconcile(command) => command.json,
            Self::Resolve(command) => command.json,
            Self::Conflict(command) => command.json,
        }
    }

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
        let ledger = place.ledger().await?;
        let filter = EffectFilter {
            run: self.run.clone(),
            state: self.state.or_else(|| self.unknown.then_some(State::Unknown)),
            held: self.conflict,
            waiting: self.waiting,
            approvals: false,
            after: self.after.clone(),
            limit: PAGE_MAX,
        };
        let default = if self.run.is_some() { usize::MAX } else { LISTED };
        let given = self.limit.map_or(default, |limit| limit.max(1) as usize);
        let limit = if self.all { usize::MAX } else { given };
        let (rows, count) = match &self.run {
            Some(run) => {
                runs::find(ledger.as_ref(), run).await?;
                let mut rows = in_order(ledger.as_ref(), run, filter).await?;
                let count = Count::Exactly(rows.len());
                rows.truncate(limit);
                (rows, count)
            }
            None => paged(ledger.as_ref(), filter, limit).await?,
        };
        let fates = fates(ledger.as_ref(), &rows).await?;
        let mut effects: Vec<EffectView> = rows.iter().map(EffectView::of).collect();
        for (effect, row) in effects.iter_mut().zip(&rows) {
            effect.undoing = fates.get(&row.id).copied();
        }
        let left = (count.at_least() > rows.len()).then(|| {
            let last = rows.last().map_or("", |row| row.id.as_str());
            format!(
                "{} of {count} effects; `--all` or `--limit` shows more, `--after {last}` the next",
                rows.len()
            )
        });
        if self.json {
            out.json(&effects);
            // The document is the list itself, so what is not in it is said beside it.
            left.iter().for_each(|left| out.warn(left));
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
                    undoing(effect),
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
            Column::text("undoing"),
            Column::text("attempts"),
            Column::text("external id"),
            Column::text("last error"),
        ];
        out.table(&columns, &rows);
        left.iter().for_each(|left| out.line(left));
        Ok(Exit::Done)
    }
}

/// How many effects there are.
enum Count {
    Exactly(usize),
    /// More than anybody wants to have counted.
    MoreThan(usize),
}

impl Count {
    const fn at_least(&self) -> usize {
        match self {
            Self::Exactly(many) => *many,
            Self::MoreThan(many) => *many + 1,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(many) => write!(f, "{many}"),
            Self::MoreThan(many) => write!(f, "more than {many}"),
        }
    }
}

/// The first effects by their ids, and how many there are in all.
async fn paged(
    ledger: &dyn Ledger,
    mut filter: EffectFilter,
    limit: usize,
) -> anyhow::Result<(Vec<EffectRow>, Count)> {
    let mut rows = Vec::new();
    let mut counted = 0;
    loop {
        let page = ledger.effects(&filter).await?;
        let full = page.len() == PAGE_MAX as usize;
        filter.after = page.last().map(|row| row.id.clone());
        counted += page.len();
        rows.extend(page.into_iter().take(limit - rows.len()));
        if !full {
            return Ok((rows, Count::Exactly(counted)));
        }
        if rows.len() == limit && counted >= COUNTED {
            return Ok((rows, Count::MoreThan(counted)));
        }
    }
}

/// What the way back of their runs has made of these effects, where there is one.
async fn fates(
    ledger: &dyn Ledger,
    rows: &[EffectRow],
) -> anyhow::Result<HashMap<EffectId, &'static str>> {
    let mut found = HashMap::new();
    let runs: BTreeSet<&RunId> = rows.iter().map(|row| &row.run).collect();
    for run in runs {
        let Some(record) = ledger.run(run).await? else { continue };
        if record.state == RunState::Completed {
            continue;
        }
        let progress = progress_of(ledger, &record).await?;
        if progress.compensating.is_none() {
            continue;
        }
        for (effect, fate) in undone::fates(ledger, &record, &progress).await? {
            if let Some(fate) = fate {
                let word = match fate {
                    Fate::Undone => "undone",
                    Fate::Settled => "settled",
                    Fate::Open => "open",
                    Fate::Stuck => "stuck",
                    Fate::Stays => "stays",
                };
                found.insert(effect.id, word);
            }
        }
    }
    Ok(found)
}

/// What is said of the undoing of an effect in a table.
fn undoing(effect: &EffectView) -> String {
    match (&effect.undoes, effect.undoing) {
        (Some(undone), _) => format!("of {}", &undone[..16]),
        (None, Some("open")) => "to be undone".to_owned(),
        (None, Some("stuck")) => "could not be undone".to_owned(),
        (None, Some("settled")) => "settled by a person".to_owned(),
        (None, word) => word.unwrap_or_default().to_owned(),
    }
}

impl Show {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger().await?;
        let effect = find(ledger.as_ref(), &self.effect).await?;
        let run = ledger.run(&effect.run).await?;
        let history = history(ledger.as_ref(), &effect).await?;
        let lease_live = run.as_ref().is_some_and(|run| run.lease_live);
        let detail = EffectDetail::of(&effect, lease_live, history);
        if self.json {
            out.json(&detail);
        } else {
            let person = run.is_some_and(|run| run.state == RunState::Halted);
            effect_text::print(out, &detail, &effect, person);
        }
        Ok(Exit::Done)
    }
}

impl Reconcile {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine =
            place.engine(place.ledger().await?, Arc::new(Watch::new(out, self.json))).await?;
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
        if runs.is_empty() && !self.json {
            out.line("no effect is of unknown outcome");
        }
        let mut exit = Exit::Done;
        let mut reports = Vec::new();
        for id in runs {
            let Some(record) = engine.ledger().run(&id).await? else { continue };
            let end = run::resume(engine, out, &record, self.wait, self.json).await?;
            if self.json {
                reports.push(run::outcome(&id, &end));
            } else {
                run::report(out, &id, &end, false);
            }
            if Exit::of_run(&end) != Exit::Done {
                exit = Exit::RunWaits;
            }
        }
        if self.json {
            out.json(&reports);
        }
        Ok(exit)
    }
}

impl Resolve {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let effect = find(engine.ledger().as_ref(), &self.effect).await?;
        let finding = if self.confirmed {
            let result = self.receipt.clone().unwrap_or_default();
            Finding::Confirmed { result, external_id: self.external_id.clone() }
        } else {
            Finding::Failed
        };
        let decision = self.decider.decision(&self.evidence);
        let effect = engine.resolve(&effect.id, finding, &decision).await?;
        settled(out, engine.ledger().as_ref(), &effect, self.json).await?;
        engine.ledger().close().await;
        Ok(Exit::Done)
    }
}

impl Conflict {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let engine = place.engine(place.ledger().await?, Arc::new(Watch::new(out, true))).await?;
        let effect = find(engine.ledger().as_ref(), &self.effect).await?;
        let rule = match (self.keep, self.fail) {
            (true, _) => ConflictRule::Keep,
            (false, true) => ConflictRule::Fail,
            (false, false) => ConflictRule::Renew,
        };
        let decision = self.decider.decision(&self.reason);
        let effect = engine.decide_conflict(&effect.id, rule, &decision).await?;
        settled(out, engine.ledger().as_ref(), &effect, self.json).await?;
        engine.ledger().close().await;
        Ok(Exit::Done)
    }
}

async fn settled(
    out: &Out,
    ledger: &dyn Ledger,
    effect: &Effect,
    as_json: bool,
) -> anyhow::Result<()> {
    if as_json {
        // No worker holds a run that a person decided about.
        out.json(&EffectDetail::of(effect, false, history(ledger, effect).await?));
        return Ok(());
    }
    out.status_line(
        &format!("effect {} is ", effect.id),
        effect.state.as_str(),
        &format!("; its run {} may go on: `twice runs resume {}`", effect.run, effect.run),
    );
    Ok(())
}

/// The effects of a run in the order in which they were first asked for.
async fn in_order(
    ledger: &dyn Ledger,
    run: &RunId,
    filter: EffectFilter,
) -> anyhow::Result<Vec<EffectRow>> {
    let mut first_seen: HashMap<EffectId, i64> = HashMap::new();
    let mut after = 0;
    loop {
        let page = ledger.history(run, after, PAGE_MAX).await?;
        for entry in &page {
            if let Some(effect) = &entry.effect {
                first_seen.entry(effect.clone()).or_insert(entry.seq);
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE_MAX as usize => after = last.seq,
            Some(_) | None => break,
        }
    }
    let place = |id: &EffectId| first_seen.get(id).copied().unwrap_or(i64::MAX);
    let begin = filter.after.as_ref().map_or(0, place);
    let mut rows = Vec::new();
    let mut all = EffectFilter { after: None, ..filter };
    loop {
        let page = ledger.effects(&all).await?;
        let full = page.len() == PAGE_MAX as usize;
        all.after = page.last().map(|row| row.id.clone());
        rows.extend(page.into_iter().filter(|row| place(&row.id) > begin));
        if !full {
            break;
        }
    }
    rows.sort_by_key(|row| place(&row.id));
    Ok(rows)
}

/// The entries about an effect, in their order; with those that say who settled it where it could not be undone, which are the
/// run's.
async fn history(ledger: &dyn Ledger, effect: &Effect) -> anyhow::Result<Vec<EntryView>> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let page = ledger.history(&effect.run, after, PAGE_MAX).await?;
        let about = |entry: &EntryView| {
            entry.effect_id.as_deref() == Some(effect.id.as_str()) || entry.settles(&effect.id)
        };
        found.extend(page.iter().map(EntryView::of).filter(about));
        match page.last() {
            Some(last) if page.len() == PAGE_MAX as usize => after = last.seq,
            Some(_) | None => return Ok(found),
        }
    }
}

/// The effect of that id, or the only one whose id begins so.
pub(super) async fn find(ledger: &dyn Ledger, given: &str) -> anyhow::Result<Effect> {
    if let Ok(id) = EffectId::parse(given.to_owned()) {
        let found = ledger.effect(&id).await?;
        return found.ok_or_else(|| absent(given));
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
