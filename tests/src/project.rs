//! A user's project in a folder of its own, and the real command run in it as child processes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use twice_provider_sim::{Counters, Sim, SimConfig, Switch, WaitFor};

use crate::nodes::{component, repository};

/// What the provider of these tests wants to be called with.
pub const API_KEY: &str = "test-key-0123456789";
/// The length of a lease unless a test says otherwise; long enough for a heartbeat on a busy machine. Milliseconds.
pub const LEASE_MS: u64 = 600;
/// Longest wait for any one thing; more than a slow machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a process is looked at whose state nothing announces.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A project, or a folder that may become one.
pub struct Project {
    folder: TempDir,
    program: PathBuf,
    env: BTreeMap<String, String>,
}

impl Project {
    /// An empty folder in which `program` is run.
    ///
    /// # Panics
    /// When no folder can be made; as everything here, because a test that cannot do what it wants to has failed.
    #[must_use]
    pub fn empty(program: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self { folder, program: PathBuf::from(program), env: BTreeMap::new() }
            .with_env("TWICE_LEASE_MS", &LEASE_MS.to_string())
            .with_env("PAYMENTS_API_KEY", API_KEY)
    }

    /// A project as `twice init` makes it.
    #[must_use]
    pub fn init(program: &str) -> Self {
        let project = Self::empty(program);
        project.ok(&["init", "--name", "shop"]);
        project
    }

    /// A copy of the project in this folder of `nodes/`, without what working with it left there.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn of_repository(program: &str, folder: &str) -> Self {
        let project = Self::empty(program);
        let is_source = |name: &str| !name.starts_with('.') && !name.starts_with("twice.db");
        copy_folder(&repository().join("nodes").join(folder), project.root(), &is_source);
        project
    }

    /// With this variable in the environment of every command.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With the provider's address in the environment of every command.
    #[must_use]
    pub fn at(self, provider: &Provider) -> Self {
        let url = provider.url();
        self.with_env("PAYMENTS_URL", &url)
    }

    /// The same files in a folder of their own.
    ///
    /// # Panics
    /// When a file cannot be copied.
    #[must_use]
    pub fn copy(&self) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        copy_folder(self.root(), folder.path(), &|_| true);
        Self { folder, program: self.program.clone(), env: self.env.clone() }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file, over one that may be there.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        let parent = path.parent().expect("the file lies in the project");
        std::fs::create_dir_all(parent).expect("the folder can be made");
        std::fs::write(path, text).expect("the file can be written");
    }

    /// Replaces text in a file.
    ///
    /// # Panics
    /// When the text is not there.
    #[track_caller]
    pub fn edit(&self, path: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.root().join(path)).expect("the file is there");
        assert!(text.contains(from), "`{from}` is not in {path}");
        self.write(path, text.replace(from, to));
    }

    /// Registers one of the repository's nodes.
    #[track_caller]
    pub fn add_node(&self, name: &str) {
        self.add_node_of(name, name);
    }

    /// Registers the node in this folder of `nodes/` under a name.
    #[track_caller]
    pub fn add_node_of(&self, folder: &str, name: &str) {
        let file = format!(".components/{name}.wasm");
        self.write(&file, component(folder));
        self.ok(&["node", "add", name, &file]);
    }

    /// The command, ready to be changed or started.
    #[must_use]
    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.root()).stdin(Stdio::null());
        // What breaks a rule on purpose is to break it in every process.
        let ours = |name: &str| name.starts_with("TWICE_") && name != "TWICE_MUTATION";
        for (name, _) in std::env::vars().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        command.env("NO_COLOR", "1").env("USER", "ada").envs(&self.env);
        command
    }

    /// Runs the command to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn twice(&self, args: &[impl AsRef<OsStr>]) -> Ran {
        let output = self.command(args).output().expect("the command can be started");
        Ran::of(args, &output)
    }

    /// Runs a command that is to succeed, and hands back what it printed.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn ok(&self, args: &[impl AsRef<OsStr>]) -> String {
        let ran = self.twice(args);
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.stdout
    }

    /// Runs a command with `--json` and reads the one document that it prints.
    ///
    /// # Panics
    /// When it does not succeed or prints anything else.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let ran = self.twice(&[args, &["--json"]].concat());
        assert_eq!(ran.code, Some(0), "{ran}");
        ran.json()
    }

    /// Starts a command that tests go on to disturb. `env` is for it alone.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(&self, args: &[impl AsRef<OsStr>], env: &[(&str, &str)]) -> Worker {
        let mut command = self.command(args);
        command.envs(env.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let args = args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()).collect();
        Worker { args, child: Some(command.spawn().expect("the command can be started")) }
    }

    /// A run, as `runs show` has it.
    #[track_caller]
    pub fn run(&self, run: &str) -> Value {
        self.json(&["runs", "show", run])
    }

    /// The effects of a run, each as `effects show` has it.
    ///
    /// # Panics
    /// When the listing is not one.
    #[track_caller]
    pub fn effects(&self, run: &str) -> Vec<Value> {
        let list = self.json(&["effects", "list", "--run", run]);
        let ids = list.as_array().expect("a listing is an array");
        ids.iter()
            .map(|effect| {
                let id = effect["effect_id"].as_str().expect("an effect has an id");
                self.json(&["effects", "show", id])
            })
            .collect()
    }
}

