"""What a row of the event page says of an event's data."""

import json
from typing import Any

import pytest

from agent.server.pages.status.event_page import shown_entry

WORK_ID = "01a1ee5d-4eea-77bd-8005-c355e9d0abfe"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            {"on": {"work": WORK_ID, "queue": "reviews"}},
            "waits for a worker of the queue 'reviews'",
        ),
        ({"work": WORK_ID, "worker": "desk"}, "work: e9d0abfe, worker: desk"),
        ({"error": {"message": "no amount", "class": "permanent"}}, "error: no amount"),
        ({"limits": {"tokens": 5}, "is_raised": True}, 'limits: {"tokens": 5}, is_raised: true'),
        ({"output": {"large": 1}}, ""),
        (None, ""),
    ],
)
def test_the_data_of_an_event_is_in_words(data: Any, text: str) -> None:
    """Waits are sentences, ids are short, errors are their messages, and the rest is JSON."""
    row = {
        "data": None if data is None else json.dumps(data),
        "parallel_index": None,
        "step_name": "review",
        "xid": 1,
        "id": 2,
        "task_id": "t",
        "type": "step.waiting",
        "attempt": 1,
        "at": 0,
    }
    assert shown_entry(row)["data"] == text
