//! The refund node in every language: the workflow that people start with, killed and resumed, leaves the same ledger whatever its
//! node is written in; and a new node of each language builds and refunds as it is written.

use serde_json::Value;
use twice_tests::nodes::{compiler_folders, language_component};
use twice_tests::project::{Project, Provider};
use twice_toolchain::Language;

use super::newcomer::share_build;
use super::shop::{REFUND, TWICE, check_resumed_again, check_settled, history, order, shop, start};

const RUN: &str = "run-1";
const ORDER: &str = "order-42";

/// Where the worker dies: behind the first commit, before the provider knows; and when the provider has paid and nobody has noted
/// it.
const DEATHS: [&str; 2] = ["after-requested-commit:1", "after-reply:1"];

#[test]
fn the_refund_node_of_each_language_leaves_the_same_ledger() {
    let expected = DEATHS.map(|death| ledger(Language::Rust, death).expect("Rust is here"));
    for language in Language::ALL {
        for (death, expected) in DEATHS.into_iter().zip(&expected) {
            let Some(found) = ledger(language, death) else { continue };
            let of = || format!("{} killed at {death}", language.word());
            assert_eq!(found.len(), expected.len(), "{}", of());
            for (found, expected) in found.iter().zip(expected) {
                assert_eq!(found, expected, "{}", of());
            }
        }
    }
}

/// What a run left behind that was killed at `death` and resumed twice, but for digests and times; `None` where the language's
/// tools are missing.
fn ledger(language: Language, death: &str) -> Option<Vec<Value>> {
    let folder = match language {
        Language::Rust => "refund".to_owned(),
        other => format!("languages/{}/refund", other.word()),
    };
    let component = language_component(&folder)?;
    let provider = Provider::start();
    let project = shop(&provider);
    project.write("refund.wasm", component);
    project.ok(&["node", "add", "refund", "refund.wasm"]);

    let args = start(REFUND, &order(ORDER), RUN);
    let killed = project.spawn(&args, &[("TWICE_TEST_KILL", death)]).finish();
    assert_eq!(killed.code, None, "{}: {killed}", language.word());
    project.ok(&args);
    check_settled(&project, RUN);
    check_resumed_again(&project, &provider, RUN);
    assert_eq!(provider.counters().effects, 1, "{}", language.word());

    let shown = project.run(RUN);
    assert_eq!(shown["run"]["output"]["status"], "succeeded", "{shown:#}");
    let entries = history(&shown).iter();
    let entries = entries.filter(|entry| !CHANCE.iter().any(|kind| entry["kind"] == *kind));
    Some(entries.map(|entry| but_for_digests(entry, &provider.url())).collect())
}

/// Fields that differ between two runs of the same: when, by whom, and the digests of a component and of what names it.
const VARY: [&str; 11] = [
    "at",
    "worker",
    "definition",
    "component",
    "hash",
    "digest",
    "created",
    "result_hash",
    "not_before",
    "seq",
    "fence",
];
/// How often a run is claimed, parked and looked up is a matter of how busy the machine is.
const CHANCE: [&str; 3] = ["run_claimed", "run_parked", "probed"];

/// What is shown of a run, with what must differ left out. What was asked for, and its hash, stay.
fn but_for_digests(shown: &Value, provider: &str) -> Value {
    match shown {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !VARY.contains(&name.as_str()) && !name.ends_with("_at"))
            .map(|(name, value)| (name.clone(), but_for_digests(value, provider)))
            .collect(),
        Value::Array(elements) => {
            elements.iter().map(|element| but_for_digests(element, provider)).collect()
        }
        Value::String(text) if is_time(text) => Value::from("a time"),
        Value::String(text) => Value::from(text.replace(provider, "provider")),
        other => other.clone(),
    }
}

/// Whether it looks like `2026-11-30T10:00:00.000Z`.
fn is_time(text: &str) -> bool {
    let text = text.as_bytes();
    text.len() >= 20 && text.ends_with(b"Z") && text[4] == b'-' && text[10] == b'T'
}

/// Two slots, one of them for each element of an array, and args that the run's input does not have.
const TWO_SLOTS: &str = r#"
workflow = "two-slots"
version = 1

[[node]]
name = "n"
component = "two-slots"

[[node.effect]]
slot = "full-refund"
tool = "payments.refund"
object = "/input/order"
intent = "full"
allow = "true"

