//! `twice provider-sim`

use clap::Args;

use super::exit::Exit;
use super::term::Term;

/// Start the simulated provider that the examples talk to.
#[derive(Debug, Args)]
pub struct ProviderSim {
    #[command(flatten)]
    options: twice_provider_sim::Options,
}

impl ProviderSim {
    pub async fn run(&self, _term: &Term) -> anyhow::Result<Exit> {
        twice_provider_sim::serve(&self.options).await?;
        Ok(Exit::Done)
    }
}
