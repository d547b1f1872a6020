//! What a component asks for and offers, read from its bytes. Done before compiling, since compiling an interpreter takes
//! seconds and a refusal should not.

use serde::{Deserialize, Serialize};
use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentFuncType, ComponentValType,
};
use wasmparser::types::Types;
use wasmparser::{
    ComponentExport, ComponentExternalKind, ComponentImport, ComponentTypeRef, Parser, Payload,
    PrimitiveValType, Validator,
};

use twice_core::wit::TypedImport;

use crate::api::SandboxError;
use crate::componentize::componentize;
use crate::engine::FEATURES;
use crate::state::shorten;
use crate::typed::read;
use crate::wasi;

/// The package of the node's world, and the version this host offers.
const PACKAGE: &str = "twice:node";
const VERSION: &str = "0.1.0";
/// Versions that start so are compatible: what was added later is found missing function by function.
const TRACK: &str = "0.1.";

/// The interfaces of the world and their functions.
const OFFERED: [(&str, &[&str]); 3] = [
    ("effects", &["request", "request-all"]),
    ("context", &["run-id", "node", "visit", "attempt", "now", "random", "random-u64"]),
    ("log", &["write", "print"]),
];

/// How deep, and how wide, a type is told in words.
const WORD_DEPTH_MAX: u32 = 4;
const WORD_CASES_MAX: usize = 8;
/// Most imports that are named as not offered, and most of what is said of one, or of what is exported. Bytes; names are the
/// component's own.
const UNKNOWN_MAX: usize = 50;
const WORDS_BYTES_MAX: usize = 1 << 10;

/// The world that nodes are checked against.
pub(crate) fn world() -> String {
    format!("{PACKAGE}/node@{VERSION}")
}

/// Raised with each change of what is refused here or in `shape`: what was found good by other rules is looked at again.
pub(crate) const RULES: u32 = 2;

/// What a component imports and exports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Surface {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    /// The functions of other packages.
    pub(crate) typed: Vec<TypedImport>,
}

/// The functions that a component imports from other packages than `twice:node` and WASI, without compiling it.
///
/// # Errors
/// Those of [`Sandbox::load`](crate::Sandbox::load) that need no compilation.
pub fn typed_imports(component: &[u8]) -> Result<Vec<TypedImport>, SandboxError> {
    let component = componentize(component)?;
    let (imports, _) = outline(&component).map_err(damaged)?;
    // Most have none, and telling that is cheap.
    if imports.iter().all(|import| !is_foreign(import.name.name)) {
        return Ok(Vec::new());
    }
    Ok(check(&component)?.typed)
}

/// Whether an interface may be a tool's: it is of another package, and not of WASI.
fn is_foreign(name: &str) -> bool {
    let (package, _, _) = split(name);
    package != PACKAGE && !name.starts_with("wasi:") && name.contains('/')
}

/// Checks a component against the world.
pub(crate) fn check(component: &[u8]) -> Result<Surface, SandboxError> {
    let types = Validator::new_with_features(FEATURES).validate_all(component).map_err(damaged)?;
    let (imports, exports) = outline(component).map_err(damaged)?;
    let (mut unknown, mut typed) = (Vec::new(), Vec::new());
    for import in &imports {
        match import.ty {
            ComponentTypeRef::Instance(index) if is_foreign(import.name.name) => {
                match read::interface(import.name.name, index, types.as_ref()) {
                    Ok(functions) => typed.extend(functions),
                    Err(problems) => unknown.extend(problems),
                }
            }
            _ => unknown.extend(refusal(import, &types)),
        }
    }
    unknown.truncate(UNKNOWN_MAX);
    let unknown: Vec<String> =
        unknown.iter().map(|problem: &String| shorten(problem, WORDS_BYTES_MAX)).collect();
    if !unknown.is_empty() {
        return Err(SandboxError::UnknownImports { unknown });
    }
    check_run(&exports, &types)
        .map_err(|problem| SandboxError::NoRun { problem: shorten(&problem, WORDS_BYTES_MAX) })?;
    let named = imports.iter().filter(|import| !matches!(import.ty, ComponentTypeRef::Type(_)));
    Ok(Surface {
        imports: named.map(|import| import.name.name.to_owned()).collect(),
        exports: exports.iter().map(|export| export.name.name.to_owned()).collect(),
        typed,
    })
}

fn damaged(error: wasmparser::BinaryReaderError) -> SandboxError {
    SandboxError::NotAComponent {
        problem: format!(
            "it is damaged, or uses what this host does not run: {} (at byte {}); build it again",
            error.message(),
            error.offset()
        ),
    }
}

