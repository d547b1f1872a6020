//! What the architecture page promises about the code, held against the code.

use std::fs;
use std::path::{Path, PathBuf};

use twice_tests::mutations::ALL;
use twice_tests::nodes::repository;

#[test]
fn the_architecture_shows_the_state_machine_as_it_is() {
    let page = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let diagram = twice_core::transition::mermaid();
    assert!(page.contains(diagram.trim()), "put this into ARCHITECTURE.md:\n{diagram}");
}

#[test]
fn the_core_can_reach_nothing() {
    let manifest = fs::read_to_string(repository().join("host/core/Cargo.toml")).unwrap();
    let normal = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    for forbidden in ["tokio", "sqlx", "wasmtime", "reqwest", "twice-", "getrandom", "tracing"] {
        assert!(!normal.contains(forbidden), "twice-core depends on {forbidden}");
    }
}

#[test]
fn each_outside_library_has_one_home() {
    for (library, homes) in [
        ("sqlx", &["host/ledger/", "host/provider-sim/"][..]),
        ("wasmtime", &["host/sandbox/"][..]),
        ("reqwest", &["host/src/tool/", "host/src/cli/demo/"][..]),
        ("hmac", &["host/core/src/webhook/", "host/sandbox/src/cache.rs"][..]),
        ("clap", &["host/src/cli/", "host/provider-sim/src/"][..]),
    ] {
        let needle = format!("{library}::");
        for file in product_sources() {
            let path = relative(&file);
            if homes.iter().any(|home| path.starts_with(home)) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let used = text.lines().find(|line| {
                let code = line.split("//").next().unwrap_or_default();
                code.contains(&needle)
            });
            assert!(used.is_none(), "{path} uses {library}: {}", used.unwrap_or_default());
        }
    }
}

#[test]
fn no_file_has_grown_past_holding_in_the_head() {
    for file in product_sources() {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 800, "{} has {lines} lines; split it by subject", relative(&file));
    }
}

#[test]
fn migrations_of_all_databases_have_equal_names() {
    let names = |database: &str| -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(repository().join("migrations").join(database))
            .map(|dir| {
                dir.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
            })
            .unwrap_or_default();
        names.sort();
        names
    };
    let sqlite = names("sqlite");
    assert!(!sqlite.is_empty());
    let postgres = names("postgres");
    assert_eq!(postgres, sqlite);
}

#[test]
fn each_rule_that_can_be_broken_has_one_place_and_is_documented() {
    let mut asked = Vec::new();
    for file in product_sources() {
        let text = fs::read_to_string(&file).unwrap();
        let names = text.split("mutation::is(\"").skip(1);
        asked.extend(names.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    asked.sort();
    let mut listed: Vec<&str> = ALL.iter().map(|mutation| mutation.name).collect();
    listed.sort_unstable();
    assert_eq!(asked, listed, "places in the product, and the list of mutations");
    let page = fs::read_to_string(repository().join("docs/testing.md")).unwrap();
    for name in listed {
        assert!(page.contains(&format!("| `{name}` |")), "docs/testing.md lacks a row for {name}");
    }
}

#[test]
fn each_test_that_is_named_as_proof_is_there() {
    let page = fs::read_to_string(repository().join("docs/testing.md")).unwrap();
    let named: Vec<(&str, &str)> =
        page.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::")).collect();
    assert!(named.len() > 10, "only {} tests are named", named.len());
    for (file, test) in named {
        let path = repository().join(format!("{file}.rs"));
        let text = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{file}.rs is not there"));
        let is_test = text.split("#[test").chain(text.split("#[tokio::test")).skip(1).any(|rest| {
            let head: String = rest.lines().take(4).collect();
            head.contains(&format!("fn {test}("))
        });
        assert!(is_test, "{file}.rs has no test {test}");
    }
}

fn product_sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(&repository().join("host"), &mut files);
    assert!(files.len() > 50, "only {} source files were found", files.len());
    files
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(name.as_str(), "tests" | "target" | "examples") {
            collect(&path, files);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

fn relative(file: &Path) -> String {
    file.strip_prefix(repository()).unwrap_or(file).display().to_string()
}
