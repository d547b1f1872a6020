//! `twice run`

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use twice_core::ids::RunId;
use twice_core::limits::PAYLOAD_BYTES_MAX;
use twice_core::run::{Priority, RunState};
use twice_ledger::RunRecord;
use twice_workflow::Project;
use twice_workflow::model::Definition;
use twice_workflow::schema::Schema;

use super::exit::Exit;
use super::given;
use super::open::{self, Place};
use super::out::Out;
use super::progress::Watch;
use super::signals::Askings;
use crate::engine::NEEDS_PERSON;
use crate::engine::{Engine, RESTARTED, RunEnd, StartRun, StartedRun};

/// How long an interrupted command waits for what is under way before it leaves the run to its lease.
const GIVE_BACK: Duration = Duration::from_millis(500);

/// Start a run (or find it started) and run it until it ends or waits.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// The workflow
    workflow: String,
    /// Its input: a JSON text, or a file that holds one (`-`: standard input)
    #[arg(long, value_name = "FILE|JSON")]
    input: String,
    /// The run's id; starting the same run again finds it instead (default: drawn)
    #[arg(long, value_parser = given::run_id)]
    run_id: Option<RunId>,
    /// Your own key for this run: starting again with it finds the same run
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// How urgent it is among the runs that wait for a worker: -9 to 9, the greater first
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        allow_negative_numbers = true,
        value_parser = given::priority
    )]
    priority: Priority,
    /// Start it and leave it to a worker (`twice worker`) or to `runs resume`
    #[arg(long)]
    detach: bool,
    /// How long to stay with a run that waits for an instant before leaving it to a later `runs resume`
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl Run {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let project = place.project(out)?;
        let input = read_input(&self.input)?;
        let watch = Arc::new(Watch::new(out, self.json));
        let engine = place.engine(place.ledger_to_fill().await?, watch).await?;
        let done = self.run_on(&engine, out, &project, input).await;
        open::take_leave(&engine, out).await;
        done
    }

    async fn run_on(
        &self,
        engine: &Engine,
        out: &Out,
        project: &Project,
        input: Value,
    ) -> anyhow::Result<Exit> {
        let definition = open::define(project, engine.ledger().as_ref(), &self.workflow).await?;
        // What is said of the input from here on must not repeat a secret.
        engine.learn_secrets(&definition);
        check_input(&definition, &input)?;
        if !self.detach {
            check_settings(engine, &definition)?;
        }
        let id = match &self.run_id {
            Some(id) => id.clone(),
            None => RunId::parse(format!("run-{}", open::random_word()?))?,
        };
        let start = StartRun {
            id: id.clone(),
            caller_key: self.key.clone(),
            input,
            priority: self.priority,
            claim: !self.detach,
        };
        let (id, end) = match engine.start(&definition, start).await? {
            StartedRun::Created(Some(held)) => {
                if !self.json {
                    out.line(&format!("run {id} of {} started", self.workflow));
                }
                let going = async {
                    let end = engine.run_held(held).await?;
                    stay(engine, out, &id, end, self.wait, false, self.json).await
                };
                match unless_interrupted(engine, out, &id, self.json, going).await? {
                    Some(end) => (id.clone(), end),
                    None => return Ok(Exit::Interrupted),
                }
            }
            StartedRun::Created(None) => {
                if !self.json {
                    out.line(&format!("run {id} of {} started", self.workflow));
                }
                self.report_detached(out, &id, RunState::Ready);
                return Ok(Exit::Done);
            }
            StartedRun::Existing(record) => {
                if !self.json {
                    out.line(&format!(
                        "run {} was started before; it is {}",
                        record.id, record.state
                    ));
                }
                if self.detach && !record.state.is_final() {
                    self.report_detached(out, &record.id, record.state);
                    return Ok(Exit::Done);
                }
                let end = if self.detach {
                    engine.standing(&record.id).await?
                } else {
                    let going = resume(engine, out, &record, self.wait, self.json);
                    match unless_interrupted(engine, out, &record.id, self.json, going).await? {
                        Some(end) => end,
                        None => return Ok(Exit::Interrupted),
                    }
                };
                (record.id, end)
            }
        };
        report(out, &id, &end, self.json);
        Ok(Exit::of_run(&end))
    }
}

