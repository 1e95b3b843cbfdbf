"""The world outside: it counts the effects that really happen, and answers truthfully."""

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.loop import Process, current_process

EffectName = tuple[str, str, int]
"""The line of tasks, the step, the call's number.

A task and its retries are one line, and so are the children of a step; a fork begins another.
"""


@dataclass
class World:
    """The effects of one run's tasks, which no crash of theirs touches."""

    by_key: Counter[str] = field(default_factory=Counter)
    """By the idempotency key of the call."""
    by_remote_key: Counter[str] = field(default_factory=Counter)
    by_name: Counter[EffectName] = field(default_factory=Counter)
    """Effects that must not be repeated without a decision."""
    by_use: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Uses of an agent's tool, by line and number."""
    touched: Counter[str] = field(default_factory=Counter)
    """How often steps that may be repeated have run."""
    refused: set[EffectName] = field(default_factory=set)
    """Calls, each of one task, whose final failure is on record."""
    refused_again: int = 0
    """How often a step that went on after a crash was given such a failure from the record."""
    sent_in_vain: list[EffectName] = field(default_factory=list)
    """Those of them that were sent again."""
    acknowledged: set[str] = field(default_factory=set)
    """Tasks whose creation was acknowledged."""
    on_its_way: dict[int, tuple[Process, Callable[[], None]]] = field(default_factory=dict)
    """Requests whose connections broke, and that arrive all the same."""
    sent: int = 0
    seen: dict[str, set[int]] = field(default_factory=dict)
    """What the attempts of a step saw of `state`, by task and step."""

    def see(self, step: str, value: int) -> None:
        """Record what an attempt saw."""
        self.seen.setdefault(step, set()).add(value)

    def send(self, seconds: float, arrive: Callable[[], None]) -> None:
        """Let a request arrive some time after its connection broke."""
        self.sent += 1
        number = self.sent
        self.on_its_way[number] = (current_process(), arrive)
        # The request is in no process's context any more: no crash takes it back.
        outside = contextvars.Context()
        asyncio.get_running_loop().call_later(seconds, self._arrive, number, context=outside)

    def _arrive(self, number: int) -> None:
        _, arrive = self.on_its_way.pop(number, (None, None))
        if arrive is not None:
            arrive()

    def let_arrive(self, sender: Process | None = None) -> None:
        """Let requests on their way arrive now; those of one sender, or all.

        The engine gives no time to the requests of a process that is certainly gone. It cannot
        distinguish a clock that was set forward from time that passed.
        """
        for number, (by, _) in list(self.on_its_way.items()):
            if sender is None or by is sender:
                self._arrive(number)

    def receive(self, name: EffectName) -> None:
        """Take one request, whatever its result."""
        if name in self.refused:
            self.sent_in_vain.append(name)

    def happen(self, key: str, remote_key: str, name: EffectName, *, is_once: bool) -> None:
        """Let an effect happen."""
        self.by_key[key] += 1
        self.by_remote_key[remote_key] += 1
        if is_once:
            self.by_name[name] += 1

    def has_seen(self, remote_key: str) -> bool:
        """Return whether an effect has happened: the answer to a reconciling caller."""
        return self.by_remote_key[remote_key] > 0

    def broken_promises(self) -> list[str]:
        """Return the effects that happened more than once."""
        return (
            [
                f"call {number} of step {step} (of {line}) happened {count} times"
                for (line, step, number), count in sorted(self.by_name.items())
                if count > 1
            ]
            + [
                f"use {number} of a tool (of {line}) happened {count} times"
                for (line, number), count in sorted(self.by_use.items())
                if count > 1
            ]
            + [
                f"call {number} of step {step} (of {task}) had failed for good, and was sent again"
                for task, step, number in self.sent_in_vain
            ]
            + [
                f"attempts of step {step} saw several values of state: {sorted(values)}"
                for step, values in sorted(self.seen.items())
                if len(values) > 1
            ]
        )
