//! Many runs on one server by several worker processes: those who work, whoever gives them work, and the provider, each
//! with what a test needs to disturb them and to see how far they are.

mod feeder;
mod provider;
mod takeovers;

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};

pub use self::feeder::{Feeder, Work};
pub use self::provider::ProviderProcess;
pub use self::takeovers::{Outages, Takeover, Takeovers};

use crate::project::Project;

/// A `twice worker`. What it says goes to a file, as nobody reads a pipe while it works. Dropping it kills it.
pub struct CrewMember {
    child: Option<Child>,
    log: std::path::PathBuf,
}

impl CrewMember {
    /// Starts one with these arguments, on the ledger at `url`.
    ///
    /// # Panics
    /// When it cannot be started; as everything here, because a test that cannot do what it wants to has failed.
    #[must_use]
    pub fn start(project: &Project, name: &str, url: &str, args: &[&str]) -> Self {
        let log = project.root().join(format!("{name}.log"));
        let file = File::create(&log).expect("a file can be made");
        let mut command = project.command(&[&["worker"], args].concat());
        command.env("TWICE_DATABASE_URL", url);
        command.stdout(file.try_clone().expect("a file can be shared")).stderr(file);
        let child = Some(command.spawn().expect("the command can be started"));
        Self { child, log }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it is taken only when the worker is used up")
    }

    /// What its ids begin with in the ledger.
    pub fn id_prefix(&mut self) -> String {
        format!("w-{}-", self.child().id())
    }

    /// What it said.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends SIGKILL and waits until it is gone.
    ///
    /// # Panics
    /// When it had ended before.
    pub fn kill(mut self) {
        let mut child = self.child.take().expect("it is taken only when the worker is used up");
        let ended = child.try_wait().expect("a child can be waited for");
        assert!(ended.is_none(), "it ended by itself: {ended:?}\n{}", self.said());
        child.kill().expect("a child can be killed");
        child.wait().expect("a child can be waited for");
    }

    /// Freezes it, as a machine that stands still does.
    pub fn freeze(&mut self) {
        self.signal("STOP");
    }

    /// Lets it go on after that.
    pub fn wake(&mut self) {
        self.signal("CONT");
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn dismiss(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let mut child = self.child.take().expect("it is taken only when the worker is used up");
        let status = child.wait().expect("a child can be waited for");
        (status, self.said())
    }

    fn signal(&mut self, signal: &str) {
        let pid = self.child().id().to_string();
        let sent =
            Command::new("kill").arg(format!("-{signal}")).arg(pid).stdin(Stdio::null()).status();
        assert!(sent.is_ok_and(|status| status.success()), "cannot send SIG{signal}");
    }
}

impl Drop for CrewMember {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
