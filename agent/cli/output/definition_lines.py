"""The definition of a trigger as lines of YAML, with the keys that a person writes in the file."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from agent.workflows.compile.triggers import DURATIONS
from agent.workflows.compile.watch_sources import SOURCES
from agent.workflows.durations import format_duration

Document = dict[str, Any]

_PLAIN: Final = re.compile(r"[\w./][^\n]*")
_NOT_TEXT: Final = re.compile(r"[-+.\d_:eE]+|true|false|yes|no|on|off|null", re.IGNORECASE)
_TIMES: Final = ("cron", "every", "at")
"""The keys that say when a schedule or a poll is due; with the source, they are written first."""
_SHORT_FORMS: Final = (["url"], ["path"])
"""Sources that have nothing else are written as this one value."""


def lines_of(definition: Document) -> Iterator[str]:
    """Yield the lines of a compiled schedule or watcher; keys without a value are left out."""
    written = _durations_of(definition)
    for name in SOURCES:
        if isinstance(written.get(name), dict):
            source = _without_empty(_durations_of(written[name]))
            is_short = list(source) in _SHORT_FORMS
            written[name] = next(iter(source.values())) if is_short else source
    first = [name for name in ("id", *SOURCES, *_TIMES, *written) if name in written]
    return _lines(_without_empty({name: written[name] for name in first}), "")


def _durations_of(document: Document) -> Document:
    """Return a document with durations under their own names: `stagger: 10s`, not `stagger_seconds: 10.0`."""
    written = {}
    for name, value in document.items():
        short = name.removesuffix("_seconds")
        is_duration = short != name and short in DURATIONS and isinstance(value, int | float)
        written[short if is_duration else name] = format_duration(value) if is_duration else value
    return written


def _without_empty(document: Document) -> Document:
    return {
        name: value
        for name, value in document.items()
        if value is not None and value is not False and value not in ("", {}, [])
    }


def _lines(document: Document, indent: str) -> Iterator[str]:
    for name, value in document.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{name}: {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, str) and _is_plain(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    """Whether YAML reads a text as it is, without quotes."""
    return (
        _PLAIN.fullmatch(text) is not None
        and _NOT_TEXT.fullmatch(text) is None
        and ": " not in text
        and " #" not in text
        and not text.endswith((":", " "))
    )
