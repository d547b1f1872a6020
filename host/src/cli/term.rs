//! Output helpers (to be replaced).

use serde::Serialize;

#[derive(Clone)]
pub struct Term;
pub struct Busy;
impl Term {
    pub fn detect() -> Self { Self }
    pub fn line(&self, text: &str) { println!("{text}"); }
    pub fn title(&self, text: &str) { println!("\n{text}\n"); }
    pub fn warn(&self, text: &str) { eprintln!("warning: {text}"); }
    pub fn error(&self, error: &anyhow::Error) { eprintln!("error: {error:#}"); }
    pub fn json(&self, value: &impl Serialize) { println!("{}", serde_json::to_string_pretty(value).expect("x")); }
    pub fn state(&self, word: &str) -> String { word.to_owned() }
    pub fn table(&self, headers: &[&str], rows: Vec<Vec<String>>) { println!("{}", headers.join("  ")); for r in rows { println!("{}", r.join("  ")); } }
    pub fn busy(&self, text: &str) -> Busy { println!("{text}"); Busy }
}
