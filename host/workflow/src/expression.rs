//! CEL expressions over a few variables, compiled once: what they name, what they cost at most, and their truth value.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::objects::{Key, Map};
use cel::{Context, Env, ExecutionError, Program};
use serde_json::Value;

use crate::diagnostic::listed;

/// Longest expression. Characters; far more than a person would want to review.
const EXPRESSION_CHARS_MAX: usize = 2_048;
/// Most parts of an expression.
const EXPRESSION_PARTS_MAX: usize = 1_024;
/// Most data that an expression with a loop (`all`, `exists`, `map`, …) may see. Bytes, roughly; the cost of a loop can
/// grow with the square of its data, and guests choose most of it.
const LOOP_BYTES_MAX: usize = 256 << 10;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Why an expression cannot be used, or has no truth value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The text is not CEL.
    #[error("the expression is not CEL: {message}")]
    Syntax {
        /// What the parser says, with its own line and column.
        message: String,
    },
    /// It names something that does not exist.
    #[error("the expression names `{name}`, which does not exist; there are {}", listed(.known.iter().copied()))]
    UnknownName {
        /// The name.
        name: String,
        /// The names that exist.
        known: &'static [&'static str],
    },
    /// It calls something that does not exist.
    #[error("the expression calls `{name}`, which does not exist")]
    UnknownFunction {
        /// The name.
        name: String,
    },
    /// It is longer than an expression may be.
    #[error("the expression is too long (at most {EXPRESSION_CHARS_MAX} characters)")]
    TooLong,
    /// It has a loop within a loop.
    #[error("the expression has a loop within a loop, the cost of which has no useful bound")]
    NestedLoops,
    /// It has a loop and there is too much data to loop over.
    #[error(
        "its data are too large for an expression with a loop (at most {LOOP_BYTES_MAX} bytes)"
    )]
    TooMuchData,
    /// It could not be evaluated.
    #[error("the expression could not be evaluated: {message}")]
    Evaluation {
        /// What happened. Values are not repeated.
        message: String,
    },
    /// Its value is not a truth value.
    #[error("the expression gave a value of type {got}, not true or false")]
    NotBoolean {
        /// The type of the value.
        got: String,
    },
}

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    variables: &'static [&'static str],
    loops: bool,
    members: Vec<Vec<String>>,
    compared: Vec<Comparison>,
    loose: Vec<Vec<String>>,
    asked: Vec<Vec<String>>,
    constant: Option<bool>,
    /// Of what type it is, if it names nothing and is no truth value.
    other_type: Option<String>,
}

/// A comparison of something that is named with a literal text: `routes.review == "accept"`, or `in` a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// What is named, from the variable on.
    pub path: Vec<String>,
    /// The text.
    pub word: String,
    /// Whether the expression asks for equality (or membership), and not for the opposite.
    pub equal: bool,
}

