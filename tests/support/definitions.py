"""Definitions that this version cannot read."""

import contextlib
from collections.abc import Iterator

from tests.support.engine import Hand


@contextlib.contextmanager
def unreadable(hand: Hand, workflow: str) -> Iterator[None]:
    """Let a definition be one that this version cannot read, for as long as the block lasts."""
    ((before,),) = hand.rows("SELECT graph FROM workflows WHERE name = :name", name=workflow)
    _write(hand, workflow, '{"steps": "of tomorrow"}')
    try:
        yield
    finally:
        _write(hand, workflow, before)


def _write(hand: Hand, workflow: str, text: str) -> None:
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute(
            "UPDATE workflows SET graph = :text WHERE name = :name", text=text, name=workflow
        )
