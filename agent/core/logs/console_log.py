"""The daemon's log on a terminal: one short line an event, in local time, with short ids."""

import json
import re
from collections.abc import Callable, Iterator, MutableMapping
from datetime import date, datetime
from typing import Any, Final

from agent.core.escape import harmless, harmless_json

_ID: Final = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{4}([0-9a-f]{8})\b"
)
"""A time-ordered id: those made together differ only at their end."""
_LEVELS: Final = {"debug": "dim", "warning": "yellow", "error": "red", "critical": "red"}
_CODES: Final = {"dim": 2, "red": 31, "yellow": 33, "bold": 1}
_HIDDEN: Final = ("event", "level", "logger", "timestamp", "exception", "stack")
_LONGEST: Final = 100
"""Characters of a value; what was cut is in the log as JSON, in the events and in `agent show`."""


class ConsoleRenderer:
    """Renders events; the date is printed once a day."""

    def __init__(self, *, has_colours: bool, columns: Callable[[], int] | None = None) -> None:
        """Without `columns`, the width of a terminal, lines are not cut."""
        self._has_colours = has_colours
        self._columns = columns
        self._day: date | None = None

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        """Return the line of an event, with its traceback if it has one."""
        when = datetime.fromisoformat(event["timestamp"]).astimezone()
        level = str(event.get("level", "info"))
        style = _LEVELS.get(level)
        name = str(event.get("event", ""))
        is_problem = level not in ("info", "debug")
        head = [self._styled(when.strftime("%H:%M:%S"), "dim")]
        head += [self._styled(level, style)] * is_problem
        head.append(self._styled(name, style or "bold"))
        values = "  ".join(
            f"{key}={_shown(value, is_whole=is_problem)}" for key, value in _flat(event)
        )
        if not is_problem and self._columns is not None:
            room = self._columns() - len(f"HH:MM:SS  {name}  ")
            values = values if len(values) <= room else f"{values[: max(0, room - 1)]}…"
        lines = ["  ".join([*head, values]).rstrip()]
        lines += [str(event[key]) for key in ("stack", "exception") if event.get(key)]
        if self._day not in (None, when.date()):
            lines.insert(0, self._styled(f"{when:%Y-%m-%d}", "dim"))
        self._day = when.date()
        return "\n".join(lines)

    def _styled(self, text: str, style: str | None) -> str:
        if not self._has_colours or style is None:
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def _flat(event: MutableMapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of an event, those of its `data` among them."""
    for key, value in event.items():
        if key == "data" and isinstance(value, dict):
            yield from _flat(value)
        elif key not in _HIDDEN and value is not None and value != "":
            yield key, value


def _shown(value: Any, *, is_whole: bool) -> str:
    """Return a value on one line, with the ends of ids; warnings and errors are never cut."""
    text = harmless(value) if isinstance(value, str) else harmless_json(value)
    text = _ID.sub(r"\1", " ".join(text.split()))
    if not is_whole and len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 1]}…"
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and " " in text else text
