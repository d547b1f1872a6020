//! The functions that a component imports from other packages, with their types, as its bytes say.

use twice_core::wit::{FunctionType, TypedImport, WitType};
use wasmparser::PrimitiveValType;
use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentEntityType, ComponentFuncTypeId,
    ComponentValType,
};
use wasmparser::types::TypesRef;

/// Deepest nesting of a type. JSON is read no deeper than 64.
const DEPTH_MAX: usize = 32;
/// Most parts of one function's types, written out: a small file can name a type that is huge when it is.
const PARTS_MAX: usize = 4_096;
/// Most functions of one interface.
const FUNCTIONS_MAX: usize = 1_000;

/// The functions of the imported instance `name`.
///
/// # Errors
/// Each thing in it that cannot be a typed tool's, with the reason.
pub(crate) fn interface(
    name: &str,
    instance: u32,
    types: TypesRef<'_>,
) -> Result<Vec<TypedImport>, Vec<String>> {
    let ComponentAnyTypeId::Instance(id) = types.component_any_type_at(instance) else {
        return Err(vec![format!("`{name}`: not an interface")]);
    };
    let exports = &types[id].exports;
    if exports.len() > FUNCTIONS_MAX {
        return Err(vec![format!(
            "`{name}`: it has {} members; the most are {FUNCTIONS_MAX}",
            exports.len()
        )]);
    }
    let (mut functions, mut problems) = (Vec::new(), Vec::new());
    for (member, item) in exports {
        match item.ty {
            ComponentEntityType::Func(id) => match function(id, types) {
                Ok(ty) => functions.push(TypedImport {
                    interface: name.to_owned(),
                    function: member.to_string(),
                    ty,
                }),
                Err(why) => problems.push(format!("`{name}#{member}`: {why}")),
            },
            ComponentEntityType::Type { created: ComponentAnyTypeId::Resource(_), .. } => {
                problems.push(format!("`{name}`: it has the resource `{member}`; {RESOURCE}"));
            }
            // Names of types; they carry no code.
            ComponentEntityType::Type { .. } => {}
            ComponentEntityType::Module(_)
            | ComponentEntityType::Value(_)
            | ComponentEntityType::Instance(_)
            | ComponentEntityType::Component(_) => problems.push(format!(
                "`{name}`: its `{member}` is neither a function nor a type; a tool has functions alone"
            )),
        }
    }
    if problems.is_empty() { Ok(functions) } else { Err(problems) }
}

const RESOURCE: &str = "a resource is a handle into one instance, and an effect outlives the instance: pass ids instead";
const ASYNC: &str =
    "an effect is asked for and answered in one value, which the ledger keeps: use a list";

fn function(id: ComponentFuncTypeId, types: TypesRef<'_>) -> Result<FunctionType, String> {
    let ty = &types[id];
    if ty.async_ {
        return Err(
            "it is async, which this host does not run; declare it without `async`".to_owned()
        );
    }
    let mut reader = Reader { types, parts: 0 };
    let params = ty.params.iter().map(|(name, ty)| Ok((name.to_string(), reader.value(ty, 0)?)));
    Ok(FunctionType {
        params: params.collect::<Result<_, String>>()?,
        result: ty.result.map(|ty| reader.value(&ty, 0)).transpose()?,
    })
}

struct Reader<'a> {
    types: TypesRef<'a>,
    parts: usize,
}

