//! One case: a fresh ledger and fresh books, a crash, a resume, another resume.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::{Child, Command};
use twice_core::ids::Name;
use twice_core::time::Timestamp;
use twice_workflow::model::{Definition, ToolKind};

use super::provider::{Books, Case as Desk, Provider};
use super::snapshot::Snapshot;
use super::spec::{Action, CaseSpec, Place};
use super::worker::{ComponentFile, StopAt, WorkerConfig};
use super::{CrashtestError, Plan};

/// Longest time for any one thing that a worker is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// The lease of a worker that is frozen: it is really waited for, as the worker itself counts in real time. Milliseconds.
const LEASE_FROZEN_MS: u64 = 1_000;
/// How often a case is played at most whose worker is frozen in the midst of a write.
const FREEZES_MAX: u32 = 8;
/// The lease of other workers; it runs out by the case's clock, during the pause. Milliseconds.
const LEASE_MS: u64 = super::PAUSE_MIN_MS - 1_000;

/// What all cases share.
pub(super) struct Stage<'a> {
    pub(super) plan: &'a Plan,
    pub(super) provider: Provider,
    /// The components, written to files.
    pub(super) components: BTreeMap<Name, ComponentFile>,
    /// Where cases keep their files.
    pub(super) dir: PathBuf,
}

/// What became of a case.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) spec: CaseSpec,
    /// Whether the worker reached the place and stopped there.
    pub(super) reached: bool,
    /// The ledger and the books before any worker ran again.
    pub(super) before: Option<(Snapshot, Books)>,
    /// After the first resume.
    pub(super) after: (Snapshot, Books),
    /// After the second.
    pub(super) again: (Snapshot, Books),
    /// Boundaries passed by the first worker.
    pub(super) passed: Vec<String>,
    /// Boundaries passed by the worker that resumed.
    pub(super) passed_resuming: Vec<String>,
    /// Real time of the resume, its process included. Milliseconds.
    pub(super) recovery_ms: u64,
    /// Time that went by for the run between the crash and its end, by its own clock. Milliseconds.
    pub(super) waited_ms: u64,
}

/// A case under way.
struct Play<'a> {
    stage: &'a Stage<'a>,
    spec: CaseSpec,
    id: String,
    dir: PathBuf,
    desk: Arc<Desk>,
    definition: String,
    secrets: BTreeMap<String, String>,
    workers: u32,
}

impl Stage<'_> {
    /// Plays a case; `id` tells it from the others, `epoch` is when it begins.
    ///
    /// A worker may be frozen in the midst of a write, of a renewal of its lease, say. SQLite's file is then locked for as long as
    /// it is frozen, and nobody can take the run over: that says nothing about the run, so the case is played anew.
    pub(super) async fn play(
        &self,
        spec: &CaseSpec,
        id: &str,
        epoch: Timestamp,
    ) -> Result<Outcome, CrashtestError> {
        let freezes = spec.first.is_some_and(|crash| crash.action == Action::Freeze);
        let mut tries = 1;
        loop {
            let outcome = self.play_once(spec, &format!("{id}-{tries}"), epoch).await;
            match outcome {
                Err(error) if freezes && error.is_locked_out() && tries < FREEZES_MAX => tries += 1,
                outcome => return outcome,
            }
        }
    }

    async fn play_once(
        &self,
        spec: &CaseSpec,
        id: &str,
        epoch: Timestamp,
    ) -> Result<Outcome, CrashtestError> {
        let (spec, id) = (*spec, id.to_owned());
        let dir = self.dir.join(&id);
        std::fs::create_dir_all(&dir).map_err(|e| CrashtestError::file(&dir, e))?;
        let hold = spec.first.and_then(|crash| match crash.place {
            Place::AfterProviderCommit => Some(crash.occurrence as usize),
            Place::Boundary(_) => None,
        });
        let desk = self.provider.open(&id, Books::new(epoch, hold));
        let (definition, secrets) = self.definition(&id);
        let definition = definition.to_text();
        let mut play = Play { stage: self, spec, id, dir, desk, definition, secrets, workers: 0 };
        let outcome = play.run().await;
        if outcome.is_ok() {
            // What is left of a case that went as it should is of no use; a failure to tidy up is no failure.
            let _ = std::fs::remove_dir_all(&play.dir);
        }
        outcome
    }

    /// The definition with every tool at the simulated provider, and a value for each secret.
    fn definition(&self, case: &str) -> (Definition, BTreeMap<String, String>) {
        let mut definition = self.plan.definition.clone();
        let mut secrets = BTreeMap::new();
        self.turn(case, &mut definition, &mut secrets);
        (definition, secrets)
    }

    /// Turns the tools of a definition and of its children to the simulated provider.
    fn turn(
        &self,
        case: &str,
        definition: &mut Definition,
        secrets: &mut BTreeMap<String, String>,
    ) {
        for tool in definition.tools.values_mut() {
            *tool = self.provider.in_place_of(case, tool);
            let ToolKind::Http(http) = &tool.kind;
            for reference in http.secrets.values() {
                let made_up = format!("made-up-secret-{}", secrets.len());
                secrets.entry(reference.clone()).or_insert(made_up);
            }
        }
        for child in definition.children.values_mut() {
            self.turn(case, &mut child.definition, secrets);
            child.digest = child.definition.digest();
        }
    }
}

