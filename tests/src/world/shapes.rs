//! Workflows that are more than a line, for worlds: every node of them may refund, and fail in between.

use serde_json::{Value, json};

use crate::dice::Dice;
use crate::graphs::{each, fan_out, from_visit, give, refund, refund_of, setup, until_visit};
use crate::host::Setup;
use crate::tools::{Class, WINDOWS, Windows, later, until_attempt};

/// The shape of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Two nodes beside each other, and one that joins them.
    Branches,
    /// Two rounds of a loop, and what comes after it.
    Loop,
    /// A fan-out over four orders, two at once, and what comes after it.
    FanOut,
}

/// How many orders a fan-out is over.
const ELEMENTS: u64 = 4;

impl Shape {
    /// Every shape.
    pub const ALL: [Self; 3] = [Self::Branches, Self::Loop, Self::FanOut];

    /// The project, with a tool of the class.
    #[must_use]
    pub fn setup(self, class: Class) -> Setup {
        let (one, two) = (refund_of("/input/one"), refund_of("/input/two"));
        let last = |after: &str| format!("after = [{after}]\n{}", refund_of("/input/last"));
        let (each, keys) = fan_out(2);
        let review = "after = [\"draft\"]\nroutes = [\"again\", \"good\"]\nloop = { to = \"draft\", when = \"routes.review == 'again'\", max_visits = 2 }";
        let nodes = match self {
            Self::Branches => {
                vec![("one", one), ("two", two), ("last", last("\"one\", \"two\""))]
            }
            Self::Loop => {
                vec![("draft", one), ("review", review.to_owned()), ("last", last("\"review\""))]
            }
            Self::FanOut => vec![(each, keys), ("last", last("\"each\""))],
        };
        let nodes: Vec<(&str, &str)> =
            nodes.iter().map(|(name, keys)| (*name, keys.as_str())).collect();
        setup(class, Windows { horizon: "4h", ..WINDOWS }, "", &nodes)
    }

    /// The input of the run of that number, and how many orders it refunds when nothing goes wrong. `disturb` puts what may go
    /// wrong around the step that refunds.
    pub fn input(self, run: u64, mut disturb: impl FnMut(Value) -> Vec<Value>) -> (Value, u64) {
        let order = |name: &str| format!("order-{run}-{name}");
        let mut pay = |name: &str| disturb(refund(&order(name)));
        let mut nodes = vec![("last", pay("last"))];
        let count = match self {
            Self::Branches => {
                nodes.extend([("one", pay("one")), ("two", pay("two"))]);
                3
            }
            Self::Loop => {
                let first = pay("one").into_iter().map(|step| until_visit(2, step));
                let second = pay("two").into_iter().map(|step| from_visit(2, step));
                nodes.push(("draft", first.chain(second).collect()));
                let again = until_visit(2, give(&json!({ "route": "again" })));
                nodes.push(("review", vec![again, give(&json!({ "route": "good" }))]));
                3
            }
            Self::FanOut => {
                let step = json!({ "do": "request_element", "slot": "refund" });
                nodes.push(("each", disturb(step)));
                ELEMENTS + 1
            }
        };
        let mut input = each(&nodes);
        for name in ["one", "two", "last"] {
            input[name] = json!(order(name));
        }
        input["orders"] =
            (0..ELEMENTS).map(|item| json!({ "id": order(&item.to_string()) })).collect();
        (input, count)
    }

    /// The input of a run in which nodes fail as the dice say.
    #[must_use]
    pub fn drawn(self, dice: &mut Dice, run: u64) -> Value {
        self.input(run, |step| disturbed(dice, step)).0
    }
}

/// A step that refunds, with what goes wrong around it, as the dice say.
pub(super) fn disturbed(dice: &mut Dice, step: Value) -> Vec<Value> {
    let attempt = 2 + u32::try_from(dice.below(2)).expect("it is below two");
    let mut steps = Vec::new();
    if dice.one_in(8) && step["args"].is_object() {
        let mut otherwise = step.clone();
        otherwise["args"]["amount_cents"] = json!(200);
        otherwise["must"] = json!(false);
        steps.push(until_attempt(attempt, otherwise));
        steps.push(until_attempt(attempt, later()));
    }
    steps.push(step);
    if dice.one_in(4) {
        steps.push(until_attempt(attempt, later()));
    }
    if dice.one_in(8) {
        steps.push(until_attempt(attempt, json!({ "do": "trap" })));
    }
    if dice.one_in(12) {
        steps.push(json!({ "do": "fatal", "message": "no use" }));
    }
    steps
}
