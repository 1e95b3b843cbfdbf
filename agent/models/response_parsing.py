"""Parsing of a provider's response into values that can be stored and sent back.

A response may be of any size and structure. Its counts may be negative, its ids missing or repeated,
and its names such as no provider accepts.
"""

import codecs
import json
import math
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final, Protocol

from agent.models.errors import error_text
from agent.models.protocol import Json, clean

MAX_BYTES: Final = 67_108_864
"""The largest response that is read."""
_MAX_DEPTH: Final = 100
_MAX_TOKENS: Final = 10**12
_MAX_SHORT_TEXT: Final = 200
_MAX_SHOWN: Final = 80
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME: Final = 64
_REPLACEABLE: Final = re.compile(r"\\u(?:0000|[dD][89abAB])")
"""The escapes that `to_plain_json` may have to replace: NUL and surrogates."""


class TooLargeError(Exception):
    """A response is larger than `MAX_BYTES`."""


class Body(Protocol):
    """A response that is being received, as both SDKs give it."""

    @property
    def http_response(self) -> Any:
        """The response of the HTTP client."""

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """Return the decoded bytes as they arrive."""


async def read_body(body: Body) -> str:
    """Return the text of a response; raise `TooLargeError` for one beyond `MAX_BYTES`."""
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
    """Parse a response as a JSON object; raise `ValueError` if it is none, or contains an error."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        begins = f"; it begins with {text[:_MAX_SHOWN]!r}" if text else ""
        raise ValueError(f"it is not JSON: {error}{begins}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    if value.get("error"):
        raise ValueError(f"it contains an error: {error_text(value) or value['error']}")
    document: dict[str, Any] = to_plain_json(value)
    return document


def arguments_of(raw: Json) -> Json:
    """Parse the arguments of a tool use; a text that is no JSON object stays text.

    So does an object that cannot be stored, such as one with a NUL in a text: replacing the character
    would use the tool with arguments that the model did not give.
    """
    if raw is None or raw == "":
        # For a tool without arguments.
        return {}
    if not isinstance(raw, str):
        # With escapes, so that the text itself can be stored.
        return raw if _is_storable(raw) else json.dumps(raw)
    try:
        arguments = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return clean(raw)
    return arguments if _is_storable(arguments) else clean(raw)


def _is_storable(arguments: Json) -> bool:
    try:
        return isinstance(arguments, dict) and to_plain_json(arguments) == arguments
    except (ValueError, RecursionError):
        return False


def inputs_of(body: str, document: dict[str, Any]) -> list[Json]:
    """Return the arguments of all tool uses among a response's blocks, from its text where needed."""
    is_whole = _REPLACEABLE.search(body) is None
    blocks = (document if is_whole else json.loads(body))["content"]
    return [arguments_of(block["input"]) for block in blocks if block.get("type") == "tool_use"]


def distinct_ids(ids: Iterable[Any]) -> Iterator[str]:
    """Return the ids of tool uses as texts that differ: a tool's answer names the use by its id."""
    seen: set[str] = set()
    for index, raw in enumerate(ids):
        name = short_text(raw) or f"use_{index}"
        number = index
        while name in seen:
            # Another use may have this very id.
            name = f"{name[: _MAX_SHORT_TEXT - 10]}_{number}"
            number += 1
        seen.add(name)
        yield name


def name_to_send(name: str) -> str:
    """Return a tool's name as providers accept it, also one that a model has invented."""
    return _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME] or "_"


def to_plain_json(value: Any, depth: int = 0) -> Any:
    """Return a JSON value without characters that no database stores; raise `ValueError` if it is none."""
    if depth > _MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): to_plain_json(member, depth + 1) for key, member in value.items()}
    if isinstance(value, list):
        return [to_plain_json(member, depth + 1) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON value")
    return value


def parse_problem(error: Exception) -> str:
    """Describe the problem of a response, for people."""
    if type(error) is ValueError:
        return str(error)
    return f"its structure is not as expected ({type(error).__name__}: {error})"


def short_text(value: Any) -> str | None:
    """Return a short text, such as an id or a name; None for anything else."""
    return value[:_MAX_SHORT_TEXT] if isinstance(value, str) and value else None


def token_count(value: Any) -> int | None:
    """Return a number of tokens; None for anything else."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= _MAX_TOKENS else None


def _refuse(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON value")
