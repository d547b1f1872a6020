//! Conditions: CEL expressions over `state`, `receipts` and `routes` that choose a path through a workflow.

use serde_json::Value;

use crate::expression::{Expression, ExpressionError};

/// The variables a condition may name.
pub const VARIABLES: [&str; 3] = ["state", "receipts", "routes"];

/// Compiles a condition and checks the names in it.
///
/// # Errors
/// [`ExpressionError`] when it is not CEL, names or calls what does not exist, or has no bound on its cost.
pub fn compile(condition: &str) -> Result<Expression, ExpressionError> {
    Expression::compile(condition, &VARIABLES)
}

/// Whether a condition holds. `receipts` is `{ "<node>": { "<slot>": { "external_id": …, "result": … } } }`, `routes`
/// `{ "<node>": "<word>" }`.
///
/// # Errors
/// [`ExpressionError`] when it cannot be decided. That is neither yes nor no: a run must not go on by guessing.
pub fn holds(
    condition: &str,
    state: &Value,
    receipts: &Value,
    routes: &Value,
) -> Result<bool, ExpressionError> {
    compile(condition)?.decide(&[state, receipts, routes])
}
