//! Whatever a workflow looks like and in whatever order its steps return: each visit is settled once, never before what it
//! waits for, and the run comes to an end, the same one after any restart.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;
use serde_json::{Value, json};
use twice_core::event::{RunEvent, SkipReason, StepFailure};
use twice_core::ids::{ElementId, Name};
use twice_core::progress::{Progress, Standing, StepId};
use twice_core::time::Timestamp;
use twice_workflow::model::{FanOut, Join, Node, Workflow};
use twice_workflow::plan::{Evaluate, Graph, Plan, next};

use crate::flows::load;

/// Most moves of a run before it counts as endless.
const MOVES_MAX: usize = 20_000;

#[derive(Debug, Clone)]
struct Shape {
    after: Vec<prop::sample::Index>,
    any: bool,
    when: bool,
    elements: Option<u8>,
    parallel: u8,
    ends: bool,
    closes: Option<(prop::sample::Index, u32, bool)>,
}

fn shape(ends: bool) -> impl Strategy<Value = Shape> {
    let index = any::<prop::sample::Index>;
    (
        prop::collection::vec(index(), 0..3),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.4),
        prop::option::weighted(0.3, 0_u8..4),
        1_u8..4,
        prop::bool::weighted(if ends { 0.2 } else { 0.0 }),
        prop::option::weighted(0.4, (index(), 1_u32..4, any::<bool>())),
    )
        .prop_map(|(after, any, when, elements, parallel, ends, closes)| Shape {
            after,
            any,
            when,
            elements,
            parallel,
            ends,
            closes,
        })
}

/// The workflow of these shapes; loops that the checks refuse are left out.
fn workflow(shapes: &[Shape]) -> Workflow {
    let mut nodes: Vec<(String, String)> = Vec::new();
    for (at, shape) in shapes.iter().enumerate() {
        let mut after: BTreeSet<usize> = BTreeSet::new();
        if at > 0 {
            after.extend(shape.after.iter().map(|index| index.index(at)));
        }
        let named: Vec<String> = after.iter().map(|at| format!("'n{at}'")).collect();
        let mut keys = format!("after = [{}]\n", named.join(", "));
        if shape.any && after.len() > 1 {
            keys.push_str("join = 'any'\n");
        }
        if shape.when {
            keys.push_str("when = 'state.input.when'\n");
        }
        if let Some(count) = shape.elements {
            let parallel = shape.parallel;
            keys.push_str(&format!(
                "for_each = '/input/{count}'\nelement = ''\nparallel = {parallel}\n"
            ));
        }
        if shape.ends && shape.closes.is_none() {
            keys.push_str("ends = true\n");
        }
        nodes.push((format!("n{at}"), keys));
    }
    let mut sound = load("", &nodes).expect("without loops it is sound");
    for (at, shape) in shapes.iter().enumerate() {
        let Some((to, max, go_on)) = &shape.closes else { continue };
        let to = to.index(at + 1);
        let exhausted = if *go_on { "go_on" } else { "fail" };
        let before = nodes[at].1.clone();
        nodes[at].1.push_str(&format!(
            "loop = {{ to = 'n{to}', when = 'state.input.again', max_visits = {max}, exhausted = '{exhausted}' }}\n"
        ));
        match load("", &nodes) {
            Ok(workflow) => sound = workflow,
            Err(_) => nodes[at].1 = before,
        }
    }
    sound
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Answers by chance, and always the same about the same visit.
struct Chance<'a>(&'a Progress, u64);

impl Evaluate for Chance<'_> {
    fn holds(&self, node: &Node, condition: &str) -> Result<bool, String> {
        let chance = hash((self.1, &node.name, condition, self.0.visit(&node.name)));
        Ok(!chance.is_multiple_of(3))
    }

    fn elements(&self, _: &Node, fan_out: &FanOut) -> Result<Vec<ElementId>, String> {
        let count: usize =
            fan_out.array.rsplit('/').next().and_then(|n| n.parse().ok()).ok_or("no number")?;
        Ok((0..count).map(|id| ElementId::parse(format!("e{id}")).expect("an id")).collect())
    }
}

#[derive(Debug, PartialEq)]
enum End {
    Completed(Value, BTreeMap<Name, (u32, Standing)>),
    Failed,
}

struct Run<'a> {
    workflow: &'a Workflow,
    graph: Graph,
    chance: u64,
    order: u64,
    events: Vec<RunEvent>,
    progress: Progress,
    settled: BTreeSet<StepId>,
}

