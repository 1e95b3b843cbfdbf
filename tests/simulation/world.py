"""The world outside: it counts what really happens to it, and tells the truth when asked."""

from collections import Counter
from dataclasses import dataclass, field

Place = tuple[str, str, int]
"""An effect as people would name it: the first of a line of tasks, the step, the call's number."""


@dataclass
class World:
    """What the tasks of one run have done to the world, which no crash of theirs touches."""

    by_key: Counter[str] = field(default_factory=Counter)
    """By the idempotency key of the call."""
    by_remote_key: Counter[str] = field(default_factory=Counter)
    by_place: Counter[Place] = field(default_factory=Counter)
    """Effects that nobody may repeat unasked."""
    by_use: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Uses of an agent's tool, by task and number."""
    touched: Counter[str] = field(default_factory=Counter)
    """How often steps that may be repeated have run."""
    acknowledged: set[str] = field(default_factory=set)
    """Tasks whose creation somebody was told of."""

    def happen(self, key: str, remote_key: str, place: Place, *, is_once: bool) -> None:
        """Let an effect happen."""
        self.by_key[key] += 1
        self.by_remote_key[remote_key] += 1
        if is_once:
            self.by_place[place] += 1

    def has_seen(self, remote_key: str) -> bool:
        """Whether an effect has happened: the answer to whoever asks the remote."""
        return self.by_remote_key[remote_key] > 0

    def broken_promises(self) -> list[str]:
        """Tell which effects happened more often than once."""
        return [
            f"call {number} of step {step} (from task {origin}) happened {count} times"
            for (origin, step, number), count in sorted(self.by_place.items())
            if count > 1
        ] + [
            f"use {number} of a tool in task {task_id} happened {count} times"
            for (task_id, number), count in sorted(self.by_use.items())
            if count > 1
        ]
