//! `twice demo`: a real component, a real provider process, a real database file, a real SIGKILL.

mod provider;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::Value;
use tokio::process::{Child, Command};
use twice_core::ids::Name;
use twice_toolchain::Language;
use twice_workflow::Project;
use twice_workflow::files::DiskFiles;

use self::provider::Provider;
use super::exit::Exit;
use super::open::Place;
use super::out::{Out, Secrets};
use super::signals::Askings;
use super::{init, node, scaffold};
use crate::engine::boundary::Boundaries;

const RUN: &str = "run-781";
const WORKFLOW: &str = "damaged-item-refund";
/// Short, so that nobody waits for the dead worker's lease to run out. Milliseconds.
const LEASE_MS: &str = "1500";
/// Longest wait for any one thing in the demo.
const PATIENCE: Duration = Duration::from_secs(30);

/// Watch it pay once: kill a worker in mid-refund, resume twice.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Keep the demo's project in this folder (default: a temporary one, removed afterwards)
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl Demo {
    pub(super) async fn run(&self, out: &Out) -> anyhow::Result<Exit> {
        let temporary = tempfile::tempdir().context("cannot make a temporary folder")?;
        let root = match &self.keep {
            Some(dir) => dir.clone(),
            None => temporary.path().join("demo"),
        };
        let mut askings = Askings::listen()?;
        tokio::select! {
            done = play(out, root) => done,
            // What it started ends with it, and its temporary folder goes.
            () = askings.more_than(0) => {
                out.warn("interrupted");
                Ok(Exit::Interrupted)
            }
        }
    }
}

async fn play(out: &Out, root: PathBuf) -> anyhow::Result<Exit> {
    out.title("1. A project with one node that nobody has to trust");
    prepare(out, &root).await?;
    out.title("2. A provider of its own: another process, another database");
    let provider = Provider::start(&root).await?;
    out.line(&format!("payments listens on {}", provider.url()));
    let stage = Stage { root, provider };
    let outcome = stage.play(out).await;
    stage.provider.stop().await;
    outcome?;
    out.title("One refund. Confirmed, with its receipt, after a kill and two resumes.");
    Ok(Exit::Done)
}

async fn prepare(out: &Out, root: &Path) -> anyhow::Result<()> {
    init::create(root, &Name::parse("demo")?)?;
    let name = Name::parse("refund")?;
    let project = Project::load(&DiskFiles { root: root.to_path_buf() })
        .map_err(|problems| anyhow::anyhow!("the demo's project has problems: {problems:?}"))?;
    if let Some(target) = shared_target() {
        let config = format!("[build]\ntarget-dir = {:?}\n", target.display().to_string());
        init::write_new(&root.join(".cargo/config.toml"), &config)?;
        out.line(&if target.exists() {
            format!("the node's build starts from what an earlier demo left in {}", target.display())
        } else {
            format!(
                "the first demo builds the crates under the node, for a minute or two, and keeps them for the next one in {} (about 150 MB; remove it at will)",
                target.display()
            )
        });
    }
    let dir = scaffold::node(root, &project, &name, Language::Rust)?;
    let bytes = node::build(out, &dir).await?;
    let place = Place {
        project: Some(root.to_path_buf()),
        database: None,
        boundaries: Boundaries::none(),
        secrets: Secrets::default(),
    };
    node::register(out, &place, &name, bytes).await
}

/// A build folder that later demos find warm.
fn shared_target() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("twice").join("demo-target"))
}

struct Stage {
    root: PathBuf,
    provider: Provider,
}

