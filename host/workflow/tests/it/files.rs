//! Files on disk and in memory, and how reading them fails.

use std::fs;

use expect_test::{Expect, expect};
use twice_core::limits::FILE_BYTES_MAX;
use twice_workflow::Project;
use twice_workflow::files::{DiskFiles, FileError, Files};

use crate::support::Map;

#[track_caller]
fn check(files: &dyn Files, path: &str, expect: Expect) {
    let answer = files.read(path).map_err(|error| error.to_string());
    expect.assert_eq(&answer.unwrap_or_else(|error| format!("refused: {error}")));
}

#[test]
fn reads_text_within_the_project_only() {
    let folder = tempfile::tempdir().unwrap();
    let files = DiskFiles { root: folder.path().join("project") };
    fs::create_dir_all(files.root.join("tools/deeper")).unwrap();
    fs::write(folder.path().join("outside.toml"), "outside").unwrap();
    fs::write(files.root.join("tools/b.toml"), "b").unwrap();
    fs::write(files.root.join("tools/a.toml"), "a").unwrap();
    fs::write(files.root.join("tools/latin.toml"), [0xe9]).unwrap();
    let limit = usize::try_from(FILE_BYTES_MAX).unwrap();
    fs::write(files.root.join("tools/full.toml"), vec![b'#'; limit]).unwrap();
    fs::write(files.root.join("tools/over.toml"), vec![b'#'; limit + 1]).unwrap();

    check(&files, "tools/a.toml", expect!["a"]);
    check(&files, "tools/c.toml", expect!["refused: there is no file `tools/c.toml`"]);
    check(&files, "tools/latin.toml", expect!["refused: `tools/latin.toml` is not UTF-8 text"]);
    check(
        &files,
        "tools/over.toml",
        expect!["refused: `tools/over.toml` is larger than 1048576 bytes"],
    );
    check(
        &files,
        "../outside.toml",
        expect!["refused: `../outside.toml` is not a path within the project"],
    );
    check(
        &files,
        "/etc/hostname",
        expect!["refused: `/etc/hostname` is not a path within the project"],
    );
    check(
        &files,
        "tools//a.toml",
        expect!["refused: `tools//a.toml` is not a path within the project"],
    );
    assert_eq!(files.read("tools/full.toml").map(|text| text.len()), Ok(limit));
    assert!(matches!(files.read("tools"), Err(FileError::System { .. })));

    let names = ["a.toml", "b.toml", "full.toml", "latin.toml", "over.toml"];
    assert_eq!(files.list("tools"), Ok(names.map(str::to_owned).to_vec()));
    assert_eq!(files.list("workflows"), Ok(Vec::new()));
    assert!(matches!(files.list(".."), Err(FileError::Outside { .. })));
}

#[test]
fn a_folder_without_a_project_file_is_no_project() {
    let found = Project::load(&Map::new()).unwrap_err();
    let text: Vec<String> = found.iter().map(ToString::to_string).collect();
    expect![[r#"
        twice.toml:1:1: error[TW2007]: there is no file `twice.toml`
          why: a project is checked as a whole, or not at all
          fix: create it with `project = "name"`, or give the project's folder"#]]
    .assert_eq(&text.join("\n"));
}

#[test]
fn files_in_memory_keep_to_the_same_limits() {
    let limit = usize::try_from(FILE_BYTES_MAX).unwrap();
    let mut files = Map::new();
    files.insert("tools/a.toml".to_owned(), "#".repeat(limit + 1));
    files.insert("tools/deeper/b.toml".to_owned(), String::new());
    check(&files, "tools/a.toml", expect!["refused: `tools/a.toml` is larger than 1048576 bytes"]);
    assert_eq!(files.list("tools"), Ok(vec!["a.toml".to_owned()]));
}
