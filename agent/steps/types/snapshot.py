"""A value that a step's code appends to the context of its task."""

from dataclasses import dataclass

from agent.core.plain_json import Json


@dataclass(slots=True, eq=False)
class SnapshotOperation:
    """The value to append, and the answer once it is recorded."""

    text: str
    """The value as JSON."""
    label: str | None = None
    answer: Json = None
    """The snapshot's id."""
    refusal: str | None = None
    """Why it cannot be appended."""
