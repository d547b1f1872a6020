//! The `twice` command.

/// An effect is many small pieces of JSON: a third of its time goes to the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    twice::cli::main()
}
