"""What a person reads of a step: why it waits, which attempt it is at, and what helps."""

from typing import Any

import pytest

from agent.cli.output import task_view


def step(**given: Any) -> dict[str, Any]:
    """Return a step as a task's document has it."""
    return {
        "name": "pay",
        "status": "failed",
        "attempt": 1,
        "max_attempts": 3,
        "error": None,
        "skip_reason": None,
        "waiting_on": None,
        "wake_at": None,
        **given,
    }


def failed_with(command: str | None) -> dict[str, Any]:
    """Return a failed task whose only step failed with an error that names a command, or none."""
    message = "its outcome is unknown. `agent fork it --from pay` is only text"
    failure = {"code": "unknown_outcome", "class": "unknown", "message": message}
    failure |= {"command": command} if command else {}
    return {
        "id": "01HZX0000000000000ABCDEFGH",
        "status": "failed",
        "version": 1,
        "latest_version": 1,
        "unknown_effects": [],
        "retried_as": None,
        "error": {**failure, "step": "pay"},
        "steps": [step(error=failure)],
    }


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("ask", "a person is asked"),
        ("retry", "the step retries it"),
        ("reconcile", "the step checks whether it happened"),
        ("fail", "the step fails"),
    ],
)
def test_a_wait_for_an_effect_says_why_and_what_follows(then: str, words: str) -> None:
    """It is no pause that the workflow asks for."""
    on = {"timer": 4_000_000_000_000_000, "in_doubt": then}
    text = task_view.reason(step(status="waiting", waiting_on=on), "running")
    assert text.startswith("its effect may still be running until 20")
    assert text.endswith(f"; then {words}")
    plain = task_view.reason(step(status="waiting", waiting_on={"timer": on["timer"]}), "running")
    assert plain.startswith("waits until 20")


@pytest.mark.parametrize(
    ("state", "worker", "words"),
    [
        (None, None, "waits for a worker of the queue 'review'"),
        ("leased", "box:1", "claimed by the worker 'box:1' of the queue 'review'"),
        ("running", "box:1", "running on the worker 'box:1' of the queue 'review'"),
    ],
)
def test_a_wait_for_a_worker_says_who_has_the_work(
    state: str | None, worker: str | None, words: str
) -> None:
    """A step in work does not look like one that waits in a queue."""
    on = {"work": "01", "queue": "review", "state": state, "worker": worker}
    assert task_view.reason(step(status="waiting", waiting_on=on), "running") == words


@pytest.mark.parametrize(
    ("message", "beginning"),
    [
        ("POST /pay was answered with status 500", "its effect was answered with status 500; "),
        ("the process ended with exit code 7", "unknown: the process ended with exit code 7; "),
        ("no valid response: cut off", "unknown: no valid response: cut off; "),
    ],
)
def test_what_is_known_of_an_effect_is_a_sentence(message: str, beginning: str) -> None:
    """Also where that is how its process ended."""
    error = {"code": "x", "class": "unknown", "message": message}
    on = {"timer": 4_000_000_000_000_000, "in_doubt": "ask"}
    text = task_view.reason(step(status="waiting", waiting_on=on, error=error), "running")
    assert text.startswith(f"{beginning}will ask at 20")


@pytest.mark.parametrize(
    ("number", "code", "shown"),
    [
        (4, "attempts_exhausted", "3 of 3"),
        (5, "attempts_exhausted", "4"),
        (4, "unknown_outcome", "4"),
        (3, "exception", "3 of 3"),
        (1, "exception", ""),
    ],
)
def test_an_attempt_that_did_not_run_is_not_counted(number: int, code: str, shown: str) -> None:
    """The column agrees with an error that says that all three were used."""
    assert task_view.attempt(step(attempt=number, error={"code": code, "message": ""})) == shown


@pytest.mark.parametrize("is_advised", [True, False])
def test_a_retry_is_not_advised_where_it_fails_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch, is_advised: bool
) -> None:
    """The error names a fork, and so does the hint below the task."""
    lines: list[str] = []
    monkeypatch.setattr(task_view, "print_line", lambda text, _style="": lines.append(text))
    task_view._print_hints(failed_with("fork ABCDEFGH --from pay" if is_advised else None))
    text = "\n".join(lines)
    assert ("fork ABCDEFGH --from pay" in text) is is_advised
    assert ("retry" in text) is not is_advised


def test_a_child_that_a_budget_paused_is_resumed_by_raising_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`agent resume` would only let the child pause again: the hint names the command of its pause."""
    lines: list[str] = []
    monkeypatch.setattr(task_view, "print_line", lambda text, _style="": lines.append(text))
    on = {
        "task": "0-child",
        "paused": "budget: it is used up",
        "command": "budget child --tokens N",
    }
    task_view._print_need(on, "child")
    assert lines[-1] == "  agent budget child --tokens N"
    task_view._print_need({"task": "0-child", "paused": ""}, "child")
    assert lines[-1] == "  agent resume child"
    waiting = step(status="waiting", waiting_on={"child": "0-child", "asks": [on]})
    assert task_view.reason(waiting, "running").endswith(", which is paused")