type Outline<'a> = (Vec<ComponentImport<'a>>, Vec<ComponentExport<'a>>);

/// The imports and exports of the outermost component.
fn outline(component: &[u8]) -> Result<Outline<'_>, wasmparser::BinaryReaderError> {
    let (mut imports, mut exports, mut depth) = (Vec::new(), Vec::new(), 0_usize);
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    imports.push(import?);
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    exports.push(export?);
                }
            }
            // What is inside of nested modules and components is their own business.
            _ => {}
        }
    }
    Ok((imports, exports))
}

/// Why an import is not offered, or `None` when it is.
fn refusal(import: &ComponentImport<'_>, types: &Types) -> Option<String> {
    let name = import.name.name;
    match import.ty {
        // Named types of the world; they carry no code.
        ComponentTypeRef::Type(_) => None,
        ComponentTypeRef::Instance(index) => {
            let (package, interface, version) = split(name);
            if package != PACKAGE {
                return wasi::gets(name).is_none().then(|| foreign(name));
            }
            let Some((_, functions)) = OFFERED.iter().find(|(offered, _)| *offered == interface)
            else {
                return Some(format!(
                    "`{name}`: {PACKAGE} has no such interface; this host offers {}",
                    offered()
                ));
            };
            if !version.starts_with(TRACK) {
                return Some(format!(
                    "`{name}`: the interface is known, but not in this version; this host offers \
                     `{PACKAGE}/{interface}@{VERSION}`: build against its guest-sdk/wit"
                ));
            }
            missing_functions(name, index, functions, types)
        }
        ComponentTypeRef::Module(_)
        | ComponentTypeRef::Func(_)
        | ComponentTypeRef::Value(_)
        | ComponentTypeRef::Component(_) => Some(format!(
            "`{name}`: a {}, which a node cannot import; this host offers {}",
            kind(import.ty.kind()),
            offered()
        )),
    }
}

fn missing_functions(
    name: &str,
    instance: u32,
    functions: &[&str],
    types: &Types,
) -> Option<String> {
    let types = types.as_ref();
    let ComponentAnyTypeId::Instance(id) = types.component_any_type_at(instance) else {
        return Some(format!("`{name}`: not an interface"));
    };
    let missing: Vec<&str> = types[id]
        .exports
        .iter()
        .filter(|(_, item)| {
            matches!(item.ty, wasmparser::component_types::ComponentEntityType::Func(_))
        })
        .map(|(function, _)| function.as_str())
        .filter(|function| !functions.contains(function))
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "`{name}`: it has no function `{}` here; this host offers {}",
            missing.join("`, `"),
            functions.join(", ")
        )
    })
}

/// Why an interface of another package is not offered.
fn foreign(name: &str) -> String {
    if name.starts_with("wasi:http") {
        format!(
            "`{name}`: a node never has a network; request an effect through `{PACKAGE}/effects`, which the host performs"
        )
    } else if name.starts_with("wasi:") {
        format!(
            "`{name}`: of WASI, this host offers version 0.2 as far as the runtimes of languages need it ({}), and nothing of \
             this machine behind it; build without it, for WASI 0.2, or with `twice node build`",
            wasi::packages()
        )
    } else {
        format!(
            "`{name}`: not an interface of a package, so it cannot be a tool's; this host offers {}",
            offered()
        )
    }
}

fn offered() -> String {
    let names: Vec<String> =
        OFFERED.iter().map(|(interface, _)| format!("{PACKAGE}/{interface}@{VERSION}")).collect();
    names.join(", ")
}

/// Splits `package/interface@version`; what is missing is empty.
fn split(name: &str) -> (&str, &str, &str) {
    let (path, version) = name.split_once('@').unwrap_or((name, ""));
    let (package, interface) = path.split_once('/').unwrap_or((path, ""));
    (package, interface, version)
}

