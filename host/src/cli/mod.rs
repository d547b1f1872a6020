//! The command line: one file per command. A command says what it does on standard output, what went wrong on standard
//! error, and ends with a code of `Exit`.

mod approvals;
mod check;
mod compile_component;
mod crashtest;
mod decider;
mod demo;
mod effect_text;
mod effects;
mod exit;
mod given;
mod graph;
mod init;
mod locks;
mod node;
mod open;
mod out;
mod progress;
mod prune;
mod run;
mod runs;
mod scaffold;
mod signals;
mod sim;
mod status;
pub mod term;
mod tool;
mod undone;
mod webhooks;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};

use self::exit::Exit;
use self::out::{CleanLog, Out, Secrets};
use crate::engine::boundary::Boundaries;

/// Runs workflow nodes that nobody has to trust. A node computes, and asks: every effect on the outside world is given
/// an identity, written down before it is sent, and answered from the ledger ever after.
#[derive(Debug, Parser)]
#[command(name = "twice", version, propagate_version = true, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 done · 1 error · 2 usage · 3 the run failed or was cancelled · 4 the run waits or needs a person · \
                  130 interrupted"
)]
struct Cli {
    /// The project's folder (default: the nearest folder upwards that holds a twice.toml)
    #[arg(long, global = true, value_name = "DIR")]
    project: Option<PathBuf>,
    /// The ledger: a file or postgres://USER@HOST/DATABASE (default: twice.db beside twice.toml)
    #[arg(
        long,
        global = true,
        env = "TWICE_DATABASE_URL",
        value_name = "FILE|URL",
        hide_env_values = true
    )]
    database: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a new project in this folder
    Init(init::Init),
    /// Write, build, register and inspect nodes
    #[command(subcommand)]
    Node(node::Node),
    /// Write what authors of nodes build against
    #[command(subcommand)]
    Tool(tool::Tool),
    /// Check every workflow and tool file, and say what each operation promises
    Check(check::Check),
    /// Draw a workflow, or where a run of it stands
    Graph(graph::Graph),
    /// Start a run (or find it started) and run it until it ends or waits
    Run(run::Run),
    /// List, show, resume and release runs
    #[command(subcommand)]
    Runs(runs::Runs),
    /// Run what is due, with as many other workers as there are, until told to stop
    Worker(worker::Worker),
    /// Show how the runs of each workflow stand, and which workers hold runs
    Status(status::Status),
    /// List, show and settle effects
    #[command(subcommand)]
    Effects(effects::Effects),
    /// List and answer what people are asked to approve
    #[command(subcommand)]
    Approvals(approvals::Approvals),
    /// Take in what providers post by themselves
    #[command(subcommand)]
    Webhooks(webhooks::Webhooks),
    /// List and release locks on business objects
    #[command(subcommand)]
    Locks(locks::Locks),
    /// Kill a workflow's worker at every boundary, resume twice, and check what comes of it
    Crashtest(crashtest::Crashtest),
    /// The worker of a crash test, which is started by it
    #[command(hide = true)]
    CrashtestWorker(crashtest::CrashtestWorker),
    /// Compile a component in a process of its own, which is started by whoever needs it
    #[command(hide = true)]
    CompileComponent(compile_component::CompileComponent),
    /// Watch it pay once: kill a worker in mid-refund, resume twice
    Demo(demo::Demo),
    /// Start the simulated provider that the examples talk to
    ProviderSim(sim::ProviderSim),
}

impl Command {
    /// Whether standard output is to be one JSON document.
    const fn prints_json(&self) -> bool {
        match self {
            Self::Node(command) => command.prints_json(),
            Self::Check(command) => command.json,
            Self::Graph(command) => command.json,
            Self::Run(command) => command.json,
            Self::Runs(command) => command.prints_json(),
            Self::Effects(command) => command.prints_json(),
            Self::Approvals(command) => command.prints_json(),
            Self::Webhooks(command) => command.prints_json(),
            Self::Locks(command) => command.prints_json(),
            Self::Crashtest(command) => command.json,
            Self::Status(command) => command.json,
            // A worker prints a document for each run.
            Self::Init(_)
            | Self::Tool(_)
            | Self::Worker(_)
            | Self::CrashtestWorker(_)
            | Self::CompileComponent(_)
            | Self::Demo(_)
            | Self::ProviderSim(_) => false,
        }
    }
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    main_with(Boundaries::none())
}

/// Runs the command line of this process, with `boundaries` in its executor: how tests kill it at a chosen place.
#[must_use]
pub fn main_with(boundaries: Boundaries) -> ExitCode {
    let cli = Cli::parse();
    let secrets = Secrets::default();
    let out = Out::detect(Arc::clone(&secrets), cli.command.prints_json());
    init_logs(Arc::clone(&secrets));
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            out.error(&anyhow::Error::new(error).context("cannot start the runtime"));
            return Exit::Error.into();
        }
    };
    let place = open::Place { project: cli.project, database: cli.database, boundaries, secrets };
    let done = runtime.block_on(async {
        match cli.command {
            Command::Init(command) => command.run(&out),
            Command::Node(command) => command.run(&out, &place).await,
            Command::Tool(command) => command.run(&out, &place),
            Command::Check(command) => command.run(&out, &place).await,
            Command::Graph(command) => command.run(&out, &place).await,
            Command::Run(command) => command.run(&out, &place).await,
            Command::Runs(command) => command.run(&out, &place).await,
            Command::Worker(command) => command.run(&out, &place).await,
            Command::Status(command) => command.run(&out, &place).await,
            Command::Effects(command) => command.run(&out, &place).await,
            Command::Approvals(command) => command.run(&out, &place).await,
            Command::Webhooks(command) => command.run(&out, &place).await,
            Command::Locks(command) => command.run(&out, &place).await,
            Command::Crashtest(command) => command.run(&out, &place).await,
            Command::CrashtestWorker(command) => command.run().await,
            Command::CompileComponent(command) => command.run(),
            Command::Demo(command) => command.run(&out).await,
            Command::ProviderSim(command) => command.run(&out).await,
        }
    });
    // A blocking thread (a component that compiles, say) must not hold the process back.
    runtime.shutdown_background();
    match done {
        Ok(exit) => exit.into(),
        Err(error) => {
            out.error(&error);
            Exit::Error.into()
        }
    }
}

fn init_logs(secrets: Secrets) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TWICE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(term::Term::stderr().color)
        .with_writer(move || CleanLog(Arc::clone(&secrets)))
        .init();
}
