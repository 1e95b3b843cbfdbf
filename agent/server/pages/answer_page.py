"""The page behind a link: a question in full, and a form that answers it.

Whatever the template shows is made harmless on its way (`_shown_safely`). What a browser sends back
must be exactly what it was given, so form values are marked as exact; a value that would have to be
escaped is edited as JSON, which can write every character.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from starlette.responses import Response

from agent.channels.chat import message_texts
from agent.core.escape import harmless, harmless_json
from agent.server.pages.schema_form import members_of
from agent.steps.types.outcome import Json

_HERE: Final = Path(__file__).parent
_MOST_ROWS: Final = 8
_CHANGED: Final = {
    "request": "what was sent, with an unknown outcome",
    "now": "what would be sent now",
}
"""What the two requests of an unknown effect are called where they differ."""


def page(
    approval: dict[str, Json] | None,
    *,
    title: str | None = None,
    problem: str | None = None,
    typed: dict[str, str] | None = None,
    status: int = 200,
) -> Response:
    """Return the page of a question, or one that says why there is none.

    `typed` is what somebody has filled in, so that a mistake costs nothing.
    """
    given = typed or {}
    template, style = _parts()
    is_open = approval is not None and approval["status"] == "pending"
    members = members_of(approval["schema"]) if approval is not None else []
    text = template.render(
        title=title or ("A question" if is_open else "Answered"),
        style=Markup(style),  # noqa: S704  (a file of ours)
        problem=problem,
        approval=approval,
        ending=None if approval is None or is_open else message_texts.decision(approval),
        message=(approval["message"] or "") if approval is not None else "",
        shown=_shown(approval) if approval else [],
        choices=[text_of(each) for each in (approval or {}).get("choices") or []],
        fields=_fields(approval, given) if approval is not None else [],
        members=members,
        typed={name: given.get(name, "") for name in ("output", "choice", "value", "comment")}
        | {each.field: given.get(each.field, each.default) for each in members},
    )
    return Response(text, status, headers=_headers(), media_type="text/html; charset=utf-8")


def editable_values(approval: dict[str, Json]) -> dict[str, Json]:
    """Return what may be edited, by its path; None where there is nothing yet."""
    found: dict[str, Json] = {}
    for path in approval["editable"]:
        value: Any = approval["request"].get("config")
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        found[path] = value
    return found


def text_of(value: Json) -> str:
    """Write a value for a person: text as it is, everything else as JSON; nothing for nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else harmless_json(value, indent=2)


def is_edited_as_json(value: Json) -> bool:
    """Whether a value is edited as JSON: what is no text, and text that would have to be escaped."""
    return not isinstance(value, str) or harmless(value) != value


def editable_text(value: Json) -> str:
    """Write a value for a field, in which nothing is hidden and which reads back as the same."""
    if isinstance(value, str) and is_edited_as_json(value):
        return harmless_json(value)
    return text_of(value)


def _shown(approval: dict[str, Json]) -> list[tuple[str, str]]:
    """Return what an answer is about, by name."""
    request: Any = approval["request"]
    config = request.get("config") if isinstance(request, dict) else None
    if isinstance(config, dict):
        # A gate: the kind of the step, and all that it will be run with.
        return [("kind", request["kind"]), *((name, text_of(it)) for name, it in config.items())]
    if approval["kind"] in ("approval", "input"):
        # There is nothing but the message itself, and perhaps what an answer must be like.
        schema = approval["schema"]
        is_written = schema is not None and not members_of(schema)
        return [("what an answer must fit", text_of(schema))] if is_written else []
    names = _CHANGED if approval["kind"] == "unknown" and "now" in request else {}
    return [(names.get(name, name), text_of(it)) for name, it in request.items()]


def _fields(approval: dict[str, Json], typed: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"edit-{number}",
            "name": path,
            "text": typed.get(f"edit:{path}", editable_text(value)),
            "rows": min(_MOST_ROWS, editable_text(value).count("\n") + 1),
            "has_hidden": isinstance(value, str) and is_edited_as_json(value),
        }
        for number, (path, value) in enumerate(editable_values(approval).items())
    ]


def _shown_safely(value: Any) -> Any:
    """Let no expression of the template show a text that deceives."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else harmless(value)


@cache
def _parts() -> tuple[Template, str]:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown_safely,
    )
    environment.filters["exactly"] = escape
    return environment.get_template("answer_page.html"), (_HERE / "answer_page.css").read_text(
        encoding="utf-8"
    )


@cache
def _headers() -> dict[str, str]:
    digest = base64.b64encode(hashlib.sha256(_parts()[1].encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'none'"
    )
    return {
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "x-robots-tag": "noindex",
    }
