"""Paged lists: their query parameters, and pages that new entries do not shift."""

from typing import Annotated, Any

from fastapi import Query

Cursor = Annotated[
    str | None,
    Query(
        description="`next` of the previous page.",
        max_length=100,
        examples=["0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10"],
    ),
]
PartOfId = Annotated[
    str | None,
    Query(
        alias="id",
        description="Only entries whose ids begin or end with this.",
        pattern="^[0-9a-f-]{3,36}$",
        examples=["7b6c2a10"],
    ),
]


def page(name: str, entries: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Return one page; `entries` has one more than `limit` if another page follows."""
    shown = entries[:limit]
    return {name: shown, "next": shown[-1]["id"] if len(entries) > limit else None}
