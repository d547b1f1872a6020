//! Runs a workflow against a simulated provider, kills its worker at every boundary in turn, resumes twice, and checks what
//! the ledger says against the provider's own books.
//!
//! Nothing here waits for a window to pass: worker, ledger and provider share a clock that stands still until the test
//! moves it. So every declared window counts in full, and a pause of two days costs nothing.

mod case;
mod checks;
mod findings;
pub mod provider;
mod report;
mod snapshot;
pub mod spec;
mod undisturbed;
pub mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;
use twice_core::ids::Name;
use twice_core::time::Timestamp;
use twice_ledger::LedgerError;
use twice_sandbox::SandboxError;
use twice_workflow::model::Definition;
use twice_workflow::plan::Graph;

pub use self::checks::{Check, Checks};
pub use self::findings::{Finding, Severity};
pub use self::report::{CaseReport, CutShort, Report, Verdict};

use self::case::{Outcome, Stage};
use self::checks::Baseline;
use self::provider::{Provider, Script};
use self::spec::{Action, CaseSpec, Place};
use self::worker::ComponentFile;
use crate::engine::EngineError;
use crate::engine::boundary::Boundary;
use crate::engine::operator::DecisionError;

/// Shortest pause between a crash and the resume: the lease must be over. Milliseconds.
pub const PAUSE_MIN_MS: u64 = 60_000;
/// When every case begins: a date like any other, always the same. Milliseconds since 1970.
const EPOCH: Timestamp = Timestamp(1_767_603_600_000);
/// How much later the second undisturbed run begins, which shows what depends on the time. Milliseconds.
const LATER_MS: u64 = 25 * 3_600_000 + 61_001;
/// Cases that are played at a time.
const CONCURRENT: usize = 2;
/// Most passings of one boundary that are tried; a workflow of a thousand effects shows nothing new after so many.
const OCCURRENCES_MAX: u32 = 24;
/// Most passings of a boundary in a recovery that are tried.
const RECOVERY_OCCURRENCES_MAX: u32 = 2;

/// What to test.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The definition, as a run would be pinned to.
    pub definition: Definition,
    /// The bytes of its components, by module name.
    pub components: BTreeMap<Name, Vec<u8>>,
    /// The run's input.
    pub input: Value,
    /// Time that goes by for the run between a crash and the resume, [`PAUSE_MIN_MS`] at least. Milliseconds.
    pub pause_ms: u64,
    /// Only crashes at this place.
    pub only: Option<Place>,
    /// What the provider is told beyond the tool files.
    pub script: Script,
    /// Where compiled components are kept.
    pub cache_dir: PathBuf,
    /// The program that has the worker's command.
    pub program: PathBuf,
}

