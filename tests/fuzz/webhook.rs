//! What anybody posts to an endpoint: headers and a body.

use serde_json::Value;
use twice_core::json::parse;
use twice_core::limits::WEBHOOK_BYTES_MAX;
use twice_core::time::Timestamp;
use twice_core::webhook::{Delivery, Forgery, Meaning, Part, Scheme, reference, verify};
use twice_tests::signed;

use crate::driver::Target;

const SECONDS: u64 = 1_614_265_330;
const NOW: Timestamp = Timestamp(1_614_265_340_000);
const BODY: &str = r#"{"type":"refund.updated","data":{"id":"re_1","reference":"eff_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}"#;

const DICTIONARY: &[&str] = &[
    "webhook-id: ",
    "webhook-timestamp: ",
    "webhook-signature: ",
    "stripe-signature: ",
    "x-hub-signature-256: sha256=",
    "standard\n",
    "stripe\n",
    "github\n",
    "shopify\n",
    "v1,",
    "v1a,",
    "v1=",
    "t=",
    "t=1614265330,",
    ".",
    "1614265330",
    "whsec_",
    "\n",
    "\r\n",
    "\n\n",
    "=",
    ", ",
    " ",
    "evt-1",
];

/// An example that is genuine: its scheme, key, headers and body.
struct Genuine {
    scheme: &'static str,
    key: String,
    headers: Vec<(String, String)>,
    body: &'static str,
}

fn genuine() -> Vec<Genuine> {
    let headers = |headers: &[(&str, &str)]| {
        headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    vec![
        Genuine {
            scheme: "standard",
            key: signed::KEY.to_owned(),
            headers: signed::headers("evt-1", SECONDS, BODY.as_bytes()),
            body: BODY,
        },
        Genuine {
            scheme: "stripe",
            key: "whsec_test_secret".to_owned(),
            headers: headers(&[(
                "stripe-signature",
                "t=1614265330,v1=e135cdbed3dda004bf8a2fb350f2541d299393c770e0b9e6e319dc595e9072aa",
            )]),
            body: r#"{"id":"evt_1"}"#,
        },
        Genuine {
            scheme: "github",
            key: "It's a Secret to Everybody".to_owned(),
            headers: headers(&[(
                "x-hub-signature-256",
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            )]),
            body: "Hello, World!",
        },
        Genuine {
            scheme: "shopify",
            key: "hush-hush".to_owned(),
            headers: headers(&[(
                "x-shopify-hmac-sha256",
                "xP02f1wlCxM/KJVfZiF3TMBIcVH2R36hhxiEfN2oo00=",
            )]),
            body: r#"{"id":1}"#,
        },
    ]
}

/// An input: the scheme's name on a line, the headers, an empty line, the body.
fn written(example: &Genuine) -> Vec<u8> {
    let mut text = format!("{}\n", example.scheme);
    for (name, value) in &example.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    format!("{text}\n{}", example.body).into_bytes()
}

#[test]
fn webhook() {
    let examples = genuine();
    let corpus = examples.iter().map(written).collect();
    let run = move |input: &[u8]| check(&examples, input);
    Target { name: "webhook", corpus, dictionary: DICTIONARY, run: Box::new(run) }.fuzz(40_000);
}

fn check(examples: &[Genuine], input: &[u8]) -> String {
    let split = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
    let (head, body) = (&input[..split], input.get(split + 2..).unwrap_or_default());
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split('\n');
    let name = lines.next().unwrap_or_default();
    let Some(example) = examples.iter().find(|example| example.scheme == name) else {
        return "no scheme".to_owned();
    };
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let scheme = Scheme::named(name).unwrap();
    let delivery = Delivery { headers: &headers, body };
    let keys = [example.key.clone()];
    let found = verify(&scheme, &keys, delivery, NOW);
    match &found {
        // Nobody here has the keys: what is genuine is what was signed, byte for byte.
        Ok(authentic) => {
            assert_eq!(body, example.body.as_bytes(), "another body");
            if scheme.signed.contains(&Part::Timestamp) {
                let sent_at = Timestamp(i64::try_from(SECONDS).unwrap() * 1_000);
                assert_eq!(authentic.sent_at, Some(sent_at), "another time");
            }
            if scheme.signed.contains(&Part::Id) {
                assert_eq!(authentic.id.as_deref(), Some("evt-1"), "another id");
            }
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains(&example.key), "{text}");
            assert!(!matches!(error, Forgery::NoKey | Forgery::BadKey { .. }), "{text}");
        }
    }
    // What is posted is read after it was verified, but must do no harm whoever has signed it.
    let meaning = Meaning {
        reference: "/data/reference".to_owned(),
        object: String::new(),
        succeeded: Vec::new(),
        failed: Vec::new(),
    };
    let event = std::str::from_utf8(body).ok().and_then(|text| parse(text, WEBHOOK_BYTES_MAX).ok());
    let named = event.as_ref().and_then(|event: &Value| reference(&meaning, event));
    let told = found.map_or_else(|error| error.to_string(), |_| "genuine".to_owned());
    format!("{name} {told} {}", named.is_some())
}
