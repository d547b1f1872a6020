//! Measures what Twice costs on this machine.
//!
//! `cargo run --release -p twice-tests --bin bench -- [--quick] [--json] [--on DATABASE] [--at RUNS] [--growth EFFECTS [--picture FILE]]`

use anyhow::{Context as _, bail};
use twice_tests::bench::{Amount, Store, growth, measure, table};

/// As in the `twice` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let (mut amount, mut json) = (Amount::full(), false);
    let (mut most, mut picture) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => amount = Amount { stores: amount.stores, ..Amount::quick() },
            "--on" => amount.stores = vec![store(arguments.next().as_deref())?],
            "--at" => {
                let runs = arguments.next().context("--at needs a number of runs")?;
                let lanes = vec![runs.parse().context("--at needs a number of runs")?];
                (amount.lanes, amount.server_lanes) = (lanes.clone(), lanes);
            }
            "--growth" => {
                let effects = arguments.next().context("--growth needs a number of effects")?;
                most = Some(effects.parse().context("--growth needs a number of effects")?);
            }
            "--picture" => picture = Some(arguments.next().context("--picture needs a file")?),
            "--json" => json = true,
            other => bail!(
                "`{other}` is not known; there are --quick, --json, --on, --at, --growth and --picture"
            ),
        }
    }
    if let Some(most) = most {
        let points = growth::measure(&amount.stores, most)?;
        if let Some(file) = picture {
            std::fs::write(&file, growth::picture(&points)).context(file)?;
        }
        match json {
            true => println!("{}", serde_json::to_string_pretty(&points)?),
            false => print!("{}", growth::table(&points)),
        }
        return Ok(());
    }
    let report = measure(&amount)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", table(&report));
    }
    Ok(())
}

fn store(name: Option<&str>) -> anyhow::Result<Store> {
    match name {
        Some("sqlite") => Ok(Store::Sqlite),
        Some("postgres") => Ok(Store::Postgres),
        _ => bail!("--on needs `sqlite` or `postgres`"),
    }
}
