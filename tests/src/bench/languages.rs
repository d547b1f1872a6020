//! What starting a node costs, by the language it is written in: compiled, taken from the cache on disk, and called warm.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use twice_sandbox::{
    CallLimits, Component, EffectAnswer, EffectRequest, Ended, Host, LogLevel, Position, Sandbox,
    SandboxConfig, Suspend,
};
use twice_toolchain::Language;

use super::memory::resident_bytes;
use super::percentile;
use crate::nodes;

/// What a node without effects costs in one language, and a waiting one in memory.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// The language's word.
    pub language: &'static str,
    /// The component. Bytes.
    pub component_bytes: usize,
    /// Compiling it. Milliseconds.
    pub compile_ms: f64,
    /// Its compiled code on disk. Bytes.
    pub cache_bytes: u64,
    /// A sandbox that has not seen it takes it from the disk and calls it once. Milliseconds.
    pub cold_ms: f64,
    /// The middle one of many calls, each in an instance of its own. Microseconds.
    pub warm_us: f64,
    /// What 99 of 100 stay below. Microseconds.
    pub warm_p99_us: f64,
    /// Resident memory for each instance that waits for an answer. Bytes; absent where it cannot be told.
    pub bytes_per_instance: Option<f64>,
}

/// Answers nothing until it is told to.
struct Holding {
    arrived: Arc<Semaphore>,
    release: Arc<Semaphore>,
}

#[async_trait]
impl Host for Holding {
    async fn request(&mut self, _: Vec<EffectRequest>) -> Result<Vec<EffectAnswer>, Suspend> {
        self.arrived.add_permits(1);
        // The semaphore is never closed; either way the instance has waited.
        drop(self.release.acquire().await);
        Err(Suspend)
    }

    fn refused(&mut self, _: &str, _: &'static str, _: &str) {}

    fn position(&self) -> Position {
        Position { run: "run-1".to_owned(), node: "hello".to_owned(), visit: 1, attempt: 1 }
    }

    fn now_ms(&mut self) -> u64 {
        1_700_000_000_000
    }

    fn random(&mut self, count: usize) -> Vec<u8> {
        vec![7; count]
    }

    fn log(&mut self, _: LogLevel, _: &str) {}
}

impl Holding {
    fn new() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), release: Arc::new(Semaphore::new(0)) }
    }
}

/// Measures those of `languages` whose compiler is there, with so many warm calls and instances at once.
///
/// # Errors
/// When a node does not do what it should.
pub fn measure(languages: &[Language], calls: u32, instances: u32) -> anyhow::Result<Vec<Cost>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut costs = Vec::new();
    for language in languages.iter().copied() {
        let folder = match language {
            Language::Rust => ["languages/rust/hello", "conformance"].map(str::to_owned),
            other => {
                ["hello", "conformance"].map(|node| format!("languages/{}/{node}", other.word()))
            }
        };
        let [Some(hello), Some(conformance)] = folder.map(|name| nodes::language_component(&name))
        else {
            continue;
        };
        let cost = runtime.block_on(one(language, &hello, &conformance, calls, instances));
        costs.push(cost.context(language.word())?);
    }
    Ok(costs)
}

async fn one(
    language: Language,
    hello: &[u8],
    conformance: &[u8],
    calls: u32,
    instances: u32,
) -> anyhow::Result<Cost> {
    let cache = tempfile::tempdir()?;
    let config =
        SandboxConfig { cache_dir: Some(cache.path().to_owned()), ..SandboxConfig::default() };
    let begun = Instant::now();
    let compiled = Sandbox::new(&config)?.load(hello)?.inspection().compiled_in;
    let compile_ms = compiled.unwrap_or_else(|| begun.elapsed()).as_secs_f64() * 1e3;
    let cache_bytes = size(cache.path())?;

    let sandbox = Sandbox::new(&config)?;
    let begun = Instant::now();
    let component = sandbox.load(hello)?;
    ensure!(component.inspection().compiled_in.is_none(), "it was not taken from the cache");
    call(&sandbox, &component).await?;
    let cold_ms = begun.elapsed().as_secs_f64() * 1e3;

    let mut took = Vec::with_capacity(calls as usize);
    for _ in 0..calls {
        let begun = Instant::now();
        call(&sandbox, &component).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    took.sort_by(f64::total_cmp);
    let waiting = Arc::new(Sandbox::new(&config)?);
    let component = waiting.load(conformance)?;
    Ok(Cost {
        language: language.word(),
        component_bytes: hello.len(),
        compile_ms,
        cache_bytes,
        cold_ms,
        warm_us: percentile(&took, 50),
        warm_p99_us: percentile(&took, 99),
        bytes_per_instance: memory(&waiting, &component, instances).await?,
    })
}

fn size(folder: &std::path::Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "cwasm") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

fn limits() -> CallLimits {
    CallLimits {
        memory_bytes: 64 << 20,
        time: Duration::from_secs(60),
        effects: 10,
        payload_bytes: 1 << 20,
        log_bytes: 64 << 10,
    }
}

async fn call(sandbox: &Sandbox, component: &Component) -> anyhow::Result<()> {
    let input = r#"{"input":{"name":"Ada"},"nodes":{}}"#;
    let (ended, _) = sandbox.run(component, input, limits(), Box::new(Holding::new())).await;
    ensure!(matches!(ended, Ended::Returned(_)), "hello did not return: {ended:?}");
    Ok(())
}

/// The memory that instances take which wait for an answer, all at once.
async fn memory(
    sandbox: &Arc<Sandbox>,
    component: &Component,
    instances: u32,
) -> anyhow::Result<Option<f64>> {
    let input = r#"{"input":{"steps":[{"do":"request","slot":"a"}]},"nodes":{}}"#;
    let Holding { arrived, release } = Holding::new();
    let before = resident_bytes();
    let mut tasks = JoinSet::new();
    for _ in 0..instances {
        let host = Holding { arrived: Arc::clone(&arrived), release: Arc::clone(&release) };
        let (sandbox, component) = (Arc::clone(sandbox), component.clone());
        tasks
            .spawn(async move { sandbox.run(&component, input, limits(), Box::new(host)).await.0 });
    }
    arrived.acquire_many(instances).await?.forget();
    let after = resident_bytes();
    release.add_permits(instances as usize);
    while let Some(ended) = tasks.join_next().await {
        let ended = ended?;
        ensure!(ended == Ended::Suspended, "an instance did not wait: {ended:?}");
    }
    Ok(before.zip(after).map(|(before, after)| (after - before).max(0.0) / f64::from(instances)))
}

/// The costs for people.
#[must_use]
pub fn table(costs: &[Cost]) -> String {
    let mut out = format!(
        "{:<15}{:>12}{:>12}{:>12}{:>10}{:>12}{:>12}{:>16}\n",
        "language", "component", "compile ms", "cache", "cold ms", "warm us", "p99 us", "instance"
    );
    for cost in costs {
        let memory = cost.bytes_per_instance;
        out += &format!(
            "{:<15}{:>12}{:>12.0}{:>12}{:>10.2}{:>12.1}{:>12.1}{:>16}\n",
            cost.language,
            cost.component_bytes,
            cost.compile_ms,
            cost.cache_bytes,
            cost.cold_ms,
            cost.warm_us,
            cost.warm_p99_us,
            memory.map_or_else(|| "-".to_owned(), |bytes| format!("{:.0} KiB", bytes / 1024.0)),
        );
    }
    out
}
