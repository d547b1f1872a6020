//! The sandbox and what it has loaded.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use twice_core::limits::COMPONENT_BYTES_MAX;
use twice_core::wit::{TypedGrant, TypedImport};
use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker};

use crate::api::{CallLimits, Ended, Host, Inspection, SandboxError, WasiInterface};
use crate::bindings::{Node, NodePre};
use crate::cache::Cache;
use crate::call::call;
use crate::check::{self, Surface, check};
use crate::compile::{Compiler, CompilerProgram};
use crate::componentize::componentize;
use crate::engine::{Ticker, engine};
use crate::limits;
use crate::state::State;
use crate::typed::link;
use crate::wasi;

/// How a sandbox is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Where compiled code is kept between processes. Made when missing, readable by its owner alone; `None` compiles anew in
    /// each process.
    pub cache_dir: Option<PathBuf>,
    /// Most instances alive at once; a call beyond it waits for its turn (which does not count against its time). Each reserves
    /// 16 GiB of address space, and no memory until it runs.
    pub instances_max: u32,
    /// How long compiling one component may take.
    pub compile_time: Duration,
    /// What compiles components, in a process of its own that can be ended; `None` compiles in threads of this one.
    pub compiler: Option<CompilerProgram>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            cache_dir: None,
            instances_max: 128,
            compile_time: Duration::from_secs(limits::COMPILE_TIME.value),
            compiler: None,
        }
    }
}

/// Loads and runs components. One serves a whole process.
pub struct Sandbox {
    engine: Engine,
    linker: Linker<State>,
    compiler: Compiler,
    cache: Option<Cache>,
    turns: Semaphore,
    ticker: Ticker,
}

/// A component that was checked and compiled. Cheap to clone.
#[derive(Clone)]
pub struct Component {
    loaded: Arc<Loaded>,
}

struct Loaded {
    node: NodePre<State>,
    code: wasmtime::component::Component,
    inspection: Inspection,
}

/// A component that was checked and compiled.
struct Known {
    digest: String,
    surface: Surface,
    code: wasmtime::component::Component,
}

