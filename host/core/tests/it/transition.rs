use expect_test::expect;
use twice_core::effect::State;
use twice_core::event::EffectEventKind as Kind;
use twice_core::transition::{Illegal, mermaid, next};

const NONE: Option<State> = None;
const PROPOSED: Option<State> = Some(State::Proposed);
const AUTHORIZED: Option<State> = Some(State::Authorized);
const REQUESTED: Option<State> = Some(State::Requested);
const CONFIRMED: Option<State> = Some(State::Confirmed);
const FAILED: Option<State> = Some(State::Failed);
const UNKNOWN: Option<State> = Some(State::Unknown);

/// Every pair: a column for each state an effect can be in, `None` in a cell where the move is illegal.
const HEADER: [Option<State>; 7] =
    [NONE, PROPOSED, AUTHORIZED, REQUESTED, CONFIRMED, FAILED, UNKNOWN];
#[rustfmt::skip]
const TABLE: [(Kind, [Option<State>; 7]); 11] = [
    (Kind::Proposed,        [PROPOSED, PROPOSED,   PROPOSED,   NONE,       NONE,      NONE,   NONE]),
    (Kind::Authorized,      [NONE,     AUTHORIZED, NONE,       NONE,       NONE,      NONE,   NONE]),
    (Kind::Requested,       [NONE,     NONE,       REQUESTED,  NONE,       NONE,      NONE,   REQUESTED]),
    (Kind::Confirmed,       [NONE,     NONE,       NONE,       CONFIRMED,  NONE,      NONE,   CONFIRMED]),
    (Kind::Failed,          [NONE,     FAILED,     FAILED,     FAILED,     NONE,      NONE,   FAILED]),
    (Kind::Deferred,        [NONE,     NONE,       NONE,       AUTHORIZED, NONE,      NONE,   NONE]),
    (Kind::Unknown,         [NONE,     NONE,       UNKNOWN,    UNKNOWN,    NONE,      NONE,   NONE]),
    (Kind::Probed,          [NONE,     NONE,       NONE,       NONE,       NONE,      NONE,   UNKNOWN]),
    (Kind::Observed,        [NONE,     NONE,       AUTHORIZED, REQUESTED,  CONFIRMED, FAILED, UNKNOWN]),
    (Kind::Conflicted,      [NONE,     NONE,       NONE,       REQUESTED,  CONFIRMED, FAILED, UNKNOWN]),
    (Kind::ConflictDecided, [NONE,     NONE,       NONE,       REQUESTED,  CONFIRMED, FAILED, UNKNOWN]),
];

#[test]
fn every_pair_of_state_and_event_is_decided() {
    assert_eq!(TABLE.map(|(event, _)| event), Kind::ALL);
    assert!(HEADER.into_iter().flatten().eq(State::ALL));
    for (event, row) in TABLE {
        for (from, to) in HEADER.into_iter().zip(row) {
            let expected = to.ok_or(Illegal { from, event });
            assert_eq!(next(from, event), expected, "{from:?} takes {event:?}");
        }
    }
}

#[test]
fn nothing_leaves_a_final_state() {
    for state in State::ALL.into_iter().filter(|state| state.is_final()) {
        for event in Kind::ALL {
            let to = next(Some(state), event).unwrap_or(state);
            assert_eq!(to, state, "{state} leaves by {event:?}");
        }
    }
}

#[test]
fn an_illegal_move_says_which() {
    let message = |from, event| next(from, event).expect_err("illegal").to_string();
    assert_eq!(
        message(CONFIRMED, Kind::Requested),
        "an effect that is CONFIRMED cannot take `requested`"
    );
    assert_eq!(
        message(NONE, Kind::Requested),
        "an effect that is not proposed cannot take `requested`"
    );
}

#[test]
fn words_of_states_read_back() {
    for state in State::ALL {
        assert_eq!(State::parse(state.as_str()), Some(state));
        assert_eq!(serde_json::to_value(state).expect("plain"), state.as_str());
    }
    assert_eq!(State::parse("confirmed"), None);
}

/// The diagram of ARCHITECTURE.md.
#[test]
fn the_state_diagram_is_made_from_the_table() {
    expect![[r#"
        stateDiagram-v2
            [*] --> PROPOSED: proposed
            PROPOSED --> AUTHORIZED: authorized
            PROPOSED --> FAILED: failed
            AUTHORIZED --> PROPOSED: proposed
            AUTHORIZED --> REQUESTED: requested
            AUTHORIZED --> FAILED: failed
            AUTHORIZED --> UNKNOWN: unknown
            REQUESTED --> AUTHORIZED: deferred
            REQUESTED --> CONFIRMED: confirmed
            REQUESTED --> FAILED: failed
            REQUESTED --> UNKNOWN: unknown
            UNKNOWN --> REQUESTED: requested
            UNKNOWN --> CONFIRMED: confirmed
            UNKNOWN --> FAILED: failed
            CONFIRMED --> [*]
            FAILED --> [*]
    "#]]
    .assert_eq(&mermaid());
}