[[node.effect]]
slot = "each"
tool = "payments.refund"
for_each = "/input/orders"
object = "/id"
intent = "part"
allow = "true"
"#;

#[test]
fn a_new_node_builds_whatever_it_is_granted() {
    for language in Language::ALL {
        let project = Project::init(TWICE).with_env("TWICE_TOOLS", &compiler_folders());
        share_build(&project);
        project.write("workflows/two-slots.toml", TWO_SLOTS);
        let word = language.word();
        project.ok(&["node", "new", "two-slots", "--lang", word]);
        let Some(built) = build(&project, "two-slots", word) else { continue };
        assert!(built.contains("built two-slots: sha256:"), "{word}: {built}");
    }
}

/// Builds `nodes/<name>`; `None` where the language's tools are missing: it is said, and in CI a failure.
fn build(project: &Project, name: &str, word: &str) -> Option<String> {
    // In a folder that is not there yet.
    let out = format!("out/{name}.wasm");
    let args = ["node", "build", &format!("nodes/{name}"), "--no-add", "--out", &out];
    let built = project.twice(&args);
    let missing = built.code == Some(1) && built.stderr.contains("cannot be started");
    if missing && std::env::var_os("CI").is_none() {
        eprintln!("LEFT OUT: a new node in {word}: {}", built.stderr);
        return None;
    }
    assert_eq!(built.code, Some(0), "{word}: {built}");
    Some(built.stdout)
}

#[test]
fn a_new_node_of_each_language_builds_and_refunds() {
    for language in Language::ALL {
        let provider = Provider::start();
        let project =
            Project::init(TWICE).at(&provider).with_env("TWICE_TOOLS", &compiler_folders());
        share_build(&project);
        let word = language.word();
        project.ok(&["node", "new", "refund", "--lang", word]);
        if build(&project, "refund", word).is_none() {
            continue;
        }
        let added = project.ok(&["node", "add", "refund", "out/refund.wasm"]);
        assert!(added.contains("registered refund: sha256:"), "{word}: {added}");
        let ran = project.ok(&["run", REFUND, "--input", "input.json", "--run-id", RUN]);
        assert!(ran.contains("run run-1 completed"), "{word}: {ran}");
        check_settled(&project, RUN);

        let inspected = project.json(&["node", "inspect", "refund"]);
        assert_eq!(inspected["world"], "twice:node/node@0.1.0", "{word}");
        let imports = inspected["imports"].as_array().unwrap();
        assert!(
            imports.iter().all(|import| import.as_str().unwrap().starts_with("twice:node/")),
            "{word}: {imports:?}"
        );
        // A language that has no system below it, or our adapter, insists on nothing.
        let engine =
            [Language::Python, Language::JavaScript, Language::TypeScript].contains(&language);
        assert_eq!(
            inspected["wasi"].as_object().unwrap().is_empty(),
            !engine,
            "{word}: {inspected:#}"
        );
    }
}

/// The workspace that `twice init` wrote above all nodes once.
const OLD_WORKSPACE: &str =
    "[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\nexclude = [\"target\"]\n";

#[test]
fn nodes_of_several_languages_lie_side_by_side() {
    let project = Project::init(TWICE).with_env("TWICE_TOOLS", &compiler_folders());
    share_build(&project);
    let nodes = [("in-c", "c"), ("in-rust", "rust")];
    for (name, word) in nodes {
        project.ok(&["node", "new", name, "--lang", word]);
    }
    // The SDK need not be kept with the sources.
    std::fs::remove_dir_all(project.root().join("sdk")).unwrap();
    for (name, word) in nodes {
        let built = build(&project, name, word);
        assert!(word == "c" || built.is_some(), "{name}");
    }
}

#[test]
fn a_workspace_above_all_nodes_takes_in_the_rust_ones_alone() {
    let project = Project::init(TWICE);
    share_build(&project);
    project.write("nodes/Cargo.toml", OLD_WORKSPACE);
    for (name, word) in [("in-rust", "rust"), ("in-c", "c"), ("in-go", "go")] {
        project.ok(&["node", "new", name, "--lang", word]);
    }
    build(&project, "in-rust", "rust").unwrap();
    project.write("nodes/by-hand/main.py", "");
    let ran = project.twice(&["node", "build", "nodes/in-rust", "--no-add"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    let fix = "fix: name the folders of Rust nodes in `members` of the workspace's Cargo.toml";
    assert!(ran.stderr.contains(fix), "{ran}");
}
