use std::sync::{Arc, Mutex};

use serde_json::json;

use super::*;

const ON: Term = Term { color: true, interactive: true, width: 60 };

#[track_caller]
fn check_detection(variables: &[(&str, &str)], is_terminal: bool, color: bool, interactive: bool) {
    let variable = |name: &str| {
        variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    };
    let term =
        Term::of(&Environment { variable: &variable, is_terminal, terminal_width: Some(120) });
    assert_eq!((term.color, term.interactive), (color, interactive), "{variables:?}");
}

#[test]
fn the_environment_is_respected() {
    check_detection(&[("TERM", "xterm")], true, true, true);
    check_detection(&[("TERM", "xterm")], false, false, false);
    check_detection(&[("TERM", "dumb")], true, false, false);
    check_detection(&[("NO_COLOR", "1")], true, false, true);
    check_detection(&[("NO_COLOR", "")], true, true, true);
    check_detection(&[("CLICOLOR", "0")], true, false, true);
    check_detection(&[("CLICOLOR_FORCE", "1")], false, true, false);
    check_detection(&[("CLICOLOR_FORCE", "0")], false, false, false);
    check_detection(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false, false, false);
    check_detection(&[("CLICOLOR_FORCE", "1"), ("TERM", "dumb")], true, true, false);
}

#[track_caller]
fn check_width(columns: &str, is_terminal: bool, terminal_width: Option<usize>, width: usize) {
    let variable = |name: &str| (name == "COLUMNS").then(|| columns.to_owned());
    let term = Term::of(&Environment { variable: &variable, is_terminal, terminal_width });
    assert_eq!(term.width, width);
}

#[test]
fn the_width_is_the_terminals_or_the_callers() {
    check_width("", true, Some(120), 120);
    check_width("80", true, Some(120), 120);
    check_width("80", false, Some(120), 80);
    check_width("80", true, None, 80);
    check_width("", false, None, WIDTH_DEFAULT);
    check_width("wide", false, None, WIDTH_DEFAULT);
    check_width("1", false, None, 40);
    check_width("99999", false, None, 1_000);
}

#[test]
fn status_words_have_their_colours() {
    assert_eq!(ON.status("CONFIRMED"), "\u{1b}[32mCONFIRMED\u{1b}[0m");
    assert_eq!(ON.status("UNKNOWN"), "\u{1b}[1m\u{1b}[33mUNKNOWN\u{1b}[0m");
    assert_eq!(ON.status("FAILED"), "\u{1b}[1m\u{1b}[31mFAILED\u{1b}[0m");
    assert_eq!(ON.status("completed"), "\u{1b}[32mcompleted\u{1b}[0m");
    assert_eq!(ON.status("anything"), "anything");
    assert_eq!(Term::plain().status("FAILED"), "FAILED");
}

const COLUMNS: [Column; 3] =
    [Column::id("effect_id"), Column::status("state"), Column::text("note")];

fn rows() -> Vec<Vec<String>> {
    [
        ["eff_a", "CONFIRMED", "refund/run-781/order-42/full-damaged-item"],
        ["eff_bcd", "UNKNOWN", "the connection was reset after the request had left, UNKNOWN"],
    ]
    .map(|row| row.map(str::to_owned).to_vec())
    .to_vec()
}

#[test]
fn off_a_terminal_a_table_is_aligned_lines() {
    assert_eq!(
        Term::plain().table(&COLUMNS, &rows()),
        "effect_id  state      note\n\
         eff_a      CONFIRMED  refund/run-781/order-42/full-damaged-item\n\
         eff_bcd    UNKNOWN    the connection was reset after the request had left, UNKNOWN\n"
    );
    assert_eq!(Term::plain().table(&COLUMNS, &[]), "(none)\n");
}

#[test]
fn on_a_terminal_a_table_fits_and_only_states_are_coloured() {
    let text = ON.table(&COLUMNS, &rows());
    assert!(text.contains("eff_a      \u{1b}[32mCONFIRMED\u{1b}[0m  "), "{text}");
    assert_eq!(text.matches("\u{1b}[33mUNKNOWN").count(), 1, "{text}");
    let bare = Term { color: false, ..ON }.table(&COLUMNS, &rows());
    assert!(bare.lines().count() > 3, "the long text is wrapped: {bare}");
    for line in bare.lines() {
        assert!(line.chars().count() <= 60, "{line}");
        assert!(
            line.chars().all(|c| c == ' ' || c.is_ascii_graphic()),
            "no mark is left: {line:?}"
        );
    }
}

