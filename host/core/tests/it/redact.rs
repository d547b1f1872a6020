use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use proptest::prelude::*;
use serde_json::{Value, json};
use twice_core::redact::{Redactor, SecretTooShort};

const SECRET: &str = "sk_live_4\"x/?+ü&z=";

fn redactor(secret: &str) -> Redactor {
    let mut redactor = Redactor::default();
    redactor.add(secret).expect("long enough");
    redactor
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(redactor(SECRET).text(text), expected);
}

fn percent(text: &str, every: bool) -> String {
    let plain = |byte: u8| !every && (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    text.bytes()
        .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

#[test]
fn takes_out_every_form() {
    check("nothing here", "nothing here");
    check(&format!("Bearer {SECRET}."), "Bearer [secret].");
    check(&format!("{SECRET}{SECRET}"), "[secret]");
    check(&format!("{SECRET} {SECRET}"), "[secret] [secret]");
    check(&format!("?k={}&n=1", percent(SECRET, false)), "?k=[secret]&n=1");
    check(&format!("?k={}&n=1", percent(SECRET, false).to_lowercase()), "?k=[secret]&n=1");
    check(&percent(SECRET, true), "[secret]");
    check(&HEXLOWER.encode(SECRET.as_bytes()), "[secret]");
    check(&format!("0x{}", HEXUPPER.encode(SECRET.as_bytes())), "0x[secret]");
    let json = serde_json::to_string(SECRET).expect("a string");
    check(&format!("{{\"a\":{json}}}"), "{\"a\":\"[secret]\"}");
    let ascii: String = SECRET.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
    check(&ascii, "[secret]");
    check(&SECRET.replace('/', "\\/"), "[secret]");
}

#[test]
fn takes_out_base64_at_every_alignment() {
    for before in ["", "u", "us", "user", "user:", "a longer user name:"] {
        for after in ["", ":", ":x", ":xy", " and more"] {
            let whole = format!("{before}{SECRET}{after}");
            for encoding in [BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD] {
                let encoded = encoding.encode(whole.as_bytes());
                let clean = redactor(SECRET).text(&format!("Basic {encoded}"));
                assert!(clean.contains("[secret]"), "{whole}: {clean}");
                // What is left decodes to what stood around the secret, and to no byte of it.
                let left = clean.trim_start_matches("Basic ").split("[secret]").next();
                let left = left.expect("a first part").len();
                assert!(left <= before.len() * 8 / 6, "{whole}: {clean}");
                let in_url = redactor(SECRET).text(&percent(&encoded, false));
                assert!(in_url.contains("[secret]"), "{whole}: {in_url}");
            }
        }
    }
}

#[test]
fn space_in_a_secret_may_be_a_plus() {
    let redactor = redactor("open sesame now");
    assert_eq!(redactor.text("q=open+sesame%20now"), "q=[secret]");
}

#[test]
fn a_secret_full_of_escapes_is_found_as_it_is_and_escaped() {
    for secret in ["%25%25%25%", "\\\\n\\\\n\\", "%41%41%41", "100%+100%"] {
        let redactor = redactor(secret);
        assert_eq!(redactor.text(secret), "[secret]");
        assert_eq!(redactor.text(&percent(secret, false)), "[secret]");
        let json = serde_json::to_string(secret).expect("a string");
        assert_eq!(redactor.text(&json), "\"[secret]\"");
    }
}

#[test]
fn space_around_a_secret_does_not_count() {
    assert_eq!(redactor(" hunter22\n").text("pw=hunter22;"), "pw=[secret];");
}

#[test]
fn overlapping_secrets_leave_nothing() {
    let mut redactor = redactor("abcdef");
    redactor.add("defghi").expect("long enough");
    redactor.add("abcdefghijkl").expect("long enough");
    assert_eq!(redactor.text("-abcdefghi-"), "-[secret]-");
    assert_eq!(redactor.text("-abcdefghijkl-"), "-[secret]-");
}

#[test]
fn short_secrets_are_refused() {
    let mut redactor = Redactor::default();
    for (secret, chars) in [("", 0), ("abcde", 5), ("  abcde\n", 5), ("ééééé", 5)] {
        let error = redactor.add(secret).expect_err("too short");
        assert_eq!(error, SecretTooShort { chars });
    }
    assert_eq!(redactor.text("abcde"), "abcde");
    assert_eq!(
        SecretTooShort { chars: 5 }.to_string(),
        "a secret of 5 characters is too short to be kept out of logs; use one of at least 6"
    );
    redactor.add("abcdef").expect("just long enough");
}

#[test]
fn adding_again_changes_nothing() {
    let mut redactor = Redactor::default();
    for _ in 0..1_000 {
        redactor.add(SECRET).expect("long enough");
    }
    assert_eq!(format!("{redactor:?}"), "Redactor { secrets: 1, .. }");
}

#[test]
fn takes_secrets_out_of_values() {
    let mut redactor = redactor("hunter22");
    redactor.add("12345678").expect("long enough");
    let mut value = json!({
        "plain": ["a", 1, null, true],
        "key hunter22": { "deep": ["x hunter22 y"] },
        "key [secret]": 1,
        "key aHVudGVyMjI": 2,
        "pin": 12_345_678,
        "long": 9_123_456_781_i64,
    });
    assert!(redactor.finds_in(&value));
    redactor.value(&mut value);
    assert!(!redactor.finds_in(&value));
    assert_eq!(
        value,
        json!({
            "plain": ["a", 1, null, true],
            "key [secret]2": 2,
            "key [secret]3": { "deep": ["x [secret] y"] },
            "key [secret]": 1,
            "pin": "[secret]",
            "long": "9[secret]1",
        })
    );
    assert!(redactor.finds_in(&json!([{ "a": { "hunter22": 1 } }])));
    assert!(redactor.finds_in(&json!([12_345_678])));
    assert!(!redactor.finds_in(&json!([{ "a": { "hunter2": 1_234_567 } }])));
}

#[test]
fn the_mark_itself_is_not_taken_for_a_secret() {
    let redactor = redactor("secret");
    assert_eq!(redactor.text("my secret"), "my [secret]");
    assert_eq!(redactor.text("my [secret]"), "my [secret]");
    assert!(!redactor.finds_in(&json!("my [secret]")));
}

#[test]
fn without_secrets_nothing_changes() {
    let mut value = json!({ "a": ["%41+\\n", 1] });
    Redactor::default().value(&mut value);
    assert_eq!(value, json!({ "a": ["%41+\\n", 1] }));
}

proptest! {
    #[test]
    fn no_form_survives(
        secret in "[ -~é€😀]{6,24}", before in "[ -~é]{0,9}", after in "[ -~é]{0,9}",
    ) {
        prop_assume!(secret.trim().chars().count() >= 6);
        let redactor = redactor(&secret);
        let secret = secret.trim();
        let whole = format!("{before}{secret}{after}");
        let forms = [
            whole.clone(),
            percent(&whole, false),
            percent(&whole, true),
            serde_json::to_string(&whole).expect("a string"),
            HEXLOWER.encode(whole.as_bytes()),
            BASE64.encode(whole.as_bytes()),
            BASE64URL_NOPAD.encode(whole.as_bytes()),
        ];
        for form in forms {
            let clean = redactor.text(&form);
            prop_assert!(redactor.finds_in_text(&form), "{}", form);
            prop_assert!(!clean.contains(secret) || "[secret]".contains(secret), "{}", clean);
            let mut value = Value::String(form);
            redactor.value(&mut value);
            prop_assert_eq!(value, Value::String(clean));
        }
    }

    #[test]
    fn never_panics(secret in "\\PC{6,12}", text in any::<String>()) {
        let mut redactor = Redactor::default();
        let _ = redactor.add(&secret);
        let _ = redactor.text(&text);
    }
}
