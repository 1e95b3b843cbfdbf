"""The page of one step: each attempt with its input, its calls and its outcome."""

from typing import Any, Final

from agent.core.clock import SECOND
from agent.core.waits import UnknownCall
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.tasks import step_words
from agent.store.db.database import Connection
from agent.store.read import overview
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import person_waits, step_attempts, transcript

Document = dict[str, Any]

pages = PageRegistry("step")

_LIVE_SECONDS: Final = 3.0
"""How often the page of a running step is read again: its log grows without events."""
_MOST_CALLS: Final = 60
_MOST_ATTEMPTS: Final = 20


def _version(connection: Connection, request: PageRequest) -> tuple[Any, ...]:
    version = overview.version(connection, request.params["task_id"])
    if version is None:
        raise NotFoundError(f"there is no task {request.params['task_id']}")
    now = request.context.database.clock.now()
    return (*version, now // int(_LIVE_SECONDS * SECOND) if version[1] == "running" else None)


@pages.page("/tasks/{task_id}/steps/{name}", "step.html", version=_version)
def step_page(connection: Connection, request: PageRequest) -> Document:
    """Return a step with its latest attempts and calls."""
    task_id, name = request.params["task_id"], request.params["name"]
    step = step_attempts.step_document(connection, task_id, name, request.context.graphs)
    attempts = step["attempts"][-_MOST_ATTEMPTS:][::-1]
    calls = step["calls"][-_MOST_CALLS:]
    is_running = step["status"] == "running"
    return {
        "step": step,
        "reason": step_words.reason(step, "running"),
        "until": step_words.until(step, "running"),
        "attempts": attempts,
        "opened": _opened(attempts),
        "calls": calls,
        "is_conversation": step["kind"] in transcript.MODELLED,
        "left_out_calls": len(step["calls"]) - len(calls),
        "left_out_attempts": len(step["attempts"]) - len(attempts),
        "is_unknown": isinstance(person_waits.wait_of(step), UnknownCall),
        "live_tasks": [task_id],
        "every_seconds": int(_LIVE_SECONDS) if is_running else None,
    }


def _opened(attempts: list[Document]) -> int | None:
    """Return the attempt that is opened first: the last that failed, else the last."""
    failed = [attempt for attempt in attempts if attempt["status"] in ("failed", "lost")]
    chosen = next(iter(failed or attempts), None)
    return None if chosen is None else int(chosen["attempt"])
