//! The reference pages name every key that the reader knows, and every code.

use std::collections::BTreeSet;
use std::path::PathBuf;

use twice_workflow::Project;
use twice_workflow::diagnostic::Code;

use crate::support::{edit, example};

const T: &str = "twice.toml";
const W: &str = "workflows/damaged-item-refund.toml";
const P: &str = "tools/payments.toml";

/// Every table of the files, each with a key in it that nothing knows.
const TABLES: [(&str, &str, &str); 29] = [
    (T, "project = ", "zzzzzzzzz = 1\nproject = "),
    (T, "", "\n[database]\nzzzzzzzzz = 1\n"),
    (T, "", "zzzzzzzzz = 1\n"),
    (W, "version = 1", "version = 1\nzzzzzzzzz = 1"),
    (W, "component = \"refund\"", "component = \"refund\"\nzzzzzzzzz = 1"),
    (W, "effects = 10", "effects = 10, zzzzzzzzz = 1"),
    (W, "component = \"refund\"", "component = \"refund\"\nretry = { zzzzzzzzz = 1 }"),
    (W, "component = \"refund\"", "component = \"refund\"\nloop = { zzzzzzzzz = 1 }"),
    (W, "version = 1", "version = 1\nsaga = { zzzzzzzzz = 1 }"),
    (W, "slot = \"refund\"", "slot = \"refund\"\nzzzzzzzzz = 1"),
    (W, "slot = \"refund\"", "slot = \"refund\"\ncompensate = { zzzzzzzzz = 1 }"),
    (W, "slot = \"refund\"", "slot = \"refund\"\ncompensate = { retry = { zzzzzzzzz = 1 } }"),
    (W, "slot = \"refund\"", "slot = \"refund\"\nlock = { zzzzzzzzz = 1 }"),
    (W, "refund-request.json\"", "refund-request.json\", zzzzzzzzz = 1"),
    (P, "kind = \"http\"", "kind = \"http\"\nzzzzzzzzz = 1"),
    (P, "kind = \"http\"", "kind = \"http\"\nrate = { zzzzzzzzz = 1 }"),
    (P, "connect_timeout =", "zzzzzzzzz = 1\nconnect_timeout ="),
    (P, "refund-args.json\"", "refund-args.json\", zzzzzzzzz = 1"),
    (P, "max = \"30s\"", "max = \"30s\", zzzzzzzzz = 1"),
    (P, "method = \"POST\"", "method = \"POST\"\nzzzzzzzzz = 1"),
    (P, "format = \"uuid\"", "format = \"uuid\"\nzzzzzzzzz = 1"),
    (P, "by = \"reference\"", "by = \"reference\"\nzzzzzzzzz = 1"),
    (P, "consistency = \"strong\"", "consistency = { lag = \"30s\", zzzzzzzzz = 1 }"),
    (P, "expose = [", "zzzzzzzzz = 1\nexpose = ["),
    (P, "{ status = 402 }", "{ status = 402, zzzzzzzzz = 1 }"),
    (P, "schema = \"schemas/refund.json\"", "schema = { inline = {}, zzzzzzzzz = 1 }"),
    (P, "[operation.refund]", "[webhook]\nzzzzzzzzz = 1\n[operation.refund]"),
    (P, "[operation.refund]", "[webhook]\nscheme = { zzzzzzzzz = 1 }\n[operation.refund]"),
    (P, "", "[operation.refund.webhook]\nzzzzzzzzz = 1\n"),
];

fn page(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The keys that a table with an unknown one is said to know.
#[track_caller]
fn known((file, from, to): (&str, &str, &str)) -> BTreeSet<String> {
    let mut files = example();
    edit(&mut files, file, from, to);
    let found = Project::load(&files).expect_err("an unknown key is an error");
    let unknown = found.iter().find(|d| d.code == Code::UnknownKey);
    let fix = &unknown.unwrap_or_else(|| panic!("{to}: {found:?}")).fix;
    let (_, keys) = fix.split_once(" knows: ").unwrap_or_else(|| panic!("{fix}"));
    keys.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

#[test]
fn names_every_key() {
    let (workflows, tools) = (page("workflows.md"), page("tools.md"));
    let mut all = BTreeSet::new();
    for table in TABLES {
        let (name, page) =
            if table.0 == P { ("tools.md", &tools) } else { ("workflows.md", &workflows) };
        for key in known(table) {
            let named = page.contains(&format!("`{key}`")) || page.contains(&format!("{key} = "));
            assert!(named, "docs/{name} does not name `{key}`");
            all.insert(key);
        }
    }
    assert!(all.len() > 60, "only {} keys are known: {all:?}", all.len());
}

#[test]
fn explains_every_code() {
    let page = page("errors.md");
    for code in Code::ALL {
        let row = format!("| `{code}` | {} |", code.severity().as_str());
        assert_eq!(page.matches(&row).count(), 1, "docs/errors.md has no row `{row}`");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `TW")).count();
    assert_eq!(rows, Code::ALL.len(), "docs/errors.md explains a code that does not exist");
}
