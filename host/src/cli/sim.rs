//! `twice provider-sim`

use clap::Args;

use super::exit::Exit;
use super::out::Out;

/// Start the simulated provider that the examples talk to.
#[derive(Debug, Args)]
#[command(after_help = twice_provider_sim::cli::switches_help())]
pub(super) struct ProviderSim {
    #[command(flatten)]
    options: twice_provider_sim::cli::Options,
}

impl ProviderSim {
    pub(super) async fn run(&self, _out: &Out) -> anyhow::Result<Exit> {
        twice_provider_sim::cli::serve(self.options.clone()).await?;
        Ok(Exit::Done)
    }
}
