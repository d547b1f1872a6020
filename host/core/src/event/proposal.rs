//! What is asked for, and what is decided with it: how it is undone, and what a person has to say first.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::{Contract, Retry};
use crate::identity::{Identity, RequestHash};
use crate::ids::{EffectId, ElementId, Name};
use crate::progress::StepId;

/// What is asked for, with everything that later decisions rest on frozen beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// What the effect id is the digest of.
    pub identity: Identity,
    /// The node that asked; part of the identity unless the effect is shared between runs.
    pub node: Name,
    /// The visit of that node.
    pub visit: u32,
    /// The element, in a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementId>,
    /// The slot through which it asked.
    pub slot: Name,
    /// The tool that performs it.
    pub tool: Name,
    /// The version of that tool's file.
    pub tool_version: String,
    /// The operation of that tool.
    pub operation: Name,
    /// The args as the guest gave them, after strict parsing.
    pub args: Value,
    /// The digest of tool, operation and args without incidental fields.
    pub request_hash: RequestHash,
    /// The readable key.
    pub idempotency_key: String,
    /// The key in the form sent to the provider; never derived anew.
    pub provider_key: String,
    /// The promises of the operation at this time.
    pub contract: Contract,
    /// How it is undone, decided before anything of it is sent; absent: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Box<Compensation>>,
    /// The effect that this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<EffectId>,
    /// The approval that it needs before it is sent; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Box<Required>>,
    /// The effect that this one asks a person's approval of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approves: Option<EffectId>,
}

/// A person's approval that an effect needs, decided with its proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Required {
    /// Who is asked.
    pub by: Name,
    /// How long they have to answer, and how long the answer is good for, from when they are asked. Milliseconds.
    pub expires_ms: u64,
    /// Why it is needed: the slot's `approve.when`, or the bare demand.
    pub policy: String,
}

/// How an effect is undone, frozen with its proposal: by an effect of its own, whose identity follows from that of the effect
/// (see [`Identity::compensation`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compensation {
    /// The tool.
    pub tool: Name,
    /// The version of that tool's file.
    pub tool_version: String,
    /// The operation of that tool.
    pub operation: Name,
    /// The args: the template of the pinned definition, in which only what comes from the receipt is still to be filled in.
    pub args: Value,
    /// What happens while it is not known whether there is anything to undo.
    pub on_unknown: OnUnknown,
    /// The readable key of the first request to undo it.
    pub idempotency_key: String,
    /// How often it is asked for in all, when it is definitely refused, and how long it waits in between.
    pub retry: Retry,
}

/// What becomes of a compensation while it is not known whether there is anything to undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// It waits until that is known.
    #[default]
    Hold,
    /// It is made once nobody but a person can find out; undoing what did not happen does no harm.
    Undo,
}

impl OnUnknown {
    /// Whether it is the usual.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Proposal {
    /// Whether a node asked for it, rather than the host for the sake of another effect.
    #[must_use]
    pub const fn is_of_node(&self) -> bool {
        self.undoes.is_none() && self.approves.is_none()
    }

    /// The step that asked.
    #[must_use]
    pub fn step(&self) -> StepId {
        StepId { node: self.node.clone(), visit: self.visit, element: self.element.clone() }
    }
}

/// Why an effect may be sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorization {
    /// The policy that permitted it: the slot's `allow` expression, or the bare grant.
    pub policy: String,
    /// The request that was permitted.
    pub request_hash: RequestHash,
    /// The approval under which it was, when one was required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<EffectId>,
}
