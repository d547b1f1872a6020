//! What a provider posts by itself settles what is not known, and nothing else.

use std::fs;
use std::thread;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};
use twice_provider_sim::{Fault, Switch};
use twice_tests::project::{Project, Provider, Ran};
use twice_tests::signed;

use super::shop::{SCRIPTED, check_resumed_again, check_settled, history, script, shop, start};

const RUN: &str = "run-1";
/// A time long ago.
const SENT: u64 = 1_614_265_330;
/// A time that has not come.
const FUTURE: u64 = 4_000_000_000;

const WEBHOOK: &str = r#"
[webhook]
scheme = "standard"
secrets = ["env:MAIL_WEBHOOK_KEY"]
"#;

const MEANING: &str = r#"
[operation.send.webhook]
reference = "/data/reference"
object = "/data"
succeeded = { "/type" = ["message.delivered"] }
failed = { "/type" = ["message.rejected"] }
"#;

/// A shop whose mail service, which honours no key and cannot be asked, posts what became of its messages.
fn posting_shop(provider: &Provider) -> Project {
    let project = shop(provider).with_env("MAIL_WEBHOOK_KEY", signed::KEY);
    project.edit("tools/mail.toml", "\n[operation.send]", &format!("{WEBHOOK}\n[operation.send]"));
    project.edit(
        "tools/mail.toml",
        "\n[operation.send.response]",
        &format!("{MEANING}\n[operation.send.response]"),
    );
    project
}

fn mail() -> Vec<String> {
    let mail = json!({
        "do": "request", "slot": "mail", "must": true,
        "args": { "to": "ada@example.com", "subject": "Your refund", "text": "It is on its way." },
    });
    start(SCRIPTED, &script("order-1", &json!([mail])), RUN)
}

/// A mail that was sent, whose answer was lost.
fn in_doubt(provider: &Provider) -> (Project, String) {
    in_doubt_at(provider, posting_shop(provider))
}

fn in_doubt_at(provider: &Provider, project: Project) -> (Project, String) {
    provider.switch([Switch::new(Fault::CommitThenDrop).times(1)]);
    let ran = project.twice(&mail());
    assert_eq!(ran.code, Some(4), "{ran}");
    assert!(
        ran.stdout.contains("or its provider's event tells: `twice webhooks accept mail`"),
        "{ran}"
    );
    let effect = project.effects(RUN).remove(0);
    assert_eq!(effect["state"], "UNKNOWN", "{effect:#}");
    (project, effect["effect_id"].as_str().unwrap().to_owned())
}

fn event(kind: &str, effect: &str) -> Value {
    json!({ "type": kind, "data": { "id": "msg_77", "reference": effect, "to": "ada@example.com" } })
}

/// Hands an event over as an endpoint would: the headers and the body in files. Each in a file of its own, so that several can be
/// handed over at once.
fn hand_over(project: &Project, id: &str, event: &Value, more: &[&str]) -> Ran {
    let body = event.to_string();
    let headers = signed::headers(id, today(project), body.as_bytes());
    hand_over_raw(project, id, &headers, &body, more)
}

