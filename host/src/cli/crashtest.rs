//! `twice crashtest`

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use serde_json::Value;
use twice_core::limits::PAYLOAD_BYTES_MAX;
use twice_workflow::model::Definition;
use twice_workflow::units::duration_text;

use super::exit::Exit;
use super::given;
use super::open::{self, Place};
use super::out::Out;
use super::run::{check_input, read_input};
use super::signals::Askings;
use super::term::{Column, Progress};
use crate::crashtest::provider::Script;
use crate::crashtest::worker::{WorkerConfig, work};
use crate::crashtest::{
    self, CaseReport, Finding, Follower, Plan, Report, Severity, Verdict, spec,
};

/// How long a run is left alone after a crash unless the command says otherwise.
const PAUSE: &str = "60s";

/// Kill a workflow's worker at every boundary, resume twice, and check what comes of it.
///
/// The workflow runs with its own components against a provider simulated from its tool files; nothing is sent to a real
/// one.
#[derive(Debug, Args)]
pub(super) struct Crashtest {
    /// The workflow
    workflow: String,
    /// Its input: a JSON text, or a file that holds one (`-`: standard input)
    #[arg(long, value_name = "FILE|JSON")]
    input: String,
    /// Time that goes by for the run between a crash and the resume, e.g. 48h; the test does not wait for it
    #[arg(long, value_name = "DURATION", default_value = PAUSE, value_parser = given::pause_ms)]
    pause: u64,
    /// Only crash at this boundary
    #[arg(long, value_name = "NAME", value_parser = given::boundary)]
    boundary: Option<spec::Place>,
    /// Have the provider refuse this operation for good, e.g. shipments.create, so that the run has to find a way back; may be
    /// given several times
    #[arg(long, value_name = "TOOL.OPERATION")]
    refuse: Vec<String>,
    /// Write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// The worker of a crash test, which is started by it.
#[derive(Debug, Args)]
pub(super) struct CrashtestWorker {
    /// What it is to do
    config: PathBuf,
}

impl Crashtest {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let plan = self.plan(out, place).await?;
        let mut follower = Bar { out: out.clone(), progress: None };
        let mut askings = Askings::listen()?;
        let report = tokio::select! {
            report = crashtest::run(&plan, &mut follower) => report?,
            // What it started is killed with it; a worker that is frozen would stay for ever.
            () = askings.more_than(0) => bail!("interrupted; nothing is left behind"),
        };
        follower.finish();
        if let Some(file) = &self.junit {
            write(file, &report.to_junit())?;
        }
        if let Some(file) = &self.report {
            write(file, &format!("{:#}\n", report.to_json()))?;
        }
        if self.json {
            out.json(&report.to_json());
        } else {
            show(out, &report);
        }
        Ok(match report.verdict() {
            Verdict::Holds => Exit::Done,
            Verdict::NeedsPerson => Exit::RunWaits,
            Verdict::Violated => Exit::RunFailed,
        })
    }

    async fn plan(&self, out: &Out, place: &Place) -> anyhow::Result<Plan> {
        let (pause_ms, only) = (self.pause, self.boundary);
        let project = place.project(out)?;
        let root = place.root()?;
        let ledger = place.ledger().await?;
        let definition = open::define(&project, ledger.as_ref(), &self.workflow).await?;
        let input = read_input(&self.input)?;
        check_input(&definition, &input)?;
        let mut components = BTreeMap::new();
        for (name, digest) in definition.all_components() {
            let bytes = ledger.module_bytes(digest).await?;
            let bytes = bytes.ok_or_else(|| {
                anyhow!("component `{name}` is not in the ledger\nfix: register it again with `twice node add {name} FILE.wasm`")
            })?;
            components.insert(name.clone(), bytes);
        }
        ledger.close().await;
        let examples = examples(&root, &definition)?;
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let cache_dir = root.join(".twice").join("compiled");
        let script = Script { examples, refuse: refused(&self.refuse, &definition)? };
        Ok(Plan { definition, components, input, pause_ms, only, script, cache_dir, program })
    }
}

impl CrashtestWorker {
    pub(super) async fn run(&self) -> anyhow::Result<Exit> {
        let text = std::fs::read_to_string(&self.config)
            .with_context(|| format!("cannot read {}", self.config.display()))?;
        let config: WorkerConfig = serde_json::from_str(&text)
            .with_context(|| format!("{} is no worker's config", self.config.display()))?;
        work(&config).await?;
        Ok(Exit::Done)
    }
}

/// The operations that are to be refused.
///
/// # Errors
/// When the workflow uses no such operation.
fn refused(names: &[String], definition: &Definition) -> anyhow::Result<BTreeSet<String>> {
    let known: BTreeSet<String> = definition
        .all_tools()
        .flat_map(|tool| {
            tool.operations.keys().map(move |operation| format!("{}.{operation}", tool.name))
        })
        .collect();
    if let Some(name) = names.iter().find(|name| !known.contains(*name)) {
        let list: Vec<&str> = known.iter().map(String::as_str).collect();
        bail!(
            "--refuse {name}: the tools of workflow `{}` have no such operation\nfix: name one of {}",
            definition.workflow.name,
            list.join(", ")
        );
    }
    Ok(names.iter().cloned().collect())
}