impl Sandbox {
    /// Sets up the engine, and starts the thread that enforces time limits.
    ///
    /// # Errors
    /// [`SandboxError::Engine`] when this machine cannot run WebAssembly. A cache that cannot be used, or address space that
    /// cannot be reserved, is a warning only.
    pub fn new(config: &SandboxConfig) -> Result<Self, SandboxError> {
        let instances = config.instances_max.max(1);
        let engine = engine(instances)?;
        let mut linker = Linker::new(&engine);
        Node::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut State| state)
            .and_then(|()| wasi::add_to_linker(&mut linker))
            .map_err(|error| SandboxError::Engine { problem: format!("{error:#}") })?;
        Ok(Self {
            cache: config.cache_dir.as_deref().and_then(|dir| Cache::open(dir, &engine)),
            ticker: Ticker::start(&engine)?,
            turns: Semaphore::new(instances as usize),
            compiler: Compiler::new(config.compile_time, config.compiler.clone()),
            linker,
            engine,
        })
    }

    /// Checks and compiles a component, or takes its compiled code from the cache. Core modules with component metadata are
    /// componentized first; the digest is that of the component.
    ///
    /// Blocks, for seconds if an interpreter is compiled: on an async runtime, call it where blocking is allowed.
    ///
    /// # Errors
    /// Every [`SandboxError`] but [`SandboxError::Engine`]; see there.
    pub fn load(&self, bytes: &[u8]) -> Result<Component, SandboxError> {
        // What was found good before is known by its digest alone: looking at all of an interpreter takes longer than loading it.
        if let Some(known) = self.cached(bytes) {
            return self.ready(known, bytes, None);
        }
        let bytes = componentize(bytes)?;
        // A core module is known as what was made of it.
        if let Some(known) = self.cached(&bytes) {
            return self.ready(known, &bytes, None);
        }
        let surface = check(&bytes)?;
        let digest = HEXLOWER.encode(&Sha256::digest(&bytes));
        let (code, took) = self.compiler.compile(&self.engine, &digest, &bytes)?;
        if let Some(cache) = &self.cache {
            cache.store(&digest, &surface, &code);
        }
        self.ready(Known { digest, surface, code }, &bytes, Some(took))
    }

    fn ready(
        &self,
        known: Known,
        bytes: &[u8],
        compiled_in: Option<Duration>,
    ) -> Result<Component, SandboxError> {
        let Known { digest, surface, code } = known;
        let node = self.prepared(&code, &surface.typed, &[])?;
        let (mut imports, mut wasi) = (Vec::new(), Vec::new());
        for name in surface.imports {
            match wasi::gets(&name) {
                Some(gets) => wasi.push(WasiInterface { name, gets }),
                None => imports.push(name),
            }
        }
        let inspection = Inspection {
            digest: format!("sha256:{digest}"),
            bytes: bytes.len() as u64,
            world: check::world(),
            imports,
            typed: surface.typed,
            wasi,
            exports: surface.exports,
            compiled_in,
        };
        Ok(Component { loaded: Arc::new(Loaded { node, code, inspection }) })
    }

    /// What is known of these very bytes, if they were checked and compiled before.
    fn cached(&self, bytes: &[u8]) -> Option<Known> {
        let cache = self.cache.as_ref().filter(|_| bytes.len() <= COMPONENT_BYTES_MAX)?;
        let digest = HEXLOWER.encode(&Sha256::digest(bytes));
        let (surface, code) = cache.load(&self.engine, &digest)?;
        Some(Known { digest, surface, code })
    }

    /// The component with slots behind the functions that it imports from other packages. Needed before it runs if it has any
    /// ([`Inspection::typed`]), and done once for a node of a workflow, not for each call.
    ///
    /// # Errors
    /// [`SandboxError::Ungranted`] when a function is in none of the grants. A grant that is not made use of is no error.
    pub fn grant(
        &self,
        component: &Component,
        grants: &[TypedGrant],
    ) -> Result<Component, SandboxError> {
        let Loaded { code, inspection, .. } = &*component.loaded;
        if inspection.typed.is_empty() {
            return Ok(component.clone());
        }
        let ungranted: Vec<String> = (inspection.typed.iter())
            .filter(|import| !grants.iter().any(|grant| link::is_for(grant, import)))
            .map(|import| {
                format!(
                    "`{}#{}`: no slot of this node is for it; grant one with a [[node.effect]] for an operation of the tool \
                     whose `wit` is `{}`, or do not import it",
                    import.interface, import.function, import.interface
                )
            })
            .collect();
        if !ungranted.is_empty() {
            return Err(SandboxError::Ungranted { ungranted });
        }
        let node = self.prepared(code, &inspection.typed, grants)?;
        let (code, inspection) = (code.clone(), inspection.clone());
        Ok(Component { loaded: Arc::new(Loaded { node, code, inspection }) })
    }

    /// Links all that the component imports.
    fn prepared(
        &self,
        code: &wasmtime::component::Component,
        typed: &[TypedImport],
        grants: &[TypedGrant],
    ) -> Result<NodePre<State>, SandboxError> {
        // Names were checked before; what is left is a function whose type differs from the world's.
        let refused = |error: wasmtime::Error| SandboxError::UnknownImports {
            unknown: vec![format!("{error:#}; build against this host's guest-sdk/wit")],
        };
        if typed.is_empty() {
            return self.linker.instantiate_pre(code).and_then(NodePre::new).map_err(refused);
        }
        let mut linker = self.linker.clone();
        link::link(&mut linker, typed, grants).map_err(refused)?;
        linker.instantiate_pre(code).and_then(NodePre::new).map_err(refused)
    }

    /// Calls `run` once, in a fresh instance that is gone when this returns. Every limit of `limits` holds, whatever the
    /// component or the host does; `host` comes back in every case, so that the caller can settle what was in flight.
    ///
    /// Must be called on a tokio runtime with its time driver. Dropping the future drops the instance and the host with it.
    pub async fn run(
        &self,
        component: &Component,
        input: &str,
        limits: CallLimits,
        host: Box<dyn Host>,
    ) -> (Ended, Box<dyn Host>) {
        let _turn = self.turns.acquire().await.expect("nothing closes the semaphore");
        call(&component.loaded.node, self.ticker.tick(), input, limits, host).await
    }
}

impl Component {
    /// What it is, without running it.
    #[must_use]
    pub fn inspection(&self) -> Inspection {
        self.loaded.inspection.clone()
    }

    /// `sha256:` and the digest of the component's bytes, by which a run pins it (I9).
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.loaded.inspection.digest
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Component")
            .field("inspection", &self.loaded.inspection)
            .finish_non_exhaustive()
    }
}
