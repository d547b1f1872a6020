//! Where the steps of a run stand: a fold over the run's events, from which alone it is planned what comes next.
//!
//! Taking in an event costs a look-up, not a walk: a fan-out of ten thousand elements keeps those that are still open in a
//! set of its own. A progress is worth saving now and then, beside the number of the last entry taken in; saved after each
//! element of a large fan-out, it would be written as often as it is large.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::event::{EndCause, RunEvent, SkipReason};
use crate::ids::{EffectId, ElementId, Name};
use crate::time::Timestamp;

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

const fn one() -> u32 {
    1
}

/// A step: one visit of a node, of one element in a fan-out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepId {
    /// The node.
    pub node: Name,
    /// Its visit, from 1.
    pub visit: u32,
    /// The element, in a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementId>,
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node)?;
        if let Some(element) = &self.element {
            write!(f, "[{element}]")?;
        }
        if self.visit > 1 { write!(f, " (visit {})", self.visit) } else { Ok(()) }
    }
}

/// Where each node of a run stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// When the run started, or was last ordered to be tried again; its time limit counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The nodes that have been reached, by name. One that is missing stands before its first visit.
    pub nodes: BTreeMap<Name, NodeProgress>,
    /// How many visits have been completed in all.
    #[serde(default, skip_serializing_if = "is_default")]
    completed: u64,
    /// Why the run does not go on, once it is being undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensating: Option<Compensating>,
    /// The effects of which a person said that nothing is left to undo.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub undo_resolved: BTreeSet<EffectId>,
}

/// Why a run does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compensating {
    /// What ended it.
    pub cause: EndCause,
    /// Why, in words.
    pub why: String,
}

/// Where a node stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeProgress {
    /// Its current visit, from 1.
    pub visit: u32,
    /// Which visit this is since the loop that the node closes was entered, from 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub round: u32,
    /// What has become of the current visit.
    pub standing: Standing,
    /// Whether it is decided that the current visit takes place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub entered: bool,
    /// Whether it is decided that the loop which the node closes is over.
    #[serde(default, skip_serializing_if = "is_default")]
    pub left: bool,
    /// The step of the current visit; of no meaning in a fan-out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub step: StepProgress,
    /// The elements of the current visit, once it is entered, in a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements: Option<Elements>,
    /// The output of its latest visit; `None` where that was skipped, or none has returned yet.
    pub output: Option<Value>,
    /// When it last returned; the durable clock of the steps after it starts here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How many visits of the run were completed up to its last one: the order of completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_as: Option<u64>,
    /// What the visit before left behind: a step that started before the latest was settled sees this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    earlier: Option<Box<Returned>>,
}

/// What a visit left behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Returned {
    output: Value,
    finished_at: Timestamp,
    completed_as: u64,
}

/// What has become of a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nothing yet: it waits, runs, or has failed.
    Open,
    /// It returned, each element of it in a fan-out.
    Completed,
    /// It does not take place.
    Skipped(SkipReason),
}

/// Where a step stands that has not returned.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepProgress {
    /// When it first started, where that is on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// How many visits were completed when it first started, where that is on record: it sees the outputs of no others,
    /// however often it is started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<u64>,
    /// How many attempts failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed_attempts: u32,
    /// The earliest next attempt, when one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Why it failed for good, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up: Option<String>,
}

impl StepProgress {
    /// Whether an attempt of it is on record.
    #[must_use]
    pub const fn has_started(&self) -> bool {
        self.started_at.is_some() || self.failed_attempts > 0
    }
}

