//! How much a component is made of, counted from its bytes before anything else reads them. What is small enough here can be
//! validated and compiled in bounded time and memory, whoever wrote it.
//!
//! Counting recurses into nothing and keeps nothing. It ends quietly at the first damage: what reads the bytes for their
//! meaning comes to the same place, and says what is wrong.

use wasmparser::{
    BinaryReaderError, ComponentTypeSectionReader, DataKind, DataSectionReader, ElementItems,
    FunctionBody, Operator, Parser, Payload, TypeRef,
};

use crate::api::SandboxError;
use crate::engine::IMAGE_BYTES;
use crate::limits::{self, FixedLimit};

/// The custom sections in which a core module describes its world: a component in themselves.
pub(crate) const METADATA: &str = "component-type";
/// How deep such descriptions are followed; one has none in it.
const METADATA_DEPTH_MAX: u32 = 2;
/// Of a memory.
const PAGE_BYTES: u64 = 64 << 10;

/// Refuses what is made of too much.
pub(crate) fn check(bytes: &[u8]) -> Result<(), SandboxError> {
    Count::default().take(bytes, 0)
}

/// So much of each, of all modules and components together.
#[derive(Debug, Default)]
struct Count {
    modules: u64,
    components: u64,
    nesting: u64,
    functions: u64,
    locals: u64,
    elements: u64,
    segments: u64,
    image_segments: u64,
    /// Bytes that the first memory of the module at hand has from its start; none for one that is imported.
    memory: u64,
    /// Whether the module at hand imports a memory, which is its first then.
    takes_memory: bool,
    core_items: u64,
    types: u64,
    items: u64,
    custom: u64,
}

/// Why counting stops.
enum Stop {
    Damaged,
    Refused(SandboxError),
}

impl From<BinaryReaderError> for Stop {
    fn from(_: BinaryReaderError) -> Self {
        Self::Damaged
    }
}

