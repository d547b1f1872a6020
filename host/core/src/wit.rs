//! Types of WIT, as far as a typed tool can use them, and the names on both sides of the border: what the sandbox reads from
//! a component, the workflow's files are checked against, and values are mapped by (docs/typed-tools.md).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A type whose values cross as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WitType {
    /// `bool`.
    Bool,
    /// `s8`.
    S8,
    /// `u8`.
    U8,
    /// `s16`.
    S16,
    /// `u16`.
    U16,
    /// `s32`.
    S32,
    /// `u32`.
    U32,
    /// `s64`.
    S64,
    /// `u64`.
    U64,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// `char`.
    Char,
    /// `string`.
    String,
    /// A `string` that holds JSON text. No component says so: it follows from the schema at that place.
    Json,
    /// `list<…>`.
    List(Box<WitType>),
    /// A record's fields.
    Record(Vec<(String, WitType)>),
    /// `tuple<…>`.
    Tuple(Vec<WitType>),
    /// A variant's cases.
    Variant(Vec<(String, Option<WitType>)>),
    /// An enum's cases.
    Enum(Vec<String>),
    /// `option<…>`.
    Option(Box<WitType>),
    /// `result<…, …>`.
    Result(Option<Box<WitType>>, Option<Box<WitType>>),
    /// The names of flags.
    Flags(Vec<String>),
}

/// The type of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionType {
    /// Its parameters.
    pub params: Vec<(String, WitType)>,
    /// Its result.
    pub result: Option<WitType>,
}

/// A function of another package that a component imports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedImport {
    /// The interface with its package and version, e.g. `payments:api/refunds@1.0.0`.
    pub interface: String,
    /// The function in it.
    pub function: String,
    /// Its type.
    pub ty: FunctionType,
}

/// How a typed function is a request for an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Whether its first parameter, `item: u32`, picks an element.
    pub item: bool,
    /// What the args are made of.
    pub args: ArgsShape,
    /// What the receipt's body is read as; `None`: it is not looked at.
    pub ok: Option<WitType>,
    /// How a refusal is told.
    pub error: ErrorShape,
}

/// What args are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgsShape {
    /// One parameter is the whole of them.
    Whole(WitType),
    /// Each parameter is a member.
    Members(Vec<(String, WitType)>),
}

/// How a refusal is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorShape {
    /// As `effect-error` of `twice:node/effects`.
    EffectError,
    /// In one text, as the SDKs write it.
    Text,
}

/// That a slot stands behind an imported function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedGrant {
    /// See [`TypedImport::interface`].
    pub interface: String,
    /// The function.
    pub function: String,
    /// The slot.
    pub slot: String,
    /// How it is asked.
    pub signature: Signature,
}

impl WitType {
    /// `effect-error` of `twice:node/effects`.
    #[must_use]
    pub fn effect_error() -> Self {
        let record = |first: &str| {
            let fields = [first, "message"].map(|name| (name.to_owned(), Self::String));
            Some(Self::Record(fields.into()))
        };
        Self::Variant(vec![
            ("failed".to_owned(), record("code")),
            ("denied".to_owned(), record("policy")),
        ])
    }
}

impl fmt::Display for WitType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::S8 => f.write_str("s8"),
            Self::U8 => f.write_str("u8"),
            Self::S16 => f.write_str("s16"),
            Self::U16 => f.write_str("u16"),
            Self::S32 => f.write_str("s32"),
            Self::U32 => f.write_str("u32"),
            Self::S64 => f.write_str("s64"),
            Self::U64 => f.write_str("u64"),
            Self::F32 => f.write_str("f32"),
            Self::F64 => f.write_str("f64"),
            Self::Char => f.write_str("char"),
            Self::String | Self::Json => f.write_str("string"),
            Self::List(element) => write!(f, "list<{element}>"),
            Self::Record(fields) => {
                let fields = fields.iter().map(|(name, ty)| format!("{name}: {ty}"));
                write!(f, "record {{ {} }}", joined(fields))
            }
            Self::Tuple(types) => write!(f, "tuple<{}>", joined(types.iter().map(Self::to_string))),
            Self::Variant(cases) => {
                let cases = cases.iter().map(|(name, payload)| match payload {
                    Some(ty) => format!("{name}({ty})"),
                    None => name.clone(),
                });
                write!(f, "variant {{ {} }}", joined(cases))
            }
            Self::Enum(cases) => write!(f, "enum {{ {} }}", cases.join(", ")),
            Self::Option(ty) => write!(f, "option<{ty}>"),
            Self::Result(None, None) => f.write_str("result"),
            Self::Result(Some(ok), None) => write!(f, "result<{ok}>"),
            Self::Result(None, Some(err)) => write!(f, "result<_, {err}>"),
            Self::Result(Some(ok), Some(err)) => write!(f, "result<{ok}, {err}>"),
            Self::Flags(names) => write!(f, "flags {{ {} }}", names.join(", ")),
        }
    }
}

