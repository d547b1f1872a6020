//! What a checked project says. These types are also the form in which a run's definition is pinned (I9).

mod tool;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twice_core::event::ConflictRule;
pub use twice_core::event::OnUnknown;
use twice_core::ids::Name;

pub use self::tool::{
    HttpRequest, HttpTool, KeyCarrier, Lookup, Operation, Part, Template, Text, Tool, ToolKind,
    Webhook,
};

/// A workflow with everything it will be interpreted under, as pinned when a run starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The version of this format.
    pub format: u32,
    /// The workflow.
    pub workflow: Workflow,
    /// The tools its slots use, by name.
    pub tools: BTreeMap<Name, Tool>,
    /// The digest of each component, by module name.
    pub components: BTreeMap<Name, String>,
    /// The workflows that its slots start, by name, each as a run of it would be pinned by itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<Name, Child>,
}

/// A child workflow, pinned with its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Child {
    /// The digest of its definition, under which that is kept in the ledger as well.
    pub digest: String,
    /// Its definition.
    pub definition: Definition,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workflow {
    /// Its name.
    pub name: Name,
    /// Its version, raised by its author with each change.
    pub version: u32,
    /// JSON Schema of its input.
    pub input_schema: Option<Value>,
    /// How long a run of it may take, waiting included. Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// In which order the effects of a run that failed are undone.
    #[serde(default, skip_serializing_if = "UndoOrder::is_default")]
    pub undo: UndoOrder,
    /// Its nodes, in an order in which each stands behind what it comes after.
    pub nodes: Vec<Node>,
}

/// A node of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: Name,
    /// The registered module it runs.
    pub component: Name,
    /// The nodes that stand before it.
    pub after: Vec<Name>,
    /// For which of them it waits.
    #[serde(default, skip_serializing_if = "Join::is_default")]
    pub join: Join,
    /// CEL over `state`, `receipts` and `routes`: whether it runs at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What the member `route` of its output may be; empty: it chooses no route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// The array over which it fans out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<FanOut>,
    /// The loop that it closes.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub closes: Option<Loop>,
    /// How long a visit may take from its first start, waiting included; in a fan-out, how long each element may.
    /// Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether the run is over when it is done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ends: bool,
    /// What it may use up.
    pub limits: NodeLimits,
    /// How often a step that failed is started again.
    pub retry: StepRetry,
    /// What it may ask for.
    pub slots: Vec<Slot>,
}

impl Workflow {
    /// The node and the slot whose effect is the point of no return, if there is one.
    #[must_use]
    pub fn pivot(&self) -> Option<(&Node, &Slot)> {
        let slots =
            self.nodes.iter().flat_map(|node| node.slots.iter().map(move |slot| (node, slot)));
        slots.into_iter().find(|(_, slot)| slot.pivot)
    }

    /// Whether any of its effects can be undone.
    #[must_use]
    pub fn undoes(&self) -> bool {
        self.nodes.iter().flat_map(|node| &node.slots).any(|slot| slot.compensate.is_some())
    }

    /// The workflows that its slots start.
    pub fn children(&self) -> impl Iterator<Item = &Name> {
        let slots = self.nodes.iter().flat_map(|node| &node.slots);
        slots.filter(|slot| slot.child).map(|slot| &slot.operation)
    }
}

/// The tool by which a slot starts a run of another workflow; no tool file may have this name.
pub const CHILD_TOOL: &str = "workflow";

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// In which order effects are undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoOrder {
    /// One by one, newest first.
    #[default]
    Sequential,
    /// Newest first along each path; effects of nodes that do not precede each other at once.
    Branches,
}

impl UndoOrder {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// For which of the nodes before it a node waits. A node is settled when it is done or skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// Until all are settled.
    #[default]
    All,
    /// Until the first is done.
    Any,
}

impl Join {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A fan-out: one step for each element of a trusted array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FanOut {
    /// JSON Pointer to the array, into trusted durable state.
    pub array: String,
    /// JSON Pointer within an element to the string or integer that tells it from the others.
    pub element: String,
    /// Most steps at once.
    pub parallel: u32,
}

/// A loop: when the node that closes it is done and `when` holds, the nodes from `to` to it are visited again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loop {
    /// The node where a round begins.
    pub to: Name,
    /// CEL over `state`, `receipts` and `routes`: whether there is another round.
    pub when: String,
    /// Most rounds, each time that the loop is entered.
    pub max_visits: u32,
    /// What happens when `when` holds after the last of them.
    #[serde(default, skip_serializing_if = "Exhausted::is_default")]
    pub exhausted: Exhausted,
}

