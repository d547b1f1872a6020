//! The facts on which the conditions of a run rest.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use twice_core::ids::{ElementId, Name};
use twice_core::progress::Progress;

use super::Evaluate;
use crate::model::{FanOut, Node, Workflow};
use crate::source::{self, Source, Trusted};
use crate::{condition, elements};

/// What is recorded of a run.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The workflow that the run is pinned to.
    pub workflow: &'a Workflow,
    /// Where its steps stand.
    pub progress: &'a Progress,
    /// Its input.
    pub input: &'a Value,
    /// Gives the receipt that the latest visit of a node got through a slot, as `{ "external_id": …, "result": … }`.
    pub receipts: &'a dyn Fn(&Name, &Name) -> Option<Value>,
}

impl Evaluate for Facts<'_> {
    fn holds(&self, _: &Node, condition: &str) -> Result<bool, String> {
        let expression = condition::compile(condition).map_err(|error| error.to_string())?;
        let state = self.progress.state(self.input, None);
        let receipts = self.receipts_named(expression.members());
        let routes = Value::Object(self.routes());
        expression.decide(&[&state, &receipts, &routes]).map_err(|error| error.to_string())
    }

    fn elements(&self, _: &Node, fan_out: &FanOut) -> Result<Vec<ElementId>, String> {
        let trusted = Trusted { input: self.input, element: None, receipts: self.receipts };
        elements::of(fan_out, trusted).map(|(_, ids)| ids).map_err(|error| {
            let source = std::error::Error::source(&error);
            source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
        })
    }
}

impl Facts<'_> {
    /// The receipts that an expression names, by node and slot.
    fn receipts_named(&self, members: &[Vec<String>]) -> Value {
        let mut nodes = Map::new();
        for path in members.iter().filter(|path| path[0] == "receipts") {
            let (Some(node), Some(slot)) = (path.get(1), path.get(2)) else { continue };
            let (Ok(node_name), Ok(slot_name)) =
                (Name::parse(node.as_str()), Name::parse(slot.as_str()))
            else {
                continue;
            };
            let slots = nodes.entry(node.clone()).or_insert_with(|| Value::Object(Map::new()));
            if let (Some(receipt), Value::Object(slots)) =
                ((self.receipts)(&node_name, &slot_name), slots)
            {
                slots.insert(slot.clone(), receipt);
            }
        }
        Value::Object(nodes)
    }

    /// The route that the latest visit of each node took.
    fn routes(&self) -> Map<String, Value> {
        let routes = self.workflow.nodes.iter().filter_map(|node| {
            let output = self.progress.nodes.get(&node.name)?.output.as_ref()?;
            let word = route(node, output).ok()??;
            Some((node.name.to_string(), Value::from(word)))
        });
        routes.collect()
    }
}

/// The nodes whose receipts the conditions and fan-outs of a workflow rest on.
#[must_use]
pub fn sources(workflow: &Workflow) -> BTreeSet<Name> {
    let mut sources = BTreeSet::new();
    for node in &workflow.nodes {
        let conditions = [node.when.as_ref(), node.closes.as_ref().map(|closes| &closes.when)];
        // One that does not compile is told of when it is to be decided.
        let compiled = conditions.into_iter().flatten().filter_map(|c| condition::compile(c).ok());
        for expression in compiled {
            let paths = expression.members().iter().filter(|path| path[0] == "receipts");
            sources.extend(paths.filter_map(|path| Name::parse(path.get(1)?.as_str()).ok()));
        }
        let array = node.for_each.as_ref().and_then(|fan_out| source::parse(&fan_out.array).ok());
        if let Some(Source::Receipt { node, .. }) = array {
            sources.insert(node);
        }
    }
    sources
}

/// The route that a node takes by its output; none where it declares no routes.
///
/// # Errors
/// In words, when it declares routes, and its output names none of them: such an output cannot be taken.
pub fn route<'a>(node: &Node, output: &'a Value) -> Result<Option<&'a str>, String> {
    if node.routes.is_empty() {
        return Ok(None);
    }
    let declared = || {
        let words: Vec<String> = node.routes.iter().map(|word| format!("`{word}`")).collect();
        words.join(", ")
    };
    let word = output.get("route").and_then(Value::as_str).ok_or_else(|| {
        format!(
            "the output of node `{}` has no text `route`, which must be one of {}",
            node.name,
            declared()
        )
    })?;
    if node.routes.iter().any(|route| route == word) {
        Ok(Some(word))
    } else {
        Err(format!("the output of node `{}` has a `route` other than {}", node.name, declared()))
    }
}
