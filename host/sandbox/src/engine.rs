//! The engine: the only place that configures wasmtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmparser::WasmFeatures;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::api::SandboxError;

/// Stack of the guest. Bytes; an interpreted guest needs some thousand frames.
pub(crate) const STACK_BYTES_MAX: usize = 2 << 20;
/// Stack that host functions have beside the guest's. Bytes.
const HOST_STACK_BYTES: usize = 1 << 20;
/// Core instances in one component; an interpreter with its libraries has some dozen.
pub(crate) const CORE_INSTANCES_MAX: u32 = 64;
/// Linear memories in one component.
pub(crate) const MEMORIES_MAX: u32 = 4;
/// Tables in one component.
pub(crate) const TABLES_MAX: u32 = 16;
/// Elements of one table. A machine word each.
pub(crate) const TABLE_ELEMENTS_MAX: usize = 128 << 10;
/// Descriptions of one core instance (functions, globals, …). Bytes.
const CORE_INSTANCE_BYTES_MAX: usize = 4 << 20;
/// Data of a module that lies within so many bytes is laid out as one image. Bytes.
pub(crate) const IMAGE_BYTES: u64 = 16 << 20;
/// How much of a memory is cleaned by copying instead of by giving its pages back. Bytes; a small guest stays below it.
const KEEP_RESIDENT_BYTES: usize = 256 << 10;
/// How often running guests are asked whether their time is over.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// Most frames of a guest's stack in an error.
pub(crate) const FRAMES_MAX: usize = 16;

/// Sets up the engine for at most `instances` components at once.
pub(crate) fn engine(instances: u32) -> Result<Engine, SandboxError> {
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(instances)));
    match Engine::new(&config) {
        Ok(engine) => Ok(engine),
        // A limit on address space (`ulimit -v`, some containers) forbids the pool's reservation, nothing else.
        Err(error) => {
            tracing::warn!(
                error = format!("{error:#}"),
                instances,
                "the pool of instances cannot be reserved; instances are allocated one by one, which is slower"
            );
            config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
            Engine::new(&config)
                .map_err(|error| SandboxError::Engine { problem: format!("{error:#}") })
        }
    }
}

/// Sets up an engine that only compiles: it reserves nothing for instances.
pub(crate) fn compiling() -> Result<Engine, SandboxError> {
    Engine::new(&config()).map_err(|error| SandboxError::Engine { problem: format!("{error:#}") })
}

/// What of WebAssembly components may use. What is not listed is refused before compiling, whatever a later engine can do.
pub(crate) const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::RELAXED_SIMD)
    .union(WasmFeatures::COMPONENT_MODEL)
    .difference(WasmFeatures::GC_TYPES);

fn config() -> Config {
    let mut config = Config::new();
    config
        .wasm_features(FEATURES.complement(), false)
        .wasm_component_model(true)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES_MAX)
        .async_stack_size(STACK_BYTES_MAX + HOST_STACK_BYTES)
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(IMAGE_BYTES)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(FRAMES_MAX))
        // A restarted node must compute the same: no bit pattern may depend on the machine (I2).
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true);
    config
}

fn pool(instances: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_MAX))
        .total_memories(instances.saturating_mul(MEMORIES_MAX))
        .total_tables(instances.saturating_mul(TABLES_MAX))
        .total_stacks(instances)
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_memories_per_module(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .max_tables_per_module(TABLES_MAX)
        .max_core_instance_size(CORE_INSTANCE_BYTES_MAX)
        .table_elements(TABLE_ELEMENTS_MAX)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(KEEP_RESIDENT_BYTES)
        // Where the kernel can say which pages a guest touched, only these are cleaned: half the cost of a call.
        .pagemap_scan(Enabled::Auto);
    pool
}

/// Advances the engine's epoch while calls run, and sleeps otherwise.
#[derive(Debug)]
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    running: AtomicUsize,
    stop: AtomicBool,
}

/// Keeps the epoch advancing until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticking<'a>(&'a Shared);

impl Ticker {
    /// Starts the one thread that ticks for `engine`.
    pub(crate) fn start(engine: &Engine) -> Result<Self, SandboxError> {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let engine = engine.clone();
        let thread = std::thread::Builder::new()
            .name("twice-ticker".to_owned())
            .spawn(move || {
                while !seen.stop.load(Ordering::Acquire) {
                    if seen.running.load(Ordering::Acquire) == 0 {
                        // The token of `unpark` is kept, so a call that starts right here is not missed.
                        std::thread::park();
                    } else {
                        std::thread::sleep(TICK);
                        engine.increment_epoch();
                    }
                }
            })
            .map_err(|error| SandboxError::Engine {
                problem: format!("the thread that enforces time limits cannot start: {error}"),
            })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Ticks until the returned guard is dropped.
    pub(crate) fn tick(&self) -> Ticking<'_> {
        if self.shared.running.fetch_add(1, Ordering::AcqRel) == 0 {
            self.wake();
        }
        Ticking(&self.shared)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that enforces time limits panicked");
        }
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}
