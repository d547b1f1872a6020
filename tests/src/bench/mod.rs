//! What Twice costs: measured in one run on one machine, so that the numbers can be divided by each other.

mod call;
mod cpu;
pub mod growth;
mod instant;
pub mod languages;
mod limit;
mod memory;
mod project;
mod report;
mod runs;
mod store;

use anyhow::Context as _;
use serde::Serialize;

pub use call::CallCost;
pub use limit::{Limit, SingleCommit};
pub use memory::Memory;
pub use report::table;
pub use runs::Case;
pub use store::Store;

use project::Shape;

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Amount {
    /// Calls of the refund node.
    pub calls: u32,
    /// Effects of each case, for each run that is under way at a time (rounded up to whole runs).
    pub effects_per_lane: u32,
    /// Effects of each case at least.
    pub effects_min: u32,
    /// How many runs are under way at a time on SQLite.
    pub lanes: Vec<u32>,
    /// How many runs are under way at a time on Postgres.
    pub server_lanes: Vec<u32>,
    /// How many workers share them there.
    pub server_workers: &'static [u32],
    /// Commits of the raw limit of SQLite.
    pub commits: u32,
    /// Runs that are under way when their memory is taken.
    pub active_runs: u32,
    /// Runs that are parked when their memory is taken.
    pub parked_runs: u32,
    /// How long the raw limit of Postgres is taken. Seconds.
    pub seconds: u32,
    /// Which databases are measured.
    pub stores: Vec<Store>,
}

impl Amount {
    /// Enough for numbers that mean something.
    #[must_use]
    pub fn full() -> Self {
        Self {
            calls: 20_000,
            effects_per_lane: 128,
            effects_min: 2_048,
            lanes: vec![1, 16, 64],
            server_lanes: vec![1, 16, 64, 256],
            server_workers: &[1, 2],
            commits: 200,
            active_runs: 256,
            parked_runs: 2_000,
            seconds: 5,
            stores: Store::all(),
        }
    }

    /// Enough to see that it runs.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            calls: 50,
            effects_per_lane: 8,
            effects_min: 32,
            lanes: vec![1, 4],
            server_lanes: vec![1, 4],
            server_workers: &[1, 2],
            commits: 5,
            active_runs: 4,
            parked_runs: 8,
            seconds: 1,
            ..Self::full()
        }
    }

    fn cases(&self) -> Vec<(Store, Shape, u32, u32)> {
        let mut cases = Vec::new();
        if self.stores.contains(&Store::Sqlite) {
            for shape in Shape::ALL {
                cases.extend(self.lanes.iter().map(|lanes| (Store::Sqlite, shape, 1, *lanes)));
            }
        }
        if self.stores.contains(&Store::Postgres) {
            for workers in self.server_workers {
                let lanes = self.server_lanes.iter().filter(|lanes| *lanes >= workers);
                cases.extend(lanes.map(|lanes| (Store::Postgres, Shape::Many, *workers, *lanes)));
            }
        }
        cases
    }
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
    /// What runs take up in memory.
    pub memory: Memory,
    /// One small row and its commit.
    pub single_commit: SingleCommit,
}

/// Measures everything.
///
/// # Errors
/// When a part of Twice does not do what it should; a run that does not complete is such a case.
pub fn measure(amount: &Amount) -> anyhow::Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let call = call::measure(amount.calls).await.context("calls of the refund node")?;
        let memory = memory::measure(amount.active_runs, amount.parked_runs).await?;
        let cases = runs::measure(amount).await.context("runs on a ledger")?;
        let single_commit = limit::single(amount.commits).await.context("commits of one row")?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Report { processors, call, cases, memory, single_commit })
    })
}

/// The value below which `percent` of the sorted values lie.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(f64::NAN)
}