impl Expression {
    /// Compiles an expression over those variables and checks the names in it.
    ///
    /// # Errors
    /// [`ExpressionError`] when it is not CEL, names or calls what does not exist, or has no bound on its cost.
    pub fn compile(
        expression: &str,
        variables: &'static [&'static str],
    ) -> Result<Self, ExpressionError> {
        if expression.chars().count() > EXPRESSION_CHARS_MAX {
            return Err(ExpressionError::TooLong);
        }
        let program = ENV.compile(expression).map_err(|errors| ExpressionError::Syntax {
            message: errors.errors.first().map_or_else(
                || "it could not be read".to_owned(),
                |error| format!("{}:{}: {}", error.pos.0, error.pos.1, parser_words(&error.msg)),
            ),
        })?;
        let mut survey = Survey::over(variables);
        survey.visit(program.expression())?;
        let Survey { loops, members, named, compared, loose, asked, .. } = survey;
        let constant = fold(&program.expression().expr);
        let other_type = None;
        let mut compiled = Self {
            program,
            variables,
            loops,
            members,
            compared,
            loose,
            asked,
            constant,
            other_type,
        };
        if !named && compiled.constant.is_none() {
            let nothing = vec![&Value::Null; variables.len()];
            let decided = compiled.decide(&nothing);
            compiled.constant = Some(decided == Ok(true));
            if let Err(ExpressionError::NotBoolean { got }) = decided {
                compiled.other_type = Some(got);
            }
        }
        Ok(compiled)
    }

    /// What is named of the variables, each from the variable on: `state.input.id` is `["state", "input", "id"]`, as are
    /// `state["input"].id` and `has(state.input.id)`. What a loop goes over is named, its elements' members are not.
    #[must_use]
    pub fn members(&self) -> &[Vec<String>] {
        &self.members
    }

    /// The comparisons with literal texts.
    #[must_use]
    pub fn compared(&self) -> &[Comparison] {
        &self.compared
    }

    /// What is named outside of comparisons with literal texts and of `has(…)`.
    #[must_use]
    pub fn loose(&self) -> &[Vec<String>] {
        &self.loose
    }

    /// What is asked for by `has(…)`.
    #[must_use]
    pub fn asked(&self) -> &[Vec<String>] {
        &self.asked
    }

    /// What it comes to whatever its variables are, if that can be told: it names no variable, or what it names cannot
    /// matter. One that can never be decided comes to `false`.
    #[must_use]
    pub const fn constant(&self) -> Option<bool> {
        self.constant
    }

    /// The type of its value, where it names nothing and comes to something else than true or false: `1 + 1`.
    #[must_use]
    pub fn other_type(&self) -> Option<&str> {
        self.other_type.as_deref()
    }

    /// Its truth value. `values` are those of its variables, in their order.
    ///
    /// # Errors
    /// [`ExpressionError`] when it has none.
    pub fn decide(&self, values: &[&Value]) -> Result<bool, ExpressionError> {
        let size = values.iter().map(|value| weight(value)).fold(0, usize::saturating_add);
        if self.loops && size > LOOP_BYTES_MAX {
            return Err(ExpressionError::TooMuchData);
        }
        let mut context = Context::with_env(Arc::clone(&ENV));
        for (name, value) in self.variables.iter().zip(values) {
            context.add_variable_from_value(*name, cel_value(value));
        }
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(truth)) => Ok(truth),
            Ok(other) => Err(ExpressionError::NotBoolean { got: other.type_of().to_string() }),
            Err(error) => Err(ExpressionError::Evaluation { message: told(&error) }),
        }
    }
}

/// What the parser says, without its internals: the tokens it could have gone on with, and its own types.
fn parser_words(message: &str) -> &str {
    if message.contains("Recursion limit") {
        return "it is nested too deeply";
    }
    message.split(" expecting ").next().unwrap_or(message)
}

