"""What the checker says: one sentence for each promise that was found broken."""

from dataclasses import dataclass
from typing import NamedTuple


class Said(NamedTuple):
    """A sentence about one task, and the step that it is about, as people write its name."""

    sentence: str
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that a database does not keep."""

    sentence: str
    task_id: str | None = None
    step: str | None = None

    def __str__(self) -> str:
        return self.sentence if self.task_id is None else f"task {self.task_id}: {self.sentence}"
