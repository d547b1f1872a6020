//! The `twice` command.

fn main() -> std::process::ExitCode {
    twice::cli::main()
}