/// What happens when a loop has had its last round and would have another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// The run fails.
    #[default]
    Fail,
    /// The run goes on behind the loop.
    GoOn,
}

impl Exhausted {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How an effect is undone: an effect of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compensation {
    /// The tool.
    pub tool: Name,
    /// The operation of the tool.
    pub operation: Name,
    /// Its args. References are pointers into `{ "receipt": { "external_id": …, "result": … }, "args": …, "input": …,
    /// "element": … }`.
    pub args: Template,
    /// CEL over `args` and `state`; absent: the workflow itself permits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<String>,
    /// Whether a person has to approve it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<Approve>,
    /// What happens while it is not known whether the effect happened.
    #[serde(default, skip_serializing_if = "OnUnknown::is_default")]
    pub on_unknown: OnUnknown,
    /// How often it is asked for when it is definitely refused.
    pub retry: StepRetry,
}

/// A person's approval of an effect, before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// CEL over `args` and `state`: whether it is needed; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Who is asked.
    pub by: Name,
    /// How long they have to answer, and how long their answer is good for, from when they are asked. Milliseconds.
    pub expires_ms: u64,
}

/// A lock on a business object, from the proposal of the effect to the end of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// What kind of object it is; with the object's value it is the name of the lock.
    pub name: Name,
    /// How long it is held at most. Milliseconds; absent: until the run is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

/// What one call of a node may use up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLimits {
    /// Linear memory. Bytes.
    pub memory_bytes: u64,
    /// From start to return, waiting included. Milliseconds.
    pub time_ms: u64,
    /// Most effect requests of one call.
    pub effects: u32,
    /// Most bytes of log of one call.
    pub log_bytes: u64,
}

/// How often a step that failed is started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRetry {
    /// Most attempts, the first included.
    pub attempts: u32,
    /// Wait before the second; doubles from there. Milliseconds.
    pub initial_ms: u64,
    /// Longest wait. Milliseconds.
    pub max_ms: u64,
}

/// An effect that the workflow lets a node request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// The name the node uses.
    pub name: Name,
    /// The tool.
    pub tool: Name,
    /// The operation of the tool.
    pub operation: Name,
    /// The WIT interface by which a typed component asks for it, where that is not the tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<String>,
    /// Where the business object is: a JSON Pointer into trusted durable state, `/input/…` or
    /// `/receipts/<node>/<slot>/…`, or `/element/…` in a fan-out; relative to the element (`/…`) when `uses` is `ForEach`.
    /// Absent only for reads.
    pub object: Option<String>,
    /// What is meant.
    pub intent: String,
    /// Whether the effect is shared between runs.
    pub shared: bool,
    /// How often the slot may be used in one step.
    pub uses: Uses,
    /// CEL over `args` and `state`; absent: the grant itself permits.
    pub allow: Option<String>,
    /// Whether a person has to approve it first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<Approve>,
    /// What happens when the effect is requested again with other args.
    pub on_conflict: OnConflict,
    /// Whether it starts a run of another workflow: `tool` is then [`CHILD_TOOL`], `operation` the workflow's name.
    #[serde(default, skip_serializing_if = "is_false")]
    pub child: bool,
    /// How the effect is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Compensation>,
    /// Whether there is no way back once the effect happened.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pivot: bool,
    /// The lock that the run takes on the business object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
}

impl Slot {
    /// The pointer to the array it is bound to, if it is.
    #[must_use]
    pub fn array(&self) -> Option<&str> {
        match &self.uses {
            Uses::ForEach(pointer) => Some(pointer),
            Uses::Once | Uses::Repeat(_) => None,
        }
    }
}

/// How often a slot may be used in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uses {
    /// Once.
    Once,
    /// Once per element of a trusted array; `item` selects. JSON Pointer to the array.
    ForEach(String),
    /// Up to so many times; the host counts.
    Repeat(u32),
}

/// The declared rule for conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// A person decides.
    Halt,
    /// The guest gets the recorded receipt.
    Keep,
}

impl OnConflict {
    /// The decision it stands for, if it decides by itself.
    #[must_use]
    pub const fn rule(self) -> Option<ConflictRule> {
        match self {
            Self::Halt => None,
            Self::Keep => Some(ConflictRule::Keep),
        }
    }
}
