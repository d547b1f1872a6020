"""Refunds an order, once, by a typed function of the tool."""

from twice_node import State, node
from wit_world.imports import payments


@node
def refund(state: State) -> dict[str, str | int]:
    args = payments.RefundArgs(
        order_id=state.input["order_id"],
        amount_cents=state.input["amount_cents"],
        reason=state.input.get("reason"),
    )
    # Started again after a crash, this returns the recorded receipt: the money moves at most once. A refusal that is not
    # caught ends the run.
    receipt = payments.refund(args)
    return {
        "refund_id": receipt.id,
        "status": receipt.status,
        "amount_cents": receipt.amount_cents,
    }
