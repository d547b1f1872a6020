"""What is built: the author's `main.py` behind the export of the world."""

import linecache
import os
import sys
import traceback

import wit_world
from componentize_py_types import Err

from twice_node import NodeError, Retryable, log
from twice_node.nodes import run, the_node

# The author's folder is the author's.
sys.dont_write_bytecode = True

import main  # noqa: E402

_node = the_node()

# The component has no files. What a traceback is to quote has to be read while it is built; an entry without a time is kept.
_folder = os.path.dirname(main.__file__)
for _module in [*sys.modules.values()]:
    _path = getattr(_module, "__file__", None) or ""
    if _path.startswith(_folder):
        linecache.cache[_path] = (0, None, linecache.getlines(_path), _path)


class WitWorld(wit_world.WitWorld):
    """The export of the world."""

    def run(self, input: str) -> str:
        try:
            return run(input, _node)
        except NodeError as error:
            kind = wit_world.NodeError_Retryable if isinstance(error, Retryable) else wit_world.NodeError_Fatal
            raise Err(kind(str(error))) from None
        except BaseException as error:
            # A trap carries no text: the log is the only place where its reason can be found.
            log.error("".join(traceback.format_exception(error)))
            os.abort()