fn copy_folder(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) {
    std::fs::create_dir_all(to).expect("the folder can be made");
    for entry in std::fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        if !wanted(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target, wanted);
        } else {
            std::fs::copy(entry.path(), target).expect("the file can be copied");
        }
    }
}

/// What a command did.
#[derive(Debug, Clone)]
pub struct Ran {
    /// What was asked for.
    pub args: String,
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Ran {
    fn of(args: &[impl AsRef<OsStr>], output: &Output) -> Self {
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        Self {
            args: args.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The one JSON document on standard output.
    ///
    /// # Panics
    /// When there is another number of them.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(document) => document,
            Err(problem) => panic!("{problem}: {self}"),
        }
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let code =
            self.code.map_or_else(|| "by a signal".to_owned(), |code| format!("with {code}"));
        write!(f, "`twice {}` ended {code}\n{}\n{}", self.args, self.stdout, self.stderr)
    }
}

/// A command that is running. Dropping it kills it.
pub struct Worker {
    args: Vec<String>,
    child: Option<Child>,
}

/// How a worker that was told to stop itself goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halted {
    /// It is stopped.
    Stopped,
    /// It never came there, and ended.
    Ended,
}

impl Worker {
    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it is taken only when the worker is used up")
    }

    /// The most memory that it had in use so far, if it still runs. KiB.
    ///
    /// # Panics
    /// When the system does not tell.
    pub fn memory_max_kib(&mut self) -> Option<u64> {
        let child = self.child();
        if child.try_wait().expect("a child can be waited for").is_some() {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().trim_end_matches(" kB").parse().expect("it is a number"))
    }

    /// Sends SIGKILL, and waits until it is gone. Tells whether it was still running.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(mut self) -> bool {
        let child = self.child();
        child.kill().expect("a child can be killed");
        is_signal(child.wait().expect("a child can be waited for"))
    }

    /// Waits until it has stopped itself or ended.
    ///
    /// # Panics
    /// When it does neither.
    pub fn wait_for_stop(&mut self) -> Halted {
        let stat = format!("/proc/{}/stat", self.child().id());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.child().try_wait().expect("a child can be waited for").is_some() {
                return Halted::Ended;
            }
            // `pid (name) state …`; the name may hold anything but is closed by the last bracket.
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            if text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')) {
                return Halted::Stopped;
            }
            assert!(Instant::now() < deadline, "it neither stopped nor ended: {:?}", self.args);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Stops it where it is, as a machine that is frozen does.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn stop(&mut self) {
        self.signal("STOP");
    }

    /// Lets it go on after a stop.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn go_on(&mut self) {
        self.signal("CONT");
    }

    /// Interrupts it, as Ctrl-C does.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn interrupt(&mut self) {
        self.signal("INT");
    }

    /// Asks it to end, as whatever supervises it does.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn terminate(&mut self) {
        self.signal("TERM");
    }

    fn signal(&mut self, signal: &str) {
        let pid = self.child().id().to_string();
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid).status();
        assert!(sent.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
    }

    /// Waits until it complains about something that has these words in it. What it complains about until then is not in
    /// what [`Worker::finish`] hands back.
    ///
    /// # Panics
    /// When it ends before.
    pub fn wait_for_complaint(&mut self, words: &str) {
        let stderr = self.child().stderr.as_mut().expect("a worker's standard error is piped");
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(words) {
            let mut byte = [0];
            let read = stderr.read(&mut byte).expect("a pipe can be read");
            assert!(read > 0, "it ended and said only: {}", String::from_utf8_lossy(&said));
            said.extend(byte);
        }
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// When it cannot be waited for.
    #[must_use]
    pub fn finish(mut self) -> Ran {
        let child = self.child.take().expect("it is taken only when the worker is used up");
        let output = child.wait_with_output().expect("a child can be waited for");
        Ran::of(&self.args, &output)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn is_signal(status: ExitStatus) -> bool {
    status.code().is_none()
}

/// A provider in this process: it outlives every worker.
pub struct Provider {
    runtime: tokio::runtime::Runtime,
    sim: Sim,
    // The database; removed last.
    _folder: TempDir,
}

impl Provider {
    /// Starts a provider that wants [`API_KEY`].
    #[must_use]
    pub fn start() -> Self {
        Self::with_key(API_KEY)
    }

    /// Starts a provider that wants another key.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn with_key(key: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let mut config = SimConfig::new(folder.path().join("provider.db"));
        config.api_key = Some(key.to_owned());
        let sim = runtime.block_on(Sim::start(config)).expect("the provider starts");
        Self { runtime, sim, _folder: folder }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        self.sim.url()
    }

    /// From now on it fails so.
    ///
    /// # Panics
    /// When a switch is not right.
    pub fn switch(&self, switches: impl IntoIterator<Item = Switch>) {
        self.runtime.block_on(self.sim.set_switches(switches)).expect("the switches are right");
    }

    /// What it counted.
    ///
    /// # Panics
    /// When it cannot tell.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.runtime.block_on(self.sim.counters()).expect("the provider can count")
    }

    /// Waits until it keeps an answer to itself, as told by `PauseBeforeReplyUntil`.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_until_paused(&self) {
        let paused = self.sim.wait(WaitFor::Paused, 1, None, PATIENCE);
        assert!(self.runtime.block_on(paused).expect("the provider can tell"), "no answer is kept");
    }

    /// Lets it give the answers that it keeps to itself.
    pub fn go_on(&self) {
        self.sim.go_on();
    }

    /// The requests that arrived for an operation, whatever became of them.
    #[must_use]
    pub fn requests(&self, operation: &str) -> u64 {
        self.counters().operations.get(operation).map_or(0, |counted| counted.requests)
    }
}

/// Does `work` for each of `jobs`, `at_a_time` of them at a time, and fails with all that failed.
///
/// # Panics
/// When the work of any job does.
pub fn for_each<T: Send>(jobs: Vec<(String, T)>, at_a_time: usize, work: impl Fn(T) + Sync) {
    let jobs = std::sync::Mutex::new(jobs.into_iter());
    let failed = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                loop {
                    let next = jobs.lock().expect("no work is done under the lock").next();
                    let Some((name, job)) = next else { return };
                    let work = std::panic::AssertUnwindSafe(|| work(job));
                    if std::panic::catch_unwind(work).is_err() {
                        failed.lock().expect("no work is done under the lock").push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no work is done under the lock");
    assert!(failed.is_empty(), "failed: {failed:#?}");
}
