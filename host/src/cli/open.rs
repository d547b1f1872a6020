//! Finds and opens what a command works on: the project, its ledger, an executor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow, bail};
use twice_core::ids::{Name, WorkerId};
use twice_core::time::Timestamp;
use twice_ledger::{Ledger, LedgerOptions, MemoryLedger, SqlLedger};
use twice_sandbox::{Sandbox, SandboxConfig};
use twice_workflow::Project;
use twice_workflow::files::DiskFiles;
use twice_workflow::model::{Definition, Node};
use twice_workflow::project::Settings;

use super::compile_component;
use super::out::{Out, Secrets};
use super::signals::Askings;
use crate::clock::LedgerClock;
use crate::engine::boundary::Boundaries;
use crate::engine::observer::Observer;
use crate::engine::{Engine, Parts};
use crate::tool::http::{HttpConfig, HttpDriver};
use crate::tool::{Drivers, SystemSecrets};

/// How long a command takes leave without saying what it waits for.
const UNANNOUNCED: Duration = Duration::from_millis(200);

/// Where the user says the project and its ledger are.
#[derive(Clone)]
pub(super) struct Place {
    /// `--project`.
    pub(super) project: Option<PathBuf>,
    /// `--database`.
    pub(super) database: Option<String>,
    /// Where crashes are injected into the executor.
    pub(super) boundaries: Boundaries,
    /// What is known to be secret; grows as tools are met.
    pub(super) secrets: Secrets,
}

/// What the machine's clock shows: the clock of a ledger that is in no database.
#[expect(clippy::disallowed_methods, reason = "the one place where the host's clock is read")]
fn system_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl Place {
    /// The project's folder.
    ///
    /// # Errors
    /// When there is none, with the fix.
    pub(super) fn root(&self) -> anyhow::Result<PathBuf> {
        if let Some(dir) = &self.project {
            if !dir.join("twice.toml").is_file() {
                bail!(
                    "{} holds no twice.toml\nfix: name the project's folder, or make a project there with `twice init`",
                    dir.display()
                );
            }
            return Ok(dir.clone());
        }
        let here = std::env::current_dir().context("cannot tell the current folder")?;
        here.ancestors()
            .find(|dir| dir.join("twice.toml").is_file())
            .map(Path::to_path_buf)
            .ok_or_else(|| {
                anyhow!("no twice.toml here or in any folder above\nfix: go to a project, name one with --project DIR, or make one with `twice init`")
            })
    }

    /// The project, checked; warnings go to standard error.
    ///
    /// # Errors
    /// When it has problems, all of them listed.
    pub(super) fn project(&self, out: &Out) -> anyhow::Result<Project> {
        match Project::load(&DiskFiles { root: self.root()? }) {
            Ok(project) => {
                for warning in &project.warnings {
                    out.warn(&warning.to_string());
                }
                Ok(project)
            }
            Err(problems) => {
                let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
                bail!("the project has {} problem(s):\n\n{}", lines.len(), lines.join("\n\n"));
            }
        }
    }

    /// What `twice.toml` settles.
    ///
    /// # Errors
    /// When that file has problems, all of them listed.
    fn settings(&self) -> anyhow::Result<Settings> {
        Settings::load(&DiskFiles { root: self.root()? }).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow!("{}", lines.join("\n\n"))
        })
    }

    /// The ledger of the project, for a command that has nothing to do without what is in it: none is made. A project that
    /// has none yet has an empty one.
    ///
    /// # Errors
    /// When it cannot be opened, or the user named one that is not there.
    pub(super) async fn ledger(&self) -> anyhow::Result<Arc<dyn Ledger>> {
        let url = self.ledger_url()?;
        if self.database.is_none() && is_missing_file(&url) {
            return Ok(Arc::new(MemoryLedger::new(Arc::new(system_now))));
        }
        self.open(&url, false).await
    }

    /// The ledger of the project, made when it is not there.
    ///
    /// # Errors
    /// When it cannot be opened or made.
    pub(super) async fn ledger_to_fill(&self) -> anyhow::Result<Arc<dyn Ledger>> {
        let url = self.ledger_url()?;
        self.open(&url, true).await
    }

    /// The ledger of the project, if there is one already; none is made.
    ///
    /// # Errors
    /// When it is there and cannot be opened.
    pub(super) async fn ledger_if_there(&self) -> anyhow::Result<Option<Arc<dyn Ledger>>> {
        let url = self.ledger_url()?;
        if is_missing_file(&url) {
            return Ok(None);
        }
        self.open(&url, false).await.map(Some)
    }

    /// Where the ledger is, or would be: as the user says, or else `twice.toml`, or else beside that.
    fn ledger_url(&self) -> anyhow::Result<String> {
        if let Some(url) = &self.database {
            return Ok(url.clone());
        }
        let root = self.root()?;
        let url = match self.settings()?.database_url {
            None => "twice.db".to_owned(),
            Some(url) => match url.strip_prefix("env:") {
                None => url,
                Some(name) => std::env::var(name).map_err(|_| {
                    anyhow!("twice.toml takes the ledger's place from the variable {name}, which is not set\nfix: set {name} to a file or a database URL, or give one with --database")
                })?,
            },
        };
        // A path in a project's file means the same from wherever the command is given.
        Ok(match file_of(&url) {
            Some(file) => root.join(file).to_string_lossy().into_owned(),
            None => url,
        })
    }

    async fn open(&self, url: &str, create: bool) -> anyhow::Result<Arc<dyn Ledger>> {
        let redactor = Arc::clone(&self.secrets);
        let options = LedgerOptions { redactor, create, ..LedgerOptions::default() };
        Ok(Arc::new(SqlLedger::open(url, options).await?))
    }

    /// An executor on such a ledger.
    ///
    /// # Errors
    /// When any of its parts cannot be opened.
    pub(super) async fn engine(
        &self,
        ledger: Arc<dyn Ledger>,
        observer: Arc<dyn Observer>,
    ) -> anyhow::Result<Engine> {
        let redactor = Arc::clone(&self.secrets);
        let sandbox = self.sandbox()?;
        let http = HttpDriver::new(HttpConfig {
            root: self.root()?,
            secrets: Arc::new(SystemSecrets { root: self.root()? }),
            redactor,
        });
        let clock = LedgerClock::of(&ledger).await?;
        Ok(Engine::new(Parts {
            ledger,
            sandbox: Arc::new(sandbox),
            drivers: Arc::new(Drivers::new(http)),
            clock,
            observer,
            boundaries: self.boundaries.clone(),
            worker: worker_id()?,
            lease_ms: self.lease_ms()?,
        }))
    }

    /// The sandbox, with its cache of compiled code in the project's `.twice` folder.
    ///
    /// # Errors
    /// When the engine cannot be set up.
    pub(super) fn sandbox(&self) -> anyhow::Result<Sandbox> {
        let cache_dir = self.root()?.join(".twice").join("compiled");
        Ok(Sandbox::new(&SandboxConfig {
            cache_dir: Some(cache_dir),
            compiler: compile_component::program(),
            ..SandboxConfig::default()
        })?)
    }

    fn lease_ms(&self) -> anyhow::Result<u64> {
        match std::env::var("TWICE_LEASE_MS") {
            Err(_) => Ok(self.settings()?.lease_ms),
            Ok(text) => match text.parse() {
                Ok(ms @ 300..=3_600_000) => Ok(ms),
                _ => bail!(
                    "TWICE_LEASE_MS is `{text}`\nfix: give the length of a lease in milliseconds, 300 to 3600000"
                ),
            },
        }
    }
}

