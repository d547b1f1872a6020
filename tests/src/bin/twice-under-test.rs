//! The `twice` command, with one addition: it can be told to die at a boundary. `TWICE_TEST_KILL=<boundary>:<n>` sends it
//! SIGKILL when it passes that boundary for the n-th time; `TWICE_TEST_STOP=<boundary>:<n>` sends it SIGSTOP.

use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use twice::engine::boundary::{Boundaries, Boundary};

fn main() -> ExitCode {
    twice::cli::main_with(boundaries())
}

fn boundaries() -> Boundaries {
    for (variable, signal) in [("TWICE_TEST_KILL", "KILL"), ("TWICE_TEST_STOP", "STOP")] {
        let Ok(told) = std::env::var(variable) else { continue };
        let (name, count) = told.split_once(':').expect("the form is <boundary>:<n>");
        let at = Boundary::parse(name).unwrap_or_else(|| panic!("no boundary is named {name}"));
        let count: u32 = count.parse().expect("n is a number");
        let passed = AtomicU32::new(0);
        return Boundaries::inject(move |boundary| {
            if boundary == at && passed.fetch_add(1, Ordering::SeqCst) + 1 == count {
                send_to_self(signal);
            }
        });
    }
    Boundaries::none()
}

/// Returns only when the signal lets it: from SIGSTOP after SIGCONT, from SIGKILL never.
fn send_to_self(signal: &str) {
    let pid = std::process::id().to_string();
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid).status();
    assert!(sent.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
    if signal == "KILL" {
        std::thread::sleep(Duration::from_secs(60));
    }
}
