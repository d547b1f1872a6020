//! Policies: CEL expressions over `args`, `object` and `state` that permit a request or deny it.

use serde_json::Value;

use crate::expression::Expression;
pub use crate::expression::ExpressionError as PolicyError;

/// The variables a policy may name.
pub const VARIABLES: [&str; 3] = ["args", "state", "object"];

/// A compiled policy.
#[derive(Debug)]
pub struct Policy(Expression);

/// What a policy comes to whatever the request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constant {
    /// Each request is permitted.
    Permits,
    /// Each request is denied, also because the expression can never be decided.
    Denies,
}

impl Policy {
    /// Compiles an expression and checks the names in it.
    ///
    /// # Errors
    /// [`PolicyError`] when it is not CEL, names or calls what does not exist, or has no bound on its cost.
    pub fn compile(expression: &str) -> Result<Self, PolicyError> {
        Expression::compile(expression, &VARIABLES).map(Self)
    }

    /// The expression itself: what it names, and how.
    #[must_use]
    pub const fn expression(&self) -> &Expression {
        &self.0
    }

    /// What it comes to whatever the request is, if that can be told.
    #[must_use]
    pub fn constant(&self) -> Option<Constant> {
        let of = |permits| if permits { Constant::Permits } else { Constant::Denies };
        self.0.constant().map(of)
    }

    /// Whether the expression permits a request. `state` is what the node was started with: `input` and `nodes`; `object` the
    /// business object that it is about, as the workflow found it, or null.
    ///
    /// # Errors
    /// [`PolicyError`] when it cannot be decided; that is a denial, for the reason given.
    pub fn permits(
        &self,
        args: &Value,
        state: &Value,
        object: Option<&str>,
    ) -> Result<bool, PolicyError> {
        let object = object.map_or(Value::Null, Value::from);
        self.0.decide(&[args, state, &object])
    }
}
