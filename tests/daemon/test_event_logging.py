"""Committed events as lines of the daemon's log."""

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.daemon.event_logging import log_events


@pytest.mark.parametrize(
    ("event", "data", "shown"),
    [
        ("task.created", {"workflow": "hello", "version": 1}, {"workflow": "hello"}),
        ("task.paused", {"reason": "audit"}, {"reason": "audit"}),
        ("task.succeeded", None, {}),
    ],
)
def test_a_line_about_a_task_says_which_and_why(
    event: str, data: dict[str, Any] | None, shown: dict[str, str]
) -> None:
    """The workflow of a new task, and the reason of a pause: an id alone says nothing to a person."""
    text = None if data is None else json.dumps(data)
    with capture_logs() as logged:
        log_events([("t1", None, event, None, None, None, text)])
    assert logged == [{"event": event, "task": "t1", "log_level": "info", **shown}]
