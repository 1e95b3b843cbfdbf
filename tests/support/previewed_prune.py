"""A prune that is compared with its preview."""

from agent.store import pruning
from agent.store.db.database import Connection

_prune = pruning.prune


def previewed_prune(connection: Connection, before_us: int) -> dict[str, int]:
    """Preview, prune, and fail unless the preview said what the prune did."""
    expected, kept = pruning.preview(connection, before_us)
    counts = _prune(connection, before_us)
    assert counts == expected
    assert pruning.retained(connection, before_us) == kept
    return counts
