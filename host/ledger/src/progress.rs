//! Where the steps of a run stand, by its checkpoint and the entries behind it.

use twice_core::chain::Content;
use twice_core::limits::PAGE_MAX;
use twice_core::progress::Progress;

use crate::{Ledger, LedgerError, RunRecord};

/// Where the steps of a run stand, with every entry up to its last. A large checkpoint is saved only now and then, so that
/// writing a step costs as much as what is new; what came after it is folded here.
///
/// # Errors
/// When the ledger cannot be read; [`LedgerError::Corrupt`] when an entry cannot be.
pub async fn progress_of(ledger: &dyn Ledger, run: &RunRecord) -> Result<Progress, LedgerError> {
    let mut progress = run.progress.clone();
    let mut after = run.progress_seq;
    loop {
        let page = ledger.history(&run.id, after, PAGE_MAX).await?;
        for entry in &page {
            after = entry.seq;
            // What happened to effects moves no step.
            if entry.effect.is_some() {
                continue;
            }
            let content = entry.content().map_err(|problem| LedgerError::Corrupt {
                table: "ledger_entry",
                column: "body",
                key: format!("{}/{}", entry.run, entry.seq),
                problem: problem.to_string(),
            })?;
            if let Content::Run(event) = content {
                progress.apply(&event, entry.at);
            }
        }
        if page.len() < PAGE_MAX as usize {
            return Ok(progress);
        }
    }
}
