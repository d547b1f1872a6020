//! Pictures of workflows.

use expect_test::{Expect, expect};
use serde_json::json;
use twice_core::event::{EndCause, RunEvent, SkipReason, StepFailure};
use twice_core::ids::ElementId;
use twice_core::progress::Progress;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_workflow::Project;
use twice_workflow::draw::{Asked, Fate, Overlay, mermaid, terminal};
use twice_workflow::model::Workflow;

use crate::flows::{name, sound};
use crate::support::{edit, example};

#[track_caller]
fn drawn(workflow: &Workflow, overlay: Option<&Overlay>, expect: Expect) {
    let lines = terminal(workflow, overlay, 80);
    let lines: Vec<String> = lines
        .iter()
        .map(|line| line.iter().map(|span| span.text.as_str()).collect::<String>())
        .collect();
    for line in &lines {
        assert!(line.chars().count() <= 80, "{line}");
    }
    expect.assert_eq(&lines.join("\n"));
}

/// A workflow with everything that can be drawn.
fn order() -> Workflow {
    sound(
        "",
        &[
            ("judge", "routes = ['pay', 'refuse', 'ask']"),
            ("draft", "after = ['judge']\nwhen = \"routes.judge == 'ask'\""),
            (
                "review",
                "after = ['draft']\nroutes = ['again', 'good']\nloop = { to = 'draft', when = \"routes.review == 'again'\", max_visits = 5 }",
            ),
            (
                "pay",
                "after = ['judge']\nwhen = \"routes.judge == 'pay'\"\nfor_each = '/input/orders'\nelement = '/id'\ntimeout = '1h'",
            ),
            ("letter", "after = ['judge', 'review']\njoin = 'any'"),
            ("alarm", "ends = true"),
            ("close", "after = ['review', 'pay', 'letter']"),
        ],
    )
}

