//! Mutates inputs and runs a target on them: a bounded number of them, the same ones each time, as a test; others each time, for
//! as long as `TWICE_FUZZ_SECONDS` says, to look for what is not known yet. Runs on stable: there is no coverage to steer by, so
//! the answers of the target do. An input to which it answers in words that were not heard before is kept, and mutated further.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, DefaultHasher, Hash, Hasher, RandomState};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use twice_tests::dice::Dice;
use twice_tests::nodes::repository;

/// The seed of a test, unless `SEED` says otherwise: whether a change passes must not hang on luck.
const SEED: u64 = 1;
/// Longest input that mutation makes. Bytes.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Most inputs that are kept because of what came of them.
const KEPT_MAX: usize = 4_000;
/// How long a target may take for one input. Generous, as the machine may be busy: what is looked for takes for ever.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a failing input is made smaller at most.
const SHRINKS_MAX: usize = 2_000;

/// What is fuzzed.
pub(crate) struct Target {
    /// The name of its test, and of the folder `tests/fuzz/regressions/<name>`.
    pub(crate) name: &'static str,
    /// Where mutation begins.
    pub(crate) corpus: Vec<Vec<u8>>,
    /// What is put into inputs: words of the format.
    pub(crate) dictionary: &'static [&'static str],
    /// Panics when something is wrong; says in words what came of the input.
    pub(crate) run: Box<Run>,
}

type Run = dyn Fn(&[u8]) -> String;

impl Target {
    /// Runs it on its corpus, on what failed once, and on what mutation makes of both until there were `inputs` of these,
    /// which should be a few seconds' worth, or until the time is over.
    pub(crate) fn fuzz(self, inputs: u64) {
        let time = number("TWICE_FUZZ_SECONDS").map(Duration::from_secs);
        let seed = number("SEED").unwrap_or_else(|| match time {
            Some(_) => RandomState::new().build_hasher().finish(),
            None => SEED,
        });
        let mut last = LastInput::new(self.name);
        let mut heard = BTreeSet::new();
        let mut kept = self.corpus.clone();
        kept.extend(regressions(self.name));
        assert!(!kept.is_empty(), "{} has nothing to begin with", self.name);
        for input in &kept {
            heard.insert(self.try_input(input, &mut last, seed, 0));
        }
        let mut dice = Dice::new(seed);
        let begun = Instant::now();
        let mut count = 0_u64;
        while time.map_or(count < inputs, |time| begun.elapsed() < time) {
            count += 1;
            let input = mutated(&mut dice, &kept, self.dictionary);
            let answer = self.try_input(&input, &mut last, seed, count);
            if heard.insert(answer) && kept.len() < KEPT_MAX {
                kept.push(input);
            }
        }
        last.remove();
        println!(
            "{}: {count} inputs in {} s, {} different answers; seed={seed}",
            self.name,
            begun.elapsed().as_secs(),
            heard.len()
        );
    }

    /// The hash of the answer's words, without its numbers and names.
    fn try_input(&self, input: &[u8], last: &mut LastInput, seed: u64, count: u64) -> u64 {
        last.write(input);
        let begun = Instant::now();
        let answer = catch_unwind(AssertUnwindSafe(|| (self.run)(input)));
        let took = begun.elapsed();
        match answer {
            Ok(answer) if took < PATIENCE => heard_as(&answer),
            Ok(answer) => self.fail(input, seed, count, &format!("took {took:?}: {answer}")),
            Err(_) => {
                let small = shrunk(input, |input| {
                    catch_unwind(AssertUnwindSafe(|| (self.run)(input))).is_err()
                });
                self.fail(&small, seed, count, "panicked, see above")
            }
        }
    }

