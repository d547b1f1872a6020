//! The worker of one case: the process that is killed. It runs the engine that production runs, on a ledger of its own
//! and under a clock that the test moves.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twice_core::approval::Answer;
use twice_core::ids::{Name, RunId, WorkerId};
use twice_core::redact::Redactor;
use twice_core::run::Priority;
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{EffectFilter, Ledger, LedgerOptions, SqlLedger};
use twice_sandbox::{Sandbox, SandboxConfig};
use twice_workflow::model::Definition;

use super::CrashtestError;
use crate::engine::NEEDS_PERSON;
use crate::engine::boundary::{Boundaries, Boundary};
use crate::engine::observer::Silent;
use crate::engine::operator::{Decision, DecisionError};
use crate::engine::{Engine, Parts, RunEnd, StartRun, StartedRun};
use crate::tool::Drivers;
use crate::tool::http::{HttpConfig, HttpDriver, plain_client};
use crate::tool::secret::FixedSecrets;

/// The id of the run in every case, so that its effects have the same ids in all of them.
pub const RUN: &str = "run-crashtest";
/// How often a run may wait for an instant before the worker takes longer steps, as a host that was down would.
const WAITS_PLAIN: u32 = 40;
/// How often a run may wait at all.
const WAITS_MAX: u32 = 160;

/// What a worker is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    /// The ledger's file.
    pub ledger: PathBuf,
    /// The definition, as text.
    pub definition: String,
    /// The components, by name.
    pub components: BTreeMap<Name, ComponentFile>,
    /// The run's input.
    pub input: Value,
    /// The worker's name.
    pub worker: String,
    /// What time it is. Milliseconds since 1970.
    pub now: i64,
    /// The length of a lease. Milliseconds.
    pub lease_ms: u64,
    /// Where compiled components are kept.
    pub cache_dir: PathBuf,
    /// Where to say that time goes on.
    pub clock_url: String,
    /// What the references to secrets stand for.
    pub secrets: BTreeMap<String, String>,
    /// The file that takes a line for each boundary that is passed.
    pub passed: PathBuf,
    /// Where to stop, if anywhere.
    pub stop: Option<StopAt>,
}

/// A component in a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentFile {
    /// Its digest.
    pub digest: String,
    /// Its bytes.
    pub file: PathBuf,
}

/// Where a worker stops itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopAt {
    /// The boundary's name.
    pub boundary: String,
    /// Which passing of it: 1 for the first.
    pub occurrence: u32,
    /// `KILL` or `STOP`.
    pub signal: String,
}