/// The truth value of an expression that has one whatever its variables are: literals, and what `&&`, `||` and `!` make
/// of them. (An operand that cannot be evaluated does not matter beside one that decides: that is CEL's rule.)
fn fold(expression: &Expr) -> Option<bool> {
    match expression {
        Expr::Literal(LiteralValue::Boolean(truth)) => Some(*truth.inner()),
        Expr::Call(call) => {
            let mut args = call.args.iter().map(|arg| fold(&arg.expr));
            match call.func_name.as_str() {
                operators::LOGICAL_NOT => args.next()?.map(|truth| !truth),
                operators::LOGICAL_AND => decide(args, false),
                operators::LOGICAL_OR => decide(args, true),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `decisive` when one operand is that; its opposite when all are.
fn decide(operands: impl Iterator<Item = Option<bool>>, decisive: bool) -> Option<bool> {
    let mut all = true;
    for operand in operands {
        match operand {
            Some(truth) if truth == decisive => return Some(decisive),
            Some(_) => {}
            None => all = false,
        }
    }
    all.then_some(!decisive)
}

/// Goes through an expression once, with the names of the loops it is in.
struct Survey {
    variables: &'static [&'static str],
    scopes: Vec<Vec<String>>,
    parts: usize,
    loops: bool,
    /// Whether any variable is named.
    named: bool,
    members: Vec<Vec<String>>,
    compared: Vec<Comparison>,
    loose: Vec<Vec<String>>,
    asked: Vec<Vec<String>>,
}

impl Survey {
    const fn over(variables: &'static [&'static str]) -> Self {
        Self {
            variables,
            scopes: Vec::new(),
            parts: 0,
            loops: false,
            named: false,
            members: Vec::new(),
            compared: Vec::new(),
            loose: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn visit(&mut self, expression: &IdedExpr) -> Result<(), ExpressionError> {
        self.parts += 1;
        if self.parts > EXPRESSION_PARTS_MAX {
            return Err(ExpressionError::TooLong);
        }
        if let Some(comparisons) = self.comparisons(&expression.expr) {
            for comparison in comparisons {
                self.member(comparison.path.clone());
                self.compared.push(comparison);
            }
            return Ok(());
        }
        if let Some(path) = self.path(&expression.expr).filter(|path| path.len() > 1) {
            // `has(…)` asks whether it is there, and takes nothing from it.
            let asked = matches!(&expression.expr, Expr::Select(select) if select.test);
            let list = if asked { &mut self.asked } else { &mut self.loose };
            if !list.contains(&path) {
                list.push(path.clone());
            }
            self.member(path);
            return Ok(());
        }
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.name(name),
            Expr::Call(call) => {
                function_exists(&call.func_name)?;
                call.target.as_deref().map_or(Ok(()), |target| self.visit(target))?;
                call.args.iter().try_for_each(|arg| self.visit(arg))
            }
            Expr::Select(select) => self.visit(&select.operand),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.visit(element)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(made) => Err(ExpressionError::UnknownName {
                name: made.type_name.clone(),
                known: self.variables,
            }),
            Expr::Comprehension(fold) => {
                self.visit(&fold.iter_range)?;
                self.visit(&fold.accu_init)?;
                if !self.scopes.is_empty() {
                    return Err(ExpressionError::NestedLoops);
                }
                self.loops = true;
                let mut names = vec![fold.iter_var.clone(), fold.accu_var.clone()];
                names.extend(fold.iter_var2.clone());
                self.scopes.push(names);
                self.visit(&fold.loop_cond)?;
                self.visit(&fold.loop_step)?;
                self.visit(&fold.result)?;
                self.scopes.pop();
                Ok(())
            }
        }
    }

    fn member(&mut self, path: Vec<String>) {
        self.named = true;
        if !self.members.contains(&path) {
            self.members.push(path);
        }
    }

    /// The comparisons that an expression makes, when it does nothing else.
    fn comparisons(&self, expression: &Expr) -> Option<Vec<Comparison>> {
        let Expr::Call(call) = expression else { return None };
        let [left, right] = call.args.as_slice() else { return None };
        let word = |expression: &Expr| match expression {
            Expr::Literal(LiteralValue::String(word)) => Some(word.inner().to_owned()),
            _ => None,
        };
        let path = |expression: &Expr| self.path(expression).filter(|path| path.len() > 1);
        let equal = match call.func_name.as_str() {
            operators::EQUALS => true,
            operators::NOT_EQUALS => false,
            operators::IN => {
                let (path, Expr::List(list)) = (path(&left.expr)?, &right.expr) else {
                    return None;
                };
                let of = |item: &IdedExpr| {
                    Some(Comparison { path: path.clone(), word: word(&item.expr)?, equal: true })
                };
                return list
                    .elements
                    .iter()
                    .map(of)
                    .collect::<Option<Vec<_>>>()
                    .filter(|all| !all.is_empty());
            }
            _ => return None,
        };
        let (path, word) = match (path(&left.expr), path(&right.expr)) {
            (Some(path), None) => (path, word(&right.expr)?),
            (None, Some(path)) => (path, word(&left.expr)?),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(vec![Comparison { path, word, equal }])
    }

    fn entry(&mut self, entry: &EntryExpr) -> Result<(), ExpressionError> {
        match entry {
            EntryExpr::StructField(field) => self.visit(&field.value),
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key)?;
                self.visit(&entry.value)
            }
        }
    }

    /// The variable and the members that an expression names, when it does nothing else.
    fn path(&self, expression: &Expr) -> Option<Vec<String>> {
        match expression {
            Expr::Ident(name) => self.is_variable(name).then(|| vec![name.clone()]),
            Expr::Select(select) => {
                let mut path = self.path(&select.operand.expr)?;
                path.push(select.field.clone());
                Some(path)
            }
            Expr::Call(call) if call.func_name == operators::INDEX => {
                let [operand, index] = call.args.as_slice() else { return None };
                let Expr::Literal(index) = &index.expr else { return None };
                let token = match index {
                    LiteralValue::String(name) => name.inner().to_owned(),
                    LiteralValue::Int(number) => number.inner().to_string(),
                    _ => return None,
                };
                let mut path = self.path(&operand.expr)?;
                path.push(token);
                Some(path)
            }
            _ => None,
        }
    }

    fn is_variable(&self, name: &str) -> bool {
        self.variables.contains(&name) && !self.in_scope(name)
    }

    fn in_scope(&self, name: &str) -> bool {
        self.scopes.iter().flatten().any(|n| n == name)
    }

    fn name(&mut self, name: &str) -> Result<(), ExpressionError> {
        let variable = self.is_variable(name);
        if variable {
            self.named = true;
            let whole = vec![name.to_owned()];
            if !self.loose.contains(&whole) {
                self.loose.push(whole);
            }
        }
        if variable || self.in_scope(name) {
            Ok(())
        } else {
            Err(ExpressionError::UnknownName { name: name.to_owned(), known: self.variables })
        }
    }
}

/// The functions that an expression may call; none of them looks at anything but its arguments.
const FUNCTIONS: [&str; 16] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "type",
    "dyn",
    "duration",
    "timestamp",
    "bytes",
    "has",
];

fn function_exists(name: &str) -> Result<(), ExpressionError> {
    // Operators have names that no author can write: `_&&_`, `!_`, `@in`, `_[_]`.
    let operator = name.contains(['_', '@', '!']) || name.starts_with('-');
    if operator || FUNCTIONS.contains(&name) {
        Ok(())
    } else {
        Err(ExpressionError::UnknownFunction { name: name.to_owned() })
    }
}

/// JSON as CEL sees it; integers are ints, so that `args.amount_cents <= 100` compares like with like.
fn cel_value(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => {
            if let Some(int) = number.as_i64() {
                cel::Value::Int(int)
            } else if let Some(uint) = number.as_u64() {
                cel::Value::UInt(uint)
            } else {
                cel::Value::Float(number.as_f64().unwrap_or(f64::NAN))
            }
        }
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(cel_value).collect())),
        Value::Object(members) => {
            let map: HashMap<Key, cel::Value> = members
                .iter()
                .map(|(name, value)| (Key::String(Arc::new(name.clone())), cel_value(value)))
                .collect();
            cel::Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// About how many bytes a value has as JSON.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(weight).fold(2, usize::saturating_add),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| name.len() + 3 + weight(value))
            .fold(2, usize::saturating_add),
    }
}

/// What went wrong, without the values it went wrong with: they may be private, and end in listings.
fn told(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("there is no `{key}`"),
        ExecutionError::UndeclaredReference(name) => format!("there is no `{name}`"),
        ExecutionError::NoSuchOverload(overload) => overload.to_string(),
        ExecutionError::ValuesNotComparable(left, right) => {
            format!("a {} cannot be compared with a {}", left.type_of(), right.type_of())
        }
        ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
            format!("`{operator}` does not take a {} and a {}", left.type_of(), right.type_of())
        }
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "it divides by zero".to_owned()
        }
        ExecutionError::Overflow(operator, _, _) => {
            format!("the result of `{operator}` does not fit a 64-bit integer")
        }
        ExecutionError::IndexOutOfBounds(_) => "an index is out of bounds".to_owned(),
        ExecutionError::UnexpectedType { got, want } => {
            format!("it got a {got} and needs a {want}")
        }
        ExecutionError::FunctionError { function, .. } => format!("`{function}` failed"),
        _ => "an operation does not fit the types of its values".to_owned(),
    }
}
