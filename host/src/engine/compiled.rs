//! A pinned definition with its schemas, policies and components made ready to run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use twice_core::contract::Contract;
use twice_core::event::Required;
use twice_core::ids::Name;
use twice_sandbox::{CallLimits, Component};
use twice_workflow::model::{
    Compensation, Definition, Node, OnConflict, Operation, Slot, Tool, Uses,
};
use twice_workflow::plan::{self, Graph};
use twice_workflow::policy::Policy;
use twice_workflow::schema::Schema;

use super::child::ChildWorkflow;

/// A definition that is ready to run.
pub struct Compiled {
    /// Its digest.
    pub digest: String,
    /// The definition itself.
    pub definition: Definition,
    /// Its nodes, in their order.
    pub nodes: Vec<CompiledNode>,
    /// Its graph.
    pub graph: Graph,
    /// By node, those whose outputs its steps see.
    pub sees: Vec<BTreeSet<Name>>,
    /// Whether steps may be under way beside each other.
    concurrent: bool,
    /// The nodes whose receipts conditions and fan-outs rest on.
    pub sources: BTreeSet<Name>,
}

impl Compiled {
    /// A definition with its nodes made ready.
    #[must_use]
    pub fn new(digest: String, definition: Definition, nodes: Vec<CompiledNode>) -> Self {
        let workflow = &definition.workflow;
        let graph = Graph::of(workflow);
        let name = |at: usize| workflow.nodes[at].name.clone();
        let related = graph.related().into_iter();
        let sees = related.map(|seen| seen.into_iter().map(name).collect()).collect();
        let (sources, concurrent) = (plan::sources(workflow), graph.is_concurrent(workflow));
        Self { digest, graph, sees, concurrent, sources, nodes, definition }
    }

    /// The place of a node.
    #[must_use]
    pub fn place(&self, node: &Name) -> Option<usize> {
        self.nodes.iter().position(|known| known.node.name == *node)
    }

    /// Whether the start of a step of a node is put on record: where a time limit counts from it, and where steps may be under
    /// way beside each other, which tells what it saw and that it has to be settled if the run fails elsewhere.
    #[must_use]
    pub fn records_start(&self, node: &Name) -> bool {
        let of_node =
            |known: &CompiledNode| known.node.name == *node && known.node.timeout_ms.is_some();
        self.nodes.iter().any(of_node)
            || self.definition.workflow.timeout_ms.is_some()
            || self.concurrent
    }
}

/// A node that is ready to run.
pub struct CompiledNode {
    /// The node as declared.
    pub node: Node,
    /// Its pinned component.
    pub component: Component,
    /// Its slots by name.
    pub slots: BTreeMap<Name, Arc<CompiledSlot>>,
}

/// A slot that is ready to be asked.
pub struct CompiledSlot {
    /// The slot as declared.
    pub slot: Slot,
    /// What it asks for.
    pub target: Target,
    /// What undoes its effect: a slot that no node can ask for.
    pub undo: Option<Arc<CompiledSlot>>,
    /// None takes any JSON.
    args_schema: Option<Schema>,
    policy: Option<Policy>,
    /// Whether a person's approval is needed, where one ever is; none: always.
    approve_when: Option<Policy>,
}

/// What a slot asks for.
pub enum Target {
    /// An operation of a tool, both pinned.
    Operation(Arc<Tool>, Box<Operation>),
    /// A run of another workflow.
    Child(ChildWorkflow),
}

impl CompiledNode {
    /// The limits of one call.
    #[must_use]
    pub fn limits(&self) -> CallLimits {
        let limits = &self.node.limits;
        CallLimits {
            memory_bytes: usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX),
            time: Duration::from_millis(limits.time_ms),
            effects: limits.effects,
            payload_bytes: twice_core::limits::PAYLOAD_BYTES_MAX,
            log_bytes: usize::try_from(limits.log_bytes).unwrap_or(usize::MAX),
        }
    }
}

/// Whether policy permits a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// Yes, by this policy.
    Permitted(String),
    /// No.
    Refused {
        /// The policy.
        policy: String,
        /// Why, for people.
        message: String,
    },
}

impl CompiledSlot {
    /// Makes a slot ready.
    ///
    /// # Errors
    /// In words, when its tool or operation is missing or a schema or policy does not compile; `twice check` refuses such
    /// a project, so a pinned definition with one is damaged.
    pub fn new(definition: &Definition, slot: &Slot) -> Result<Self, String> {
        let (target, args_schema) = target(definition, slot)?;
        let args_schema = args_schema.as_ref().map(Schema::compile).transpose();
        let args_schema = args_schema.map_err(|problem| {
            format!(
                "has an args schema for `{}.{}` that does not compile: {problem}",
                slot.tool, slot.operation
            )
        })?;
        let policy = slot
            .allow
            .as_deref()
            .map(Policy::compile)
            .transpose()
            .map_err(|problem| format!("has an `allow` that does not compile: {problem}"))?;
        let when = slot.approve.as_ref().and_then(|approve| approve.when.as_deref());
        let approve_when = when
            .map(Policy::compile)
            .transpose()
            .map_err(|problem| format!("has an `approve.when` that does not compile: {problem}"))?;
        let undo = slot.compensate.as_ref().map(|compensation| {
            Self::new(definition, &undo_slot(slot, compensation)).map(Arc::new)
        });
        let (slot, undo) = (slot.clone(), undo.transpose()?);
        Ok(Self { slot, target, undo, args_schema, policy, approve_when })
    }

