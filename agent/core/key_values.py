"""`key=value` as people type it, on the command line and in chats."""

import json
from collections.abc import Iterable
from typing import Any


def parse_pairs(pairs: Iterable[str], usage: str = "key=value") -> dict[str, str]:
    """Return typed pairs by their keys; raise `ValueError` that names the bad pair and the usage."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise ValueError(f"{pair}: write it as {usage}")
        if key in values:
            raise ValueError(f"{key}: given twice")
        values[key] = value
    return values


def parse_value(text: str) -> Any:
    """Read a typed value: JSON where it is valid JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
