//! JSON Schema: checking values, without ever fetching what a schema refers to.

use serde_json::Value;

/// Most problems reported about one value.
const PROBLEMS_MAX: usize = 20;
/// Most steps that a pattern may try on one text, so that a guest's args cannot keep the host busy.
const PATTERN_STEPS_MAX: usize = 100_000;

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a usable JSON Schema{}: {message}", place(.pointer))]
pub struct InvalidSchema {
    /// Where in the schema (JSON Pointer).
    pub pointer: String,
    /// What is wrong.
    pub message: String,
}

fn place(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" at `{pointer}`") }
}

/// One way in which a value breaks a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaProblem {
    /// Where in the value (JSON Pointer).
    pub pointer: String,
    /// What is wrong. The value itself is not repeated: it may be large, or private.
    pub message: String,
}

impl std::fmt::Display for SchemaProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = if self.pointer.is_empty() { "/" } else { &self.pointer };
        write!(f, "{at}: {}", self.message)
    }
}

/// A compiled JSON Schema (draft 2020-12 unless it names another).
#[derive(Debug, Clone)]
pub struct Schema {
    validator: jsonschema::Validator,
}

impl Schema {
    /// Compiles a schema. References into the schema itself (`#/…`) are resolved; others are refused.
    ///
    /// # Errors
    /// [`InvalidSchema`] when it is no schema or refers to another document.
    pub fn compile(schema: &Value) -> Result<Self, InvalidSchema> {
        let patterns = jsonschema::PatternOptions::fancy_regex().backtrack_limit(PATTERN_STEPS_MAX);
        let built = jsonschema::options()
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(patterns)
            .build(schema);
        match built {
            Ok(validator) => Ok(Self { validator }),
            Err(error) => Err(InvalidSchema {
                pointer: error.instance_path().to_string(),
                message: error.to_string(),
            }),
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The problems, at least one and at most twenty.
    pub fn check(&self, value: &Value) -> Result<(), Vec<SchemaProblem>> {
        let problems: Vec<SchemaProblem> = self
            .validator
            .iter_errors(value)
            .take(PROBLEMS_MAX)
            .map(|error| SchemaProblem {
                pointer: error.instance_path().to_string(),
                message: error.masked_with("the value").to_string(),
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
