"""Refunds an order, once.

The node decides *what* to ask for. Whether it is allowed, whether a person must approve it, under which idempotency key it is
sent and what to do after a crash is the business of the workflow, the tool and the host.
"""

from twice_node import Fatal, State, effects, log, node


@node
def refund(state: State) -> dict[str, str | int]:
    order_id: str = state.input["order_id"]
    amount_cents: int = state.input["amount_cents"]
    paid_cents: int = state.input["paid_cents"]
    reason: str | None = state.input.get("reason")
    if not 0 < amount_cents <= paid_cents:
        raise Fatal(f"{amount_cents} cents cannot be refunded: {paid_cents} were paid for {order_id}")
    args = {
        "order_id": order_id,
        "amount_cents": amount_cents,
        "reason": "requested by the customer" if reason is None else reason,
    }
    # Started again after a crash, this returns the recorded receipt: the money moves at most once.
    receipt = effects.request("refund", args)
    log.info(f"{order_id}: {amount_cents} cents refunded ({receipt.effect_id})")
    return {"refund_id": receipt.body["id"], "status": receipt.body["status"], "amount_cents": amount_cents}
