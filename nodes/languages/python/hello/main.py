"""The smallest node: it greets whom the run's input names."""

from twice_node import State, node


@node
def hello(state: State) -> dict[str, str]:
    return {"greeting": f"Hello, {state.input['name']}!"}
