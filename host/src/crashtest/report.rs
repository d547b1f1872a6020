//! The result of a test, for people, scripts and CI. Field names of the JSON are promises.

use std::fmt::Write as _;

use serde_json::{Value, json};
use twice_core::run::RunState;

use super::case::Outcome;
use super::checks::{Baseline, Checks, check};
use super::findings::{Finding, Severity};
use super::spec::Place;
use super::undisturbed;

/// The result of a test.
#[derive(Debug, Clone)]
pub struct Report {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u32,
    /// How many effects the undisturbed run leads to.
    pub effects: usize,
    /// Time between a crash and the resume. Milliseconds.
    pub pause_ms: u64,
    /// Every case, in the order of the boundaries.
    pub cases: Vec<CaseReport>,
    /// Places that the workflow does not reach with this input.
    pub not_reached: Vec<Place>,
    /// Places that are passed so often that not every passing was tried.
    pub cut_short: Vec<CutShort>,
    /// What the author should know, the worst first.
    pub findings: Vec<Finding>,
    /// How long the test took. Milliseconds.
    pub took_ms: u64,
}

/// A place that is passed more often than is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutShort {
    /// The place.
    pub place: Place,
    /// How often the undisturbed run passes it.
    pub passings: u32,
    /// How many of these were tried, from the first.
    pub tried: u32,
}

/// The result of a case.
#[derive(Debug, Clone)]
pub struct CaseReport {
    /// Where the last crash fell; none in the undisturbed run.
    pub place: Option<Place>,
    /// At which passing.
    pub occurrence: Option<u32>,
    /// What befell the worker.
    pub action: String,
    /// Whether it came to that.
    pub reached: bool,
    /// The checks.
    pub checks: Checks,
    /// How the run stands in the end.
    pub run_state: Option<RunState>,
    /// Why the run needs a person, when it does.
    pub person: Option<String>,
    /// Why the run does not do its work even undisturbed, if it does not; nothing else was tried then.
    pub broken: Option<String>,
    /// Real time of the resume, its process included. Milliseconds.
    pub recovery_ms: u64,
    /// Time that went by for the run itself. Milliseconds.
    pub waited_ms: u64,
}

/// What the whole test says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything holds.
    Holds,
    /// Everything holds, and some case needs a person.
    NeedsPerson,
    /// Something does not hold.
    Violated,
}

impl Verdict {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::NeedsPerson => "needs_person",
            Self::Violated => "violated",
        }
    }
}

impl CaseReport {
    pub(super) fn of(outcome: &Outcome, baseline: &Baseline) -> Self {
        let run = outcome.again.0.run.as_ref();
        let halted = outcome.again.0.needs_person();
        Self {
            place: outcome.spec.place(),
            occurrence: outcome.spec.occurrence(),
            action: outcome.spec.action(),
            reached: outcome.reached,
            checks: check(outcome, baseline),
            run_state: run.map(|run| run.state),
            person: halted.map(|run| run.reason.clone().unwrap_or_default()),
            broken: undisturbed::broken(outcome, baseline).map(|broken| broken.message),
            recovery_ms: outcome.recovery_ms,
            waited_ms: outcome.waited_ms,
        }
    }

    /// Whether nothing speaks against it.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken.is_none() && self.checks.hold()
    }

    /// The place's name, or that there was no crash.
    #[must_use]
    pub fn boundary(&self) -> &'static str {
        self.place.map_or("undisturbed", Place::as_str)
    }

    /// The case in a few words.
    #[must_use]
    pub fn title(&self) -> String {
        match self.occurrence {
            Some(occurrence) => format!("{} {occurrence}, {}", self.boundary(), self.action),
            None => self.boundary().to_owned(),
        }
    }

    /// In one word: `held`, `violated`, `skipped`, or `person` when it holds and needs one.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.reached, self.holds(), &self.person) {
            (false, _, _) => "skipped",
            (true, false, _) => "violated",
            (true, true, Some(_)) => "person",
            (true, true, None) => "held",
        }
    }

    /// How the run stands, in one word.
    #[must_use]
    pub fn run_word(&self) -> &'static str {
        self.run_state.map_or("absent", RunState::as_str)
    }

    fn json(&self) -> Value {
        let checks: serde_json::Map<String, Value> = self
            .checks
            .all()
            .into_iter()
            .map(|(name, check)| {
                let check = json!({ "result": check.as_str(), "reasons": check.reasons() });
                (name.to_owned(), check)
            })
            .collect();
        json!({
            "boundary": self.boundary(),
            "occurrence": self.occurrence,
            "action": self.action,
            "result": self.word(),
            "checks": checks,
            "run_state": self.run_word(),
            "person": self.person,
            "broken": self.broken,
            "recovery_ms": self.recovery_ms,
            "waited_ms": self.waited_ms,
        })
    }
}

