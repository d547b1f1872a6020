//! Values as they cross the border to a driver. The rest of the crate sees these and never a driver's own types, which is
//! why every statement and every method body exists once for all databases.

/// An argument of a statement. Absence is typed, because not every database infers it.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Blob(Option<Vec<u8>>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Blob(Some(value.to_vec()))
    }
}

/// One column of a row that was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
    /// A value that no column of ours holds, with a word for what it is.
    Foreign(String),
}

impl Cell {
    /// A word for what it is, for errors.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Null => "NULL",
            Self::Int(_) => "an integer",
            Self::Text(_) => "text",
            Self::Blob(_) => "bytes",
            Self::Foreign(kind) => kind,
        }
    }
}

/// A row, by position.
pub(crate) type Row = Vec<Cell>;