impl Play<'_> {
    async fn run(&mut self) -> Result<Outcome, CrashtestError> {
        let started = self.now();
        let Some(crash) = self.spec.first else { return self.undisturbed().await };
        let (reached, frozen) = match (crash.place, crash.action) {
            (Place::AfterProviderCommit, _) => (self.kill_while_held().await?, None),
            (Place::Boundary(at), Action::Kill) => {
                let stop = stop_at(at.as_str(), crash.occurrence, "KILL");
                let worker = self.worker(Some(stop), LEASE_MS)?;
                (killed(self.finish(worker).await?), None)
            }
            (Place::Boundary(at), Action::Freeze) => {
                let stop = stop_at(at.as_str(), crash.occurrence, "STOP");
                self.freeze(stop).await?
            }
        };
        let passed = self.passed(self.workers)?;
        self.pause();
        let before = (self.snapshot().await?, self.desk.books().clone());
        if let Some((at, occurrence)) = self.spec.second {
            let worker = self.worker(Some(stop_at(at.as_str(), occurrence, "KILL")), LEASE_MS)?;
            let again = killed(self.finish(worker).await?);
            self.pause();
            if !again {
                return self.rest(false, started, before, passed).await;
            }
        }
        let mut outcome = self.rest(reached, started, before, passed).await?;
        if let Some(zombie) = frozen {
            // It wakes up after the other worker took the run: nothing it does may change anything.
            self.thaw(zombie).await?;
            outcome.again = (self.snapshot().await?, self.desk.books().clone());
        }
        Ok(outcome)
    }

    /// Resumes twice and looks at what is there.
    async fn rest(
        &mut self,
        reached: bool,
        started: Timestamp,
        before: (Snapshot, Books),
        passed: Vec<String>,
    ) -> Result<Outcome, CrashtestError> {
        let began = Instant::now();
        let worker = self.worker(None, LEASE_MS)?;
        self.succeed(worker).await?;
        let recovery_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let passed_resuming = self.passed(self.workers)?;
        let after = (self.snapshot().await?, self.desk.books().clone());
        let waited_ms = self.now().ms_since(started);
        let worker = self.worker(None, LEASE_MS)?;
        self.succeed(worker).await?;
        let again = (self.snapshot().await?, self.desk.books().clone());
        Ok(Outcome {
            spec: self.spec,
            reached,
            before: Some(before),
            after,
            again,
            passed,
            passed_resuming,
            recovery_ms,
            waited_ms,
        })
    }

    async fn undisturbed(&mut self) -> Result<Outcome, CrashtestError> {
        let started = self.now();
        let worker = self.worker(None, LEASE_MS)?;
        self.succeed(worker).await?;
        let passed = self.passed(self.workers)?;
        let after = (self.snapshot().await?, self.desk.books().clone());
        let waited_ms = self.now().ms_since(started);
        let worker = self.worker(None, LEASE_MS)?;
        self.succeed(worker).await?;
        let again = (self.snapshot().await?, self.desk.books().clone());
        Ok(Outcome {
            spec: self.spec,
            reached: true,
            before: None,
            after,
            again,
            passed,
            passed_resuming: Vec::new(),
            recovery_ms: 0,
            waited_ms,
        })
    }

    /// The provider does what it is asked and holds its answer back; the worker is killed meanwhile.
    async fn kill_while_held(&mut self) -> Result<bool, CrashtestError> {
        let mut worker = self.worker(None, LEASE_MS)?;
        let held = tokio::select! {
            () = self.desk.held() => true,
            ended = worker.child.wait() => {
                ended.map_err(|e| CrashtestError::file(Path::new("worker"), e))?;
                false
            }
            () = tokio::time::sleep(PATIENCE) => false,
        };
        if held {
            worker.child.kill().await.map_err(|e| CrashtestError::file(Path::new("worker"), e))?;
        }
        self.desk.books().hold = None;
        Ok(held)
    }

    /// Freezes a worker for longer than its lease.
    async fn freeze(&mut self, stop: StopAt) -> Result<(bool, Option<Worker>), CrashtestError> {
        let mut worker = self.worker(Some(stop.clone()), LEASE_FROZEN_MS)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let passed = self.passed(self.workers)?;
            let count = passed.iter().filter(|name| **name == stop.boundary).count();
            if count >= stop.occurrence as usize {
                break;
            }
            let ended = worker.child.try_wait();
            if ended.map_err(|e| CrashtestError::file(Path::new("worker"), e))?.is_some() {
                return Ok((false, None));
            }
            if Instant::now() > deadline {
                return Err(self.stuck("did not reach the boundary"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The worker counts its own lease in real time, to stop early: it has to run out really.
        tokio::time::sleep(Duration::from_millis(LEASE_FROZEN_MS)).await;
        Ok((true, Some(worker)))
    }

    async fn thaw(&self, worker: Worker) -> Result<(), CrashtestError> {
        if let Some(pid) = worker.child.id() {
            let sent = Command::new("kill").args(["-CONT", &pid.to_string()]).status().await;
            sent.map_err(|e| CrashtestError::file(Path::new("kill"), e))?;
        }
        self.succeed(worker).await
    }

    fn now(&self) -> Timestamp {
        self.desk.books().now
    }

    /// Time goes by until the run is taken up again; the lease is over then.
    fn pause(&self) {
        let mut books = self.desk.books();
        books.now = books.now.plus_ms(self.stage.plan.pause_ms.max(super::PAUSE_MIN_MS));
    }

    fn passed(&self, worker: u32) -> Result<Vec<String>, CrashtestError> {
        let file = self.passed_file(worker);
        match std::fs::read_to_string(&file) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(CrashtestError::file(&file, error)),
        }
    }

    fn passed_file(&self, worker: u32) -> PathBuf {
        self.dir.join(format!("passed-{worker}"))
    }

    fn worker(&mut self, stop: Option<StopAt>, lease_ms: u64) -> Result<Worker, CrashtestError> {
        self.workers += 1;
        let config = WorkerConfig {
            ledger: self.dir.join("ledger.db"),
            definition: self.definition.clone(),
            components: self.stage.components.clone(),
            input: self.stage.plan.input.clone(),
            worker: format!("w-{}", self.workers),
            now: self.now().0,
            lease_ms,
            cache_dir: self.stage.plan.cache_dir.clone(),
            clock_url: self.stage.provider.clock_url(&self.id),
            secrets: self.secrets.clone(),
            passed: self.passed_file(self.workers),
            stop,
        };
        let file = self.dir.join(format!("worker-{}.json", self.workers));
        let text = serde_json::to_string(&config).expect("the config is plain data");
        std::fs::write(&file, text).map_err(|e| CrashtestError::file(&file, e))?;
        let said = self.dir.join(format!("worker-{}.err", self.workers));
        let stderr = std::fs::File::create(&said).map_err(|e| CrashtestError::file(&said, e))?;
        let child = Command::new(&self.stage.plan.program)
            .arg("crashtest-worker")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| CrashtestError::file(&self.stage.plan.program, e))?;
        Ok(Worker { child, said })
    }

    async fn finish(&self, mut worker: Worker) -> Result<ExitStatus, CrashtestError> {
        match tokio::time::timeout(PATIENCE, worker.child.wait()).await {
            Ok(ended) => ended.map_err(|e| CrashtestError::file(Path::new("worker"), e)),
            Err(_) => Err(self.stuck("did not end")),
        }
    }

    async fn succeed(&self, worker: Worker) -> Result<(), CrashtestError> {
        let said = worker.said.clone();
        let status = self.finish(worker).await?;
        if status.success() {
            return Ok(());
        }
        let said = std::fs::read_to_string(&said).unwrap_or_default();
        Err(CrashtestError::Worker {
            case: self.spec.to_string(),
            status: status.to_string(),
            said,
        })
    }

    fn stuck(&self, what: &str) -> CrashtestError {
        let said = format!("it {what} within {} s", PATIENCE.as_secs());
        CrashtestError::Worker { case: self.spec.to_string(), status: "stuck".to_owned(), said }
    }

    async fn snapshot(&self) -> Result<Snapshot, CrashtestError> {
        Snapshot::take(&self.dir.join("ledger.db"), self.now()).await
    }
}

/// A worker's process, and the file with what it says.
struct Worker {
    child: Child,
    said: PathBuf,
}

fn stop_at(boundary: &str, occurrence: u32, signal: &str) -> StopAt {
    StopAt { boundary: boundary.to_owned(), occurrence, signal: signal.to_owned() }
}

/// Whether a process was killed by a signal and did not end by itself.
fn killed(status: ExitStatus) -> bool {
    status.code().is_none()
}

/// The output of a run, where it has one.
#[must_use]
pub(super) fn output(snapshot: &Snapshot) -> Option<&Value> {
    snapshot.run.as_ref()?.output.as_ref()
}
