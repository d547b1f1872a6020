//! The planner: what comes next in a run, by its pinned workflow and what is recorded of it. Pure: the same record gives the
//! same plan, in whatever order, and on whatever machine, it came about.
//!
//! Whoever executes a run asks [`next`] again and again. A [`Plan::Decide`] holds decisions: they are recorded, taken into the
//! progress, and then never made anew, as what they rest on (what a guest returned) is not asked twice. Asking costs a walk
//! over the nodes and as many elements as may run at once, not one over all elements.
//!
//! The start of a step is recorded with the first entry that it makes: time limits count from it, and it tells which steps
//! have to return when the run ends or fails elsewhere. A run in which one step follows the other, without time limits, has no
//! need of it.

mod facts;
mod undo;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use twice_core::event::{RunEvent, SkipReason};
use twice_core::ids::{ElementId, Name};
use twice_core::progress::{NodeProgress, Progress, Standing, StepId, StepProgress};
use twice_core::time::Timestamp;

pub use self::facts::{Facts, route, sources};
pub use self::undo::{Undoable, compensation_order, rests_on};
use crate::graph::Links;
use crate::model::{Exhausted, FanOut, Join, Node, Workflow};

/// The graph of a workflow, worked out once.
#[derive(Debug, Clone)]
pub struct Graph {
    places: BTreeMap<Name, usize>,
    links: Links,
    /// By node, the nodes of the loop that it closes, in the order of the workflow.
    bodies: Vec<Option<Vec<usize>>>,
}

impl Graph {
    /// The graph of a checked workflow.
    #[must_use]
    pub fn of(workflow: &Workflow) -> Self {
        let places: BTreeMap<Name, usize> =
            workflow.nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
        let before =
            |node: &Node| node.after.iter().filter_map(|name| places.get(name).copied()).collect();
        let links = Links::of(workflow.nodes.iter().map(before).collect());
        let body = |(at, node): (usize, &Node)| {
            let to = places.get(&node.closes.as_ref()?.to)?;
            Some(links.body(*to, at)?.into_iter().collect())
        };
        let bodies = workflow.nodes.iter().enumerate().map(body).collect();
        Self { places, links, bodies }
    }

    /// The nodes behind which none stands.
    pub fn terminals(&self) -> impl Iterator<Item = usize> {
        self.links
            .behind
            .iter()
            .enumerate()
            .filter(|(_, behind)| behind.is_empty())
            .map(|(at, _)| at)
    }

    /// By node, those whose outputs its steps see: those that can only run before it, or, in a loop, behind it, and itself. What may run
    /// beside it would show one output at its first start and another when it is started again.
    #[must_use]
    pub fn related(&self) -> Vec<BTreeSet<usize>> {
        let all = 0..self.places.len();
        all.map(|at| {
            let mut related = &self.links.ancestors(at) | &self.links.descendants(at);
            related.insert(at);
            related
        })
        .collect()
    }

    /// Whether steps of the workflow may be under way beside each other.
    #[must_use]
    pub fn is_concurrent(&self, workflow: &Workflow) -> bool {
        let nodes = workflow.nodes.len();
        workflow.nodes.iter().any(|node| node.for_each.is_some())
            || self.related().iter().any(|related| related.len() < nodes)
    }

    /// Whether one node can only run before, or only behind, the other.
    fn precede(&self, one: usize, other: usize) -> bool {
        self.links.ancestors(one).contains(&other) || self.links.ancestors(other).contains(&one)
    }
}

/// Answers what a plan depends on besides the progress.
pub trait Evaluate {
    /// Whether a condition of a node holds.
    ///
    /// # Errors
    /// In words, when it cannot be decided.
    fn holds(&self, node: &Node, condition: &str) -> Result<bool, String>;

