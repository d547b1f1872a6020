//! From wasmtime's errors to how a call ended, in words.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use wasmtime::{Error, FrameInfo, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::api::Ended;
use crate::engine::{
    CORE_INSTANCES_MAX, FRAMES_MAX, MEMORIES_MAX, STACK_BYTES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX,
};
use crate::state::{State, Stop, shorten};
use crate::wasi::HANDLES_MAX;

/// Longest text of a guest's error or of a trap's cause. Bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;

/// How a call ended that ended with `error`.
pub(crate) fn explain(error: &Error, state: &State) -> Ended {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return match stop.clone() {
            Stop::Suspended => Ended::Suspended,
            Stop::Limit { limit, message } => Ended::Limit { limit, message },
            Stop::Misuse(message) => Ended::Trapped { message: with_stack(message, error) },
        };
    }
    let trap = error.downcast_ref::<Trap>().copied();
    if let Some(I32Exit(status)) = error.downcast_ref::<I32Exit>() {
        let cause = format!("the node left with status {status} instead of returning from `run`");
        return Ended::Trapped { message: with_last_words(with_stack(cause, error), state) };
    }
    if trap == Some(Trap::MemoryOutOfBounds) && recurses(error) {
        let message = "the node used memory outside of its own, deep in a recursion: the stack that its language keeps in memory \
                       is most likely used up; is the recursion without end, or too deep?";
        return Ended::Limit { limit: "stack", message: with_stack(message.to_owned(), error) };
    }
    if trap == Some(Trap::StackOverflow) {
        let message = format!(
            "the node's stack reached its limit of {} KiB; is a recursion without end, or too deep?",
            STACK_BYTES_MAX >> 10
        );
        return Ended::Limit { limit: "stack", message: with_stack(message, error) };
    }
    let cause = trap.map_or_else(|| root(error), |trap| words(trap).to_owned());
    if let Some(total) = state.space.refused_memory {
        let message = format!(
            "the node needs more memory than its limit of {} KiB: it asked for {} KiB in all, was refused, and stopped ({cause}); \
             raise `limits.memory` of the node in the workflow",
            state.limits.memory_bytes >> 10,
            total >> 10
        );
        return Ended::Limit { limit: "memory", message: with_stack(message, error) };
    }
    if let Some(elements) = state.space.refused_table {
        let message = format!(
            "the node needs a table of {elements} elements; the limit is {TABLE_ELEMENTS_MAX}. It was refused, and stopped ({cause})"
        );
        return Ended::Limit { limit: "table", message: with_stack(message, error) };
    }
    match untyped(&cause, state) {
        Some((limit, message)) => Ended::Limit { limit, message },
        None => Ended::Trapped { message: with_last_words(with_stack(cause, error), state) },
    }
}

/// Adds what the node said before it ended, which a trap does not carry.
fn with_last_words(message: String, state: &State) -> String {
    let words = if let Some(last) = &state.last_error {
        format!("{message}\nthe node's last error message: {last}")
    } else if state.last_lines.is_empty() {
        message
    } else {
        let lines: Vec<&str> = state.last_lines.iter().map(String::as_str).collect();
        format!("{message}\nwhat the node printed last:\n{}", lines.join("\n"))
    };
    shorten(&words, TEXT_BYTES_MAX)
}

/// The end of a call whose time is over.
pub(crate) fn out_of_time(limit: Duration) -> Stop {
    Stop::Limit {
        limit: "time",
        message: format!(
            "the node did not return within its limit of {} ms, waiting for effects included (`limits.time` of the node in the \
             workflow)",
            limit.as_millis()
        ),
    }
}

/// What a full table of handles says.
const TABLE_FULL: &str = "resource table has no free keys";

/// Limits that wasmtime reports only in its text.
fn untyped(cause: &str, state: &State) -> Option<(&'static str, String)> {
    if cause.contains("fuel allocated for hostcalls has been exhausted") {
        let limit = state.limits.payload_bytes;
        Some((
            "payload",
            format!(
                "the node passed more data to the host at once than can be let through; the limit of one JSON text is {limit} \
                 bytes"
            ),
        ))
    } else if cause.contains(TABLE_FULL) || cause.contains("handle limit exceeded") {
        Some((
            "handles",
            format!(
                "the node has more handles (streams, clocks that are waited for, resources of its own) than its limit of \
                 {HANDLES_MAX} at once; does it drop them?"
            ),
        ))
    } else if cause.contains("count too high") || cause.contains("exceeds the limit of") {
        Some((
            "instances",
            format!(
                "the component is made of too many parts: {cause}; the limits are {CORE_INSTANCES_MAX} core instances, \
                 {MEMORIES_MAX} memories and {TABLES_MAX} tables"
            ),
        ))
    } else {
        None
    }
}

/// The innermost cause, which says what happened; what is around it says where in the host.
fn root(error: &Error) -> String {
    let cause = error.chain().last().map_or_else(|| error.to_string(), ToString::to_string);
    format!("the call was stopped: {cause}")
}

fn words(trap: Trap) -> &'static str {
    match trap {
        Trap::UnreachableCodeReached => {
            "the node stopped itself (`unreachable`: a panic, an abort or a failed assertion)"
        }
        Trap::MemoryOutOfBounds => "the node used memory outside of its own",
        Trap::IntegerDivisionByZero => "the node divided by zero",
        Trap::IntegerOverflow => "the node's arithmetic overflowed",
        Trap::BadConversionToInteger => "the node converted a number that is no integer",
        Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => {
            "the node called a function pointer that is none"
        }
        Trap::CannotLeaveComponent => {
            "the node called the host from where it may not (while it allocates memory for the host)"
        }
        Trap::StringOutOfBounds | Trap::ListOutOfBounds => {
            "the node passed text or a list that lies outside of its memory"
        }
        // Wasmtime's own words are good enough for the rare ones.
        other => other_words(other),
    }
}

fn other_words(trap: Trap) -> &'static str {
    match trap {
        Trap::NullReference => "the node used a null reference",
        Trap::UnalignedPointer => "the node passed an unaligned pointer",
        Trap::InvalidChar => "the node passed a character that is none",
        Trap::InvalidDiscriminant => "the node passed a variant that is none",
        _ => "the node broke a rule of WebAssembly",
    }
}

/// Whether the innermost frames are as many as are kept, and all of a few functions that call each other.
fn recurses(error: &Error) -> bool {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return false };
    let functions: BTreeSet<u32> = trace.frames().iter().map(FrameInfo::func_index).collect();
    trace.frames().len() >= FRAMES_MAX && functions.len() <= FRAMES_MAX / 4
}

/// Adds the guest's stack, innermost function first.
fn with_stack(message: String, error: &Error) -> String {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return message };
    let mut text = message;
    for same in trace.frames().chunk_by(|a, b| a.func_index() == b.func_index()) {
        let name = same[0].func_name().map_or_else(
            || format!("function {}", same[0].func_index()),
            |name| format!("{:#}", rustc_demangle::demangle(name)),
        );
        // Writing to a string cannot fail.
        _ = write!(text, "\n  in {name}");
        if same.len() > 1 {
            _ = write!(text, " ({} times)", same.len());
        }
    }
    shorten(&text, TEXT_BYTES_MAX)
}
