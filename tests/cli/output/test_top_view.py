"""The view of `agent top`, from documents as the API returns them."""

import copy
from typing import Any

import pytest

from agent.cli.output import terminal, top_view
from agent.cli.output.top_view import Sample
from agent.server.schemas.load import LoadDocument


def document(**changes: Any) -> dict[str, Any]:
    """Return a document of the load: the example of the API's description, changed."""
    extra: Any = LoadDocument.model_config["json_schema_extra"]
    example: dict[str, Any] = copy.deepcopy(extra["examples"][0])
    return example | changes


def test_it_shows_slots_queue_steps_and_spend() -> None:
    """One line for each, and the step that runs for longest first."""
    lines = top_view.lines(Sample(document(), 0.0), None)
    text = "\n".join(lines)
    assert "slots" in lines[0] and "1/50" in lines[0]
    assert lines[1] == "queue: 0 due, the oldest for 0 ms"
    assert lines[2] == "tasks: 1 running, 0 waiting, 0 paused, 0 failed; steps: 1 running"
    assert lines[3].startswith("today: $")
    assert "Z" not in lines[0]
    assert "1.5 s" in text and "invoice-triage" in text and "home:4711" in text


def test_rates_come_from_two_samples() -> None:
    """Pruning makes counts smaller: that is no negative rate."""
    before = Sample(document(tasks={"succeeded": 10, "failed": 1}), 100.0)
    now = Sample(document(tasks={"succeeded": 18, "failed": 3}), 105.0)
    assert "; 2.0 tasks ended/s" in top_view.lines(now, before)[1]
    assert "; 0.0 tasks ended/s" in top_view.lines(before, Sample(now.load, 90.0))[1]


def test_its_lines_fit_a_terminal() -> None:
    """With the rate, while hundreds of tasks run: what is cut off tells nothing."""
    counts = {"running": 900, "failed": 900, "paused": 900, "waiting": 900}
    load = document(tasks=counts, steps=counts)
    lines = top_view.lines(Sample(load, 5.0), Sample(load, 0.0))
    assert lines[1].endswith("; 0.0 tasks ended/s")
    assert max(map(len, lines[:4])) <= 80


def test_what_needs_a_person_is_named() -> None:
    """Questions, unknown effects, late schedules; nothing runs and no worker is alive."""
    load = document(questions=2, unknown=1, workers=[], slowest=[], slots={"taken": 0, "total": 0})
    load["queue"] |= {"due": 1234, "age_seconds": 3600.0, "schedule_lag_seconds": 90.0}
    lines = top_view.lines(Sample(load, 0.0), None)
    assert lines[0].startswith("0 workers")
    assert lines[1] == (
        "queue: 1,234 due, the oldest for 1 h 00 min; schedules 1 min 30 s late;"
        " 2 questions, 1 unknown effect"
    )
    assert "worker: none" in lines


def test_it_fits_a_small_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 × 24: no line is longer, and the list of steps is cut."""
    monkeypatch.setattr(terminal, "width", lambda: 80)
    step = document()["slowest"][0] | {"workflow": "w" * 200, "step": "\x1b[31m" + "s" * 200}
    load = document(slowest=[step] * 50)
    lines = top_view.lines(Sample(load, 0.0), None, height=24)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