    /// The identities of the elements over which a node fans out, in the order of their array, each once.
    ///
    /// # Errors
    /// In words, when there are none to be had, or they cannot be told apart.
    fn elements(&self, node: &Node, fan_out: &FanOut) -> Result<Vec<ElementId>, String>;
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// These decisions, which are to be recorded in this order before a plan is asked for again. Never empty.
    Decide(Vec<RunEvent>),
    /// These steps may run now, those first in the workflow first; some of them may be running already. Never empty.
    Run(Vec<PlannedStep>),
    /// The run is completed.
    Complete {
        /// Its output.
        output: Value,
    },
    /// The run cannot go on.
    Fail {
        /// Why, in words.
        why: String,
    },
}

/// A step that may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedStep {
    /// Which.
    pub id: StepId,
    /// Not before this instant, as an attempt failed.
    pub not_before: Option<Timestamp>,
    /// When it is too late, once its first start is on record.
    pub deadline: Option<Timestamp>,
}

/// When a run is too late, if its workflow limits its time.
#[must_use]
pub fn run_deadline(workflow: &Workflow, progress: &Progress) -> Option<Timestamp> {
    Some(progress.started_at?.plus_ms(workflow.timeout_ms?))
}

/// What comes next in a run. `graph` is that of `workflow`.
#[must_use]
pub fn next(
    workflow: &Workflow,
    graph: &Graph,
    progress: &Progress,
    evaluate: &dyn Evaluate,
) -> Plan {
    let planner = Planner { workflow, graph, progress, evaluate };
    if let Some(why) = planner.failure() {
        return Plan::Fail { why };
    }
    match planner.ended() {
        Some(output) => planner.end(output),
        None => planner.go_on().unwrap_or_else(|why| Plan::Fail { why }),
    }
}

struct Planner<'a> {
    workflow: &'a Workflow,
    graph: &'a Graph,
    progress: &'a Progress,
    evaluate: &'a dyn Evaluate,
}