impl Stage {
    async fn play(&self, out: &Out) -> anyhow::Result<()> {
        out.title("3. A worker asks for the refund. The provider commits it, and before its answer is recorded:");
        self.provider.hold_answers().await?;
        let mut worker = self.twice(&[
            "run",
            WORKFLOW,
            "--input",
            "input.json",
            "--run-id",
            RUN,
            "--wait",
            "0",
        ])?;
        self.provider.wait_for_commits(1, PATIENCE).await?;
        worker.start_kill().context("cannot kill the worker")?;
        let status = worker.wait().await.context("cannot wait for the worker")?;
        ensure!(!status.success(), "the worker ended by itself; nothing was interrupted");
        self.provider.answer_again().await?;
        out.line(&format!("SIGKILL ({status}). The provider has paid; the worker never heard."));

        out.title("4. What the ledger says, before any worker runs");
        let effect = self.wait_for_unknown().await?;
        show(out, &effect);
        ensure!(
            effect["idempotency_key"] == "refund/run-781/order-42/full-damaged-item",
            "the key is {}",
            effect["idempotency_key"]
        );

        out.title("5. Resume");
        self.resume(out).await?;
        let confirmed = self.effect().await?;
        show(out, &confirmed);

        out.title("6. Resume again");
        self.resume(out).await?;
        let again = self.effect().await?;
        ensure!(again == confirmed, "the second resume changed the effect: {again}");
        out.line("nothing was sent, nothing was written");

        out.title("7. What the provider counted");
        let refunds = self.provider.distinct_refunds().await?;
        let requests = self.provider.refund_requests().await?;
        out.line(&format!("requests received: {requests}, refunds made: {refunds}"));
        ensure!(refunds == 1, "the provider made {refunds} refunds");
        ensure!(confirmed["state"] == "CONFIRMED", "the effect is {}", confirmed["state"]);
        ensure!(
            !confirmed["external_receipt"]["external_id"].is_null(),
            "the receipt names no refund"
        );
        let run = self.json(&["runs", "show", RUN, "--json"]).await?;
        ensure!(run["chain"] == "holds", "the chain of entries is {}", run["chain"]);
        ensure!(run["run"]["state"] == "completed", "the run is {}", run["run"]["state"]);
        Ok(())
    }

    async fn wait_for_unknown(&self) -> anyhow::Result<Value> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let effects = self.json(&["effects", "list", "--unknown", "--json"]).await?;
            if let Some(effect) = effects.get(0) {
                return Ok(effect.clone());
            }
            ensure!(
                tokio::time::Instant::now() < deadline,
                "the interrupted effect is not listed as unknown"
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn effect(&self) -> anyhow::Result<Value> {
        let effects = self.json(&["effects", "list", "--run", RUN, "--json"]).await?;
        ensure!(
            effects.as_array().is_some_and(|list| list.len() == 1),
            "not one effect: {effects}"
        );
        let id = effects[0]["effect_id"].as_str().unwrap_or_default().to_owned();
        self.json(&["effects", "show", &id, "--json"]).await
    }

    async fn resume(&self, out: &Out) -> anyhow::Result<()> {
        let output = self.command(&["runs", "resume", RUN]).output().await?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            out.line(line);
        }
        if !output.status.success() {
            bail!("resuming failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    async fn json(&self, args: &[&str]) -> anyhow::Result<Value> {
        let output = self.command(args).output().await?;
        if !output.status.success() {
            bail!("`twice {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("`twice {}` printed no JSON", args.join(" ")))
    }

    fn twice(&self, args: &[&str]) -> anyhow::Result<Child> {
        let mut command = self.command(args);
        command.stdout(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
        command.spawn().context("cannot start a worker")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(provider::this_program());
        command
            .args(args)
            .current_dir(&self.root)
            .env_remove("TWICE_DATABASE_URL")
            .env("TWICE_LEASE_MS", LEASE_MS)
            .env("PAYMENTS_URL", self.provider.url())
            .env("PAYMENTS_API_KEY", provider::API_KEY);
        command
    }
}

fn show(out: &Out, effect: &Value) {
    let mut fields = Vec::new();
    for name in [
        "effect_id",
        "run_id",
        "type",
        "request_hash",
        "idempotency_key",
        "state",
        "attempts",
        "external_receipt",
        "last_error",
    ] {
        let Some(value) = effect.get(name) else { continue };
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Null => continue,
            other => other.to_string(),
        };
        fields.push((name, text));
    }
    out.fields(&fields);
}