impl Reader<'_> {
    fn value(&mut self, ty: &ComponentValType, depth: usize) -> Result<WitType, String> {
        self.parts += 1;
        if depth > DEPTH_MAX || self.parts > PARTS_MAX {
            return Err(format!(
                "its types are too large: at most {DEPTH_MAX} levels and {PARTS_MAX} parts; pass a part of it as a string that \
                 holds JSON"
            ));
        }
        let types = self.types;
        match ty {
            ComponentValType::Primitive(primitive) => primitive_type(*primitive),
            ComponentValType::Type(id) => self.defined(&types[*id], depth + 1),
        }
    }

    fn defined(&mut self, ty: &ComponentDefinedType, depth: usize) -> Result<WitType, String> {
        Ok(match ty {
            ComponentDefinedType::Primitive(primitive) => primitive_type(*primitive)?,
            ComponentDefinedType::Record(record) => {
                let fields = record.fields.iter();
                let fields =
                    fields.map(|(name, ty)| Ok((name.to_string(), self.value(ty, depth)?)));
                WitType::Record(fields.collect::<Result<_, String>>()?)
            }
            ComponentDefinedType::Variant(variant) => {
                let cases = variant.cases.iter().map(|(name, case)| {
                    let payload = case.ty.map(|ty| self.value(&ty, depth)).transpose()?;
                    Ok((name.to_string(), payload))
                });
                WitType::Variant(cases.collect::<Result<_, String>>()?)
            }
            ComponentDefinedType::List { element, .. } => {
                WitType::List(Box::new(self.value(element, depth)?))
            }
            ComponentDefinedType::Tuple(tuple) => {
                let types = tuple.types.iter().map(|ty| self.value(ty, depth));
                WitType::Tuple(types.collect::<Result<_, String>>()?)
            }
            ComponentDefinedType::Flags(names) => WitType::Flags(words(names.iter())),
            ComponentDefinedType::Enum(names) => WitType::Enum(words(names.iter())),
            ComponentDefinedType::Option { ty, .. } => match self.value(ty, depth)? {
                WitType::Option(_) => {
                    return Err(
                        "it has an option within an option, and JSON has but one null; use a variant"
                            .to_owned(),
                    );
                }
                ty => WitType::Option(Box::new(ty)),
            },
            ComponentDefinedType::Result { ok, err, .. } => {
                let mut part = |ty: &Option<ComponentValType>| {
                    ty.map(|ty| self.value(&ty, depth).map(Box::new)).transpose()
                };
                WitType::Result(part(ok)?, part(err)?)
            }
            ComponentDefinedType::Own(_) | ComponentDefinedType::Borrow(_) => {
                return Err(format!("it uses a resource; {RESOURCE}"));
            }
            ComponentDefinedType::Future { .. } => {
                return Err(format!("it uses a future; {ASYNC}"));
            }
            ComponentDefinedType::Stream { .. } => {
                return Err(format!("it uses a stream; {ASYNC}"));
            }
            ComponentDefinedType::Map { .. } => {
                return Err("it uses a map; use a list of tuples, or a record".to_owned());
            }
            ComponentDefinedType::FixedLengthList { .. } => {
                return Err("it uses a list of fixed length; use a list or a tuple".to_owned());
            }
        })
    }
}

fn primitive_type(ty: PrimitiveValType) -> Result<WitType, String> {
    Ok(match ty {
        PrimitiveValType::Bool => WitType::Bool,
        PrimitiveValType::S8 => WitType::S8,
        PrimitiveValType::U8 => WitType::U8,
        PrimitiveValType::S16 => WitType::S16,
        PrimitiveValType::U16 => WitType::U16,
        PrimitiveValType::S32 => WitType::S32,
        PrimitiveValType::U32 => WitType::U32,
        PrimitiveValType::S64 => WitType::S64,
        PrimitiveValType::U64 => WitType::U64,
        PrimitiveValType::F32 => WitType::F32,
        PrimitiveValType::F64 => WitType::F64,
        PrimitiveValType::Char => WitType::Char,
        PrimitiveValType::String => WitType::String,
        PrimitiveValType::ErrorContext => {
            return Err("it uses `error-context`, which has no JSON; use a string".to_owned());
        }
    })
}

fn words<'a>(names: impl Iterator<Item = &'a wasmparser::names::KebabString>) -> Vec<String> {
    names.map(ToString::to_string).collect()
}
