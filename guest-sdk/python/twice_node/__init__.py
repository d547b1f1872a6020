"""Write nodes for Twice in Python.

A node is one plain function. It gets the state of its run, computes, *requests* effects from the host, and returns an
output. It never touches the world itself. In return it may be started any number of times, after any crash: what it
requested before is answered from the ledger, and nothing happens a second time.

    from twice_node import Fatal, State, effects, log, node

    @node
    def refund(state: State) -> dict[str, str]:
        order_id, amount_cents = state.input["order_id"], state.input["amount_cents"]
        if amount_cents == 0:
            raise Fatal("there is nothing to refund")
        log.info(f"refunding {amount_cents} cents of {order_id}")
        receipt = effects.request("refund", {"order_id": order_id, "amount_cents": amount_cents})
        return {"refund_id": receipt.body["id"]}
"""

from . import context, effects, log
from .effects import Denied, EffectError, Failed, NotJson, Receipt, Request
from .errors import Fatal, NodeError, Retryable
from .nodes import State, node, run

__all__ = [
    "Denied",
    "EffectError",
    "Failed",
    "Fatal",
    "NodeError",
    "NotJson",
    "Receipt",
    "Request",
    "Retryable",
    "State",
    "context",
    "effects",
    "log",
    "node",
    "run",
]