impl Report {
    /// What the test says as a whole. A case that did not come about proves nothing, and is a violation by its finding, unless
    /// steps ran beside each other.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let violated = self.cases.iter().any(|case| case.reached && !case.holds())
            || self.findings.iter().any(|finding| finding.severity == Severity::Violation);
        let person = self.cases.iter().any(|case| case.person.is_some());
        match (violated, person) {
            (true, _) => Verdict::Violated,
            (false, true) => Verdict::NeedsPerson,
            (false, false) => Verdict::Holds,
        }
    }

    /// Why nothing could be tested, if nothing could.
    #[must_use]
    pub fn broken(&self) -> Option<&Finding> {
        let case = self.cases.iter().find(|case| case.broken.is_some())?;
        self.findings.iter().find(|finding| Some(&finding.message) == case.broken.as_ref())
    }

    /// As one JSON document.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "severity": finding.severity.as_str(),
                    "kind": finding.kind,
                    "about": finding.about,
                    "message": finding.message,
                    "fix": finding.fix,
                    "seen_in": finding.seen_in,
                })
            })
            .collect();
        let cut_short: Vec<Value> = self
            .cut_short
            .iter()
            .map(|cut| {
                let CutShort { place, passings, tried } = cut;
                json!({ "boundary": place.as_str(), "passings": passings, "tried": tried })
            })
            .collect();
        json!({
            "workflow": self.workflow,
            "version": self.version,
            "verdict": self.verdict().as_str(),
            "effects": self.effects,
            "pause_ms": self.pause_ms,
            "took_ms": self.took_ms,
            "cases": self.cases.iter().map(CaseReport::json).collect::<Vec<_>>(),
            "not_reached": self.not_reached.iter().map(|place| place.as_str()).collect::<Vec<_>>(),
            "cut_short": cut_short,
            "findings": findings,
        })
    }

    /// As a JUnit document: a test case for each case, findings beside them.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let failures = self.cases.iter().filter(|case| !case.holds()).count();
        let skipped = self.cases.iter().filter(|case| !case.reached).count();
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let name = escaped(&format!("crashtest {}", self.workflow));
        let (tests, seconds) = (self.cases.len(), seconds(self.took_ms));
        let counts = format!(
            "tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{seconds}\""
        );
        // Writing to a string does not fail.
        let _ = writeln!(xml, "<testsuites {counts}>\n<testsuite name=\"{name}\" {counts}>");
        for case in &self.cases {
            self.junit_case(case, &mut xml);
        }
        let said: Vec<String> = self.findings.iter().map(in_words).collect();
        let _ = writeln!(xml, "<system-out>{}</system-out>", escaped(&said.join("\n\n")));
        xml.push_str("</testsuite>\n</testsuites>\n");
        xml
    }

    fn junit_case(&self, case: &CaseReport, xml: &mut String) {
        let class = escaped(&format!("crashtest.{}.{}", self.workflow, case.boundary()));
        let (title, time) = (escaped(&case.title()), seconds(case.recovery_ms));
        let _ = write!(xml, "<testcase classname=\"{class}\" name=\"{title}\" time=\"{time}\">");
        let checks = case.checks.all().into_iter();
        let violated = checks
            .flat_map(|(name, check)| check.reasons().iter().map(move |r| format!("{name}: {r}")));
        let reasons: Vec<String> = case.broken.iter().cloned().chain(violated).collect();
        if let Some(first) = reasons.first() {
            let (first, all) = (escaped(first), escaped(&reasons.join("\n")));
            let _ = write!(xml, "<failure message=\"{first}\">{all}</failure>");
        } else if !case.reached {
            xml.push_str("<skipped message=\"the worker did not get there\"/>");
        } else if let Some(why) = &case.person {
            let _ = write!(xml, "<system-out>needs a person: {}</system-out>", escaped(why));
        }
        xml.push_str("</testcase>\n");
    }
}

/// A finding as text.
#[must_use]
fn in_words(finding: &Finding) -> String {
    format!(
        "{}: {}\nfix: {}\nfirst seen: {}",
        finding.severity.as_str(),
        finding.message,
        finding.fix,
        finding.seen_in
    )
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}

/// Text as XML 1.0 can hold it; characters that it cannot hold at all are replaced.
fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\n' => xml.push('\n'),
            '\t' | '\r' => xml.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => xml.push('\u{fffd}'),
            c => xml.push(c),
        }
    }
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_is_escaped() {
        assert_eq!(
            escaped("a<b & \"c\"\u{1b}[0m>\n"),
            "a&lt;b &amp; &quot;c&quot;\u{fffd}[0m&gt;\n"
        );
    }
}
