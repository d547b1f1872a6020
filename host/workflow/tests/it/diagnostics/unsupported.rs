//! What this version refuses because it does not perform it.

use std::collections::BTreeSet;

use expect_test::expect;
use twice_workflow::diagnostic::Code;

use super::{M, W, check};

#[must_use]
pub(super) fn what_is_not_supported_yet() -> Vec<BTreeSet<Code>> {
    vec![
        check(
            &[(W, r#"intent = "refund-notice""#, "intent = \"refund-notice\"\nwhen = \"true\"")],
            expect![[r#"
                workflows/damaged-item-refund.toml:30:1: error[TW2006]: `when` (a branch) is not supported yet
                  why: leaving it unread would run the workflow without what it asks for
                  fix: branch inside the node, or by `when` of the node"#]],
        ),
        check(
            &[(M, r#"kind = "http""#, r#"kind = "callback""#)],
            expect![[r#"
                tools/mail.toml:5:8: error[TW2006]: tools of kind `callback` are not supported yet
                  why: nothing here could perform their operations
                  fix: use `kind = "http"`"#]],
        ),
        check(
            &[(M, r#"kind = "http""#, r#"kind = "approval""#)],
            expect![[r#"
            tools/mail.toml:5:8: error[TW2005]: `kind` is `approval`, which no tool file has
              why: it is the host itself that does this
              fix: write `approve = { by = "finance", expires = "24h" }` at the slot that wants it"#]],
        ),
        check(
            &[(M, r#"kind = "http""#, r#"kind = "workflow""#)],
            expect![[r#"
            tools/mail.toml:5:8: error[TW2005]: `kind` is `workflow`, which no tool file has
              why: it is the host itself that does this
              fix: write `workflow = "ship-order"` at the slot that wants it"#]],
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
