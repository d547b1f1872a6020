//! What Twice costs: measured in one run on one machine, so that the numbers can be divided by each other.

mod call;
mod cpu;
mod instant;
mod limit;
mod project;
mod report;
mod runs;

use anyhow::Context as _;
use serde::Serialize;

pub use call::CallCost;
pub use limit::{Limit, SingleCommit};
pub use report::table;
pub use runs::Case;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Calls of the refund node.
    pub calls: u32,
    /// Effects of each case, for each run that is under way at a time (rounded up to whole runs).
    pub effects_per_lane: u32,
    /// Effects of each case at least.
    pub effects_min: u32,
    /// How many runs are under way at a time.
    pub lanes: &'static [u32],
    /// Commits of the raw limit.
    pub commits: u32,
}

impl Amount {
    /// Enough for numbers that mean something.
    pub const FULL: Self = Self {
        calls: 20_000,
        effects_per_lane: 128,
        effects_min: 2_048,
        lanes: &[1, 16, 64],
        commits: 200,
    };
    /// Enough to see that it runs.
    pub const QUICK: Self =
        Self { calls: 50, effects_per_lane: 8, effects_min: 32, lanes: &[1, 4], commits: 5 };
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How many processors the process may use.
    pub processors: usize,
    /// A call of a node by itself.
    pub call: CallCost,
    /// Runs on a ledger, by what they do and how many are under way.
    pub cases: Vec<Case>,
    /// One small row and its commit.
    pub single_commit: SingleCommit,
}

/// Measures everything.
///
/// # Errors
/// When a part of Twice does not do what it should; a run that does not complete is such a case.
pub fn measure(amount: Amount) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let call = call::measure(amount.calls).await.context("calls of the refund node")?;
        let cases = runs::measure(amount).await.context("runs on a ledger")?;
        let single_commit = limit::single(amount.commits).await.context("commits of one row")?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Report { processors, call, cases, single_commit })
    })
}

/// The value below which `percent` of the sorted values lie.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(f64::NAN)
}
