//! Where steps stand, as folded from events.

use serde_json::{Value, json};
use twice_core::event::{EndCause, RunEvent, SkipReason, StepFailure};
use twice_core::ids::ElementId;
use twice_core::progress::{Compensating, Progress, Standing, StepId};
use twice_core::time::Timestamp;

use crate::fixtures::{identity, name};

fn element(text: &str) -> ElementId {
    ElementId::parse(text).expect("an element id")
}

fn entered(node: &str, elements: Option<&[&str]>) -> RunEvent {
    let elements = elements.map(|ids| ids.iter().map(|id| element(id)).collect());
    RunEvent::NodeEntered { node: name(node), visit: 1, elements }
}

fn completed(node: &str, visit: u32, id: Option<&str>, output: Value) -> RunEvent {
    let (node, element) = (name(node), id.map(element));
    RunEvent::StepCompleted { node, visit, element, attempt: 1, output, diverged: vec![] }
}

fn failed(node: &str, id: Option<&str>, attempt: u32, retry_at: Option<i64>) -> RunEvent {
    RunEvent::StepFailed {
        node: name(node),
        visit: 1,
        element: id.map(element),
        attempt,
        cause: StepFailure::Fatal { message: format!("attempt {attempt}") },
        retry_at: retry_at.map(Timestamp),
    }
}

fn fold(events: &[RunEvent]) -> Progress {
    Progress::of(events.iter().zip(1..).map(|(event, at)| (event, Timestamp(at))))
}

#[test]
fn a_fan_out_is_done_with_its_last_element_and_keeps_the_order_of_its_array() {
    let mut events = vec![
        entered("refund", Some(&["a", "b", "c"])),
        completed("refund", 1, Some("c"), json!(3)),
        completed("refund", 1, Some("a"), json!(1)),
        completed("refund", 1, Some("a"), json!("again")),
        completed("refund", 1, Some("stranger"), json!(9)),
        failed("refund", Some("b"), 1, Some(70)),
    ];
    let progress = fold(&events);
    let node = &progress.nodes[&name("refund")];
    let elements = node.elements.as_ref().expect("it is entered");
    assert_eq!((elements.done(), elements.total(), node.standing), (2, 3, Standing::Open));
    let open: Vec<_> = elements.open().collect();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].0, &element("b"));
    assert_eq!(open[0].1.and_then(|step| step.retry_at), Some(Timestamp(70)));
    assert_eq!(progress.state(&json!(0), None)["nodes"], json!({}), "no output before the last");

    events.push(completed("refund", 1, Some("b"), json!(2)));
    let progress = fold(&events);
    assert_eq!(progress.standing(&name("refund")), Standing::Completed);
    let state = progress.state(&json!(0), Some(&json!({ "id": "b" })));
    assert_eq!(
        state,
        json!({ "input": 0, "nodes": { "refund": [1, 2, 3] }, "element": { "id": "b" } })
    );
}

#[test]
fn a_fan_out_over_nothing_is_done_when_it_is_entered() {
    let progress = fold(&[entered("refund", Some(&[]))]);
    assert_eq!(progress.standing(&name("refund")), Standing::Completed);
    assert_eq!(progress.nodes[&name("refund")].output, Some(json!([])));
}

#[test]
fn a_loop_makes_new_visits_and_shows_the_last_ones() {
    let again = |node: &str, visit, body: &[&str]| RunEvent::LoopDecided {
        node: name(node),
        visit,
        again: body.iter().map(|node| name(node)).collect(),
    };
    let mut events = vec![
        completed("draft", 1, None, json!("d1")),
        completed("review", 1, None, json!("r1")),
        again("review", 1, &["draft", "review"]),
    ];
    let progress = fold(&events);
    assert_eq!((progress.visit(&name("draft")), progress.visit(&name("review"))), (2, 2));
    assert_eq!(progress.standing(&name("draft")), Standing::Open);
    assert_eq!(progress.nodes[&name("review")].round, 2);
    assert_eq!(progress.state(&json!(0), None)["nodes"], json!({ "draft": "d1", "review": "r1" }));

    events.extend([
        completed("draft", 1, None, json!("late")),
        completed("draft", 2, None, json!("d2")),
        RunEvent::StepSkipped { node: name("review"), visit: 2, why: SkipReason::When },
        again("review", 2, &[]),
    ]);
    let progress = fold(&events);
    assert_eq!(progress.state(&json!(0), None)["nodes"], json!({ "draft": "d2" }));
    assert_eq!(progress.standing(&name("review")), Standing::Skipped(SkipReason::When));
    assert!(progress.nodes[&name("review")].left);
}

#[test]
fn an_order_to_try_again_forgets_failures_and_no_success() {
    let started = RunEvent::StepStarted { node: name("b"), visit: 1, element: None };
    let mut events = vec![
        completed("a", 1, None, json!(1)),
        started,
        failed("b", None, 5, None),
        entered("each", Some(&["x", "y"])),
        completed("each", 1, Some("x"), json!(1)),
        failed("each", Some("y"), 2, None),
    ];
    let progress = fold(&events);
    let step = &progress.nodes[&name("b")].step;
    assert_eq!(
        (step.started_at, step.gave_up.as_deref()),
        (Some(Timestamp(2)), Some("node `b` gave up: attempt 5"))
    );
    let elements = progress.nodes[&name("each")].elements.as_ref().expect("it is entered");
    assert_eq!(elements.gave_up().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["y"]);

    events.push(RunEvent::Retried { who: "ann".to_owned(), why: "mended".to_owned() });
    let progress = fold(&events);
    assert!(!progress.nodes[&name("b")].step.has_started());
    let elements = progress.nodes[&name("each")].elements.as_ref().expect("it is entered");
    assert_eq!(
        (elements.gave_up().count(), elements.started().count(), elements.done()),
        (0, 0, 1)
    );
    assert_eq!(progress.standing(&name("a")), Standing::Completed);
    assert_eq!(progress.started_at, Some(Timestamp(7)));
}

