//! One call of `run`, in an instance of its own.

use std::time::{Duration, Instant};

use wasmtime::{Error, Store, UpdateDeadline};

use crate::api::{CallLimits, Ended, Host};
use crate::bindings::{NodeError, NodePre};
use crate::engine::Ticking;
use crate::explain::{TEXT_BYTES_MAX, explain, out_of_time};
use crate::state::{State, shorten};
use crate::wasi::HANDLES_MAX;

/// Most data that crosses to the host in one call of one of its functions, however much was granted. Bytes; beyond it a guest
/// could make the host allocate many times the guest's own memory.
pub(crate) const CROSSING_BYTES_MAX: usize = 64 << 20;
/// Most handles in the guest's own tables. A handle that is lent for a call counts twice.
const GUEST_HANDLES_MAX: usize = 2 * HANDLES_MAX;
/// What a request costs beside its texts when it crosses. Bytes, rounded up.
const REQUEST_COST_BYTES: usize = 256;
/// Longest call, for limits that are longer than a clock can count.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Runs the component once. The host comes back however the call ends.
pub(crate) async fn call(
    component: &NodePre<State>,
    ticking: Ticking<'_>,
    input: &str,
    limits: CallLimits,
    host: Box<dyn Host>,
) -> (Ended, Box<dyn Host>) {
    let time = limits.time;
    let deadline = Instant::now() + time.min(TIME_MAX);
    let mut store = store(component, State::new(host, limits, deadline));
    // Two guards: the epoch stops a guest that computes, the timer a host function that waits.
    let outcome =
        tokio::time::timeout_at(deadline.into(), instantiate_and_run(component, &mut store, input))
            .await
            .unwrap_or_else(|_elapsed| Err(out_of_time(time).into()));
    drop(ticking);
    store.data_mut().end_lines();
    let ended = match outcome {
        Ok(ended) => ended,
        Err(error) => explain(&error, store.data()),
    };
    (ended, store.into_data().host)
}

fn store(component: &NodePre<State>, state: State) -> Store<State> {
    let granted = (state.limits.payload_bytes.saturating_add(REQUEST_COST_BYTES))
        .saturating_mul(state.limits.effects.max(1) as usize);
    let mut store = Store::new(component.engine(), state);
    store.limiter(|state| &mut state.space);
    // Twice a payload at least, so that a single text over its limit is measured and reported as such.
    store.set_hostcall_fuel(granted.saturating_mul(2).min(CROSSING_BYTES_MAX));
    store.set_max_component_handles(GUEST_HANDLES_MAX);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| {
        let state = context.data();
        if Instant::now() >= state.deadline {
            Err(out_of_time(state.limits.time).into())
        } else {
            // Lets the other calls of this thread go on.
            Ok(UpdateDeadline::Yield(1))
        }
    });
    store
}

async fn instantiate_and_run(
    component: &NodePre<State>,
    store: &mut Store<State>,
    input: &str,
) -> Result<Ended, Error> {
    store.data().fits("the node's input", input.len())?;
    let node = component.instantiate_async(&mut *store).await?;
    let ended = match node.call_run(&mut *store, input).await? {
        Ok(output) => {
            store.data().fits("the node's output", output.len())?;
            Ended::Returned(output)
        }
        Err(NodeError::Retryable(message)) => Ended::Retryable(shorten(&message, TEXT_BYTES_MAX)),
        Err(NodeError::Fatal(message)) => Ended::Fatal(shorten(&message, TEXT_BYTES_MAX)),
    };
    Ok(ended)
}
