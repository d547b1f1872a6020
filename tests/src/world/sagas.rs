//! Workflows whose runs are undone, for worlds: reversals undo refunds.

use serde_json::{Value, json};

use super::shapes::disturbed;
use crate::dice::Dice;
use crate::graphs::{each, fan_out, from_visit, give, graph, refund, refund_of, until_visit};
use crate::host::Setup;
use crate::tools::{Class, WINDOWS, Windows};
use crate::undoing::{payments_and_back_within, released_refund, undone_refund};

/// The shape of a workflow whose runs are undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saga {
    /// Three refunds, one after the other. What is refused is asked for again.
    Chain,
    /// A branch of two nodes and one of one, and one that joins them, undone branch by branch.
    Branches,
    /// A fan-out over four orders, two at once, undone at once.
    FanOut,
    /// A loop with a fan-out in it, which may end in its second round, before it comes to the fan-out.
    Rounds,
    /// What is undone by its order, so that it can be undone though nobody knows whether it happened: one refund that is, one
    /// that is not until that is known, and one that stays.
    Release,
    /// A point of no return amid three.
    Pivot,
}

/// How many orders a fan-out is over.
const ELEMENTS: u64 = 4;
/// Undoing that was refused is asked for twice more.
const RETRY: &str = ", retry = { attempts = 3, initial = \"10m\", max = \"1h\" }";

impl Saga {
    /// Every shape.
    pub const ALL: [Self; 6] =
        [Self::Release, Self::Pivot, Self::Chain, Self::Branches, Self::FanOut, Self::Rounds];

    /// Whether its refunds may be of that class: behind a point of no return a run must be able to go on.
    #[must_use]
    pub fn takes(self, class: Class) -> bool {
        self != Self::Pivot || class.has_key()
    }

    /// Whether its reversals may be of that class: nothing is undone on suspicion that may not be asked for twice.
    #[must_use]
    pub fn takes_back(self, back: Class) -> bool {
        self != Self::Release || back.has_key()
    }

    /// The project, with a tool whose refunds are of one class, and whose reversals of another.
    #[must_use]
    pub fn setup(self, class: Class, back: Class) -> Setup {
        let undone = |name: &str, after: &str, more: &str| {
            let after =
                if after.is_empty() { String::new() } else { format!("after = [{after}]\n") };
            format!("{after}{}", undone_refund(&format!("/input/{name}"), "", more))
        };
        let fan_out = || {
            let (each, keys) = fan_out(2);
            let keys = keys.split("[[node.effect]]").next().unwrap_or_default().to_owned();
            (each, format!("{keys}{}", undone_refund("/element/id", "", "")))
        };
        let branches = "[saga]\nundo = \"branches\"";
        let (head, nodes) = match self {
            Self::Chain => (
                "",
                vec![
                    ("one", undone("one", "", RETRY)),
                    ("two", undone("two", "\"one\"", "")),
                    ("last", undone("last", "\"two\"", ", retry = { attempts = 1 }")),
                ],
            ),
            Self::Branches => (
                branches,
                vec![
                    ("one", undone("one", "", RETRY)),
                    ("more", undone("more", "\"one\"", ", retry = { attempts = 1 }")),
                    ("two", undone("two", "", RETRY)),
                    ("last", undone("last", "\"more\", \"two\"", "")),
                ],
            ),
            Self::FanOut => {
                (branches, vec![fan_out(), ("last", undone("last", "\"each\"", RETRY))])
            }
            Self::Rounds => {
                let (each, keys) = fan_out();
                let review = "after = [\"each\"]\nroutes = [\"again\", \"good\"]\nloop = { to = \"draft\", when = \"routes.review == 'again'\", max_visits = 2 }";
                (
                    "",
                    vec![
                        ("draft", undone("one", "", RETRY)),
                        (each, format!("after = [\"draft\"]\n{keys}")),
                        ("review", review.to_owned()),
                        ("last", undone("last", "\"review\"", "")),
                    ],
                )
            }
            Self::Release => (
                "",
                vec![
                    ("one", released_refund("/input/one", "", ", on_unknown = \"undo\"")),
                    (
                        "two",
                        format!("after = [\"one\"]\n{}", released_refund("/input/two", "", RETRY)),
                    ),
                    ("last", format!("after = [\"two\"]\n{}", refund_of("/input/last"))),
                ],
            ),
            Self::Pivot => (
                "",
                vec![
                    ("one", undone("one", "", RETRY)),
                    (
                        "two",
                        format!("after = [\"one\"]\n{}pivot = true\n", refund_of("/input/two")),
                    ),
                    ("last", format!("after = [\"two\"]\n{}", refund_of("/input/last"))),
                ],
            ),
        };
        let nodes: Vec<(&str, &str)> =
            nodes.iter().map(|(name, keys)| (*name, keys.as_str())).collect();
        let windows = Windows { horizon: "4h", ..WINDOWS };
        Setup::new(&[&graph(head, &nodes)]).tool(payments_and_back_within(class, back, windows))
    }

    /// The input of the run of that number. `disturb` puts what may go wrong around each step that refunds; `end` is what comes
    /// after the last of them.
    pub fn input(
        self,
        run: u64,
        mut disturb: impl FnMut(Value) -> Vec<Value>,
        end: Option<Value>,
    ) -> Value {
        let order = |name: &str| format!("order-{run}-{name}");
        let mut pay = |name: &str| disturb(refund(&order(name)));
        let mut last = pay("last");
        let mut nodes = Vec::new();
        match self {
            Self::Chain | Self::Release | Self::Pivot => {
                nodes.extend([("one", pay("one")), ("two", pay("two"))]);
            }
            Self::Branches => {
                nodes.extend([("one", pay("one")), ("more", pay("more")), ("two", pay("two"))]);
            }
            Self::FanOut => nodes.push(("each", disturb(element()))),
            Self::Rounds => {
                let first = pay("one").into_iter().map(|step| until_visit(2, step));
                let mut draft: Vec<Value> = first.collect();
                draft.extend(end.clone().map(|end| from_visit(2, end)));
                nodes.push(("draft", draft));
                let once = disturb(element()).into_iter().map(|step| until_visit(2, step));
                nodes.push(("each", once.collect()));
                let again = until_visit(2, give(&json!({ "route": "again" })));
                nodes.push(("review", vec![again, give(&json!({ "route": "good" }))]));
            }
        }
        last.extend(end);
        nodes.push(("last", last));
        let mut input = each(&nodes);
        for name in ["one", "more", "two", "last"] {
            input[name] = json!(order(name));
        }
        input["orders"] =
            (0..ELEMENTS).map(|item| json!({ "id": order(&item.to_string()) })).collect();
        input
    }

    /// The input of a run in which nodes fail as the dice say; most runs do not go on at their end.
    #[must_use]
    pub fn drawn(self, dice: &mut Dice, run: u64) -> Value {
        let end = (!dice.one_in(4)).then(no_use);
        self.input(run, |step| disturbed(dice, step), end)
    }
}

/// The step by which a node fails for good.
#[must_use]
pub fn no_use() -> Value {
    json!({ "do": "fatal", "message": "no use" })
}

fn element() -> Value {
    json!({ "do": "request_element", "slot": "refund" })
}