impl Count {
    fn take(&mut self, bytes: &[u8], metadata_depth: u32) -> Result<(), SandboxError> {
        for payload in Parser::new(0).parse_all(bytes) {
            let counted =
                payload.map_err(Stop::from).and_then(|it| self.payload(bytes, &it, metadata_depth));
            match counted {
                Ok(()) => {}
                Err(Stop::Damaged) => return Ok(()),
                Err(Stop::Refused(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn payload(
        &mut self,
        bytes: &[u8],
        payload: &Payload<'_>,
        metadata_depth: u32,
    ) -> Result<(), Stop> {
        match payload {
            Payload::Version { .. } => {
                (self.memory, self.takes_memory) = (0, false);
                Ok(())
            }
            Payload::ModuleSection { .. } => {
                add(&mut self.modules, 1, &limits::MODULES)?;
                add(&mut self.nesting, 1, &limits::NESTING)
            }
            Payload::ComponentSection { .. } => {
                add(&mut self.components, 1, &limits::COMPONENTS)?;
                add(&mut self.nesting, 1, &limits::NESTING)
            }
            Payload::End(_) => {
                self.nesting = self.nesting.saturating_sub(1);
                Ok(())
            }
            Payload::FunctionSection(section) => {
                add(&mut self.functions, section.count().into(), &limits::FUNCTIONS)
            }
            Payload::CodeSectionEntry(body) => self.body(body),
            Payload::TypeSection(section) => self.core_item(section.count()),
            Payload::ImportSection(section) => {
                self.core_item(section.count())?;
                for import in section.clone().into_imports() {
                    self.takes_memory |= matches!(import?.ty, TypeRef::Memory(_));
                }
                Ok(())
            }
            Payload::MemorySection(section) => {
                if let Some(memory) = section.clone().into_iter().next()
                    && !self.takes_memory
                {
                    self.memory = memory?.initial.saturating_mul(PAGE_BYTES);
                }
                Ok(())
            }
            Payload::ExportSection(section) => self.core_item(section.count()),
            Payload::GlobalSection(section) => self.core_item(section.count()),
            Payload::DataSection(section) => {
                let count = section.count().into();
                if is_image(section, self.memory)? {
                    add(&mut self.image_segments, count, &limits::IMAGE_SEGMENTS)
                } else {
                    add(&mut self.segments, count, &limits::SEGMENTS)
                }
            }
            Payload::ElementSection(section) => {
                add(&mut self.segments, section.count().into(), &limits::SEGMENTS)?;
                for segment in section.clone() {
                    let count = match segment?.items {
                        ElementItems::Functions(items) => items.count(),
                        ElementItems::Expressions(_, items) => items.count(),
                    };
                    add(&mut self.elements, count.into(), &limits::ELEMENTS)?;
                }
                Ok(())
            }
            Payload::ComponentTypeSection(section) => self.component_types(bytes, section),
            Payload::CoreTypeSection(section) => {
                add(&mut self.types, section.count().into(), &limits::TYPES)
            }
            Payload::ComponentImportSection(section) => self.item(section.count()),
            Payload::ComponentExportSection(section) => self.item(section.count()),
            Payload::ComponentAliasSection(section) => self.item(section.count()),
            Payload::ComponentCanonicalSection(section) => self.item(section.count()),
            Payload::ComponentInstanceSection(section) => self.item(section.count()),
            Payload::InstanceSection(section) => self.item(section.count()),
            Payload::CustomSection(section) => {
                add(&mut self.custom, section.data().len() as u64, &limits::CUSTOM)?;
                if section.name().starts_with(METADATA) && metadata_depth < METADATA_DEPTH_MAX {
                    let nesting = std::mem::take(&mut self.nesting);
                    self.take(section.data(), metadata_depth + 1).map_err(Stop::Refused)?;
                    self.nesting = nesting;
                }
                Ok(())
            }
            // What is left costs no more than its bytes, of which there are only so many.
            _ => Ok(()),
        }
    }

    fn core_item(&mut self, count: u32) -> Result<(), Stop> {
        add(&mut self.core_items, count.into(), &limits::CORE_ITEMS)
    }

    fn item(&mut self, count: u32) -> Result<(), Stop> {
        add(&mut self.items, count.into(), &limits::ITEMS)
    }

    fn body(&mut self, body: &FunctionBody<'_>) -> Result<(), Stop> {
        let mut largest = 0;
        add(&mut largest, body.range().len() as u64, &limits::FUNCTION_BODY)?;
        for local in body.get_locals_reader()? {
            add(&mut self.locals, local?.0.into(), &limits::LOCALS)?;
        }
        Ok(())
    }

    fn component_types(
        &mut self,
        bytes: &[u8],
        section: &ComponentTypeSectionReader<'_>,
    ) -> Result<(), Stop> {
        // Readers of types go as deep into their own stack as types of components and instances lie within each other. Every
        // such type has one of these two bytes, so that there cannot be more of them than that, without reading them.
        let range = section.range();
        let opening =
            bytes.get(range).unwrap_or_default().iter().filter(|byte| matches!(byte, 0x41 | 0x42));
        let mut depth = 0;
        add(&mut depth, opening.count() as u64, &limits::TYPE_SCOPES)?;
        add(&mut self.types, section.count().into(), &limits::TYPES)
    }
}

/// Whether the engine lays a module's data out as one image when it compiles. Where it does not, each segment is code that it
/// compiles: a hundred thousand of them keep it busy for minutes. These are its own conditions, and stricter where it may change
/// its mind: all of the data lies in one memory of the module, where that is from the start, and is close together.
fn is_image(data: &DataSectionReader<'_>, memory: u64) -> Result<bool, BinaryReaderError> {
    let (mut low, mut high, mut bytes) = (u64::MAX, 0, 0);
    for segment in data.clone() {
        let segment = segment?;
        let DataKind::Active { memory_index: 0, offset_expr } = segment.kind else {
            return Ok(false);
        };
        let mut offset = offset_expr.get_operators_reader();
        let (Operator::I32Const { value }, Operator::End) = (offset.read()?, offset.read()?) else {
            return Ok(false);
        };
        let start = u64::from(value.cast_unsigned());
        let length = segment.data.len() as u64;
        if start + length > memory {
            return Ok(false);
        }
        if length > 0 {
            (low, high, bytes) = (low.min(start), high.max(start + length), bytes + length);
        }
    }
    let extent = high.saturating_sub(low);
    Ok(extent < IMAGE_BYTES || extent < 2 * bytes)
}

fn add(total: &mut u64, count: u64, limit: &FixedLimit) -> Result<(), Stop> {
    *total = total.saturating_add(count);
    if *total <= limit.value {
        return Ok(());
    }
    Err(Stop::Refused(SandboxError::Limit {
        limit: limit.name,
        message: format!(
            "it has {total} {}, or more; the limit is {}. Build it smaller, or make several nodes of it",
            limit.unit, limit.value
        ),
    }))
}
