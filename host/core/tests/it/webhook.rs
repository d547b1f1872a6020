//! Events of providers: which are genuine, what they say, and what is made of that.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use twice_core::effect::{Effect, State};
use twice_core::event::{EffectEvent, Observation, Source};
use twice_core::evidence;
use twice_core::outcome::{Declarations, Echo, Verdict};
use twice_core::reconcile::{Next, next};
use twice_core::time::Timestamp;
use twice_core::webhook::{
    Authentic, Delivery, Encoding, Forgery, Judgement, KeyForm, Meaning, Part, Scheme, Stamp,
    UnclearEvent, judge, reference, verify,
};

use crate::fixtures::{
    FENCE, START, apply, authorized, contract, deferred, effect_id, failed, key, proposed, receipt,
    requested, seen, start, unknown,
};

const NOW: Timestamp = Timestamp(1_614_265_340_000);

/// A scheme with a key, headers and a body that are genuine; those of Standard Webhooks and GitHub are the examples of their
/// documentation, the others were signed by another implementation.
struct Example {
    scheme: Scheme,
    key: &'static str,
    headers: Vec<(String, String)>,
    body: &'static [u8],
}

fn example(
    name: &str,
    key: &'static str,
    headers: &[(&str, &str)],
    body: &'static [u8],
) -> Example {
    let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Example {
        scheme: Scheme::named(name).expect("it has a name"),
        key,
        headers: headers.collect(),
        body,
    }
}

