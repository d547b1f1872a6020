//! Which language a folder is in.

use twice_toolchain::{BuildError, Language};

#[test]
fn each_language_is_known_by_its_main_file() {
    for language in Language::ALL {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(language.main_file()), "").unwrap();
        assert_eq!(Language::of(dir.path()).unwrap(), language);
    }
}

#[test]
fn a_folder_without_a_node_and_one_with_two_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let error = Language::of(dir.path()).unwrap_err();
    assert!(matches!(error, BuildError::NoSource { .. }));
    for language in Language::ALL {
        assert!(error.to_string().contains(language.main_file()), "{error}");
    }
    for file in ["main.c", "main.py"] {
        std::fs::write(dir.path().join(file), "").unwrap();
    }
    let error = Language::of(dir.path()).unwrap_err().to_string();
    assert!(error.contains("main.py, main.c"), "{error}");
}