    fn fail(&self, input: &[u8], seed: u64, count: u64, what: &str) -> ! {
        let path = found(self.name);
        fs::write(&path, input).unwrap();
        panic!(
            "{} {what}\nseed={seed} input {count}: {} bytes in {}\n{}\nmend it, and keep the file in tests/fuzz/regressions/{}",
            self.name,
            input.len(),
            path.display(),
            input[..input.len().min(2_000)].escape_ascii(),
            self.name
        );
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Texts that differ in a number or in what they quote are heard as the same.
fn heard_as(answer: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (at, part) in answer.split('`').enumerate() {
        if at % 2 == 0 {
            part.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn found(target: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{target}"))
}

/// What failed once.
fn regressions(target: &str) -> Vec<Vec<u8>> {
    files(&repository().join("tests/fuzz/regressions").join(target), "")
}

/// The files in a folder and those below it whose names end so, in order.
pub(crate) fn files(folder: &Path, ending: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() && !path.ends_with("target") {
            all.extend(files(&path, ending));
        } else if path.is_file() && path.to_string_lossy().ends_with(ending) {
            all.push(fs::read(path).unwrap());
        }
    }
    all
}

/// The input that is being tried, on disk: what ends the whole process (a stack that overflows) leaves it there.
struct LastInput {
    path: PathBuf,
    file: File,
}

impl LastInput {
    fn new(target: &str) -> Self {
        let path = found(target).with_extension("last");
        let file = File::create(&path).unwrap();
        Self { path, file }
    }

    fn write(&mut self, input: &[u8]) {
        self.file.seek(SeekFrom::Start(0)).unwrap();
        self.file.write_all(input).unwrap();
        self.file.set_len(input.len() as u64).unwrap();
    }

    fn remove(&self) {
        fs::remove_file(&self.path).unwrap();
    }
}

fn below(dice: &mut Dice, n: usize) -> usize {
    usize::try_from(dice.below(n.max(1) as u64)).unwrap()
}

/// A few changes to one of the inputs.
fn mutated(dice: &mut Dice, inputs: &[Vec<u8>], dictionary: &[&str]) -> Vec<u8> {
    let mut input = dice.one_of(inputs).clone();
    for _ in 0..=below(dice, 5) {
        change(dice, &mut input, inputs, dictionary);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(dice: &mut Dice, input: &mut Vec<u8>, inputs: &[Vec<u8>], dictionary: &[&str]) {
    const ODD: [&[u8]; 12] = [
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xe2\x80\xa8",
        b"9007199254740993",
        b"1e999",
        b"-0",
        b"18446744073709551616",
        b"\"",
        b"\n",
        b"\r\n\r\n",
        b"\\ud800",
    ];
    let at = below(dice, input.len() + 1);
    let until = at + below(dice, (input.len() - at).min(64) + 1);
    match dice.below(11) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = dice.number().to_le_bytes()[0],
        2 => drop(input.drain(at..until)),
        3 => {
            let again = input[at..until].to_vec();
            input.splice(at..at, again);
        }
        // Nested, or simply long.
        4 => {
            let again = input[at..until].repeat(2 + below(dice, 200));
            input.splice(at..at, again);
        }
        5 => drop(input.splice(at..at, dice.one_of(&ODD).iter().copied())),
        6 | 7 if !dictionary.is_empty() => {
            let word = dice.one_of(dictionary).bytes();
            let replaced = if dice.one_in(2) { at..until } else { at..at };
            input.splice(replaced, word);
        }
        8 => input.truncate(at),
        // A piece of another.
        9 => {
            let other = dice.one_of(inputs);
            let from = below(dice, other.len() + 1);
            let to = from + below(dice, (other.len() - from).min(256) + 1);
            input.splice(at..until, other[from..to].iter().copied());
        }
        _ => {
            let from = below(dice, input.len() + 1);
            let moved = input[from..].iter().copied().take(until - at).collect::<Vec<u8>>();
            input.splice(at..at, moved);
        }
    }
}

/// A smaller input of which `fails` is true still.
fn shrunk(input: &[u8], fails: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut small = input.to_vec();
    let (mut piece, mut tries) = (small.len() / 2, 0);
    while piece > 0 && tries < SHRINKS_MAX {
        let mut at = 0;
        while at < small.len() && tries < SHRINKS_MAX {
            let mut less = small.clone();
            less.drain(at..(at + piece).min(small.len()));
            tries += 1;
            if fails(&less) {
                small = less;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    small
}
