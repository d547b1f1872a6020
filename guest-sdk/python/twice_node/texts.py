"""JSON text as it crosses the border."""

import json
from typing import Any


def write(value: Any) -> str:
    """`value` as JSON text.

    Raises ValueError with a reason for what JSON cannot say, which is also an infinite number and half a character.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return text
