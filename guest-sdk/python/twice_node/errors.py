"""How a node ends without an output."""


class NodeError(Exception):
    """Ends the node without an output. Raise one of its kinds."""


class Retryable(NodeError):
    """Asks for a restart of the step later, as often as the workflow allows. What was confirmed meanwhile stays so."""


class Fatal(NodeError):
    """Ends the run, once each of its effects is known to have happened or not."""
