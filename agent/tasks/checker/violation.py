"""The checker's findings: one sentence for each broken promise."""

from dataclasses import dataclass
from typing import NamedTuple


class Finding(NamedTuple):
    """A sentence about the task that is being checked, and the name of its step."""

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
