//! What runs take up in memory while they are under way, and while they wait.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use twice::engine::RunEnd;

use super::instant::InstantTool;
use super::project::Shape;
use super::runs::{Bench, Rig};
use super::store::{Place, Store};

/// Memory per run. Absent where it cannot be told.
#[derive(Debug, Serialize)]
pub struct Memory {
    /// How many runs were under way at once, each waiting for a provider's answer.
    pub active_runs: u32,
    /// Resident memory of the process for each of them, its instance of the component included. Bytes.
    pub bytes_per_active_run: Option<f64>,
    /// How many runs were parked.
    pub parked_runs: u32,
    /// Resident memory of the process for each of them. Bytes.
    pub bytes_per_parked_run: Option<f64>,
}

pub(super) async fn measure(active: u32, parked: u32) -> anyhow::Result<Memory> {
    let bench = Bench::new()?;
    Ok(Memory {
        active_runs: active,
        bytes_per_active_run: of_active(&bench, active).await.context("runs under way")?,
        parked_runs: parked,
        bytes_per_parked_run: of_parked(&bench, parked).await.context("parked runs")?,
    })
}

async fn of_active(bench: &Bench, runs: u32) -> anyhow::Result<Option<f64>> {
    let place = Place::new(Store::Sqlite)?;
    let permits = Arc::new(Semaphore::new(0));
    let tool = InstantTool::holding(Arc::clone(&permits));
    let rig = Arc::new(bench.rig(Shape::One, &place, 1, tool.clone()).await?);
    permits.add_permits(1);
    ensure!(matches!(rig.run(0, 0).await?, RunEnd::Completed(_)), "the first run did not complete");
    let before = resident_bytes();
    let mut tasks = JoinSet::new();
    for number in 1..=runs {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move { rig.run(0, number).await });
    }
    while tool.held() < runs {
        if let Some(ended) = tasks.try_join_next() {
            bail!("a run ended before it was answered: {:?}", ended??);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let after = resident_bytes();
    permits.add_permits(runs as usize);
    while let Some(ended) = tasks.join_next().await {
        ensure!(matches!(ended??, RunEnd::Completed(_)), "a run did not complete");
    }
    rig.close().await;
    Ok(per_run(before, after, runs))
}

async fn of_parked(bench: &Bench, runs: u32) -> anyhow::Result<Option<f64>> {
    let place = Place::new(Store::Sqlite)?;
    let rig = bench.rig(Shape::One, &place, 1, InstantTool::busy()).await?;
    // Until the database's page cache is full (32 MiB), and the allocator has taken what it needs.
    let warm = 3 * runs;
    park(&rig, 0, warm).await?;
    let before = resident_bytes();
    park(&rig, warm, warm + runs).await?;
    let after = resident_bytes();
    rig.close().await;
    Ok(per_run(before, after, runs))
}

async fn park(rig: &Rig, from: u32, to: u32) -> anyhow::Result<()> {
    for number in from..to {
        let end = rig.run(0, number).await?;
        ensure!(matches!(end, RunEnd::Waiting { .. }), "run {number} ended as {end:?}");
    }
    Ok(())
}

fn per_run(before: Option<f64>, after: Option<f64>, runs: u32) -> Option<f64> {
    Some((after? - before?).max(0.0) / f64::from(runs))
}

/// The resident memory of this process, where it can be told.
pub(super) fn resident_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}
