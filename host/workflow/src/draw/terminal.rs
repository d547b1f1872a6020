//! A workflow in lines of text: one node below the other, what leads from one to the other in lanes beside them.

use super::{Mark, Overlay, Shown, details};
use crate::model::{Node, Workflow};

/// A line of a picture.
pub type Line = Vec<Span>;

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// Where the node stands that it is about, if it says so: it may be coloured.
    pub mark: Option<Mark>,
}

impl Span {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), mark: None }
    }
}

/// The picture of a workflow, `width` columns wide at most (as far as names allow).
#[must_use]
pub fn terminal(workflow: &Workflow, overlay: Option<&Overlay>, width: usize) -> Vec<Line> {
    match in_lanes(workflow, overlay, width) {
        Some(lines) => lines,
        None => listed(workflow, overlay, width),
    }
}

/// With lanes; `None` where they would take more than half of the width.
fn in_lanes(workflow: &Workflow, overlay: Option<&Overlay>, width: usize) -> Option<Vec<Line>> {
    let mut lanes: Vec<Option<usize>> = Vec::new();
    let mut lines = Vec::new();
    let behind = |at: usize| -> Vec<usize> {
        let from = &workflow.nodes[at].name;
        let all = workflow.nodes.iter().enumerate();
        all.filter(|(_, node)| node.after.contains(from)).map(|(other, _)| other).collect()
    };
    for (at, node) in workflow.nodes.iter().enumerate() {
        let arriving: Vec<usize> =
            (0..lanes.len()).filter(|lane| lanes[*lane] == Some(at)).collect();
        let lane = arriving.first().copied().unwrap_or_else(|| free_lane(&mut lanes, 0));
        if let [_, others @ ..] = arriving.as_slice()
            && !others.is_empty()
        {
            lines.push(vec![Span::plain(turn(&lanes, lane, others, '╯', '┴'))]);
            others.iter().for_each(|other| lanes[*other] = None);
        }
        lanes[lane] = Some(at);
        let before = bars(&lanes, lane);
        let after = bars(&lanes[lane + 1..], usize::MAX);
        lines.push(header(node, overlay, before, &after));

        let targets = behind(at);
        // The lanes as they go on below the node: its own ends where nothing stands behind it.
        lanes[lane] = targets.first().copied();
        for detail in stuck(node, overlay).chain(details(node)) {
            let bars = bars(&lanes, usize::MAX);
            let room = width.saturating_sub(bars.chars().count() + 2);
            lines.push(vec![Span::plain(format!("{bars}  {}", shortened(&detail, room)))]);
        }
        let mut opened = Vec::new();
        for target in targets.iter().skip(1) {
            let new = free_lane(&mut lanes, lane + 1);
            lanes[new] = Some(*target);
            opened.push(new);
        }
        if lanes.len() * 2 > width / 2 {
            return None;
        }
        if !opened.is_empty() {
            lines.push(vec![Span::plain(turn(&lanes, lane, &opened, '╮', '┬'))]);
        } else if targets.is_empty() {
            while lanes.last() == Some(&None) {
                lanes.pop();
            }
        }
    }
    Some(lines.into_iter().map(trimmed).collect())
}

/// Without lanes: each node says what it comes after.
fn listed(workflow: &Workflow, overlay: Option<&Overlay>, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for node in &workflow.nodes {
        lines.push(header(node, overlay, String::new(), ""));
        let after: Vec<&str> = node.after.iter().map(|name| name.as_str()).collect();
        let after = (!after.is_empty()).then(|| format!("after {}", after.join(", ")));
        let said = details(node).into_iter().filter(|line| !line.starts_with("joins "));
        for detail in stuck(node, overlay).chain(after).chain(said) {
            let room = width.saturating_sub(4);
            lines.push(vec![Span::plain(format!("    {}", shortened(&detail, room)))]);
        }
    }
    lines
}

/// What is said of a node at which the run is stuck.
fn stuck(node: &Node, overlay: Option<&Overlay>) -> impl Iterator<Item = String> {
    let shown = overlay.and_then(|overlay| overlay.nodes.get(&node.name));
    shown.into_iter().flat_map(Shown::stuck)
}

/// The line with the name of a node, between the lanes beside it.
fn header(node: &Node, overlay: Option<&Overlay>, before: String, after: &str) -> Line {
    let shown = overlay.map(|overlay| overlay.nodes.get(&node.name));
    let mark = shown.map(|shown| shown.map_or(Mark::NotReached, |shown| shown.mark));
    let sign = mark.map_or("○", Mark::sign);
    let mut line = vec![
        Span::plain(before),
        Span { text: sign.to_owned(), mark },
        Span::plain(format!(" {after}{}", node.name)),
    ];
    if node.component != node.name {
        line.push(Span::plain(format!(" ({})", node.component)));
    }
    if let Some(shown) = shown.flatten() {
        line.push(Span { text: format!("  {}", shown.text()), mark });
    }
    line
}

/// The first lane from `from` on that leads nowhere.
fn free_lane(lanes: &mut Vec<Option<usize>>, from: usize) -> usize {
    if let Some(free) = (from..lanes.len()).find(|lane| lanes[*lane].is_none()) {
        return free;
    }
    lanes.push(None);
    lanes.len() - 1
}

/// The lanes before `end`, two columns each.
fn bars(lanes: &[Option<usize>], end: usize) -> String {
    lanes.iter().take(end).map(|lane| if lane.is_some() { "│ " } else { "  " }).collect()
}

/// A line in which lanes turn into, or out of, another one to their left.
fn turn(
    lanes: &[Option<usize>],
    into: usize,
    turning: &[usize],
    corner: char,
    tee: char,
) -> String {
    let first = turning.iter().copied().min().unwrap_or(into).min(into);
    let last = turning.iter().copied().max().unwrap_or(into).max(into);
    let mut text = String::new();
    for (lane, target) in lanes.iter().enumerate() {
        let within = (first..last).contains(&lane);
        let sign = if lane == into {
            '├'
        } else if lane == last {
            corner
        } else if turning.contains(&lane) {
            tee
        } else if within && target.is_some() {
            '┼'
        } else if within {
            '─'
        } else if target.is_some() {
            '│'
        } else {
            ' '
        };
        text.push(sign);
        text.push(if within { '─' } else { ' ' });
    }
    text
}

fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let kept: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{kept}…")
}

fn trimmed(mut line: Line) -> Line {
    if let Some(last) = line.last_mut() {
        last.text.truncate(last.text.trim_end().len());
    }
    line
}