/// A clock that stands still until it is moved, and the ledger's clock too.
#[derive(Debug, Clone)]
struct SetClock(Arc<AtomicI64>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Starts the case's run, or goes on with it, until it ends or waits for a person.
///
/// # Errors
/// [`CrashtestError`] when the worker itself cannot go on.
pub async fn work(config: &WorkerConfig) -> Result<RunEnd, CrashtestError> {
    let clock = SetClock(Arc::new(AtomicI64::new(config.now)));
    let redactor = Arc::new(RwLock::new(Redactor::default()));
    let ledger = open(&config.ledger, Arc::clone(&redactor), clock.clone()).await?;
    let engine = engine(config, Arc::clone(&ledger), redactor, clock.clone())?;
    let run = RunId::parse(RUN).expect("the run's id is well formed");
    let mut end = if ledger.run(&run).await?.is_some() {
        engine.resume(&run, true).await?
    } else {
        start(config, &engine, run.clone()).await?
    };
    let client = plain_client().map_err(CrashtestError::Client)?;
    for waited in 0..WAITS_MAX {
        if !matches!(end, RunEnd::Waiting { .. }) {
            break;
        }
        let granted = grant_all(&engine).await?;
        let others = engine.resume_descendants(&run, true).await?;
        if others.taken > 0 || granted {
            end = engine.resume(&run, true).await?;
        }
        let RunEnd::Waiting { until, why } = &end else { break };
        // Time does not change what only a person can; who answered one question is asked the next.
        if why.starts_with(NEEDS_PERSON) {
            if granted || others.taken > 0 {
                continue;
            }
            break;
        }
        let now = clock.now();
        let step = until.ms_since(now).max(1);
        let longer = waited.saturating_sub(WAITS_PLAIN).min(20);
        let now = now.plus_ms(step.saturating_mul(1 << longer));
        let url = format!("{}/{}", config.clock_url, now.0);
        // The provider must know what time it is before anything is asked of it.
        let told = client.post(url).send().await.and_then(|answer| answer.error_for_status());
        told.map_err(|error| CrashtestError::Client(error.without_url().to_string()))?;
        clock.0.store(now.0, Ordering::SeqCst);
        end = engine.resume(&run, true).await?;
    }
    engine.settle_late().await;
    ledger.close().await;
    Ok(end)
}

/// Grants every approval that is asked for; whether one was granted. What cannot be answered any more, as its run is cancelled or its
/// time is over, is for the run to settle.
async fn grant_all(engine: &Engine) -> Result<bool, CrashtestError> {
    let filter = EffectFilter { waiting: true, approvals: true, ..EffectFilter::default() };
    let open = engine.ledger().effects(&filter).await?;
    let mut granted = false;
    for approval in &open {
        let decision = Decision {
            who: "crashtest".to_owned(),
            why: "whoever is asked agrees in a crash test".to_owned(),
        };
        match engine.answer(&approval.id, Answer::Grant, &decision).await {
            Ok(_) => granted = true,
            Err(DecisionError::NotAsked { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(granted)
}

/// Opens a case's ledger under a clock that the test sets.
pub(super) async fn open(
    file: &Path,
    redactor: Arc<RwLock<Redactor>>,
    clock: impl Clock,
) -> Result<Arc<dyn Ledger>, CrashtestError> {
    let now = Arc::new(move || clock.now());
    let options = LedgerOptions { redactor, now: Some(now), ..LedgerOptions::default() };
    Ok(Arc::new(SqlLedger::open(&file.to_string_lossy(), options).await?))
}

fn engine(
    config: &WorkerConfig,
    ledger: Arc<dyn Ledger>,
    redactor: Arc<RwLock<Redactor>>,
    clock: SetClock,
) -> Result<Engine, CrashtestError> {
    let cache_dir = Some(config.cache_dir.clone());
    let sandbox = Sandbox::new(&SandboxConfig { cache_dir, ..SandboxConfig::default() })?;
    let http = HttpDriver::new(HttpConfig {
        root: PathBuf::from("."),
        secrets: Arc::new(FixedSecrets::new(config.secrets.clone())),
        redactor,
    });
    let worker = WorkerId::parse(config.worker.clone())
        .map_err(|error| CrashtestError::Config(error.to_string()))?;
    Ok(Engine::new(Parts {
        ledger,
        sandbox: Arc::new(sandbox),
        drivers: Arc::new(Drivers::new(http)),
        clock: Arc::new(clock),
        observer: Arc::new(Silent),
        boundaries: boundaries(config)?,
        worker,
        lease_ms: config.lease_ms,
    }))
}

async fn start(
    config: &WorkerConfig,
    engine: &Engine,
    id: RunId,
) -> Result<RunEnd, CrashtestError> {
    for (name, component) in &config.components {
        let bytes =
            fs::read(&component.file).map_err(|e| CrashtestError::file(&component.file, e))?;
        let at = Timestamp(config.now);
        engine.ledger().put_module(name, &component.digest, &bytes, at).await?;
    }
    let definition = Definition::from_text(&config.definition)
        .map_err(|error| CrashtestError::Config(error.to_string()))?;
    let run = StartRun {
        id,
        caller_key: None,
        input: config.input.clone(),
        priority: Priority::default(),
        claim: true,
    };
    match engine.start(&definition, run).await? {
        StartedRun::Created(Some(held)) => Ok(engine.run_held(held).await?),
        StartedRun::Created(None) => {
            Err(CrashtestError::Config("the run was not claimed".to_owned()))
        }
        StartedRun::Existing(record) => Ok(engine.resume(&record.id, true).await?),
    }
}

/// Writes each boundary down as it is passed, and stops at the one that was named.
fn boundaries(config: &WorkerConfig) -> Result<Boundaries, CrashtestError> {
    let file = OpenOptions::new().create(true).append(true).open(&config.passed);
    let file = Mutex::new(file.map_err(|e| CrashtestError::file(&config.passed, e))?);
    let stop = config.stop.clone();
    let at = match &stop {
        None => None,
        Some(stop) => Some(Boundary::parse(&stop.boundary).ok_or_else(|| {
            CrashtestError::Config(format!("there is no boundary `{}`", stop.boundary))
        })?),
    };
    let passed = AtomicU32::new(0);
    Ok(Boundaries::inject(move |boundary| {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        // Handed to the system as one write: it outlives the process.
        let written = file.write_all(format!("{}\n", boundary.as_str()).as_bytes());
        assert!(written.is_ok(), "the file that counts boundaries cannot be written");
        if let Some(stop) = &stop
            && at == Some(boundary)
            && passed.fetch_add(1, Ordering::SeqCst) + 1 == stop.occurrence
        {
            send_to_self(&stop.signal);
        }
    }))
}

/// Returns only when the signal lets it: from SIGSTOP after SIGCONT, from SIGKILL never.
fn send_to_self(signal: &str) {
    let pid = std::process::id().to_string();
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid).status();
    assert!(sent.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
    if signal == "KILL" {
        // The signal is on its way; nothing may happen meanwhile.
        std::thread::sleep(Duration::from_secs(60));
    }
}