#[test]
fn a_step_sees_the_same_however_often_it_is_started() {
    let start = |node: &str| RunEvent::StepStarted { node: name(node), visit: 1, element: None };
    let seen = |progress: &Progress| {
        let id = StepId { node: name("join"), visit: 1, element: None };
        let seen = progress.step(&id).expect("it is open").seen;
        let state = progress.state_seen(&json!(0), None, seen, |node| node.as_str() != "beside");
        (state["nodes"].clone(), progress.finished_at(&name("late"), seen))
    };
    let mut events = vec![
        completed("first", 1, None, json!("f")),
        completed("beside", 1, None, json!("b")),
        start("join"),
    ];
    let first = seen(&fold(&events));
    assert_eq!(first, (json!({ "first": "f" }), None));
    // A node before it that is not waited for (`join = "any"`) returns while it is under way, twice even, in a loop.
    events.push(completed("late", 1, None, json!("l1")));
    assert_eq!(seen(&fold(&events)), first);
    events.push(RunEvent::LoopDecided { node: name("late"), visit: 1, again: vec![name("late")] });
    events.push(completed("late", 2, None, json!("l2")));
    assert_eq!(seen(&fold(&events)), first);
    // What was there at its start is still seen when a later visit has taken its place.
    events.extend([
        RunEvent::LoopDecided { node: name("first"), visit: 1, again: vec![name("first")] },
        completed("first", 2, None, json!("f2")),
    ]);
    assert_eq!(seen(&fold(&events)), first);
    assert_eq!(fold(&events).state(&json!(0), None)["nodes"]["first"], "f2");
}

#[test]
fn a_way_back_is_remembered_until_a_person_orders_the_way_forward() {
    let undo = identity().effect_id();
    let (who, why) = (|| "ada".to_owned(), || "no use".to_owned());
    let back = |cause| RunEvent::Compensating { cause, why: why() };
    for cause in [EndCause::Failed, EndCause::TimedOut, EndCause::Cancelled] {
        let mut events = vec![completed("one", 1, None, json!(1)), failed("two", None, 1, None)];
        // That somebody asks for it decides nothing yet.
        events.push(RunEvent::CancelRequested { who: who(), why: why() });
        assert_eq!(fold(&events).compensating, None);
        events.push(back(cause));
        let begun = fold(&events);
        assert_eq!(begun.compensating, Some(Compensating { cause, why: why() }));
        assert!(begun.undo_resolved.is_empty());
        assert_eq!(begun.standing(&name("one")), Standing::Completed, "what was done is known");

        // Nothing that happens on the way ends it.
        events.extend([
            RunEvent::Parked { why: why(), until: None },
            RunEvent::Stuck { why: why() },
            RunEvent::UndoResolved { effect: undo.clone(), who: who(), why: why() },
            RunEvent::UndoResolved { effect: undo.clone(), who: who(), why: why() },
            RunEvent::Released { who: who(), why: why() },
            RunEvent::CancelRequested { who: who(), why: why() },
        ]);
        let resolved = fold(&events);
        assert_eq!(resolved.compensating, begun.compensating);
        assert_eq!(resolved.undo_resolved.iter().collect::<Vec<_>>(), [&undo]);
        let text = serde_json::to_string(&resolved).expect("plain data");
        assert_eq!(serde_json::from_str::<Progress>(&text).expect("its own text"), resolved);

        events.push(RunEvent::Retried { who: who(), why: why() });
        let retried = fold(&events);
        assert_eq!(retried.compensating, None);
        assert!(retried.undo_resolved.contains(&undo), "what is settled stays settled");
    }
}

#[test]
fn a_progress_of_before_there_was_a_way_back_is_read() {
    let text = r#"{"nodes":{}}"#;
    let progress: Progress = serde_json::from_str(text).expect("it has no way back");
    assert_eq!(progress, Progress::default());
    let written = serde_json::to_string(&progress).expect("plain data");
    assert_eq!(written, text, "nothing is added to it");
}

#[test]
fn a_progress_reads_back() {
    let progress = fold(&[
        entered("each", Some(&["x", "y", "z"])),
        completed("each", 1, Some("x"), json!(1)),
        failed("each", Some("y"), 2, None),
        failed("each", Some("z"), 1, Some(9)),
        completed("a", 1, None, json!(1)),
    ]);
    let text = serde_json::to_string(&progress).expect("plain data");
    assert_eq!(serde_json::from_str::<Progress>(&text).expect("its own text"), progress);
}

#[test]
fn events_of_the_first_format_are_read() {
    let text = r#"{"event":"step_completed","data":{"node":"refund","visit":1,"attempt":1,"output":5,"diverged":[]}}"#;
    let event: RunEvent = serde_json::from_str(text).expect("it has no element");
    assert_eq!(event, completed("refund", 1, None, json!(5)));
    assert_eq!(serde_json::to_string(&event).expect("plain data"), text, "nothing is added to it");
}

#[test]
fn steps_have_a_name_for_people() {
    let step =
        |visit, id: Option<&str>| StepId { node: name("refund"), visit, element: id.map(element) };
    assert_eq!(step(1, None).to_string(), "refund");
    assert_eq!(step(2, None).to_string(), "refund (visit 2)");
    assert_eq!(step(1, Some("o-1")).to_string(), "refund[o-1]");
}
