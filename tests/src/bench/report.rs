//! The report as a plain table.

use super::{Case, Report};

/// One column: its heading and what stands in it.
type Column = (&'static str, fn(&Case) -> String);

const COLUMNS: [Column; 15] = [
    ("database", |case| case.store.to_string()),
    ("run", |case| case.shape.to_owned()),
    ("workers", |case| case.workers.to_string()),
    ("at once", |case| case.concurrent_runs.to_string()),
    ("effects/s", |case| format!("{:.0}", case.effects_per_second)),
    ("steps/s", |case| format!("{:.0}", case.steps_per_second)),
    ("commits/effect", |case| format!("{:.3}", case.commits_per_effect)),
    ("bytes/effect", |case| format!("{:.0}", case.bytes_per_effect)),
    ("entries/effect", |case| format!("{:.2}", case.entries_per_effect)),
    ("p50 ms", |case| format!("{:.2}", case.run_p50_ms)),
    ("p99 ms", |case| format!("{:.2}", case.run_p99_ms)),
    ("cpu us/effect", |case| microseconds(case.cpu_us_per_effect)),
    ("limit effects/s", |case| format!("{:.0}", case.limit.effects_per_second)),
    ("limit cpu us", |case| microseconds(case.limit.cpu_us_per_effect)),
    ("of limit", |case| format!("{:.2}", case.ratio_to_limit)),
];

fn microseconds(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"))
}

fn kibibytes(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1} KiB", bytes / 1024.0))
}

/// The report for people.
#[must_use]
pub fn table(report: &Report) -> String {
    let call = &report.call;
    let single = &report.single_commit;
    let mut out = format!(
        "processors: {}\n\
         call of the refund node ({} calls): median {:.1} us, p99 {:.1} us\n\
         commit of one row ({} commits): {:.0} per second, median {:.0} us, p99 {:.0} us\n",
        report.processors,
        call.calls,
        call.median_us,
        call.p99_us,
        single.commits,
        single.per_second,
        single.median_us,
        single.p99_us,
    );
    let memory = &report.memory;
    out += &format!(
        "memory of a run: under way {} ({} runs), parked {} ({} runs)\n\n",
        kibibytes(memory.bytes_per_active_run),
        memory.active_runs,
        kibibytes(memory.bytes_per_parked_run),
        memory.parked_runs,
    );
    let mut lines = vec![COLUMNS.map(|(heading, _)| heading.to_owned())];
    lines.extend(report.cases.iter().map(|case| COLUMNS.map(|(_, cell)| cell(case))));
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].len()).max().unwrap_or_default()
    });
    for line in lines {
        for (index, (cell, width)) in line.iter().zip(widths).enumerate() {
            out +=
                &if index < 2 { format!("{cell:<width$}  ") } else { format!("{cell:>width$}  ") };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}