fn examples() -> Vec<Example> {
    let standard = |name, family: &str| {
        let headers = [
            (format!("{family}-Id"), "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            (format!("{family}-Timestamp"), "1614265330"),
            (format!("{family}-Signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ];
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        example(name, key, &headers, br#"{"test": 2432232314}"#)
    };
    vec![
        standard("standard", "Webhook"),
        standard("svix", "Svix"),
        example(
            "stripe",
            "whsec_test_secret",
            &[(
                "Stripe-Signature",
                "t=1614265330,v1=e135cdbed3dda004bf8a2fb350f2541d299393c770e0b9e6e319dc595e9072aa,v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39",
            )],
            br#"{"id":"evt_1"}"#,
        ),
        example(
            "github",
            "It's a Secret to Everybody",
            &[(
                "X-Hub-Signature-256",
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            )],
            b"Hello, World!",
        ),
        example(
            "shopify",
            "hush-hush",
            &[("X-Shopify-Hmac-SHA256", "xP02f1wlCxM/KJVfZiF3TMBIcVH2R36hhxiEfN2oo00=")],
            br#"{"id":1}"#,
        ),
    ]
}

impl Example {
    fn verify(&self) -> Result<Authentic, Forgery> {
        self.verify_with(&[self.key])
    }

    fn verify_with(&self, keys: &[&str]) -> Result<Authentic, Forgery> {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        verify(&self.scheme, &keys, Delivery { headers: &self.headers, body: self.body }, NOW)
    }

    fn change(&mut self, header: &str, change: impl FnOnce(&str) -> String) {
        let found = self.headers.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case(header));
        let (_, value) = found.expect("it is there");
        *value = change(value);
    }
}

fn named(name: &str) -> Example {
    let at = Scheme::NAMES.iter().position(|other| *other == name).expect("it has a name");
    examples().remove(at)
}

#[test]
fn what_each_provider_signs_is_genuine() {
    for (example, name) in examples().iter().zip(Scheme::NAMES) {
        assert_eq!(example.scheme, Scheme::named(name).unwrap());
        let found = example.verify().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(found.body_hash.starts_with("sha256:") && found.body_hash.len() == 71);
        let signs_time = matches!(name, "standard" | "svix" | "stripe");
        let sent_at = signs_time.then_some(Timestamp(1_614_265_330_000));
        // What is not signed is not told.
        let signs_id = matches!(name, "standard" | "svix");
        assert_eq!((found.sent_at, found.id.is_some()), (sent_at, signs_id), "{name}");
    }
    assert_eq!(Scheme::named("another"), None);
}

#[test]
fn no_bit_of_what_is_signed_can_be_changed() {
    for (example, name) in examples().iter().zip(Scheme::NAMES) {
        let keys = [example.key.to_owned()];
        let genuine = example.verify().unwrap();
        for at in 0..example.body.len() {
            for bit in 0..8 {
                let mut body = example.body.to_vec();
                body[at] ^= 1 << bit;
                let delivery = Delivery { headers: &example.headers, body: &body };
                let found = verify(&example.scheme, &keys, delivery, NOW);
                assert_eq!(found, Err(Forgery::Forged), "{name}: {at}.{bit}");
            }
        }
        for header in 0..example.headers.len() {
            for at in 0..example.headers[header].1.len() {
                for bit in 0..7 {
                    let mut headers = example.headers.clone();
                    let mut value = headers[header].1.clone().into_bytes();
                    value[at] ^= 1 << bit;
                    headers[header].1 = String::from_utf8(value).unwrap();
                    let delivery = Delivery { headers: &headers, body: example.body };
                    // Nothing else but what is not signed, and other ways to write the same digits, leaves it genuine.
                    if let Ok(found) = verify(&example.scheme, &keys, delivery, NOW) {
                        assert_eq!(found, genuine, "{name}: {headers:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_old_and_a_new_key_are_tried_on_every_signature() {
    for (example, name) in examples().iter().zip(Scheme::NAMES) {
        let other = if example.scheme.key == KeyForm::Base64 {
            "whsec_b3RoZXIgb3RoZXIgb3RoZXI="
        } else {
            "another key"
        };
        assert_eq!(example.verify_with(&[other]), Err(Forgery::Forged), "{name}");
        assert!(example.verify_with(&[other, example.key]).is_ok(), "{name}");
        assert!(example.verify_with(&[example.key, other]).is_ok(), "{name}");
        assert_eq!(example.verify_with(&[]), Err(Forgery::NoKey), "{name}");
    }
    let mut two = named("standard");
    two.change("webhook-signature", |good| {
        let other = good.replace("v1,g0", "v1,h0");
        format!("{other} v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg== {good}")
    });
    assert!(two.verify().is_ok());
}

#[test]
fn headers_that_are_missing_double_or_malformed_are_named() {
    for example in examples() {
        for at in 0..example.headers.len() {
            let mut short = named_like(&example);
            let (name, value) = short.headers.remove(at);
            let header = name.to_ascii_lowercase();
            assert_eq!(short.verify(), Err(Forgery::NoHeader { header: header.clone() }));
            short.headers.extend([(name.clone(), value.clone()), (name.to_uppercase(), value)]);
            assert_eq!(short.verify(), Err(Forgery::HeaderTwice { header }));
        }
    }
    let rows: [(&str, &str, &str, &str); 12] = [
        ("standard", "webhook-id", "", "is no id"),
        ("standard", "webhook-id", "msg_1.1614265330", "is no id"),
        ("standard", "webhook-id", "msg 1", "is no id"),
        ("standard", "webhook-timestamp", "", "has no time"),
        ("standard", "webhook-timestamp", "-1", "has no time"),
        ("standard", "webhook-timestamp", "1614265330.5", "has no time"),
        ("standard", "webhook-timestamp", "1614265330000000000", "has no time"),
        ("standard", "webhook-signature", "", "has no signature"),
        ("standard", "webhook-signature", "v1,AAAA", "has no signature"),
        ("stripe", "stripe-signature", "v1=00", "has no time"),
        ("stripe", "stripe-signature", "t=1,t=2,v1=00", "has no time"),
        ("github", "x-hub-signature-256", "sha1=00", "has no signature"),
    ];
    for (name, header, value, says) in rows {
        let mut example = named(name);
        example.change(header, |_| value.to_owned());
        let error = example.verify().unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(header), "{value}: {error}");
    }
    let mut flood = named("standard");
    flood.change("webhook-signature", |good| format!("{good} ").repeat(17));
    assert!(flood.verify().unwrap_err().to_string().contains("more than 16 signatures"));
}

fn named_like(example: &Example) -> Example {
    Example {
        scheme: example.scheme.clone(),
        key: example.key,
        headers: example.headers.clone(),
        body: example.body,
    }
}

#[test]
fn a_key_that_is_none_is_told_by_its_number_and_not_by_its_value() {
    let example = named("standard");
    assert!(example.verify_with(&[&format!("{}\n", example.key)]).is_ok());
    for key in ["whsec_", "whsec_not base64", "whsec_AAA"] {
        // One of two that is wrong is no reason to turn away what the other one fits.
        assert!(example.verify_with(&[key, example.key]).is_ok());
        let other = "whsec_b3RoZXIgb3RoZXIgb3RoZXI=";
        let error = example.verify_with(&[other, key]).unwrap_err();
        assert_eq!(error, Forgery::BadKey { number: 2 });
        assert!(!error.to_string().contains(key) || key == "whsec_", "{error}");
    }
}

#[test]
fn what_was_sent_in_time_to_come_is_refused_and_what_is_old_is_not() {
    let example = named("stripe");
    let keys = [example.key.to_owned()];
    let at = |now: i64| {
        let delivery = Delivery { headers: &example.headers, body: example.body };
        verify(&example.scheme, &keys, delivery, Timestamp(now))
    };
    let sent = 1_614_265_330_000;
    for now in [sent - 300_000, sent, sent + 30 * 86_400_000] {
        assert!(at(now).is_ok(), "{now}");
    }
    let early = Timestamp(sent - 300_001);
    let future = Forgery::FromTheFuture { sent_at: Timestamp(sent), now: early };
    assert_eq!(at(early.0), Err(future));
}

#[test]
fn a_body_over_the_limit_is_refused_before_it_is_read() {
    let body = vec![b' '; (1 << 20) + 1];
    let scheme = Scheme::named("github").unwrap();
    let found = verify(&scheme, &[], Delivery { headers: &[], body: &body }, NOW);
    assert_eq!(found, Err(Forgery::TooLarge));
}

#[test]
fn what_is_signed_can_be_taken_apart_in_one_way_only() {
    let literal = |text: &str| Part::Literal(text.to_owned());
    let rows = [
        ("{body}", vec![Part::Body]),
        ("{timestamp}.{body}", vec![Part::Timestamp, literal("."), Part::Body]),
        ("v0:{timestamp}:{body}", vec![literal("v0:"), Part::Timestamp, literal(":"), Part::Body]),
        (
            "{id}|{timestamp}|{body}",
            vec![Part::Id, literal("|"), Part::Timestamp, literal("|"), Part::Body],
        ),
    ];
    for (text, parts) in rows {
        assert_eq!(Scheme::signed_parts(text), Some(parts), "{text}");
    }
    for text in [
        "",
        "{timestamp}",
        "{body}.{timestamp}",
        "{timestamp}{body}",
        "{timestamp}1{body}",
        "{id}{timestamp}.{body}",
        "{body}{body}",
        "{id}.{id}.{body}",
        "{other}.{body}",
        "{timestamp.{body}",
        "timestamp}.{body}",
        "{body",
    ] {
        assert_eq!(Scheme::signed_parts(text), None, "{text}");
    }
}

#[test]
fn a_scheme_without_a_name_is_verified_by_what_it_states() {
    let scheme = Scheme {
        signature: "x-slack-signature".to_owned(),
        separator: None,
        prefix: "v0=".to_owned(),
        encoding: Encoding::Hex,
        signed: Scheme::signed_parts("v0:{timestamp}:{body}").unwrap(),
        id: None,
        timestamp: Some(Stamp::Header("x-slack-request-timestamp".to_owned())),
        key: KeyForm::Text,
    };
    // The example of Slack's documentation.
    let body = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    let headers = [
        (
            "X-Slack-Signature".to_owned(),
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503".to_owned(),
        ),
        ("X-Slack-Request-Timestamp".to_owned(), "1531420618".to_owned()),
    ];
    let keys = ["8f742231b10e8888abcd99yyyzzz85a5".to_owned()];
    let found = verify(&scheme, &keys, Delivery { headers: &headers, body }, NOW).unwrap();
    assert_eq!(found.sent_at, Some(Timestamp(1_531_420_618_000)));
}

fn meaning() -> Meaning {
    let at = |pointer: &str, values: &[&str]| {
        (pointer.to_owned(), values.iter().map(|value| json!(value)).collect())
    };
    Meaning {
        reference: "/data/object/metadata/effect_id".to_owned(),
        object: "/data/object".to_owned(),
        succeeded: vec![
            at("/type", &["refund.created", "refund.updated"]),
            at("/data/object/status", &["succeeded"]),
        ],
        failed: vec![at("/type", &["refund.failed"])],
    }
}

fn declarations() -> Declarations {
    Declarations {
        external_id: Some("/id".to_owned()),
        echo: vec![Echo { result: "/amount".to_owned(), args: "/amount_cents".to_owned() }],
        expose: vec!["/id".to_owned()],
        ..Declarations::default()
    }
}

fn event(kind: &str, status: &str) -> Value {
    json!({
        "id": "evt_1", "type": kind,
        "data": { "object": {
            "id": "re_1", "amount": 8200, "status": status, "metadata": { "effect_id": effect_id() },
        } },
    })
}

fn happened() -> Value {
    event("refund.updated", "succeeded")
}

fn refused() -> Value {
    event("refund.failed", "failed")
}

fn authentic() -> Authentic {
    let body_hash = "sha256:00".to_owned();
    Authentic { id: Some("evt_1".to_owned()), sent_at: Some(START), body_hash }
}

fn judged(effect: &Effect, live: bool, event: &Value) -> Result<Judgement, UnclearEvent> {
    judge(effect, live, &meaning(), &declarations(), (&authentic(), event), START.plus_ms(5))
}

fn in_doubt() -> Effect {
    let mut effect = requested(contract(None, None));
    apply(&mut effect, &EffectEvent::Unknown(unknown()), START.plus_ms(1));
    effect
}

#[test]
fn an_outcome_that_is_not_known_is_settled_by_what_the_event_says() {
    let Ok(Judgement::Settles(events)) = judged(&in_doubt(), false, &happened()) else { panic!() };
    let [EffectEvent::Confirmed(receipt)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(receipt.external_id.as_deref(), Some("re_1"));
    assert_eq!(
        (&receipt.exposed, receipt.rule.0.as_str()),
        (&json!({ "id": "re_1" }), "webhook.succeeded")
    );
    assert_eq!((&receipt.result["status"], &receipt.discrepancy), (&json!("succeeded"), &None));
    let source = Source::Callback {
        event: Some("evt_1".to_owned()),
        sent_at: Some(START),
        body_hash: "sha256:00".to_owned(),
    };
    assert_eq!(receipt.source, source);

    let Ok(Judgement::Settles(events)) = judged(&in_doubt(), false, &refused()) else { panic!() };
    let [EffectEvent::Failed(failure)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((failure.code.as_str(), &failure.source), ("refused", &Some(source)));
}

#[test]
fn a_request_whose_worker_vanished_is_unknown_before_it_is_settled() {
    let mut effect = requested(contract(None, None));
    assert_eq!(judged(&effect, true, &happened()), Ok(Judgement::Early));
    let Ok(Judgement::Settles(events)) = judged(&effect, false, &happened()) else { panic!() };
    let [EffectEvent::Unknown(_), EffectEvent::Confirmed(_)] = events.as_slice() else {
        panic!("{events:?}")
    };
    events.iter().for_each(|event| apply(&mut effect, event, START));
    assert_eq!(effect.state, State::Confirmed);
}

#[test]
fn what_happened_otherwise_than_asked_is_held_for_a_person() {
    let mut event = happened();
    event["data"]["object"]["amount"] = json!(8100);
    let mut effect = in_doubt();
    let Ok(Judgement::Settles(events)) = judged(&effect, false, &event) else { panic!() };
    events.iter().for_each(|event| apply(&mut effect, event, START));
    assert_eq!(effect.state, State::Confirmed);
    assert!(effect.hold.is_some(), "{effect:?}");
}

#[test]
fn an_event_about_something_else_or_not_decided_yet_says_nothing() {
    for event in [event("charge.updated", "succeeded"), event("refund.updated", "pending")] {
        assert_eq!(judged(&in_doubt(), false, &event), Ok(Judgement::Nothing));
    }
    let meaning = Meaning { succeeded: Vec::new(), failed: Vec::new(), ..meaning() };
    let told = (&authentic(), &happened());
    let found = judge(&in_doubt(), false, &meaning, &declarations(), told, START);
    assert_eq!(found, Ok(Judgement::Nothing), "no conditions are none that hold");
}

#[test]
fn an_event_that_is_not_clear_settles_nothing() {
    let other = "eff_".to_owned() + &"a".repeat(52);
    let mut elsewhere = happened();
    elsewhere["data"]["object"]["metadata"]["effect_id"] = json!(other);
    let found = judged(&in_doubt(), false, &elsewhere);
    assert_eq!(found, Err(UnclearEvent::Elsewhere(effect_id())));
    assert_eq!(reference(&meaning(), &elsewhere).unwrap().as_str(), other);
    for no_id in [json!("eff_1"), json!(7), json!(null), json!({})] {
        elsewhere["data"]["object"]["metadata"]["effect_id"] = no_id;
        assert_eq!(reference(&meaning(), &elsewhere), None);
    }

    let both = Meaning { failed: vec![("/id".to_owned(), vec![json!("evt_1")])], ..meaning() };
    let told = (&authentic(), &happened());
    let found = judge(&in_doubt(), false, &both, &declarations(), told, START);
    assert_eq!(found, Err(UnclearEvent::Both));

    let lost = Meaning { object: "/data/refund".to_owned(), ..meaning() };
    let found = judge(&in_doubt(), false, &lost, &declarations(), told, START);
    assert_eq!(found, Err(UnclearEvent::NoObject { pointer: "/data/refund".to_owned() }));

    let mut no_id = happened();
    no_id["data"]["object"]["id"] = json!("");
    let found = judged(&in_doubt(), false, &no_id);
    assert!(matches!(found, Err(UnclearEvent::NoExternalId(_))), "{found:?}");
}

#[track_caller]
fn kept(found: Result<Judgement, UnclearEvent>, verdict: Verdict) -> Observation {
    let Ok(Judgement::Evidence(seen)) = found else { panic!("{found:?}") };
    assert_eq!((seen.verdict, seen.external_id.as_deref()), (Some(verdict), Some("re_1")));
    assert!(seen.message.as_ref().is_some_and(|words| words.starts_with("evt_1, sent at ")));
    seen
}

/// An effect that is confirmed, with that id and that difference from what was asked for.
fn confirmed(id: Option<&str>, difference: Option<&str>) -> Effect {
    let mut effect = requested(contract(None, None));
    let mut receipt = receipt();
    receipt.external_id = id.map(str::to_owned);
    receipt.discrepancy = difference.map(str::to_owned);
    apply(&mut effect, &EffectEvent::Confirmed(Box::new(receipt)), START);
    effect
}

#[test]
fn what_is_settled_is_not_settled_again() {
    for id in [Some("re_1"), None] {
        assert_eq!(judged(&confirmed(id, None), false, &happened()), Ok(Judgement::Known));
        kept(judged(&confirmed(id, None), false, &refused()), Verdict::Rejected);
    }
    kept(judged(&confirmed(Some("re_2"), None), false, &happened()), Verdict::Succeeded);

    // The same object, and not the same of it.
    let mut less = happened();
    less["data"]["object"]["amount"] = json!(1);
    let seen = kept(judged(&confirmed(Some("re_1"), None), false, &less), Verdict::Succeeded);
    assert!(seen.message.is_some_and(|words| words.contains("1 where 8200 was asked for")));
    let difference = "`/amount` is 1 where 8200 was asked for";
    let held = confirmed(Some("re_1"), Some(difference));
    assert_eq!(judged(&held, false, &less), Ok(Judgement::Known));
    kept(judged(&held, false, &happened()), Verdict::Succeeded);

    let mut effect = requested(contract(None, None));
    apply(&mut effect, &failed(), START);
    assert_eq!(judged(&effect, false, &refused()), Ok(Judgement::Known));
    let seen = kept(judged(&effect, false, &happened()), Verdict::Succeeded);

    // Once it is kept, the same event says nothing new, whenever it was sent.
    assert!(evidence::against(&effect).is_none());
    apply(&mut effect, &EffectEvent::Observed(seen), START);
    assert!(evidence::against(&effect).is_some());
    let later = Authentic { sent_at: Some(START.plus_ms(9_000)), ..authentic() };
    let told = (&later, &happened());
    let found = judge(&effect, false, &meaning(), &declarations(), told, START);
    assert_eq!(found, Ok(Judgement::Kept));
}

#[test]
fn what_was_never_sent_cannot_have_happened() {
    let mut effect = proposed(contract(None, None));
    assert_eq!(judged(&effect, true, &happened()), Err(UnclearEvent::NeverSent(effect_id())));
    apply(&mut effect, &authorized(), START);
    assert_eq!(judged(&effect, true, &happened()), Err(UnclearEvent::NeverSent(effect_id())));
}

/// Each attempt was taken for one that did nothing; the provider says that one did.
#[test]
fn an_attempt_that_was_taken_for_one_that_did_nothing_is_in_doubt_again() {
    let mut effect = requested(contract(Some(key()), None));
    apply(&mut effect, &deferred(), START);
    assert_eq!(effect.state, State::Authorized);
    let seen = kept(judged(&effect, true, &refused()), Verdict::Rejected);
    let Ok(Judgement::Settles(events)) = judged(&effect, true, &happened()) else { panic!() };
    let mut settled = effect.clone();
    events.iter().for_each(|event| apply(&mut settled, event, START));
    assert_eq!((events.len(), settled.state), (2, State::Confirmed));

    // Whatever it is that says so: nothing is sent before it is explained.
    let now = START.plus_ms(60_000_000);
    assert!(matches!(next(&effect, FENCE, now), Next::Send { attempt: 2 }));
    let happened = Observation { verdict: Some(Verdict::Succeeded), ..seen };
    apply(&mut effect, &EffectEvent::Observed(happened), START);
    let Next::MarkUnknown(reason) = next(&effect, FENCE, now) else { panic!() };
    apply(&mut effect, &EffectEvent::Unknown(reason), now);
    assert_eq!(effect.state, State::Unknown);
}

#[test]
fn a_no_that_may_be_about_an_earlier_attempt_settles_nothing() {
    let at = |effect: &Effect, sent_at: Option<Timestamp>| {
        let authentic = Authentic { sent_at, ..authentic() };
        let told = (&authentic, &refused());
        judge(effect, false, &meaning(), &declarations(), told, START.plus_ms(900_000)).unwrap()
    };
    let settles = |found: Judgement| matches!(found, Judgement::Settles(_));
    let minutes = |count: i64| Some(Timestamp(START.0 + count * 60_000));

    let one = in_doubt();
    for (sent_at, settled) in [(None, true), (minutes(-5), true), (minutes(-6), false)] {
        assert_eq!(settles(at(&one, sent_at)), settled, "{sent_at:?}");
    }
    let mut two = in_doubt();
    apply(&mut two, &start(2), START);
    apply(&mut two, &EffectEvent::Unknown(unknown()), START);
    for (sent_at, settled) in [(None, false), (minutes(4), false), (minutes(5), true)] {
        assert_eq!(settles(at(&two, sent_at)), settled, "{sent_at:?}");
    }

    // A yes is about all of them, and outlives every no.
    assert!(settles(judged(&two, false, &happened()).unwrap()));
    let mut told = in_doubt();
    apply(&mut told, &EffectEvent::Observed(seen(Verdict::Succeeded)), START);
    assert!(!settles(at(&told, minutes(1))));
}

/// Any body, id, time and key.
#[test]
fn what_is_signed_by_the_rules_is_genuine() {
    use proptest::prelude::*;
    let run = |(body, id, seconds, key): (Vec<u8>, String, u32, Vec<u8>)| {
        let scheme = Scheme::named("standard").unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(format!("{id}.{seconds}.").as_bytes());
        mac.update(&body);
        let base64 = data_encoding::BASE64;
        let headers = [
            ("webhook-id".to_owned(), id),
            ("webhook-timestamp".to_owned(), seconds.to_string()),
            (
                "webhook-signature".to_owned(),
                format!("v1,{}", base64.encode(&mac.finalize().into_bytes())),
            ),
        ];
        let keys = [format!("whsec_{}", base64.encode(&key))];
        let delivery = Delivery { headers: &headers, body: &body };
        let now = Timestamp(i64::from(u32::MAX) * 1_000);
        verify(&scheme, &keys, delivery, now).is_ok()
    };
    let bytes = |range| proptest::collection::vec(any::<u8>(), range);
    proptest!(|(body in bytes(0..200), id in "[!-\\-/-~]{1,40}", at in any::<u32>(), key in bytes(1..80))| {
        prop_assert!(run((body, id, at, key)));
    });
}
