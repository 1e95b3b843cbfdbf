"""The texts that chats send: questions, decisions and tasks, as plain text.

`question` makes the text of every question, whichever chat it is sent to.
"""

from typing import Any, Final

from agent.channels.chat import schema_words
from agent.core import waits
from agent.core.escape import harmless, harmless_json
from agent.core.state_machine import shown_step_status
from agent.core.waits import Signal
from agent.steps.types.outcome import Json
from agent.tasks.read_models import listed_waits
from agent.tasks.read_models.task_documents import retried_words, short_id

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
_DECISIONS: Final = {
    "approved": "✓ approved",
    "denied": "✗ denied",
    "answered": "✓ answered",
    "expired": "⊘ expired: not answered in time",
    "withdrawn": "⊘ withdrawn: the step no longer waits for it",
}


def question(document: dict[str, Json], max_length: int, prefix: str = "") -> tuple[str, bool]:
    """Return the text of a question, request included, and whether it is complete."""
    head = f"{prefix}{document['message']}\n\n{_origin(document)}"
    if document["expires_at"]:
        head += f"\nexpires {document['expires_at']}"
    if document["kind"] == "input":
        whole = harmless(f"{head}\n\n{_wanted(document)}")
    else:
        for name in ("choices", "schema", "editable"):
            if document[name]:
                head += f"\n{name}: {_json(document[name])}"
        whole = harmless(f"{head}\n\n{harmless_json(document['request'], indent=1)}")
    if len(whole) <= max_length:
        return whole, True
    # An approval covers exactly what was shown, so a cut text must say that it is cut.
    tail = f"\n… cut here: `agent approvals {short_id(document['id'])}` shows all of it"
    return whole[: max_length - len(tail)] + tail, False


def _wanted(document: dict[str, Json]) -> str:
    """Describe the allowed answers in words; the request holds nothing else."""
    if document["choices"]:
        return "choose one:\n" + "\n".join(f"• {_json(choice)}" for choice in document["choices"])
    if document["schema"]:
        return "answer with " + schema_words.describe(document["schema"])
    return "answer with a text"


def paired(scopes: list[str]) -> str:
    """Return the confirmation of a pairing."""
    return (
        f"This account is paired with the agent and may: {', '.join(scopes)}. /help lists the"
        " commands. Open questions follow."
    )


def readable(value: Json, indent: str = "") -> str:
    """Return a value as lines of names and values, without brackets."""
    if isinstance(value, dict) and value:
        return "\n".join(
            f"{indent}{name}:{_nested(member, indent)}" for name, member in value.items()
        )
    if isinstance(value, list) and value:
        return "\n".join(f"{indent}•{_nested(member, indent)}" for member in value)
    return f"{indent}{_scalar(value)}"


def _nested(value: Json, indent: str) -> str:
    if isinstance(value, dict | list) and value:
        return "\n" + readable(value, indent + "  ")
    return f" {_scalar(value)}"


def _scalar(value: Json) -> str:
    words = {None: "nothing", True: "yes", False: "no"}
    if value is None or isinstance(value, bool):
        return words[value]
    return "none" if value in ({}, []) else str(value)


def how_to_answer(document: dict[str, Json]) -> str:
    """Return the commands that answer a question."""
    name = short_id(document["id"])
    if document["kind"] == "unknown":
        return f"/answer {name} done | retry | fail"
    if document["kind"] == "input":
        return f"/answer {name} VALUE   or   /deny {name} REASON"
    edit = f"   or   /edit {name} KEY=VALUE" if document["editable"] else ""
    return f"/approve {name}   or   /deny {name} REASON{edit}"


def closed_question(document: dict[str, Json], max_length: int) -> str:
    """Return a question that was decided, has expired or was withdrawn, and the decision."""
    text = f"{document['message']}\n\n{_origin(document)}\n{decision(document)}"
    return cut(harmless(text), max_length)


