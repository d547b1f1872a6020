//! What an effect costs as the ledger grows. It is filled by copying runs within the database, under its constraints and
//! triggers: other ids, the same rows.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::cpu;
use super::instant::InstantTool;
use super::project::Shape;
use super::runs::Bench;
use super::store::{Place, Store};

/// How many effects the cost is taken over at each size.
const SAMPLE: u32 = 4_096;
/// How many runs are under way at a time.
const LANES: u32 = 64;

/// What an effect costs in a ledger of a certain size.
#[derive(Debug, Serialize)]
pub struct Point {
    /// The database.
    pub store: Store,
    /// How many effects the ledger held.
    pub effects: u32,
    /// Time per effect, with 64 runs under way. Microseconds.
    pub us_per_effect: f64,
    /// Processor time of this process per effect. Microseconds.
    pub cpu_us_per_effect: Option<f64>,
}

/// Fills a ledger of each kind up to `most` effects, and takes the cost at every power of ten from a thousand.
///
/// # Errors
/// When a run does not complete.
pub fn measure(stores: &[Store], most: u32) -> anyhow::Result<Vec<Point>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut points = Vec::new();
    for store in stores {
        points.extend(runtime.block_on(of_store(*store, most))?);
    }
    Ok(points)
}

async fn of_store(store: Store, most: u32) -> anyhow::Result<Vec<Point>> {
    let bench = Bench::new()?;
    let place = Place::new(store)?;
    let rig = Arc::new(bench.rig(Shape::Many, &place, 1, InstantTool::answering()).await?);
    let mut points = Vec::new();
    let (mut runs, mut mark) = (0, 1_000);
    // The first runs are copied, so many times.
    let (mut pattern, mut copies) = (0, 0);
    while mark <= most {
        if runs == 0 {
            let first = mark / Shape::Many.effects();
            Arc::clone(&rig).run_all(LANES, 0, first).await?;
            runs = first;
            pattern = first;
        } else {
            let held = (runs + copies * pattern) * Shape::Many.effects();
            let more = mark.saturating_sub(held) / (pattern * Shape::Many.effects());
            place.copy_runs(copies, copies + more).await?;
            copies += more;
        }
        let held = (runs + copies * pattern) * Shape::Many.effects();
        let (cpu_before, begun) = (cpu::used_us(), Instant::now());
        let sampled = runs + SAMPLE / Shape::Many.effects();
        Arc::clone(&rig).run_all(LANES, runs, sampled).await?;
        runs = sampled;
        let took = begun.elapsed().as_secs_f64() * 1e6;
        let cpu = cpu::used_us().zip(cpu_before).map(|(after, before)| after - before);
        points.push(Point {
            store,
            effects: held,
            us_per_effect: took / f64::from(SAMPLE),
            cpu_us_per_effect: cpu.map(|us| us / f64::from(SAMPLE)),
        });
        mark *= 10;
    }
    rig.close().await;
    Ok(points)
}

/// The points as a table.
#[must_use]
pub fn table(points: &[Point]) -> String {
    let mut out =
        format!("{:<10}{:>12}{:>12}{:>16}\n", "database", "effects", "us/effect", "cpu us/effect");
    for point in points {
        let cpu = point.cpu_us_per_effect.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
        let _ = writeln!(
            out,
            "{:<10}{:>12}{:>12.0}{cpu:>16}",
            point.store.to_string(),
            point.effects,
            point.us_per_effect
        );
    }
    out
}

/// The points as a picture: processor time (where it is told) over the size of the ledger.
#[must_use]
pub fn picture(points: &[Point]) -> String {
    let cost = |point: &Point| point.cpu_us_per_effect.unwrap_or(point.us_per_effect);
    let highest = points.iter().map(cost).fold(1.0, f64::max);
    let step = 10_f64.powf(highest.log10().floor()) / 2.0;
    let top = (highest * 1.1 / step).ceil() * step;
    let largest = points.iter().map(|point| f64::from(point.effects)).fold(1e4, f64::max);
    let x = |effects: f64| 70.0 + 520.0 * (effects.log10() - 2.9) / (largest.log10() - 2.8);
    let y = |us: f64| 260.0 - 220.0 * us / top;
    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 320\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"640\" height=\"320\" fill=\"white\"/>\n\
         <text x=\"70\" y=\"22\">processor time per effect, microseconds</text>\n\
         <text x=\"330\" y=\"308\" text-anchor=\"middle\">effects in the ledger</text>\n",
    );
    let mut level = 0.0;
    while level <= top {
        let _ = writeln!(
            out,
            "<path d=\"M70 {0:.1}H600\" stroke=\"#ddd\"/><text x=\"62\" y=\"{1:.1}\" text-anchor=\"end\">{level:.0}</text>",
            y(level),
            y(level) + 4.0
        );
        level += step;
    }
    for (label, effects) in [("1,000", 1e3), ("10,000", 1e4), ("100,000", 1e5), ("1,000,000", 1e6)]
    {
        if effects <= largest * 1.5 {
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"282\" text-anchor=\"middle\">{label}</text>",
                x(effects)
            );
        }
    }
    for (store, colour, row) in [(Store::Sqlite, "#1f6feb", 0.0), (Store::Postgres, "#d1570b", 1.0)]
    {
        let of_store: Vec<&Point> = points.iter().filter(|point| point.store == store).collect();
        if of_store.is_empty() {
            continue;
        }
        let places: Vec<(f64, f64)> =
            of_store.iter().map(|point| (x(f64::from(point.effects)), y(cost(point)))).collect();
        let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for (x, y) in places {
            let _ =
                writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let note =
            if store == Store::Postgres { "postgres (without the server's own)" } else { "sqlite" };
        let _ = writeln!(
            out,
            "<text x=\"380\" y=\"{:.0}\" fill=\"{colour}\">{note}</text>",
            22.0 + 16.0 * row
        );
    }
    out.push_str("</svg>\n");
    out
}
