//! Measures what Twice costs on this machine.
//!
//! `cargo run --release -p twice-tests --bin bench -- [--quick] [--json] [--on DATABASE] [--at RUNS] [--growth EFFECTS [--picture FILE]] [--languages]`

use anyhow::{Context as _, bail};
use twice_tests::bench::{Amount, Store, growth, languages, measure, table};
use twice_toolchain::Language;

/// As in the `twice` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    let (mut amount, mut json) = (Amount::full(), false);
    let (mut most, mut picture) = (None, None);
    let (mut by_language, mut quick) = (false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => {
                amount = Amount { stores: amount.stores, ..Amount::quick() };
                quick = true;
            }
            "--languages" => by_language = true,
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
                "`{other}` is not known; there are --quick, --json, --on, --at, --growth, --picture and --languages"
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
    if by_language {
        // An interpreter takes minutes to compile in a build that is not optimised.
        let costs = if quick {
            languages::measure(&[Language::Rust, Language::C], 5, 2)?
        } else {
            languages::measure(&Language::ALL, 1_000, 32)?
        };
        match json {
            true => println!("{}", serde_json::to_string_pretty(&costs)?),
            false => print!("{}", languages::table(&costs)),
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
