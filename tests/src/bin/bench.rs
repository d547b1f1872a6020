//! Measures what Twice costs on this machine.
//!
//! `cargo run --release -p twice-tests --bin bench -- [--quick] [--json]`

use anyhow::bail;
use twice_tests::bench::{Amount, measure, table};

fn main() -> anyhow::Result<()> {
    let (mut amount, mut json) = (Amount::FULL, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => amount = Amount::QUICK,
            "--json" => json = true,
            other => bail!("`{other}` is not known; there are --quick and --json"),
        }
    }
    let report = measure(amount)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", table(&report));
    }
    Ok(())
}
