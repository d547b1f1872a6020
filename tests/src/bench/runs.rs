//! Runs on a ledger that is synchronous as in production, against a tool that answers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use serde::Serialize;
use tempfile::TempDir;
use tokio::task::JoinSet;
use twice::engine::boundary::Boundaries;
use twice::engine::observer::Silent;
use twice::engine::{Engine, Parts, RunEnd, StartRun, StartedRun};
use twice_core::ids::{Name, RunId, WorkerId};
use twice_core::run::Priority;
use twice_core::time::{Clock, Timestamp};
use twice_ledger::{Ledger, LedgerOptions, SqlLedger};
use twice_sandbox::{Sandbox, SandboxConfig};
use twice_workflow::model::Definition;

use super::instant::InstantTool;
use super::limit::{Limit, Written};
use super::project::{self, Shape};
use super::store::{Place, Store};
use super::{Amount, cpu, percentile};
use crate::nodes;

/// What was measured of one shape of run at one concurrency.
#[derive(Debug, Serialize)]
pub struct Case {
    /// The database.
    pub store: Store,
    /// What a run does.
    pub shape: &'static str,
    /// How many workers shared the ledger, each with connections of its own, all in this process.
    pub workers: u32,
    /// How many runs were under way at a time, over all workers.
    pub concurrent_runs: u32,
    /// How many runs were completed.
    pub runs: u32,
    /// How many effects were confirmed.
    pub effects: u32,
    /// Effects confirmed per second.
    pub effects_per_second: f64,
    /// Steps completed per second.
    pub steps_per_second: f64,
    /// Durable commits per effect, starting and finishing the runs included.
    pub commits_per_effect: f64,
    /// Growth of the database per effect, indexes included; of a file, after its write-ahead log was folded in. Bytes.
    pub bytes_per_effect: f64,
    /// Ledger entries per effect, those about the runs included.
    pub entries_per_effect: f64,
    /// The middle run from start to end. Milliseconds.
    pub run_p50_ms: f64,
    /// What 99 of 100 runs stay below. Milliseconds.
    pub run_p99_ms: f64,
    /// Processor time of the whole process per effect, without that of a database server; absent where it cannot be
    /// told. Microseconds.
    pub cpu_us_per_effect: Option<f64>,
    /// What the database can do at most with rows of this size, taken right after.
    pub limit: Limit,
    /// Effects per second as a part of that limit.
    pub ratio_to_limit: f64,
}

struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "the clock that everything measured is given")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Most runs at once in any measurement, each with an instance of its component.
const LANES_MAX: u32 = 320;

/// What all cases share.
pub(super) struct Bench {
    sandbox: Arc<Sandbox>,
    component: Vec<u8>,
    _cache: TempDir,
}

/// Executors on a ledger of their own.
pub(super) struct Rig {
    workers: Vec<Worker>,
    definition: Definition,
    shape: Shape,
}

struct Worker {
    engine: Engine,
    ledger: Arc<SqlLedger>,
}

pub(super) async fn measure(amount: &Amount) -> anyhow::Result<Vec<Case>> {
    let bench = Bench::new()?;
    let mut cases = Vec::new();
    for (store, shape, workers, lanes) in amount.cases() {
        let effects = amount.effects_min.max(amount.effects_per_lane * lanes);
        let runs = effects.div_ceil(shape.effects()).max(lanes);
        let case = bench.case(store, shape, workers, lanes, runs, amount).await;
        cases.push(case.with_context(|| format!("{} on {store} at {lanes}", shape.as_str()))?);
    }
    Ok(cases)
}

impl Bench {
    pub(super) fn new() -> anyhow::Result<Self> {
        let cache = tempfile::tempdir().context("a temporary folder")?;
        let config = SandboxConfig {
            cache_dir: Some(cache.path().join("compiled")),
            instances_max: LANES_MAX,
            ..SandboxConfig::default()
        };
        Ok(Self {
            sandbox: Arc::new(Sandbox::new(&config)?),
            component: nodes::component("conformance"),
            _cache: cache,
        })
    }