def decision(document: dict[str, Json]) -> str:
    """Return the decision on a question, and who made it."""
    text: str = _DECISIONS.get(document["status"]) or document["status"]
    decision = document["decision"]
    if not decision:
        return text
    if decision["by"]:
        text += f" by {decision['by']} ({decision['channel']})"
    if decision["comment"]:
        text += f": {decision['comment']}"
    if decision["value"] is not None:
        text += f"\n{_json(decision['value'])}"
    if decision["edits"]:
        text += f"\nwith {_json(decision['edits'])}"
    return text


def approval_line(document: dict[str, Json]) -> str:
    """Return a question on one line."""
    message = cut(harmless(waits.headline(document["message"])), 120)
    return f"{short_id(document['id'])}  {document['kind']}  {document['workflow']}: {message}"


def task_line(document: dict[str, Json]) -> str:
    """Return a task on one line."""
    activity = document["activity"]
    what = ""
    if activity == "waiting":
        words = " ".join(listed_waits.words(document["waiting_for"]).split())
        what = f", {cut(harmless(words), 100)}" if words else ""
    if again := retried_words(document):
        what = f", {again}"
    mark = MARKS.get(activity, "?")
    return f"{mark} {short_id(document['id'])}  {document['workflow']}: {activity}{what}"


def task(document: dict[str, Json]) -> str:
    """Return a task and its steps."""
    lines = [f"{document['workflow']} {document['id']}: {document['activity']}"]
    lines += filter(None, [retried_words(document)])
    for step in document["steps"]:
        status = shown_step_status(step["status"], document["status"])
        attempt = f", attempt {step['attempt']}" if step["attempt"] > 1 else ""
        lines.append(f"{MARKS.get(status, '?')} {step['name']} ({step['kind']}): {status}{attempt}")
    if document["output"] is not None:
        lines.append(f"output: {cut(harmless(_json(document['output'])), 500)}")
    if document["error"] is not None:
        lines.append(f"error: {error(document['error'])}")
    return "\n".join(lines)


def why(document: dict[str, Json]) -> str:
    """Return why a task failed, was paused, or waits."""
    head = f"{document['workflow']} {short_id(document['id'])} is {document['activity']}"
    reason = document["pause_reason"]
    lines = [head + (f": {harmless(reason)}" if reason else "")]
    lines += filter(None, [retried_words(document)])
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
        message = cut(harmless(waits.headline(on.get("message"))), 300)
        return f"for an answer to {short_id(approval_id)}: {message}"
    if isinstance(wait, Signal):
        return f"for the signal {wait.name!r}"
    if "turn_after" in on:
        return f"for its turn: task {short_id(str(on['turn_after']))} answers first"
    if "thread" in on:
        return f"for its thread: {cut(harmless(str(on['error'])), 300)}"
    if "store" in on:
        return f"for the artifact store: {cut(str(on.get('error') or on['store']), 300)}"
    rest = {name: value for name, value in on.items() if name != "step" and value}
    return f"for {cut(harmless(_json(rest)), 300)}"


def failed_task(document: dict[str, Json]) -> str:
    """Return the notification of a failed task."""
    return f"✗ {document['workflow']} {short_id(document['id'])} failed: {error(document['error'])}"


def outage(event: str, data: dict[str, Json]) -> str:
    """Return the notification that an artifact store does not answer, or answers again."""
    if event == "artifacts.reachable":
        return harmless(f"✓ the artifact store {data.get('store')} answers again")
    reason = cut(str(data.get("error")), 500)
    return harmless(
        f"✗ the artifact store {data.get('store')} does not answer; steps that need it wait: {reason}"
    )


def error(document: Any) -> str:
    """Return an error's message."""
    message = document.get("message") if isinstance(document, dict) else document
    return cut(harmless(str(message)), 1000)


def cut(text: str, max_length: int) -> str:
    """Return a text, cut if it is longer than a number of characters."""
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _origin(document: dict[str, Json]) -> str:
    return (
        f"{document['kind']} {short_id(document['id'])}: step {document['step']} of"
        f" {document['workflow']}, task {short_id(document['task'])}"
    )


def _json(value: Json) -> str:
    return value if isinstance(value, str) else harmless_json(value)
