//! What an operation's declarations come to, in words.

use twice_core::contract::{Consistency, LookupBy, Replay, ToolClass};

use crate::model::Operation;
use crate::units::duration_text;

/// The class of an operation, why it has it, and what that promises; several lines of text.
#[must_use]
pub fn explain(operation: &Operation) -> String {
    let contract = &operation.contract;
    let class = contract.class();
    let mut lines = vec![
        format!("class: {}", class.as_str()),
        format!("why: {}", reason(class)),
        format!("promise: {}", class.promise()),
    ];
    if let Some(key) = &contract.key {
        let usable = key.retention_ms.saturating_sub(key.margin_ms());
        lines.push(format!(
            "key: kept {} by the provider, relied upon for {}; a repeated key gets {}",
            duration_text(key.retention_ms),
            duration_text(usable),
            match key.replay {
                Replay::FirstAnswer => "the first answer, errors included",
                Replay::SuccessOnly => "the first success; after an error the work is done again",
                Replay::CurrentState => "the current state of what was made",
                Replay::ConflictWithId => "a conflict that names what was made",
                Replay::RedrivesFailed => "failed work driven further",
            }
        ));
    }
    if let Some(lookup) = &contract.lookup {
        let by = match lookup.by {
            LookupBy::Key => "our key",
            LookupBy::Reference => "our reference",
        };
        lines.push(match lookup.consistency {
            Consistency::Strong => format!(
                "lookup: by {by}, consistent; two misses at least {} apart prove that nothing happened",
                duration_text(contract.settle_ms)
            ),
            Consistency::Lagging(ms) => format!(
                "lookup: by {by}, up to {} behind; it can find what happened, but never prove that nothing did",
                duration_text(ms)
            ),
        });
    }
    if operation.webhook.is_some() {
        lines.push(
            "webhook: a signed event of the provider settles an unknown outcome, whenever it comes"
                .to_owned(),
        );
    }
    lines.push(format!(
        "attempts: up to {}, each up to {}{}",
        contract.retry.attempts,
        duration_text(contract.timeout_ms),
        match class {
            ToolClass::Read => ", whatever became of those before",
            ToolClass::Ledger => "",
            ToolClass::KeyAndLookup | ToolClass::KeyOnly | ToolClass::LookupOnly => {
                "; when an outcome is unknown, it is reconciled first"
            }
            ToolClass::Neither => "; another one only if the one before provably did nothing",
        }
    ));
    match class {
        ToolClass::KeyAndLookup | ToolClass::KeyOnly | ToolClass::LookupOnly => {
            let horizon = duration_text(contract.horizon_ms);
            lines.push(format!(
                "person: needed when it is still unknown {horizon} after the first request"
            ));
        }
        ToolClass::Neither if operation.webhook.is_some() => {
            lines.push(
                "person: needed for every unknown outcome of which no event tells".to_owned(),
            );
        }
        ToolClass::Neither => lines.push("person: needed for every unknown outcome".to_owned()),
        ToolClass::Read | ToolClass::Ledger => {}
    }
    lines.join("\n")
}

const fn reason(class: ToolClass) -> &'static str {
    match class {
        ToolClass::KeyAndLookup => "it declares an idempotency key and a lookup",
        ToolClass::KeyOnly => "it declares an idempotency key, and no lookup",
        ToolClass::LookupOnly => "it declares a lookup, and no idempotency key",
        ToolClass::Neither => "it declares neither an idempotency key nor a lookup",
        ToolClass::Read => "it declares that it changes nothing (`read = true`)",
        ToolClass::Ledger => "this ledger settles it",
    }
}
