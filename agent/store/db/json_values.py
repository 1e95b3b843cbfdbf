"""Storable values: plain JSON, written as compact text and read back the same on both databases.

A value that one of the databases would refuse or change (NUL, a lone surrogate, NaN, bytes, a key
that is no string, an object) is refused here, with the path of the offending key. So it is an error of
the step that made it and never of the transaction that stores it.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

Json = Any
"""A plain JSON value: None, bool, int, float, str, list or dict of these."""

MAX_DEPTH = 200


class NotPlainJsonError(ValueError):
    """A value cannot be stored; the message names the path of the offending key."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_write = _encoder.encode
_read = json.loads
_quick: list[Any] = []
"""The module of the quick encoder, once it is used."""


def use_quick_encoder() -> None:
    """Use the quick encoder, in a process that writes many values: to load it takes longer than a command."""
    import orjson

    _quick[:] = [orjson]


def encode(value: Json, where: str) -> str:
    """Write a value as compact JSON, or refuse it; `where` names the value in the message."""
    if not _quick:
        _inspect(value, where, 0)
        return _write(value)
    orjson = _quick[0]
    # The quick encoder also accepts types that are not plain JSON.
    strictly = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    try:
        data: bytes = orjson.dumps(value, option=strictly)
        # Reading back finds the other values that are not plain: NaN was written as null.
        is_same = orjson.loads(data) == value
    except (TypeError, ValueError, RecursionError):
        data, is_same = b"", False
    if is_same and b"\\u0000" not in data and data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return data.decode()
    _inspect(value, where, 0)
    return _write(value)


def set_of(rows: Iterable[Any]) -> str:
    """Write the JSON array of ids, or of rows, that a statement takes as a parameter."""
    members = rows if isinstance(rows, list) else list(rows)
    with suppress(TypeError):
        if _quick:
            written: bytes = _quick[0].dumps(members)
            return written.decode()
    # Also a text that no database accepts: the statement fails with `Fault.DATA`.
    return json.dumps(members, ensure_ascii=False)


def decode(text: str | None) -> Json:
    """Read a stored value; a missing one is None."""
    if text is None or text == "null":
        return None
    # Most values are small, and most of their cost is the parser's start.
    return {} if text == "{}" else _read(text)


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _inspect(value: Json, path: str, depth: int) -> None:
    """Walk a value that the quick check did not clear, and name the first problem."""
    if depth > MAX_DEPTH:
        raise NotPlainJsonError(path, f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        _inspect_text(value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _inspect_number(value, path)
    elif isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise NotPlainJsonError(path, f"the key {key!r} is not a string")
            _inspect_text(key, f"{path} (key {key!r})")
            _inspect(member, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            _inspect(member, f"{path}[{index}]", depth + 1)
    elif value is not None and not isinstance(value, bool):
        raise NotPlainJsonError(path, f"a value of type {type(value).__name__} is not JSON")


def _inspect_text(text: str, path: str) -> None:
    if "\0" in text:
        raise NotPlainJsonError(path, "contains a NUL character, which cannot be stored")
    if not _is_unicode(text):
        raise NotPlainJsonError(path, "contains a lone surrogate, which is not valid Unicode")


def _inspect_number(value: Any, path: str) -> None:
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotPlainJsonError(path, f"{value} is not a JSON number")
        return
    try:
        int.__repr__(value)
    except ValueError:
        raise NotPlainJsonError(path, "an integer with too many digits") from None
