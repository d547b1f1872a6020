"""From the author's function to JSON text."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from componentize_py_types import Err

from . import texts
from .effects import EffectError, refusal_of
from .errors import Fatal


@dataclass(frozen=True)
class State:
    """The state of a run."""

    input: Any
    """The run's input."""
    nodes: dict[str, Any] = field(default_factory=dict)
    """The last output of each node that has run, of those whose order before or behind this one is fixed."""
    element: Any = None
    """The element that this step is about, in a fan-out."""


type Node = Callable[[State], Any]

_nodes: list[Node] = []


def node(function: Node) -> Node:
    """Makes the node of a function that takes the state and returns the output, which JSON can write. Once in `main.py`."""
    _nodes.append(function)
    return function


def the_node() -> Node:
    """The function that is marked with `@node`."""
    match _nodes:
        case [function]:
            return function
        case _:
            raise ImportError(f"main.py has {len(_nodes)} functions marked with @node; mark one")


def run(text: str, function: Node) -> str:
    """Runs a node on JSON text and returns the text of its output, as the host does. A node's tests can call it.

    Raises `Retryable` or `Fatal` where the node raises it, and `Fatal` for an effect's error that it does not catch, be it of
    a typed function, and for an output that is no JSON. Everything else comes through as it was raised.
    """
    state = json.loads(text)
    try:
        output = function(State(state["input"], state["nodes"], state.get("element")))
    except EffectError as error:
        raise Fatal(str(error)) from error
    except Err as error:
        refusal = refusal_of(error.value)
        if refusal is None:
            raise
        raise Fatal(refusal) from error
    try:
        return texts.write(output)
    except ValueError as error:
        raise Fatal(f"the output is no JSON: {error}") from error
