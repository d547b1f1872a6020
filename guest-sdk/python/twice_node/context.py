"""What a node may know about where it runs. All of it is durable: a node that is started again sees the same values."""

from wit_world.imports import twice_context as wit


def run_id() -> str:
    """The id of the run."""
    return wit.run_id()


def node() -> str:
    """The name of the node in the workflow."""
    return wit.node()


def visit() -> int:
    """Which visit of the node in this run, from 1."""
    return wit.visit()


def attempt() -> int:
    """Which attempt of this visit, from 1. For logs: nothing that is requested may depend on it."""
    return wit.attempt()


def now() -> int:
    """Milliseconds since 1970-01-01T00:00:00Z.

    When the step became due, moved forward by each answered effect to the time of its answer.
    """
    return wit.now()


def random(count: int) -> bytes:
    """`count` random bytes, at most 65,536.

    Continues from call to call. Not secret: whoever knows the run can compute them.
    """
    return wit.random(count)
