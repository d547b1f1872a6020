//! The example project, and what comes of it.

use std::collections::BTreeMap;

use expect_test::expect;
use serde_json::json;
use twice_core::contract::ToolClass;
use twice_core::ids::Name;
use twice_core::webhook::Meaning;
use twice_workflow::diagnostic::Code;
use twice_workflow::model::{Definition, Part, Text, ToolKind};
use twice_workflow::project::Settings;
use twice_workflow::{DefinitionError, Project, explain};

use crate::support::{edit, example, example_on_disk};

fn name(text: &str) -> Name {
    Name::parse(text).expect("the test gives a valid name")
}

fn components() -> BTreeMap<Name, String> {
    ["refund", "notify", "unused"].map(|n| (name(n), format!("sha256:{n}"))).into()
}

fn definition() -> Definition {
    let project = Project::load(&example_on_disk()).expect("the example is sound");
    let definition = project.definition(&name("damaged-item-refund"), &components());
    definition.expect("its components are there")
}

#[test]
fn loads_without_a_word() {
    let project = Project::load(&example_on_disk()).unwrap();
    assert_eq!(project.warnings, []);
    assert_eq!(project.name, name("damaged-items"));
    assert_eq!(project.settings.lease_ms, 10_000);
    assert_eq!(project.settings.database_url, None);
    assert_eq!(Project::load(&example()).unwrap(), project, "from memory as from disk");
}

#[test]
fn settings_need_no_other_file_to_be_right() {
    let text =
        "project = \"shop\"\n[database]\nurl = \"state/ledger.db\"\n[worker]\nlease = \"90s\"\n";
    let files = |text: &str| {
        let other = ("workflows/refund.toml".to_owned(), "workflow = 7".to_owned());
        BTreeMap::from([("twice.toml".to_owned(), text.to_owned()), other])
    };
    let settings = Settings::load(&files(text)).unwrap();
    assert_eq!(settings.database_url.as_deref(), Some("state/ledger.db"));
    assert_eq!(settings.lease_ms, 90_000);
    let wrong =
        Settings::load(&files("project = \"shop\"\n[worker]\nlease = \"1ms\"\n")).unwrap_err();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert_eq!((wrong[0].file.as_str(), wrong[0].line), ("twice.toml", 3));
}

#[test]
fn says_what_the_files_say() {
    let definition = definition();
    let nodes = &definition.workflow.nodes;
    assert_eq!(nodes.len(), 2);
    assert_eq!((&nodes[0].name, &nodes[1].name), (&name("refund"), &name("notify")));
    assert_eq!(nodes[1].after, [name("refund")]);
    assert_eq!(nodes[0].limits.effects, 10);
    assert_eq!(nodes[1].limits.memory_bytes, 64 << 20);
    let slot = &nodes[0].slots[0];
    assert_eq!(slot.object.as_deref(), Some("/input/order_id"));
    assert_eq!(slot.intent, "full-damaged-item");
    assert!(!slot.shared);

    let payments = &definition.tools[&name("payments")];
    let ToolKind::Http(http) = &payments.kind;
    assert_eq!(http.secrets[&name("api-key")], "env:PAYMENTS_API_KEY");
    let refund = &payments.operations[&name("refund")];
    assert_eq!(refund.contract.class(), ToolClass::KeyAndLookup);
    assert_eq!(refund.contract.retry.max_ms, 30_000);
    assert_eq!(
        refund.request.path,
        [
            Text(vec![Part::Literal("v1".to_owned())]),
            Text(vec![Part::Literal("orders".to_owned())]),
            Text(vec![Part::Reference("/args/order_id".to_owned())]),
            Text(vec![Part::Literal("refunds".to_owned())]),
        ]
    );
    assert_eq!(
        refund.request.headers["Authorization"],
        Text(vec![Part::Literal("Bearer ".to_owned()), Part::Secret(name("api-key"))])
    );
    assert_eq!(
        serde_json::to_value(refund.request.body.as_ref()).unwrap()["object"]["reason"],
        json!({ "reference": { "pointer": "/args/reason", "optional": true } })
    );
    let mail = &definition.tools[&name("mail")].operations[&name("send")];
    assert_eq!(mail.contract.class(), ToolClass::Neither);
}

#[test]
fn pins_exactly_what_a_run_needs() {
    let definition = definition();
    assert_eq!(
        definition.components.keys().collect::<Vec<_>>(),
        [&name("notify"), &name("refund")]
    );
    let text = definition.to_text();
    assert_eq!(Definition::from_text(&text).unwrap(), definition);
    assert_eq!(Definition::from_text(&text).unwrap().digest(), definition.digest());
    assert!(definition.digest().starts_with("sha256:"));
}