/// The elements of a fan-out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredElements", into = "StoredElements")]
pub struct Elements {
    ids: Vec<ElementId>,
    /// Where each element stands in the array.
    positions: BTreeMap<ElementId, u32>,
    /// Those that have not returned.
    open: BTreeSet<u32>,
    /// Those of the open ones that have started.
    steps: BTreeMap<u32, StepProgress>,
    /// Those of the open ones that failed for good.
    gave_up: BTreeSet<u32>,
    outputs: Vec<Option<Value>>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredElements {
    ids: Vec<ElementId>,
    steps: BTreeMap<u32, StepProgress>,
    /// Of those that returned; all of them are `None` once the visit is completed, as the node's output has them.
    outputs: Vec<Option<Value>>,
    open: BTreeSet<u32>,
}

impl From<Elements> for StoredElements {
    fn from(Elements { ids, open, steps, outputs, .. }: Elements) -> Self {
        Self { ids, steps, outputs, open }
    }
}

impl From<StoredElements> for Elements {
    fn from(StoredElements { ids, steps, outputs, open }: StoredElements) -> Self {
        let positions = (0..).zip(&ids).map(|(index, id)| (id.clone(), index)).collect();
        let gave_up = steps
            .iter()
            .filter(|(_, step)| step.gave_up.is_some())
            .map(|(index, _)| *index)
            .collect();
        Self { ids, positions, open, steps, gave_up, outputs }
    }
}

impl Elements {
    fn new(ids: Vec<ElementId>) -> Self {
        let outputs = vec![None; ids.len()];
        let open = (0..).zip(&ids).map(|(index, _)| index).collect();
        StoredElements { ids, steps: BTreeMap::new(), outputs, open }.into()
    }

    /// How many there are.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ids.len()
    }

    /// How many have returned.
    #[must_use]
    pub fn done(&self) -> usize {
        self.ids.len() - self.open.len()
    }

    /// Where an element stands in its array, from 0.
    #[must_use]
    pub fn position(&self, element: &ElementId) -> Option<u32> {
        self.positions.get(element).copied()
    }

    /// Those that have not returned, in the order of the array, with where they stand.
    pub fn open(&self) -> impl Iterator<Item = (&ElementId, Option<&StepProgress>)> {
        self.open.iter().map(|index| (&self.ids[*index as usize], self.steps.get(index)))
    }

    /// Those that have started and not returned, in the order of the array.
    pub fn started(&self) -> impl Iterator<Item = (&ElementId, &StepProgress)> {
        self.steps.iter().map(|(index, step)| (&self.ids[*index as usize], step))
    }

    /// Those that failed for good, in the order of the array.
    pub fn gave_up(&self) -> impl Iterator<Item = (&ElementId, &StepProgress)> {
        self.gave_up.iter().map(|index| (&self.ids[*index as usize], &self.steps[index]))
    }

    fn completed(&mut self, element: &ElementId, output: &Value) {
        let Some(index) = self.position(element) else { return };
        if self.open.remove(&index) {
            self.steps.remove(&index);
            self.gave_up.remove(&index);
            self.outputs[index as usize] = Some(output.clone());
        }
    }

    /// The outputs in the order of the array, once every element has returned; they are handed out once.
    fn take_output(&mut self) -> Option<Value> {
        let whole = self.open.is_empty();
        whole.then(|| {
            self.outputs.iter_mut().map(|output| output.take().unwrap_or_default()).collect()
        })
    }

    fn try_again(&mut self) {
        self.gave_up.clear();
        self.steps.clear();
    }
}

impl NodeProgress {
    const FIRST: Self = Self {
        visit: 1,
        round: 1,
        standing: Standing::Open,
        entered: false,
        left: false,
        step: StepProgress {
            started_at: None,
            seen: None,
            failed_attempts: 0,
            retry_at: None,
            gave_up: None,
        },
        elements: None,
        output: None,
        finished_at: None,
        completed_as: None,
        earlier: None,
    };

    /// The next visit; what the last one left behind is there until this one is settled.
    fn again(&mut self) {
        *self = Self {
            visit: self.visit.saturating_add(1),
            output: self.output.take(),
            finished_at: self.finished_at,
            completed_as: self.completed_as,
            earlier: self.earlier.take(),
            ..Self::FIRST
        };
    }

    /// Puts what the visit before left behind in second place.
    fn settle(&mut self) {
        if let (Some(output), Some(finished_at), Some(completed_as)) =
            (self.output.take(), self.finished_at, self.completed_as)
        {
            self.earlier = Some(Box::new(Returned { output, finished_at, completed_as }));
        }
    }

    /// Output and end of the latest visit of those that were among the first `seen` to be completed.
    fn returned(&self, seen: Option<u64>) -> Option<(&Value, Timestamp)> {
        let in_time = |completed_as| seen.is_none_or(|seen| completed_as <= seen);
        let latest = self.output.as_ref().zip(self.finished_at).zip(self.completed_as);
        let latest = latest.filter(|(_, completed_as)| in_time(*completed_as));
        let earlier = || self.earlier.as_deref().filter(|earlier| in_time(earlier.completed_as));
        match latest {
            Some((returned, _)) => Some(returned),
            // A visit that was skipped, when the step could see it, leaves nothing.
            None if seen.is_none() => None,
            None => earlier().map(|earlier| (&earlier.output, earlier.finished_at)),
        }
    }

