//! The refund node in every language: the workflow that people start with, killed and resumed, leaves the same ledger whatever its
//! node is written in; and a new node of each language builds and refunds as it is written.

use serde_json::Value;
use twice_tests::nodes::{compiler_folders, language_component};
use twice_tests::project::{Project, Provider};
use twice_toolchain::Language;

use super::newcomer::share_build;
use super::shop::{REFUND, TWICE, check_resumed_again, check_settled, order, shop, start};

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
            assert_eq!(found, *expected, "{} killed at {death}", language.word());
        }
    }
}

/// What a run left behind that was killed at `death` and resumed twice, but for digests and times; `None` where the language's
/// tools are missing.
fn ledger(language: Language, death: &str) -> Option<Value> {
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
    assert_eq!(shown["run"]["output"]["refund"]["status"], "succeeded", "{shown:#}");
    Some(but_for_digests(&shown))
}

/// Digests differ with the component, and times with the day.
fn but_for_digests(shown: &Value) -> Value {
    match shown {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| {
                !["hash", "prev_hash", "digest", "chain_head"].contains(&name.as_str())
                    && !name.ends_with("_at")
                    && !name.ends_with("_ms")
            });
            kept.map(|(name, value)| (name.clone(), but_for_digests(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(but_for_digests).collect(),
        Value::String(text) if text.starts_with("sha256:") => Value::from("a digest"),
        Value::String(text) if is_time(text) => Value::from("a time"),
        other => other.clone(),
    }
}

/// Whether it looks like `2026-11-30T10:00:00.000Z`.
fn is_time(text: &str) -> bool {
    text.len() >= 20
        && text.ends_with('Z')
        && text.as_bytes()[4] == b'-'
        && text.as_bytes()[10] == b'T'
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
        let built = project.twice(&["node", "build", "nodes/refund"]);
        let missing = built.code == Some(1) && built.stderr.contains("cannot be started");
        if missing && std::env::var_os("CI").is_none() {
            eprintln!("LEFT OUT: a new node in {word}: {}", built.stderr);
            continue;
        }
        assert!(built.stdout.contains("registered refund: sha256:"), "{word}: {built}");
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