#[test]
fn a_workflow_without_paths_is_pinned_as_it_always_was() {
    let text = definition().to_text();
    let added = ["children", "join", "when", "routes", "for_each", "loop", "timeout_ms", "ends"];
    let of_slots = ["child", "compensate", "pivot", "lock", "undo"];
    for key in added.into_iter().chain(of_slots).filter(|key| *key != "timeout_ms") {
        assert!(!text.contains(&format!("\"{key}\":")), "{key}");
    }
    assert_eq!(text.matches("timeout_ms\"").count(), 4, "those of the tools' operations alone");
}

#[test]
fn a_child_is_pinned_with_its_parent() {
    let mut files = example();
    let parent = |name: &str, child: &str| {
        format!(
            "workflow = \"{name}\"\nversion = 1\n[[node]]\nname = \"start\"\ncomponent = \"unused\"\n[[node.effect]]\nslot = \"child\"\nworkflow = \"{child}\"\nobject = \"/input/id\"\nintent = \"all\"\nallow = \"true\"\n"
        )
    };
    files.insert("workflows/top.toml".to_owned(), parent("top", "middle"));
    files.insert("workflows/middle.toml".to_owned(), parent("middle", "damaged-item-refund"));
    let project = Project::load(&files).unwrap();
    let family = project.family(&name("top"));
    let family: Vec<&str> = family.iter().map(|workflow| workflow.name.as_str()).collect();
    assert_eq!(family, ["top", "middle", "damaged-item-refund"]);
    let of = |workflow: &str| project.definition(&name(workflow), &components()).unwrap();
    let top = of("top");
    let middle = &top.children[&name("middle")];
    let bottom = &middle.definition.children[&name("damaged-item-refund")];
    assert_eq!(middle.definition, of("middle"));
    assert_eq!(middle.digest, of("middle").digest());
    assert_eq!((&bottom.digest, &bottom.definition), (&definition().digest(), &definition()));
    assert!(top.tools.is_empty(), "what a child uses is pinned with the child");
    assert_eq!(Definition::from_text(&top.to_text()).unwrap(), top);
}

#[test]
fn children_are_not_pinned_in_each_other_without_end() {
    let mut files = example();
    let chain = |levels: u32, files: &mut BTreeMap<String, String>| {
        for level in 1..=levels {
            let mut text = format!(
                "workflow = \"level-{level}\"\nversion = 1\n[[node]]\nname = \"start\"\ncomponent = \"unused\"\n"
            );
            if level < levels {
                text.push_str(&format!("[[node.effect]]\nslot = \"child\"\nworkflow = \"level-{}\"\nobject = \"/input/id\"\nintent = \"all\"\nallow = \"true\"\n", level + 1));
            }
            files.insert(format!("workflows/level-{level}.toml"), text);
        }
    };
    chain(16, &mut files);
    let project = Project::load(&files).unwrap();
    let deep = project.definition(&name("level-1"), &components()).unwrap();
    assert_eq!(Definition::from_text(&deep.to_text()).unwrap(), deep);
    assert_eq!(deep.descendants().count(), 15);
    chain(17, &mut files);
    let refused = Project::load(&files).unwrap_err();
    let codes: Vec<_> = refused.iter().filter(|found| found.code == Code::ChildCycle).collect();
    assert_eq!(codes.len(), 1, "{codes:?}");
    assert!(codes[0].what.contains("`level-1`"), "{codes:?}");
}

#[test]
fn children_without_number_are_not_pinned() {
    let mut files = example();
    for level in 0..8 {
        for twin in ["a", "b"] {
            let mut text = format!(
                "workflow = \"{twin}{level}\"\nversion = 1\n[[node]]\nname = \"start\"\ncomponent = \"unused\"\n"
            );
            for child in ["a", "b"].into_iter().filter(|_| level < 7) {
                text.push_str(&format!("[[node.effect]]\nslot = \"{child}\"\nworkflow = \"{child}{}\"\nobject = \"/input/id\"\nintent = \"{child}\"\nallow = \"true\"\n", level + 1));
            }
            files.insert(format!("workflows/{twin}{level}.toml"), text);
        }
    }
    let project = Project::load(&files).unwrap();
    assert!(project.definition(&name("a2"), &components()).is_ok());
    let refused = project.definition(&name("a0"), &components());
    assert!(matches!(refused, Err(DefinitionError::TooManyChildren { .. })), "{refused:?}");
}