/// `examples/<tool>.<operation>.json`, for each operation that the workflow may use and that has one.
fn examples(root: &Path, definition: &Definition) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut examples = BTreeMap::new();
    for tool in definition.all_tools() {
        for operation in tool.operations.keys() {
            let name = format!("{}.{operation}", tool.name);
            let file = root.join("examples").join(format!("{name}.json"));
            if !file.is_file() {
                continue;
            }
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let example = twice_core::json::parse(&text, PAYLOAD_BYTES_MAX)
                .with_context(|| format!("{} is not strict JSON", file.display()))?;
            examples.insert(name, example);
        }
    }
    Ok(examples)
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    if file.is_dir() {
        bail!("{} is a folder\nfix: name a file", file.display());
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Progress, a step for each case.
struct Bar {
    out: Out,
    progress: Option<Progress>,
}

impl Follower for Bar {
    fn planned(&mut self, cases: usize) {
        match &mut self.progress {
            Some(progress) => progress.set_steps(cases as u64),
            None => self.progress = Some(self.out.progress("crashtest", Some(cases as u64))),
        }
    }

    fn done(&mut self, case: &CaseReport) {
        if let Some(progress) = &mut self.progress {
            progress.step(&format!("{}: {}", case.title(), case.word()));
        }
    }
}

impl Bar {
    fn finish(self) {
        if let Some(progress) = self.progress {
            progress.finish();
        }
    }
}

fn show(out: &Out, report: &Report) {
    let broken = report.broken();
    if let Some(Finding { message, fix, .. }) = broken {
        out.line(message);
        out.line(&format!("fix: {fix}"));
    }
    let rows: Vec<Vec<String>> = report.cases.iter().map(row).collect();
    out.title(&format!("Crash test of {} version {}", report.workflow, report.version));
    let columns = [
        Column::id("BOUNDARY"),
        Column::text("#"),
        Column::text("ACTION"),
        Column::status("AT MOST ONCE"),
        Column::status("DETERMINABLE"),
        Column::status("RECONCILED"),
        Column::status("RECEIPTS"),
        Column::status("NO NEW ACTION"),
        Column::status("RUN"),
        Column::text("RECOVERY"),
    ];
    out.table(&columns, &rows);
    if !report.not_reached.is_empty() {
        let names: Vec<&str> = report.not_reached.iter().map(|place| place.as_str()).collect();
        out.line(&format!("not reached with this input: {}", names.join(", ")));
    }
    for cut in &report.cut_short {
        out.line(&format!(
            "{}: passed {} times, of which the first {} were tried",
            cut.place.as_str(),
            cut.passings,
            cut.tried
        ));
    }
    show_violations(out, report);
    let others = report.findings.iter().filter(|finding| Some(*finding) != broken);
    others.for_each(|finding| show_finding(out, finding));
    summary(out, report);
}

/// What does not hold, each reason once, with the cases that show it.
fn show_violations(out: &Out, report: &Report) {
    let mut cases_by_reason: BTreeMap<(usize, &str, &str), Vec<String>> = BTreeMap::new();
    for case in &report.cases {
        for (order, (name, check)) in case.checks.all().into_iter().enumerate() {
            for reason in check.reasons() {
                cases_by_reason.entry((order, name, reason)).or_default().push(case.title());
            }
        }
    }
    if !cases_by_reason.is_empty() {
        out.title("Does not hold");
    }
    for ((_, name, reason), cases) in cases_by_reason {
        out.line(&format!("{}: {reason}", name.replace('_', " ")));
        let more = match cases.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        out.line(&format!("  in: {}{more}", cases.first().map_or("", String::as_str)));
    }
}

fn row(case: &CaseReport) -> Vec<String> {
    let mut row = vec![
        case.boundary().to_owned(),
        case.occurrence.map_or_else(String::new, |occurrence| occurrence.to_string()),
        case.action.clone(),
    ];
    row.extend(case.checks.all().map(|(_, check)| check.as_str().to_owned()));
    row.push(case.run_word().to_owned());
    row.push(match case.place {
        Some(_) => format!("{} ms", case.recovery_ms),
        None => String::new(),
    });
    row
}

fn show_finding(out: &Out, finding: &Finding) {
    out.title(match finding.severity {
        Severity::Violation => "Must be changed",
        Severity::Person => "Would need a person",
        Severity::Note => "Worth knowing",
    });
    out.line(&finding.message);
    out.line(&format!("fix: {}", finding.fix));
    out.line(&format!("first seen: {}", finding.seen_in));
}

fn summary(out: &Out, report: &Report) {
    let count = |word: &str| report.cases.iter().filter(|case| case.word() == word).count();
    let places: std::collections::BTreeSet<&str> =
        report.cases.iter().filter_map(|case| Some(case.place?.as_str())).collect();
    out.title("Result");
    out.line(&format!(
        "{} cases at {} boundaries, {} effect(s), in {} s; {} between a crash and the resume",
        report.cases.len(),
        places.len(),
        report.effects,
        report.took_ms.div_ceil(1_000),
        duration_text(report.pause_ms)
    ));
    if report.broken().is_some() {
        out.line("the run does not do its work even without a crash, so that no crash was tried");
        return;
    }
    out.line(match report.verdict() {
        Verdict::Holds => "everything holds, and nobody is needed",
        Verdict::NeedsPerson => "everything holds; in some cases a person would be needed",
        Verdict::Violated => "something does not hold",
    });
    out.line(&format!(
        "held {}, needing a person {}, violated {}, skipped {}",
        count("held"),
        count("person"),
        count("violated"),
        count("skipped")
    ));
}
