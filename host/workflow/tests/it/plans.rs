//! What comes next in a run, workflow by workflow.

use std::cell::Cell;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use twice_core::event::{RunEvent, StepFailure};
use twice_core::ids::{ElementId, Name};
use twice_core::progress::{Progress, Standing, StepId};
use twice_core::time::Timestamp;
use twice_workflow::model::Workflow;
use twice_workflow::plan::{Facts, Graph, Plan, next, route, run_deadline};

use crate::flows::{name, sound};

/// A run of a workflow, its clock one second further with each event.
struct Run {
    workflow: Workflow,
    graph: Graph,
    input: Value,
    progress: Progress,
    clock: i64,
    log: String,
}

impl Run {
    fn of(head: &str, nodes: &[(&str, &str)], input: Value) -> Self {
        let workflow = sound(head, nodes);
        let graph = Graph::of(&workflow);
        let log = String::new();
        Self { workflow, graph, input, progress: Progress::default(), clock: 0, log }
    }

    fn plan(&self) -> Plan {
        let receipts = |node: &Name, slot: &Name| {
            let known = (node.as_str(), slot.as_str()) == ("look", "order");
            known.then(|| json!({ "external_id": "ord_1", "result": { "parts": ["x", "y"] } }))
        };
        let facts = Facts {
            workflow: &self.workflow,
            progress: &self.progress,
            input: &self.input,
            receipts: &receipts,
        };
        next(&self.workflow, &self.graph, &self.progress, &facts)
    }

    fn record(&mut self, event: &RunEvent) {
        self.clock += 1_000;
        self.progress.apply(event, Timestamp(self.clock));
    }

    /// Makes all decisions that are due; what comes after them, in a line.
    fn settle(&mut self) -> Plan {
        loop {
            let plan = self.plan();
            let line = match &plan {
                Plan::Decide(events) => {
                    for event in events {
                        self.record(event);
                    }
                    events.iter().map(decision).collect::<Vec<_>>().join(", ")
                }
                Plan::Run(steps) => {
                    let steps: Vec<String> = steps.iter().map(|step| step.id.to_string()).collect();
                    format!("run {}", steps.join(", "))
                }
                Plan::Complete { output } => format!("complete {output}"),
                Plan::Fail { why } => format!("fail: {why}"),
            };
            self.log.push_str(&format!("{line}\n"));
            if !matches!(plan, Plan::Decide(_)) {
                return plan;
            }
        }
    }

    fn id(&self, step: &str) -> StepId {
        let (node, element) = match step.split_once('[') {
            Some((node, element)) => (node, Some(element.trim_end_matches(']'))),
            None => (step, None),
        };
        let node = name(node);
        let element = element.map(|id| ElementId::parse(id).expect("an element id"));
        StepId { visit: self.progress.visit(&node), node, element }
    }

    /// Completes a step with an output.
    fn done(&mut self, step: &str, output: Value) -> &mut Self {
        self.log.push_str(&format!("- {step} returns {output}\n"));
        let StepId { node, visit, element } = self.id(step);
        self.record(&RunEvent::StepCompleted {
            node,
            visit,
            element,
            attempt: 1,
            output,
            diverged: vec![],
        });
        self.settle();
        self
    }

    fn started(&mut self, step: &str) {
        let StepId { node, visit, element } = self.id(step);
        self.record(&RunEvent::StepStarted { node, visit, element });
    }

    fn failed(&mut self, step: &str, retry_at: Option<i64>) {
        let StepId { node, visit, element } = self.id(step);
        let cause = StepFailure::Retryable { message: "no luck".to_owned() };
        let retry_at = retry_at.map(Timestamp);
        self.record(&RunEvent::StepFailed { node, visit, element, attempt: 1, cause, retry_at });
    }

    #[track_caller]
    fn expect(&self, expect: Expect) {
        expect.assert_eq(&self.log);
    }
}

fn decision(event: &RunEvent) -> String {
    match event {
        RunEvent::NodeEntered { node, elements, .. } => {
            format!(
                "enter {node}{}",
                elements.as_ref().map_or_else(String::new, |ids| format!(" with {}", ids.len()))
            )
        }
        RunEvent::StepSkipped { node, why, .. } => format!("skip {node} ({why:?})"),
        RunEvent::LoopDecided { node, again, .. } if again.is_empty() => {
            format!("leave the loop of {node}")
        }
        RunEvent::LoopDecided { node, again, .. } => {
            let again: Vec<&str> = again.iter().map(Name::as_str).collect();
            format!("loop of {node}: again {}", again.join(" "))
        }
        other => panic!("{} is no decision", other.kind()),
    }
}

