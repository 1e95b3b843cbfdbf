"""Committed events in the log: how tasks start and end, questions to people, and what went wrong."""

import json
from collections.abc import Callable
from typing import Any, Final

import structlog

from agent.config.channels import TRIGGER_NOTICES

_TASK_EVENTS: Final = frozenset(
    {
        "task.created",
        "task.paused",
        "task.resumed",
        "task.succeeded",
        "task.failed",
        "task.canceled",
    }
)
_TASK_DETAILS: Final = ("workflow", "reason")
"""Keys of log lines about tasks besides the id, where the event has them."""
_QUESTION_EVENTS: Final = frozenset({"approval.requested", "approval.renewed", "approval.reminded"})
_WARNING_EVENTS: Final = frozenset({"tool_call.unknown", "step.lost"})
_TRIGGER_EVENTS: Final = frozenset(TRIGGER_NOTICES)

LogKeys = Callable[[set[str]], dict[str, dict[str, str]]]

EVENT_TYPES: Final = _TASK_EVENTS | _QUESTION_EVENTS | _WARNING_EVENTS | _TRIGGER_EVENTS


def log_events(events: list[tuple[Any, ...]], log_keys: LogKeys | None = None) -> None:
    """Log events of `EVENT_TYPES`, as the event tail gives them.

    `log_keys` returns further keys of lines about tasks: their traces.
    """
    more = {}
    if log_keys is not None:
        more = log_keys({event[0] for event in events if event[0] is not None})
    for task_id, _, event, _, attempt, _, data in events:
        log = structlog.get_logger("agent.tasks").bind(**more.get(task_id, {}))
        if event in _WARNING_EVENTS:
            details = {} if attempt is None else {"attempt": attempt}
            log.warning(event, task=task_id, **details, data=_decoded(data))
        elif event in _TRIGGER_EVENTS:
            details = json.loads(data)
            write = log.info if event == "watcher.recovered" else log.warning
            write(event, **{key: value for key, value in details.items() if key != "event"})
        elif event in _TASK_EVENTS:
            details = json.loads(data) if data else {}
            shown = {key: details[key] for key in _TASK_DETAILS if key in details}
            log.info(event, task=task_id, **shown)
        elif event in _QUESTION_EVENTS:
            log.info(event, task=task_id, data=_decoded(data))


def _decoded(data: str | None) -> object:
    """Return an event's data as a value: a JSON log would escape it as text."""
    return None if data is None else json.loads(data)