    fn step_mut(&mut self, element: Option<&ElementId>) -> Option<&mut StepProgress> {
        let Some(element) = element else { return Some(&mut self.step) };
        let elements = self.elements.as_mut()?;
        let index = elements.position(element).filter(|index| elements.open.contains(index))?;
        Some(elements.steps.entry(index).or_default())
    }

    fn complete(&mut self, output: Value, at: Timestamp, count: &mut u64) {
        *count += 1;
        self.settle();
        self.standing = Standing::Completed;
        self.output = Some(output);
        self.finished_at = Some(at);
        self.completed_as = Some(*count);
        self.step = StepProgress::default();
    }
}

impl Progress {
    /// The progress of a run with those events, in order.
    #[must_use]
    pub fn of<'a>(events: impl IntoIterator<Item = (&'a RunEvent, Timestamp)>) -> Self {
        let mut progress = Self::default();
        for (event, at) in events {
            progress.apply(event, at);
        }
        progress
    }

    /// Takes in one more event of the run. An event about a visit that is over changes nothing.
    pub fn apply(&mut self, event: &RunEvent, at: Timestamp) {
        match event {
            RunEvent::Started { .. } => self.started_at = Some(at),
            RunEvent::NodeEntered { node, visit, elements } => {
                let Some(entry) = reached(&mut self.nodes, node, *visit) else { return };
                entry.entered = true;
                if let Some(ids) = elements {
                    let mut elements = Elements::new(ids.clone());
                    if let Some(output) = elements.take_output() {
                        entry.complete(output, at, &mut self.completed);
                    }
                    entry.elements = Some(elements);
                }
            }
            RunEvent::StepSkipped { node, visit, why } => {
                let Some(entry) = reached(&mut self.nodes, node, *visit) else { return };
                entry.standing = Standing::Skipped(*why);
                entry.settle();
                entry.output = None;
            }
            RunEvent::LoopDecided { node, visit, again } => {
                self.loop_decided(node, *visit, again);
            }
            RunEvent::StepStarted { node, visit, element } => {
                let seen = self.completed;
                let Some(entry) = reached(&mut self.nodes, node, *visit) else { return };
                if let Some(step) = entry.step_mut(element.as_ref()) {
                    step.started_at.get_or_insert(at);
                    step.seen.get_or_insert(seen);
                }
            }
            RunEvent::StepCompleted { node, visit, element, output, .. } => {
                let Some(entry) = reached(&mut self.nodes, node, *visit) else { return };
                match (element, &mut entry.elements) {
                    (None, _) => entry.complete(output.clone(), at, &mut self.completed),
                    (Some(element), Some(elements)) => {
                        elements.completed(element, output);
                        if let Some(output) = elements.take_output() {
                            entry.complete(output, at, &mut self.completed);
                        }
                    }
                    (Some(_), None) => {}
                }
            }
            RunEvent::StepFailed { node, visit, element, attempt, cause, retry_at } => {
                let Some(entry) = reached(&mut self.nodes, node, *visit) else { return };
                if let Some(step) = entry.step_mut(element.as_ref()) {
                    step.failed_attempts = *attempt;
                    step.retry_at = *retry_at;
                    step.gave_up = retry_at.is_none().then(|| cause.describe(node));
                    if step.gave_up.is_some()
                        && let (Some(element), Some(elements)) = (element, &mut entry.elements)
                        && let Some(index) = elements.position(element)
                    {
                        elements.gave_up.insert(index);
                    }
                }
            }
            RunEvent::Compensating { cause, why } => {
                self.compensating = Some(Compensating { cause: *cause, why: why.clone() });
            }
            RunEvent::UndoResolved { effect, .. } => {
                self.undo_resolved.insert(effect.clone());
            }
            RunEvent::Retried { .. } => {
                self.compensating = None;
                self.started_at = Some(at);
                for node in self.nodes.values_mut().filter(|n| n.standing == Standing::Open) {
                    node.step = StepProgress::default();
                    node.elements.iter_mut().for_each(Elements::try_again);
                }
            }
            RunEvent::Claimed { .. }
            | RunEvent::Parked { .. }
            | RunEvent::Halted { .. }
            | RunEvent::Released { .. }
            | RunEvent::RequestRefused { .. }
            | RunEvent::Adopted { .. }
            | RunEvent::ObjectLocked { .. }
            | RunEvent::ObjectUnlocked { .. }
            | RunEvent::Completed { .. }
            | RunEvent::Failed { .. }
            | RunEvent::CancelRequested { .. }
            | RunEvent::Cancelled { .. }
            | RunEvent::Stuck { .. }
            | RunEvent::Quarantined { .. } => {}
        }
    }

    fn loop_decided(&mut self, node: &Name, visit: u32, again: &[Name]) {
        let Some(entry) = self.nodes.get_mut(node).filter(|entry| entry.visit == visit) else {
            return;
        };
        if again.is_empty() {
            entry.left = true;
            return;
        }
        let round = entry.round.saturating_add(1);
        for name in again {
            self.nodes.entry(name.clone()).or_insert(NodeProgress::FIRST).again();
        }
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.round = round;
        }
    }

    /// The visit that a node is at, from 1.
    #[must_use]
    pub fn visit(&self, node: &Name) -> u32 {
        self.nodes.get(node).map_or(1, |node| node.visit)
    }

    /// What has become of the current visit of a node.
    #[must_use]
    pub fn standing(&self, node: &Name) -> Standing {
        self.nodes.get(node).map_or(Standing::Open, |node| node.standing)
    }

    /// Where a step stands that is on record and has not returned.
    #[must_use]
    pub fn step(&self, id: &StepId) -> Option<&StepProgress> {
        let node = self.nodes.get(&id.node).filter(|node| node.visit == id.visit)?;
        match &id.element {
            None => Some(&node.step),
            Some(element) => {
                let elements = node.elements.as_ref()?;
                elements.steps.get(&elements.position(element)?)
            }
        }
    }

    /// When a node last returned, as far as a step can know that saw the first `seen` completed visits.
    #[must_use]
    pub fn finished_at(&self, node: &Name, seen: Option<u64>) -> Option<Timestamp> {
        Some(self.nodes.get(node)?.returned(seen)?.1)
    }

    /// How many elements its fan-outs have: what a copy of it costs beyond a few entries for each node.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.nodes.values().filter_map(|node| node.elements.as_ref()).map(Elements::total).sum()
    }

    /// The state that a step sees, which stays the same however often it is started: as [`Progress::state`], with the nodes
    /// for which `sees` holds, by the first `seen` completed visits.
    #[must_use]
    pub fn state_seen(
        &self,
        input: &Value,
        element: Option<&Value>,
        seen: Option<u64>,
        sees: impl Fn(&Name) -> bool,
    ) -> Value {
        let nodes =
            self.nodes.iter().filter(|(name, _)| sees(name)).filter_map(|(name, node)| {
                Some((name.to_string(), node.returned(seen)?.0.clone()))
            });
        state(input, nodes.collect(), element)
    }

    /// The state that a condition sees: `{ "input": …, "nodes": { "<name>": <the output of its latest visit> } }`, and `element`
    /// in a fan-out.
    #[must_use]
    pub fn state(&self, input: &Value, element: Option<&Value>) -> Value {
        let outputs = self.nodes.iter();
        let outputs =
            outputs.filter_map(|(name, node)| Some((name.to_string(), node.output.clone()?)));
        state(input, outputs.collect(), element)
    }
}

fn state(input: &Value, nodes: Map<String, Value>, element: Option<&Value>) -> Value {
    match element {
        None => json!({ "input": input, "nodes": nodes }),
        Some(element) => json!({ "input": input, "nodes": nodes, "element": element }),
    }
}

/// The node, if that visit is its current one and still open.
fn reached<'a>(
    nodes: &'a mut BTreeMap<Name, NodeProgress>,
    node: &Name,
    visit: u32,
) -> Option<&'a mut NodeProgress> {
    if !nodes.contains_key(node) {
        nodes.insert(node.clone(), NodeProgress::FIRST);
    }
    nodes.get_mut(node).filter(|entry| entry.visit == visit && entry.standing == Standing::Open)
}
