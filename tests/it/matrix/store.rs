//! A store that fails: at every write of the ledger, in every way.

use twice_tests::world::row_count::row_count;
use twice_tests::world::{alone, sweep};

#[test]
fn a_store_that_fails_at_any_write_leaves_one_effect_and_an_honest_ledger() {
    match alone(sweep::sweep()) {
        Ok(size) => println!("{size}"),
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn a_write_that_rests_on_what_is_no_longer_so_is_refused() {
    if let Err(broken) = alone(row_count()) {
        panic!("{broken}");
    }
}
