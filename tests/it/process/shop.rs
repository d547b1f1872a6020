//! The project that most of these tests run in: a shop that refunds and tells its customers.

use std::path::Path;

use serde_json::{Value, json};
use twice_tests::nodes::repository;
use twice_tests::project::{Project, Provider};
use twice_tests::{families, graphs};

/// The command under test.
pub(super) const TWICE: &str = env!("CARGO_BIN_EXE_twice-under-test");

/// Refunds an order by the example's own node.
pub(super) const REFUND: &str = "damaged-item-refund";
/// Refunds an order and then tells the customer, with a mail service that honours keys.
pub(super) const REFUND_AND_TELL: &str = "refund-and-tell";
/// Does what the input says; may request `refund` and `mail`, the latter of a service with neither key nor lookup.
pub(super) const SCRIPTED: &str = "scripted";

const REFUND_AND_TELL_FILE: &str = r#"
workflow = "refund-and-tell"
version = 1
input = { schema = "schemas/refund-request.json" }

[[node]]
name = "refund"
component = "refund"

[[node.effect]]
slot = "refund"
tool = "payments.refund"
object = "/input/order_id"
intent = "full-damaged-item"
allow = "true"
lock = { name = "order" }

[[node]]
name = "notify"
component = "notify"
after = ["refund"]

[[node.effect]]
slot = "notify"
tool = "keyed-mail.send"
object = "/receipts/refund/refund/external_id"
intent = "refund-notice"
allow = "true"
lock = { name = "refund" }
"#;

const SCRIPTED_FILE: &str = r#"
workflow = "scripted"
version = 1

[[node]]
name = "scripted"
component = "conformance"
limits = { memory = "16MiB", time = "4s" }
retry = { attempts = 2, initial = "100ms", max = "100ms" }

[[node.effect]]
slot = "refund"
tool = "payments.refund"
object = "/input/order_id"
intent = "full-damaged-item"
allow = "true"

[[node.effect]]
slot = "mail"
tool = "mail.send"
object = "/input/order_id"
intent = "notice"
allow = "true"
"#;

/// A fan-out beside a branch, and a loop behind both; nodes do what the input says for each.
pub(super) const GRAPH: &str = "graph";

fn graph_file() -> String {
    let (each, keys) = graphs::fan_out(8);
    let side = graphs::refund_of("/input/side");
    let draft = format!("after = [\"each\", \"side\"]\n{}", graphs::refund_of("/input/draft"));
    let review = "after = [\"draft\"]\nroutes = [\"again\", \"good\"]\nloop = { to = \"draft\", when = \"routes.review == 'again'\", max_visits = 3 }";
    let nodes = [(each, keys.as_str()), ("side", &side), ("draft", &draft), ("review", review)];
    graphs::graph("", &nodes)
}

/// The input of a run of it with so many elements; each of them, `side` and the second round of the loop refund an order.
pub(super) fn graph_input(elements: usize) -> Value {
    let mut input = graphs::orders(elements);
    input["side"] = json!("side");
    input["draft"] = json!("draft");
    let nodes = input["nodes"].as_object_mut().unwrap();
    nodes.insert("side".to_owned(), json!([graphs::refund("side")]));
    nodes.insert("draft".to_owned(), json!([graphs::from_visit(2, graphs::refund("draft"))]));
    let again = graphs::until_visit(2, graphs::give(&json!({ "route": "again" })));
    let good = graphs::give(&json!({ "route": "good" }));
    nodes.insert("review".to_owned(), json!([again, good]));
    input
}

/// Starts a run of another workflow, which refunds an order.
pub(super) const BUNDLE: &str = "bundle";

const KEY: &str = r#"
[operation.send.key]
header = "Idempotency-Key"
format = "uuid"
retention = "24h"
basis = "first_send"
replay = "first_answer"
mismatch = [{ status = 422, pointer = "/error/code", equals = "idempotency_key_reused" }]
in_flight = [{ status = 409, pointer = "/error/code", equals = "idempotency_key_in_use" }]
"#;

/// The shop, with its nodes registered.
pub(super) fn shop(provider: &Provider) -> Project {
    shop_in(Project::init(TWICE).at(provider))
}

/// The same in a project that is set up otherwise.
pub(super) fn shop_in(project: Project) -> Project {
    share_compiled_code(&project);
    furnish(&project);
    project
}

