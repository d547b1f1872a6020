"""Refunds an order, once, by a typed function of the tool."""

from componentize_py_types import Err
from twice_node import Fatal, State, node
from wit_world.imports import payments


@node
def refund(state: State) -> dict[str, str | int]:
    args = payments.RefundArgs(
        order_id=state.input["order_id"],
        amount_cents=state.input["amount_cents"],
        reason=state.input.get("reason"),
    )
    try:
        # Started again after a crash, this returns the recorded receipt: the money moves at most once.
        receipt = payments.refund(args)
    except Err as error:
        refused = error.value.value
        word = refused.code if hasattr(refused, "code") else refused.policy
        raise Fatal(f"{word}: {refused.message}") from error
    return {
        "refund_id": receipt.id,
        "status": receipt.status,
        "amount_cents": receipt.amount_cents,
    }
