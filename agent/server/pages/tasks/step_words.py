"""The states of steps in words for pages: statuses, reasons and durations."""

from typing import Any, Final

from agent.core import waits
from agent.core.clock import to_iso
from agent.core.state_machine import STEP_ENDED, TASK_ENDED, shown_step_status
from agent.core.waits import Approval, Child, Items, Signal, Timer, UnknownCall, Work
from agent.core.work_words import worker_wait
from agent.server.pages.framework.page_words import for_pages
from agent.server.pages.framework.templates import first_line, in_one_line

Document = dict[str, Any]

_SKIPPED: Final = {
    "if": "its condition was false",
    "run_on": "nothing failed",
    "upstream_failed": "a step that it depends on failed",
    "fail_fast": "another step failed",
    "deadline": "the task’s deadline passed",
}
ORDER: Final = (
    "failed",
    "waiting",
    "paused",
    "running",
    "succeeded",
    "kept",
    "skipped",
    "canceled",
    "pending",
)
"""Statuses of steps in the order of pages: those that need attention first."""
WORDS: Final = {
    "succeeded": "done",
    "pending": "not started",
    "kept": "kept",
    "canceled": "canceled",
}

DUE: Final = "is due"
"""A wait for a time, which stands behind these words."""


def shown_status(step: Document, task_status: str) -> str:
    """Return a step's status for people: `kept` from an earlier task, `canceled` with its task."""
    if step.get("is_kept"):
        return "kept" if step["status"] == "succeeded" else str(step["status"])
    return shown_step_status(step["status"], task_status)


def reason(step: Document, task_status: str) -> str:
    """Return why a step is in its status, in one line; nothing where its status says enough."""
    error = step["error"] or {}
    if step["status"] == "failed":
        return in_one_line(for_pages(error.get("message") or ""))
    if task_status in TASK_ENDED and step["status"] not in STEP_ENDED:
        return ""
    if step["status"] == "pending" and step["attempt"] > 1 and error:
        return f"tries again after: {in_one_line(for_pages(error.get('message') or ''))}"
    if step["status"] == "skipped":
        return _SKIPPED.get(step["skip_reason"] or "", step["skip_reason"] or "")
    if step["status"] == "waiting":
        return waiting(step["waiting_on"] or {})
    if delay := step.get("delay"):
        return in_one_line(for_pages(waits.delay_words(delay)))
    return ""


def waiting(on: Document) -> str:
    """Describe the wait of a step, in one line."""
    match waits.from_document(on):
        case Signal(name):
            return f"waits for the signal {name!r}"
        case UnknownCall():
            return "the result of its effect was never recorded"
        case Approval() | Work(approval_id=str()):
            return f"asks: {first_line(on['message'])}" if on.get("message") else "asks a person"
        case Timer(store_error=str()):
            return "waits for the artifact store"
        case Timer(turn_after=str()):
            return "waits for its turn in the conversation"
        case Timer():
            return DUE
        case Child():
            return "waits for its child task" + (
                ", which waits for a person" if on.get("asks") else ""
            )
        case Work(_, queue):
            return worker_wait(queue, on.get("state"), on.get("worker"))
        case Items():
            return "waits for its items"
    return "waits"


def until(step: Document, task_status: str) -> str | None:
    """Return when the time comes that a step waits for; pages write it as the viewer's local time."""
    if step["status"] != "waiting" or task_status in TASK_ENDED:
        return None
    on = waits.from_document(step["waiting_on"] or {})
    return to_iso(on.at) if isinstance(on, Timer) and waiting(step["waiting_on"]) == DUE else None


def attempt(step: Document) -> str:
    """Return a step's attempt, unless it is the first."""
    if step["attempt"] <= 1:
        return ""
    number = step["attempt"]
    if (step["error"] or {}).get("code") == "attempts_exhausted":
        # The last one did not run: it only found that no attempt is left.
        number -= 1
    if number > step["max_attempts"]:
        return f"attempt {number}"
    return f"attempt {number} of {step['max_attempts']}"