impl fmt::Display for FunctionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params = self.params.iter().map(|(name, ty)| format!("{name}: {ty}"));
        write!(f, "func({})", joined(params))?;
        match &self.result {
            Some(result) => write!(f, " -> {result}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TypedImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}: {}", self.interface, self.function, self.ty)
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// The JSON name of a WIT name: `_` for `-`.
#[must_use]
pub fn json_name(wit: &str) -> String {
    wit.replace('-', "_")
}

/// The WIT name whose [`json_name`] is `json`, if there is one: words of lower-case letters and digits, each with a letter
/// first, joined by `_`.
#[must_use]
pub fn wit_name(json: &str) -> Option<String> {
    let word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    json.split('_').all(word).then(|| json.replace('_', "-"))
}

/// The WIT name of an operation, a tool or a slot, in whose names `-` and `_` are both possible.
#[must_use]
pub fn wit_name_of(name: &str) -> Option<String> {
    wit_name(&json_name(name))
}

/// The name of an interface, e.g. `payments:api/refunds@1.0.0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceName {
    /// `payments`.
    pub namespace: String,
    /// `api`.
    pub package: String,
    /// `refunds`.
    pub interface: String,
    /// `1.0.0`.
    pub version: Option<String>,
}

impl InterfaceName {
    /// What such a name looks like, for a fix.
    pub const FORM: &str = "NAMESPACE:PACKAGE/INTERFACE@VERSION, for example `payments:api/refunds@1.0.0`, in lower-case words \
                            joined by `-`; the version may be left out";

    /// Reads a name. `None` when it is none, or that of an interface of the host or of WASI.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (path, version) = match text.split_once('@') {
            Some((path, version)) => (path, Some(version)),
            None => (text, None),
        };
        let (package, interface) = path.split_once('/')?;
        let (namespace, package) = package.split_once(':')?;
        let names = [namespace, package, interface];
        let good = names.iter().all(|name| !name.contains('_') && wit_name_of(name).is_some())
            && version.is_none_or(is_version)
            && !matches!(namespace, "twice" | "wasi");
        good.then(|| Self {
            namespace: namespace.to_owned(),
            package: package.to_owned(),
            interface: interface.to_owned(),
            version: version.map(str::to_owned),
        })
    }

    /// The package with its version, e.g. `payments:api@1.0.0`.
    #[must_use]
    pub fn package_id(&self) -> String {
        format!("{}:{}{}", self.namespace, self.package, self.at_version())
    }

    fn at_version(&self) -> String {
        self.version.as_ref().map(|version| format!("@{version}")).unwrap_or_default()
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}{}", self.namespace, self.package, self.interface, self.at_version())
    }
}

/// Whether a text is three numbers, perhaps with a pre-release of SemVer's characters behind them.
fn is_version(text: &str) -> bool {
    let (numbers, rest) = text.split_once('-').map_or((text, None), |(a, b)| (a, Some(b)));
    let number = |part: &str| {
        !part.is_empty()
            && part.len() <= 9
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let parts: Vec<&str> = numbers.split('.').collect();
    let identifier = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && (number(part) || !part.bytes().all(|b| b.is_ascii_digit()))
    };
    parts.len() == 3
        && parts.into_iter().all(number)
        && rest.is_none_or(|rest| rest.split('.').all(identifier))
}