/// Why a test could not be made. That something does not hold is no error but a result.
#[derive(Debug, thiserror::Error)]
pub enum CrashtestError {
    /// A file or process of the test.
    #[error("{path} cannot be used: {problem}")]
    File {
        /// Which.
        path: String,
        /// Why, in words.
        problem: String,
    },
    /// What the worker was told makes no sense to it.
    #[error("the worker's config is not usable: {0}")]
    Config(String),
    /// The provider cannot be reached.
    #[error("the simulated provider cannot be told the time: {0}")]
    Client(String),
    /// A worker ended as it must not.
    #[error("the worker of case `{case}` ended with {status}: {}", .said.trim())]
    Worker {
        /// The case.
        case: String,
        /// How it ended.
        status: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// The provider was asked, or has to answer, something that its declarations do not cover.
    #[error("{0}")]
    Provider(String),
    /// The ledger of a case.
    #[error("the ledger of a case failed")]
    Ledger(#[from] LedgerError),
    /// The engine of a worker.
    #[error("the run cannot go on")]
    Engine(#[from] EngineError),
    /// An approval could not be granted.
    #[error("an approval cannot be granted")]
    Approval(#[from] DecisionError),
    /// The sandbox of a worker.
    #[error("the sandbox cannot be set up")]
    Sandbox(#[from] SandboxError),
}

impl CrashtestError {
    /// Whether a worker found the ledger's file locked by another all the time that it tried.
    fn is_locked_out(&self) -> bool {
        matches!(self, Self::Worker { said, .. } if said.contains("database is locked"))
    }

    pub(crate) fn file(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::File { path: path.display().to_string(), problem: problem.to_string() }
    }
}

/// Whoever follows the test.
pub trait Follower {
    /// So many cases are known now.
    fn planned(&mut self, cases: usize);
    /// A case is over.
    fn done(&mut self, case: &CaseReport);
}

/// Makes the whole test. Where the run does not do its work even undisturbed, no crash is tried: nothing that came of it
/// would say anything.
///
/// # Errors
/// [`CrashtestError`] when it cannot be made.
pub async fn run(plan: &Plan, follower: &mut dyn Follower) -> Result<Report, CrashtestError> {
    let began = Instant::now();
    let dir = tempfile::tempdir()
        .map_err(|e| CrashtestError::file(Path::new("the temporary folder"), e))?;
    let stage = stage(plan, dir.path()).await?;
    let undisturbed = play(&stage, CaseSpec::UNDISTURBED, 0, EPOCH).await?;
    let later = play(&stage, CaseSpec::UNDISTURBED, 1, EPOCH.plus_ms(LATER_MS)).await?;
    let baseline = Baseline::of(&plan.definition.workflow, &undisturbed, &later);
    let mut sweep = Sweep {
        stage,
        baseline,
        number: 2,
        cases: Vec::new(),
        findings: Vec::new(),
        cut_short: Vec::new(),
    };
    let (specs, cut_short) = specs(plan, &undisturbed);
    let first = sweep.take(undisturbed);
    if first.broken.is_some() {
        follower.planned(1);
        follower.done(&first);
        return Ok(sweep.report(plan, began));
    }
    sweep.cut_short = cut_short;
    follower.planned(1 + specs.len());
    follower.done(&first);
    let deeper = sweep.play_all(&specs, follower).await?;
    let specs = in_recovery(plan, &deeper);
    follower.planned(sweep.cases.len() + specs.len());
    sweep.play_all(&specs, follower).await?;
    Ok(sweep.report(plan, began))
}

async fn stage<'a>(plan: &'a Plan, dir: &Path) -> Result<Stage<'a>, CrashtestError> {
    let mut components = BTreeMap::new();
    for (name, bytes) in &plan.components {
        let file = dir.join(format!("{name}.wasm"));
        std::fs::write(&file, bytes).map_err(|e| CrashtestError::file(&file, e))?;
        let all = plan.definition.all_components();
        let digest = all.filter(|(own, _)| *own == name).map(|(_, digest)| digest.clone()).next();
        let digest = digest.unwrap_or_default();
        components.insert(name.clone(), ComponentFile { digest, file });
    }
    let tools = plan.definition.all_tools().map(|tool| (tool.name.clone(), tool.clone()));
    let provider = Provider::start(tools.collect(), plan.script.clone())
        .await
        .map_err(|e| CrashtestError::file(Path::new("a local port"), e))?;
    Ok(Stage { plan, provider, components, dir: dir.to_path_buf() })
}

async fn play(
    stage: &Stage<'_>,
    spec: CaseSpec,
    number: usize,
    epoch: Timestamp,
) -> Result<Outcome, CrashtestError> {
    let mut outcome = stage.play(&spec, &format!("case-{number}"), epoch).await?;
    if !outcome.reached {
        // Requests under way together may be answered in another order: once more, from the start.
        outcome = stage.play(&spec, &format!("case-{number}-again"), epoch).await?;
    }
    match outcome.again.1.problems.first() {
        Some(problem) => Err(CrashtestError::Provider(problem.clone())),
        None => Ok(outcome),
    }
}

/// A crash at each passing of each boundary, and after each commit of the provider; and the places that are passed more
/// often than is tried.
fn specs(plan: &Plan, undisturbed: &Outcome) -> (Vec<CaseSpec>, Vec<CutShort>) {
    let mut specs = Vec::new();
    let mut cut_short = Vec::new();
    for place in Place::all().filter(|place| plan.only.is_none_or(|only| only == *place)) {
        let (count, actions): (u32, &[Action]) = match place {
            Place::AfterProviderCommit => {
                let commits = undisturbed.after.1.commits.len();
                (u32::try_from(commits).unwrap_or(u32::MAX), &[Action::Kill])
            }
            Place::Boundary(boundary) => (count(&undisturbed.passed, boundary), actions(boundary)),
        };
        for occurrence in 1..=count.min(OCCURRENCES_MAX) {
            let cases = actions.iter().map(|action| CaseSpec::one(place, occurrence, *action));
            specs.extend(cases);
        }
        if count > OCCURRENCES_MAX {
            cut_short.push(CutShort { place, passings: count, tried: OCCURRENCES_MAX });
        }
    }
    (specs, cut_short)
}

fn count(passed: &[String], boundary: Boundary) -> u32 {
    let passings = passed.iter().filter(|name| *name == boundary.as_str()).count();
    u32::try_from(passings).unwrap_or(u32::MAX)
}

/// A worker that is frozen with a request at hand is the one that could do harm when it wakes up.
const fn actions(boundary: Boundary) -> &'static [Action] {
    match boundary {
        Boundary::AfterRequestedCommit | Boundary::AfterReply => &[Action::Kill, Action::Freeze],
        Boundary::BeforeIntent
        | Boundary::AfterLock
        | Boundary::BeforeUnknown
        | Boundary::BeforeLookup
        | Boundary::AfterLookup
        | Boundary::BeforeCheckpoint
        | Boundary::AfterCheckpoint
        | Boundary::BeforePark
        | Boundary::AfterPark
        | Boundary::AfterClaim => &[Action::Kill],
    }
}

/// Boundaries that only a recovery passes, each after the first crash that led there.
fn in_recovery(plan: &Plan, deeper: &[(CaseSpec, Vec<String>)]) -> Vec<CaseSpec> {
    let mut specs = Vec::new();
    for boundary in Boundary::ALL {
        let wanted = plan.only.is_none_or(|only| only == Place::Boundary(boundary));
        if !wanted || specs_reach(deeper, boundary) {
            continue;
        }
        let led = deeper.iter().find(|(_, passed)| count(passed, boundary) > 0);
        let Some((spec, passed)) = led else { continue };
        for occurrence in 1..=count(passed, boundary).min(RECOVERY_OCCURRENCES_MAX) {
            specs.push(CaseSpec { first: spec.first, second: Some((boundary, occurrence)) });
        }
    }
    specs
}

fn specs_reach(deeper: &[(CaseSpec, Vec<String>)], boundary: Boundary) -> bool {
    deeper.iter().any(|(spec, _)| spec.place() == Some(Place::Boundary(boundary)))
}

/// The test under way.
struct Sweep<'a> {
    stage: Stage<'a>,
    baseline: Baseline,
    number: usize,
    cases: Vec<CaseReport>,
    findings: Vec<Finding>,
    cut_short: Vec<CutShort>,
}

impl Sweep<'_> {
    /// Plays cases, some at a time; what the killed ones passed while they recovered is for the next round.
    async fn play_all(
        &mut self,
        specs: &[CaseSpec],
        follower: &mut dyn Follower,
    ) -> Result<Vec<(CaseSpec, Vec<String>)>, CrashtestError> {
        let from = self.number;
        self.number += specs.len();
        let mut outcomes = Vec::with_capacity(specs.len());
        {
            let stage = &self.stage;
            let mut playing = stream::iter(specs.iter().enumerate())
                .map(|(index, spec)| async move {
                    (index, play(stage, *spec, from + index, EPOCH).await)
                })
                .buffer_unordered(CONCURRENT);
            while let Some((index, outcome)) = playing.next().await {
                let outcome = outcome?;
                follower.done(&CaseReport::of(&outcome, &self.baseline));
                outcomes.push((index, outcome));
            }
        }
        // The report is in the order of the boundaries, whatever finished first.
        outcomes.sort_by_key(|(index, _)| *index);
        let mut deeper = Vec::new();
        for (_, outcome) in outcomes {
            let by_kill = outcome.spec.first.is_some_and(|crash| crash.action == Action::Kill);
            let next = (outcome.spec, outcome.passed_resuming.clone());
            self.take(outcome);
            if by_kill {
                deeper.push(next);
            }
        }
        Ok(deeper)
    }

    fn take(&mut self, outcome: Outcome) -> CaseReport {
        let pause_ms = self.stage.plan.pause_ms;
        let workflow = &self.stage.plan.definition.workflow;
        let concurrent = Graph::of(workflow).is_concurrent(workflow);
        let known = (&self.baseline, concurrent);
        findings::collect(&mut self.findings, &outcome, known, pause_ms);
        let report = CaseReport::of(&outcome, &self.baseline);
        self.cases.push(report.clone());
        report
    }

    fn report(self, plan: &Plan, began: Instant) -> Report {
        let reached = |place: &Place| self.cases.iter().any(|case| case.place == Some(*place));
        let wanted = |place: &Place| plan.only.is_none_or(|only| only == *place);
        let tried = self.cases.iter().all(|case| case.broken.is_none());
        let not_reached =
            Place::all().filter(|place| tried && wanted(place) && !reached(place)).collect();
        let mut findings = self.findings;
        findings.sort_by_key(|finding| finding.severity);
        Report {
            workflow: plan.definition.workflow.name.to_string(),
            version: plan.definition.workflow.version,
            effects: self.baseline.effects.len(),
            pause_ms: plan.pause_ms,
            cases: self.cases,
            not_reached,
            cut_short: self.cut_short,
            findings,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}
