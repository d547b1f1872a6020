//! What well-behaved nodes can do.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use twice_sandbox::{Ended, LogLevel};

use crate::support::{
    FakeHost, Reply, act, block_on, built, call, check_trap, conformance, limits, nodes_dir, plan,
    returned, sandbox,
};

fn refund_input(amount: u64) -> String {
    json!({
        "input": { "order_id": "order-42", "amount_cents": amount, "paid_cents": 4_200,
                   "customer_email": "ada@example.com" },
        "nodes": {},
    })
    .to_string()
}

#[test]
fn refund_requests_its_slot_and_returns_what_the_receipt_shows() {
    let node = sandbox().load(&built("refund")).expect("it is a component");
    let host = FakeHost::new(Reply::Body(r#"{"id":"re_1","status":"succeeded"}"#.to_owned()));
    let (ended, host) = call(&node, &refund_input(4_200), limits(), host);
    assert_eq!(
        returned(&ended),
        json!({ "refund_id": "re_1", "status": "succeeded", "amount_cents": 4_200 })
    );
    let request = &host.requests[0];
    assert_eq!((request.slot.as_str(), request.item), ("refund", None));
    assert_eq!(
        serde_json::from_str::<Value>(&request.args).unwrap(),
        json!({ "order_id": "order-42", "amount_cents": 4_200, "reason": "requested by the customer" })
    );
    assert_eq!(
        host.log,
        [(LogLevel::Info, "order-42: 4200 cents refunded (eff_refund)".to_owned())]
    );
}

#[test]
fn refund_turns_refusals_into_fatal_errors_with_their_code() {
    #[track_caller]
    fn check(reply: Reply, amount: u64, requests: usize, expected: &str) {
        let node = sandbox().load(&built("refund")).expect("it is a component");
        let (ended, host) = call(&node, &refund_input(amount), limits(), FakeHost::new(reply));
        assert_eq!(ended, Ended::Fatal(expected.to_owned()));
        assert_eq!(host.requests.len(), requests);
    }
    check(Reply::Failed, 100, 1, "`refund` failed with card_declined: the card was declined");
    check(Reply::Denied, 100, 1, "`refund` is denied by args.amount_cents <= 100: too much");
    check(Reply::Echo, 5_000, 0, "5000 cents cannot be refunded: 4200 were paid for order-42");
    check(
        Reply::Body("{}".to_owned()),
        100,
        1,
        "`refund` happened (eff_refund), but its receipt does not fit the node's type: missing field `id` at line 1 column 2",
    );
}

#[test]
fn notify_reads_the_output_of_refund() {
    let node = sandbox().load(&built("notify")).expect("it is a component");
    let input = json!({
        "input": { "order_id": "order-42", "customer_email": "ada@example.com" },
        "nodes": { "refund": { "refund_id": "re_1", "status": "succeeded", "amount_cents": 4_205 } },
    });
    let host = FakeHost::new(Reply::Body(r#"{"id":"m_1"}"#.to_owned()));
    let (ended, host) = call(&node, &input.to_string(), limits(), host);
    assert_eq!(returned(&ended), json!({ "message_id": "m_1" }));
    assert_eq!(
        serde_json::from_str::<Value>(&host.requests[0].args).unwrap(),
        json!({ "to": "ada@example.com", "subject": "Your refund for order-42",
                "text": "We refunded 42.05 for order-42. Reference: re_1." })
    );
}

#[test]
fn state_that_does_not_fit_is_fatal_and_says_where() {
    let node = sandbox().load(&built("notify")).expect("it is a component");
    let input = r#"{"input":{"order_id":"o","customer_email":"a@b"},"nodes":{}}"#;
    let (ended, _) = call(&node, input, limits(), FakeHost::new(Reply::Echo));
    let Ended::Fatal(message) = ended else { panic!("{ended:?}") };
    assert!(message.contains("missing field `refund`"), "{message}");
}

#[test]
fn request_all_reaches_the_host_as_one_batch_in_order() {
    let steps = json!([{ "do": "request_all", "requests": [
        { "slot": "a", "item": 1, "args": { "n": 1 } }, { "slot": "b", "args": [2] },
    ] }, { "do": "request_all", "requests": [] }]);
    let (ended, host) = act(&steps, limits(), FakeHost::new(Reply::Echo));
    assert_eq!(host.batches, [2], "an empty batch asks nothing");
    assert_eq!(host.requests[0].item, Some(1));
    assert_eq!(
        returned(&ended)["notes"],
        json!([[{ "effect_id": "eff_a", "body": { "n": 1 } }, { "effect_id": "eff_b", "body": [2] }], []])
    );
}

#[test]
fn a_node_may_go_on_after_a_refusal() {
    let steps = json!([{ "do": "request", "slot": "a" }, { "do": "now" }]);
    let (ended, _) = act(&steps, limits(), FakeHost::new(Reply::Failed));
    assert_eq!(
        returned(&ended)["notes"],
        json!([{ "failed": "card_declined", "message": "the card was declined" }, 1_700_000_000_001_u64])
    );
}

#[test]
fn a_node_knows_where_it_stands_and_its_errors_keep_their_kind() {
    let (ended, _) = act(&json!([{ "do": "context" }]), limits(), FakeHost::new(Reply::Echo));
    assert_eq!(
        returned(&ended)["notes"][0],
        json!({ "run": "run_1", "node": "conformance", "visit": 2, "attempt": 1 })
    );
    let steps = json!([{ "do": "retryable", "message": "later", "until_attempt": 2 },
                       { "do": "fatal", "message": "never" }]);
    let (ended, _) = act(&steps, limits(), FakeHost::new(Reply::Echo));
    assert_eq!(ended, Ended::Retryable("later".to_owned()));
    let mut second = FakeHost::new(Reply::Echo);
    second.attempt = 2;
    assert_eq!(act(&steps, limits(), second).0, Ended::Fatal("never".to_owned()));
}

#[test]
fn a_restarted_node_computes_the_same_from_the_same_host() {
    let steps = json!([{ "do": "random", "count": 20 }, { "do": "request_volatile", "slot": "a" },
                       { "do": "now" }, { "do": "random", "count": 3 }]);
    let first = act(&steps, limits(), FakeHost::new(Reply::Echo));
    let second = act(&steps, limits(), FakeHost::new(Reply::Echo));
    assert_eq!(returned(&first.0), returned(&second.0));
    assert_eq!(first.1.requests, second.1.requests);
    assert_ne!(returned(&first.0)["notes"][0], json!(vec![0; 20]));
}

#[test]
fn suspending_ends_the_call_and_gives_the_host_back() {
    let steps = json!([{ "do": "request", "slot": "a" }, { "do": "now" }]);
    let (ended, host) = act(&steps, limits(), FakeHost::new(Reply::Suspend));
    assert_eq!(ended, Ended::Suspended);
    assert_eq!(host.requests.len(), 1);
}

#[test]
fn a_panic_says_why_and_where() {
    let steps = json!([{ "do": "panic", "message": "the sky fell" }]);
    let (ended, host) = act(&steps, limits(), FakeHost::new(Reply::Echo));
    check_trap(&ended, "the sky fell");
    check_trap(&ended, "in twice_conformance::");
    let (level, message) = &host.log[0];
    assert_eq!(*level, LogLevel::Error);
    assert!(message.contains("conformance/src/lib.rs:"), "{message}");
    let (ended, _) = act(&json!([{ "do": "trap" }]), limits(), FakeHost::new(Reply::Echo));
    check_trap(&ended, "the node stopped itself");
}

#[test]
fn a_host_that_answers_too_little_is_not_believed() {
    let steps = json!([{ "do": "request", "slot": "a" }]);
    let (ended, _) = act(&steps, limits(), FakeHost::new(Reply::TooFew));
    check_trap(&ended, "the host gave 0 answers to 1 requests");
}

#[test]
fn a_hundred_instances_wait_at_once() {
    let node = conformance();
    let barrier = Arc::new(Barrier::new(100));
    let input = plan(&json!([{ "do": "request", "slot": "a" }]));
    block_on(async {
        let mut calls = JoinSet::new();
        for _ in 0..100 {
            let (node, input) = (node.clone(), input.clone());
            let host = FakeHost::new(Reply::Together(Arc::clone(&barrier)));
            calls.spawn(
                async move { sandbox().run(&node, &input, limits(), Box::new(host)).await.0 },
            );
        }
        // None is answered before all have asked, so this ends only if all are alive together.
        for ended in calls.join_all().await {
            assert_eq!(returned(&ended)["notes"][0]["effect_id"], "eff_a");
        }
    });
}

#[test]
fn building_says_what_is_wrong() {
    #[track_caller]
    fn check(manifest: Option<&str>, source: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        if let Some(manifest) = manifest {
            std::fs::create_dir(dir.path().join("src")).unwrap();
            std::fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
            std::fs::write(dir.path().join("src/lib.rs"), source).unwrap();
        }
        let error = twice_toolchain::build(dir.path(), &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(expected), "`{expected}` is not in: {error}");
    }
    let package = "[workspace]\n[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    let cdylib = format!("{package}[lib]\ncrate-type = [\"cdylib\"]\n");
    check(None, "", "holds no node: none of Cargo.toml (rust)");
    check(Some(package), "", "crate-type = [\"cdylib\"]");
    check(Some(&cdylib), "fn broken( {", "src/lib.rs:1");
    check(Some(&cdylib), "", "does not fit the world");
}

#[test]
fn a_built_node_names_no_folder_of_its_author() {
    let home = std::env::home_dir().expect("there is a home folder");
    let (home, nodes) = (home.join(".cargo"), nodes_dir().canonicalize().unwrap());
    let node = built("conformance");
    for folder in [&home, &nodes] {
        let folder = folder.as_os_str().as_encoded_bytes();
        assert!(!node.windows(folder.len()).any(|window| window == folder), "{folder:?}");
    }
}
