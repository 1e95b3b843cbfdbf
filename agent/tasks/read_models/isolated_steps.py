"""The step that runs isolated after a crash: why other due steps do not start meanwhile."""

from collections.abc import Callable

from agent.core.clock import SECOND, to_iso
from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.read import load_rows
from agent.store.read.load_rows import IsolatedStep
from agent.tasks.state.isolation import IS_ISOLATED, MUST_BE_ISOLATED

_MOST_FOLLOWING = 100

Document = dict[str, Json]


def running(connection: Connection, solo_seconds: float, now: int) -> Document | None:
    """Return the step that runs isolated, with the latest end of its isolation; None if there is none.

    Reads only the steps that run.
    """
    return _first(load_rows.isolated(connection, IS_ISOLATED), solo_seconds, now)


def isolation(connection: Connection, solo_seconds: float, now: int) -> Document | None:
    """Return the step that runs isolated, or that waits for running steps to end, and how many follow."""
    isolated = load_rows.isolated(connection, IS_ISOLATED)
    first = _first(isolated, solo_seconds, now)
    due = load_rows.due_isolated(connection, MUST_BE_ISOLATED, now, _MOST_FOLLOWING)
    if first is not None:
        return first | {"following": len(due)}
    # Beside one whose time is over, others start; and so they do when one has waited for too long.
    if isolated or not due or not load_rows.longest_running(connection, 1):
        return None
    if now - (due[0].wake_at or now) >= solo_seconds * SECOND:
        return None
    return _document(due[0]) | {"until": None, "following": len(due) - 1}


def _first(isolated: list[IsolatedStep], solo_seconds: float, now: int) -> Document | None:
    for step in isolated:
        until = (step.started_at or now) + int(solo_seconds * SECOND)
        if until > now:
            return _document(step) | {"until": to_iso(until), "following": 0}
    return None


def words(document: Document, name: Callable[[str], str], moment: Callable[[str], str]) -> str:
    """Say in a sentence what keeps other steps from starting; `name` writes a task, `moment` an instant."""
    step = f"step {document['step']} of task {name(document['task'])}"
    following = document["following"]
    more = f"{following}+" if following >= _MOST_FOLLOWING else str(following)
    if document["until"] is None:
        text = f"{step} will run alone after a crash, once the steps that run now have ended"
    else:
        text = f"{step} runs alone after a crash, until {moment(document['until'])} at the latest"
    match following:
        case 0:
            return f"{text}; other steps start then"
        case 1:
            return f"{text}; one more follows, and then other steps start"
    return f"{text}; {more} more follow, one at a time, and then other steps start"


def _document(step: IsolatedStep) -> Document:
    item = "" if step.parallel_index < 0 else f"[{step.parallel_index}]"
    return {"task": step.task_id, "workflow": step.workflow, "step": f"{step.name}{item}"}
