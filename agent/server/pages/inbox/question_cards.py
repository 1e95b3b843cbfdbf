"""Questions as cards: the exact action, its differences from the last time, fields and buttons.

The inbox shows all of them, a task's page its own; both use `question.html`.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.approvals import approval_documents, permission
from agent.approvals.permission import Principal
from agent.core.escape import harmless_json
from agent.server.access.sessions import CHANNEL
from agent.server.pages.forms.schema_form import Member, answer_members
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.inbox.answer_page import edit_fields, shown, text_of
from agent.steps.attempt import approval_gate
from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.engine import approval_rows

_SEARCHED: Final = 500
"""Decisions among which the last one of the same step is looked for."""
_MAX_DIFFED: Final = 20_000
"""Characters of a request: of a longer one no difference is made."""
_OPEN_LINES: Final = 30
"""A request of more lines is folded: it would push its buttons away."""
_CONTEXT: Final = 1
DEFERRALS: Final = {"3600": "1 hour", "14400": "4 hours", "86400": "1 day", "604800": "1 week"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a difference."""

    sign: str
    """`-` gone, `+` new, a space for both."""
    text: str


@dataclass(frozen=True, slots=True)
class Card:
    """One open question as it is shown."""

    document: dict[str, Json]
    request: list[tuple[str, str]]
    """The action, part by part."""
    line_count: int
    """How many lines of a phone the request takes, about."""
    diff: list[DiffLine] | None
    """Against the last approved request of the same step; empty: the same. None: there is none."""
    choices: list[str]
    members: list[Member]
    fields: list[dict[str, Any]]
    has_gate: bool
    """Whether something is done after the answer; a step of the kind `approval` only asks."""
    may_answer: bool
    is_deferred: bool
    typed: dict[str, str]

    @property
    def is_short(self) -> bool:
        """Whether the request is open from the start."""
        return self.line_count <= _OPEN_LINES


def cards(
    connection: Connection, request: PageRequest, documents: Sequence[dict[str, Json]]
) -> list[Card]:
    """Return the cards of open questions."""
    earlier = _earlier_requests(connection, documents)
    now = request.context.database.clock.now()
    deferred = approval_rows.deferred(connection, now) if documents else set()
    return [_card(document, earlier, deferred, request) for document in documents]


def _card(
    document: dict[str, Json],
    earlier: dict[str, Json],
    deferred: set[str],
    request: PageRequest,
) -> Card:
    typed = request.typed if request.typed.get("question") == document["id"] else {}
    parts = shown(document)
    before = earlier.get(document["id"])
    return Card(
        document=document,
        request=parts,
        line_count=sum(text.count("\n") + 1 + len(text) // 60 for _, text in parts),
        diff=None if before is None else list(difference(before, _config(document))),
        choices=[text_of(choice) for choice in document["choices"] or []],
        members=answer_members(document["schema"]),
        fields=edit_fields(document, typed),
        has_gate=_config(document) is not None,
        may_answer=_may_answer(request, document["who"]),
        is_deferred=document["id"] in deferred,
        typed=typed,
    )


def _may_answer(request: PageRequest, who: Sequence[str]) -> bool:
    if any(principal.startswith(f"{CHANNEL}:") for principal in who):
        return permission.may_answer(request.principal, who)
    return permission.may_answer(Principal(CHANNEL, "", request.scopes), who)


def _earlier_requests(
    connection: Connection, documents: Iterable[dict[str, Json]]
) -> dict[str, Json]:
    """Return by question the configuration that was approved when the same step asked last."""
    step_of = {
        document["id"]: (document["workflow"], document["step"].partition("[")[0])
        for document in documents
        if _config(document) is not None
    }
    if not step_of:
        return {}
    last = approval_rows.approved_last(connection, _SEARCHED)
    earlier: dict[str, Json] = {}
    for question, step in step_of.items():
        if (approval_id := last.get(step)) is not None:
            before = approval_documents.approval_document(connection, approval_id)
            config, edits = _config(before), (before["decision"] or {}).get("edits")
            if config is not None:
                earlier[question] = approval_gate.apply_edits(config, edits) if edits else config
    return earlier


def _config(document: dict[str, Json]) -> Json:
    request = document["request"]
    config = request.get("config") if isinstance(request, dict) else None
    return config if isinstance(config, dict) else None


def difference(before: Json, after: Json) -> Iterable[DiffLine]:
    """Yield the lines that differ between two values, with a line around each."""
    texts = [harmless_json(value, indent=2) for value in (before, after)]
    if max(map(len, texts)) > _MAX_DIFFED or texts[0] == texts[1]:
        return
    old, new = (text.splitlines() for text in texts)
    for line in list(difflib.unified_diff(old, new, lineterm="", n=_CONTEXT))[2:]:
        if line.startswith("@@"):
            continue
        yield DiffLine(line[:1], line[1:])
