//! The example project as a map of files, to be bent in tests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use twice_workflow::files::{DiskFiles, Files};

/// Files by path.
pub(crate) type Map = BTreeMap<String, String>;

pub(crate) fn example_on_disk() -> DiskFiles {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../nodes/example-project");
    DiskFiles { root }
}

/// The example project in memory.
pub(crate) fn example() -> Map {
    let disk = example_on_disk();
    let mut files = Map::new();
    files.insert(
        "twice.toml".to_owned(),
        disk.read("twice.toml").expect("it is part of the example"),
    );
    for dir in ["workflows", "tools", "schemas"] {
        for name in disk.list(dir).expect("the example can be listed") {
            let path = format!("{dir}/{name}");
            let text = disk.read(&path).expect("it was listed");
            files.insert(path, text);
        }
    }
    files
}

/// Replaces `from`, which must occur exactly once, in a file; an empty `from` adds text at the end (of a new file, if
/// there is none).
#[track_caller]
pub(crate) fn edit(files: &mut Map, path: &str, from: &str, to: &str) {
    let text = files.entry(path.to_owned()).or_default();
    if from.is_empty() {
        text.push_str(to);
        return;
    }
    assert_eq!(text.matches(from).count(), 1, "`{from}` in {path}");
    *text = text.replace(from, to);
}
