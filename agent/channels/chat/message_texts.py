"""Words for chats: questions, decisions and tasks as plain text."""

from typing import Any, Final

from agent.core import waits
from agent.core.escape import harmless, harmless_json
from agent.core.waits import Signal
from agent.steps.types.outcome import Json
from agent.tasks.read_models.task_documents import short_id

MARKS: Final = {
    "pending": "○",
    "running": "●",
    "waiting": "◔",
    "paused": "◫",
    "succeeded": "✓",
    "failed": "✗",
    "skipped": "–",
    "canceled": "⊘",
}
_ENDED: Final = {
    "approved": "✓ approved",
    "denied": "✗ denied",
    "answered": "✓ answered",
    "expired": "⊘ expired: nobody answered in time",
    "withdrawn": "⊘ withdrawn: nobody waits for it any more",
}


def question(document: dict[str, Json], most: int, word: str = "") -> tuple[str, bool]:
    """Return a question with what will be done, and whether all of it could be shown."""
    head = f"{word}{document['message']}\n\n{_place(document)}"
    if document["expires_at"]:
        head += f"\nexpires {document['expires_at']}"
    for name in ("choices", "schema", "editable"):
        if document[name]:
            head += f"\n{name}: {_json(document[name])}"
    request = harmless_json(document["request"], indent=1)
    whole = harmless(f"{head}\n\n{request}")
    if len(whole) <= most:
        return whole, True
    # An approval is for what was shown: what could not be shown whole must say so.
    tail = f"\n… this is not all: `agent approvals {short_id(document['id'])}` shows it in full"
    return whole[: most - len(tail)] + tail, False


def how_to_answer(document: dict[str, Json]) -> str:
    """Return the commands that answer a question."""
    name = short_id(document["id"])
    if document["kind"] == "unknown":
        return f"/answer {name} done | retry | fail"
    if document["kind"] == "input":
        return f"/answer {name} VALUE   or   /deny {name} REASON"
    edit = f"   or   /edit {name} KEY=VALUE" if document["editable"] else ""
    return f"/approve {name}   or   /deny {name} REASON{edit}"


def ending(document: dict[str, Json], most: int) -> str:
    """Return a question that is one no longer, and what became of it."""
    return cut(harmless(f"{document['message']}\n\n{_place(document)}\n{decided(document)}"), most)


def decided(document: dict[str, Json]) -> str:
    """Return what became of a question."""
    text: str = _ENDED.get(document["status"]) or document["status"]
    decision = document["decision"]
    if decision and decision["by"]:
        text += f" by {decision['by']} ({decision['channel']})"
    if decision and decision["comment"]:
        text += f": {decision['comment']}"
    if decision and decision["value"] is not None:
        text += f"\n{_json(decision['value'])}"
    if decision and decision["edits"]:
        text += f"\nwith {_json(decision['edits'])}"
    return text


def approval_line(document: dict[str, Json]) -> str:
    """Return a question on one line."""
    message = cut(harmless(" ".join(str(document["message"]).split())), 120)
    return f"{short_id(document['id'])}  {document['kind']}  {document['workflow']}: {message}"


def task_line(document: dict[str, Json]) -> str:
    """Return a task on one line."""
    activity = document["activity"]
    waits = ", waits for somebody" if document.get("waits") else ""
    mark = MARKS.get(activity, "?")
    return f"{mark} {short_id(document['id'])}  {document['workflow']}: {activity}{waits}"


def task(document: dict[str, Json]) -> str:
    """Return a task and its steps."""
    lines = [f"{document['workflow']} {document['id']}: {document['activity']}"]
    lines += [
        f"{MARKS.get(step['status'], '?')} {step['name']} ({step['kind']}): {step['status']}"
        + (f", attempt {step['attempt']}" if step["attempt"] > 1 else "")
        for step in document["steps"]
    ]
    if document["output"] is not None:
        lines.append(f"output: {cut(harmless(_json(document['output'])), 500)}")
    if document["error"] is not None:
        lines.append(f"error: {error(document['error'])}")
    return "\n".join(lines)


def why(document: dict[str, Json]) -> str:
    """Return why a task is as it is."""
    head = f"{document['workflow']} {short_id(document['id'])} is {document['activity']}"
    reason = document["pause_reason"]
    lines = [head + (f": {harmless(reason)}" if reason else "")]
    if document["error"] is not None:
        lines.append(error(document["error"]))
    lines += [
        f"step {step['name']} failed: {error(step['error'])}"
        for step in document["steps"]
        if step["status"] == "failed" and step["error"] is not None
    ]
    lines += [
        f"step {step['name']} is running"
        for step in document["steps"]
        if step["status"] == "running" and not step["delay"]
    ]
    lines += [f"step {on['step']} waits {_what_for(on)}" for on in document["waiting_on"]]
    return "\n".join(lines)


def _what_for(on: dict[str, Json]) -> str:
    wait = waits.from_document(on)
    approval_id = waits.approval_of(wait)
    if approval_id is not None:
        message = cut(harmless(str(on.get("message"))), 300)
        return f"for an answer to {short_id(approval_id)}: {message}"
    if isinstance(wait, Signal):
        return f"for the signal {wait.name!r}"
    if "store" in on:
        return f"for the artifact store: {cut(str(on.get('error') or on['store']), 300)}"
    rest = {name: value for name, value in on.items() if name != "step" and value}
    return f"for {cut(harmless(_json(rest)), 300)}"


def failed_task(document: dict[str, Json]) -> str:
    """Return the news that a task has failed."""
    return f"✗ {document['workflow']} {short_id(document['id'])} failed: {error(document['error'])}"


def outage(event: str, told: dict[str, Json]) -> str:
    """Return the news that a store of large values does not answer, or does again."""
    if event == "artifacts.reachable":
        return harmless(f"✓ the artifact store {told.get('store')} answers again")
    reason = cut(str(told.get("error")), 500)
    return harmless(
        f"✗ the artifact store {told.get('store')} does not answer; what needs it waits: {reason}"
    )


def error(found: Any) -> str:
    """Return an error's message."""
    message = found.get("message") if isinstance(found, dict) else found
    return cut(harmless(str(message)), 1000)


def cut(text: str, most: int) -> str:
    """Return a text that is not longer than so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _place(document: dict[str, Json]) -> str:
    return (
        f"{document['kind']} {short_id(document['id'])}: step {document['step']} of"
        f" {document['workflow']}, task {short_id(document['task'])}"
    )


def _json(value: Json) -> str:
    return value if isinstance(value, str) else harmless_json(value)
