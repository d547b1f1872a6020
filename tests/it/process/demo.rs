//! `twice demo` is a test of the whole by itself.

use twice_tests::project::Project;

use super::shop::TWICE;

#[test]
fn the_demo_pays_once() {
    let project = Project::empty(TWICE);
    let ran = project.twice(&["demo", "--keep", "kept"]);
    assert_eq!(ran.code, Some(0), "{ran}");
    for told in [
        "UNKNOWN",
        "CONFIRMED",
        "refund/run-781/order-42/full-damaged-item",
        "nothing was sent, nothing was written",
        "refunds made: 1",
    ] {
        assert!(ran.stdout.contains(told), "`{told}` is missing: {ran}");
    }
    // What is kept is a project like any other.
    let kept = project.json(&["--project", "kept", "runs", "show", "run-781"]);
    assert_eq!((&kept["chain"], &kept["run"]["state"]), (&"holds".into(), &"completed".into()));
}
