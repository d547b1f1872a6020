//! Does whatever a test asks of a node: the run's input lists steps, for all nodes or for each by name, the output lists what
//! came of each.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use twice_node::effects::{self, EffectError, Receipt, Requests};
use twice_node::{NodeError, State, context, log};

#[derive(Deserialize)]
struct Plan {
    /// For nodes that are not named below.
    #[serde(default)]
    steps: Vec<Planned>,
    #[serde(default)]
    nodes: BTreeMap<String, Vec<Planned>>,
}

#[derive(Deserialize)]
struct Planned {
    /// The step is left out from this attempt on.
    until_attempt: Option<u32>,
    /// The step is left out from this visit on.
    until_visit: Option<u32>,
    /// The step is left out before this visit.
    from_visit: Option<u32>,
    /// The step is left out but for this element.
    of_element: Option<String>,
    #[serde(flatten)]
    step: Step,
}

#[derive(Deserialize)]
struct Call {
    slot: String,
    item: Option<u32>,
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Step {
    /// Requests an effect; with `must`, an error ends the node, else it is noted and the node goes on.
    Request {
        #[serde(flatten)]
        call: Call,
        #[serde(default)]
        must: bool,
    },
    RequestAll {
        requests: Vec<Call>,
    },
    /// Requests `slot` for elements 0 to `count` − 1, one after the other.
    RequestMany {
        slot: String,
        count: u32,
    },
    /// Requests `slot` with arrays nested so deep.
    RequestDeep {
        slot: String,
        depth: usize,
    },
    /// Requests `slot` with a text of so many bytes.
    RequestBig {
        slot: String,
        bytes: usize,
    },
    /// Requests `slot` with random bytes and the time in its args, which only durable ones keep the same.
    RequestVolatile {
        slot: String,
    },
    Retryable {
        message: String,
    },
    Fatal {
        message: String,
    },
    Panic {
        message: String,
    },
    Trap,
    Loop,
    Recurse,
    /// Allocates and touches so many bytes.
    Grow {
        bytes: usize,
    },
    /// Returns text that is no JSON.
    BadOutput,
    BigOutput {
        bytes: usize,
    },
    DeepOutput {
        depth: usize,
    },
    Log {
        level: String,
        message: String,
    },
    /// As a line of the log: there is no standard output here.
    Print {
        message: String,
    },
    /// There is no clock, no randomness and no hash order of the language's own here.
    Native,
    LogFlood {
        messages: u32,
        bytes: usize,
    },
    Now,
    Random {
        count: u32,
    },
    Context,
    /// Notes the outputs of other nodes.
    Nodes,
    /// Returns this.
    Return {
        output: Value,
    },
    /// Requests `slot` for the `id` of the element that the step is about; with `args`, with these, in which `{id}` stands
    /// for it.
    RequestElement {
        slot: String,
        args: Option<Value>,
    },
    /// Asks the model `model` what to do, and requests `act` with what it says, until it says that it is done.
    Agent {
        model: String,
        act: String,
    },
}

/// What a step leaves behind: a note, or the node's output.
enum Came {
    Note(Value),
    Output(String),
}

fn run(input: &str) -> Result<String, NodeError> {
    let state: State<Plan, Value, Value> = serde_json::from_str(input)?;
    let Plan { steps, mut nodes } = state.input;
    let id = state.element.as_ref().and_then(|element| element["id"].as_str()).unwrap_or_default();
    let mut notes = Vec::new();
    for planned in nodes.remove(&context::node()).unwrap_or(steps) {
        let Planned { until_attempt, until_visit, from_visit, of_element, step } = planned;
        if until_attempt.is_some_and(|attempt| context::attempt() >= attempt)
            || until_visit.is_some_and(|visit| context::visit() >= visit)
            || from_visit.is_some_and(|visit| context::visit() < visit)
            || of_element.is_some_and(|element| element != id)
        {
            continue;
        }
        match act(step, &state.nodes, id)? {
            Came::Note(note) => notes.push(note),
            Came::Output(text) => return Ok(text),
        }
    }
    Ok(json!({ "notes": notes }).to_string())
}

fn act(step: Step, nodes: &Value, element: &str) -> Result<Came, NodeError> {
    Ok(Came::Note(match step {
        Step::Request { call, must } => match request(&call) {
            Err(error) if must => return Err(error.into()),
            answer => note(answer),
        },
        Step::RequestAll { requests } => {
            let mut list = Requests::new();
            for Call { slot, item, args } in &requests {
                match item {
                    Some(item) => list.push_item(slot, *item, args)?,
                    None => list.push(slot, args)?,
                }
            }
            effects::request_all(&list).into_iter().map(note).collect()
        }
        Step::RequestMany { slot, count } => (0..count)
            .map(|item| note(effects::request_item(&slot, item, &json!({ "item": item }))))
            .collect(),
        Step::RequestDeep { slot, depth } => note(effects::request(&slot, &nested(depth))),
        Step::RequestBig { slot, bytes } => note(effects::request(&slot, &"x".repeat(bytes))),
        Step::RequestVolatile { slot } => {
            let args = json!({ "now": context::now(), "random": context::random(8) });
            note(effects::request(&slot, &args))
        }
        Step::Retryable { message } => return Err(NodeError::retryable(message)),
        Step::Fatal { message } => return Err(NodeError::fatal(message)),
        Step::Panic { message } => panic!("{message}"),
        Step::Trap => std::process::abort(),
        Step::Loop => loop {
            std::hint::spin_loop();
        },
        Step::Recurse => json!(recurse(1)),
        Step::Grow { bytes } => json!(vec![1_u8; bytes].iter().filter(|byte| **byte == 1).count()),
        Step::BadOutput => return Ok(Came::Output("{\"half\":".to_owned())),
        Step::BigOutput { bytes } => return Ok(Came::Output(json!("x".repeat(bytes)).to_string())),
        Step::DeepOutput { depth } => {
            return Ok(Came::Output("[".repeat(depth) + &"]".repeat(depth)));
        }
        Step::Log { level, message } => {
            write(&level, &message);
            Value::Null
        }
        Step::Print { message } => {
            log::info!("{message}");
            Value::Null
        }
        Step::Native => json!({}),
        Step::LogFlood { messages, bytes } => {
            (0..messages).for_each(|_| log::info!("{}", "x".repeat(bytes)));
            Value::Null
        }
        Step::Now => json!(context::now()),
        Step::Random { count } => json!(context::random(count)),
        Step::Context => json!({
            "run": context::run_id(),
            "node": context::node(),
            "visit": context::visit(),
            "attempt": context::attempt(),
        }),
        Step::Nodes => nodes.clone(),
        Step::Return { output } => return Ok(Came::Output(output.to_string())),
        Step::RequestElement { slot, args } => {
            let refund = json!({ "order_id": element, "amount_cents": 100 });
            let args = match args {
                Some(args) => serde_json::from_str(&args.to_string().replace("{id}", element))?,
                None => refund,
            };
            let mut note = note(effects::request(&slot, &args));
            note["element"] = json!(element);
            note
        }
        Step::Agent { model, act } => agent(&model, &act)?,
    }))
}

/// What it asks for depends on every answer that it got, as with a model that is asked again after a restart.
fn agent(model: &str, act: &str) -> Result<Value, EffectError> {
    let mut said: Vec<Value> = Vec::new();
    loop {
        let receipt = effects::request::<Value>(model, &json!({ "said": said }))?;
        let answer = receipt.body["output"].clone();
        said.push(answer.clone());
        if answer["done"].as_bool().unwrap_or_default() {
            return Ok(json!(said));
        }
        effects::request::<Value>(act, &answer["ask"])?;
    }
}

fn request(call: &Call) -> Result<Receipt<Value>, EffectError> {
    match call.item {
        Some(item) => effects::request_item(&call.slot, item, &call.args),
        None => effects::request(&call.slot, &call.args),
    }
}

fn note(answer: Result<Receipt<Value>, EffectError>) -> Value {
    match answer {
        Ok(Receipt { effect_id, body }) => json!({ "effect_id": effect_id, "body": body }),
        Err(EffectError::Failed { code, message, .. }) => {
            json!({ "failed": code, "message": message })
        }
        Err(EffectError::Denied { policy, message, .. }) => {
            json!({ "denied": policy, "message": message })
        }
        Err(error @ (EffectError::Args { .. } | EffectError::Body { .. })) => {
            json!({ "misfit": error.to_string() })
        }
    }
}

fn write(level: &str, message: &str) {
    match level {
        "debug" => log::debug!("{message}"),
        "warn" => log::warn!("{message}"),
        "error" => log::error!("{message}"),
        _ => log::info!("{message}"),
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

/// Uses up the stack. The end is never reached; the sum after the call keeps it from becoming a loop.
fn recurse(depth: u64) -> u64 {
    let used = std::hint::black_box([depth; 64]);
    if used[0] == u64::MAX { depth } else { recurse(depth + 1).wrapping_add(used[7]) }
}

twice_node::node_text!(run);
