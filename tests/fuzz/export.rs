//! Exports of runs: what was changed is never verified.

use std::cell::RefCell;
use std::fs;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use twice::retention::{Verified, verify};
use twice_core::identity::hash_text;
use twice_tests::nodes::repository;

use crate::driver::{Target, files};

const DICTIONARY: &[&str] = &[
    "{",
    "}",
    "\"",
    ",",
    ":",
    "\n",
    "null",
    "0",
    "-1",
    "9223372036854775807",
    "\"sha256:",
    "\"seq\":",
    "\"fence\":",
    "\"body\":\"",
    "\\\"",
    "\"kind\":\"effect_requested\"",
    "\"kind\":\"effect_confirmed\"",
    "\"digest\":",
    "\"run_id\":\"run-1\"",
    "\"format\":",
    "\\u0000",
    "{\"digest\":\"\"}\n",
];

struct Exports {
    dir: TempDir,
    originals: Vec<(Vec<u8>, Verified)>,
}

impl Exports {
    fn verified(&self, bytes: &[u8]) -> Result<Verified, String> {
        let path = self.dir.path().join("run.jsonl");
        fs::write(&path, bytes).unwrap();
        verify(&path).map_err(|error| error.to_string().replace(&*path.to_string_lossy(), "FILE"))
    }
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The entries' lines, in meaning.
fn entries(bytes: &[u8]) -> Vec<Value> {
    let lines = lines(bytes);
    lines[1..lines.len() - 1].iter().map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[test]
fn export() {
    let corpus = files(&repository().join("tests/fuzz/corpus/export"), ".jsonl");
    let dir = tempfile::tempdir().unwrap();
    let exports = Exports { dir, originals: Vec::new() };
    let originals = corpus.iter().map(|bytes| (bytes.clone(), exports.verified(bytes).unwrap()));
    let originals = originals.collect();
    let exports = RefCell::new(Exports { originals, ..exports });
    let run = move |input: &[u8]| {
        let exports = exports.borrow();
        let as_it_is = exports.verified(input);
        if let Ok(verified) = &as_it_is {
            // Its digest covers all but its last line, which holds that digest and nothing else.
            let original = exports.originals.iter().find(|(_, known)| known == verified);
            let (original, _) = original.unwrap_or_else(|| panic!("it holds: {verified:?}"));
            let (known, given) = (lines(original), lines(input));
            assert_eq!(known[..known.len() - 1], given[..given.len() - 1]);
        }
        // Whoever changes an export can give it a digest that fits. The chain of its entries still tells.
        let sealed = sealed(input);
        let resealed = exports.verified(&sealed);
        if let Ok(verified) = &resealed {
            let original = exports.originals.iter().find(|(_, known)| known.head == verified.head);
            let (original, _) = original.unwrap_or_else(|| panic!("it holds: {verified:?}"));
            assert_eq!(entries(&sealed), entries(original));
        }
        let told = |result: Result<Verified, String>| {
            result.map_or_else(|problem| problem, |_| "holds".to_owned())
        };
        format!("{}; {}", told(as_it_is), told(resealed))
    };
    Target { name: "export", corpus, dictionary: DICTIONARY, run: Box::new(run) }.fuzz(4_000);
}

/// The same with a last line that fits the lines before it.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let lines = lines(bytes);
    let mut sealed = lines[..lines.len().saturating_sub(1)].concat();
    let digest = hash_text(&Sha256::digest(&sealed).into());
    sealed.extend(format!("{{\"digest\":\"{digest}\"}}\n").into_bytes());
    sealed
}
