//! C++.

use crate::error::BuildError;
use crate::job::{Job, Made};

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    Ok(Made::utf8(job.work.join("node.wasm")))
}
