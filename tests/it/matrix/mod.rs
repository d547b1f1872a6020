//! What comes of an effect, for each class of tool and each way in which a provider fails, in one process: the provider's
//! own counters, the ledger and the listings have to tell the same.

mod approvals;
mod asks;
mod cancels;
mod children;
mod circuit;
mod crash;
mod graph;
mod key;
mod late;
mod locks;
mod lookup;
mod operator;
mod outcomes;
mod poison;
mod resume;
mod retry;
mod saga;
mod sharing;
mod simulation;
mod store;
mod worker;

use twice_tests::tools;

/// Runs a test's future on threads of its own.
fn run(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test);
}
