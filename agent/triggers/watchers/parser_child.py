"""The program that parses one document of a stranger, in a process of its own.

`parser_process` starts it and says why. It sees no secret: its environment is nearly empty. It imports
little, because it starts for each new document.
"""

import contextlib
import json
import os
import re
import sys
from importlib import import_module
from typing import Any, Final

_BASE_BYTES: Final = 268_435_456
_BYTES_PER_BYTE: Final = 40
"""Memory for each byte of the document; a parsed page takes about twenty."""

_control = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")


class UnreadableError(Exception):
    """A document is not what the source expects; the message is for a person."""


def main() -> None:
    """Read a request from standard input, write what came of it to standard output."""
    header = json.loads(sys.stdin.buffer.readline())
    body = sys.stdin.buffer.read()
    _limit(len(body), header["cpu_seconds"])
    answer = parse(header["parser"], body, header["options"])
    sys.stdout.buffer.write(json.dumps(answer, allow_nan=False).encode("ascii"))
    sys.stdout.buffer.flush()
    # Freeing what a large document became takes as long as parsing it.
    os._exit(0)


def parse(parser: str, body: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """Return `{"value": …}`, or `{"problem": …}` whatever the parser raises."""
    try:
        module = import_module(f"agent.triggers.watchers.{parser}")
        value = module.parse(body, options)
        json.dumps(value, allow_nan=False)
    except UnreadableError as error:
        return {"problem": str(error)}
    except MemoryError:
        return {"problem": "the document needs too much memory to be parsed"}
    except RecursionError:
        return {"problem": "the document is nested too deep to be parsed"}
    except Exception as error:
        return {"problem": f"the document cannot be parsed ({type(error).__name__}: {error})"}
    return {"value": value}


def clean(value: Any) -> str:
    """Return a text that every database stores: without control characters and lone surrogates."""
    text = value if isinstance(value, str) else str(value)
    return _control.sub("\ufffd", text).encode("utf-8", "replace").decode("utf-8")


def _limit(body_bytes: int, cpu_seconds: int) -> None:
    """Bound what a hostile document may cost; where the system cannot, the timeout remains."""
    with contextlib.suppress(OSError):
        os.nice(5)
    import resource

    memory = _BASE_BYTES + _BYTES_PER_BYTE * body_bytes
    for kind, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        # At the soft limit the signal says why it ends, at the hard one it is killed.
        (resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (soft, hard))