    async fn case(
        &self,
        store: Store,
        shape: Shape,
        workers: u32,
        lanes: u32,
        runs: u32,
        amount: &Amount,
    ) -> anyhow::Result<Case> {
        let mut place = Place::new(store)?;
        let rig = Arc::new(self.rig(shape, &place, workers, InstantTool::answering()).await?);
        place.note_size()?;
        // Compiles, caches, and fills the database with its first pages.
        let warm = 2 * lanes;
        drop(Arc::clone(&rig).run_all(lanes, 0, warm).await?);

        let commits_before = rig.commits();
        let cpu_before = cpu::used_us();
        let begun = Instant::now();
        let mut took = Arc::clone(&rig).run_all(lanes, warm, warm + runs).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu = cpu::used_us().zip(cpu_before).map(|(after, before)| after - before);
        let made = rig.commits() - commits_before;

        let effects = runs * shape.effects();
        let per_effect = |count: f64| count / f64::from(effects);
        let entries = rig.entries(warm).await?;
        rig.close().await;
        let bytes = place.grown()? / f64::from((warm + runs) * shape.effects());
        let written = Written {
            entries_per_effect: entries.0 / f64::from(shape.effects()),
            body_bytes_per_effect: entries.1 / f64::from(shape.effects()),
        };
        let limit = place.limit(&written, lanes, amount).await.context("the raw limit")?;
        took.sort_by(f64::total_cmp);
        let rate = f64::from(effects) / seconds;
        Ok(Case {
            store,
            shape: shape.as_str(),
            workers,
            concurrent_runs: lanes,
            runs,
            effects,
            effects_per_second: rate,
            steps_per_second: f64::from(runs * shape.steps()) / seconds,
            commits_per_effect: per_effect(made as f64),
            bytes_per_effect: bytes,
            entries_per_effect: written.entries_per_effect,
            run_p50_ms: percentile(&took, 50),
            run_p99_ms: percentile(&took, 99),
            cpu_us_per_effect: cpu.map(per_effect),
            ratio_to_limit: rate / limit.effects_per_second,
            limit,
        })
    }

    pub(super) async fn rig(
        &self,
        shape: Shape,
        place: &Place,
        workers: u32,
        tool: InstantTool,
    ) -> anyhow::Result<Rig> {
        let digest = self.sandbox.load(&self.component)?.digest().to_owned();
        let name = Name::parse("conformance")?;
        let mut all = Vec::new();
        for number in 0..workers {
            let ledger =
                Arc::new(SqlLedger::open(&place.location()?, LedgerOptions::default()).await?);
            ledger.put_module(&name, &digest, &self.component, WallClock.now()).await?;
            let engine = Engine::new(Parts {
                ledger: Arc::clone(&ledger) as Arc<dyn Ledger>,
                sandbox: Arc::clone(&self.sandbox),
                drivers: Arc::new(tool.clone()),
                clock: Arc::new(WallClock),
                observer: Arc::new(Silent),
                boundaries: Boundaries::none(),
                worker: WorkerId::parse(format!("w-bench-{number}"))?,
                lease_ms: 30_000,
            });
            all.push(Worker { engine, ledger });
        }
        let definition = project::definition(shape, &digest)?;
        Ok(Rig { workers: all, definition, shape })
    }
}

impl Rig {
    /// Runs number `from` to `to`, so many at a time; returns what each took, in milliseconds.
    pub(super) async fn run_all(
        self: Arc<Self>,
        lanes: u32,
        from: u32,
        to: u32,
    ) -> anyhow::Result<Vec<f64>> {
        let next = Arc::new(AtomicU32::new(from));
        let mut tasks = JoinSet::new();
        for lane in 0..lanes as usize {
            let (rig, next) = (Arc::clone(&self), Arc::clone(&next));
            tasks.spawn(async move {
                let mut took = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= to {
                        return anyhow::Ok(took);
                    }
                    let begun = Instant::now();
                    rig.complete(lane, number).await?;
                    took.push(begun.elapsed().as_secs_f64() * 1e3);
                }
            });
        }
        let mut all = Vec::new();
        while let Some(took) = tasks.join_next().await {
            all.extend(took??);
        }
        Ok(all)
    }

    fn id(number: u32) -> anyhow::Result<RunId> {
        Ok(RunId::parse(format!("run-{number:06}"))?)
    }

    async fn complete(&self, lane: usize, number: u32) -> anyhow::Result<()> {
        match self.run(lane, number).await? {
            RunEnd::Completed(output) if !output.to_string().contains("\"denied\"") => Ok(()),
            end => bail!("run {number} ended as {end:?}"),
        }
    }

    /// Runs one, on the worker that this lane belongs to.
    pub(super) async fn run(&self, lane: usize, number: u32) -> anyhow::Result<RunEnd> {
        let input = self.shape.input();
        let start = StartRun {
            id: Self::id(number)?,
            caller_key: None,
            input,
            priority: Priority::default(),
            claim: true,
        };
        let engine = &self.workers[lane % self.workers.len()].engine;
        let StartedRun::Created(Some(held)) = engine.start(&self.definition, start).await? else {
            bail!("run {number} was not new");
        };
        Ok(engine.run_held(held).await?)
    }

    fn commits(&self) -> u64 {
        self.workers.iter().map(|worker| worker.ledger.commits()).sum()
    }

    pub(super) async fn close(&self) {
        for worker in &self.workers {
            worker.ledger.close().await;
        }
    }

    /// How many entries a run has, and how many bytes their bodies.
    async fn entries(&self, number: u32) -> anyhow::Result<(f64, f64)> {
        let (mut count, mut bytes, mut after) = (0, 0, 0);
        loop {
            let page = self.workers[0].ledger.history(&Self::id(number)?, after, 0).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            count += page.len();
            bytes += page.iter().map(|entry| entry.body.len()).sum::<usize>();
        }
        Ok((count as f64, bytes as f64))
    }
}