impl Planner<'_> {
    fn reached(&self, at: usize) -> Option<&NodeProgress> {
        self.progress.nodes.get(&self.workflow.nodes[at].name)
    }

    fn standing(&self, at: usize) -> Standing {
        self.reached(at).map_or(Standing::Open, |node| node.standing)
    }

    /// Whether what stands behind the node may count on it: it is done, and so is the loop that it closes.
    fn is_done(&self, at: usize) -> bool {
        let closes = self.graph.bodies[at].is_some();
        self.standing(at) == Standing::Completed
            && (!closes || self.reached(at).is_some_and(|node| node.left))
    }

    fn is_skipped(&self, at: usize) -> bool {
        matches!(self.standing(at), Standing::Skipped(_))
    }

    /// Why the run has failed, if a step did for good.
    fn failure(&self) -> Option<String> {
        for node in &self.workflow.nodes {
            let Some(reached) = self.progress.nodes.get(&node.name) else { continue };
            if reached.standing != Standing::Open {
                continue;
            }
            let element = reached.elements.as_ref().and_then(|elements| elements.gave_up().next());
            let (element, step) = match element {
                Some((element, step)) => (Some(element.clone()), step),
                None => (None, &reached.step),
            };
            if let Some(message) = &step.gave_up {
                let id = StepId { node: node.name.clone(), visit: reached.visit, element };
                let told = if id.visit == 1 && id.element.is_none() {
                    message.clone()
                } else {
                    format!("step {id}: {message}")
                };
                return Some(told);
            }
        }
        None
    }

    /// The output of the node that ended the run: the first that was done.
    fn ended(&self) -> Option<Value> {
        let ends = self.workflow.nodes.iter().filter(|node| node.ends);
        let done = ends.filter_map(|node| self.progress.nodes.get(&node.name));
        let done = done.filter(|node| node.standing == Standing::Completed);
        done.min_by_key(|node| node.completed_as)?.output.clone()
    }

    /// The run is over: what runs may return, what has not started does not start any more.
    fn end(&self, output: Value) -> Plan {
        let started = started(self.workflow, self.progress);
        if !started.is_empty() {
            return Plan::Run(started);
        }
        let skipped = (0..self.workflow.nodes.len())
            .filter(|at| self.standing(*at) == Standing::Open)
            .map(|at| self.skip(at, SkipReason::Ended));
        let skipped: Vec<RunEvent> = skipped.collect();
        if skipped.is_empty() { Plan::Complete { output } } else { Plan::Decide(skipped) }
    }

    fn skip(&self, at: usize, why: SkipReason) -> RunEvent {
        let node = self.workflow.nodes[at].name.clone();
        RunEvent::StepSkipped { visit: self.progress.visit(&node), node, why }
    }

    fn go_on(&self) -> Result<Plan, String> {
        let mut decisions = Vec::new();
        let mut steps = Vec::new();
        for (at, node) in self.workflow.nodes.iter().enumerate() {
            match self.standing(at) {
                Standing::Skipped(_) => {}
                Standing::Completed => decisions.extend(self.close(at, node)?),
                Standing::Open => match self.arrive(at) {
                    Arrival::NotYet => {}
                    Arrival::DeadPath => decisions.push(self.skip(at, SkipReason::DeadPath)),
                    Arrival::Now => match self.enter(at, node)? {
                        Some(decision) => decisions.push(decision),
                        None => self.steps_of(node, &mut steps),
                    },
                },
            }
        }
        if !decisions.is_empty() {
            return Ok(Plan::Decide(decisions));
        }
        if !steps.is_empty() {
            return Ok(Plan::Run(steps));
        }
        let over = |at| self.is_done(at) || self.is_skipped(at);
        if (0..self.workflow.nodes.len()).all(over) {
            return Ok(Plan::Complete { output: self.output() });
        }
        Err("no node can start, and the run is not over; its definition is damaged".to_owned())
    }

    /// Whether the paths before a node have come to an end.
    fn arrive(&self, at: usize) -> Arrival {
        let before = &self.graph.links.before[at];
        if before.is_empty() || self.reached(at).is_some_and(|node| node.entered) {
            return Arrival::Now;
        }
        let done = before.iter().any(|source| self.is_done(*source));
        let settled = before.iter().all(|source| self.is_done(*source) || self.is_skipped(*source));
        match (self.workflow.nodes[at].join, done, settled) {
            (Join::All, true, true) | (Join::Any, true, _) => Arrival::Now,
            (Join::All | Join::Any, false, true) => Arrival::DeadPath,
            (Join::All, _, false) | (Join::Any, false, false) => Arrival::NotYet,
        }
    }

    /// The decision that is due before a node runs, if one is.
    fn enter(&self, at: usize, node: &Node) -> Result<Option<RunEvent>, String> {
        if self.reached(at).is_some_and(|node| node.entered)
            || (node.when.is_none() && node.for_each.is_none())
        {
            return Ok(None);
        }
        if let Some(when) = &node.when {
            let holds = self.evaluate.holds(node, when).map_err(|problem| {
                format!("whether node `{}` runs cannot be decided: `{when}`: {problem}", node.name)
            })?;
            if !holds {
                return Ok(Some(self.skip(at, SkipReason::When)));
            }
        }
        let elements = node.for_each.as_ref().map(|fan_out| {
            self.evaluate
                .elements(node, fan_out)
                .map_err(|problem| format!("node `{}` cannot fan out: {problem}", node.name))
        });
        let (visit, node) = (self.progress.visit(&node.name), node.name.clone());
        Ok(Some(RunEvent::NodeEntered { node, visit, elements: elements.transpose()? }))
    }

    fn steps_of(&self, node: &Node, steps: &mut Vec<PlannedStep>) {
        let reached = self.progress.nodes.get(&node.name);
        let visit = reached.map_or(1, |reached| reached.visit);
        match (&node.for_each, reached.and_then(|reached| reached.elements.as_ref())) {
            (Some(fan_out), Some(elements)) => {
                let open = elements.open().take(fan_out.parallel as usize);
                steps.extend(open.map(|(element, step)| planned(node, visit, Some(element), step)));
            }
            (Some(_), None) => {}
            (None, _) => {
                steps.push(planned(node, visit, None, reached.map(|reached| &reached.step)));
            }
        }
    }

    /// The decision whether a loop begins another round, once all steps of this one are over.
    fn close(&self, at: usize, node: &Node) -> Result<Option<RunEvent>, String> {
        let (Some(closes), Some(body), Some(reached)) =
            (&node.closes, &self.graph.bodies[at], self.reached(at))
        else {
            return Ok(None);
        };
        let over = |inner: &usize| *inner == at || self.is_done(*inner) || self.is_skipped(*inner);
        if reached.left || !body.iter().all(over) {
            return Ok(None);
        }
        let holds = self.evaluate.holds(node, &closes.when).map_err(|problem| {
            format!(
                "whether the loop of node `{}` goes on cannot be decided: `{}`: {problem}",
                node.name, closes.when
            )
        })?;
        let exhausted = reached.round >= closes.max_visits;
        let again = match (holds, exhausted, closes.exhausted) {
            (true, true, Exhausted::Fail) => {
                return Err(format!(
                    "the loop of node `{}` would go on after {} rounds, which is its `max_visits`",
                    node.name, closes.max_visits
                ));
            }
            (true, false, _) => {
                body.iter().map(|at| self.workflow.nodes[*at].name.clone()).collect()
            }
            (true, true, Exhausted::GoOn) | (false, _, _) => Vec::new(),
        };
        Ok(Some(RunEvent::LoopDecided { node: node.name.clone(), visit: reached.visit, again }))
    }

    /// The output of a run that came to all its ends: of its only one, or an object by name of those that were reached.
    fn output(&self) -> Value {
        let output = |at: usize| {
            self.reached(at).filter(|node| node.standing == Standing::Completed)?.output.clone()
        };
        let terminals: Vec<usize> = self.graph.terminals().collect();
        if let [only] = terminals.as_slice() {
            return output(*only).unwrap_or_default();
        }
        let named = terminals
            .into_iter()
            .filter_map(|at| Some((self.workflow.nodes[at].name.to_string(), output(at)?)));
        Value::Object(named.collect::<Map<String, Value>>())
    }
}