#[test]
fn nothing_from_outside_reaches_the_terminal_as_a_command() {
    let nasty = "a\u{1b}[2Jb\nc\u{202e}d\u{2063}e\u{7}";
    assert_eq!(visible(nasty), r"a\u{1b}[2Jb c\u{202e}d\u{2063}e\u{7}");
    let row = vec![nasty.to_owned(), nasty.to_owned(), nasty.to_owned()];
    let texts = [
        ON.table(&COLUMNS, &[row]),
        ON.status(nasty),
        ON.fields(&[("error", nasty.to_owned())]),
        ON.error(&io::Error::other(nasty), Some(nasty)),
    ];
    for text in texts {
        assert!(!text.contains("\u{1b}[2J") && !text.contains('\u{7}'), "{text:?}");
        assert!(!text.contains('\u{202e}') && !text.contains('\u{2063}'), "{text:?}");
    }
}

#[test]
fn fields_are_aligned() {
    let fields = [("effect_id", "eff_a".to_owned()), ("state", "FAILED".to_owned())];
    assert_eq!(Term::plain().fields(&fields), "effect_id  eff_a\nstate      FAILED\n");
    assert!(ON.fields(&fields).contains("\u{1b}[31mFAILED"));
}

#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Layer {
    text: &'static str,
    #[source]
    source: Option<Box<Layer>>,
}

fn layers(texts: &[&'static str]) -> Layer {
    let (text, rest) = texts.split_first().expect("an error has a text");
    Layer { text, source: (!rest.is_empty()).then(|| Box::new(layers(rest))) }
}

#[track_caller]
fn check_error(texts: &[&'static str], fix: Option<&str>, expected: &str) {
    assert_eq!(Term::plain().error(&layers(texts), fix), expected);
}

#[test]
fn errors_tell_their_causes_and_the_fix() {
    check_error(&["it broke"], None, "error: it broke\n");
    check_error(
        &["cannot open twice.db", "permission denied"],
        Some("run it as the owner of the file"),
        "error: cannot open twice.db\n  caused by: permission denied\nfix: run it as the owner of the file\n",
    );
    check_error(
        &["cannot read: no such file", "no such file", "os error 2"],
        None,
        "error: cannot read: no such file\n  caused by: os error 2\n",
    );
    check_error(&["two\nlines"], None, "error: two\n       lines\n");
}

#[derive(Serialize)]
struct Document {
    zebra: u8,
    apple: serde_json::Value,
}

#[test]
fn json_is_one_document_in_the_order_of_declaration() {
    let mut out = Vec::new();
    write_json(&mut out, &Document { zebra: 1, apple: json!({ "b": "ü\u{1b}", "a": [] }) })
        .unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\n  \"zebra\": 1,\n  \"apple\": {\n    \"a\": [],\n    \"b\": \"ü\\u001b\"\n  }\n}\n"
    );
}

/// A writer whose text can be read afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn off_a_terminal_progress_is_a_line_per_step() {
    let out = Shared::default();
    let mut progress = Term::plain().progress("crashtest", Some(2));
    assert!(matches!(progress.display, Display::Lines(_)));
    progress.display = Display::Lines(Box::new(out.clone()));
    progress.step("after intent: PASS");
    progress.note("one is slow");
    progress.step("after reply: PASS");
    progress.finish();
    assert_eq!(
        String::from_utf8(out.0.lock().unwrap().clone()).unwrap(),
        "crashtest 1/2 after intent: PASS\none is slow\ncrashtest 2/2 after reply: PASS\n"
    );
}

#[test]
fn on_a_terminal_progress_is_a_bar() {
    for steps in [Some(2), None] {
        let mut progress = ON.progress("crashtest", steps);
        progress.step("after intent");
        match &progress.display {
            Display::Bar(bar) => assert_eq!((bar.position(), bar.length()), (1, steps)),
            Display::Lines(_) => panic!("a bar was asked for"),
        }
        progress.finish();
    }
}
