//! Runs that are over are exported and removed: nothing is lost, whatever happens, and nothing is run again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twice_test_postgres::Cluster;
use twice_tests::dice::Dice;
use twice_tests::project::{Project, Provider, Ran, for_each};

use super::shop::{REFUND, SCRIPTED, TWICE, order, script, shop, shop_in, start, start_with};

/// Longest wait for what nothing announces.
const PATIENCE: Duration = Duration::from_secs(60);
const NOW: [&str; 4] = ["runs", "prune", "--older-than", "0s"];

fn prune(project: &Project, more: &[&str]) -> Ran {
    project.twice(&[&NOW[..], &["--export", "exports"], more].concat())
}

fn complete(project: &Project, runs: usize) -> Vec<String> {
    let ids: Vec<String> = (0..runs).map(|number| format!("run-{number}")).collect();
    let jobs = ids.iter().cloned().map(|run| (run.clone(), run)).collect();
    for_each(jobs, 3, |run: String| {
        let key = format!("key-{run}");
        project.ok(&start_with(REFUND, &order(&run), &run, &["--key", &key]));
    });
    ids
}

fn export_of(project: &Project, run: &str) -> PathBuf {
    project.root().join("exports").join(format!("{run}.jsonl"))
}

/// The run is gone, its tombstone says where to, and what it says of its export is so.
#[track_caller]
fn check_gone(project: &Project, run: &str) {
    let shown = project.run(run);
    let gone = &shown["pruned"];
    assert_eq!(gone["state"], "completed", "{shown:#}");
    let file = export_of(project, run);
    let there = file.canonicalize().unwrap();
    assert_eq!(gone["export"].as_str().map(Path::new), Some(there.as_path()), "{shown:#}");
    let digest = gone["export_digest"].as_str().unwrap();
    let file = file.to_str().unwrap();
    let verified = project.json(&["runs", "verify-export", file, "--digest", digest]);
    assert_eq!(verified["run_id"], run);
    for part in ["entries", "head"] {
        assert_eq!(verified[part], gone[part], "{run}");
    }
}

fn exported_and_removed(project: &Project, provider: &Provider) {
    let runs = complete(project, 3);
    project.ok(&start_with(REFUND, &order("run-9"), "run-9", &["--detach"]));
    let before: Vec<Value> = runs.iter().map(|run| project.run(run)).collect();

    let none = project.json(&["runs", "prune", "--older-than", "30d", "--export", "exports"]);
    assert_eq!(none, json!({ "dry_run": false, "pruned": [], "kept": [] }));
    let failed = prune(project, &["--state", "failed", "--json"]).json();
    assert_eq!(failed["pruned"], json!([]));
    let planned = prune(project, &["--dry-run", "--json"]).json();
    assert_eq!(planned["pruned"].as_array().map(Vec::len), Some(3), "{planned:#}");
    assert!(!export_of(project, "run-0").exists(), "a dry run wrote");
    assert_eq!(project.run("run-0"), before[0], "a dry run removed");

    let pruned = prune(project, &["--by", "grace"]);
    assert_eq!(pruned.code, Some(0), "{pruned}");
    assert!(pruned.stdout.contains("3 run(s) exported to exports and removed, 0 kept"), "{pruned}");
    for (run, before) in runs.iter().zip(&before) {
        check_gone(project, run);
        // Every entry is in the export as it was.
        let text = std::fs::read_to_string(export_of(project, run)).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["input"], before["run"]["input"]);
        assert_eq!(lines[0]["output"], before["run"]["output"]);
        assert_eq!(lines[0]["definition"], before["run"]["definition"]);
        let history = before["history"].as_array().unwrap();
        assert_eq!(lines.len(), history.len() + 2, "{run}");
        for (line, entry) in lines[1..].iter().zip(history) {
            let body: Value = serde_json::from_str(line["body"].as_str().unwrap()).unwrap();
            assert_eq!((&body, &line["hash"]), (&entry["body"], &entry["hash"]), "{run}");
        }
    }
    let words = project.ok(&["runs", "show", "run-0"]);
    for part in ["completed, exported and removed", "by grace", "run-0.jsonl"] {
        assert!(words.contains(part), "{words}");
    }
    // Started again by id or key, it is found and not run.
    let again =
        project.twice(&start_with(REFUND, &order("run-0"), "run-0", &["--key", "key-run-0"]));
    assert_eq!(again.code, Some(1), "{again}");
    assert!(again.stderr.contains("it is not run again"), "{again}");
    let input = order("run-1").to_string();
    let by_key = project.twice(&["run", REFUND, "--input", &input, "--key", "key-run-1"]);
    assert!(by_key.stderr.contains("run `run-1` completed and was removed"), "{by_key}");
    let resumed = project.twice(&["runs", "resume", "run-0"]);
    assert!(resumed.stderr.contains("was removed from the ledger"), "{resumed}");
    assert_eq!(provider.requests("refund"), 3);
    // What was not over is there, and goes on.
    let ran = project.spawn(&["worker", "--until-idle"], &[]).finish();
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(project.run("run-9")["run"]["state"], "completed");
    let listed = project.json(&["runs", "list"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed:#}");
}

#[test]
fn runs_that_are_over_are_exported_and_removed_from_a_file() {
    let provider = Provider::start();
    let project = shop(&provider);
    exported_and_removed(&project, &provider);
}

#[test]
fn runs_that_are_over_are_exported_and_removed_from_a_server() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let provider = Provider::start();
    let database = Cluster::shared().database();
    let project = Project::init(TWICE).at(&provider);
    let project = shop_in(project.with_env("TWICE_DATABASE_URL", &database.url()));
    exported_and_removed(&project, &provider);
}

