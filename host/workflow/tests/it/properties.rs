//! Whatever a file says, it is read or refused, and never brings the host down.

use proptest::prelude::*;
use twice_workflow::Project;
use twice_workflow::policy::Policy;

use crate::support::{Map, example};

const PATHS: [&str; 5] = [
    "twice.toml",
    "workflows/damaged-item-refund.toml",
    "tools/payments.toml",
    "tools/mail.toml",
    "schemas/refund-args.json",
];

/// Every finding must stand at a place that exists.
fn check(files: &Map) -> Result<(), TestCaseError> {
    let found = match Project::load(files) {
        Ok(project) => {
            prop_assert_eq!(project.workflows.len(), 1, "a workflow was dropped without a word");
            prop_assert_eq!(project.tools.len(), 2, "a tool was dropped without a word");
            project.warnings
        }
        Err(found) => {
            let errors = found.iter().filter(|f| f.severity().as_str() == "error").count();
            prop_assert!(errors > 0, "refused without an error");
            found
        }
    };
    for finding in found {
        let lines = files.get(&finding.file).map_or(1, |text| text.split('\n').count());
        prop_assert!(finding.line >= 1 && finding.line as usize <= lines.max(1) + 1, "{}", finding);
        prop_assert!(finding.column >= 1, "{finding}");
        prop_assert!(
            !finding.what.is_empty() && !finding.why.is_empty() && !finding.fix.is_empty()
        );
    }
    Ok(())
}

fn toml_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        Just("99999999999999999999".to_owned()),
        Just("0x7fffffffffffffff".to_owned()),
        Just("nan".to_owned()),
        Just("1979-05-27T07:32:00Z".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        "[ -~]{0,12}".prop_map(|s| format!("'{}'", s.replace('\'', "\""))),
        "(\\{|\\}|/|\\?|secret:|args|key|~|x){0,6}".prop_map(|s| format!("'{s}'")),
        Just("'none'".to_owned()),
        Just("'10s'".to_owned()),
        Just("'/input/order_id'".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|v| format!("[{}]", v.join(", "))),
            prop::collection::btree_map("[a-z_/~]{1,8}", inner, 0..3).prop_map(|m| {
                let members = m.iter().map(|(k, v)| format!("'{k}' = {v}"));
                format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(path in prop::sample::select(&PATHS[..]), text in "\\PC{0,80}") {
        let mut files = example();
        files.insert(path.to_owned(), text);
        check(&files)?;
    }

    #[test]
    fn any_cut_is_read_or_refused(
        path in prop::sample::select(&PATHS[..]),
        from in any::<prop::sample::Index>(),
        length in 0_usize..60,
        filling in "[\\[\\]{}=\"'\\n.#a-zé0-9 ]{0,8}",
    ) {
        let mut files = example();
        let chars: Vec<char> = files[path].chars().collect();
        let start = from.index(chars.len());
        let end = (start + length).min(chars.len());
        let text: String = chars[..start].iter().copied().chain(filling.chars()).chain(chars[end..].iter().copied()).collect();
        files.insert(path.to_owned(), text);
        check(&files)?;
    }

    #[test]
    fn any_value_is_read_or_refused(
        path in prop::sample::select(&PATHS[..4]),
        line in any::<prop::sample::Index>(),
        value in toml_value(),
    ) {
        let mut files = example();
        let lines: Vec<&str> = files[path].lines().collect();
        let values: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].contains(" = ") && !lines[*i].starts_with('#')).collect();
        let at = values[line.index(values.len())];
        let (key, _) = lines[at].split_once(" = ").unwrap();
        let replaced = format!("{key} = {value}");
        let text: Vec<&str> = lines.iter().enumerate().map(|(i, l)| if i == at { replaced.as_str() } else { *l }).collect();
        files.insert(path.to_owned(), text.join("\n"));
        check(&files)?;
    }

    #[test]
    fn any_expression_is_compiled_or_refused(text in "(args|state|\\.a|\\[0\\]|\\(|\\)| && |!|'x'|1| == |\\.all\\(x, |size|has|\\{|\\}|,|-|\\?|u|\\PC){0,14}") {
        if let Ok(policy) = Policy::compile(&text) {
            let value = serde_json::json!({ "a": [1, "x", { "a": null }] });
            let first = policy.permits(&value, &value, None);
            prop_assert_eq!(first, policy.permits(&value, &value, None));
        }
    }
}

#[test]
fn deep_nesting_is_read_or_refused() {
    let depths = [20, 79, 500, 20_000];
    let shapes: [fn(usize) -> String; 5] = [
        |n| format!("[operation.deep]\nbody = {}{}", "[".repeat(n), "]".repeat(n)),
        |n| format!("[operation.deep]\nbody = {}1{}", "{ a = ".repeat(n), " }".repeat(n)),
        |n| format!("[operation{}]\nx = 1", ".a".repeat(n)),
        |n| format!("a{} = 1", ".a".repeat(n)),
        |n| {
            format!(
                "[operation{}]\nb{} = {}{}",
                ".a".repeat(n),
                ".b".repeat(n),
                "[".repeat(n),
                "]".repeat(n)
            )
        },
    ];
    for (shape, depth) in shapes.iter().flat_map(|shape| depths.map(|depth| (shape, depth))) {
        let mut files = example();
        files.insert("tools/deep.toml".to_owned(), shape(depth));
        assert!(Project::load(&files).is_err());
    }
    let mut files = example();
    let schema = format!("{}true{}", "{\"not\":".repeat(20_000), "}".repeat(20_000));
    files.insert("schemas/mail.json".to_owned(), schema);
    assert!(Project::load(&files).is_err());
}
