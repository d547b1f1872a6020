//! The command line of the simulator, for its own program and for whatever program carries it along.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::{ANY_PORT, Fault, Sim, SimConfig, Switch};

/// How a simulator is started.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Where to listen: an address of this machine only; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS", default_value = ANY_PORT)]
    pub listen: SocketAddr,
    /// The database file, made when it is not there.
    #[arg(long, value_name = "FILE")]
    pub db: PathBuf,
    /// The key that requests must carry as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "KEY", env = "TWICE_PROVIDER_SIM_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Where to write the base URL once it listens.
    #[arg(long, value_name = "PATH")]
    pub ready_file: Option<PathBuf>,
    /// A switch to start with, `NAME[@PATH][=VALUE][,times=N][,probability=P][,seed=S][,method=M]`; all of them replace
    /// those that the database remembers.
    #[arg(long = "switch", value_name = "SWITCH", conflicts_with = "clear_switches")]
    pub switches: Vec<Switch>,
    /// Forget the switches that the database remembers, and behave.
    #[arg(long)]
    pub clear_switches: bool,
}

/// What each switch does, a line each.
#[must_use]
pub fn switches_help() -> String {
    let mut help = "Switches:\n".to_owned();
    for fault in Fault::ALL {
        help.push_str(&format!("  {:<26} {}\n", fault.as_str(), fault.about()));
    }
    help
}

/// Runs a simulator until this process is told to stop.
///
/// # Errors
/// When it cannot start, or its ready file cannot be written.
pub async fn serve(options: Options) -> anyhow::Result<()> {
    // Before it is ready, so that a stop is never missed by whoever saw it ready.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let sim = Sim::start(SimConfig {
        listen: options.listen,
        database: options.db,
        api_key: options.api_key,
        switches: options.switches,
    })
    .await?;
    if options.clear_switches {
        sim.set_switches([]).await.context("cannot clear the switches")?;
    }
    if let Some(path) = &options.ready_file {
        write_whole(path, &sim.url())
            .with_context(|| format!("cannot write the ready file {}", path.display()))?;
    }
    println!("listening on {}", sim.url());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    sim.stop().await;
    Ok(())
}

/// Writes the file so that a reader sees all of it or none.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let unfinished = path.with_file_name(name);
    let mut file = std::fs::File::create(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}
