"""Describes in words the wait of a step."""

from typing import Any, Final

from agent.cli.output import terminal
from agent.cli.output.terminal import short
from agent.core import waits
from agent.core.waits import Approval, Child, Items, Signal, Timer, UnknownCall, Work

_AFTER_UNKNOWN: Final = {
    "ask": "a person is asked",
    "retry": "the step retries it",
    "reconcile": "the step checks whether it happened",
    "fail": "the step fails",
}
"""The next action once an unknown effect can no longer be running, by `on_unknown`."""
_AT: Final = {
    "ask": "will ask",
    "retry": "will retry it",
    "reconcile": "will check it",
    "fail": "will fail",
}


def delayed(delay: dict[str, Any]) -> str:
    """Return which artifact store a step waits for and why, or which thread of its own."""
    why = "" if "thread" in delay else f": {terminal.one_line(delay.get('error') or '', 200)}"
    return terminal.one_line(waits.delay_words(delay), 300) + why


def waiting(on: dict[str, Any], error: dict[str, Any] | None = None) -> str:
    """Describe the wait of a step; `error` is that of the attempt before."""
    match waits.from_document(on):
        case Signal(name):
            return f"waits for the signal {name!r}"
        case UnknownCall():
            known = _known_of_effect(error)
            return f"unknown: {known or 'the result of its effect was never recorded'}"
        case Approval() | Work(approval_id=str()):
            message = on.get("message")
            return (
                f"asks: {terminal.one_line(waits.headline(message), 120)}"
                if message
                else "its question is closed"
            )
        case Timer(store_error=str() as problem):
            return f"waits for the artifact store: {terminal.one_line(problem, 200)}"
        case Timer(turn_after=str() as task_id):
            return f"waits for its turn: task {short(task_id)} answers first"
        case Timer() as timer:
            return _until(timer, error)
        case Child(task_id):
            child = f"waits for the child task {short(str(task_id))}"
            asks = on.get("asks")
            if asks and "paused" in asks[0] and asks[0]["task"] == task_id:
                return f"{child}, which is paused"
            return f"{child}, which waits for a person" if asks else child
        case Items() | Work() as others:
            return _for_others(others, on)
    return terminal.one_line(on)


def _for_others(others: Items | Work, on: dict[str, Any]) -> str:
    if isinstance(others, Items):
        return "waits for its items"
    # Few steps wait for a worker.
    from agent.core.work_words import worker_wait

    words = worker_wait(others.queue, on.get("state"), on.get("worker"))
    return terminal.one_line(words, 200)


def _known_of_effect(error: dict[str, Any] | None) -> str | None:
    from agent.steps.spec.unknown_question import what_happened

    return what_happened(error)


def _until(timer: Timer, error: dict[str, Any] | None) -> str:
    from agent.core.clock import to_iso

    instant = str(to_iso(timer.at))
    left = terminal.seconds_until(instant)
    until = f"until {terminal.moment(instant)}" + (
        f", {terminal.duration(left)} left" if left else ""
    )
    then = _AFTER_UNKNOWN.get(str(timer.on_unknown))
    if then is None:
        return f"waits {until}"
    known = _known_of_effect(error)
    if known is not None:
        effect = f"its effect {known}" if known.startswith("was ") else f"unknown: {known}"
        return f"{effect}; {_AT[str(timer.on_unknown)]} at {terminal.moment(instant)}"
    return f"its effect may still be running {until}; then {then}"