impl Run {
    /// A run that is left to others: the same, however often it is asked for.
    fn report_detached(&self, out: &Out, id: &RunId, state: RunState) {
        if self.json {
            out.json(&json!({ "run_id": id.as_str(), "state": state.as_str() }));
        } else {
            out.line(&format!("a worker runs it (`twice worker`), or `twice runs resume {id}`"));
        }
    }
}

/// What comes of running a run; nothing when Ctrl-C or SIGTERM ends it, which is said. The run is given back then, unless
/// something of it is still under way.
pub(super) async fn unless_interrupted(
    engine: &Engine,
    out: &Out,
    id: &RunId,
    as_json: bool,
    going: impl Future<Output = anyhow::Result<RunEnd>>,
) -> anyhow::Result<Option<RunEnd>> {
    let mut askings = Askings::listen()?;
    tokio::select! {
        end = going => return end.map(Some),
        () = askings.more_than(0) => {}
    }
    let why = "interrupted";
    out.warn(&format!("{why}; run {id} goes on with `twice runs resume {id}`"));
    let settled = tokio::select! {
        settled = tokio::time::timeout(GIVE_BACK, engine.settle_late()) => settled.is_ok(),
        () = askings.more_than(1) => false,
    };
    if settled && let Err(error) = engine.give_back_family(id, why).await {
        out.warn(&format!("the run could not be given back, its lease runs out soon: {error}"));
    }
    if as_json {
        out.json(&json!({
            "run_id": id.as_str(), "state": "interrupted", "output": null, "reason": why, "due_at": null,
        }));
    }
    Ok(None)
}

/// Takes an existing run on, if it can go on: waits for a dead lease to run out, and for what it waits for.
pub(super) async fn resume(
    engine: &Engine,
    out: &Out,
    record: &RunRecord,
    wait_s: u64,
    quiet: bool,
) -> anyhow::Result<RunEnd> {
    match record.state {
        RunState::Completed
        | RunState::Failed
        | RunState::Cancelled
        | RunState::Halted
        | RunState::Stuck
        | RunState::Quarantined => {
            return Ok(engine.standing(&record.id).await?);
        }
        RunState::Ready | RunState::Running | RunState::Waiting => {}
    }
    let end = engine.resume(&record.id, true).await?;
    stay(engine, out, &record.id, end, wait_s, true, quiet).await
}

/// How often a run is looked at whose children others run. Milliseconds.
const CHILDREN_LOOK_MS: u64 = 500;

/// Stays with a run that waits for an instant or a lease, for so long, and runs what it started itself. `early`: children that
/// wait are taken before they are due, the first time.
async fn stay(
    engine: &Engine,
    out: &Out,
    id: &RunId,
    mut end: RunEnd,
    wait_s: u64,
    mut early: bool,
    quiet: bool,
) -> anyhow::Result<RunEnd> {
    let give_up = engine.ledger().now().await?.plus_ms(wait_s.saturating_mul(1_000));
    let mut told = String::new();
    loop {
        let now = engine.ledger().now().await?;
        let (until, why) = match &end {
            RunEnd::Waiting { until, why } => (*until, why.clone()),
            RunEnd::Elsewhere => {
                let why =
                    "another worker holds the run; if that worker is gone, its lease runs out soon";
                (now.plus_ms(250), why.to_owned())
            }
            RunEnd::Completed(_)
            | RunEnd::Failed { .. }
            | RunEnd::Cancelled { .. }
            | RunEnd::Stuck { .. }
            | RunEnd::Halted { .. }
            | RunEnd::Quarantined => return Ok(end),
        };
        let children = engine.resume_descendants(id, std::mem::replace(&mut early, false)).await?;
        if children.taken > 0 {
            end = engine.resume(id, false).await?;
            continue;
        }
        // Nothing goes on by itself that this run waits for.
        if children.due.is_none() && why.starts_with(NEEDS_PERSON) {
            return Ok(end);
        }
        // What others run may be over before this run would look for itself.
        let look = now.plus_ms(CHILDREN_LOOK_MS);
        let until = children.due.map_or(until, |due| until.min(due.max(look)));
        if until > give_up {
            return Ok(end);
        }
        if told != why && !quiet {
            // How the step failed was said when it did.
            let shown = if why.starts_with(RESTARTED) { RESTARTED } else { &why };
            out.line(&format!("waiting: {shown}"));
            told = why;
        }
        let pause = until.ms_since(now).max(10);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        end = engine.resume(id, false).await?;
    }
}

