"""Round trips to PostgreSQL."""

from typing import Any

import pytest

from agent.store.db.pg_pipeline import PgPipeline


def count_round_trips(monkeypatch: pytest.MonkeyPatch) -> list[PgPipeline]:
    """Count round trips from now on."""
    seen: list[PgPipeline] = []
    send = PgPipeline.send

    def counted(wire: PgPipeline) -> Any:
        seen.append(wire)
        return send(wire)

    monkeypatch.setattr(PgPipeline, "send", counted)
    return seen