    /// The pinned tool and operation, unless it starts a run.
    #[must_use]
    pub fn operation(&self) -> Option<(&Tool, &Operation)> {
        match &self.target {
            Target::Operation(tool, operation) => Some((tool, operation)),
            Target::Child(_) => None,
        }
    }

    /// The workflow of which it starts a run, if it does.
    #[must_use]
    pub const fn child(&self) -> Option<&ChildWorkflow> {
        match &self.target {
            Target::Operation(..) => None,
            Target::Child(workflow) => Some(workflow),
        }
    }

    /// The version of the tool's file, or of the workflow.
    #[must_use]
    pub fn version(&self) -> String {
        match &self.target {
            Target::Operation(tool, _) => tool.version.clone(),
            Target::Child(workflow) => workflow.version.to_string(),
        }
    }

    /// What is promised of it.
    #[must_use]
    pub const fn contract(&self) -> &Contract {
        match &self.target {
            Target::Operation(_, operation) => &operation.contract,
            Target::Child(_) => &Contract::SETTLED_HERE,
        }
    }

    /// `tool.operation`, or `workflow.NAME`.
    #[must_use]
    pub fn operation_name(&self) -> String {
        format!("{}.{}", self.slot.tool, self.slot.operation)
    }

    /// What is wrong with args by the operation's schema, or that of the workflow's input, in words.
    #[must_use]
    pub fn args_problem(&self, args: &Value) -> Option<String> {
        let problems = self.args_schema.as_ref()?.check(args).err()?;
        let lines: Vec<String> =
            problems.iter().map(|p| format!("args{}: {}", p.pointer, p.message)).collect();
        Some(lines.join("; "))
    }

    /// The approval that a request with these args needs in this state, which is made only where a condition can look at it. One
    /// that cannot be decided is needed.
    #[must_use]
    pub fn approval(
        &self,
        args: &Value,
        object: Option<&str>,
        state: impl FnOnce() -> Value,
    ) -> Option<Required> {
        let declared = self.slot.approve.as_ref()?;
        let text = declared.when.clone().unwrap_or_default();
        let policy =
            match self.approve_when.as_ref().map(|when| when.permits(args, &state(), object)) {
                None => "demanded by the workflow".to_owned(),
                Some(Ok(false)) => return None,
                Some(Ok(true)) => text,
                Some(Err(problem)) => format!("`{text}` could not be evaluated: {problem}"),
            };
        Some(Required { by: declared.by.clone(), expires_ms: declared.expires_ms, policy })
    }

    /// Whether the slot's policy permits these args in this state, which is made only for a policy that can look at it.
    #[must_use]
    pub fn permission(
        &self,
        args: &Value,
        object: Option<&str>,
        state: impl FnOnce() -> Value,
    ) -> Permission {
        let Some(policy) = &self.policy else {
            return Permission::Permitted("granted by the workflow".to_owned());
        };
        let text = self.slot.allow.clone().unwrap_or_default();
        match policy.permits(args, &state(), object) {
            Ok(true) => Permission::Permitted(text),
            Ok(false) => Permission::Refused {
                message: format!(
                    "slot `{}` does not allow these args: `{text}` is false",
                    self.slot.name
                ),
                policy: text,
            },
            // R7.9: an evaluation error is a denial, never a permission.
            Err(problem) => Permission::Refused {
                message: format!("`{text}` could not be evaluated for these args: {problem}"),
                policy: text,
            },
        }
    }
}

/// The right to undo what was asked for through a slot.
fn undo_slot(slot: &Slot, compensation: &Compensation) -> Slot {
    Slot {
        name: slot.name.clone(),
        tool: compensation.tool.clone(),
        operation: compensation.operation.clone(),
        import: None,
        object: None,
        intent: slot.intent.clone(),
        shared: false,
        uses: Uses::Once,
        allow: compensation.allow.clone(),
        approve: compensation.approve.clone(),
        on_conflict: OnConflict::Halt,
        child: false,
        compensate: None,
        pivot: false,
        lock: None,
    }
}

/// What a slot asks for, and the schema of its args.
fn target(definition: &Definition, slot: &Slot) -> Result<(Target, Option<Value>), String> {
    if slot.child {
        let child = definition.children.get(&slot.operation).ok_or_else(|| {
            format!("lacks the workflow `{}` of slot `{}`", slot.operation, slot.name)
        })?;
        let workflow = &child.definition.workflow;
        let target = ChildWorkflow {
            name: workflow.name.clone(),
            version: workflow.version,
            digest: child.digest.clone(),
        };
        return Ok((Target::Child(target), workflow.input_schema.clone()));
    }
    let tool = definition
        .tools
        .get(&slot.tool)
        .ok_or_else(|| format!("lacks the tool `{}` of slot `{}`", slot.tool, slot.name))?;
    let operation = tool
        .operations
        .get(&slot.operation)
        .ok_or_else(|| format!("lacks the operation `{}.{}`", slot.tool, slot.operation))?;
    let target = Target::Operation(Arc::new(tool.clone()), Box::new(operation.clone()));
    Ok((target, Some(operation.args_schema.clone())))
}
