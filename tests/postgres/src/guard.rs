//! Ends a server together with the process that wanted it. A shell of the server's own user waits for words; when the
//! other end of the pipe is gone, because the test process ended in whatever way, it stops the server by its pid and
//! removes its folder.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::tools::Tools;

/// Arguments: `pg_ctl`, the folder. Each word is answered by a line, `yes` or `no`. Settings are lines that end with an
/// empty one.
const SCRIPT: &str = r#"
trap '' INT HUP
quietly() { "$@" </dev/null >/dev/null 2>&1 && echo yes || echo no; }
while read -r word; do
    case $word in
        configure)
            : > "$2/data/twice.conf"
            while read -r line && [ -n "$line" ]; do printf '%s\n' "$line" >> "$2/data/twice.conf"; done
            grep -q twice.conf "$2/data/postgresql.conf" || echo "include 'twice.conf'" >> "$2/data/postgresql.conf"
            echo yes ;;
        start) quietly "$1" start --pgdata "$2/data" --log "$2/log" --wait --timeout 60 ;;
        stop) quietly "$1" stop --pgdata "$2/data" --mode immediate --wait --timeout 60 ;;
    esac
done
"$1" stop --pgdata "$2/data" --mode immediate --wait --timeout 60 </dev/null >/dev/null 2>&1
rm -rf "$2"
"#;

pub(crate) struct Guard {
    shell: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Guard {
    pub(crate) fn of(tools: &Tools, folder: &Path) -> Self {
        let mut shell = tools.command("sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(tools.program("pg_ctl")).arg(folder);
        // A signal that a terminal sends to the test is not for the guard.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("a shell can be started");
        let words = shell.stdin.take();
        let answers = BufReader::new(shell.stdout.take().expect("its output is a pipe"));
        Self { shell, words, answers }
    }

    pub(crate) fn configure(&mut self, settings: &str) {
        assert!(
            self.say(&format!("configure\n{settings}")),
            "the server's settings can be written"
        );
    }

    /// Whether it runs now.
    pub(crate) fn start(&mut self) -> bool {
        self.say("start")
    }

    pub(crate) fn stop(&mut self) {
        assert!(self.say("stop"), "the Postgres server does not stop");
    }

    fn say(&mut self, words: &str) -> bool {
        let pipe = self.words.as_mut().expect("it is taken only when this is dropped");
        writeln!(pipe, "{words}").expect("the guard listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the guard answers");
        answer.trim_end() == "yes"
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.words.take());
        // It ends by itself now; a test does not fail because of how.
        let _ = self.shell.wait();
    }
}
