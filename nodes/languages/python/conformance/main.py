"""Does whatever a test asks of a node: the run's input lists steps, the output lists what came of each."""

import os
import random
import secrets
import time
import uuid
from collections.abc import Callable
from typing import Any

from twice_node import (
    Denied,
    EffectError,
    Failed,
    Fatal,
    NotJson,
    Receipt,
    Request,
    Retryable,
    State,
    context,
    effects,
    log,
    node,
)

type Step = dict[str, Any]


@node
def conformance(state: State) -> Any:
    plan: Step = state.input
    steps: list[Step] = plan.get("nodes", {}).get(context.node(), plan.get("steps", []))
    notes: list[Any] = []
    for step in steps:
        if is_left_out(step):
            continue
        match step["do"]:
            case "return":
                return step["output"]
            case "nodes":
                notes.append(state.nodes)
            case name:
                notes.append(STEPS[name](step))
    return {"notes": notes}


def is_left_out(step: Step) -> bool:
    return (
        ("until_attempt" in step and context.attempt() >= step["until_attempt"])
        or ("until_visit" in step and context.visit() >= step["until_visit"])
        or ("from_visit" in step and context.visit() < step["from_visit"])
    )


def request(step: Step) -> Any:
    one = call(step)
    if step.get("must", False):
        return note(effects.request(one.slot, one.args, one.item))
    return answer(one)


def request_all(step: Step) -> Any:
    return [note(answer) for answer in effects.request_all([call(one) for one in step["requests"]])]


def request_big(step: Step) -> Any:
    return answer(Request(step["slot"], "x" * step["bytes"]))


def request_deep(step: Step) -> Any:
    value: Any = None
    for _ in range(step["depth"]):
        value = [value]
    return answer(Request(step["slot"], value))


def request_volatile(step: Step) -> Any:
    return answer(Request(step["slot"], {"now": context.now(), "random": list(context.random(8))}))


def retryable(step: Step) -> Any:
    raise Retryable(step["message"])


def fatal(step: Step) -> Any:
    raise Fatal(step["message"])


def panic(step: Step) -> Any:
    raise RuntimeError(step["message"])


def trap(_step: Step) -> Any:
    os.abort()


def write(step: Step) -> None:
    levels = {"debug": log.debug, "info": log.info, "warn": log.warn, "error": log.error}
    levels[step["level"]](step["message"])


def where(_step: Step) -> Any:
    return {
        "run": context.run_id(),
        "node": context.node(),
        "visit": context.visit(),
        "attempt": context.attempt(),
    }


def native(_step: Step) -> Any:
    return {
        "time": time.time(),
        "time_ns": time.time_ns(),
        "monotonic": time.monotonic(),
        "random": random.random(),
        "uuid": str(uuid.uuid4()),
        "secret": secrets.token_hex(8),
        "hash": hash("twice"),
        "set": list({"refund", "notify", "ship", "capture"}),
    }


STEPS: dict[str, Callable[[Step], Any]] = {
    "request": request,
    "request_all": request_all,
    "request_big": request_big,
    "request_deep": request_deep,
    "request_volatile": request_volatile,
    "retryable": retryable,
    "fatal": fatal,
    "panic": panic,
    "trap": trap,
    "log": write,
    "print": lambda step: print(step["message"]),
    "now": lambda _: context.now(),
    "random": lambda step: list(context.random(step["count"])),
    "context": where,
    "native": native,
}


def call(step: Step) -> Request:
    return Request(step["slot"], step.get("args"), step.get("item"))


def answer(one: Request) -> Any:
    try:
        return note(effects.request(one.slot, one.args, one.item))
    except EffectError as error:
        return note(error)


def note(answer: Receipt | EffectError) -> Any:
    match answer:
        case Receipt():
            return {"effect_id": answer.effect_id, "body": answer.body}
        case Failed():
            return {"failed": answer.code, "message": answer.message}
        case Denied():
            return {"denied": answer.policy, "message": answer.message}
        case NotJson() | EffectError():
            return {"misfit": str(answer)}
