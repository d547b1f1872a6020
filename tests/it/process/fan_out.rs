//! A fan-out over a thousand orders whose worker is killed again and again.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use twice_tests::project::{Project, Provider, Ran};

use super::shop::{GRAPH, check_settled, graph_input, shop, start_with};

const ELEMENTS: usize = 1_000;
/// How many elements a run has that the other is compared with.
const FEW: usize = 50;
const RUN: &str = "run-1";
/// Where its workers die, one after the other.
const DEATHS: [&str; 5] = [
    "after-reply:130",
    "before-checkpoint:170",
    "after-requested-commit:110",
    "before-intent:190",
    "after-reply:90",
];

/// Runs a command to its end, which prints little meanwhile, as nobody reads; the most memory that it had in use. KiB.
fn measured(project: &Project, args: &[String], env: &[(&str, &str)]) -> (Ran, u64) {
    let mut worker = project.spawn(args, env);
    let mut most = 0;
    while let Some(memory) = worker.memory_max_kib() {
        most = most.max(memory);
        std::thread::sleep(Duration::from_millis(5));
    }
    (worker.finish(), most)
}

#[test]
fn a_thousand_elements_are_done_once_each_by_workers_that_are_killed() {
    let provider = Provider::start();
    let project = shop(&provider);
    let (few, memory_of_few) =
        measured(&project, &start_with(GRAPH, &few(), "run-few", &["--json"]), &[]);
    assert_eq!(few.code, Some(0), "{few}");

    let resume = ["runs", "resume", RUN, "--json"].map(str::to_owned).to_vec();
    project.write("input.json", graph_input(ELEMENTS).to_string());
    let first =
        ["run", GRAPH, "--input", "input.json", "--run-id", RUN, "--json"].map(str::to_owned);
    let mut args = first.to_vec();
    let mut most = 0;
    for death in DEATHS {
        let (killed, memory) = measured(&project, &args, &[("TWICE_TEST_KILL", death)]);
        assert_eq!(killed.code, None, "{death}: {killed}");
        most = most.max(memory);
        args.clone_from(&resume);
    }
    let (ran, memory) = measured(&project, &args, &[]);
    assert_eq!(ran.code, Some(0), "{ran}");
    most = most.max(memory);

    check_settled(&project, RUN);
    let refunds = provider.counters().operations["refund"].clone();
    // Those of the other run come on top, and of both the branch and the second round of the loop.
    let all = (ELEMENTS + FEW + 4) as u64;
    assert_eq!((refunds.effects, refunds.duplicates), (all, 0));
    assert_eq!(refunds.requests_without_key, 0);
    let shown = project.run(RUN);
    let outputs = shown["run"]["nodes"]["each"].as_array().unwrap();
    assert_eq!(outputs.len(), ELEMENTS);
    let mut effects = BTreeSet::new();
    for (number, output) in outputs.iter().enumerate() {
        let note = &output["notes"][0];
        assert_eq!(note["element"], json!(format!("order-{number}")), "in their order");
        effects.insert(note["effect_id"].as_str().unwrap());
    }
    assert_eq!(effects.len(), ELEMENTS);
    println!("{FEW} elements: {memory_of_few} KiB; {ELEMENTS} elements: {most} KiB");
    assert!(most < 3 * memory_of_few, "{most} KiB, of {FEW} elements {memory_of_few} KiB");
}

/// Orders of their own.
fn few() -> Value {
    let text = graph_input(FEW).to_string().replace("\"order-", "\"other-");
    let mut input: Value = serde_json::from_str(&text).unwrap();
    for name in ["side", "draft"] {
        input[name] = json!(format!("other-{name}"));
        input["nodes"][name][0]["args"]["order_id"] = input[name].clone();
    }
    input
}
