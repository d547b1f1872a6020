//! The limits that are the same for every node. Each has a name, by which reaching it is reported; those that a workflow sets
//! for a node are in `CallLimits`.

use twice_core::limits::{COMPONENT_BYTES_MAX, PAYLOAD_BYTES_MAX};

use crate::engine;
use crate::state::{MESSAGE_BYTES_MAX, RANDOM_BYTES_MAX};
use crate::wasi::HANDLES_MAX;

/// A limit that nothing raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedLimit {
    /// The name by which it is reported.
    pub name: &'static str,
    /// How many.
    pub value: u64,
    /// Of what.
    pub unit: &'static str,
    /// What becomes of a component or a call that reaches it.
    pub reached: &'static str,
}

const REFUSED: &str = "the component is refused before it is compiled";
const ENDED: &str = "the call ends";

macro_rules! limits {
    ($($(#[$doc:meta])* $constant:ident: $name:literal, $value:expr, $unit:literal, $reached:expr;)*) => {
        $(
            $(#[$doc])*
            pub(crate) const $constant: FixedLimit =
                FixedLimit { name: $name, value: $value, unit: $unit, reached: $reached };
        )*

        /// All of them: first those of a component, then those of a call.
        pub const FIXED_LIMITS: &[FixedLimit] = &[$($constant),*];
    };
}

limits! {
    /// An interpreter with its library fits.
    COMPONENT: "component", COMPONENT_BYTES_MAX as u64, "bytes", REFUSED;
    /// An interpreter with its libraries, linked as shared ones, has some dozen.
    MODULES: "modules", 256, "core modules", REFUSED;
    /// Those within others included.
    COMPONENTS: "components", 256, "components within it", REFUSED;
    /// A composition of compositions has three or four.
    NESTING: "nesting", 16, "modules and components within each other", REFUSED;
    /// Each costs the compiler something, however small it is.
    FUNCTIONS: "functions", 100_000, "functions", REFUSED;
    /// The compiler's time grows faster than a function does. The main loop of an interpreter has 100 KB.
    FUNCTION_BODY: "function", 1 << 20, "bytes of one function", REFUSED;
    /// A few bytes declare thousands, each of which the compiler follows through the function.
    LOCALS: "locals", 1_000_000, "local variables of all functions", REFUSED;
    /// Of modules: types, imports, exports, globals.
    CORE_ITEMS: "core items", 100_000, "types, imports, exports and globals of modules", REFUSED;
    /// Each is code that the compiler makes, which takes it longer the more of them there are, and work for every instance.
    SEGMENTS: "segments", 50_000, "segments of data and elements", REFUSED;
    /// These cost no more than their bytes. Go's linker cuts its data into as many as 100,000.
    IMAGE_SEGMENTS: "image segments", 200_000, "segments of data that are laid out as one image of a memory", REFUSED;
    /// What fills tables.
    ELEMENTS: "elements", 500_000, "elements for tables", REFUSED;
    /// Of components, at every level.
    TYPES: "types", 10_000, "types of components", REFUSED;
    /// Readers of types recurse.
    TYPE_SCOPES: "type scopes", 500, "types of components or instances that may lie within each other", REFUSED;
    /// Of components: imports, exports, aliases, instances, adapters of functions.
    ITEMS: "items", 50_000, "imports, exports, aliases, instances and functions of components", REFUSED;
    /// Names of functions and the like; they help to read the stack of a trap.
    CUSTOM: "custom sections", 32 << 20, "bytes of custom sections", REFUSED;
    /// For one component, as `SandboxConfig` says; an interpreter of 20 MB takes about ten seconds.
    COMPILE_TIME: "compile time", 300, "seconds of compiling", "compiling is given up and the component is refused";
    /// Where a process of its own compiles, as in the `twice` command.
    COMPILE_MEMORY: "compile memory", 4 << 30, "bytes of address space of the process that compiles", "that process ends and the component is refused";
    /// Instances of core modules in one component.
    INSTANCES: "instances", engine::CORE_INSTANCES_MAX as u64, "core instances of one component", "the component is refused, or the call ends";
    /// Linear memories in one component.
    MEMORIES: "memories", engine::MEMORIES_MAX as u64, "memories of one component", "the component is refused, or the call ends";
    /// Tables in one component.
    TABLES: "tables", engine::TABLES_MAX as u64, "tables of one component", "the component is refused, or the call ends";
    /// Of one table.
    TABLE: "table", engine::TABLE_ELEMENTS_MAX as u64, "elements of one table", "growing fails; if the node traps then, the call ends";
    /// An interpreted guest needs some thousand frames.
    STACK: "stack", engine::STACK_BYTES_MAX as u64, "bytes of stack", ENDED;
    /// Of one text of JSON, in either direction.
    PAYLOAD: "payload", PAYLOAD_BYTES_MAX as u64, "bytes of one JSON text", ENDED;
    /// Whatever is granted: however many texts are passed, and whatever is around them.
    CROSSING: "payload", crate::call::CROSSING_BYTES_MAX as u64, "bytes passed to the host in one call of its functions", ENDED;
    /// Streams, pollables, clocks that are waited for, and resources of the component's own.
    HANDLES: "handles", HANDLES_MAX as u64, "handles at once", ENDED;
    /// Of one call of a function.
    RANDOM: "random", RANDOM_BYTES_MAX, "random bytes at once", "the call ends with a trap";
    /// Of the log.
    MESSAGE: "message", MESSAGE_BYTES_MAX as u64, "bytes of one log message", "the rest of it is cut off";
}
