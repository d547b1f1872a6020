//! The benchmark measures what it says it does; how fast anything is, is not a matter for tests.

use std::process::Command;

use serde_json::Value;
use twice_tests::bench::Store;

/// Three shapes on a file at two concurrencies; on a server, where there is one, one shape with one worker at both and with two
/// workers at the higher one.
fn cases() -> usize {
    if Store::all().contains(&Store::Postgres) { 9 } else { 6 }
}

fn bench(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bench")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn check_positive(value: &Value, pointers: &[&str]) {
    for pointer in pointers {
        let number = value.pointer(pointer).and_then(Value::as_f64);
        assert!(number.is_some_and(|number| number > 0.0), "{pointer} of {value}");
    }
}

#[track_caller]
fn check_commits_alone(cases: &[Value], shape: &str, expected: f64) {
    let alone = |case: &&Value| case["shape"] == shape && case["concurrent_runs"] == 1;
    assert!(cases.iter().any(|case| alone(&case)), "{shape}");
    for case in cases.iter().filter(alone) {
        let commits = case["commits_per_effect"].as_f64().unwrap();
        assert!((commits - expected).abs() < 1e-9, "{case}: {commits} commits per effect");
    }
}

#[test]
fn every_language_is_measured() {
    let costs: Value = serde_json::from_str(&bench(&["--languages", "--quick", "--json"])).unwrap();
    let costs = costs.as_array().unwrap();
    // Where a compiler is missing it is said, and in CI a failure.
    assert!(costs.iter().any(|cost| cost["language"] == "rust"), "{costs:?}");
    for cost in costs {
        check_positive(
            cost,
            &["/component_bytes", "/compile_ms", "/cache_bytes", "/cold_ms", "/warm_us"],
        );
    }
}

#[test]
fn every_field_is_measured() {
    let report: Value = serde_json::from_str(&bench(&["--quick", "--json"])).unwrap();
    check_positive(
        &report,
        &[
            "/processors",
            "/call/median_us",
            "/call/p99_us",
            "/single_commit/per_second",
            "/single_commit/median_us",
            "/single_commit/p99_us",
            "/memory/active_runs",
            "/memory/parked_runs",
        ],
    );
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), self::cases());
    for case in cases {
        check_positive(
            case,
            &[
                "/runs",
                "/effects_per_second",
                "/steps_per_second",
                "/commits_per_effect",
                "/bytes_per_effect",
                "/run_p50_ms",
                "/run_p99_ms",
                "/limit/effects_per_second",
                "/limit/body_bytes_per_effect",
                "/ratio_to_limit",
            ],
        );
        // Proposed, authorized, requested and confirmed; what is about the run comes on top.
        assert!(case["entries_per_effect"].as_f64().unwrap() > 4.0, "{case}");
    }
    // One commit starts a run, one holds each request together with the answer before it, one ends the run.
    check_commits_alone(cases, "one-step-32-effects", 34.0 / 32.0);
    check_commits_alone(cases, "eight-steps-8-effects", 10.0 / 8.0);
    check_commits_alone(cases, "one-step-1-effect", 3.0);
}

#[test]
fn the_table_has_a_line_for_each_case() {
    let table = bench(&["--quick"]);
    let heading = table.lines().find(|line| line.starts_with("database ")).unwrap();
    for word in ["effects/s", "steps/s", "commits/effect", "bytes/effect", "p99 ms", "of limit"] {
        assert!(heading.contains(word), "{word}");
    }
    assert_eq!(table.lines().filter(|line| line.contains("-step")).count(), cases(), "{table}");
}

#[test]
fn the_cost_is_taken_as_the_ledger_grows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("growth.svg");
    let picture = file.to_str().unwrap();
    let table = bench(&["--on", "sqlite", "--growth", "1000", "--picture", picture]);
    let line: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(line[..2], ["sqlite", "992"], "{table}");
    assert!(line[2].parse::<f64>().unwrap() > 0.0, "{table}");
    let drawn = std::fs::read_to_string(&file).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n"), "{drawn}");
    assert_eq!(drawn.matches("<circle").count(), 1, "{drawn}");
}