#[test]
fn a_workflow_of_every_kind() {
    drawn(
        &order(),
        None,
        expect![[r#"
        ○ judge (c)
        │   routes pay, refuse, ask
        ├─┬─╮
        ○ │ │ draft (c)
        │ │ │   when routes.judge == 'ask'
        ○ │ │ review (c)
        │ │ │   routes again, good
        │ │ │   back to draft, at most 5 rounds, then the run fails
        │ │ │     while routes.review == 'again'
        ├─┼─┼─╮
        │ ○ │ │ pay (c)
        │ │ │ │   when routes.judge == 'pay'
        │ │ │ │   for each of /input/orders by /id, 8 at once
        │ │ │ │   at most 1h
        ├─┼─╯ │
        ○ │   │ letter (c)
        │ │   │   starts with the first that is done
        │ │ ○ │ alarm (c)
        │ │   │   ends the run
        ├─┴───╯
        ○       close (c)
                  joins review, pay, letter"#]],
    );
    expect![[r#"
        flowchart TD
          n0["<b>judge</b><br/>routes pay, refuse, ask"]
          n1["<b>draft</b>"]
          n2["<b>review</b><br/>routes again, good"]
          n3[["<b>pay</b><br/>for each of /input/orders by /id, 8 at once<br/>at most 1h"]]
          n4{{"<b>letter</b><br/>starts with the first that is done"}}
          n5(["<b>alarm</b><br/>ends the run"])
          n6["<b>close</b>"]
          n0 -->|"routes.judge == 'ask'"| n1
          n1 --> n2
          n2 -.->|"routes.review == 'again', at most 5"| n1
          n0 -->|"routes.judge == 'pay'"| n3
          n0 --> n4
          n2 --> n4
          n2 --> n6
          n3 --> n6
          n4 --> n6
    "#]]
    .assert_eq(&mermaid(&order(), None));
}

#[test]
fn a_run_is_laid_over() {
    let step = |node: &str, visit, element: Option<&str>| {
        let element = element.map(|id| ElementId::parse(id).expect("an element id"));
        (name(node), visit, element)
    };
    let done = |node: &str, visit, id| {
        let (node, visit, element) = step(node, visit, id);
        RunEvent::StepCompleted {
            node,
            visit,
            element,
            attempt: 1,
            output: json!(1),
            diverged: vec![],
        }
    };
    let started = |node: &str, visit, id| {
        let (node, visit, element) = step(node, visit, id);
        RunEvent::StepStarted { node, visit, element }
    };
    let ids = ["a", "b", "c"].map(|id| ElementId::parse(id).expect("an element id"));
    let mut events = vec![
        done("judge", 1, None),
        done("draft", 1, None),
        done("review", 1, None),
        RunEvent::LoopDecided {
            node: name("review"),
            visit: 1,
            again: vec![name("draft"), name("review")],
        },
        started("draft", 2, None),
        RunEvent::NodeEntered { node: name("pay"), visit: 1, elements: Some(ids.to_vec()) },
        done("pay", 1, Some("b")),
        started("pay", 1, Some("c")),
        RunEvent::StepSkipped { node: name("letter"), visit: 1, why: SkipReason::DeadPath },
    ];
    let overlay = |events: &[RunEvent], state| {
        let progress = Progress::of(events.iter().map(|event| (event, Timestamp(1))));
        Overlay::of(&order(), &progress, state, &[])
    };
    drawn(
        &order(),
        Some(&overlay(&events, RunState::Running)),
        expect![[r#"
        ● judge (c)  done
        │   routes pay, refuse, ask
        ├─┬─╮
        ◐ │ │ draft (c)  running, visit 2
        │ │ │   when routes.judge == 'ask'
        ○ │ │ review (c)  not reached, visit 2
        │ │ │   routes again, good
        │ │ │   back to draft, at most 5 rounds, then the run fails
        │ │ │     while routes.review == 'again'
        ├─┼─┼─╮
        │ ◐ │ │ pay (c)  running 1/3
        │ │ │ │   when routes.judge == 'pay'
        │ │ │ │   for each of /input/orders by /id, 8 at once
        │ │ │ │   at most 1h
        ├─┼─╯ │
        ◌ │   │ letter (c)  skipped
        │ │   │   starts with the first that is done
        │ │ ◐ │ alarm (c)  running
        │ │   │   ends the run
        ├─┴───╯
        ○       close (c)  not reached
                  joins review, pay, letter"#]],
    );
    drawn(
        &order(),
        Some(&overlay(&events, RunState::Waiting)),
        expect![[r#"
        ● judge (c)  done
        │   routes pay, refuse, ask
        ├─┬─╮
        ◔ │ │ draft (c)  waiting, visit 2
        │ │ │   when routes.judge == 'ask'
        ○ │ │ review (c)  not reached, visit 2
        │ │ │   routes again, good
        │ │ │   back to draft, at most 5 rounds, then the run fails
        │ │ │     while routes.review == 'again'
        ├─┼─┼─╮
        │ ◔ │ │ pay (c)  waiting 1/3
        │ │ │ │   when routes.judge == 'pay'
        │ │ │ │   for each of /input/orders by /id, 8 at once
        │ │ │ │   at most 1h
        ├─┼─╯ │
        ◌ │   │ letter (c)  skipped
        │ │   │   starts with the first that is done
        │ │ ◔ │ alarm (c)  waiting
        │ │   │   ends the run
        ├─┴───╯
        ○       close (c)  not reached
                  joins review, pay, letter"#]],
    );
    let (node, visit, element) = step("pay", 1, Some("c"));
    let cause = StepFailure::Fatal { message: "no".to_owned() };
    events.push(RunEvent::StepFailed { node, visit, element, attempt: 1, cause, retry_at: None });
    let overlay = overlay(&events, RunState::Failed);
    drawn(
        &order(),
        Some(&overlay),
        expect![[r#"
            ● judge (c)  done
            │   routes pay, refuse, ask
            ├─┬─╮
            ◍ │ │ draft (c)  not finished, visit 2
            │ │ │   when routes.judge == 'ask'
            ○ │ │ review (c)  not reached, visit 2
            │ │ │   routes again, good
            │ │ │   back to draft, at most 5 rounds, then the run fails
            │ │ │     while routes.review == 'again'
            ├─┼─┼─╮
            │ ✗ │ │ pay (c)  failed 1/3
            │ │ │ │   when routes.judge == 'pay'
            │ │ │ │   for each of /input/orders by /id, 8 at once
            │ │ │ │   at most 1h
            ├─┼─╯ │
            ◌ │   │ letter (c)  skipped
            │ │   │   starts with the first that is done
            │ │ ○ │ alarm (c)  not reached
            │ │   │   ends the run
            ├─┴───╯
            ○       close (c)  not reached
                      joins review, pay, letter"#]],
    );
    expect![[r#"
        flowchart TD
          n0["<b>judge</b><br/>done<br/>routes pay, refuse, ask"]
          n1["<b>draft</b><br/>not finished, visit 2"]
          n2["<b>review</b><br/>not reached, visit 2<br/>routes again, good"]
          n3[["<b>pay</b><br/>failed 1/3<br/>for each of /input/orders by /id, 8 at once<br/>at most 1h"]]
          n4{{"<b>letter</b><br/>skipped<br/>starts with the first that is done"}}
          n5(["<b>alarm</b><br/>not reached<br/>ends the run"])
          n6["<b>close</b><br/>not reached"]
          n0 -->|"routes.judge == 'ask'"| n1
          n1 --> n2
          n2 -.->|"routes.review == 'again', at most 5"| n1
          n0 -->|"routes.judge == 'pay'"| n3
          n0 --> n4
          n2 --> n4
          n2 --> n6
          n3 --> n6
          n4 --> n6
          classDef done fill:#dff5e1,stroke:#2da44e,color:#111
          class n0 done
          classDef skipped fill:#f6f8fa,stroke:#8c959f,color:#57606a,stroke-dasharray:4
          class n4 skipped
          classDef failed fill:#ffebe9,stroke:#cf222e,color:#111
          class n3 failed
          classDef unfinished fill:#f6f8fa,stroke:#9a6700,color:#111
          class n1 unfinished
    "#]].assert_eq(&mermaid(&order(), Some(&overlay)));
}

#[test]
fn lanes_cross_and_join() {
    let nodes = [
        ("a", ""),
        ("b", ""),
        ("c", "after = ['a']"),
        ("d", "after = ['a', 'b']"),
        ("e", "after = ['a']"),
        ("f", "after = ['c', 'd']"),
        ("g", "after = ['c', 'e']"),
        ("h", "after = ['f', 'g', 'b']"),
        ("i", "after = ['a', 'h']"),
    ];
    drawn(
        &sound("", &nodes),
        None,
        expect![[r#"
        ○ a (c)
        ├─┬─┬─╮
        │ │ │ │ ○ b (c)
        │ │ │ │ ├─╮
        ○ │ │ │ │ │ c
        ├─┼─┼─┼─┼─┼─╮
        │ ├─┼─┼─╯ │ │
        │ ○ │ │   │ │ d (c)
        │ │ │ │   │ │   joins a, b
        │ │ ○ │   │ │ e (c)
        ├─╯ │ │   │ │
        ○   │ │   │ │ f (c)
        │   │ │   │ │   joins c, d
        │   ├─┼───┼─╯
        │   ○ │   │   g (c)
        │   │ │   │     joins c, e
        ├───┴─┼───╯
        ○     │       h (c)
        │     │         joins f, g, b
        ├─────╯
        ○             i (c)
                        joins a, h"#]],
    );
}

#[test]
fn slots_say_what_they_ask_for() {
    let mut files = example();
    let path = "workflows/damaged-item-refund.toml";
    let extra = "compensate = { tool = \"payments.refund\", args = { order_id = \"/input/order_id\", amount_cents = 1 } }\nlock = true\nallow = \"args.order_id";
    edit(&mut files, path, "allow = \"args.order_id", extra);
    edit(
        &mut files,
        path,
        "intent = \"refund-notice\"",
        "intent = \"refund-notice\"\npivot = true",
    );
    edit(
        &mut files,
        path,
        "",
        "\n[[node.effect]]\nslot = \"child\"\nworkflow = \"other\"\nobject = \"/input/order_id\"\nintent = \"x\"\nallow = \"true\"\n",
    );
    let other =
        "workflow = \"other\"\nversion = 1\n[[node]]\nname = \"only\"\ncomponent = \"only\"\n";
    files.insert("workflows/other.toml".to_owned(), other.to_owned());
    let project = Project::load(&files).unwrap_or_else(|found| panic!("{found:?}"));
    let workflow = &project.workflows[&name("damaged-item-refund")];
    drawn(
        workflow,
        None,
        expect![[r#"
        ○ refund
        │   refund → payments.refund, undone by payments.refund, locks order_id
        ○ notify
            notify → mail.send, no way back
            child ⇒ workflow other"#]],
    );
    expect![[r#"
        flowchart TD
          n0["<b>refund</b><br/>refund → payments.refund, undone by payments.refund, locks order_id"]
          n1["<b>notify</b><br/>notify → mail.send, no way back<br/>child ⇒ workflow other"]
          n0 --> n1
    "#]].assert_eq(&mermaid(workflow, None));
}

#[test]
fn a_graph_too_wide_for_lanes_is_a_list() {
    let names: Vec<String> = (0..24).map(|at| format!("n{at}")).collect();
    let mut nodes = vec![("first", "")];
    nodes.extend(names.iter().map(|name| (name.as_str(), "after = ['first']")));
    let all = format!("after = ['first', 'n0', 'n23']\nwhen = 'state.input.x{}'", "x".repeat(90));
    nodes.push(("last", &all));
    let workflow = sound("", &nodes);
    let lines = terminal(&workflow, None, 80);
    let text: Vec<String> = lines[..5]
        .iter()
        .chain(&lines[lines.len() - 3..])
        .map(|line| line.iter().map(|span| span.text.as_str()).collect())
        .collect();
    expect![[r#"
        ○ first (c)
        ○ n0 (c)
            after first
        ○ n1 (c)
            after first
        ○ last (c)
            after first, n0, n23
            when state.input.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"#]]
    .assert_eq(&text.join("\n"));
}

/// A run whose node `pack` failed, on its way back.
fn order_that_turned_back(fates: [Option<Fate>; 4], state: RunState) -> (Workflow, Overlay) {
    let workflow = sound(
        "",
        &[
            ("reserve", ""),
            ("pay", "after = ['reserve']"),
            ("pack", "after = ['reserve']"),
            ("ship", "after = ['pay', 'pack']"),
            ("tell", "after = ['ship']"),
        ],
    );
    let completed = |node: &str| RunEvent::StepCompleted {
        node: name(node),
        visit: 1,
        element: None,
        attempt: 1,
        output: json!(1),
        diverged: vec![],
    };
    let events = [
        completed("reserve"),
        RunEvent::StepStarted { node: name("pay"), visit: 1, element: None },
        RunEvent::StepFailed {
            node: name("pack"),
            visit: 1,
            element: None,
            attempt: 1,
            cause: StepFailure::Fatal { message: "no".to_owned() },
            retry_at: None,
        },
        RunEvent::Compensating { cause: EndCause::Failed, why: "no".to_owned() },
    ];
    let progress = Progress::of(events.iter().map(|event| (event, Timestamp(1))));
    let asked = |(at, fate): (usize, Option<Fate>)| Asked {
        node: name(["reserve", "reserve", "pay", "pack"][at]),
        visit: 1,
        key: format!("key-{at}"),
        fate,
    };
    let effects: Vec<Asked> = fates.into_iter().enumerate().map(asked).collect();
    let overlay = Overlay::of(&workflow, &progress, state, &effects);
    (workflow, overlay)
}

#[test]
fn what_is_undone_is_shown() {
    let undone = Some(Fate::Undone);
    let stands = Some(Fate::Stays);
    let all = [undone, stands, undone, None];
    let (workflow, overlay) = order_that_turned_back(all, RunState::Failed);
    drawn(
        &workflow,
        Some(&overlay),
        expect![[r#"
        ↺ reserve (c)  undone, 1 of 2 effects undone
        ├─╮
        ↺ │ pay (c)  undone
        │ ✗ pack (c)  failed
        ├─╯
        ○   ship (c)  not reached
        │     joins pay, pack
        ○   tell (c)  not reached"#]],
    );

    let (workflow, overlay) =
        order_that_turned_back([Some(Fate::Open), undone, None, undone], RunState::Running);
    drawn(
        &workflow,
        Some(&overlay),
        expect![[r#"
        ↶ reserve (c)  being undone, 1 of 2 effects undone
        ├─╮
        ◍ │ pay (c)  not finished
        │ ✗ pack (c)  failed, 1 of 1 effect undone
        ├─╯
        ○   ship (c)  not reached
        │     joins pay, pack
        ○   tell (c)  not reached"#]],
    );

    let (workflow, overlay) =
        order_that_turned_back([undone, Some(Fate::Stuck), undone, None], RunState::Stuck);
    drawn(
        &workflow,
        Some(&overlay),
        expect![[r#"
        ! reserve (c)  stuck, 1 of 2 effects undone
        │   stuck at key-1
        ├─╮
        ↺ │ pay (c)  undone
        │ ✗ pack (c)  failed
        ├─╯
        ○   ship (c)  not reached
        │     joins pay, pack
        ○   tell (c)  not reached"#]],
    );
    expect![[r#"
        flowchart TD
          n0["<b>reserve</b><br/>stuck, 1 of 2 effects undone<br/>stuck at key-1"]
          n1["<b>pay</b><br/>undone"]
          n2["<b>pack</b><br/>failed"]
          n3["<b>ship</b><br/>not reached"]
          n4["<b>tell</b><br/>not reached"]
          n0 --> n1
          n0 --> n2
          n1 --> n3
          n2 --> n3
          n3 --> n4
          classDef failed fill:#ffebe9,stroke:#cf222e,color:#111
          class n2 failed
          classDef undone fill:#fbefff,stroke:#8250df,color:#111
          class n1 undone
          classDef stuck fill:#ffebe9,stroke:#cf222e,color:#111,stroke-width:3px
          class n0 stuck
    "#]]
    .assert_eq(&mermaid(&workflow, Some(&overlay)));
}

#[test]
fn a_node_whose_effect_is_on_record_was_reached() {
    let workflow = sound("", &[("a", ""), ("b", "after = ['a']")]);
    let asked = |node: &str| Asked { node: name(node), visit: 1, key: "k".to_owned(), fate: None };
    let progress = Progress::default();
    let overlay = |state| Overlay::of(&workflow, &progress, state, &[asked("a")]);
    drawn(
        &workflow,
        Some(&overlay(RunState::Failed)),
        expect![[r#"
        ◍ a (c)  not finished
        ○ b (c)  not reached"#]],
    );
    drawn(
        &workflow,
        Some(&overlay(RunState::Waiting)),
        expect![[r#"
        ◔ a (c)  waiting
        ○ b (c)  not reached"#]],
    );
}
