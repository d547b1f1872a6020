//! Pictures of a workflow, for terminals and as Mermaid, with what a run has made of it laid over.

mod mermaid;
mod terminal;

use std::collections::BTreeMap;

use twice_core::ids::Name;
use twice_core::progress::{Progress, Standing, StepProgress};
use twice_core::run::RunState;

pub use self::mermaid::mermaid;
pub use self::terminal::{Line, Span, terminal};
use crate::model::{Approve, Exhausted, Join, Node, Slot, Workflow};
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
    /// What has become of the effects that the way back is about, where there are any.
    pub undoing: Option<Undoing>,
}

/// What the way back of a run made of the effects of a node, those of every visit and element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Undoing {
    /// How many happened, or may have.
    pub effects: usize,
    /// How many of them are undone.
    pub undone: usize,
    /// How many a person settled by other means.
    pub settled: usize,
    /// How many are yet to be undone.
    pub open: usize,
    /// The keys of those at which the run is stuck.
    pub stuck: Vec<String>,
}

/// An effect that a node asked for, not one that undoes another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The node.
    pub node: Name,
    /// Its visit, from 1.
    pub visit: u32,
    /// The readable key.
    pub key: String,
    /// What the way back has made of it; `None` where the run is not on it, or the effect did not happen.
    pub fate: Option<Fate>,
}

/// What the way back has made of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is undone.
    Undone,
    /// A person says that nothing is left to undo.
    Settled,
    /// It is yet to be undone, or it is yet to be found out whether there is anything to undo.
    Open,
    /// It could not be undone, and the run is stuck at it.
    Stuck,
    /// It happened, and the workflow does not say how to undo it.
    Stays,
}

impl Undoing {
    fn of<'a>(effects: impl Iterator<Item = &'a Asked>) -> Option<Self> {
        let mut found = Self::default();
        for (effect, fate) in effects.filter_map(|effect| Some((effect, effect.fate?))) {
            found.effects += 1;
            match fate {
                Fate::Undone => found.undone += 1,
                Fate::Settled => found.settled += 1,
                Fate::Open => found.open += 1,
                Fate::Stuck => found.stuck.push(effect.key.clone()),
                Fate::Stays => {}
            }
        }
        (found.undone + found.settled + found.open + found.stuck.len() > 0).then_some(found)
    }

    /// The node in a word, on the way back.
    const fn mark(&self) -> Mark {
        if !self.stuck.is_empty() {
            Mark::Stuck
        } else if self.open > 0 {
            Mark::BeingUndone
        } else {
            Mark::Undone
        }
    }
}

impl Shown {
    /// Where the node stands, in words.
    fn text(&self) -> String {
        let mut text = self.mark.as_str().to_owned();
        if let Some((done, total)) = self.elements {
            text.push_str(&format!(" {done}/{total}"));
        }
        if self.visit > 1 {
            text.push_str(&format!(", visit {}", self.visit));
        }
        if let Some(Undoing { effects, undone, settled, .. }) = &self.undoing
            && (self.mark != Mark::Undone || undone < effects)
        {
            let many = if *effects == 1 { "effect" } else { "effects" };
            text.push_str(&format!(", {undone} of {effects} {many} undone"));
            if *settled > 0 {
                text.push_str(&format!(", {settled} settled by a person"));
            }
        }
        text
    }

    /// At which effects the run is stuck, a line each.
    fn stuck(&self) -> impl Iterator<Item = String> {
        let keys = self.undoing.iter().flat_map(|undoing| &undoing.stuck);
        keys.map(|key| format!("stuck at {key}"))
    }
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
    /// It had begun when the run ended, or turned back.
    Unfinished,
    /// What it did is being undone.
    BeingUndone,
    /// What it did is undone, as far as the workflow says how.
    Undone,
    /// Something that it did could not be undone: a person is needed.
    Stuck,
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
            Self::Unfinished => "not finished",
            Self::BeingUndone => "being undone",
            Self::Undone => "undone",
            Self::Stuck => "stuck",
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
            Self::Unfinished => "◍",
            Self::BeingUndone => "↶",
            Self::Undone => "↺",
            Self::Stuck => "!",
        }
    }
}

impl Overlay {
    /// What a run has made of its workflow; `effects` are those that its nodes asked for.
    #[must_use]
    pub fn of(
        workflow: &Workflow,
        progress: &Progress,
        state: RunState,
        effects: &[Asked],
    ) -> Self {
        let nodes = workflow.nodes.iter().map(|node| {
            let reached = progress.nodes.get(&node.name);
            let elements = reached.and_then(|reached| reached.elements.as_ref());
            let visit = progress.visit(&node.name);
            let mine = || effects.iter().filter(|effect| effect.node == node.name);
            let asked = mine().any(|effect| effect.visit == visit);
            let undoing = Undoing::of(mine());
            let mark = match (mark(node, progress, state, asked), &undoing) {
                // Why the run turned back; how its effects stand is said beside it.
                (Mark::Failed, Some(undoing)) if undoing.stuck.is_empty() => Mark::Failed,
                (_, Some(undoing)) => undoing.mark(),
                (mark, None) => mark,
            };
            let shown = Shown {
                mark,
                visit,
                elements: elements.map(|elements| (elements.done(), elements.total())),
                undoing,
            };
            (node.name.clone(), shown)
        });
        Self { nodes: nodes.collect() }
    }
}

/// Where a node stands on the way forward. `asked`: its current visit asked for an effect.
fn mark(node: &Node, progress: &Progress, state: RunState, asked: bool) -> Mark {
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
    let begun = asked
        || open.is_some_and(|node| node.elements.as_ref().is_some_and(|e| e.done() > 0))
        || steps().any(StepProgress::has_started);
    if !arrived && !begun {
        return Mark::NotReached;
    }
    if progress.compensating.is_some() {
        return if begun { Mark::Unfinished } else { Mark::NotReached };
    }
    match state {
        RunState::Running => Mark::Running,
        RunState::Ready
        | RunState::Waiting
        | RunState::Halted
        | RunState::Stuck
        | RunState::Quarantined => Mark::Waiting,
        RunState::Completed | RunState::Failed | RunState::Cancelled if begun => Mark::Unfinished,
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
    text.push_str(&approved(slot.approve.as_ref()));
    if let Some(compensation) = &slot.compensate {
        text.push_str(&format!(", undone by {}.{}", compensation.tool, compensation.operation));
        text.push_str(&approved(compensation.approve.as_ref()));
    }
    if let Some(lock) = &slot.lock {
        text.push_str(&format!(", locks {}", lock.name));
    }
    text
}

fn approved(approve: Option<&Approve>) -> String {
    let Some(Approve { when, by, .. }) = approve else { return String::new() };
    let when = if when.is_some() { "may have to" } else { "has to" };
    format!(" ({by} {when} approve)")
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
