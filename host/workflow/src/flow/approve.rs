//! Approvals: who is asked before an effect is sent, and when.

use serde_json::Value;
use twice_core::ids::Name;

use super::allow::{self, Expression, Stated};
use super::{NodeDraft, Surroundings};
use crate::diagnostic::Code;
use crate::model::Approve;
use crate::read::{At, Table};
use crate::units::{DURATION_MAX_MS, duration_text};

/// The shortest time that a person may be given. Milliseconds.
const EXPIRES_MIN_MS: u64 = 1_000;

/// `approve.when`.
const WHEN: Expression = Expression {
    key: "approve.when",
    cost: "demands the approval",
    broken: "an expression that cannot be evaluated would demand an approval of every request",
    example: "args.amount_cents > 10000",
    always: "demands an approval of every request",
    never: "demands no approval of any request",
};

/// An approval as read.
pub(super) struct Draft {
    when: Stated,
    by: Option<At<Name>>,
    expires: Option<At<u64>>,
}

/// Reads `approve`.
pub(super) fn read(table: &Table<'_>) -> Option<Draft> {
    let inner = table.table("approve")?.called("`approve`");
    let when = allow::read_as(&inner, "when", &WHEN);
    let by = inner
        .required("by", "\"finance\"")
        .and_then(|item| item.as_name(inner.sink, "whoever is asked"));
    let expires = inner
        .required("expires", "\"24h\"")
        .and_then(|_| inner.duration("expires", EXPIRES_MIN_MS..=DURATION_MAX_MS));
    inner.close();
    Some(Draft { when, by, expires })
}

/// Checks an approval against everything around it. `args` is the schema of what is approved; `waits`: a visit of the node lasts
/// while it is waited for.
pub(super) fn check(
    around: &Surroundings<'_>,
    node: &NodeDraft,
    draft: Option<&Draft>,
    args: Option<&Value>,
    waits: bool,
) -> Option<Approve> {
    let draft = draft?;
    allow::check_as(around, node, &draft.when, args, &WHEN);
    let (by, expires) = (draft.by.as_ref()?, draft.expires.as_ref()?);
    if let Some(timeout) = node.paths.timeout_ms.filter(|limit| waits && *limit < expires.value) {
        around.sink.report(
            expires.place,
            Code::ShortTime,
            format!(
                "whoever is asked has {}, and a visit of the node may take {}, waiting included",
                duration_text(expires.value),
                duration_text(timeout)
            ),
            "the step would fail before they have to answer",
            "raise the node's `timeout`, or shorten `expires`",
        );
    }
    if let Some(timeout) = around.timeout_ms.filter(|limit| waits && *limit < expires.value) {
        around.sink.report(
            expires.place,
            Code::ShortTime,
            format!(
                "whoever is asked has {}, and a run of the workflow may take {}, waiting included",
                duration_text(expires.value),
                duration_text(timeout)
            ),
            "the run would be over before they have to answer",
            "raise the workflow's `timeout`, or shorten `expires`",
        );
    }
    Some(Approve { when: draft.when.text(), by: by.value.clone(), expires_ms: expires.value })
}
