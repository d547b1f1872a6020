//! Pictures of a workflow, for terminals and as Mermaid, with what a run has made of it laid over.

mod mermaid;
mod terminal;

use std::collections::BTreeMap;

use twice_core::ids::Name;
use twice_core::progress::{Progress, Standing, StepProgress};
use twice_core::run::RunState;

pub use self::mermaid::mermaid;
pub use self::terminal::{Line, Span, terminal};
use crate::model::{Exhausted, Join, Node, Slot, Workflow};
use crate::units::duration_text;

/// Where the nodes of a run stand, as it is shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overlay {
    /// By node; one that is missing has not been reached.
    pub nodes: BTreeMap<Name, Shown>,
}

/// Where a node stands, as it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// In a word.
    pub mark: Mark,
    /// Its visit, from 1.
    pub visit: u32,
    /// How many elements have returned, and of how many, in a fan-out that has begun.
    pub elements: Option<(usize, usize)>,
}

/// Where a node stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Nothing has come to it yet.
    NotReached,
    /// It could go on, and the run waits.
    Waiting,
    /// It is at work.
    Running,
    /// It returned.
    Done,
    /// The run took another path.
    Skipped,
    /// It failed for good.
    Failed,
}

impl Mark {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotReached => "not reached",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }

    const fn sign(self) -> &'static str {
        match self {
            Self::NotReached => "○",
            Self::Waiting => "◔",
            Self::Running => "◐",
            Self::Done => "●",
            Self::Skipped => "◌",
            Self::Failed => "✗",
        }
    }
}

impl Overlay {
    /// What a run has made of its workflow.
    #[must_use]
    pub fn of(workflow: &Workflow, progress: &Progress, state: RunState) -> Self {
        let nodes = workflow.nodes.iter().map(|node| {
            let reached = progress.nodes.get(&node.name);
            let elements = reached.and_then(|reached| reached.elements.as_ref());
            let shown = Shown {
                mark: mark(node, progress, state),
                visit: progress.visit(&node.name),
                elements: elements.map(|elements| (elements.done(), elements.total())),
            };
            (node.name.clone(), shown)
        });
        Self { nodes: nodes.collect() }
    }
}

fn mark(node: &Node, progress: &Progress, state: RunState) -> Mark {
    let open = match progress.standing(&node.name) {
        Standing::Completed => return Mark::Done,
        Standing::Skipped(_) => return Mark::Skipped,
        Standing::Open => progress.nodes.get(&node.name),
    };
    let steps = || {
        open.into_iter().flat_map(|node| {
            let elements = node.elements.iter().flat_map(|e| e.started()).map(|(_, step)| step);
            elements.chain([&node.step])
        })
    };
    let over = |name: &Name| progress.standing(name) != Standing::Open;
    let done = |name: &Name| progress.standing(name) == Standing::Completed;
    let arrived = node.after.is_empty()
        || match node.join {
            Join::All => node.after.iter().all(over) && node.after.iter().any(done),
            Join::Any => node.after.iter().any(done),
        };
    if steps().any(|step| step.gave_up.is_some()) {
        return Mark::Failed;
    }
    if !arrived && !steps().any(StepProgress::has_started) {
        return Mark::NotReached;
    }
    match state {
        RunState::Running => Mark::Running,
        RunState::Ready
        | RunState::Waiting
        | RunState::Halted
        | RunState::Stuck
        | RunState::Quarantined => Mark::Waiting,
        RunState::Completed | RunState::Failed | RunState::Cancelled => Mark::NotReached,
    }
}

/// What is said of a node besides its name, a line each.
fn details(node: &Node) -> Vec<String> {
    let mut lines = Vec::new();
    if node.join == Join::Any && node.after.len() > 1 {
        lines.push("starts with the first that is done".to_owned());
    } else if node.after.len() > 1 {
        let after: Vec<&str> = node.after.iter().map(Name::as_str).collect();
        lines.push(format!("joins {}", after.join(", ")));
    }
    if let Some(when) = &node.when {
        lines.push(format!("when {}", one_line(when)));
    }
    if let Some(fan_out) = &node.for_each {
        let by = if fan_out.element.is_empty() { "itself" } else { &fan_out.element };
        lines.push(format!("for each of {} by {by}, {} at once", fan_out.array, fan_out.parallel));
    }
    if !node.routes.is_empty() {
        lines.push(format!("routes {}", node.routes.join(", ")));
    }
    lines.extend(node.slots.iter().map(slot));
    if let Some(closes) = &node.closes {
        let then = match closes.exhausted {
            Exhausted::Fail => "then the run fails",
            Exhausted::GoOn => "then it goes on",
        };
        lines.push(format!("back to {}, at most {} rounds, {then}", closes.to, closes.max_visits));
        lines.push(format!("  while {}", one_line(&closes.when)));
    }
    if let Some(timeout_ms) = node.timeout_ms {
        lines.push(format!("at most {}", duration_text(timeout_ms)));
    }
    if node.ends {
        lines.push("ends the run".to_owned());
    }
    lines
}

fn slot(slot: &Slot) -> String {
    let mut text = if slot.child {
        format!("{} ⇒ workflow {}", slot.name, slot.operation)
    } else {
        format!("{} → {}.{}", slot.name, slot.tool, slot.operation)
    };
    if slot.pivot {
        text.push_str(", no way back");
    }
    if let Some(compensation) = &slot.compensate {
        text.push_str(&format!(", undone by {}.{}", compensation.tool, compensation.operation));
    }
    if let Some(lock) = &slot.lock {
        text.push_str(&format!(", locks {}", lock.name));
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
