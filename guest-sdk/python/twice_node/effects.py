"""Requests for effects, the only way in which a node reaches the world."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from componentize_py_types import Err, Ok
from wit_world.imports import twice_effects as wit

from . import texts


@dataclass(frozen=True)
class Receipt:
    """The proof that an effect happened."""

    effect_id: str
    """The effect's id in the ledger, `eff_…`."""
    body: Any
    """What the tool lets a node see of the provider's result."""


@dataclass(frozen=True)
class Request:
    """One request of a list."""

    slot: str
    """The name under which the workflow grants the effect to this node."""
    args: Any = None
    """The arguments of the tool's operation."""
    item: int | None = None
    """Which element of the array that the workflow bound to the slot, from 0. Given exactly when it is bound with `for_each`."""


class EffectError(Exception):
    """Why there is no receipt.

    It is final: a restarted node gets the same, so that a node that does not catch it ends as `Fatal`. An outcome that is
    not known is no error; the request then does not return.
    """

    slot: str
    """The slot that was requested."""

    def __init__(self, slot: str, text: str) -> None:
        super().__init__(text)
        self.slot = slot


class Failed(EffectError):
    """It did not happen."""

    code: str
    """A stable word, such as the provider's error code, `http_402` or `exhausted`."""
    message: str
    """For people."""

    def __init__(self, slot: str, code: str, message: str) -> None:
        super().__init__(slot, f"`{slot}` failed with {code}: {message}")
        self.code, self.message = code, message


class Denied(EffectError):
    """It is not allowed, and was not sent."""

    policy: str
    """The policy that refused."""
    message: str
    """For people."""

    def __init__(self, slot: str, policy: str, message: str) -> None:
        super().__init__(slot, f"`{slot}` is denied by {policy}: {message}")
        self.policy, self.message = policy, message


class NotJson(EffectError):
    """The arguments cannot be written as JSON. Nothing was requested."""


def request(slot: str, args: Any = None, item: int | None = None) -> Receipt:
    """Requests the effect that the workflow grants under `slot`.

    `item` picks an element, from 0, of the array that the workflow bound to the slot with `for_each`. Raises `Failed` when
    it did not happen, `Denied` when it is not allowed, `NotJson` for its arguments.
    """
    prepared = _prepare(Request(slot, args, item))
    try:
        receipt = wit.request(prepared)
    except Err as error:
        raise _refusal(slot, error.value) from None
    return _read(receipt)


def request_all(requests: Iterable[Request]) -> list[Receipt | Failed | Denied]:
    """Requests all of a list; the host performs them concurrently.

    The answers stand in the order of the requests, and an effect that failed or is denied has its error there instead of a
    receipt. When one cannot be answered yet, none is: the node starts again when all can. Raises `NotJson` when the arguments
    of one cannot be written; nothing was requested then.
    """
    prepared = [_prepare(one) for one in requests]
    return [
        _read(answer.value) if isinstance(answer, Ok) else _refusal(one.slot, answer.value)
        for one, answer in zip(prepared, wit.request_all(prepared), strict=True)
    ]


def _prepare(one: Request) -> wit.EffectRequest:
    try:
        return wit.EffectRequest(one.slot, one.item, texts.write(one.args))
    except ValueError as error:
        raise NotJson(one.slot, f"the arguments of `{one.slot}` are no JSON: {error}") from error


def _read(receipt: wit.Receipt) -> Receipt:
    return Receipt(receipt.effect_id, json.loads(receipt.body))


def refusal_of(value: Any) -> str | None:
    """What a typed function of a tool raised for its refusal, in words; it is as final as an `EffectError`."""
    match value:
        case str(text):
            return text
        case wit.EffectError_Failed(failure):
            return f"failed with {failure.code}: {failure.message}"
        case wit.EffectError_Denied(denial):
            return f"denied by {denial.policy}: {denial.message}"
        case _:
            return None


def _refusal(slot: str, error: wit.EffectError) -> Failed | Denied:
    match error:
        case wit.EffectError_Failed(failure):
            return Failed(slot, failure.code, failure.message)
        case wit.EffectError_Denied(denial):
            return Denied(slot, denial.policy, denial.message)