/// How a run ended, as a document.
pub(super) fn outcome(id: &RunId, end: &RunEnd) -> Value {
    let (state, output, why, due) = match end {
        RunEnd::Completed(output) => ("completed", Some(output.clone()), None, None),
        RunEnd::Failed { why } => ("failed", None, Some(why.clone()), None),
        RunEnd::Cancelled { why } => ("cancelled", None, Some(why.clone()), None),
        RunEnd::Stuck { why } => ("stuck", None, Some(why.clone()), None),
        RunEnd::Waiting { until, why } => {
            ("waiting", None, Some(why.clone()), Some(until.to_string()))
        }
        RunEnd::Halted { why } => ("halted", None, Some(why.clone()), None),
        RunEnd::Quarantined => ("quarantined", None, None, None),
        RunEnd::Elsewhere => ("running", None, None, None),
    };
    json!({
        "run_id": id.as_str(), "state": state, "output": output, "reason": why, "due_at": due,
    })
}

/// Says how a run ended.
pub(super) fn report(out: &Out, id: &RunId, end: &RunEnd, as_json: bool) {
    if as_json {
        out.json(&outcome(id, end));
        return;
    }
    match end {
        RunEnd::Completed(output) => out.line(&format!("run {id} completed: {output}")),
        RunEnd::Failed { why } => out.line(&format!("run {id} failed: {why}")),
        RunEnd::Cancelled { why } => out.line(&format!("run {id} is cancelled: {why}")),
        RunEnd::Stuck { why } => out.line(&format!("run {id} is stuck: {why}")),
        RunEnd::Waiting { until, why } => out.line(&format!(
            "run {id} waits until {until}: {why}\ngo on then with `twice runs resume {id}`"
        )),
        RunEnd::Halted { why } => out.line(&format!("run {id} needs a person: {why}")),
        RunEnd::Quarantined => out.line(&format!(
            "run {id} is in quarantine: it killed its worker {} times in a row\nfind out why, then `twice runs release {id} --reason 'WHY'`",
            twice_core::limits::CRASHES_MAX
        )),
        RunEnd::Elsewhere => out.line(&format!(
            "run {id} is held by another worker; if that worker is gone, its lease runs out soon\ngo on then with `twice runs resume {id}`"
        )),
    }
}

/// The input that an argument gives: a JSON text, or a file that holds one.
///
/// # Errors
/// When there is none, or it is not strict JSON.
pub(super) fn read_input(given: &str) -> anyhow::Result<Value> {
    let (what, text) = if given == "-" {
        let text = std::io::read_to_string(std::io::stdin().lock());
        ("standard input".to_owned(), text.context("cannot read the input from standard input")?)
    } else if given.trim_start().starts_with(['{', '[', '"']) {
        ("--input".to_owned(), given.to_owned())
    } else {
        let text = std::fs::read_to_string(Path::new(given)).with_context(|| {
            format!("cannot read the input file {given}\nfix: give a file that exists, or the JSON itself, as in --input '{{\"order_id\": \"order-42\"}}'")
        })?;
        (given.to_owned(), text)
    };
    twice_core::json::parse(&text, PAYLOAD_BYTES_MAX)
        .with_context(|| format!("the input in {what} is not strict JSON"))
}

/// Looks whether this worker could perform the effects that it is about to start a run for.
///
/// # Errors
/// When a setting is missing or wrong, with everything that is.
fn check_settings(engine: &Engine, definition: &Definition) -> anyhow::Result<()> {
    let missing = engine.missing_settings(definition);
    if missing.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = missing.iter().map(|problem| format!("  - {problem}")).collect();
    bail!(
        "workflow `{}` could not perform its effects; nothing was started\n{}\nfix: set what is missing, or start the run for another worker with --detach",
        definition.workflow.name,
        lines.join("\n")
    )
}

/// Holds an input against the workflow's schema.
///
/// # Errors
/// When it does not fit, with everything that is wrong.
pub(super) fn check_input(definition: &Definition, input: &Value) -> anyhow::Result<()> {
    let Some(schema) = &definition.workflow.input_schema else { return Ok(()) };
    let schema = Schema::compile(schema)?;
    if let Err(problems) = schema.check(input) {
        let lines: Vec<String> =
            problems.iter().map(|p| format!("  - input{}: {}", p.pointer, p.message)).collect();
        bail!(
            "the input does not fit workflow `{}`; nothing was started\n{}\nfix: correct the input, or the schema that `input` of the workflow names",
            definition.workflow.name,
            lines.join("\n")
        );
    }
    Ok(())
}
