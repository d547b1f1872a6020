//! The program `twice-provider-sim`: one simulator, until it is told to stop.

use clap::Parser;
use twice_provider_sim::cli::{Options, serve, switches_help};

/// A provider to test against, with a switch for each way in which a real one fails.
#[derive(Parser)]
#[command(name = twice_provider_sim::PROGRAM, version, after_help = switches_help())]
struct Args {
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    serve(Args::parse().options).await
}
