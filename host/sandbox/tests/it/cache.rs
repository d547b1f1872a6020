//! Compiled code on disk: used when it can be trusted, and only then.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use twice_sandbox::{Component, Inspection, Sandbox, SandboxConfig, SandboxError};

use crate::support::{FakeHost, Reply, block_on, built, limits, plan, returned};

struct Place {
    dir: TempDir,
    node: Vec<u8>,
}

impl Place {
    /// A cache that holds the conformance node.
    fn filled() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap(), node: built("conformance") };
        assert!(place.compiles(), "a new cache is empty");
        place
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    /// A new process, in effect.
    fn load(&self, bytes: &[u8]) -> (Sandbox, Component) {
        let config = SandboxConfig {
            cache_dir: Some(self.path()),
            instances_max: 2,
            ..SandboxConfig::default()
        };
        let sandbox = Sandbox::new(&config).unwrap();
        let component = sandbox.load(bytes).unwrap();
        (sandbox, component)
    }

    /// Loads the node, and says whether it had to be compiled. It runs in any case.
    fn compiles(&self) -> bool {
        let (sandbox, component) = self.load(&self.node);
        let host = Box::new(FakeHost::new(Reply::Echo));
        let input = plan(&json!([{ "do": "now" }]));
        let (ended, _) = block_on(sandbox.run(&component, &input, limits(), host));
        returned(&ended);
        component.inspection().compiled_in.is_some()
    }

    fn entries(&self) -> Vec<PathBuf> {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.retain(|path| path.extension().is_some_and(|extension| extension == "cwasm"));
        entries
    }

    fn key(&self) -> PathBuf {
        self.path().join("key")
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn compiled_code_is_reused_and_private() {
    let place = Place::filled();
    assert!(!place.compiles());
    assert_eq!(place.entries().len(), 1);
    assert_eq!(mode(&place.path()), 0o700);
    assert_eq!(mode(&place.key()), 0o600);
    assert_eq!(mode(&place.entries()[0]), 0o600);
    let leftovers = fs::read_dir(place.path()).unwrap().count();
    assert_eq!(leftovers, 2, "a key and an entry, no drafts");
}

#[test]
fn damage_anywhere_in_an_entry_is_found_and_repaired() {
    let place = Place::filled();
    let path = place.entries().remove(0);
    let whole = fs::read(&path).unwrap();
    for damage in [0, 20, 100, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[damage] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert!(place.compiles(), "byte {damage}");
        assert!(!place.compiles(), "the entry was repaired");
    }
    for length in [0, 10, 40, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(place.compiles(), "cut to {length} bytes");
    }
}

#[test]
fn an_entry_of_another_component_is_not_taken() {
    let place = Place::filled();
    let path = place.entries().remove(0);
    place.load(&built("refund"));
    let other = place.entries().into_iter().find(|entry| *entry != path).unwrap();
    fs::copy(other, &path).unwrap();
    assert!(place.compiles());
}

#[test]
fn entries_under_another_key_are_not_taken() {
    let place = Place::filled();
    fs::remove_file(place.key()).unwrap();
    assert!(place.compiles());
    assert!(!place.compiles(), "it is kept under the new key");
}

#[test]
fn a_cache_that_others_can_reach_is_not_used() {
    let place = Place::filled();
    chmod(&place.key(), 0o644);
    assert!(place.compiles() && place.compiles());
    chmod(&place.key(), 0o600);
    assert!(!place.compiles());
    chmod(&place.path(), 0o777);
    assert!(place.compiles() && place.compiles());
    chmod(&place.path(), 0o700);
    fs::write(place.key(), "short").unwrap();
    assert!(place.compiles() && place.compiles());
}

#[test]
fn what_is_known_of_a_cached_component_is_what_was_found_in_it() {
    let place = Place::filled();
    for node in [built("conformance"), built("typed/rust"), built("refund")] {
        let found = place.load(&node).1.inspection();
        let (_, cached) = place.load(&node);
        assert_eq!(cached.inspection().compiled_in, None);
        assert_eq!(cached.inspection(), Inspection { compiled_in: None, ..found });
    }
    // One that is refused is not kept, however often it is tried.
    let before = place.entries().len();
    for _ in 0..2 {
        let config = SandboxConfig { cache_dir: Some(place.path()), ..SandboxConfig::default() };
        let empty = wat::parse_str("(component)").unwrap();
        assert!(matches!(
            Sandbox::new(&config).unwrap().load(&empty),
            Err(SandboxError::NoRun { .. })
        ));
    }
    assert_eq!(place.entries().len(), before);
}
