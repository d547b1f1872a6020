"""Refunds an order, once, by a typed function of the tool."""

import json

import wit_world
from componentize_py_types import Err
from wit_world import NodeError_Fatal
from wit_world.imports import payments
from wit_world.imports.effects import EffectError_Failed


def refund(state):
    order = state["input"]
    args = payments.RefundArgs(
        order_id=order["order_id"],
        amount_cents=order["amount_cents"],
        reason=order.get("reason"),
    )
    try:
        # Started again after a crash, this returns the recorded receipt: the money moves at most once.
        receipt = payments.refund(args)
    except Err as error:
        refused = error.value.value
        word = refused.code if isinstance(error.value, EffectError_Failed) else refused.policy
        raise Err(NodeError_Fatal(f"{word}: {refused.message}"))
    return {
        "refund_id": receipt.id,
        "status": receipt.status,
        "amount_cents": receipt.amount_cents,
    }


class WitWorld(wit_world.WitWorld):
    def run(self, input: str) -> str:
        return json.dumps(refund(json.loads(input)))