#[test]
fn a_run_whose_effect_others_may_adopt_is_kept() {
    let provider = Provider::start();
    let project = shop(&provider);
    let slot = "intent = \"full-damaged-item\"";
    project.edit("workflows/scripted.toml", slot, &format!("{slot}\nscope = \"object\""));
    let step = json!([super::shop::refund_step("order-1", 100)]);
    project.ok(&start(SCRIPTED, &script("order-1", &step), "run-1"));
    let before = project.run("run-1");
    let pruned = prune(&project, &["--json"]).json();
    assert_eq!(pruned["pruned"], json!([]), "{pruned:#}");
    assert_eq!(pruned["kept"][0]["run_id"], "run-1", "{pruned:#}");
    let why = pruned["kept"][0]["reason"].as_str().unwrap();
    assert!(why.contains("scope = \"object\""), "{why}");
    assert_eq!(project.run("run-1"), before);
    assert!(!export_of(&project, "run-1").exists());
}

fn exports(project: &Project) -> usize {
    let Ok(folder) = std::fs::read_dir(project.root().join("exports")) else { return 0 };
    folder
        .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == "jsonl"))
        .count()
}

/// Kills after as many exports as a seed draws, and once more to the end.
#[test]
fn a_removal_that_is_killed_anywhere_goes_on() {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("seed={seed}");
    let mut dice = Dice::new(seed);
    let provider = Provider::start();
    let project = shop(&provider);
    let runs = complete(&project, 24);
    let (mut killed, mut between) = (0, 0);
    for _ in 0..12 {
        let args = [&NOW[..], &["--export", "exports"]].concat();
        let working = project.spawn(&args, &[]);
        let (deadline, before) = (Instant::now() + PATIENCE, exports(&project));
        let enough = (before + usize::try_from(dice.below(4)).unwrap()).min(runs.len());
        while exports(&project) < enough {
            assert!(Instant::now() < deadline, "seed={seed}: no export is made");
            std::thread::sleep(Duration::from_millis(1));
        }
        killed += usize::from(working.kill());
        let listed = project.json(&["runs", "list"]);
        let left: Vec<&str> =
            listed.as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap()).collect();
        for run in &runs {
            // It is in the ledger or in its export, whole.
            if left.contains(&run.as_str()) {
                assert_eq!(project.run(run)["chain"], "holds", "seed={seed} {run}");
                between += usize::from(export_of(&project, run).exists());
            } else {
                check_gone(&project, run);
            }
        }
        if left.is_empty() {
            break;
        }
    }
    assert!(killed > 0, "seed={seed}: none was killed");
    println!("{killed} killed, {between} times between export and removal");
    let last = prune(&project, &[]);
    assert_eq!(last.code, Some(0), "{last}");
    for run in &runs {
        check_gone(&project, run);
    }
}