/// Some seconds ago.
fn today(project: &Project) -> u64 {
    let made = fs::metadata(project.root().join("twice.toml")).unwrap().modified().unwrap();
    made.duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn hand_over_raw(
    project: &Project,
    id: &str,
    headers: &[(String, String)],
    body: &str,
    more: &[&str],
) -> Ran {
    let lines: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let (head, file) = (format!("{id}.headers"), format!("{id}.body"));
    project.write(&head, lines.concat());
    project.write(&file, body);
    let args = ["webhooks", "accept", "mail", "--headers", &head, "--body", &file];
    let ran = project.twice(&[&args[..], more].concat());
    assert!(!ran.to_string().contains(signed::KEY), "{ran}");
    ran
}

#[test]
fn a_mail_whose_answer_was_lost_is_settled_by_the_provider_s_event() {
    let provider = Provider::start();
    let (project, id) = in_doubt(&provider);
    let before = project.run(RUN);

    let delivered = event("message.delivered", &id);
    let body = delivered.to_string();
    let genuine = signed::headers("evt-1", SENT, body.as_bytes());
    let mut forged = genuine.clone();
    forged[0].1 = "evt-2".to_owned();
    for (headers, body, says) in [
        (&forged[..], body.as_str(), "none of its signatures"),
        (&genuine[..], &body.replace("msg_77", "msg_78"), "none of its signatures"),
        (&genuine[..2], &body, "no header `webhook-signature`"),
    ] {
        let ran = hand_over_raw(&project, "forged", headers, body, &[]);
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.stderr.contains(says) && ran.stderr.contains("nothing was recorded"), "{ran}");
    }
    for about_nothing in [json!({ "type": "account.updated" }), event("message.queued", &id)] {
        let ran = hand_over(&project, "nothing", &about_nothing, &[]);
        assert_eq!(ran.code, Some(0), "{ran}");
        assert!(ran.stdout.contains("nothing was recorded"), "{ran}");
    }
    let stranger = format!("eff_{}", "a".repeat(52));
    let ran = hand_over(&project, "else", &event("message.delivered", &stranger), &["--json"]);
    assert_eq!((ran.code, &ran.json()["event"]), (Some(0), &json!("elsewhere")));
    assert_eq!(project.run(RUN), before);

    let ran = hand_over(&project, "evt-1", &delivered, &["--json"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    let told = json!({
        "event": "settled", "effect_id": id, "run_id": RUN, "state": "CONFIRMED", "held": false,
    });
    assert_eq!(ran.json(), told);
    let receipt = &project.effects(RUN)[0]["external_receipt"];
    assert_eq!(
        (&receipt["external_id"], &receipt["exposed"], &receipt["rule"]),
        (&json!("msg_77"), &json!({ "id": "msg_77" }), &json!("webhook.succeeded"))
    );
    let source = &receipt["source"];
    assert_eq!((&source["by"], &source["event"]), (&json!("callback"), &json!("evt-1")));

    project.ok(&["runs", "resume", RUN]);
    check_settled(&project, RUN);
    check_resumed_again(&project, &provider, RUN);
    assert_eq!(provider.requests("message"), 1);

    // The provider posts again what it is not sure that we have.
    let after = project.run(RUN);
    let ran = hand_over(&project, "evt-1", &delivered, &[]);
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(
        ran.stdout.contains("CONFIRMED, as the event says; nothing was recorded anew"),
        "{ran}"
    );
    assert_eq!(project.run(RUN), after);
    let ledger = fs::read(project.root().join("twice.db")).unwrap();
    let key = signed::KEY.as_bytes();
    assert!(!ledger.windows(key.len()).any(|bytes| bytes == key), "the key is in the ledger");
}

#[test]
fn a_mail_that_the_provider_did_not_deliver_is_settled_as_failed() {
    let provider = Provider::start();
    let (project, id) = in_doubt(&provider);
    let rejected = event("message.rejected", &id);
    // Before there was a request nothing can have been refused of it.
    let headers = signed::headers("evt-0", SENT, rejected.to_string().as_bytes());
    let ran = hand_over_raw(&project, "evt-0", &headers, &rejected.to_string(), &[]);
    assert!(ran.stdout.contains("is UNKNOWN; what the event says is not applied"), "{ran}");
    let ran = hand_over(&project, "evt-1", &rejected, &[]);
    assert!(ran.stdout.contains("is FAILED, by the provider's event"), "{ran}");
    let ran = project.twice(&["runs", "resume", RUN]);
    assert_eq!(ran.code, Some(3), "{ran}");
    let effect = project.effects(RUN).remove(0);
    assert_eq!(
        (&effect["state"], &effect["failure"]["rule"]),
        (&json!("FAILED"), &json!("webhook.failed"))
    );
    assert_eq!(provider.requests("message"), 1);
}

#[test]
fn an_event_that_comes_before_the_answer_is_to_be_handed_over_again() {
    let provider = Provider::start();
    provider.switch([Switch::new(Fault::PauseBeforeReplyUntil).times(1)]);
    let project = posting_shop(&provider);
    project.edit("tools/mail.toml", "timeout = \"3s\"", "timeout = \"2m\"");
    project.edit("workflows/scripted.toml", "time = \"4s\"", "time = \"2m\"");
    let worker = project.spawn(&mail(), &[]);
    provider.wait_until_paused();
    let id = project.effects(RUN)[0]["effect_id"].as_str().unwrap().to_owned();
    let delivered = event("message.delivered", &id);
    let ran = hand_over(&project, "evt-1", &delivered, &[]);
    assert_eq!(ran.code, Some(4), "{ran}");
    assert!(ran.stdout.contains("REQUESTED, and its worker waits"), "{ran}");
    provider.go_on();
    assert_eq!(worker.finish().code, Some(0));
    check_settled(&project, RUN);
    let after = project.run(RUN);

    // It names another message than the one of which the answer told.
    let ran = hand_over(&project, "evt-1", &delivered, &["--json"]);
    assert_eq!((ran.code, &ran.json()["event"]), (Some(0), &json!("evidence")), "{ran}");
    let receipt = project.effects(RUN)[0]["external_receipt"].clone();
    let mut same = delivered;
    same["data"]["id"] = receipt["external_id"].clone();
    let ran = hand_over(&project, "evt-2", &same, &["--json"]);
    assert_eq!((ran.code, &ran.json()["event"]), (Some(0), &json!("known")), "{ran}");
    let entries = |shown: &Value| history(shown).len();
    assert_eq!(entries(&project.run(RUN)), entries(&after) + 1, "the contradiction is kept");
}

#[test]
fn what_contradicts_the_ledger_is_kept_once_and_changes_nothing() {
    let provider = Provider::start();
    let project = posting_shop(&provider);
    project.ok(&mail());
    check_settled(&project, RUN);
    let id = project.effects(RUN)[0]["effect_id"].as_str().unwrap().to_owned();
    for word in ["evidence", "evidence"] {
        let ran = hand_over(&project, "evt-1", &event("message.rejected", &id), &["--json"]);
        assert_eq!((ran.code, &ran.json()["event"]), (Some(0), &json!(word)), "{ran}");
    }
    check_settled(&project, RUN);
    let effect = project.effects(RUN).remove(0);
    let [seen] = effect["observations"].as_array().unwrap().as_slice() else {
        panic!("{effect:#}")
    };
    assert_eq!(
        (&seen["applied"], &seen["observation"]["verdict"]),
        (&json!(false), &json!("REJECTED"))
    );
    let shown = project.ok(&["effects", "show", &id]);
    assert!(shown.contains("says that it did not happen"), "{shown}");
    assert_eq!(project.run(RUN)["chain"], "holds");
}

/// A provider that is slow to hear that we have it posts the same again and again.
#[test]
fn of_twenty_of_one_event_at_once_one_settles() {
    let provider = Provider::start();
    let (project, id) = in_doubt(&provider);
    let delivered = event("message.delivered", &id);
    let words: Vec<String> = thread::scope(|scope| {
        let hand = |number: usize| {
            let (project, delivered) = (&project, &delivered);
            scope
                .spawn(move || hand_over(project, &format!("evt-{number}"), delivered, &["--json"]))
        };
        let all: Vec<_> = (0..20).map(hand).collect();
        let ran = all.into_iter().map(|one| one.join().unwrap());
        ran.map(|ran| ran.json()["event"].as_str().unwrap().to_owned()).collect()
    });
    let count = |word: &str| words.iter().filter(|other| *other == word).count();
    assert_eq!((count("settled"), count("known") + count("not_yet")), (1, 19), "{words:?}");
    let shown = project.run(RUN);
    let confirmed = history(&shown).iter().filter(|entry| entry["kind"] == "confirmed").count();
    assert_eq!((confirmed, &shown["chain"]), (1, &json!("holds")));
    project.ok(&["runs", "resume", RUN]);
    check_settled(&project, RUN);
    assert_eq!(provider.requests("message"), 1);
}

/// What is wrong with the event is told by code 1; what is wrong here by code 4, so that the provider sends it again.
#[test]
fn what_cannot_be_verified_says_what_to_do() {
    let provider = Provider::start();
    let (project, id) = in_doubt(&provider);
    let delivered = event("message.delivered", &id);
    let ends = |project: &Project, tool: &str, more: &[&str], code: i32, says: &str| {
        project.write("evt.body", delivered.to_string());
        let args = ["webhooks", "accept", tool, "--body", "evt.body"];
        let ran = project.twice(&[&args[..], more].concat());
        assert_eq!(ran.code, Some(code), "{ran}");
        assert!(ran.stderr.contains(says), "no `{says}` in {ran}");
    };
    ends(&project, "mail", &[], 1, "no header `webhook-signature`");
    ends(&project, "payments", &[], 4, "the tool `payments` has no `[webhook]`");
    ends(&project, "paiments", &[], 4, "the project has: keyed-mail, mail, payments");
    ends(&project, "mail", &["--headers", "missing"], 4, "cannot read missing");
    ends(&project, "mail", &["--header", "x"], 2, "write NAME: VALUE");

    let headers = signed::headers("evt-1", FUTURE, delivered.to_string().as_bytes());
    let ran = hand_over_raw(&project, "future", &headers, &delivered.to_string(), &[]);
    assert!(ran.code == Some(1) && ran.stderr.contains("one of the two clocks is wrong"), "{ran}");

    let huge = format!("{{\"type\":\"{}\"}}", "x".repeat(1 << 20));
    let ran = hand_over_raw(&project, "huge", &headers, &huge, &[]);
    assert!(ran.code == Some(1) && ran.stderr.contains("more than 1048576 bytes"), "{ran}");

    let project = project.with_env("MAIL_WEBHOOK_KEY", "");
    let ran = hand_over(&project, "keyless", &delivered, &["--json"]);
    assert_eq!((ran.code, &ran.json()["error"]["code"]), (Some(4), &json!(4)), "{ran}");
    assert!(ran.stderr.contains("the secret `env:MAIL_WEBHOOK_KEY`"), "{ran}");
    let project = project.with_env("MAIL_WEBHOOK_KEY", "whsec_not/base64/at-all");
    let ran = hand_over(&project, "no-key", &delivered, &[]);
    assert!(
        ran.code == Some(4) && ran.stderr.contains("`env:MAIL_WEBHOOK_KEY` is not Base64"),
        "{ran}"
    );

    // While keys are exchanged, one that is missing or wrong is no reason to turn away what the other one fits.
    let secrets = "secrets = [\"env:GONE\", \"env:MAIL_WEBHOOK_KEY\", \"file:key\"]";
    project.edit("tools/mail.toml", "secrets = [\"env:MAIL_WEBHOOK_KEY\"]", secrets);
    project.write("key", signed::KEY);
    let ran = hand_over(&project, "evt-1", &delivered, &[]);
    assert_eq!(ran.code, Some(0), "{ran}");
    check_is(&project, "CONFIRMED");
}

#[track_caller]
fn check_is(project: &Project, state: &str) {
    let effect = project.effects(RUN).remove(0);
    assert_eq!(effect["state"], state, "{effect:#}");
}

/// The order in which a person would do it, who has not seen the event.
#[test]
fn what_happened_after_all_is_not_tried_again_by_one_who_does_not_know() {
    let provider = Provider::start();
    let (project, id) = in_doubt(&provider);
    let ran = hand_over(&project, "evt-1", &event("message.rejected", &id), &[]);
    assert!(ran.stdout.contains("is FAILED"), "{ran}");
    assert_eq!(project.twice(&["runs", "resume", RUN]).code, Some(3));
    let ran = hand_over(&project, "evt-2", &event("message.delivered", &id), &["--json"]);
    assert_eq!((ran.code, &ran.json()["event"]), (Some(0), &json!("evidence")), "{ran}");
    let shown = project.ok(&["runs", "show", RUN]);
    assert!(
        shown.contains("evt-2, sent at ") && shown.contains("says that it happened; not applied"),
        "{shown}"
    );

    let ran = project.twice(&["runs", "retry", RUN, "--reason", "again"]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("is recorded as FAILED, and happened by what came since"), "{ran}");
    assert!(ran.stderr.contains("add `--despite-evidence`"), "{ran}");
    assert_eq!(project.twice(&["runs", "resume", RUN]).code, Some(3));
    assert_eq!(provider.requests("message"), 1);

    project.ok(&["runs", "retry", RUN, "--despite-evidence", "--reason", "it did not arrive"]);
    project.ok(&["runs", "resume", RUN]);
    assert_eq!(provider.requests("message"), 2);
}

/// A provider that says "too many requests", and does it all the same.
#[test]
fn what_was_put_off_and_happened_is_not_sent_again() {
    let provider = Provider::start();
    provider.switch([Switch::new(Fault::Storm429).times(1)]);
    let project = posting_shop(&provider);
    project.edit(
        "tools/mail.toml",
        "initial = \"50ms\", max = \"30s\"",
        "initial = \"1h\", max = \"2h\"",
    );
    let mut args = mail();
    args.extend(["--wait".to_owned(), "0".to_owned()]);
    assert_eq!(project.twice(&args).code, Some(4));
    check_is(&project, "AUTHORIZED");
    let id = project.effects(RUN)[0]["effect_id"].as_str().unwrap().to_owned();
    let ran = hand_over(&project, "evt-1", &event("message.delivered", &id), &["--json"]);
    assert_eq!((ran.code, &ran.json()["event"]), (Some(0), &json!("settled")), "{ran}");
    project.ok(&["runs", "resume", RUN]);
    check_settled(&project, RUN);
    assert_eq!(provider.requests("message"), 1);
    assert_eq!(project.run(RUN)["chain"], "holds");
}

/// The file has another pointer by now than the one that the run was started under.
#[test]
fn an_effect_is_found_where_its_run_s_own_definition_looks_for_it() {
    let provider = Provider::start();
    let (project, id) = in_doubt(&provider);
    project.edit("tools/mail.toml", "/data/reference", "/data/metadata/reference");
    let mut elsewhere = event("message.delivered", &id);
    elsewhere["data"]["metadata"] = json!({ "reference": id });
    elsewhere["data"]["reference"] = json!("order-1");
    let ran = hand_over(&project, "evt-1", &elsewhere, &["--json"]);
    assert_eq!((ran.code, &ran.json()["event"]), (Some(0), &json!("elsewhere")), "{ran}");
    let ran = hand_over(&project, "evt-2", &event("message.delivered", &id), &["--json"]);
    assert_eq!((ran.code, &ran.json()["event"]), (Some(0), &json!("settled")), "{ran}");
}

#[test]
fn events_mean_what_the_tool_said_when_the_run_was_started() {
    let provider = Provider::start();
    provider.switch([Switch::new(Fault::CommitThenDrop).times(1)]);
    let project = shop(&provider).with_env("MAIL_WEBHOOK_KEY", signed::KEY);
    assert_eq!(project.twice(&mail()).code, Some(4));
    let id = project.effects(RUN)[0]["effect_id"].as_str().unwrap().to_owned();
    project.edit("tools/mail.toml", "\n[operation.send]", &format!("{WEBHOOK}\n[operation.send]"));
    project.edit(
        "tools/mail.toml",
        "\n[operation.send.response]",
        &format!("{MEANING}\n[operation.send.response]"),
    );
    let ran = hand_over(&project, "evt-1", &event("message.delivered", &id), &[]);
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("started under a version of the tool that does not say"), "{ran}");
    assert_eq!(project.effects(RUN)[0]["state"], "UNKNOWN");
}

#[test]
fn a_secret_of_ours_in_an_event_is_taken_out() {
    const API_KEY: &str = "canary-7f3a9dc0ffee";
    for (kind, code) in [("message.delivered", 0), ("message.rejected", 3)] {
        let provider = Provider::with_key(API_KEY);
        let project = posting_shop(&provider).with_env("PAYMENTS_API_KEY", API_KEY);
        let (project, id) = in_doubt_at(&provider, project);
        let mut leaky = event(kind, &id);
        leaky["data"]["seen"] = json!(format!("Bearer {API_KEY}, {}", signed::KEY));
        let ran = hand_over(&project, "evt-1", &leaky, &[]);
        assert_eq!(ran.code, Some(0), "{ran}");
        assert_eq!(project.twice(&["runs", "resume", RUN]).code, Some(code));
        let shown = project.run(RUN).to_string();
        assert!(shown.contains("Bearer"), "{shown}");
        let ledger = fs::read(project.root().join("twice.db")).unwrap();
        for secret in [API_KEY, signed::KEY] {
            let secret = secret.as_bytes();
            assert!(!ledger.windows(secret.len()).any(|bytes| bytes == secret));
        }
    }
}
