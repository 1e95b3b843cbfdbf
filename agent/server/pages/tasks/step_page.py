"""The page of one step: each attempt with its input, its calls and its outcome."""

from typing import Any, Final

from agent.core.state_machine import shown_step_status
from agent.core.waits import UnknownCall
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.renderings import by_task
from agent.server.pages.tasks import log_page, step_list, step_words
from agent.server.pages.tasks.task_drawings import add_durations
from agent.store.db.database import Connection
from agent.store.read import step_views, views
from agent.tasks.read_models import person_waits, step_attempts, task_overview, transcript

Document = dict[str, Any]

pages = PageRegistry("step")

_MOST_CALLS: Final = 60
_MOST_ATTEMPTS: Final = 20


@pages.page("/tasks/{task_id}/steps/{name}", "step.html", version=by_task)
def step_page(connection: Connection, request: PageRequest) -> Document:
    """Return a step with its latest attempts and calls."""
    task_id, name = request.params["task_id"], request.params["name"]
    step = step_attempts.step_document(connection, task_id, name, request.context.graphs)
    attempts = [_bounded(attempt) for attempt in step["attempts"][-_MOST_ATTEMPTS:][::-1]]
    calls = step["calls"][-_MOST_CALLS:]
    return {
        "step": {
            **step,
            "status": shown_step_status(step["status"], step["task_status"]),
            "items": [
                {**item, "status": shown_step_status(item["status"], step["task_status"])}
                for item in step["items"]
            ],
        },
        "reason": step_words.reason(step, step["task_status"]),
        "until": step_words.until(step, step["task_status"]),
        "took": _took(connection, step, request.context.database.clock.now()),
        "attempts": attempts,
        "opened": _opened(attempts),
        "calls": calls,
        "is_conversation": step["kind"] in transcript.MODELLED,
        "left_out_calls": len(step["calls"]) - len(calls),
        "left_out_attempts": len(step["attempts"]) - len(attempts),
        "is_unknown": isinstance(person_waits.wait_of(step), UnknownCall)
        or bool(step["unknown_effects"]),
        "live_tasks": [task_id],
        "every_seconds": log_page.live_seconds(connection, task_id, step),
    }


def _took(connection: Connection, step: Document, now: int) -> str:
    """Return how long a step ran that has ended, as the page of its task has it."""
    if step["ended_at"] is None:
        return ""
    task = views.task(connection, step["task"])
    row = step_views.step_by_name(connection, step["task"], step["step"])
    assert task is not None and row is not None
    timed = {**step, "index": row["index"], "id": row["id"]}
    kind, other = ("steps", "items") if row["parallel_index"] < 0 else ("items", "steps")
    history = task_overview.history(connection, task, now)
    add_durations({**history, kind: [timed], other: []}, now)
    return step_list.took(timed)


def _bounded(attempt: Document) -> Document:
    """Return an attempt with the end of its log."""
    log = log_page.end_of(attempt["log"], log_page.SHOWN)
    is_cut = bool(log) and (len(log) < len(attempt["log"]) or log[0] != attempt["log"][0])
    return {**attempt, "log": log, "log_clipped": attempt["log_clipped"] or is_cut}


def _opened(attempts: list[Document]) -> int | None:
    """Return the attempt that is opened first: the last that failed, else the last."""
    failed = [attempt for attempt in attempts if attempt["status"] in ("failed", "lost")]
    chosen = next(iter(failed or attempts), None)
    return None if chosen is None else int(chosen["attempt"])