/// Everything of the shop but the wish to save time.
pub(super) fn furnish(project: &Project) {
    let example = repository().join("nodes/example-project");
    let read = |path: &str| std::fs::read_to_string(example.join(path)).unwrap();
    for schema in ["schemas/mail.json", "schemas/mail-args.json"] {
        project.write(schema, read(schema));
    }
    let mail = read("tools/mail.toml").replace("settle = \"2s\"", "settle = \"200ms\"");
    let mail = mail.replace("initial = \"500ms\"", "initial = \"50ms\"");
    let mail = mail.replace("timeout = \"10s\"", "timeout = \"3s\"");
    let mail = mail.replace("horizon = \"24h\"", "horizon = \"20h\"");
    project.write("tools/mail.toml", &mail);
    let keyed = mail.replace("tool = \"mail\"", "tool = \"keyed-mail\"");
    let keyed = keyed.replace("key = \"none\"\n", "");
    project.write("tools/keyed-mail.toml", keyed + KEY);
    project.edit("tools/payments.toml", "settle = \"2s\"", "settle = \"200ms\"");
    project.edit("tools/payments.toml", "timeout = \"10s\"", "timeout = \"3s\"");
    project.edit("tools/payments.toml", "connect_timeout = \"3s\"", "connect_timeout = \"1s\"");
    project.edit("tools/payments.toml", "initial = \"500ms\"", "initial = \"50ms\"");
    project.write("workflows/refund-and-tell.toml", REFUND_AND_TELL_FILE);
    project.write("workflows/scripted.toml", SCRIPTED_FILE);
    project.write("workflows/graph.toml", graph_file());
    let send = families::child_of("parcel", "/input/order");
    let [bundle, parcel] = families::files(&[("send", &send)]);
    project.write("workflows/bundle.toml", bundle);
    project.write("workflows/parcel.toml", parcel);
    for node in ["refund", "notify", "conformance"] {
        project.add_node(node);
    }
}

/// Compiled code is found by the digest of what it was compiled from, so that projects can share it.
fn share_compiled_code(project: &Project) {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    std::fs::create_dir_all(&shared).unwrap();
    std::fs::create_dir_all(project.root().join(".twice")).unwrap();
    std::os::unix::fs::symlink(shared, project.root().join(".twice/compiled")).unwrap();
}

/// The input of a refund of this order.
pub(super) fn order(order: &str) -> Value {
    json!({
        "order_id": order, "amount_cents": 1200, "paid_cents": 5000, "customer_email": "ada@example.com",
    })
}

/// The input of a scripted node about this order.
pub(super) fn script(order: &str, steps: &Value) -> Value {
    json!({ "order_id": order, "steps": steps })
}

/// The step that requests a refund of so much.
pub(super) fn refund_step(order: &str, cents: u32) -> Value {
    json!({
        "do": "request", "slot": "refund", "must": true,
        "args": { "order_id": order, "amount_cents": cents },
    })
}

/// The args of `twice run`.
pub(super) fn start(workflow: &str, input: &Value, run: &str) -> Vec<String> {
    ["run", workflow, "--input", &input.to_string(), "--run-id", run].map(str::to_owned).to_vec()
}

/// The same, with more.
pub(super) fn start_with(workflow: &str, input: &Value, run: &str, more: &[&str]) -> Vec<String> {
    let mut args = start(workflow, input, run);
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

/// Checks what holds of every run that ended well: it completed, its chain holds, no entry of an older lease follows one
/// of a newer, and each of its effects is confirmed.
#[track_caller]
pub(super) fn check_settled(project: &Project, run: &str) {
    check_ended_well(project, run);
    for effect in project.effects(run) {
        assert_eq!(effect["state"], "CONFIRMED", "{run}: {effect:#}");
        assert_eq!(effect["held"], Value::Null, "{run}");
        assert!(effect["external_receipt"].is_object(), "{run}: {effect:#}");
    }
}

/// The same, whatever became of its effects.
#[track_caller]
pub(super) fn check_ended_well(project: &Project, run: &str) {
    let shown = project.run(run);
    assert_eq!(shown["run"]["state"], "completed", "{run}: {shown:#}");
    assert_eq!(shown["chain"], "holds", "{run}");
    let fences: Vec<i64> = history(&shown).iter().map(|e| e["fence"].as_i64().unwrap()).collect();
    assert!(fences.is_sorted(), "{run}: an older lease wrote after a newer one: {fences:?}");
}

/// The entries of a run as shown.
pub(super) fn history(shown: &Value) -> &Vec<Value> {
    shown["history"].as_array().unwrap()
}

/// Resumes a run that has ended and checks that nothing came of it: no entry, no request.
#[track_caller]
pub(super) fn check_resumed_again(project: &Project, provider: &Provider, run: &str) {
    let before = (project.run(run), provider.counters());
    project.ok(&["runs", "resume", run]);
    assert_eq!((project.run(run), provider.counters()), before, "{run}");
}
