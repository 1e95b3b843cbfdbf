"""Reads the answer to a question from a form: of the page of a signed link, or of the dashboard."""

import json
from typing import Any

from agent.approvals.answering import InvalidAnswerError
from agent.channels.chat.message_texts import cut
from agent.server.pages.forms.schema_form import answer_members, read_answer_members, read_number
from agent.server.pages.inbox.answer_page import editable_text, editable_values, is_edited_as_json
from agent.steps.spec.questions import VERDICTS, read_answer
from agent.steps.types.outcome import Json

Form = dict[str, str]


def answer_in(approval: dict[str, Json], form: Form) -> dict[str, Any]:
    """Return the answer in a form; raise `InvalidAnswerError` if there is none."""
    pressed = form.get("decision")
    if approval["kind"] == "unknown" and pressed in VERDICTS:
        output = form.get("output", "").strip()
        value: Any = pressed
        if output and pressed == "done":
            value = {"verdict": pressed, "output": _json(output, "its output")}
        return {"decision": "answer", "value": value}
    details: dict[str, Any] = {"comment": form.get("comment", "").strip() or None}
    if pressed == "deny":
        return {**details, "decision": "deny"}
    if pressed == "answer" and approval["kind"] == "input":
        return {**details, "decision": "answer", "value": _value(approval, form)}
    if pressed == "approve":
        return {**details, "decision": "approve", "edits": _edits(approval, form) or None}
    raise InvalidAnswerError("press one of the buttons")


def _value(approval: dict[str, Json], form: Form) -> Json:
    choices = approval["choices"]
    if not choices and answer_members(approval["schema"]) and "value" not in form:
        return read_answer_members(approval["schema"], form)
    if not choices:
        return read_answer(form.get("value", ""), None, approval["schema"])
    number = form.get("choice", "")
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    if not is_number or int(number) >= len(choices):
        raise InvalidAnswerError("choose one of the answers")
    return choices[int(number)]


def _edits(approval: dict[str, Json], form: Form) -> dict[str, Json]:
    """Return the changed values by path; a value that was text stays text."""
    edits: dict[str, Json] = {}
    for path, before in editable_values(approval).items():
        text = form.get(f"edit:{path}")
        if text is None or text == editable_text(before):
            continue
        edits[path] = _edited(path, before, text)
        if isinstance(before, str) and not isinstance(edits[path], str):
            raise InvalidAnswerError(f"for {path} give a text in quotes, not {cut(text, 60)!r}")
    return edits


def _edited(path: str, before: Json, text: str) -> Json:
    if not is_edited_as_json(before):
        return text
    if isinstance(before, bool) or not isinstance(before, int | float):
        return _json(text, path)
    try:
        return read_number(text)
    except ValueError as error:
        raise InvalidAnswerError(f"for {path} give a number: {error}") from None


def _json(text: str, name: str) -> Json:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise InvalidAnswerError(f"for {name} give JSON, not {cut(text, 60)!r}: {place}") from None
    except (ValueError, RecursionError):
        raise InvalidAnswerError(f"for {name} give JSON, not {cut(text, 60)!r}") from None
