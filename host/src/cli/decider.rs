//! Who decides, as the commands that record a decision are told it.

use clap::Args;

use super::given;

use crate::engine::operator::Decision;

/// Who decides.
#[derive(Debug, Args)]
pub(super) struct Decider {
    /// Who decides (default: the user of this process)
    #[arg(long, env = "USER", value_name = "NAME", value_parser = given::person)]
    by: Option<String>,
}

impl Decider {
    /// Their decision, for that reason.
    pub(super) fn decision(&self, why: &str) -> Decision {
        let who = self.by.clone().unwrap_or_else(|| "unknown".to_owned());
        Decision { who, why: why.to_owned() }
    }
}
