"""The page behind a link: a question in full, and a form that answers it.

The template escapes control characters in everything it shows. A browser must send
back form values unchanged, so they are marked as exact; a value with such characters is edited as
JSON, which can represent every character.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Template
from markupsafe import Markup
from starlette.responses import Response

from agent.channels.chat import message_texts
from agent.core.escape import harmless, harmless_json
from agent.server.pages.forms.schema_form import answer_members
from agent.server.pages.framework import security_policy, templates
from agent.steps.types.outcome import Json

_DIRECTORY: Final = Path(__file__).parent
_MAX_ROWS: Final = 8
_CHANGED: Final = {
    "request": "the request that was sent, with an unknown result",
    "now": "the request that would be sent now",
}
"""Labels of the two requests of an unknown effect, if they differ."""


def page(
    approval: dict[str, Json] | None,
    *,
    title: str | None = None,
    problem: str | None = None,
    typed: dict[str, str] | None = None,
    status: int = 200,
) -> Response:
    """Return the page of a question, or one that says why there is none.

    `typed` are the form's values of a refused answer, so that nothing has to be typed again.
    """
    typed = typed or {}
    template, style = _parts()
    is_open = approval is not None and approval["status"] == "pending"
    members = answer_members(approval["schema"]) if approval is not None else []
    text = template.render(
        title=title or ("A question" if is_open else "Answered"),
        style=Markup(style),  # noqa: S704  (our own file)
        problem=problem,
        approval=approval,
        ending=None if approval is None or is_open else message_texts.decision(approval),
        message=(approval["message"] or "") if approval is not None else "",
        shown=shown(approval) if approval else [],
        choices=[text_of(choice) for choice in (approval or {}).get("choices") or []],
        fields=edit_fields(approval, typed) if approval is not None else [],
        members=members,
        typed={name: typed.get(name, "") for name in ("output", "choice", "value", "comment")}
        | {member.field: typed.get(member.field, member.default) for member in members}
        | {
            member.choice: member.choice in typed or (not typed and member.is_out_at_first)
            for member in members
        },
    )
    return Response(text, status, headers=_headers(), media_type="text/html; charset=utf-8")


def editable_values(approval: dict[str, Json]) -> dict[str, Json]:
    """Return the editable values by path; None where there is no value yet."""
    values: dict[str, Json] = {}
    for path in approval["editable"]:
        value: Any = approval["request"].get("config")
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        values[path] = value
    return values


def text_of(value: Json) -> str:
    """Write a value for a person: text unchanged, null as nothing, everything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else harmless_json(value, indent=2)


def is_edited_as_json(value: Json) -> bool:
    """Whether a value is edited as JSON: every value but text without control characters."""
    return not isinstance(value, str) or harmless(value) != value


def editable_text(value: Json) -> str:
    """Write a value for a form field, with no invisible characters and readable back unchanged."""
    if isinstance(value, str) and is_edited_as_json(value):
        return harmless_json(value)
    return text_of(value)


def shown(approval: dict[str, Json]) -> list[tuple[str, str]]:
    """Return the parts of the request to show, each with its label."""
    request: Any = approval["request"]
    config = request.get("config") if isinstance(request, dict) else None
    if isinstance(config, dict):
        # An approval of a step: its kind and its whole configuration.
        return [
            ("kind", request["kind"]),
            *((name, text_of(value)) for name, value in config.items()),
        ]
    if approval["kind"] in ("approval", "input"):
        # There is only the message, and perhaps a schema for the answer.
        schema = approval["schema"]
        is_shown = schema is not None and not answer_members(schema)
        return [("schema of the answer", text_of(schema))] if is_shown else []
    labels = _CHANGED if approval["kind"] == "unknown" and "now" in request else {}
    return [(labels.get(name, name), text_of(value)) for name, value in request.items()]


def edit_fields(approval: dict[str, Json], typed: dict[str, str]) -> list[dict[str, Any]]:
    """Return the fields for the editable values, with the text typed before."""
    return [
        {
            "id": f"edit-{number}",
            "name": path,
            "text": typed.get(f"edit:{path}", editable_text(value)),
            "rows": min(_MAX_ROWS, editable_text(value).count("\n") + 1),
            "has_hidden": isinstance(value, str) and is_edited_as_json(value),
        }
        for number, (path, value) in enumerate(editable_values(approval).items())
    ]


@cache
def _parts() -> tuple[Template, str]:
    style = (_DIRECTORY / "answer_page.css").read_text(encoding="utf-8")
    return templates.environment().get_template("answer_page.html"), style


@cache
def _headers() -> dict[str, str]:
    _, style = _parts()
    return {
        "content-security-policy": security_policy.only_style(style),
        "referrer-policy": "no-referrer",
        "x-robots-tag": "noindex",
    }
