//! A workflow as a Mermaid flowchart, for pages that draw one.

use super::{Mark, Overlay, details, one_line};
use crate::model::{Join, Node, Workflow};

/// The flowchart of a workflow.
#[must_use]
pub fn mermaid(workflow: &Workflow, overlay: Option<&Overlay>) -> String {
    let mut text = String::from("flowchart TD\n");
    let id = |name: &twice_core::ids::Name| {
        workflow.nodes.iter().position(|node| node.name == *name).unwrap_or_default()
    };
    for (at, node) in workflow.nodes.iter().enumerate() {
        let shown = overlay.and_then(|overlay| overlay.nodes.get(&node.name));
        let mut lines = vec![format!("<b>{}</b>", escaped(node.name.as_str()))];
        if let Some(shown) = shown {
            lines.push(shown.text());
            lines.extend(shown.stuck().map(|line| escaped(&line)));
        }
        let said = details(node).into_iter().filter(|line| !is_drawn(line));
        lines.extend(said.map(|line| escaped(line.trim())));
        let (open, close) = brackets(node);
        text.push_str(&format!("  n{at}{open}\"{}\"{close}\n", lines.join("<br/>")));
    }
    for (at, node) in workflow.nodes.iter().enumerate() {
        for after in &node.after {
            let label = node
                .when
                .as_ref()
                .map_or_else(String::new, |when| format!("|\"{}\"|", escaped(&one_line(when))));
            text.push_str(&format!("  n{} -->{label} n{at}\n", id(after)));
        }
        if let Some(closes) = &node.closes {
            let label =
                escaped(&format!("{}, at most {}", one_line(&closes.when), closes.max_visits));
            text.push_str(&format!("  n{at} -.->|\"{label}\"| n{}\n", id(&closes.to)));
        }
    }
    if let Some(overlay) = overlay {
        text.push_str(&classes(workflow, overlay));
    }
    text
}

/// What the edges of the picture say already.
fn is_drawn(line: &str) -> bool {
    ["joins ", "when ", "back to ", "  while "].iter().any(|start| line.starts_with(start))
}

/// Fan-outs have double sides, nodes that end the run round ones, nodes that do not wait for all are hexagons.
fn brackets(node: &Node) -> (&'static str, &'static str) {
    if node.for_each.is_some() {
        ("[[", "]]")
    } else if node.ends {
        ("([", "])")
    } else if node.join == Join::Any {
        ("{{", "}}")
    } else {
        ("[", "]")
    }
}

fn classes(workflow: &Workflow, overlay: &Overlay) -> String {
    const STYLES: [(Mark, &str, &str); 9] = [
        (Mark::Done, "done", "fill:#dff5e1,stroke:#2da44e,color:#111"),
        (Mark::Running, "running", "fill:#ddf4ff,stroke:#0969da,color:#111"),
        (Mark::Waiting, "waiting", "fill:#fff8c5,stroke:#9a6700,color:#111"),
        (Mark::Skipped, "skipped", "fill:#f6f8fa,stroke:#8c959f,color:#57606a,stroke-dasharray:4"),
        (Mark::Failed, "failed", "fill:#ffebe9,stroke:#cf222e,color:#111"),
        (Mark::Unfinished, "unfinished", "fill:#f6f8fa,stroke:#9a6700,color:#111"),
        (Mark::BeingUndone, "undoing", "fill:#fbefff,stroke:#8250df,color:#111,stroke-dasharray:4"),
        (Mark::Undone, "undone", "fill:#fbefff,stroke:#8250df,color:#111"),
        (Mark::Stuck, "stuck", "fill:#ffebe9,stroke:#cf222e,color:#111,stroke-width:3px"),
    ];
    let mut text = String::new();
    for (mark, class, style) in STYLES {
        let nodes = workflow.nodes.iter().enumerate().filter(|(_, node)| {
            overlay.nodes.get(&node.name).is_some_and(|shown| shown.mark == mark)
        });
        let nodes: Vec<String> = nodes.map(|(at, _)| format!("n{at}")).collect();
        if !nodes.is_empty() {
            text.push_str(&format!(
                "  classDef {class} {style}\n  class {} {class}\n",
                nodes.join(",")
            ));
        }
    }
    text
}

/// Text within quotes of a flowchart.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' => out.push_str("#quot;"),
            '<' => out.push_str("#lt;"),
            '>' => out.push_str("#gt;"),
            '&' => out.push_str("#amp;"),
            '#' => out.push_str("#35;"),
            '|' => out.push_str("#124;"),
            '`' => out.push_str("#96;"),
            other => out.push(other),
        }
    }
    out
}
