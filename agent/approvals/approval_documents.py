"""Approvals as people and programs see them: one document for every surface."""

import json
from collections.abc import Sequence
from typing import Final

from agent.core.clock import to_iso
from agent.core.plain_json import Json
from agent.store.artifacts import artifact_rows
from agent.store.db.database import Connection, StoreError
from agent.store.engine import approval_rows as store
from agent.store.engine.approval_rows import ApprovalRow
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models.task_documents import find_one

_MOST_SHOWN: Final = 2000
"""How many characters of a large request are shown; `agent artifact` shows all of it."""


def list_approvals(
    connection: Connection,
    *,
    is_all: bool = False,
    task_id: str | None = None,
    task_ids: Sequence[str] | None = None,
    limit: int = 100,
    after: str | None = None,
    like: str | None = None,
) -> list[dict[str, Json]]:
    """Return pending approvals, oldest first; or all of them, newest first.

    `after` is the last id of the page before. `like` selects ids that begin or end with it.
    """
    listed = store.listed(
        connection,
        is_all=is_all,
        task_id=task_id,
        task_ids=task_ids,
        limit=limit,
        after=after,
        like=like,
    )
    return [_document(connection, *entry) for entry in listed]


def approval_document(connection: Connection, approval_id: str) -> dict[str, Json]:
    """Return one approval with everything about it."""
    placed = store.placed(connection, approval_id)
    if placed is None:
        raise NotFoundError(f"there is no approval {approval_id}")
    return _document(connection, *placed)


def recently_decided(connection: Connection, most: int) -> list[dict[str, Json]]:
    """Return the approvals decided last, the newest decision first."""
    return [_document(connection, *entry) for entry in store.recently_decided(connection, most)]


def find_approval(connection: Connection, text: str) -> str:
    """Return the one approval whose id is, begins with, or ends with a text."""
    return find_one(text, "approval", lambda part: store.like(connection, part))


def _document(
    connection: Connection,
    row: ApprovalRow,
    workflow: str,
    task_status: str,
    step: str,
    parallel_index: int,
) -> dict[str, Json]:
    decision = None
    if row.decided_at is not None:
        decision = {
            "by": row.decided_by,
            "channel": row.decided_channel,
            "at": to_iso(row.decided_at),
            "comment": row.comment,
            "value": _loaded(row.value),
            "edits": _loaded(row.edits),
        }
    return {
        "id": row.id,
        "kind": row.kind,
        "status": row.status,
        "task": row.task_id,
        "task_status": task_status,
        "workflow": workflow,
        "step": f"{step}[{parallel_index}]" if parallel_index >= 0 else step,
        "attempt": row.attempt,
        "message": row.message,
        "request": _request(connection, row),
        "request_hash": row.request_hash,
        "choices": _loaded(row.choices),
        "schema": _loaded(row.value_schema),
        "editable": _loaded(row.editable) or [],
        "who": _loaded(row.who) or [],
        "created_at": to_iso(row.created_at),
        "expires_at": to_iso(row.expires_at),
        "on_expiry": row.on_expiry,
        "remind_at": to_iso(row.remind_at),
        "renews": row.renews,
        "decision": decision,
    }


def _request(connection: Connection, row: ApprovalRow) -> Json:
    """Return the request; of one that is stored as an artifact, how it begins."""
    request = _loaded(row.request)
    unknown_request = (
        request.get("request") if row.kind == "unknown" and isinstance(request, dict) else None
    )
    if not isinstance(unknown_request, dict) or unknown_request.keys() != {
        artifact_rows.REFERENCE_KEY
    }:
        return request
    try:
        content = artifact_rows.get(connection, str(unknown_request[artifact_rows.REFERENCE_KEY]))
    except StoreError as error:
        return {**request, "request": {**unknown_request, "problem": error.message}}
    if content is None:
        return request
    begins = content.decode("utf-8", "replace")[:_MOST_SHOWN]
    return {**request, "request": {**unknown_request, "begins": begins}}


def _loaded(text: str | None) -> Json:
    return json.loads(text) if text is not None else None
