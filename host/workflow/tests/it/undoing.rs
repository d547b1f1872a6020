//! In which order the effects of a run are undone.

use expect_test::{Expect, expect};
use twice_core::ids::ElementId;
use twice_core::progress::StepId;
use twice_workflow::plan::{Graph, Undoable, compensation_order};

use crate::flows::{name, sound};

/// The groups in which effects are undone, given as `node#visit[element]` in the order in which they were requested.
#[track_caller]
fn undone(head: &str, nodes: &[(&str, &str)], effects: &[&str], expect: Expect) {
    let workflow = sound(head, nodes);
    let undoable = |(order, text): (u64, &&str)| {
        let (step, element) = text.split_once('[').map_or((*text, None), |(step, element)| {
            (step, Some(ElementId::parse(element.trim_end_matches(']')).expect("an element")))
        });
        let (node, visit) = step
            .split_once('#')
            .map_or((step, 1), |(node, visit)| (node, visit.parse().expect("a number")));
        Undoable { step: StepId { node: name(node), visit, element }, order }
    };
    let all: Vec<Undoable> = (0..).zip(effects).map(undoable).collect();
    let groups = compensation_order(&workflow, &Graph::of(&workflow), &all);
    let shown: Vec<String> = groups
        .iter()
        .map(|group| group.iter().map(|at| effects[*at]).collect::<Vec<_>>().join(" "))
        .collect();
    expect.assert_eq(&shown.join("\n"));
}

#[test]
fn effects_are_undone_newest_first() {
    let diamond =
        [("a", ""), ("b", "after = ['a']"), ("c", "after = ['a']"), ("d", "after = ['b', 'c']")];
    let effects = ["a", "a", "b", "c", "b", "d"];
    undone(
        "",
        &diamond,
        &effects,
        expect![[r#"
        d
        b
        c
        b
        a
        a"#]],
    );
    undone(
        "saga = { undo = 'branches' }",
        &diamond,
        &effects,
        expect![[r#"
        d
        b c
        b
        a
        a"#]],
    );
}

#[test]
fn rounds_of_a_loop_are_undone_one_after_another_and_elements_at_once() {
    let nodes = [
        ("a", ""),
        ("b", "after = ['a']"),
        ("c", "after = ['a']"),
        ("d", "after = ['b', 'c']\nloop = { to = 'a', when = 'state.nodes.d', max_visits = 2 }"),
        ("e", "after = ['d']\nfor_each = '/input/orders'\nelement = ''"),
    ];
    let effects = ["b", "c", "b#2", "c#2", "e[x]", "e[y]", "e[x]"];
    undone(
        "saga = { undo = 'branches' }",
        &nodes,
        &effects,
        expect![[r#"
        e[x] e[y]
        e[x]
        c#2 b#2
        c b"#]],
    );
}
