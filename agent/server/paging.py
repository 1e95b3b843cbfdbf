"""Pages of lists, each with where the next one begins; they do not shift when something new comes."""

from typing import Annotated, Any

from fastapi import Query

Cursor = Annotated[
    str | None,
    Query(
        description="`next` of the page before.",
        max_length=100,
        examples=["0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10"],
    ),
]
PartOfId = Annotated[
    str | None,
    Query(
        alias="id",
        description="Only those whose ids begin or end with this.",
        pattern="^[0-9a-f-]{3,36}$",
        examples=["7b6c2a10"],
    ),
]


def page(name: str, found: list[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Return one page; `found` has one more than it may hold if there is another after it."""
    kept = found[:limit]
    return {name: kept, "next": kept[-1]["id"] if len(found) > limit else None}