/// An export that is there, with its run still in the ledger, is what a crash between the two leaves.
#[test]
fn an_export_that_was_left_behind_is_made_anew() {
    let provider = Provider::start();
    let project = shop(&provider);
    complete(&project, 1);
    for left in ["", "{\"format\":\"twice-run-export/1\""] {
        project.write("exports/run-0.unfinished", left);
    }
    let pruned = prune(&project, &[]);
    assert_eq!(pruned.code, Some(0), "{pruned}");
    check_gone(&project, "run-0");
    assert!(!project.root().join("exports/run-0.unfinished").exists());
}

#[test]
fn what_is_no_export_of_the_run_is_left_alone() {
    let provider = Provider::start();
    let project = shop(&provider);
    let runs = complete(&project, 3);
    std::fs::create_dir_all(export_of(&project, "run-1")).unwrap();
    let mine = project.root().join("mine");
    std::fs::write(&mine, "mine").unwrap();
    let link = export_of(&project, "run-2").with_extension("unfinished");
    std::os::unix::fs::symlink(&mine, link).unwrap();
    let ran = prune(&project, &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(ran.json()["kept"].as_array().map(Vec::len), Some(1), "{ran}");
    assert_eq!(ran.json()["kept"][0]["run_id"], "run-1", "{ran}");
    check_gone(&project, "run-0");
    check_gone(&project, "run-2");
    assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");

    // Another ledger has runs of the same names.
    let export = export_of(&project, "run-0");
    let before = std::fs::read(&export).unwrap();
    let other = shop(&provider);
    other.ok(&start_with(REFUND, &order("run-9"), &runs[0], &[]));
    let folder = export.parent().unwrap().to_str().unwrap();
    let ran = other.twice(&[&NOW[..], &["--export", folder, "--json"]].concat());
    assert_eq!(ran.code, Some(0), "{ran}");
    assert_eq!(ran.json()["pruned"], json!([]), "{ran}");
    assert_eq!(std::fs::read(&export).unwrap(), before, "another run's export was replaced");
}

#[test]
fn an_export_that_was_changed_does_not_hold() {
    let provider = Provider::start();
    let project = shop(&provider);
    complete(&project, 1);
    prune(&project, &[]);
    let file = export_of(&project, "run-0");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len() - 1;
    let without = |line: usize| {
        let mut lines = lines.clone();
        lines.remove(line);
        lines
    };
    let swapped = |a: usize, b: usize| {
        let mut lines = lines.clone();
        lines.swap(a, b);
        lines
    };
    let changed = |line: usize, from: &str, to: &str| {
        assert!(lines[line].contains(from), "{}", lines[line]);
        lines
            .iter()
            .enumerate()
            .map(
                |(n, text)| {
                    if n == line { text.replacen(from, to, 1) } else { (*text).to_owned() }
                },
            )
            .collect::<Vec<_>>()
    };
    let owned = |lines: Vec<&str>| lines.into_iter().map(str::to_owned).collect::<Vec<_>>();
    for (lines, words) in [
        (changed(3, "\"fence\":1", "\"fence\":2"), "was changed after it was written"),
        (changed(1, "order_id", "order-id"), "was changed after it was written"),
        (changed(0, "1200", "9900"), "do not have this digest"),
        (changed(0, "\"head_seq\":", "\"head_seq\":1"), "do not have this digest"),
        (owned(without(0)), "line 1"),
        (owned(without(2)), "stands where entry 2 belongs"),
        (owned(without(last - 1)), "do not have this digest"),
        (owned(without(last)), "ends before its last line"),
        (owned(swapped(2, 3)), "stands where entry 2 belongs"),
        (owned(swapped(0, 1)), "line 1"),
        (owned([lines.clone(), vec![lines[1]]].concat()), "something follows the last line"),
    ] {
        project.write("changed.jsonl", lines.join("\n") + "\n");
        let refused = project.twice(&["runs", "verify-export", "changed.jsonl"]);
        assert_eq!(refused.code, Some(1), "{words}: {refused}");
        assert!(refused.stderr.contains(words), "{words}: {refused}");
    }
    // One that holds by itself and is another run's, or an earlier one's, has another digest.
    let path = file.to_str().unwrap();
    let other = project.twice(&["runs", "verify-export", path, "--digest", "sha256:other"]);
    assert!(other.stderr.contains("its digest is sha256:"), "{other}");
    let cut = &text.as_bytes()[..text.len() - 1];
    project.write("changed.jsonl", cut);
    let refused = project.twice(&["runs", "verify-export", "changed.jsonl"]);
    assert!(refused.stderr.contains("cut off"), "{refused}");
}