fn started(workflow: &Workflow, progress: &Progress) -> Vec<PlannedStep> {
    let mut steps = Vec::new();
    for node in &workflow.nodes {
        let Some(reached) = progress.nodes.get(&node.name) else { continue };
        if reached.standing != Standing::Open {
            continue;
        }
        if reached.step.has_started() && reached.step.gave_up.is_none() {
            steps.push(planned(node, reached.visit, None, Some(&reached.step)));
        }
        let elements = reached.elements.iter().flat_map(|elements| elements.started());
        for (element, step) in elements.filter(|(_, step)| step.gave_up.is_none()) {
            steps.push(planned(node, reached.visit, Some(element), Some(step)));
        }
    }
    steps
}

enum Arrival {
    NotYet,
    DeadPath,
    Now,
}

fn planned(
    node: &Node,
    visit: u32,
    element: Option<&ElementId>,
    step: Option<&StepProgress>,
) -> PlannedStep {
    let started = step.and_then(|step| step.started_at);
    PlannedStep {
        id: StepId { node: node.name.clone(), visit, element: element.cloned() },
        not_before: step.and_then(|step| step.retry_at),
        deadline: started.and_then(|at| Some(at.plus_ms(node.timeout_ms?))),
    }
}

/// Whether a loop goes through both nodes.
fn in_one_body(graph: &Graph, one: usize, other: usize) -> bool {
    graph.bodies.iter().flatten().any(|body| body.contains(&one) && body.contains(&other))
}