#[test]
fn any_change_of_meaning_changes_the_digest() {
    let digest = definition().digest();
    let changed = |path: &str, from: &str, to: &str| {
        let mut files = example();
        edit(&mut files, path, from, to);
        let project = Project::load(&files).unwrap();
        project.definition(&name("damaged-item-refund"), &components()).unwrap().digest()
    };
    let workflow = "workflows/damaged-item-refund.toml";
    assert_ne!(changed(workflow, "intent = \"full-damaged-item\"", "intent = \"half\""), digest);
    assert_ne!(changed("tools/mail.toml", "attempts = 3", "attempts = 4"), digest);
    assert_ne!(changed("schemas/mail.json", "\"minLength\": 1", "\"minLength\": 2"), digest);
    assert_eq!(changed("tools/mail.toml", "# The provider simulator", "# Our simulator"), digest);
    assert_eq!(changed("twice.toml", "lease = \"10s\"", "lease = \"20s\""), digest);
    let mut other = definition();
    other.components.insert(name("refund"), "sha256:other".to_owned());
    assert_ne!(other.digest(), digest);
}

#[test]
fn says_why_there_is_no_definition() {
    let project = Project::load(&example_on_disk()).unwrap();
    let error = project.definition(&name("damaged-item-refunds"), &components()).unwrap_err();
    expect!["there is no workflow `damaged-item-refunds`; did you mean `damaged-item-refund`?"]
        .assert_eq(&error.to_string());
    let error = project.definition(&name("damaged-item-refund"), &BTreeMap::new()).unwrap_err();
    expect!["node `refund` of workflow `damaged-item-refund` runs component `refund`, which is not registered; add it with `twice node add refund FILE.wasm`"]
        .assert_eq(&error.to_string());

    let text = definition().to_text();
    let newer = text.replace("\"format\":1", "\"format\":2");
    assert_eq!(Definition::from_text(&newer), Err(DefinitionError::UnknownFormat { format: 2 }));
    let stranger = text.replace("\"format\":1", "\"format\":1,\"other\":1");
    let misnamed = text.replace("\"name\":\"payments\"", "\"name\":\"Pay ments\"");
    for broken in [stranger, misnamed, "{}".to_owned(), "[".to_owned()] {
        let error = Definition::from_text(&broken).unwrap_err();
        assert!(matches!(error, DefinitionError::Malformed { .. }), "{error}");
    }
}

#[test]
fn explains_the_class_of_an_operation() {
    let definition = definition();
    expect![[r#"
        class: key+lookup
        why: it declares an idempotency key and a lookup
        promise: at most once while the provider honours the key; an unknown outcome is resent under the same key or looked up
        key: kept 24h by the provider, relied upon for 21h36m; a repeated key gets the first answer, errors included
        lookup: by our reference, consistent; two misses at least 2s apart prove that nothing happened
        attempts: up to 5, each up to 10s; when an outcome is unknown, it is reconciled first
        person: needed when it is still unknown 24h after the first request"#]]
        .assert_eq(&explain(&definition.tools[&name("payments")].operations[&name("refund")]));
    expect![[r#"
        class: neither
        why: it declares neither an idempotency key nor a lookup
        promise: sent once; an unknown outcome waits for a person
        attempts: up to 3, each up to 10s; another one only if the one before provably did nothing
        person: needed for every unknown outcome"#]]
    .assert_eq(&explain(&definition.tools[&name("mail")].operations[&name("send")]));

    let mut posted = definition.tools[&name("mail")].operations[&name("send")].clone();
    posted.webhook = Some(Meaning {
        reference: "/reference".to_owned(),
        object: String::new(),
        succeeded: vec![("/type".to_owned(), vec!["sent".into()])],
        failed: Vec::new(),
    });
    expect![[r#"
        class: neither
        why: it declares neither an idempotency key nor a lookup
        promise: sent once; an unknown outcome waits for a person
        webhook: a signed event of the provider settles an unknown outcome, whenever it comes
        attempts: up to 3, each up to 10s; another one only if the one before provably did nothing
        person: needed for every unknown outcome of which no event tells"#]]
    .assert_eq(&explain(&posted));
}

#[test]
fn orders_nodes_behind_what_they_wait_for() {
    let mut files = example();
    let path = "workflows/damaged-item-refund.toml";
    let text = files[path].clone();
    let (head, nodes) = text.split_at(text.find("[[node]]").unwrap());
    let (first, second) = nodes.split_at(nodes.rfind("[[node]]").unwrap());
    files.insert(path.to_owned(), format!("{head}{second}{first}"));
    let project = Project::load(&files).unwrap();
    let workflow = &project.workflows[&name("damaged-item-refund")];
    let order: Vec<&str> = workflow.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(order, ["refund", "notify"]);
}