const DIAMOND: [(&str, &str); 5] = [
    ("judge", "routes = ['pay', 'refuse']"),
    ("pay", "after = ['judge']\nwhen = \"routes.judge == 'pay'\""),
    ("refuse", "after = ['judge']\nwhen = \"routes.judge == 'refuse'\""),
    ("letter", "after = ['refuse']"),
    ("close", "after = ['pay', 'letter']"),
];

#[test]
fn a_diamond_joins_after_the_branch_that_was_taken() {
    let mut run = Run::of("", &DIAMOND, json!({}));
    run.settle();
    run.done("judge", json!({ "route": "pay" })).done("pay", json!(1)).done("close", json!("ok"));
    run.expect(expect![[r#"
        run judge
        - judge returns {"route":"pay"}
        enter pay, skip refuse (When)
        skip letter (DeadPath)
        run pay
        - pay returns 1
        run close
        - close returns "ok"
        complete "ok"
    "#]]);
}

#[test]
fn a_route_that_is_not_declared_is_no_output() {
    let node = &sound("", &DIAMOND).nodes[0];
    assert_eq!(route(node, &json!({ "route": "pay" })), Ok(Some("pay")));
    expect![[r#"
        the output of node `judge` has a `route` other than `pay`, `refuse`
        the output of node `judge` has no text `route`, which must be one of `pay`, `refuse`
    "#]]
    .assert_eq(&format!(
        "{}\n{}\n",
        route(node, &json!({ "route": "else" })).unwrap_err(),
        route(node, &json!([])).unwrap_err()
    ));
    assert_eq!(route(&sound("", &[("a", "")]).nodes[0], &json!([])), Ok(None));
}

#[test]
fn any_starts_with_the_first_and_only_once() {
    let nodes = [("a", ""), ("b", ""), ("c", "after = ['a', 'b']\njoin = 'any'")];
    let mut run = Run::of("", &nodes, json!({}));
    run.settle();
    run.done("b", json!("b")).done("c", json!("c")).done("a", json!("a"));
    run.expect(expect![[r#"
        run a, b
        - b returns "b"
        run a, c
        - c returns "c"
        run a
        - a returns "a"
        complete "c"
    "#]]);
}

#[test]
fn any_is_skipped_when_all_before_it_are() {
    let nodes = [
        ("a", "when = 'state.input.a'"),
        ("b", "when = 'state.input.b'"),
        ("c", "after = ['a', 'b']\njoin = 'any'"),
        ("d", ""),
    ];
    let mut run = Run::of("", &nodes, json!({ "a": false, "b": false }));
    run.settle();
    run.done("d", json!(4));
    run.expect(expect![[r#"
        skip a (When), skip b (When)
        skip c (DeadPath)
        run d
        - d returns 4
        complete {"d":4}
    "#]]);
}

#[test]
fn what_cannot_be_decided_fails_the_run() {
    let nodes = [("a", ""), ("b", "after = ['a']\nwhen = 'state.nodes.a.amount > 5'"), ("c", "")];
    let mut run = Run::of("", &nodes, json!({}));
    run.started("c");
    run.done("a", json!({ "amount": "much" }));
    run.expect(expect![[r#"
        - a returns {"amount":"much"}
        fail: whether node `b` runs cannot be decided: `state.nodes.a.amount > 5`: the expression could not be evaluated: found no matching overload for '_>_' applied to '(string, int)'
    "#]]);
}

#[test]
fn a_loop_goes_round_until_its_condition_fails() {
    let nodes = [
        ("draft", ""),
        (
            "review",
            "after = ['draft']\nroutes = ['again', 'good']\nloop = { to = 'draft', when = \"routes.review == 'again'\", max_visits = 3 }",
        ),
        ("send", "after = ['review']"),
    ];
    let again = || json!({ "route": "again" });
    let mut run = Run::of("", &nodes, json!({}));
    run.settle();
    run.done("draft", json!(1)).done("review", again());
    run.done("draft", json!(2))
        .done("review", json!({ "route": "good" }))
        .done("send", json!("sent"));
    run.expect(expect![[r#"
        run draft
        - draft returns 1
        run review
        - review returns {"route":"again"}
        loop of review: again draft review
        run draft (visit 2)
        - draft returns 2
        run review (visit 2)
        - review returns {"route":"good"}
        leave the loop of review
        run send
        - send returns "sent"
        complete "sent"
    "#]]);
    let mut run = Run::of("", &nodes, json!({}));
    for round in 0..3 {
        run.done("draft", json!(round)).done("review", again());
    }
    run.expect(expect![[r#"
        - draft returns 0
        run review
        - review returns {"route":"again"}
        loop of review: again draft review
        run draft (visit 2)
        - draft returns 1
        run review (visit 2)
        - review returns {"route":"again"}
        loop of review: again draft review
        run draft (visit 3)
        - draft returns 2
        run review (visit 3)
        - review returns {"route":"again"}
        fail: the loop of node `review` would go on after 3 rounds, which is its `max_visits`
    "#]]);
}

#[test]
fn an_inner_loop_counts_anew_in_each_round_of_the_outer_one() {
    let nodes = [
        ("a", ""),
        (
            "b",
            "after = ['a']\nloop = { to = 'b', when = 'state.nodes.b', max_visits = 2, exhausted = 'go_on' }",
        ),
        (
            "c",
            "after = ['b']\nloop = { to = 'a', when = 'state.nodes.c', max_visits = 2, exhausted = 'go_on' }",
        ),
    ];
    let mut run = Run::of("", &nodes, json!({}));
    run.settle();
    for _ in 0..2 {
        run.done("a", json!(0))
            .done("b", json!(true))
            .done("b", json!(true))
            .done("c", json!(true));
    }
    run.expect(expect![[r#"
        run a
        - a returns 0
        run b
        - b returns true
        loop of b: again b
        run b (visit 2)
        - b returns true
        leave the loop of b
        run c
        - c returns true
        loop of c: again a b c
        run a (visit 2)
        - a returns 0
        run b (visit 3)
        - b returns true
        loop of b: again b
        run b (visit 4)
        - b returns true
        leave the loop of b
        run c (visit 2)
        - c returns true
        leave the loop of c
        complete true
    "#]]);
}

#[test]
fn a_fan_out_runs_so_many_at_once() {
    let nodes = [
        ("refund", "for_each = '/input/orders'\nelement = '/id'\nparallel = 2"),
        ("report", "after = ['refund']"),
    ];
    let input = json!({ "orders": [{ "id": "a" }, { "id": 7 }, { "id": "c" }] });
    let mut run = Run::of("", &nodes, input);
    run.settle();
    run.done("refund[7]", json!("7!"))
        .done("refund[a]", json!("a!"))
        .done("refund[c]", json!("c!"));
    run.done("report", json!("done"));
    run.expect(expect![[r#"
        enter refund with 3
        run refund[a], refund[7]
        - refund[7] returns "7!"
        run refund[a], refund[c]
        - refund[a] returns "a!"
        run refund[c]
        - refund[c] returns "c!"
        run report
        - report returns "done"
        complete "done"
    "#]]);
}

#[test]
fn elements_that_cannot_be_told_apart_stop_the_run() {
    let nodes = [("refund", "for_each = '/input/orders'\nelement = '/id'")];
    let mut log = String::new();
    for orders in [
        json!([{ "id": "7" }, { "id": 7 }]),
        json!([{ "id": "a" }, { "name": "b" }]),
        json!([{ "id": 1.5 }]),
        json!([{ "id": "" }]),
        json!({ "id": "a" }),
        json!(vec![json!({ "id": "a" }); 10_001]),
    ] {
        let mut run = Run::of("", &nodes, json!({ "orders": orders }));
        run.settle();
        log.push_str(&run.log);
    }
    let mut run = Run::of("", &nodes, json!({}));
    run.settle();
    log.push_str(&run.log);
    expect![[r#"
        fail: node `refund` cannot fan out: elements 0 and 1 of `/input/orders` have one identity, `7`: their effects could not be told apart
        fail: node `refund` cannot fan out: element 1 of `/input/orders` has no identity at `/id`: there is nothing
        fail: node `refund` cannot fan out: element 0 of `/input/orders` has no identity at `/id`: a business object must be a string that is not empty, or an integer; this is a fraction
        fail: node `refund` cannot fan out: element 0 of `/input/orders` has no identity at `/id`: a business object must be a string that is not empty, or an integer; this is an empty string
        fail: node `refund` cannot fan out: there is no array at `/input/orders`
        fail: node `refund` cannot fan out: there are 10001 elements at `/input/orders`; at most 10000 are possible
        fail: node `refund` cannot fan out: there is no array to fan out over: there is nothing at `/input/orders`
    "#]].assert_eq(&log);
}

#[test]
fn a_large_fan_out_asks_for_its_elements_once() {
    struct Counted<'a>(&'a Cell<u32>);
    impl twice_workflow::plan::Evaluate for Counted<'_> {
        fn holds(&self, _: &twice_workflow::model::Node, _: &str) -> Result<bool, String> {
            Ok(true)
        }
        fn elements(
            &self,
            _: &twice_workflow::model::Node,
            _: &twice_workflow::model::FanOut,
        ) -> Result<Vec<ElementId>, String> {
            self.0.set(self.0.get() + 1);
            Ok((0..10_000).map(|id| ElementId::parse(id.to_string()).expect("digits")).collect())
        }
    }
    let workflow =
        sound("", &[("each", "for_each = '/input/orders'\nelement = ''\nparallel = 16")]);
    let (graph, asked, mut progress, mut done) =
        (Graph::of(&workflow), Cell::new(0), Progress::default(), 0);
    loop {
        match next(&workflow, &graph, &progress, &Counted(&asked)) {
            Plan::Decide(events) => {
                events.iter().for_each(|event| progress.apply(event, Timestamp(0)))
            }
            Plan::Run(steps) => {
                assert!(steps.len() <= 16);
                // The last of those that run returns first: the first ones stay open for long.
                let StepId { node, visit, element } = steps[steps.len() - 1].id.clone();
                let event = RunEvent::StepCompleted {
                    node,
                    visit,
                    element,
                    attempt: 1,
                    output: json!(done),
                    diverged: vec![],
                };
                progress.apply(&event, Timestamp(0));
                done += 1;
            }
            Plan::Complete { output } => {
                assert_eq!((output.as_array().map(Vec::len), done), (Some(10_000), 10_000));
                break;
            }
            Plan::Fail { why, .. } => panic!("{why}"),
        }
    }
    assert_eq!(asked.get(), 1);
}

#[test]
fn a_receipt_decides_and_is_fanned_out_over() {
    // Without tools the checks know of no slot; the planner needs none.
    let mut workflow = sound("", &[("look", ""), ("each", "after = ['look']")]);
    let written = twice_workflow::model::FanOut {
        array: "/receipts/look/order/result/parts".to_owned(),
        element: String::new(),
        parallel: 8,
    };
    workflow.nodes[1].for_each = Some(written);
    let when = "has(receipts.look.order) && receipts.look.order.external_id == 'ord_1'";
    workflow.nodes[1].when = Some(when.to_owned());
    let mut run = Run::of("", &[("a", "")], json!({}));
    run.graph = Graph::of(&workflow);
    run.workflow = workflow;
    run.done("look", json!(1));
    run.expect(expect![[r#"
        - look returns 1
        enter each with 2
        run each[x], each[y]
    "#]]);
}

#[test]
fn an_end_lets_what_has_started_return_and_skips_the_rest() {
    let nodes = [
        ("a", "ends = true"),
        ("b", ""),
        ("c", "after = ['b']"),
        ("each", "for_each = '/input/orders'\nelement = ''"),
    ];
    let mut run = Run::of("", &nodes, json!({ "orders": ["x", "y"] }));
    run.settle();
    run.started("b");
    run.started("each[y]");
    run.done("a", json!("the end")).done("b", json!(2)).done("each[y]", json!("y"));
    assert_eq!(
        run.progress.standing(&name("each")),
        Standing::Skipped(twice_core::event::SkipReason::Ended)
    );
    run.expect(expect![[r#"
        enter each with 2
        run a, b, each[x], each[y]
        - a returns "the end"
        run b, each[y]
        - b returns 2
        run each[y]
        - each[y] returns "y"
        skip c (Ended), skip each (Ended)
        complete "the end"
    "#]]);
}

#[test]
fn a_step_that_failed_for_good_fails_the_run_when_the_others_are_settled() {
    let nodes = [("a", ""), ("b", "retry = { attempts = 1 }"), ("c", "")];
    let mut run = Run::of("", &nodes, json!({}));
    run.started("a");
    run.failed("b", None);
    run.settle();
    run.record(&RunEvent::Retried { who: "ann".to_owned(), why: "mended".to_owned() });
    run.settle();
    run.expect(expect![[r#"
        fail: node `b` asked for a later start: no luck
        run a, b, c
    "#]]);
}

#[test]
fn times_count_from_the_first_start_and_the_last_failure() {
    let mut run = Run::of("timeout = '24h'", &[("a", "timeout = '1h'"), ("b", "")], json!({}));
    assert_eq!(run_deadline(&run.workflow, &run.progress), None);
    run.record(&RunEvent::Started {
        workflow: name("flow"),
        version: 1,
        definition: "sha256:0".to_owned(),
        input: json!({}),
        priority: Default::default(),
        identity_alg: 1,
        parent: None,
    });
    run.started("a");
    run.failed("a", Some(9_000));
    let Plan::Run(steps) = run.plan() else { panic!("{:?}", run.plan()) };
    let times: Vec<_> = steps.iter().map(|step| (step.not_before, step.deadline)).collect();
    let (later, late) = (Timestamp(9_000), Timestamp(2_000 + 3_600_000));
    assert_eq!(times, [(Some(later), Some(late)), (None, None)]);
    assert_eq!(run_deadline(&run.workflow, &run.progress), Some(Timestamp(1_000 + 86_400_000)));
}
