//! The program `twice-provider-sim`: one simulator, until it is told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use twice_provider_sim::{ANY_PORT, Fault, Sim, SimConfig, Switch};

/// A provider to test against, with a switch for each way in which a real one fails.
#[derive(Parser)]
#[command(name = twice_provider_sim::PROGRAM, version, after_help = switches_help())]
struct Args {
    /// Where to listen: an address of this machine only; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS", default_value = ANY_PORT)]
    listen: SocketAddr,
    /// The database file, made when it is not there.
    #[arg(long, value_name = "FILE")]
    db: PathBuf,
    /// The key that requests must carry as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "KEY", env = "TWICE_PROVIDER_SIM_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Where to write the base URL once it listens.
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// A switch to start with, `NAME[@PATH]=VALUE[,times=N][,probability=P][,seed=S][,method=M]`. Replaces stored ones.
    #[arg(long = "switch", value_name = "SWITCH")]
    switches: Vec<Switch>,
}

fn switches_help() -> String {
    let mut help = "Switches:\n".to_owned();
    for fault in Fault::ALL {
        help.push_str(&format!("  {:<26} {}\n", fault.as_str(), fault.about()));
    }
    help
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // Before it is ready, so that a stop is never missed by whoever saw it ready.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let sim = Sim::start(SimConfig {
        listen: args.listen,
        database: args.db,
        api_key: args.api_key,
        switches: args.switches,
    })
    .await?;
    if let Some(path) = &args.ready_file {
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
