"""What a provider sent, as values that can be kept and sent back: bounded, plain JSON, well formed.

Nothing in an answer is taken for granted: it may be of any size and shape, its counts negative, its
ids missing or repeated, its names such as no provider takes back.
"""

import codecs
import json
import math
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final, Protocol

from agent.models.errors import said_in
from agent.models.protocol import Json, clean

MAX_BYTES: Final = 67_108_864
"""Of an answer; whoever sends more is not listened to any longer."""
_MAX_DEPTH: Final = 100
_MAX_TOKENS: Final = 10**12
_MAX_WORD: Final = 200
_MAX_SHOWN: Final = 80
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME: Final = 64
_REPLACED: Final = re.compile(r"\\u(?:0000|[dD][89abAB])")
"""What `plain` may have to replace: NUL and surrogates, as escapes."""


class TooLargeError(Exception):
    """An answer is larger than any that is read."""


class Body(Protocol):
    """An answer that is being received, as both SDKs give it."""

    @property
    def http_response(self) -> Any:
        """The answer of the HTTP client."""

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """Return what comes, unpacked."""


async def received(body: Body) -> str:
    """Return the text of an answer; raise `TooLargeError` instead of reading on and on."""
    parts, size = [], 0
    async for part in body.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise TooLargeError(f"it is larger than {MAX_BYTES} bytes")
    try:
        codec = codecs.lookup(body.http_response.charset_encoding or "utf-8").name
        return b"".join(parts).decode(codec, "replace")
    except LookupError:
        return b"".join(parts).decode("utf-8", "replace")


def document_of(text: str) -> dict[str, Any]:
    """Read an answer as a JSON object; raise `ValueError` if it is none, or tells of an error."""
    try:
        found = json.loads(text, parse_constant=_refuse)
    except ValueError as problem:
        begins = f"; it begins with {text[:_MAX_SHOWN]!r}" if text else ""
        raise ValueError(f"it is no JSON: {problem}{begins}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    if found.get("error"):
        raise ValueError(f"it tells of an error: {said_in(found) or found['error']}")
    document: dict[str, Any] = plain(found)
    return document


def arguments_of(given: Json) -> Json:
    """Read the arguments of a tool use; what is no JSON object stays the text that it is.

    So does an object that cannot be stored, as one with a NUL in a text: replacing the character
    would use the tool with something that the model did not ask for.
    """
    if given is None or given == "":
        # For a tool that takes none.
        return {}
    if not isinstance(given, str):
        # Written with escapes, so that the text itself can be stored.
        return given if _is_storable(given) else json.dumps(given)
    try:
        found = json.loads(given, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return clean(given)
    return found if _is_storable(found) else clean(given)


def _is_storable(arguments: Json) -> bool:
    try:
        return isinstance(arguments, dict) and plain(arguments) == arguments
    except (ValueError, RecursionError):
        return False


def inputs_of(body: str, document: dict[str, Any]) -> list[Json]:
    """Return the arguments of all tool uses among an answer's blocks, from its text where needed."""
    is_whole = _REPLACED.search(body) is None
    blocks = (document if is_whole else json.loads(body))["content"]
    return [arguments_of(block["input"]) for block in blocks if block.get("type") == "tool_use"]


def distinct(ids: Iterable[Any]) -> Iterator[str]:
    """Return ids as texts that differ: what answers a use must say which one it answers."""
    seen: set[str] = set()
    for place, given in enumerate(ids):
        name = word(given) or f"use_{place}"
        number = place
        while name in seen:
            # Another may be called just so.
            name = f"{name[: _MAX_WORD - 10]}_{number}"
            number += 1
        seen.add(name)
        yield name


def name_to_send(name: str) -> str:
    """Return a tool's name as providers take it back, also where a model has made one up."""
    return _NO_NAME.sub("_", name)[:_MAX_NAME] or "_"


def plain(value: Any, depth: int = 0) -> Any:
    """Return a JSON value without what no database keeps; raise `ValueError` if it cannot be one."""
    if depth > _MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): plain(member, depth + 1) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(member, depth + 1) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no JSON value")
    return value


def told(problem: Exception) -> str:
    """Say for people what was found wrong with an answer's shape."""
    if type(problem) is ValueError:
        return str(problem)
    return f"it is not of the shape that it should be ({type(problem).__name__}: {problem})"


def word(value: Any) -> str | None:
    """Return a short text, such as an id or a name; None for what is none."""
    return value[:_MAX_WORD] if isinstance(value, str) and value else None


def count(value: Any) -> int | None:
    """Return a number of tokens; None for what cannot be one."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= _MAX_TOKENS else None


def _refuse(name: str) -> Json:
    raise ValueError(f"{name} is no JSON value")
