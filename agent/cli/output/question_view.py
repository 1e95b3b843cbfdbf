"""A question as the command line shows it: its text, everything that an answer covers, how to answer."""

from typing import Any, Final

from agent.cli import invocation
from agent.cli.output import terminal
from agent.cli.output.terminal import print_line, short
from agent.core.escape import harmless_json

MAX_LINES: Final = 120
MAX_CHARS: Final = 8000
"""How much of a request is shown above a prompt; `agent approvals ID` shows all of it."""


def print_question(document: dict[str, Any], *, clips: bool = False) -> bool:
    """Print a question with its request; return whether the whole request is shown.

    `clips` cuts a long request, so that the question stays on the screen.
    """
    approval = short(document["id"])
    print_line(f"{document['status']}: {document['kind']} {approval}", "bold")
    print_line(
        f"step {document['step']} of task {short(document['task'])} ({document['workflow']})"
    )
    print_line(document["message"])
    is_whole = True
    if clips and document["kind"] == "input":
        # Its request is what is shown already, and its schema.
        if document["schema"]:
            print_line(f"schema: {harmless_json(document['schema'])}")
    else:
        print_line("request:", "bold")
        is_whole = print_request(document, clips=clips)
    is_shown = {"choices", "schema"} if clips else set()
    for name in ("choices", "schema", "editable", "who", "expires_at", "renews"):
        if document[name] and name not in is_shown:
            print_line(f"{name.removesuffix('_at')}: {_detail(name, document[name])}")
    return is_whole


def _detail(name: str, value: Any) -> str:
    if name == "expires_at":
        left = terminal.seconds_until(value)
        in_time = f", in {terminal.duration(left)}" if left else ""
        return f"{terminal.moment(value)}{in_time}"
    is_words = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return terminal.one_line(", ".join(value) if is_words else value, 200)


def print_request(document: dict[str, Any], *, clips: bool = False) -> bool:
    """Print what an answer covers; return whether all of it is shown."""
    text = terminal.to_json_text(document["request"])
    shown = text
    if clips:
        shown = "\n".join(text[:MAX_CHARS].split("\n")[:MAX_LINES])
    print_line(shown)
    if len(shown) < len(text):
        command = f"{invocation.program()} approvals {short(document['id'])}"
        hidden = len(text) - len(shown)
        print_line(f"… {hidden:,} more characters are not shown: `{command}` shows all", "yellow")
    artifact = _stored_elsewhere(document)
    if artifact is not None:
        command = f"{invocation.program()} artifact {artifact}"
        print_line(f"this is how a large request begins: `{command}` shows all of it", "yellow")
    return len(shown) == len(text) and artifact is None


def _stored_elsewhere(document: dict[str, Any]) -> str | None:
    """Return the hash of a request that is too large to be part of its question."""
    from agent.store.artifacts.artifact_rows import REFERENCE_KEY

    request = document["request"]
    inner = request.get("request") if isinstance(request, dict) else None
    if not isinstance(inner, dict) or REFERENCE_KEY not in inner:
        return None
    return str(inner[REFERENCE_KEY])


def how_to_answer(document: dict[str, Any]) -> str:
    """Return the command that answers a question."""
    approval, program = short(document["id"]), invocation.program()
    if document["kind"] == "unknown":
        return f"{program} answer {approval} done | retry | fail"
    if document["kind"] == "input":
        values = " | ".join(map(str, document["choices"] or ["VALUE"]))
        return f"{program} answer {approval} {values}"
    return f"{program} approve {approval}   or   {program} deny {approval} --reason WHY"


def decision_line(document: dict[str, Any]) -> str:
    """Return how a question ended, and by whom."""
    decision = document["decision"] or {}
    by = f" by {decision['by']} ({decision['channel']})" if decision.get("by") else ""
    return f"{short(document['id'])}: {document['status']}{by} (step {document['step']})"
