"""The run's log. Messages longer than 8 KiB are cut, and the log of a call ends at the node's limit."""

from wit_world.imports import twice_log as wit


def debug(message: object) -> None:
    """Writes a message for the author."""
    _write(wit.Level.DEBUG, message)


def info(message: object) -> None:
    """Writes a message for the operator."""
    _write(wit.Level.INFO, message)


def warn(message: object) -> None:
    """Writes that something is odd."""
    _write(wit.Level.WARN, message)


def error(message: object) -> None:
    """Writes that something is wrong."""
    _write(wit.Level.ERROR, message)


def _write(level: wit.Level, message: object) -> None:
    # Half a character is no text at the border, and a message about it should not be what ends the node.
    wit.write(level, str(message).encode(errors="backslashreplace").decode())
