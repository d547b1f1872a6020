//! The tests that must notice when a rule is broken, and the check that they do: it runs them in processes of their own,
//! with one rule broken in each. In this process nothing is broken, and they pass.

use std::sync::Mutex;

use twice_tests::mutations::{ALL, look};
use twice_tests::project::for_each;
use twice_tests::world::{alone, crashes, row_count, saga_schedules, schedule, sweep};

const AT_A_TIME: usize = 2;

#[test]
fn simulation() {
    let schedules = std::env::var("SCHEDULES").ok().map(|number| number.parse().unwrap());
    if let Err(broken) = alone(schedule::play_all(None, schedules, 1_000_000)) {
        panic!("{broken}");
    }
}

#[test]
fn store_sweep() {
    if let Err(broken) = alone(sweep::sweep()) {
        panic!("{broken}");
    }
}

#[test]
fn row_count() {
    if let Err(broken) = alone(row_count::row_count()) {
        panic!("{broken}");
    }
}

#[test]
fn sagas() {
    if let Err(broken) = alone(saga_schedules::play_all(None, None, 1_000_000)) {
        panic!("{broken}");
    }
}

#[test]
fn crash_sweep() {
    if let Err(broken) = alone(crashes::sweep()) {
        panic!("{broken}");
    }
}

#[test]
fn each_broken_rule_is_noticed() {
    let jobs: Vec<(String, _)> = ALL
        .iter()
        .flat_map(|mutation| mutation.found_by.iter().map(|by| (mutation.name, *by)))
        .map(|(name, by)| (format!("{name}, {}", by.0), (name, by)))
        .collect();
    let found = Mutex::new(Vec::new());
    for_each(jobs, AT_A_TIME, |(name, (by, allowed))| match look(name, by, allowed) {
        Ok(finding) => found.lock().unwrap().push(finding),
        Err(problem) => panic!("{problem}"),
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|finding| ALL.iter().position(|mutation| mutation.name == finding.mutation));
    for finding in found {
        println!("{finding}");
    }
}