fn check_run(exports: &[ComponentExport<'_>], types: &Types) -> Result<(), String> {
    let Some(run) = exports.iter().find(|export| export.name.name == "run") else {
        let names: Vec<&str> = exports.iter().map(|export| export.name.name).collect();
        return Err(if names.is_empty() {
            "it exports nothing; is the export macro missing (in Rust: `twice_node::node!(run)`)?"
                .to_owned()
        } else {
            format!("it exports only `{}`", names.join("`, `"))
        });
    };
    if run.kind != ComponentExternalKind::Func {
        return Err(format!("its `run` is a {}", kind(run.kind)));
    }
    let types = types.as_ref();
    let function = &types[types.component_function_at(run.index)];
    if is_run(function, types) {
        Ok(())
    } else {
        Err(format!(
            "its `run` is `{}`, where node-error is `variant {{ retryable(string), fatal(string) }}`",
            signature(function, types)
        ))
    }
}

fn is_run(function: &ComponentFuncType, types: wasmparser::types::TypesRef<'_>) -> bool {
    const STRING: ComponentValType = ComponentValType::Primitive(PrimitiveValType::String);
    let string = |ty: &ComponentValType| is_string(ty, types);
    let one_string = matches!(&*function.params, [(_, ty)] if string(ty));
    let Some(ComponentValType::Type(result)) = function.result else { return false };
    let ComponentDefinedType::Result {
        ok: Some(ok), err: Some(ComponentValType::Type(err)), ..
    } = &types[result]
    else {
        return false;
    };
    let ComponentDefinedType::Variant(error) = &types[*err] else { return false };
    let cases: Vec<(&str, bool)> = error
        .cases
        .iter()
        .map(|(name, case)| {
            (name.as_str(), string(&case.ty.unwrap_or(STRING)) && case.ty.is_some())
        })
        .collect();
    !function.async_ && one_string && string(ok) && cases == [("retryable", true), ("fatal", true)]
}

fn is_string(ty: &ComponentValType, types: wasmparser::types::TypesRef<'_>) -> bool {
    match ty {
        ComponentValType::Primitive(primitive) => *primitive == PrimitiveValType::String,
        // An alias such as `type json = string`.
        ComponentValType::Type(id) => {
            matches!(&types[*id], ComponentDefinedType::Primitive(PrimitiveValType::String))
        }
    }
}

fn signature(function: &ComponentFuncType, types: wasmparser::types::TypesRef<'_>) -> String {
    let params: Vec<String> =
        function.params.iter().map(|(name, ty)| format!("{name}: {}", word(ty, types))).collect();
    let result = function.result.map(|ty| format!(" -> {}", word(&ty, types))).unwrap_or_default();
    format!("{}func({}){result}", if function.async_ { "async " } else { "" }, params.join(", "))
}

/// A type in WIT's words, as deep as a signature needs.
fn word(ty: &ComponentValType, types: wasmparser::types::TypesRef<'_>) -> String {
    word_within(ty, types, WORD_DEPTH_MAX)
}

/// As [`word`], with nothing in it below that depth: a type can be named in few bytes that would fill a library in words.
fn word_within(
    ty: &ComponentValType,
    types: wasmparser::types::TypesRef<'_>,
    depth: u32,
) -> String {
    let Some(depth) = depth.checked_sub(1) else { return "…".to_owned() };
    let word = |ty: &ComponentValType| word_within(ty, types, depth);
    let id = match ty {
        ComponentValType::Primitive(primitive) => return primitive.to_string(),
        ComponentValType::Type(id) => *id,
    };
    let part = |ty: &Option<ComponentValType>| ty.as_ref().map_or_else(|| "_".to_owned(), word);
    match &types[id] {
        ComponentDefinedType::Primitive(primitive) => primitive.to_string(),
        ComponentDefinedType::Result { ok, err, .. } => {
            format!("result<{}, {}>", part(ok), part(err))
        }
        ComponentDefinedType::List { element, .. } => format!("list<{}>", word(element)),
        ComponentDefinedType::Option { ty, .. } => format!("option<{}>", word(ty)),
        ComponentDefinedType::Variant(variant) => {
            let cases: Vec<String> = variant
                .cases
                .iter()
                .take(WORD_CASES_MAX)
                .map(|(name, case)| match &case.ty {
                    Some(ty) => format!("{name}({})", word(ty)),
                    None => name.to_string(),
                })
                .collect();
            format!("variant {{ {} }}", cases.join(", "))
        }
        ComponentDefinedType::Record(_) => "record".to_owned(),
        ComponentDefinedType::Tuple(_) => "tuple".to_owned(),
        ComponentDefinedType::Enum(_) => "enum".to_owned(),
        ComponentDefinedType::Flags(_) => "flags".to_owned(),
        // Resources, streams and the like: no reader needs them told apart here.
        _ => "a type that cannot cross here".to_owned(),
    }
}

fn kind(kind: ComponentExternalKind) -> &'static str {
    match kind {
        ComponentExternalKind::Module => "core module",
        ComponentExternalKind::Func => "function",
        ComponentExternalKind::Value => "value",
        ComponentExternalKind::Type => "type",
        ComponentExternalKind::Instance => "interface",
        ComponentExternalKind::Component => "component",
    }
}
