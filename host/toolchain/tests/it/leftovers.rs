//! What an earlier build left is not taken for the work of this one.

use std::os::unix::fs::PermissionsExt as _;

use twice_toolchain::{BuildError, build};

#[test]
fn a_tool_that_ends_well_and_writes_nothing_has_built_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A compiler of the node's own, which is found before any other that is installed.
    let tools = dir.path().join("node_modules/.bin");
    let old = dir.path().join("target/twice/node.wasm");
    for folder in [&tools, old.parent().unwrap()] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(dir.path().join("main.py"), "").unwrap();
    std::fs::write(&old, b"\0asm").unwrap();
    let tool = tools.join("componentize-py");
    std::fs::write(&tool, "#!/bin/sh\nexit 0\n").unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Where compilers are looked for first, there is a real one in a full set-up: it refuses this node in its own words.
    let error = build(dir.path(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, BuildError::NoArtifact { .. } | BuildError::Failed { .. }), "{error}");
    assert!(!old.exists());
}

#[test]
fn builds_of_one_node_at_a_time_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = "[workspace]\n[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n";
    let wit = "package shop:x;\nworld x { include twice:node/node@0.1.0; }\n";
    for (path, text) in [("Cargo.toml", manifest), ("src/lib.rs", ""), ("wit/world.wit", wit)] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    // Each gets as far as its own refusal: a module that exports nothing is no node.
    let build = || build(dir.path(), &mut |_| {}).unwrap_err();
    std::thread::scope(|scope| {
        let builds: Vec<_> = (0..4).map(|_| scope.spawn(build)).collect();
        for built in builds {
            let error = built.join().unwrap();
            assert!(matches!(error, BuildError::Refused { .. }), "{error}");
        }
    });
}