/// The file that a ledger's place names; `None` for a server's database, which is never made here.
fn file_of(url: &str) -> Option<&str> {
    let file = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).unwrap_or(url);
    (!file.contains("://")).then_some(file)
}

fn is_missing_file(url: &str) -> bool {
    file_of(url).is_some_and(|file| !Path::new(file).is_file())
}

/// Takes leave of an executor. Requests that are still under way are waited for, each for as long as its tool's timeout
/// lets it, so that what their answers tell is kept; Ctrl-C ends the waiting.
pub(super) async fn take_leave(engine: &Engine, out: &Out) {
    let askings = Askings::listen();
    // Whoever was asked once already ends at the second time, also if that came before anything was said.
    let heard = askings.as_ref().map_or(0, |askings| askings.count().min(1));
    if tokio::time::timeout(UNANNOUNCED, engine.settle_late()).await.is_err() {
        out.warn("a request is still under way; waiting for its answer, to keep it (Ctrl-C: do not wait)");
        let told = async {
            match askings {
                Ok(mut askings) => askings.more_than(heard).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = engine.settle_late() => {}
            () = told => out.warn(
                "its answer is lost, if one comes; its effect is UNKNOWN until it is reconciled",
            ),
        }
    }
    engine.ledger().close().await;
}

/// A definition of a workflow with the components that are registered now.
///
/// # Errors
/// When the workflow or one of its components does not exist, with what does.
pub(super) async fn define(
    project: &Project,
    ledger: &dyn Ledger,
    workflow: &str,
) -> anyhow::Result<Definition> {
    let found = project.workflows.values().find(|found| found.name.as_str() == workflow);
    let found = found.ok_or_else(|| {
        let known: Vec<&str> = project.workflows.keys().map(Name::as_str).collect();
        anyhow!("there is no workflow `{workflow}`\nfix: the project has: {}", known.join(", "))
    })?;
    let mut components: BTreeMap<Name, String> = BTreeMap::new();
    for node in project.family(&found.name).into_iter().flat_map(|workflow| &workflow.nodes) {
        let module =
            ledger.module(&node.component).await?.ok_or_else(|| anyhow!(unregistered(node)))?;
        components.insert(node.component.clone(), module.digest);
    }
    Ok(project.definition(&found.name, &components)?)
}

/// That the component of a node is not registered, and what to do.
pub(super) fn unregistered(node: &Node) -> String {
    let Node { name, component, .. } = node;
    format!(
        "node `{name}` runs component `{component}`, which is not registered\nfix: build and register it with `twice node build nodes/{component}`, or register a file with `twice node add {component} FILE.wasm`"
    )
}

/// A worker id that no process ever had.
///
/// # Errors
/// When the system has no randomness.
pub(super) fn worker_id() -> anyhow::Result<WorkerId> {
    Ok(WorkerId::parse(format!("w-{}-{}", std::process::id(), random_word()?))?)
}

/// Twelve random characters of lower-case base32.
///
/// # Errors
/// When the system has no randomness.
pub(super) fn random_word() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|e| anyhow!("the system has no randomness: {e}"))?;
    let mut text = data_encoding::BASE32_NOPAD.encode(&bytes).to_ascii_lowercase();
    text.truncate(12);
    Ok(text)
}