impl Run<'_> {
    fn record(&mut self, event: RunEvent) {
        self.progress.apply(&event, Timestamp(1));
        self.events.push(event);
    }

    fn plan(&self, progress: &Progress) -> Plan {
        next(self.workflow, &self.graph, progress, &Chance(progress, self.chance))
    }

    /// Whether what a node waits for is over.
    fn may_run(&self, node: &Name) -> bool {
        let node =
            self.workflow.nodes.iter().find(|other| other.name == *node).expect("it is planned");
        let standing = |name: &Name| self.progress.standing(name);
        let done = |name: &Name| standing(name) == Standing::Completed;
        node.after.is_empty()
            || match node.join {
                Join::All => {
                    node.after.iter().all(|name| standing(name) != Standing::Open)
                        && node.after.iter().any(done)
                }
                Join::Any => node.after.iter().any(done),
            }
    }

    /// Settles a visit, or an element of it, which must be its first time.
    fn settle(&mut self, id: StepId) -> Result<(), TestCaseError> {
        prop_assert!(self.settled.insert(id.clone()), "{id} is settled twice");
        Ok(())
    }

    fn finish(&mut self) -> Result<End, TestCaseError> {
        for turn in 0..MOVES_MAX {
            let plan = self.plan(&self.progress);
            if turn % 7 == 0 {
                let folded = Progress::of(self.events.iter().map(|event| (event, Timestamp(1))));
                prop_assert_eq!(&folded, &self.progress, "a restart knows as much");
                prop_assert_eq!(&self.plan(&folded), &plan, "a restart goes on as before");
            }
            match plan {
                Plan::Decide(events) => {
                    prop_assert!(!events.is_empty());
                    for event in events {
                        self.check_decision(&event)?;
                        self.record(event);
                    }
                }
                Plan::Run(steps) => {
                    self.run_one(turn, steps.into_iter().map(|step| step.id).collect())?
                }
                Plan::Complete { output } => {
                    let standings = self.workflow.nodes.iter().map(|node| {
                        (
                            node.name.clone(),
                            (self.progress.visit(&node.name), self.progress.standing(&node.name)),
                        )
                    });
                    let standings: BTreeMap<_, _> = standings.collect();
                    let open = standings.values().any(|(_, standing)| *standing == Standing::Open);
                    prop_assert!(!open, "the run is over and a node is not: {standings:?}");
                    return Ok(End::Completed(output, standings));
                }
                Plan::Fail { why, .. } => {
                    prop_assert!(why.contains("max_visits"), "{why}");
                    return Ok(End::Failed);
                }
            }
        }
        prop_assert!(false, "the run does not end");
        Ok(End::Failed)
    }

    fn check_decision(&mut self, event: &RunEvent) -> Result<(), TestCaseError> {
        match event {
            RunEvent::StepSkipped { node, visit, why } => {
                prop_assert_eq!(self.progress.standing(node), Standing::Open);
                prop_assert_eq!(*visit, self.progress.visit(node));
                let may_run = self.may_run(node);
                match why {
                    SkipReason::When => prop_assert!(may_run, "{node} is judged too early"),
                    SkipReason::DeadPath => {
                        prop_assert!(!may_run, "{node} is skipped though it could run")
                    }
                    SkipReason::Ended => {}
                }
                self.settle(StepId { node: node.clone(), visit: *visit, element: None })?;
            }
            RunEvent::NodeEntered { node, .. } => prop_assert!(self.may_run(node)),
            RunEvent::LoopDecided { again, .. } => {
                for node in again {
                    prop_assert!(
                        self.progress.standing(node) != Standing::Open,
                        "{node} is still at work"
                    );
                }
            }
            other => prop_assert!(false, "{} is no decision", other.kind()),
        }
        Ok(())
    }

    fn run_one(&mut self, turn: usize, steps: Vec<StepId>) -> Result<(), TestCaseError> {
        prop_assert!(!steps.is_empty());
        for node in &self.workflow.nodes {
            let of_node = steps.iter().filter(|step| step.node == node.name).count();
            let most = node.for_each.as_ref().map_or(1, |fan_out| fan_out.parallel as usize);
            prop_assert!(of_node <= most, "{of_node} steps of {} at once", node.name);
        }
        let chosen = hash((self.order, turn)) as usize;
        let StepId { node, visit, element } = steps[chosen % steps.len()].clone();
        prop_assert!(self.may_run(&node), "{node} runs before what it waits for");
        match hash((self.order, turn, "what")) % 4 {
            0 => self.record(RunEvent::StepStarted { node, visit, element }),
            1 => {
                let cause = StepFailure::Retryable { message: "later".to_owned() };
                let retry_at = Some(Timestamp(5));
                self.record(RunEvent::StepFailed {
                    node,
                    visit,
                    element,
                    attempt: 1,
                    cause,
                    retry_at,
                });
            }
            _ => {
                self.settle(StepId { node: node.clone(), visit, element: element.clone() })?;
                let output = json!(format!("{node} {visit} {element:?}"));
                let diverged = vec![];
                self.record(RunEvent::StepCompleted {
                    node,
                    visit,
                    element,
                    attempt: 1,
                    output,
                    diverged,
                });
            }
        }
        Ok(())
    }
}

fn run(workflow: &Workflow, chance: u64, order: u64) -> Result<End, TestCaseError> {
    let (events, progress, settled) = (Vec::new(), Progress::default(), BTreeSet::new());
    let graph = Graph::of(workflow);
    Run { workflow, graph, chance, order, events, progress, settled }.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_run_ends_the_same_whatever_the_order(
        shapes in prop::collection::vec(shape(false), 1..9),
        chance in any::<u64>(),
        orders in prop::array::uniform3(any::<u64>()),
    ) {
        let workflow = workflow(&shapes);
        let first = run(&workflow, chance, orders[0])?;
        for order in &orders[1..] {
            prop_assert_eq!(&run(&workflow, chance, *order)?, &first);
        }
    }

    #[test]
    fn a_run_that_ends_early_ends(
        shapes in prop::collection::vec(shape(true), 1..9),
        chance in any::<u64>(),
        order in any::<u64>(),
    ) {
        run(&workflow(&shapes), chance, order)?;
    }
}
