"""What listed tasks wait for: a few entries for each task, and the words for them.

An entry has `what`, one of `WHAT`, and `count`, how many steps wait for the same. `signal` has its
`name`; `time`, `effect` (one whose result is unknown, and that may still be running) and `retry` have `until`;
`person` and `unknown` have the `approval` and its `message`; `turn` has the `task` that answers first;
`worker` has the `queue`, and the `worker` and `state` of the first lease, null without one; `child` has, as
`waiting_for`, what the `task` waits for: the
child, or the one of its own children that needs a person most.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from agent.core import waits
from agent.core.clock import to_iso
from agent.core.plain_json import Json
from agent.core.state_machine import TaskStatus
from agent.core.waits import Approval, Child, Signal, Timer, UnknownCall, Work
from agent.store.db.database import Connection
from agent.store.read import task_list
from agent.tasks.read_models.task_documents import short_id

Document = dict[str, Json]

WHAT: Final = (
    "person",
    "unknown",
    "signal",
    "paused",
    "child",
    "turn",
    "store",
    "worker",
    "effect",
    "time",
    "retry",
)
"""In the order of urgency: what a person or a program has to do comes first."""
_NEEDS_OUTSIDER: Final = ("person", "unknown", "signal")


def of_tasks(connection: Connection, rows: Iterable[dict[str, Any]]) -> dict[str, list[Document]]:
    """Return what each open task of some rows waits for, the most urgent first."""
    is_open = (TaskStatus.RUNNING, TaskStatus.PAUSED)
    ids = [row["id"] for row in rows if row["status"] in is_open]
    if not ids:
        return {}
    by_task = _own(connection, ids)
    parents = [
        task_id
        for task_id, entries in by_task.items()
        if any(entry["what"] == "child" for entry in entries)
    ]
    if parents:
        _add_childrens(connection, by_task, parents)
    _add_questions(connection, by_task)
    return {task_id: sorted(entries, key=_urgency) for task_id, entries in by_task.items()}


def counts(entries: list[Document]) -> Document:
    """Return how many steps only a person or a program can wake, and the signal if it is all."""
    outside = [entry for entry in entries if entry["what"] in _NEEDS_OUTSIDER]
    is_signal = len(outside) == 1 and outside[0]["what"] == "signal"
    return {
        "waits": sum(entry["count"] for entry in outside),
        "signal": outside[0]["name"] if is_signal else None,
    }


_WORDS: Final = {
    "unknown": "waits for a person: the result of its effect is unknown",
    "paused": "is paused",
    "store": "waits for the artifact store",
}


def words(entries: list[Document], moment: Callable[[str], str] = str) -> str:
    """Return in a few words what a listed task waits for first; `moment` writes instants."""
    if not entries:
        return ""
    first = entries[0]
    match first["what"]:
        case "child":
            inner = words(first["waiting_for"], moment)
            child = f"its child task {short_id(first['task'])}"
            return f"{child} {inner}" if inner else f"waits for {child}"
        case "person":
            return (
                f"asks: {waits.headline(first['message'])}"
                if first["message"]
                else "waits for a person"
            )
        case "signal":
            return f"waits for the signal {first['name']!r}"
        case "turn":
            return f"waits for its turn: task {short_id(first['task'])} answers first"
        case "worker":
            from agent.core.work_words import worker_wait

            return worker_wait(first["queue"], first["state"], first["worker"])
        case "retry":
            return f"tries again at {moment(first['until'])}"
        case "effect":
            return f"waits for its effect until {moment(first['until'])}"
        case "time":
            return f"waits until {moment(first['until'])}"
        case other:
            return _WORDS[other]


def _own(connection: Connection, ids: list[str]) -> dict[str, list[Document]]:
    by_task: dict[str, list[Document]] = {}
    for row in task_list.waits(connection, ids):
        entry = _entry(row)
        if entry is not None:
            by_task.setdefault(row["task_id"], []).append({"count": row["count"], **entry})
    _add_workers(connection, by_task)
    return by_task


def _add_workers(connection: Connection, by_task: dict[str, list[Document]]) -> None:
    entries = [entry for own in by_task.values() for entry in own if entry["what"] == "worker"]
    if not entries:
        return
    # Few lists have such a wait.
    from agent.store.read import work_views

    leases = work_views.lease_holders(connection, [entry["work"] for entry in entries])
    for entry in entries:
        entry["state"], entry["worker"] = leases.get(entry.pop("work"), (None, None))


def _entry(row: dict[str, Any]) -> Document | None:
    match waits.parse(row["wait"]):
        case None if row["wait"] is None:
            return {"what": "retry", "until": to_iso(row["wake_at"])}
        case Approval(approval_id) | Work(_, _, str() as approval_id):
            return {"what": "person", "approval": approval_id}
        case UnknownCall(_, approval_id):
            return {"what": "unknown", "approval": approval_id}
        case Signal(name):
            return {"what": "signal", "name": name}
        case Timer(store_error=str()):
            return {"what": "store", "until": to_iso(row["wake_at"])}
        case Timer(turn_after=str() as task_id):
            return {"what": "turn", "task": task_id}
        case Timer(at, on_unknown):
            return {"what": "time" if on_unknown is None else "effect", "until": to_iso(at)}
        case Work(work_id, queue):
            return {"what": "worker", "queue": queue, "work": work_id}
        case Child(str() as task_id):
            return {"what": "child", "task": task_id, "waiting_for": []}
    # The items of a group are rows of their own.
    return None


def _add_childrens(
    connection: Connection, by_task: dict[str, list[Document]], parents: list[str]
) -> None:
    """Let entries of children name the descendant whose wait is the most urgent, and its waits."""
    family = task_list.open_descendants(connection, parents)
    own = _own(connection, [row["id"] for row in family])
    by_root: dict[str, list[tuple[str, list[Document]]]] = {}
    for row in family:
        entries = [
            own_entry for own_entry in own.get(row["id"], []) if own_entry["what"] != "child"
        ]
        if row["status"] == TaskStatus.PAUSED:
            entries.append({"what": "paused", "count": 1})
        if entries:
            entries.sort(key=_urgency)
            by_root.setdefault(row["root"], []).append((row["id"], entries))
    for parent in set(parents) & set(by_root):
        task_id, entries = min(by_root[parent], key=lambda waiter: _urgency(waiter[1][0]))
        for entry in by_task[parent]:
            if entry["what"] == "child":
                entry |= {"task": task_id, "waiting_for": entries}


def _add_questions(connection: Connection, by_task: dict[str, list[Document]]) -> None:
    questions = [
        entry
        for entries in by_task.values()
        for outer in entries
        for entry in (outer, *outer.get("waiting_for", ()))
        if entry["what"] in ("person", "unknown")
    ]
    ids = [entry["approval"] for entry in questions if entry["approval"] is not None]
    messages = task_list.questions(connection, ids) if ids else {}
    for entry in questions:
        entry["message"] = messages.get(entry["approval"])


def _urgency(entry: Document) -> tuple[int, int]:
    """Order by what has to be done; a child by what it waits for."""
    inner = entry.get("waiting_for")
    if inner:
        return (_urgency(inner[0])[0], 1)
    return (WHAT.index(entry["what"]), 0)
