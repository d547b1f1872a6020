//! What this version refuses because it does not perform it.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::Project;
use twice_workflow::diagnostic::Code;

use super::{M, W, check, flow_text, refund};
use crate::support::{edit, example};

#[must_use]
pub(super) fn what_is_not_supported_yet() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(
                W,
                r#"intent = "refund-notice""#,
                "intent = \"refund-notice\"\napprove = { by = \"finance\" }",
            )],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:1: error[TW2006]: `approve` (a person's approval) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: until then, deny with `allow` what would need one"#]],
        ),
        check(
            &[(W, r#"intent = "refund-notice""#, "intent = \"refund-notice\"\nwhen = \"true\"")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:1: error[TW2006]: `when` (a branch) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: branch inside the node, or by `when` of the node"#]],
        ),
        check(
            &[(M, r#"kind = "http""#, r#"kind = "approval""#)],
            expect![[r#"
            tools/mail.toml:5:8: error[TW2006]: tools of kind `approval` are not supported yet
              why: nothing here could perform their operations
              fix: use `kind = "http"`"#]],
        ),
        check(
            &[(M, r#"kind = "http""#, r#"kind = "htpp""#)],
            expect![[r#"
            tools/mail.toml:5:8: error[TW2005]: `kind` is `htpp`, which means nothing
              why: every limit and choice is explicit, so that a slip cannot pass for a decision
              fix: write one of: `http`"#]],
        ),
    ]
}

/// Read, checked and drawn, and not executed: `twice check` refuses it.
#[test]
fn what_is_ahead_of_the_executor() {
    let undone = refund(
        "pay",
        "compensate = { tool = 'payments.refund', args = { order_id = '/input/id', amount_cents = 1 } }\npivot = true\nlock = { name = 'order' }",
    );
    let text = flow_text("flow", "", &[("a", &undone)]);
    let mut files = example();
    edit(&mut files, "workflows/flow.toml", "", &format!("{text}[saga]\nundo = 'branches'\n"));
    let found = Project::load(&files).unwrap_err();
    let refused: Vec<String> = found
        .iter()
        .filter(|found| found.code == Code::NotYet)
        .map(|found| found.what.clone())
        .collect();
    expect![[r#"
        `compensate` (how an effect is undone) is not supported yet
        `pivot` (the point of no return) is not supported yet
        `lock` (a lock on the business object) is not supported yet
        `[saga]` (how a run that failed is undone) is not supported yet"#]]
    .assert_eq(&refused.join("\n"));
    let ahead = Project::load_ahead(&files).map_or_else(|found| found, |project| project.warnings);
    assert!(ahead.iter().all(|found| found.code != Code::NotYet), "{ahead:?}");
}
