//! C++.

use super::clang::{self, Dialect};
use crate::error::BuildError;
use crate::job::{Job, Made};

pub(crate) fn build(job: &mut Job<'_>) -> Result<Made, BuildError> {
    clang::build(job, Dialect::Cpp, &["c/twice.c", "cpp/twice.cpp"])
}
