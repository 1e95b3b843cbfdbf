"""Messages of the engine as pages show them: tasks are links, and instants are local times."""

import re
from datetime import tzinfo
from typing import Final

from markupsafe import Markup

from agent.server.pages.framework import templates
from agent.server.pages.framework.page_words import for_pages

_ID: Final = r"(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b"
_TASK: Final = re.compile(r"(?P<before>(?<!asked again )\bas |\b[Tt]ask |\band |, )" + _ID)
"""A task in a message: "retried as ID", "its child task ID", "retried as ID, ID and ID"."""
_QUESTION: Final = re.compile(r"(?P<before>\basked again as )" + _ID)
_INSTANT: Final = re.compile(
    r"\b(?P<day>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(?:Z| UTC)(?!\w)"
)
"""An instant in a message, as documents and as sentences have it."""


def shown(text: str, zone: tzinfo | None) -> Markup:
    """Write a message: tasks and questions as links, instants as local times, quotations as code."""
    # Escaped first: what the patterns find has no character that HTML knows.
    written = str(templates.with_code(for_pages(text)))
    written = _TASK.sub(lambda match: _link(match, "/tasks/"), written)
    written = _QUESTION.sub(lambda match: _link(match, "/questions/"), written)
    return Markup(_INSTANT.sub(lambda match: _time(match, zone), written))  # noqa: S704


def _link(match: re.Match[str], section: str) -> str:
    # The whole id means nothing to a person.
    name = templates.short_id(match["id"])
    return f'{match["before"]}<a href="{section}{match["id"]}"><code>{name}</code></a>'


def _time(match: re.Match[str], zone: tzinfo | None) -> str:
    instant = f"{match['day']}T{match['time']}Z"
    try:
        local, exact = templates.local(instant, zone), templates.utc(instant)
    except (ValueError, OverflowError):  # a text of a person may only look like an instant
        return match[0]
    return f'<time datetime="{instant}" title="{exact}" data-date>{local}</time>'
